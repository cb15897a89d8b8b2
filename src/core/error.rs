//! What can be wrong with a layout's text, an id or a number: facts in variants, one line of text each.
//!
//! The text follows PostgreSQL's error message style (lower case, one line, no period); the extension adds SQLSTATE,
//! DETAIL and HINT. Texts from outside are cut to [`MAX_QUOTED`] characters, so that no error grows with its input.

use std::fmt;

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
