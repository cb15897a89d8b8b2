//! The errors with SQLSTATE 55000 and 58000, which an operator may have to look up: how the sources
//! word them, and whether `docs/reference.md` has a row for each. If the row leads to an entry of
//! the runbook, the HINT must name that entry, and no other. This module reads calls of
//! `Report::new` with the `.entry()` that follows, and knows no other way in which such an error is
//! made.
//!
//! What goes wrong with the registry is reported in the server log only, where `with_consequence()`
//! in `src/error/fleet.rs` gives all of it SQLSTATE 58000.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The files that word errors.
const SOURCES: [&str; 5] = [
    "src/error.rs",
    "src/error/fleet.rs",
    "src/convert/unconvertible.rs",
    "src/registry/error.rs",
    "src/registry/problem.rs",
];

/// The SQLSTATEs, and their names in these files.
const CODES: [(&str, &str); 2] =
    [("55000", "ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE"), (OF_REGISTRY, "ERRCODE_SYSTEM_ERROR")];

/// The SQLSTATE of what goes wrong with the registry, in the server log.
const OF_REGISTRY: &str = "58000";

/// Where the runbook lists messages. A row that leads there stands for several.
const BY_TEXT: &str = "by-the-text-of-a-message";

/// An SQLSTATE, a primary message, in which `...` stands for what differs, and where the runbook's
/// entry is: the anchor of its heading, or "".
pub type Message = (String, String, String);

/// Returns what is wrong with the reference's rows of errors, in the repository at `root`.
///
/// # Panics
///
/// Panics if a source is not there.
#[must_use]
pub fn faults(root: &Path, reference: &str, runbook: &str) -> Vec<String> {
    let read = |path: &&str| fs::read_to_string(root.join(path)).expect("the source is there");
    let sources: Vec<_> = SOURCES.iter().map(read).collect();
    let worded = sources.iter().flat_map(|source| worded(source)).collect();
    let unknown = sources.iter().flat_map(|source| unknown_entries(source, runbook));
    differences(&worded, &rows(reference)).into_iter().chain(unknown).collect()
}

/// The headings that a source gives to `.entry()` or `warned()`, as those of warnings have no row
/// to be compared with, and that the runbook does not have.
fn unknown_entries(source: &str, runbook: &str) -> Vec<String> {
    let is_known = |heading: &str| runbook.lines().any(|line| line.strip_prefix("### ") == Some(heading));
    let heading = |tokens: &[Token]| match tokens {
        [Token::Name(name), Token::Mark('('), Token::Text(heading)] if name == "entry" || name == "warned" => {
            Some(heading.clone())
        }
        _ => None,
    };
    let named = tokens(source).windows(3).filter_map(heading).collect::<BTreeSet<_>>();
    let unknown = named.into_iter().filter(|heading| !is_known(heading));
    unknown.map(|heading| format!("docs/runbook.md: it has no entry \"{heading}\"")).collect()
}

fn differences(worded: &BTreeSet<Message>, rows: &BTreeSet<Message>) -> Vec<String> {
    let named = |(code, text, entry): &Message| format!("{code} with `{text}` and the runbook's entry \"{entry}\"");
    let missing = worded.difference(rows).map(|message| format!("no row has {}", named(message)));
    let extra = rows.difference(worded).map(|message| format!("no source words {}", named(message)));
    missing.chain(extra).map(|what| format!("docs/reference.md: {what}")).collect()
}

/// The rows `| SQLSTATE | message | where to read |` of a page. The last cell has a link.
fn rows(page: &str) -> BTreeSet<Message> {
    let row = |line: &str| {
        let (code, rest) = line.strip_prefix("| ")?.split_once(" | `")?;
        let (text, link) = rest.split_once("` | ")?;
        let entry = link.split_once("](")?.1.strip_prefix("runbook.md#").and_then(|rest| rest.split_once(')'));
        let entry = entry.map_or("", |(entry, _)| if entry == BY_TEXT { "" } else { entry });
        CODES.iter().any(|(known, _)| *known == code).then(|| (code.to_owned(), text.to_owned(), entry.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// A part of a source: what tells messages from the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Text(String),
    Name(String),
    Mark(char),
}

/// The errors that a source words, before its tests.
fn worded(source: &str) -> BTreeSet<Message> {
    let tokens = tokens(source.split("#[cfg(test)]").next().unwrap_or_default());
    let name = |at: usize| match tokens.get(at) {
        Some(Token::Name(name)) => name.as_str(),
        _ => "",
    };
    let mark = |at: usize| match tokens.get(at) {
        Some(Token::Mark(mark)) => *mark,
        _ => ' ',
    };
    let mut worded = BTreeSet::new();
    for at in 0..tokens.len() {
        if name(at) != "new" || mark(at + 1) != '(' {
            continue;
        }
        let arguments = arguments(&tokens, at + 1);
        let (codes, text, entry) = match (mark(at.wrapping_sub(1)), name(at.wrapping_sub(1))) {
            (':', _) if name(at - 3) == "Report" => match &tokens[arguments[0].clone()] {
                [Token::Text(sqlstate)] => (vec![OF_REGISTRY], &arguments[1], of_registry(sqlstate)),
                code => (codes(code), &arguments[1], ""),
            },
            // A function of another type, or a constructor itself.
            (':' | '.', _) | (_, "fn") => continue,
            // The closure of `worded()` in `src/error/fleet.rs`.
            _ => (vec![OF_REGISTRY], &arguments[0], of_registry("")),
        };
        let entry = called(&tokens[end(&tokens, at + 1) + 1..]).map_or_else(|| entry.to_owned(), anchor);
        for text in texts(&resolved(&tokens, at, text)) {
            worded.extend(codes.iter().map(|code| ((*code).to_owned(), text.clone(), entry.clone())));
        }
    }
    worded
}

/// The heading in the call of `.entry()` that comes next.
fn called(tokens: &[Token]) -> Option<&str> {
    match tokens {
        [Token::Mark('.'), Token::Name(name), Token::Mark('('), Token::Text(heading), ..] if name == "entry" => {
            Some(heading)
        }
        _ => None,
    }
}

/// The anchor of a heading, which has letters and spaces only.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

/// The entry that `RegistryError::report_of` chooses by the SQLSTATE.
fn of_registry(sqlstate: &str) -> &'static str {
    match sqlstate {
        "08001" | "08006" => "the-registry-cannot-be-reached",
        "57P01" => "no-worker-number",
        _ => "the-registry-reports-an-error",
    }
}

/// The SQLSTATEs among tokens.
fn codes(tokens: &[Token]) -> Vec<&'static str> {
    let code = |token: &Token| {
        let Token::Name(found) = token else { return None };
        CODES.iter().find(|(_, name)| name == found).map(|(code, _)| *code)
    };
    tokens.iter().filter_map(code).collect()
}

/// The texts among tokens, without those that a text is filled with.
fn texts(tokens: &[Token]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            Token::Name(name) if name == "format" && tokens.get(at + 1) == Some(&Token::Mark('!')) => {
                let Some(Token::Text(text)) = tokens.get(at + 3) else { panic!("format! has a text") };
                texts.push(shown(text));
                at = end(tokens, at + 2);
            }
            Token::Text(text) => texts.push(shown(text)),
            _ => {}
        }
        at += 1;
    }
    texts
}

/// A text of `format!` as a page has it: `...` for what differs, and for two numbers with `..`.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut parts = text.split('{');
    shown.extend(parts.next());
    for part in parts {
        shown = shown.trim_end_matches('.').to_owned() + "...";
        let rest = part.split_once('}').map_or("", |(_, rest)| rest);
        shown.push_str(if rest.starts_with("..") { rest.trim_start_matches('.') } else { rest });
    }
    shown
}

/// What an argument is: if it is a variable, what the function has bound it to.
fn resolved(tokens: &[Token], at: usize, argument: &Range<usize>) -> Vec<Token> {
    let is = |at: usize, wanted: &str| matches!(&tokens[at], Token::Name(name) if name == wanted);
    if let [Token::Name(variable)] = &tokens[argument.clone()] {
        let function = (0..at).rev().find(|at| is(*at, "fn")).unwrap_or_default();
        let bound = (function..at).rev().find(|at| is(*at, "let") && is(at + 1, variable));
        return bound.map_or_else(Vec::new, |bound| {
            let mut last = bound;
            while tokens[last] != Token::Mark(';') {
                last = if opens(&tokens[last]) { end(tokens, last) + 1 } else { last + 1 };
            }
            tokens[bound..last].to_vec()
        });
    }
    tokens[argument.clone()].to_vec()
}

fn opens(token: &Token) -> bool {
    matches!(token, Token::Mark('(' | '[' | '{'))
}

/// Where the bracket ends that begins at a token.
fn end(tokens: &[Token], first: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(first) {
        match token {
            token if opens(token) => depth += 1,
            Token::Mark(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("a bracket is not closed")
}

/// The arguments of a call, whose bracket begins at a token.
fn arguments(tokens: &[Token], first: usize) -> Vec<Range<usize>> {
    let last = end(tokens, first);
    let mut arguments = Vec::new();
    let (mut begin, mut at) = (first + 1, first + 1);
    while at < last {
        if tokens[at] == Token::Mark(',') {
            arguments.push(begin..at);
            begin = at + 1;
        }
        at = if opens(&tokens[at]) { end(tokens, at) + 1 } else { at + 1 };
    }
    arguments.push(begin..last);
    arguments
}

/// Reads Rust, as far as these files use it: no raw texts, and no brackets as characters.
fn tokens(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, next)| next);
        } else if first == '"' {
            let (text, next) = text(&rest[1..]);
            tokens.push(Token::Text(text));
            rest = next;
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Mark(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

/// The text up to the quotation mark that ends it, and what follows that.
fn text(source: &str) -> (String, &str) {
    let mut text = String::new();
    let mut rest = source;
    loop {
        let stop = rest.find(['"', '\\']).expect("a text ends");
        text.push_str(&rest[..stop]);
        let escape = &rest[stop..];
        if let Some(next) = escape.strip_prefix('"') {
            return (text, next);
        }
        rest = if escape.starts_with("\\\n") {
            escape[1..].trim_start()
        } else {
            text.push_str(escape[1..2].replace('n', "\n").as_str());
            &escape[2..]
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(messages: &[[&str; 3]]) -> BTreeSet<Message> {
        messages.iter().map(|message| message.map(str::to_owned).into()).collect()
    }

    #[test]
    fn the_texts_of_errors_are_read_from_the_source() {
        let source = r#"
            //! A "comment" with Report::new(ERRCODE_SYSTEM_ERROR, "nothing").
            pub fn new(sqlstate: Code) -> Self { Self { sqlstate } }
            fn report(&self) -> Report {
                match self {
                    Self::A { ms } => Report::new(
                        ERRCODE_SYSTEM_ERROR,
                        format!("clock of \"{}\" \
                                 is {ms} ms behind", name("server")),
                    )
                    .entry("Clocks")
                    .hint("Wait."),
                    Self::B => Report::new(ERRCODE_WARNING, "not this one"),
                    Self::C(found) => Report::new("08001", match found {
                        Some(found) => format!("version {found}"),
                        None => "no version".to_owned(),
                    }),
                    Self::D => Report::new("22003", format!("numbers are {first}..{last}, not 0..{}", most - 1)),
                    Self::E => Report::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "not ready"),
                }
            }
            fn of_gap() -> Report {
                let message = match next { Some(next) => format!("until {next}"), None => "none".to_owned() };
                Report::new(ERRCODE_SYSTEM_ERROR, message).entry("A gap").detail("Forgotten")
            }
            fn worded() -> Report {
                let new = |message: String| Report::new(ERRCODE_SYSTEM_ERROR, message).entry("Other");
                match failure { Failure::Closed => new("closed".to_owned(), None, "Wait."), _ => Box::new("other") }
            }
            #[cfg(test)]
            mod tests { fn f() { Report::new(ERRCODE_SYSTEM_ERROR, "in a test"); } }
        "#;
        let expected = set(&[
            ["58000", "clock of \"...\" is ... ms behind", "clocks"],
            ["58000", "version ...", "the-registry-cannot-be-reached"],
            ["58000", "no version", "the-registry-cannot-be-reached"],
            ["58000", "numbers are ..., not 0...", "the-registry-reports-an-error"],
            ["55000", "not ready", ""],
            ["58000", "until ...", "a-gap"],
            ["58000", "none", "a-gap"],
            ["58000", "closed", "the-registry-reports-an-error"],
        ]);
        assert_eq!(worded(source), expected);
    }

    #[test]
    fn a_row_needs_its_sqlstate_its_message_and_a_link() {
        let page = "| SQLSTATE | message | entry |\n|---|---|---|\n| 58000 | `one` | [x](y.md) |\n| 55000 | `two` | none |\n\
                    | 22023 | `three` | [x](y.md) |\n| 55000 | prose | [x](y.md) |\n\
                    | 55000 | `four` | [x](runbook.md#a-gap). Or [y](y.md) |\n";
        assert_eq!(rows(page), set(&[["58000", "one", ""], ["55000", "four", "a-gap"]]));
        let faults = differences(&set(&[["55000", "one", ""], ["55000", "four", "clocks"]]), &rows(page));
        assert_eq!(faults.len(), 4, "{faults:?}");
    }

    #[test]
    fn an_entry_that_the_runbook_does_not_have_is_a_fault() {
        let source = r#"warned("A gap", format!("gone")); Report::new(code, "two").entry("Clocks").hint("Wait.")"#;
        assert_eq!(unknown_entries(source, "### A gap\n### Clocks\n"), [""; 0]);
        assert_eq!(unknown_entries(source, "### A gap\n## Clocks\n").len(), 1);
        assert_eq!(unknown_entries(source, "### A gap and more\n").len(), 2);
    }

    #[test]
    fn each_file_words_errors() {
        for path in SOURCES {
            let source = fs::read_to_string(crate::root().join(path)).unwrap();
            assert!(worded(&source).len() > 1, "{path}");
        }
    }
}
