//! Which text a public id is: an id enciphered for readers outside, as a token. Without the key, a
//! token tells nothing of the id, and nobody can make one.
//!
//! What follows never changes, and is the same in the SQL edition (`tests/public-ids.tsv`):
//!
//! ```text
//! token       = prefix "_" letters, where the prefix is 1 to 16 of a-z and _, and begins and ends
//!               with a letter (a TypeID, https://github.com/jetify-com/typeid)
//! letters     = block as a number of 128 bits, most significant first, by 26 of
//!               0123456789abcdefghjkmnpqrstvwxyz, so that the first is at most 7
//! block       = AES-256(HMAC-SHA-256(key, "snowflake_id public id 1" 0x00 prefix),
//!               id as 8 bytes, most significant first, then 8 zero bytes)
//! key         = 16 to 64 bytes, which conceals the ids from its first one up to the next key's
//! fingerprint = first 8 bytes of HMAC-SHA-256(key, "snowflake_id public key 1"), as 16 of 0-9a-f
//! ```
//!
//! One block with 64 bits that are known is authenticated, too: a text that nobody has given out
//! stands for an id with a chance of 2^-64 (Bellare and Rogaway, "Encode-then-encipher encryption",
//! 2000). No comparison and no table depends on the key.

use std::fmt;

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

use crate::id::spelling::quoted;

const LABEL_OF_IDS: &[u8] = b"snowflake_id public id 1\0";
const LABEL_OF_FINGERPRINTS: &[u8] = b"snowflake_id public key 1";

const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// How many letters a block of 128 bits takes, at 5 bits each.
const LETTERS_OF_A_BLOCK: usize = 26;

/// The value of each byte that is a letter.
const VALUES: [u8; 256] = {
    let mut values = [NO_LETTER; 256];
    let mut value = 0;
    while value < LETTERS.len() {
        values[LETTERS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// What `VALUES` holds for a byte that is not a letter.
const NO_LETTER: u8 = u8::MAX;

/// How many bytes a key may have.
pub const KEY_LENGTHS: std::ops::RangeInclusive<usize> = 16..=64;

/// The most bytes of a prefix.
pub const LONGEST_PREFIX: usize = 16;

/// Which kind of thing a token stands for: the word before its letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    bytes: [u8; LONGEST_PREFIX],
    length: u8,
}

impl Prefix {
    /// Reads a prefix.
    ///
    /// # Errors
    /// [`PublicIdError::Prefix`].
    pub fn parse(text: &str) -> Result<Self, PublicIdError> {
        Self::of(text.as_bytes()).ok_or_else(|| PublicIdError::Prefix(quoted(text)))
    }

    /// Reads a prefix from bytes; `None` if it is not one.
    pub fn of(text: &[u8]) -> Option<Self> {
        let is_prefix = text.len() <= LONGEST_PREFIX
            && text.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'_'))
            && text.first().is_some_and(|byte| *byte != b'_')
            && text.last().is_some_and(|byte| *byte != b'_');
        let mut bytes = [0; LONGEST_PREFIX];
        is_prefix.then(|| bytes[..text.len()].copy_from_slice(text))?;
        Some(Self { bytes, length: text.len() as u8 })
    }

    /// The prefix as bytes, all of them ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The text of a concealed id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    bytes: [u8; LONGEST_PREFIX + 1 + LETTERS_OF_A_BLOCK],
    length: u8,
}

impl Token {
    fn write(prefix: &Prefix, block: u128) -> Self {
        let mut bytes = [b'_'; LONGEST_PREFIX + 1 + LETTERS_OF_A_BLOCK];
        let prefix = prefix.as_bytes();
        bytes[..prefix.len()].copy_from_slice(prefix);
        let length = prefix.len() + 1 + LETTERS_OF_A_BLOCK;
        // Halves of 65 and 63 bits, because shifts of 128 bits are slow. The high 65 bits are 13
        // letters, of which the first has 3 bits of its own.
        let (mut high, mut low) = ((block >> 65) as u64, block as u64);
        let (first, second) = bytes[prefix.len() + 1..length].split_at_mut(LETTERS_OF_A_BLOCK / 2);
        // The low 65 bits are 13 letters: the top one has bits 60 to 64.
        let top = ((block >> 60) & 31) as u8;
        for letter in second[1..].iter_mut().rev() {
            *letter = LETTERS[(low & 31) as usize];
            low >>= 5;
        }
        second[0] = LETTERS[usize::from(top)];
        for letter in first.iter_mut().rev() {
            *letter = LETTERS[(high & 31) as usize];
            high >>= 5;
        }
        Self { bytes, length: length as u8 }
    }

    /// The token as a text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("letters are ASCII")
    }
}

/// Reads the block of a text that has the form of a token of the prefix.
fn read(text: &[u8], prefix: &Prefix) -> Option<u128> {
    let letters = text.strip_prefix(prefix.as_bytes())?.strip_prefix(b"_")?;
    let letters: &[u8; LETTERS_OF_A_BLOCK] = letters.try_into().ok()?;
    let values = letters.map(|letter| VALUES[usize::from(letter)]);
    // The first letter has 3 bits.
    if values[0] > 7 || values.contains(&NO_LETTER) {
        return None;
    }
    let half = |values: &[u8]| values.iter().fold(0, |number: u64, value| number << 5 | u64::from(*value));
    // The first half has 3 + 12 * 5 = 63 bits, the second one 65.
    let (high, low) = (half(&values[..13]), half(&values[14..]));
    Some(u128::from(high) << 65 | u128::from(values[13]) << 60 | u128::from(low))
}

/// A key for the tokens of one prefix. Wiped from memory when dropped.
struct Cipher(Aes256);

impl Cipher {
    fn new(key: &[u8], prefix: &Prefix) -> Self {
        let mut derived = mac(key, &[LABEL_OF_IDS, prefix.as_bytes()]);
        let cipher = Self(Aes256::new(&Array::from(derived)));
        derived.zeroize();
        cipher
    }

    fn encipher(&self, id: i64) -> u128 {
        let mut block = Array::from((u128::from(id.cast_unsigned()) << 64).to_be_bytes());
        self.0.encrypt_block(&mut block);
        u128::from_be_bytes(block.into())
    }

    fn decipher(&self, block: u128) -> Option<i64> {
        let mut block = Array::from(block.to_be_bytes());
        self.0.decrypt_block(&mut block);
        let plain = u128::from_be_bytes(block.into());
        // One comparison of a word, so that time does not show how many bytes are zero.
        (plain as u64 == 0).then_some(((plain >> 64) as u64).cast_signed())
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Names a key for people, without showing it.
///
/// # Errors
/// [`PublicIdError::KeyLength`].
///
/// ```
/// use snowflake_core::id::public::fingerprint;
/// assert_eq!(fingerprint(b"0123456789abcdef")?, "d2ad085f22c20ecd");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fingerprint(key: &[u8]) -> Result<String, PublicIdError> {
    check_length(key)?;
    let number = mac(key, &[LABEL_OF_FINGERPRINTS])
        .into_iter()
        .take(8)
        .fold(0, |number: u64, byte| number << 8 | u64::from(byte));
    Ok(format!("{number:016x}"))
}

fn check_length(key: &[u8]) -> Result<(), PublicIdError> {
    if KEY_LENGTHS.contains(&key.len()) { Ok(()) } else { Err(PublicIdError::KeyLength(key.len())) }
}

/// All keys, for the tokens of one prefix. Wiped from memory when dropped.
pub struct Keys {
    prefix: Prefix,
    /// With the first id that each conceals, the newest first.
    keys: Vec<(i64, Cipher)>,
}

impl Keys {
    /// Takes keys with the first ids that they conceal, in any order.
    ///
    /// # Errors
    /// [`PublicIdError::KeyLength`].
    pub fn new<'a>(prefix: Prefix, keys: impl IntoIterator<Item = (i64, &'a [u8])>) -> Result<Self, PublicIdError> {
        let cipher = |(first_id, key): (i64, &[u8])| {
            check_length(key)?;
            Ok((first_id, Cipher::new(key, &prefix)))
        };
        let mut keys = keys.into_iter().map(cipher).collect::<Result<Vec<_>, _>>()?;
        keys.sort_by_key(|(first_id, _)| std::cmp::Reverse(*first_id));
        Ok(Self { prefix, keys })
    }

    /// The prefix of the tokens.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Conceals an id. `None` if it is before the first id of every key, or there is no key.
    ///
    /// ```
    /// use snowflake_core::id::public::{Keys, Prefix};
    /// let key: Vec<u8> = (0..32).collect();
    /// let keys = Keys::new(Prefix::parse("ord")?, [(i64::MIN, key.as_slice())])?;
    /// let token = keys.conceal(1).expect("the key conceals every id");
    /// assert_eq!(token.as_str(), "ord_27xhgkv8783g9brj0n2t3mdpe8");
    /// assert_eq!(keys.reveal(token.as_str().as_bytes()), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn conceal(&self, id: i64) -> Option<Token> {
        let (_, cipher) = self.keys.iter().find(|(first_id, _)| *first_id <= id)?;
        Some(Token::write(&self.prefix, cipher.encipher(id)))
    }

    /// Whether a text has the form of a token of the prefix. It may be no key's.
    pub fn is_token(&self, text: &[u8]) -> bool {
        read(text, &self.prefix).is_some()
    }

    /// Returns the id of a token; `None` for any other text.
    ///
    /// A key conceals only the ids up to the next key's first one. So a key that has leaked forges
    /// no token of a later id.
    pub fn reveal(&self, text: &[u8]) -> Option<i64> {
        let block = read(text, &self.prefix)?;
        let mut next: Option<i64> = None;
        self.keys.iter().find_map(|(first_id, cipher)| {
            let end = next.replace(*first_id);
            cipher.decipher(block).filter(|id| first_id <= id && end.is_none_or(|end| *id < end))
        })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys.len())
    }
}

/// Why there is no such prefix or key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicIdError {
    /// A text that is not a prefix.
    Prefix(String),
    /// A key of too few or too many bytes.
    KeyLength(usize),
}

impl fmt::Display for PublicIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(text) => write!(f, "\"{text}\" is not a prefix of public ids"),
            Self::KeyLength(bytes) => {
                let (least, most) = (KEY_LENGTHS.start(), KEY_LENGTHS.end());
                write!(f, "key of {bytes} bytes is outside the range {least}..{most}")
            }
        }
    }
}

impl std::error::Error for PublicIdError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random texts find no cipher that compares fewer bits.
    #[test]
    fn a_block_stands_for_an_id_only_if_all_of_its_64_bits_are_zero() {
        let cipher = Cipher::new(&[7; 32], &Prefix::parse("ord").unwrap());
        let encipher = |plain: u128| {
            let mut block = Array::from(plain.to_be_bytes());
            cipher.0.encrypt_block(&mut block);
            u128::from_be_bytes(block.into())
        };
        assert_eq!(cipher.decipher(encipher(5 << 64)), Some(5));
        for bit in 0..64 {
            assert_eq!(cipher.decipher(encipher(5 << 64 | 1 << bit)), None, "bit {bit}");
        }
    }
}
