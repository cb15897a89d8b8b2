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

/// Whether a statement, as PostgreSQL writes it, lists columns of one of the tables, or of a join
/// of them, by their places: `app.t x(a, b)`. The places are others after the switch, so the same
/// text would mean other columns. PostgreSQL qualifies a table's name, and writes each keyword in
/// capitals.
pub fn lists_places(text: &[u8], tables: &[Vec<u8>]) -> bool {
    // Each with whether it follows a space.
    let mut tokens: Vec<(bool, &[u8])> = Vec::new();
    let (mut rest, mut is_apart) = (text, true);
    while !rest.is_empty() {
        let (word, after) = rest.split_at(token(rest));
        rest = after;
        if !word[0].is_ascii_whitespace() {
            tokens.push((is_apart, word));
        }
        is_apart = word[0].is_ascii_whitespace();
    }
    let name = |from: &[(bool, &[u8])]| from.iter().map(|(_, word)| *word).collect::<Vec<_>>().concat();
    let is_table = |from: &[(bool, &[u8])]| from.len() == 3 && from[1].1 == b"." && tables.contains(&name(from));
    (2..tokens.len()).any(|at| {
        let [(_, before), (true, alias), (false, b"(")] = tokens[at - 2..=at] else { return false };
        if !is_of_word(alias[0]) && alias[0] != b'"' || alias[0].is_ascii_uppercase() {
            return false;
        }
        if before != b")" {
            return at > 3 && is_table(&tokens[at - 4..at - 1]);
        }
        let mut depth = 0;
        let opens = (0..at - 1).rev().find(|place| {
            match tokens[*place].1 {
                b")" => depth += 1,
                b"(" => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        // Not a function's arguments, nor a query, which has its own list.
        opens.is_some_and(|opens| {
            let (is_apart, within) = (tokens[opens].0, &tokens[opens + 1..at - 2]);
            let is_join = is_apart || opens > 0 && tokens[opens - 1].1 == b"(";
            let is_query = within.first().is_some_and(|(_, word)| [&b"SELECT"[..], b"VALUES", b"WITH"].contains(word));
            is_join && !is_query && within.windows(3).any(is_table)
        })
    })
}
