//! Conceals or reveals ids, `N` times: `public_ids conceal N`. A program that counts instructions
//! runs it with two numbers (docs/internals/testing.md).

use std::hint::black_box;

use snowflake_core::id::public::{Keys, Prefix};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, count] = &arguments[..] else { panic!("usage: public_ids conceal|reveal N") };
    let count: i64 = count.parse().expect("N is a number");
    let prefix = Prefix::parse("ord").expect("it is a prefix");
    let keys = Keys::new(prefix, [(i64::MIN, [7; 32].as_slice())]).expect("the key has 32 bytes");
    let token = keys.conceal(1).expect("the key conceals all ids");
    let token = token.as_str().as_bytes();
    for id in 0..count {
        if what == "conceal" {
            black_box(black_box(&keys).conceal(black_box(id)));
        } else {
            black_box(black_box(&keys).reveal(black_box(token)));
        }
    }
}
