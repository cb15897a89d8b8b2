//! An expression of a column, as PostgreSQL writes it, with another column in its place. No
//! `unsafe`.
//!
//! PostgreSQL has no function for that, and the stored tree would keep the functions of the old
//! type. A word that is the column's name is not always the column: the caller compares the number
//! of replaced words with the number of columns in the tree, so a mistake is an error. A string
//! with a backslash becomes one that means the same whatever `standard_conforming_strings` is.

/// Whether a byte can be in a word. All bytes of letters beyond ASCII are 128 or more in each
/// encoding that a database can have.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 128
}

/// The length of the token at the start of a text that is not empty.
fn token(text: &[u8]) -> usize {
    let quoted = |quote: u8, from: usize, escapes: bool| {
        let mut at = from;
        while at < text.len() {
            if escapes && text[at] == b'\\' {
                at += 2;
            } else if text[at] != quote {
                at += 1;
            } else if text.get(at + 1) == Some(&quote) {
                at += 2;
            } else {
                return at + 1;
            }
        }
        text.len()
    };
    match text[0] {
        b'E' if text.get(1) == Some(&b'\'') => quoted(b'\'', 2, true),
        b'\'' => quoted(b'\'', 1, false),
        b'"' => quoted(b'"', 1, false),
        byte if is_of_word(byte) => text.iter().position(|byte| !is_of_word(*byte)).unwrap_or(text.len()),
        _ => 1,
    }
}

/// A column that another one replaces. Both are given as SQL writes them. The kind is the other's:
/// `int8`, or on the way back `int4` or `int2`.
pub struct Replaced {
    pub name: Vec<u8>,
    pub other: Vec<u8>,
    pub kind: Vec<u8>,
}

/// Returns a text with columns in place of others, and how many it has replaced. An operator class
/// for the type of a replaced column follows it.
pub fn replace(text: &[u8], columns: &[&Replaced]) -> (Vec<u8>, i64) {
    let mut replaced = Vec::with_capacity(text.len());
    let mut count = 0;
    let mut rest = text;
    // What stands before, without spaces.
    let mut before: &[u8] = b"";
    let mut follows_column = None;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(token(rest));
        rest = after;
        if word == b" " {
            replaced.extend_from_slice(word);
            continue;
        }
        let is_part = before == b"." || after.first() == Some(&b'.') || after.first() == Some(&b'(');
        let is_type = replaced.ends_with(b"::");
        let column = columns.iter().find(|column| column.name == word && !is_part && !is_type && before != b"COLLATE");
        if let Some(column) = column {
            replaced.extend_from_slice(&column.other);
            count += 1;
            follows_column = Some(String::from_utf8_lossy(&column.kind));
        } else if let Some(kind) =
            follows_column.take().filter(|_| is_of_word(word[0]) || word == b"." || word == b"\"")
        {
            // An operator class, such as int4_minmax_multi_ops. An expression is in parentheses.
            let class = ["int2", "int4", "int8"]
                .iter()
                .fold(String::from_utf8_lossy(word).into_owned(), |class, former| class.replace(former, &kind));
            replaced.extend_from_slice(if word.starts_with(b"int") || class.contains(&format!("_{kind}_")) {
                class.as_bytes()
            } else {
                word
            });
            follows_column = Some(kind).filter(|_| !word.ends_with(b"_ops"));
        } else {
            if word[0] == b'\'' && word.contains(&b'\\') {
                replaced.push(b'E');
                replaced
                    .extend(word.iter().flat_map(|byte| std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'\\'))));
            } else {
                replaced.extend_from_slice(word);
            }
            follows_column = None;
        }
        before = word;
    }
    (replaced, count)
}
