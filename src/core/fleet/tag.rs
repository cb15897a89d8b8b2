//! The name of a tag: a space of dense values (`segment.rs`).

use std::error::Error;
use std::fmt;

/// The most bytes of a tag's name, as of any name in PostgreSQL.
pub const TAG_BYTES: usize = 63;

/// The name of a tag, from 1 to [`TAG_BYTES`] bytes of UTF-8. It has a fixed size, so that it can
/// lie in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    bytes: [u8; TAG_BYTES],
    length: u8,
}

impl Tag {
    /// Makes a name.
    ///
    /// # Errors
    /// [`TagError`] if it is empty or too long.
    pub fn new(name: &str) -> Result<Self, TagError> {
        match name.len() {
            0 => Err(TagError::Empty),
            length @ 1..=TAG_BYTES => {
                let mut bytes = [0; TAG_BYTES];
                bytes[..length].copy_from_slice(name.as_bytes());
                Ok(Self { bytes, length: length as u8 })
            }
            length => Err(TagError::TooLong { length }),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        // It was made of a text, so it is one.
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Returns the name's bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text cannot be the name of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagError {
    /// It is empty.
    Empty,
    /// It is too long.
    TooLong {
        /// How many bytes it has.
        length: usize,
    },
}

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "tag is empty"),
            Self::TooLong { length } => write!(f, "tag has {length} bytes, but can have {TAG_BYTES} at most"),
        }
    }
}

impl Error for TagError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_one_to_63_bytes() {
        let longest = "ä".repeat(31) + "x";
        for name in ["x", "orders", "Größe", &longest] {
            assert_eq!(Tag::new(name).unwrap().as_str(), name);
        }
        assert_eq!(Tag::new(""), Err(TagError::Empty));
        let error = Tag::new(&"ä".repeat(32)).unwrap_err();
        assert_eq!(error.to_string(), "tag has 64 bytes, but can have 63 at most");
    }

    #[test]
    fn tags_are_equal_only_if_their_names_are() {
        let names = ["a", "b", "ab", "a\u{1}"];
        for one in names {
            for other in names {
                assert_eq!(Tag::new(one) == Tag::new(other), one == other);
            }
        }
    }
}
