//! What can be wrong with a layout's text, an id, a number or an id's text: facts in variants, one line of text each.
//!
//! The text follows PostgreSQL's error message style (lower case, one line, no period); the extension adds SQLSTATE,
//! DETAIL and HINT. Texts from outside are cut to [`MAX_QUOTED`] characters, so that no error grows with its input.

use std::fmt;

use crate::encoding::Encoding;
use crate::layout::Field;

/// The most characters of somebody's text that an error repeats.
pub const MAX_QUOTED: usize = 40;

/// Cuts `word` to [`MAX_QUOTED`] characters for use in an error.
pub(crate) fn quoted(word: &str) -> String {
    match word.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}...", &word[..end]),
        None => word.to_owned(),
    }
}

/// Why a text is not a layout. Each variant names the offending word, cut to [`MAX_QUOTED`] characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// The text holds no word.
    Empty,
    /// The text has more than [`crate::layout::MAX_TEXT`] bytes.
    TooLong {
        /// The text's length in bytes.
        bytes: usize,
    },
    /// A single word without a colon that is not a built-in layout's name.
    UnknownName(String),
    /// A word that is not of the form `name:value`.
    Malformed(String),
    /// The word's name is none of the grammar's.
    UnknownWord(String),
    /// The word's name was there before.
    Repeated(String),
    /// A width that is no number from 1 to `max`.
    Width {
        /// The offending word.
        word: String,
        /// The widest this field can be, in bits.
        max: u32,
    },
    /// Another field stands before `time`.
    TimeNotFirst(String),
    /// A field stands after `unit` or `epoch`, or `unit` after `epoch`.
    OutOfOrder(String),
    /// A required word is missing.
    Missing(&'static str),
    /// The widths add up to more than 63 bits.
    TooWide {
        /// The sum of all widths, in bits.
        bits: u32,
    },
    /// A unit other than 1ms, 10ms, 100ms or 1s.
    UnknownUnit(String),
    /// An epoch that is no instant of the form `2025-01-01T00:00:00.000Z`, years 0001 to 9999.
    Epoch(String),
    /// An epoch without a zone.
    EpochWithoutZone(String),
    /// Time that does not end before timestamptz does (294277-01-01).
    EndsTooLate {
        /// The width of `time`, in bits.
        bits: u32,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "layout is empty"),
            Self::TooLong { bytes } => {
                write!(f, "layout has {bytes} bytes, the limit is {}", crate::layout::MAX_TEXT)
            }
            Self::UnknownName(word) => write!(f, "unknown layout \"{word}\""),
            Self::Malformed(word) => write!(f, "layout word \"{word}\" is not of the form name:value"),
            Self::UnknownWord(word) => write!(f, "unknown layout field \"{word}\""),
            Self::Repeated(word) => write!(f, "layout word \"{word}\" repeats a field"),
            Self::Width { word, max } => {
                write!(f, "width in layout word \"{word}\" is outside the range 1..{max}")
            }
            Self::TimeNotFirst(word) => {
                write!(f, "layout word \"{word}\" stands before \"time\", which must be the first field")
            }
            Self::OutOfOrder(word) => {
                write!(f, "layout word \"{word}\" is out of order: fields come first, then unit, then epoch")
            }
            Self::Missing(name) => write!(f, "layout has no \"{name}\""),
            Self::TooWide { bits } => write!(f, "layout fields add up to {bits} bits, the limit is 63"),
            Self::UnknownUnit(word) => {
                write!(f, "unit in layout word \"{word}\" is none of 1ms, 10ms, 100ms, 1s")
            }
            Self::Epoch(word) => {
                write!(f, "epoch in layout word \"{word}\" is not an instant of the years 0001 to 9999")
            }
            Self::EpochWithoutZone(word) => write!(f, "epoch in layout word \"{word}\" has no time zone"),
            Self::EndsTooLate { bits } => {
                write!(f, "layout word \"time:{bits}\" reaches beyond the last instant of timestamptz")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

/// Why a number cannot be an id, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdError {
    /// The id is below 0 or above the layout's width.
    Id {
        /// The offending id.
        id: i64,
        /// The layout's largest id.
        max: i64,
    },
    /// A part does not fit its field.
    Part {
        /// The field.
        field: Field,
        /// The offending number.
        value: i64,
        /// The field's largest number.
        max: i64,
    },
    /// A number other than 0 for a field that the layout lacks.
    NoField {
        /// The field.
        field: Field,
        /// The offending number.
        value: i64,
    },
    /// No number for a field that the layout has.
    PartMissing(Field),
    /// `backup` asked of a layout without a worker field.
    NoBackup,
    /// A time before the layout's epoch or after its last tick.
    Time {
        /// The offending instant, in milliseconds since 1970, or `None` for an infinite one.
        time_ms: Option<i64>,
        /// The layout's first instant, in milliseconds since 1970.
        first_ms: i64,
        /// The start of the layout's last tick, in milliseconds since 1970.
        last_ms: i64,
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id { id, max } => write!(f, "id {id} is outside the layout's range 0..{max}"),
            Self::Part { field, value, max } => {
                write!(f, "{field} {value} is outside the layout's range 0..{max}")
            }
            Self::NoField { field, value } => {
                write!(f, "{field} {value} has no place in a layout without a {field} field")
            }
            Self::PartMissing(field) => write!(f, "the layout has a {field} field, but no {field} is given"),
            Self::NoBackup => write!(f, "a layout without a worker field has no backup workers"),
            Self::Time { time_ms: Some(ms), .. } => {
                write!(f, "time {} is outside the layout's range", crate::clock::Utc(*ms))
            }
            Self::Time { time_ms: None, .. } => write!(f, "an infinite time is outside the layout's range"),
        }
    }
}

impl std::error::Error for IdError {}

/// Why a number has no text, or a text stands for no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodingError {
    /// A name of no encoding.
    UnknownName(String),
    /// The id is below 0.
    Id(i64),
    /// A character that is no symbol of the encoding.
    Character {
        /// The encoding.
        encoding: Encoding,
        /// The offending character; U+FFFD for one of which no more is known than that it is not ASCII.
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
        /// The place of the first symbol too many, from 1; if there are too few, of the text's last character, 0 for none.
        position: usize,
    },
    /// The number is above 2^63-1.
    Overflow {
        /// The encoding.
        encoding: Encoding,
        /// The text.
        text: String,
        /// The place of the first symbol at which the number is too large, whatever comes after it, from 1.
        position: usize,
    },
}

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => write!(f, "unknown encoding \"{name}\""),
            Self::Id(id) => write!(f, "id {id} is outside the range 0..{}", i64::MAX),
            Self::Character { encoding, character, position } => {
                write!(f, "{} at position {position} is no symbol of {}", Named(*character), encoding.name())
            }
            Self::Length { encoding, symbols, text, position } => {
                let (name, length) = (encoding.name(), encoding.length());
                let goes = if *symbols < length { "ends after" } else { "goes on at" };
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

/// A character by itself, or by its number where nothing would be seen of it, or a line end, or an accent on what stands before.
struct Named(char);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(character) = *self;
        let is_visible = character.escape_debug().len() == 1 || matches!(character, '\'' | '"' | '\\');
        if character == char::REPLACEMENT_CHARACTER {
            write!(f, "character beyond ASCII")
        } else if is_visible {
            write!(f, "character \"{character}\"")
        } else {
            write!(f, "character U+{:04X}", u32::from(character))
        }
    }
}
