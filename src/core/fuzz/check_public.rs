//! Checks what must hold when any bytes are read as a public id, or as a prefix. The fuzzer and
//! `tests/corpus.rs` both run it.

use snowflake_core::id::public::{Keys, Prefix};
use snowflake_core::id::spelling::MAX_QUOTED;

/// Panics if reading `bytes` as a prefix and a text breaks a promise: the text is what follows the
/// first zero byte, or all of it, with the prefix "ord".
///
/// A text stands for an id only if the id is concealed as just this text.
pub fn public(bytes: &[u8]) {
    let (prefix, text) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (String::from_utf8_lossy(&bytes[..end]).into_owned(), &bytes[end + 1..]),
        None => ("ord".to_owned(), bytes),
    };
    let prefix = match Prefix::parse(&prefix) {
        Ok(parsed) => {
            assert_eq!(parsed.as_bytes(), prefix.as_bytes());
            parsed
        }
        Err(error) => {
            assert!(error.to_string().chars().count() <= 100 + MAX_QUOTED, "{error}");
            return;
        }
    };
    let all: Vec<u8> = (0..32).collect();
    let later = [7; 16];
    let keys = [(i64::MIN, all.as_slice()), (1 << 60, later.as_slice())];
    let keys = Keys::new(prefix, keys).expect("keys of a right length");
    if let Some(id) = keys.reveal(text) {
        assert!(keys.is_token(text));
        assert_eq!(keys.conceal(id).expect("keys for all ids").as_str().as_bytes(), text);
    }
    if keys.is_token(text) {
        assert_eq!(text.len(), prefix.as_bytes().len() + 27);
        assert!(text.starts_with(prefix.as_bytes()));
    }
}
