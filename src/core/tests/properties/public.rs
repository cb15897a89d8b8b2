//! Tests public ids: each id has one token under each set of keys, which reveals it, and no other
//! text stands for an id.
//!
//! The model writes letters by dividing, and finds the key of an id by looking at all of them. It
//! can lie, and each lie is found by one of the checks that the core passes. The cipher itself is
//! compared with other programs' (`vectors.rs`), and with the core's own unit test.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sha2::Sha256;
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

/// What has keys for the tokens of one prefix: the core, or a model of it.
trait PublicIds {
    fn conceal(&self, id: i64) -> Option<String>;
    fn reveal(&self, text: &[u8]) -> Option<i64>;
}

impl PublicIds for Keys {
    fn conceal(&self, id: i64) -> Option<String> {
        Some(self.conceal(id)?.as_str().to_owned())
    }

    fn reveal(&self, text: &[u8]) -> Option<i64> {
        self.reveal(text)
    }
}

/// Makes public ids for a prefix, of keys with the first ids that they conceal.
type Make<'a> = &'a dyn Fn(&str, &[(i64, Vec<u8>)]) -> Box<dyn PublicIds>;

fn core(prefix: &str, given: &[(i64, Vec<u8>)]) -> Box<dyn PublicIds> {
    Box::new(keys(prefix, given))
}

/// The key of some vectors, for all ids.
fn of_one_key(make: Make<'_>, prefix: &str) -> Box<dyn PublicIds> {
    make(prefix, &[(i64::MIN, (0..32).collect())])
}

/// What is done wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Any block stands for an id.
    ZeroBytesNotCompared,
    /// All prefixes have the same key.
    PrefixNotInKey,
    /// The end of the label is missing, so a prefix can go on where the label ends.
    NoEndOfLabel,
    /// A long key is cut.
    KeyCut,
    LeastSignificantFirst,
    NewestConceals,
    BeginNotLookedAt,
    EndNotLookedAt,
    /// A number above 128 bits is taken modulo 2^128.
    Modulo,
    CapitalsFolded,
}

/// As the head of `src/core/id/public.rs` has it.
struct Model {
    prefix: String,
    /// With the first id that each conceals, the oldest first.
    keys: Vec<(i64, Aes256)>,
    lie: Option<Lie>,
}

impl Model {
    fn new(prefix: &str, given: &[(i64, Vec<u8>)], lie: Option<Lie>) -> Self {
        let label: &[u8] = match lie {
            Some(Lie::NoEndOfLabel) => b"snowflake_id public id 1",
            _ => b"snowflake_id public id 1\0",
        };
        let cipher = |key: &[u8]| {
            let key = if lie == Some(Lie::KeyCut) { &key[..key.len().min(32)] } else { key };
            let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap();
            mac.update(label);
            if lie != Some(Lie::PrefixNotInKey) {
                mac.update(prefix.as_bytes());
            }
            Aes256::new(&mac.finalize().into_bytes())
        };
        let mut keys: Vec<_> = given.iter().map(|(first_id, key)| (*first_id, cipher(key))).collect();
        keys.sort_by_key(|(first_id, _)| *first_id);
        Self { prefix: prefix.to_owned(), keys, lie }
    }

    fn lies(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }
}

impl PublicIds for Model {
    fn conceal(&self, id: i64) -> Option<String> {
        let (_, cipher) = self.keys.iter().rfind(|(first_id, _)| *first_id <= id || self.lies(Lie::NewestConceals))?;
        let bytes = if self.lies(Lie::LeastSignificantFirst) { id.to_le_bytes() } else { id.to_be_bytes() };
        let mut block = Array::from([bytes, [0; 8]].concat().try_into().map(|block: [u8; 16]| block).unwrap());
        cipher.encrypt_block(&mut block);
        Some(format!("{}_{}", self.prefix, letters(u128::from_be_bytes(block.into()))))
    }

    fn reveal(&self, text: &[u8]) -> Option<i64> {
        let text = str::from_utf8(text).ok()?;
        let text = if self.lies(Lie::CapitalsFolded) { text.to_lowercase() } else { text.to_owned() };
        let letters = text.strip_prefix(&self.prefix)?.strip_prefix('_').filter(|letters| letters.len() == 26)?;
        let number = match number(letters) {
            None if self.lies(Lie::Modulo) => {
                let value = LETTERS.find(&letters[..1])? as u128;
                number(&letters[1..])?.wrapping_add(value << 125)
            }
            number => number?,
        };
        self.keys.iter().enumerate().rev().find_map(|(at, (first_id, cipher))| {
            let end = self.keys.get(at + 1).map(|(first_id, _)| *first_id);
            let mut block = Array::from(number.to_be_bytes());
            cipher.decrypt_block(&mut block);
            let (bytes, zero) = block.split_at(8);
            let id = i64::from_be_bytes(bytes.try_into().unwrap());
            let is_block = zero == [0; 8] || self.lies(Lie::ZeroBytesNotCompared);
            let has_begun = id >= *first_id || self.lies(Lie::BeginNotLookedAt);
            let goes_on = end.is_none_or(|end| id < end) || self.lies(Lie::EndNotLookedAt);
            (is_block && has_begun && goes_on).then_some(id)
        })
    }
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
            let model = Model::new(&prefix, &given, None);
            prop_assert_eq!(model.conceal(id), Some(token.clone()));
            prop_assert_eq!(model.reveal(token.as_bytes()), Some(id));
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
    random_texts_stand_for_no_id(&core);
}

fn random_texts_stand_for_no_id(make: Make<'_>) {
    let (all, form) = (of_one_key(make, "ord"), one_key("ord"));
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
        read += usize::from(form.is_token(&text));
        let found = all.reveal(&text);
        assert!(found.is_none() || text == b"ord_27xhgkv8783g9brj0n2t3mdpe8", "{text:?}: {found:?}");
    }
    // A fourth of those that look like one begin with a letter up to 7.
    assert!((100_000..500_000).contains(&read), "{read}");
}

#[test]
fn no_token_with_another_letter_stands_for_an_id() {
    other_letters_stand_for_no_id(&core);
}

fn other_letters_stand_for_no_id(make: Make<'_>) {
    let all = of_one_key(make, "ord");
    let random = Random::new(65);
    for _ in 0..1000 {
        let id = random.bits().cast_signed();
        let token = all.conceal(id).unwrap().into_bytes();
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
    letters_have_one_form(&core);
}

fn letters_have_one_form(make: Make<'_>) {
    let all = of_one_key(make, "ord");
    for id in 0..100 {
        let token = all.conceal(id).unwrap();
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
    each_prefix_has_its_tokens(&core);
}

fn each_prefix_has_its_tokens(make: Make<'_>) {
    let prefixes = ["a", "b", "ab", "a_b", "ord", "or", "usr", "abcdefghijklmnop", "abcdefghijklmnoq"];
    let token = |prefix: &str| of_one_key(make, prefix).conceal(1).unwrap();
    let blocks: HashSet<u128> = prefixes.iter().map(|prefix| block(&token(prefix))).collect();
    assert_eq!(blocks.len(), prefixes.len());
    for prefix in prefixes {
        let letters = token(prefix).rsplit_once('_').unwrap().1.to_owned();
        for other in prefixes.iter().filter(|other| **other != prefix) {
            assert_eq!(of_one_key(make, other).reveal(format!("{other}_{letters}").as_bytes()), None);
        }
    }
}

/// As `each_id_is_concealed_by_the_key_of_its_range` has it for any keys.
fn each_key_has_its_range(make: Make<'_>) {
    let given = [(0, vec![2; 32]), (i64::MIN, vec![1; 32]), (1000, vec![3; 16])];
    let all = make("ord", &given);
    for (id, of) in [(i64::MIN, 1), (-1, 1), (0, 0), (999, 0), (1000, 2), (i64::MAX, 2)] {
        for (by, (_, key)) in given.iter().enumerate() {
            let token = make("ord", &[(i64::MIN, key.clone())]).conceal(id).unwrap();
            assert_eq!(all.conceal(id).unwrap() == token, by == of, "{id} by key {by}");
            assert_eq!(all.reveal(token.as_bytes()), (by == of).then_some(id), "{id} by key {by}");
        }
    }
}

fn tokens_are_those_of_other_programs(make: Make<'_>) {
    for row in include_str!("../public-ids.tsv").lines().filter(|line| !line.starts_with('#')) {
        let [key, id, prefix, token] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let key = (0..key.len()).step_by(2).map(|at| u8::from_str_radix(&key[at..at + 2], 16).unwrap()).collect();
        assert_eq!(make(prefix, &[(i64::MIN, key)]).conceal(id.parse().unwrap()).as_deref(), Some(token));
    }
}

#[test]
fn each_lie_is_found() {
    for (lie, found_by) in [
        (None, each_key_has_its_range as fn(Make<'_>)),
        (None, tokens_are_those_of_other_programs),
        (Some(Lie::ZeroBytesNotCompared), random_texts_stand_for_no_id),
        (Some(Lie::ZeroBytesNotCompared), other_letters_stand_for_no_id),
        (Some(Lie::PrefixNotInKey), each_prefix_has_its_tokens),
        (Some(Lie::NoEndOfLabel), tokens_are_those_of_other_programs),
        (Some(Lie::KeyCut), tokens_are_those_of_other_programs),
        (Some(Lie::LeastSignificantFirst), tokens_are_those_of_other_programs),
        (Some(Lie::NewestConceals), each_key_has_its_range),
        (Some(Lie::BeginNotLookedAt), each_key_has_its_range),
        (Some(Lie::EndNotLookedAt), each_key_has_its_range),
        (Some(Lie::Modulo), letters_have_one_form),
        (Some(Lie::CapitalsFolded), letters_have_one_form),
    ] {
        let Some(lie) = lie else {
            found_by(&core);
            found_by(&|prefix, given| Box::new(Model::new(prefix, given, None)));
            continue;
        };
        let make = |prefix: &str, given: &[(i64, Vec<u8>)]| -> Box<dyn PublicIds> {
            Box::new(Model::new(prefix, given, Some(lie)))
        };
        assert!(catch_unwind(AssertUnwindSafe(|| found_by(&make))).is_err(), "no check finds {lie:?}");
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
