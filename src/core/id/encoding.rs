//! Ids as short texts: `base32` (Douglas Crockford's) and `base62`.
//!
//! A text is the id as a number, highest symbol first, padded with zeros to the length of the
//! largest id. Both alphabets ascend as their bytes do, so texts compare as their ids do, byte by
//! byte (`COLLATE "C"`).
//!
//! `base32` follows <https://www.crockford.com/base32.html>: it has no I, L, O and U, reads upper
//! and lower case, reads I and L as 1 and O as 0, and ignores hyphens anywhere. It does not support
//! the optional check symbol. So several texts are read as the same id. `base62` (digits, capitals,
//! small letters, in GMP's order) reads only what it writes: each id has one text.

use std::fmt;

use crate::id::spelling::{MAX_QUOTED, quoted};

/// How an id is written as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Crockford's, 13 symbols.
    Base32,
    /// Digits, capitals and small letters, 11 symbols.
    Base62,
}

/// What `VALUES_*` hold for a character that is not a symbol.
const NO_SYMBOL: u8 = u8::MAX;

const VALUES_BASE32: [u8; 128] = {
    let mut values = values(Encoding::Base32.symbols());
    values[b'I' as usize] = 1;
    values[b'L' as usize] = 1;
    values[b'O' as usize] = 0;
    let mut letter = b'A';
    while letter <= b'Z' {
        values[letter.to_ascii_lowercase() as usize] = values[letter as usize];
        letter += 1;
    }
    values
};

const VALUES_BASE62: [u8; 128] = values(Encoding::Base62.symbols());

/// The value of each ASCII character in an alphabet.
const fn values(symbols: &str) -> [u8; 128] {
    let mut values = [NO_SYMBOL; 128];
    let mut value = 0;
    while value < symbols.len() {
        values[symbols.as_bytes()[value] as usize] = value as u8;
        value += 1;
    }
    values
}

impl Encoding {
    /// Every encoding.
    pub const ALL: [Self; 2] = [Self::Base32, Self::Base62];

    /// Finds an encoding by its exact name.
    ///
    /// # Errors
    /// [`EncodingError::UnknownName`].
    pub fn parse(name: &str) -> Result<Self, EncodingError> {
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
            .ok_or_else(|| EncodingError::UnknownName(quoted(name)))
    }

    /// The encoding's name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base32 => "base32",
            Self::Base62 => "base62",
        }
    }

    /// The alphabet: one character for each value, in ascending order.
    pub const fn symbols(self) -> &'static str {
        match self {
            Self::Base32 => "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
            Self::Base62 => "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        }
    }

    /// How many symbols each text has: as many as the largest id needs.
    pub const fn length(self) -> usize {
        match self {
            Self::Base32 => 13,
            Self::Base62 => 11,
        }
    }

    const fn base(self) -> u64 {
        self.symbols().len() as u64
    }

    /// The number that the first `count` symbols of the largest id stand for.
    const fn largest(self, count: usize) -> u64 {
        i64::MAX as u64 / self.base().pow((self.length() - count) as u32)
    }

    fn value(self, character: char) -> Option<u64> {
        let values = match self {
            Self::Base32 => &VALUES_BASE32,
            Self::Base62 => &VALUES_BASE62,
        };
        values.get(character as usize).filter(|value| **value != NO_SYMBOL).map(|value| u64::from(*value))
    }

    /// Writes an id as a text of [`Self::length`] symbols.
    ///
    /// # Errors
    /// [`EncodingError::Id`] for an id below 0.
    ///
    /// ```
    /// use snowflake_core::id::encoding::Encoding;
    /// assert_eq!(Encoding::Base32.encode(1541815603606036480)?, "1ASD13XH1F800");
    /// assert_eq!(Encoding::Base62.encode(1541815603606036480)?, "1ptWyK4WgZU");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode(self, id: i64) -> Result<String, EncodingError> {
        let mut rest = u64::try_from(id).map_err(|_| EncodingError::Id(id))?;
        let mut text = vec![0; self.length()];
        for symbol in text.iter_mut().rev() {
            *symbol = self.symbols().as_bytes()[(rest % self.base()) as usize];
            rest /= self.base();
        }
        Ok(String::from_utf8(text).expect("symbols are ASCII"))
    }

    /// Reads the id that a text stands for. Positions in errors count the characters of `text` from
    /// 1, including hyphens.
    ///
    /// Takes characters instead of a `&str` because a text may not be in UTF-8.
    ///
    /// # Errors
    /// The first of these that applies: [`EncodingError::Character`] for the first character that
    /// is not a symbol, [`EncodingError::Length`] for too few or too many symbols,
    /// [`EncodingError::Overflow`] for a number above 2^63-1.
    ///
    /// ```
    /// use snowflake_core::id::encoding::Encoding;
    /// assert_eq!(Encoding::Base32.decode("iasd-13xh-1f8oo".chars())?, 1541815603606036480);
    /// assert_eq!(Encoding::Base62.decode("1ptWyK4WgZU".chars())?, 1541815603606036480);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode(self, text: impl Iterator<Item = char> + Clone) -> Result<i64, EncodingError> {
        let mut id = 0;
        let mut symbols = 0;
        let mut end = 0;
        let mut overflow = None;
        for (character, position) in text.clone().zip(1..) {
            if symbols <= self.length() {
                end = position;
            }
            if self == Self::Base32 && character == '-' {
                continue;
            }
            let value =
                self.value(character).ok_or(EncodingError::Character { encoding: self, character, position })?;
            symbols += 1;
            if symbols <= self.length() && overflow.is_none() {
                id = id * self.base() + value;
                overflow = (id > self.largest(symbols)).then_some(position);
            }
        }
        // The text holds only symbols and hyphens here.
        let quoted = || quoted(&text.clone().take(MAX_QUOTED + 1).collect::<String>());
        if symbols != self.length() {
            return Err(EncodingError::Length { encoding: self, symbols, text: quoted(), position: end });
        }
        match overflow {
            None => Ok(id as i64),
            Some(position) => Err(EncodingError::Overflow { encoding: self, text: quoted(), position }),
        }
    }
}

/// Why a number has no text, or a text stands for no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodingError {
    /// A name that no encoding has.
    UnknownName(String),
    /// The id is below 0.
    Id(i64),
    /// A character that is not a symbol of the encoding.
    Character {
        /// The encoding.
        encoding: Encoding,
        /// The offending character; U+FFFD for an unknown one that is not ASCII.
        character: char,
        /// Its place among the text's characters, from 1.
        position: usize,
    },
    /// More or fewer symbols than the encoding's texts have.
    Length {
        /// The encoding.
        encoding: Encoding,
        /// How many symbols there are.
        symbols: usize,
        /// The text.
        text: String,
        /// The place of the first symbol too many, from 1. For too few symbols, the place of the
        /// text's last character; 0 for an empty text.
        position: usize,
    },
    /// The number is above 2^63-1.
    Overflow {
        /// The encoding.
        encoding: Encoding,
        /// The text.
        text: String,
        /// The place, from 1, of the first symbol that makes the number too large, whatever
        /// follows.
        position: usize,
    },
}

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => write!(f, "unknown encoding \"{name}\""),
            Self::Id(id) => write!(f, "id {id} is outside the range 0..{}", i64::MAX),
            Self::Character { encoding, character, position } => {
                write!(f, "{} at position {position} is not a {} symbol", NamedCharacter(*character), encoding.name())
            }
            Self::Length { encoding, symbols, text, position } => {
                let (name, length) = (encoding.name(), encoding.length());
                let goes = if *symbols < length { "ends after" } else { "continues at" };
                write!(
                    f,
                    "{name} text \"{text}\" {goes} position {position}, with {symbols} symbols instead of {length}"
                )
            }
            Self::Overflow { encoding, text, position } => {
                write!(f, "{} text \"{text}\" exceeds the largest id at position {position}", encoding.name())
            }
        }
    }
}

impl std::error::Error for EncodingError {}

/// A character itself if it is visible on its own, else its code point.
struct NamedCharacter(char);

impl fmt::Display for NamedCharacter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(character) = *self;
        let is_visible = character.escape_debug().len() == 1 || matches!(character, '\'' | '"' | '\\');
        if character == char::REPLACEMENT_CHARACTER {
            write!(f, "non-ASCII character")
        } else if is_visible {
            write!(f, "character \"{character}\"")
        } else {
            write!(f, "character U+{:04X}", u32::from(character))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_where_a_text_is_too_short_or_too_long() {
        for (text, message) in [
            ("1ptWyK4WgZ", "base62 text \"1ptWyK4WgZ\" ends after position 10, with 10 symbols instead of 11"),
            ("1ptWyK4WgZUx", "base62 text \"1ptWyK4WgZUx\" continues at position 12, with 12 symbols instead of 11"),
        ] {
            assert_eq!(Encoding::Base62.decode(text.chars()).unwrap_err().to_string(), message);
        }
    }
}
