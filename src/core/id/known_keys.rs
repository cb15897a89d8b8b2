//! Which keys of public ids a session knows, and for how long.
//!
//! A session reads the table of keys at the first use in a transaction, and again:
//!
//! | for | because |
//! |---|---|
//! | an id whose time is more than [`CERTAIN_MS`] after the reading | another key may begin in between |
//! | a text in the form of a token that no known key reads | a newer key may have made it |
//! | the next use after a rollback, of a savepoint, too | what was read may be gone |
//!
//! **Each id has one token.** A new key begins [`AHEAD_MS`] after the time that ids can have now.
//! Its transaction is refused if it ends later than [`LEAST_AHEAD_MS`] before that. So a key that a
//! session has not seen begins later than the ids that the session conceals without reading again.
//! On a standby, the time of the last transaction replayed stands for the time of the reading. No
//! message between sessions is needed, which a standby would not get.
//! `tests/properties/known_keys.rs` tries it.
//!
//! What is wiped when it goes: the keys as read, and the keys derived for at most 64 prefixes.

use zeroize::Zeroizing;

use crate::id::public::{Keys, Prefix, PublicIdError, Token};

/// How far ahead of the time that ids can have now, and of the database's mark, a new key begins.
pub const AHEAD_MS: i64 = 10_000;

/// How far ahead of the time that ids can have a new key begins when its transaction ends. The
/// difference from [`CERTAIN_MS`] is the time that the commit may take, such as for a synchronous
/// standby.
pub const LEAST_AHEAD_MS: i64 = 5_000;

/// For how long after the reading the ids' times may be without another one.
pub const CERTAIN_MS: i64 = 1_000;

/// The most prefixes for which the derived keys are kept.
const MOST_PREFIXES: usize = 64;

/// A key, with the first id that it conceals.
pub type PublicKey = (i64, Zeroizing<Vec<u8>>);

/// What a session has of the table of keys.
pub trait Table {
    /// Why the table was not read, or has a key of a wrong length.
    type Error: From<PublicIdError>;

    /// The first id that needs another reading: `i64::MIN` before the first one in a transaction,
    /// and else the first id of [`CERTAIN_MS`] after the last one.
    fn certain_before(&self) -> i64;

    /// Reads the keys, in any order.
    ///
    /// # Errors
    /// As the table has them.
    fn read(&self) -> Result<Vec<PublicKey>, Self::Error>;
}

/// The keys as read last, and those that were derived from them.
#[derive(Default)]
pub struct KnownKeys {
    keys: Vec<PublicKey>,
    /// The one derived last at the end.
    of_prefixes: Vec<Keys>,
}

impl KnownKeys {
    /// Nothing, before the first reading.
    pub const fn new() -> Self {
        Self { keys: Vec::new(), of_prefixes: Vec::new() }
    }

    /// Conceals an id. `None` if no key does.
    ///
    /// # Errors
    /// Those of reading.
    pub fn conceal<T: Table>(&mut self, id: i64, prefix: &Prefix, table: &T) -> Result<Option<Token>, T::Error> {
        if id < table.certain_before()
            && let Some(token) = self.of(prefix)?.conceal(id)
        {
            return Ok(Some(token));
        }
        self.read(table)?;
        Ok(self.of(prefix)?.conceal(id))
    }

    /// Returns the id of a token; `None` for any other text.
    ///
    /// # Errors
    /// Those of reading.
    pub fn reveal<T: Table>(&mut self, text: &[u8], prefix: &Prefix, table: &T) -> Result<Option<i64>, T::Error> {
        if table.certain_before() != i64::MIN {
            let of_prefix = self.of(prefix)?;
            if !of_prefix.is_token(text) {
                return Ok(None);
            }
            let found = of_prefix.reveal(text).filter(|id| *id < table.certain_before());
            if found.is_some() {
                return Ok(found);
            }
        }
        self.read(table)?;
        Ok(self.of(prefix)?.reveal(text))
    }

    /// The first id that a key conceals, as read last.
    pub fn first_id(&self) -> Option<i64> {
        self.keys.iter().map(|(first_id, _)| *first_id).min()
    }

    /// Returns the keys for a prefix.
    #[inline]
    fn of(&mut self, prefix: &Prefix) -> Result<&Keys, PublicIdError> {
        let found = self.of_prefixes.iter().rposition(|keys| keys.prefix() == prefix);
        let place = match found {
            Some(place) => place,
            None => self.derive(*prefix)?,
        };
        Ok(&self.of_prefixes[place])
    }

    #[cold]
    fn derive(&mut self, prefix: Prefix) -> Result<usize, PublicIdError> {
        let keys = Keys::new(prefix, self.keys.iter().map(|(first_id, key)| (*first_id, key.as_slice())))?;
        if self.of_prefixes.len() == MOST_PREFIXES {
            self.of_prefixes.remove(0);
        }
        self.of_prefixes.push(keys);
        Ok(self.of_prefixes.len() - 1)
    }

    #[cold]
    fn read<T: Table>(&mut self, table: &T) -> Result<(), T::Error> {
        let keys = table.read()?;
        if keys != self.keys {
            *self = Self { keys, of_prefixes: Vec::new() };
        }
        Ok(())
    }
}
