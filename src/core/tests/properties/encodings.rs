//! Tests the texts of ids: each decodes to its id, texts sort like their ids, and any other text is
//! refused at the right position.
//!
//! The oracle writes with strings and 128 bits, and reads one symbol after the other. Published
//! texts are in `vectors.rs`.

use std::cmp::Ordering;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use snowflake_core::id::encoding::{Encoding, EncodingError};
use snowflake_core::id::spelling::MAX_QUOTED;

use crate::config;

/// Restates the documentation of an encoding: its alphabet and its length.
fn documented(encoding: Encoding) -> (&'static str, usize) {
    match encoding {
        Encoding::Base32 => ("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 13),
        Encoding::Base62 => ("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 11),
    }
}

/// Writes a number as documented, even one that is not an id.
fn written(encoding: Encoding, mut number: u128) -> String {
    let (alphabet, length) = documented(encoding);
    let base = alphabet.len() as u128;
    let mut text = String::new();
    for _ in 0..length {
        text.insert(0, alphabet.chars().nth((number % base) as usize).unwrap());
        number /= base;
    }
    assert_eq!(number, 0, "a number that fits {length} symbols");
    text
}

/// Returns the symbol that a character stands for.
fn symbol(encoding: Encoding, character: char) -> Option<char> {
    let read = match (encoding, character) {
        (Encoding::Base32, 'i' | 'I' | 'l' | 'L') => '1',
        (Encoding::Base32, 'o' | 'O') => '0',
        (Encoding::Base32, other) => other.to_ascii_uppercase(),
        (Encoding::Base62, other) => other,
    };
    documented(encoding).0.contains(read).then_some(read)
}

/// Reads a text as documented.
fn read(encoding: Encoding, text: &str) -> Result<i64, EncodingError> {
    let quoted = || match text.chars().count() {
        0..=MAX_QUOTED => text.to_owned(),
        _ => format!("{}...", text.chars().take(MAX_QUOTED).collect::<String>()),
    };
    let mut symbols = Vec::new();
    for (n, character) in text.chars().enumerate() {
        if (encoding, character) != (Encoding::Base32, '-') {
            let symbol = symbol(encoding, character);
            let error = EncodingError::Character { encoding, character, position: n + 1 };
            symbols.push((symbol.ok_or(error)?, n + 1));
        }
    }
    let (alphabet, length) = documented(encoding);
    if symbols.len() != length {
        let position = symbols.get(length).map_or(text.chars().count(), |(_, position)| *position);
        return Err(EncodingError::Length { encoding, symbols: symbols.len(), text: quoted(), position });
    }
    // Numbers of equal length are compared by the first symbol that differs.
    for ((symbol, position), largest) in symbols.iter().zip(written(encoding, i64::MAX as u128).chars()) {
        match alphabet.find(*symbol).cmp(&alphabet.find(largest)) {
            Ordering::Less => break,
            Ordering::Equal => {}
            Ordering::Greater => {
                return Err(EncodingError::Overflow { encoding, text: quoted(), position: *position });
            }
        }
    }
    let value = |symbol| alphabet.find(symbol).unwrap() as i64;
    Ok(symbols.iter().fold(0, |id, (symbol, _)| id * alphabet.len() as i64 + value(*symbol)))
}

fn decode(encoding: Encoding, text: &str) -> Result<i64, EncodingError> {
    encoding.decode(text.chars())
}

fn encodings() -> impl Strategy<Value = Encoding> {
    select(Encoding::ALL.as_slice())
}

/// Ids of every size, because nearly all uniformly random ids have one of their highest bits set.
fn ids() -> impl Strategy<Value = i64> {
    (0..=i64::MAX, 0_u32..63).prop_map(|(id, shift)| id >> shift)
}

/// Characters that make texts wrong, or not: symbols, what is read as one, what looks like one, and
/// any others.
fn characters() -> impl Strategy<Value = char> {
    let near: Vec<char> =
        "0Oo1IiLlUu8Zz-_*~$= \n\0\"\\\u{e9}\u{416}\u{ff10}\u{200b}\u{1f600}\u{fffd}".chars().collect();
    prop_oneof![4 => select(near), 4 => prop::char::range('!', '~'), 1 => any::<char>()]
}

/// Texts that nearly encode an id, and texts that do not.
fn texts() -> impl Strategy<Value = String> {
    let changes = prop::collection::vec((any::<Index>(), characters()), 0..3);
    // Any number that 13 symbols of base32 can hold; 11 symbols of base62 hold more.
    let near = (encodings(), 0..1_u128 << 65, 0_u32..65, changes).prop_map(|(encoding, number, shift, changes)| {
        let mut text: Vec<char> = written(encoding, number >> shift).chars().collect();
        for (place, character) in changes {
            // It replaces a character, or is inserted.
            match place.index(2 * text.len() + 1) {
                n if n < text.len() => text[n] = character,
                n => text.insert(n - text.len(), character),
            }
        }
        text.into_iter().collect()
    });
    prop_oneof![
        6 => near,
        1 => prop::collection::vec(characters(), 0..80).prop_map(String::from_iter),
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(config(5000))]

    #[test]
    fn an_id_is_read_back_from_its_text(encoding in encodings(), id in ids()) {
        let text = encoding.encode(id).unwrap();
        prop_assert_eq!(&text, &written(encoding, id as u128));
        prop_assert_eq!(decode(encoding, &text), Ok(id));
    }

    #[test]
    fn texts_are_in_the_order_of_their_ids(encoding in encodings(), one in ids(), other in ids(), near in -70_i64..=70) {
        for other in [other, one.saturating_add(near).max(0)] {
            let texts = [one, other].map(|id| encoding.encode(id).unwrap());
            prop_assert_eq!(texts[0].as_bytes().cmp(texts[1].as_bytes()), one.cmp(&other));
        }
    }

    #[test]
    fn an_id_below_0_has_no_text(encoding in encodings(), id in i64::MIN..0) {
        prop_assert_eq!(encoding.encode(id), Err(EncodingError::Id(id)));
    }

    #[test]
    fn any_text_is_read_or_refused_as_the_documentation_says(encoding in encodings(), text in texts()) {
        let decoded = decode(encoding, &text);
        prop_assert_eq!(&decoded, &read(encoding, &text));
        if let Err(error) = decoded {
            let message = error.to_string();
            prop_assert!(message.chars().count() <= 100 + MAX_QUOTED && !message.contains(char::is_control), "{message:?}");
        }
    }

    #[test]
    fn a_text_that_is_changed_in_one_place_is_another_ids_or_refused_there(
        encoding in encodings(), id in ids(), place in any::<Index>(), character in characters(),
    ) {
        let original = encoding.encode(id).unwrap();
        let n = place.index(original.len());
        let mut changed: Vec<char> = original.chars().collect();
        changed[n] = character;
        let changed: String = changed.into_iter().collect();
        match decode(encoding, &changed) {
            // The canonical text of the decoded id differs in that place alone, or not at all.
            Ok(read) => {
                let canonical = encoding.encode(read).unwrap();
                prop_assert_eq!(canonical.chars().nth(n), symbol(encoding, character));
                prop_assert_eq!((&canonical[..n], &canonical[n + 1..]), (&original[..n], &original[n + 1..]));
            }
            Err(EncodingError::Character { position, character: named, .. }) => {
                prop_assert_eq!((position, named, symbol(encoding, character)), (n + 1, character, None));
            }
            // A hyphen instead of a symbol leaves one too few.
            Err(EncodingError::Length { symbols, position, .. }) => {
                prop_assert_eq!((encoding, character, symbols, position), (Encoding::Base32, '-', 12, 13));
            }
            // The original is not above the largest id, so the text cannot exceed it before the
            // changed place. The test above checks where it does.
            Err(EncodingError::Overflow { position, .. }) => prop_assert!(position > n, "{} {}", position, n + 1),
            Err(error) => prop_assert!(false, "{error:?}"),
        }
    }

    #[test]
    fn base32_is_read_in_any_case_with_its_look_alikes_and_hyphens(
        id in ids(), forms in prop::collection::vec((0_usize..6, 0_usize..3), 14),
    ) {
        let mut typed = String::new();
        for (symbol, (form, hyphens)) in Encoding::Base32.encode(id).unwrap().chars().chain(['\0']).zip(&forms) {
            typed.push_str(&"-".repeat(*hyphens));
            typed.push(match symbol {
                '0' => ['0', '0', 'o', 'o', 'O', 'O'][*form],
                '1' => ['1', '1', 'i', 'I', 'l', 'L'][*form],
                symbol if form % 2 == 0 => symbol.to_ascii_lowercase(),
                symbol => symbol,
            });
        }
        // Hyphens may also end a text.
        prop_assert_eq!(typed.pop(), Some('\0'));
        prop_assert_eq!(decode(Encoding::Base32, &typed), Ok(id), "{}", typed);
    }
}

#[test]
fn the_first_and_the_last_id_have_the_first_and_the_last_text() {
    for (encoding, last) in [(Encoding::Base32, "7ZZZZZZZZZZZZ"), (Encoding::Base62, "AzL8n0Y58m7")] {
        assert_eq!(encoding.encode(0), Ok("0".repeat(last.len())));
        assert_eq!(encoding.encode(i64::MAX), Ok(last.to_owned()));
        assert_eq!(decode(encoding, last), Ok(i64::MAX));
    }
}

#[test]
fn a_number_above_the_last_id_is_refused_where_it_exceeds_it() {
    let position = |encoding: Encoding, text: &str| match decode(encoding, text) {
        Err(EncodingError::Overflow { position, text: quoted, .. }) if quoted == text => position,
        other => panic!("{text}: {other:?}"),
    };
    for (text, expected) in [("8000000000000", 1), ("ZZZZZZZZZZZZZ", 1), ("--z-zzzzzzzzzzzz", 3)] {
        assert_eq!(position(Encoding::Base32, text), expected, "{text}");
    }
    for (text, expected) in
        [("AzL8n0Y58m8", 11), ("AzL8n0Y58mz", 11), ("AzL8n0Y58n0", 10), ("AzM00000000", 3), ("B0000000000", 1)]
    {
        assert_eq!(position(Encoding::Base62, text), expected, "{text}");
    }
}

#[test]
fn a_long_text_is_cut_in_an_error() {
    for (zeros, quoted) in [(MAX_QUOTED, "0".repeat(MAX_QUOTED)), (MAX_QUOTED + 1, "0".repeat(MAX_QUOTED) + "...")] {
        for encoding in Encoding::ALL {
            let (text, position) = (quoted.clone(), encoding.length() + 1);
            let error = EncodingError::Length { encoding, symbols: zeros, text, position };
            assert_eq!(decode(encoding, &"0".repeat(zeros)), Err(error));
        }
        let hyphens_and_overflow = "-".repeat(zeros) + "8000000000000";
        let error = EncodingError::Overflow {
            encoding: Encoding::Base32,
            text: "-".repeat(MAX_QUOTED) + "...",
            position: zeros + 1,
        };
        assert_eq!(decode(Encoding::Base32, &hyphens_and_overflow), Err(error));
    }
}

#[test]
fn a_check_symbol_is_refused_and_so_is_u() {
    for character in "*~$=Uu".chars() {
        let text = format!("06XK5BHKM0M04{character}");
        let error = EncodingError::Character { encoding: Encoding::Base32, character, position: 14 };
        assert_eq!(decode(Encoding::Base32, &text), Err(error));
    }
}

#[test]
fn an_invisible_character_is_named_by_its_number() {
    for (character, name) in [
        ('!', "character \"!\""),
        ('\u{e9}', "character \"\u{e9}\""),
        (' ', "character \" \""),
        ('"', "character \"\"\""),
        ('\'', "character \"'\""),
        ('\\', "character \"\\\""),
        ('\n', "character U+000A"),
        ('\u{200b}', "character U+200B"),
        ('\u{301}', "character U+0301"),
        ('\u{fffd}', "non-ASCII character"),
        ('\u{e0001}', "character U+E0001"),
    ] {
        let error = decode(Encoding::Base62, &format!("0{character}")).unwrap_err();
        assert_eq!(error.to_string(), format!("{name} at position 2 is not a base62 symbol"));
    }
}

#[test]
fn an_encoding_is_found_only_by_its_exact_name() {
    for encoding in Encoding::ALL {
        assert_eq!(Encoding::parse(encoding.name()), Ok(encoding));
    }
    for name in ["", "base64", "BASE32", "base32 ", "base6"] {
        assert_eq!(Encoding::parse(name), Err(EncodingError::UnknownName(name.to_owned())));
    }
    let long = Encoding::parse(&"x".repeat(1000)).unwrap_err().to_string();
    assert_eq!(long, format!("unknown encoding \"{}...\"", "x".repeat(MAX_QUOTED)));
}
