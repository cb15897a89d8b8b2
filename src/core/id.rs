//! What an id is: its bits, its parts, its texts.

pub mod bounds;
pub mod computed;
pub mod encoding;
pub mod fnv;
pub mod identity;
pub mod known_keys;
pub mod layout;
pub mod parts;
pub mod public;
pub mod spelling;
