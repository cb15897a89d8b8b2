//! Tests public ids: each id has one token under each set of keys, which reveals it, and no other
//! text stands for an id.
//!
//! The oracle writes letters by dividing, and finds the key of an id by looking at all of them. The
//! cipher itself is compared with other programs' (`vectors.rs`).

use std::collections::HashSet;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use snowflake_core::id::public::{KEY_LENGTHS, Keys, Prefix, PublicIdError, fingerprint};

use crate::config;
use crate::kit::random::Random;

const LETTERS: &str = "0123456789abcdefghjkmnpqrstvwxyz";

fn keys(prefix: &str, keys: &[(i64, Vec<u8>)]) -> Keys {
    let keys = keys.iter().map(|(first_id, key)| (*first_id, key.as_slice()));
    Keys::new(Prefix::parse(prefix).unwrap(), keys).unwrap()
}

fn one_key(prefix: &str) -> Keys {
    keys(prefix, &[(i64::MIN, (0..32).collect())])
}

fn token(keys: &Keys, id: i64) -> String {
    keys.conceal(id).unwrap().as_str().to_owned()
}

/// The number that letters stand for, however large.
fn number(letters: &str) -> Option<u128> {
    let value = |letter| LETTERS.find(letter).map(|value| value as u128);
    letters.chars().try_fold(0_u128, |number, letter| number.checked_mul(32)?.checked_add(value(letter)?))
}

fn block(token: &str) -> u128 {
    number(token.rsplit_once('_').unwrap().1).unwrap()
}

/// The letters of a number.
fn letters(mut number: u128) -> String {
    let mut letters = String::new();
    for _ in 0..26 {
        letters.insert(0, LETTERS.chars().nth((number % 32) as usize).unwrap());
        number /= 32;
    }
    assert_eq!(number, 0);
    letters
}

/// Any number, and often one near an end or near 0.
fn any_id() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), (-3_i64..3), Just(i64::MIN), Just(i64::MAX), any::<i64>().prop_map(|id| id >> 22)]
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn each_id_is_concealed_by_the_key_of_its_range(
        given in btree_map(any_id(), vec(any::<u8>(), KEY_LENGTHS), 0..5),
        ids in vec(any_id(), 1..10),
        near in -2_i64..2,
        prefix in "[a-z]([a-z_]{0,14}[a-z])?",
    ) {
        let given: Vec<_> = given.into_iter().collect();
        let all = keys(&prefix, &given);
        let starts = given.iter().map(|(first_id, _)| first_id.saturating_add(near));
        for id in ids.into_iter().chain(starts) {
            let of = given.iter().rfind(|(first_id, _)| *first_id <= id);
            let Some((_, key)) = of else {
                prop_assert_eq!(all.conceal(id), None);
                continue;
            };
            let token = token(&all, id);
            prop_assert_eq!(&token, &super::public::token(&keys(&prefix, &[(i64::MIN, key.clone())]), id));
            prop_assert_eq!(all.reveal(token.as_bytes()), Some(id));
            prop_assert!(all.is_token(token.as_bytes()));
            prop_assert_eq!(&token, &format!("{prefix}_{}", letters(block(&token))));
            // Of the tokens that all keys make of the id, only this one is the id's.
            for (_, other) in given.iter().filter(|(_, other)| other != key) {
                let forged = super::public::token(&keys(&prefix, &[(i64::MIN, other.clone())]), id);
                prop_assert_eq!(all.reveal(forged.as_bytes()), None);
            }
        }
    }

    #[test]
    fn prefixes_are_1_to_16_letters_and_underscores_inside(text in "[a-c_A0-]{0,18}") {
        let is_inside = |c: char| c == '_' || c.is_ascii_lowercase();
        let is_prefix = (1..=16).contains(&text.len()) && text.chars().all(is_inside)
            && !text.starts_with('_') && !text.ends_with('_');
        prop_assert_eq!(Prefix::parse(&text).is_ok(), is_prefix);
    }

    #[test]
    fn keys_have_16_to_64_bytes(key in vec(any::<u8>(), 0..80)) {
        let is_key = (16..=64).contains(&key.len());
        let error = PublicIdError::KeyLength(key.len());
        prop_assert_eq!(fingerprint(&key).is_ok(), is_key);
        let keys = Keys::new(Prefix::parse("ord").unwrap(), [(0, key.as_slice())]);
        prop_assert_eq!(keys.err(), (!is_key).then_some(error));
    }
}

#[test]
fn no_random_text_stands_for_an_id() {
    let all = one_key("ord");
    let random = Random::new(64);
    let mut read = 0;
    for turn in 0..1_000_000 {
        let text: Vec<u8> = match turn % 4 {
            // What looks like a token.
            0 | 1 => {
                let letter = |_| LETTERS.as_bytes()[random.below(32)];
                b"ord_".iter().copied().chain((0..26).map(letter)).collect()
            }
            2 => (0..random.below(40)).map(|_| random.below(256) as u8).collect(),
            _ => {
                let mut text = b"ord_27xhgkv8783g9brj0n2t3mdpe8".to_vec();
                for _ in 0..1 + random.below(4) {
                    let at = random.below(text.len());
                    match random.below(3) {
                        0 => text[at] = text[at].wrapping_add(1 + random.below(255) as u8),
                        1 => drop(text.remove(at)),
                        _ => text.insert(at, random.below(256) as u8),
                    }
                }
                text
            }
        };
        read += usize::from(all.is_token(&text));
        let found = all.reveal(&text);
        assert!(found.is_none() || text == b"ord_27xhgkv8783g9brj0n2t3mdpe8", "{text:?}: {found:?}");
    }
    // A fourth of those that look like one begin with a letter up to 7.
    assert!((100_000..500_000).contains(&read), "{read}");
}

#[test]
fn no_token_with_another_letter_stands_for_an_id() {
    let all = one_key("ord");
    let random = Random::new(65);
    for _ in 0..1000 {
        let id = random.bits().cast_signed();
        let token = token(&all, id).into_bytes();
        for at in 0..token.len() {
            for byte in (0..=255).filter(|byte| *byte != token[at]) {
                let mut changed = token.clone();
                changed[at] = byte;
                assert_eq!(all.reveal(&changed), None, "{changed:?}");
            }
            let mut shorter = token.clone();
            shorter.remove(at);
            assert_eq!(all.reveal(&shorter), None);
        }
    }
}

/// 2^128 more is the same number, modulo 2^128.
#[test]
fn the_first_letter_has_three_bits() {
    let all = one_key("ord");
    for id in 0..100 {
        let token = token(&all, id);
        let (first, rest) = token["ord_".len()..].split_at(1);
        let value = LETTERS.find(first).unwrap();
        assert!(value < 8);
        for more in [8, 16, 24] {
            let other = LETTERS.chars().nth(value + more).unwrap();
            assert_eq!(all.reveal(format!("ord_{other}{rest}").as_bytes()), None);
        }
        assert_eq!(all.reveal(token.to_uppercase().as_bytes()), None);
        assert_eq!(all.reveal(format!("ord_{}", token["ord_".len()..].to_uppercase()).as_bytes()), None);
    }
}

#[test]
fn prefixes_have_tokens_that_share_nothing() {
    let prefixes = ["a", "b", "ab", "a_b", "ord", "or", "usr", "abcdefghijklmnop", "abcdefghijklmnoq"];
    let blocks: HashSet<u128> = prefixes.iter().map(|prefix| block(&token(&one_key(prefix), 1))).collect();
    assert_eq!(blocks.len(), prefixes.len());
    for prefix in prefixes {
        let letters = token(&one_key(prefix), 1).rsplit_once('_').unwrap().1.to_owned();
        for other in prefixes.iter().filter(|other| **other != prefix) {
            assert_eq!(one_key(other).reveal(format!("{other}_{letters}").as_bytes()), None);
        }
    }
}

/// Each bit of the tokens of consecutive ids, and of the differences of neighbours, is set as often
/// as not, and each byte has each value as often.
#[test]
fn tokens_of_consecutive_ids_look_random() {
    const COUNT: usize = 1_000_000;
    let all = one_key("ord");
    let blocks: Vec<u128> = (0..=COUNT as i64).map(|id| block_of(&all, 7_234_567_890_123_456_789 + id)).collect();
    for blocks in [blocks[1..].to_vec(), blocks.windows(2).map(|pair| pair[0] ^ pair[1]).collect()] {
        // Six standard deviations of the number of bits that are set.
        let most = 6.0 * (COUNT as f64).sqrt() / 2.0;
        for bit in 0..128 {
            let set = blocks.iter().filter(|block| **block >> bit & 1 == 1).count() as f64;
            assert!((set - COUNT as f64 / 2.0).abs() < most, "bit {bit}: {set}");
        }
        let mut counts = [0_u64; 256];
        blocks.iter().for_each(|block| block.to_be_bytes().iter().for_each(|byte| counts[usize::from(*byte)] += 1));
        let expected = COUNT as f64 * 16.0 / 256.0;
        let chi_square: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
        // 255 degrees of freedom: a mean of 255, and a standard deviation of 22.6.
        assert!((120.0..390.0).contains(&chi_square), "{chi_square}");
    }
}

/// As [`block`], without the oracle's divisions.
fn block_of(keys: &Keys, id: i64) -> u128 {
    let token = keys.conceal(id).unwrap();
    let value = |letter: &u8| LETTERS.bytes().position(|other| other == *letter).unwrap() as u128;
    token.as_str().as_bytes()["ord_".len()..].iter().fold(0, |number, letter| number << 5 | value(letter))
}
