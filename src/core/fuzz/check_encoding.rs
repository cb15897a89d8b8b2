//! Checks what must hold when any bytes are read as the text of an id. The fuzzer and
//! `tests/corpus.rs` both run it.

use snowflake_core::id::encoding::{Encoding, EncodingError};
use snowflake_core::id::spelling::MAX_QUOTED;

/// Panics if reading `bytes` as the text of an id breaks a promise.
///
/// An error is one short line, and its position lies in the text. An accepted text is written back
/// unchanged, except for what base32 normalizes, and is read as the same id again.
pub fn encoding(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for encoding in Encoding::ALL {
        match encoding.decode(text.chars()) {
            Ok(id) => {
                let written = encoding.encode(id).unwrap();
                assert_eq!(encoding.decode(written.chars()), Ok(id), "{written:?}");
                assert_eq!(written.len(), encoding.length(), "{written:?}");
                let plain: String = text
                    .chars()
                    .filter(|character| *character != '-')
                    .map(|character| match character.to_ascii_uppercase() {
                        'I' | 'L' => '1',
                        'O' => '0',
                        other => other,
                    })
                    .collect();
                assert_eq!(written, if encoding == Encoding::Base32 { plain } else { text.to_string() });
            }
            Err(error) => {
                let message = error.to_string();
                assert!(
                    message.chars().count() <= 100 + MAX_QUOTED && !message.contains(char::is_control),
                    "{message:?}"
                );
                match error {
                    EncodingError::Character { character, position, .. } => {
                        assert_eq!(text.chars().nth(position - 1), Some(character), "{text:?}");
                    }
                    EncodingError::Overflow { position, .. } => {
                        assert!(
                            encoding.symbols().contains(text.chars().nth(position - 1).unwrap().to_ascii_uppercase())
                        );
                    }
                    EncodingError::Length { symbols, position, .. } => {
                        assert!(symbols != encoding.length() && symbols <= text.len(), "{text:?}");
                        assert!(position <= text.chars().count(), "{text:?}");
                    }
                    EncodingError::UnknownName(_) | EncodingError::Id(_) => panic!("{message:?}"),
                }
            }
        }
    }
}
