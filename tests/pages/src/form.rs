//! What every page must have: links and names of files that lead somewhere, blocks that say what
//! runs them, sentences that are not too long, words that PostgreSQL does not use for something
//! else, and a way from the README.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Tag, TagEnd};

use crate::{Block, Page, parser};

/// The greatest number of words in a sentence. A code span counts as one word.
const WORDS: usize = 30;

/// Words that no page has, and those to write instead. The first ones have another meaning for
/// readers who know PostgreSQL. A star stands for any number.
const WRONG_WORDS: [(&str, &str); 23] = [
    ("typed number", "configured number"),
    ("typed numbers", "configured numbers"),
    ("typed one", "configured one"),
    ("flushed to the log", "flushed to WAL"),
    ("log record", "WAL record"),
    ("log records", "WAL records"),
    ("logged sequence", "sequence in WAL"),
    ("logged mark", "mark in WAL"),
    ("draws on", "keeps generating"),
    ("draw on", "keep generating"),
    ("registry is away", "registry refuses connections, times out or reports an error"),
    ("registry forgets", "registry loses leases"),
    ("registry forgot", "registry lost leases"),
    ("belongs into", "belongs in"),
    ("belong into", "belong in"),
    ("from * on", "* or later"),
    ("from version * on", "* or later"),
    ("is to be", "must be"),
    ("are to be", "must be"),
    ("whoever", "the session, server or caller that"),
    ("somebody", "a session, server or caller"),
    ("hardly ever", "seldom"),
    ("says nothing", "does not answer"),
];

/// Words that a cell of a table does not begin with, because the reader does not see what they
/// stand for.
const PRONOUNS: [&str; 7] = ["It", "Its", "They", "Their", "This", "These", "Those"];

/// The languages of blocks. A test or a check looks at each of them, except C#, which no machine of
/// the tests compiles.
const LANGUAGES: [&str; 17] = [
    "sql", "text", "conf", "console", "sh", "yaml", "python", "js", "java", "ruby", "rust", "go", "xml", "php",
    "prisma", "json", "csharp",
];

/// The keys of blocks, each with the language that it goes with.
const KEYS: [(&str, &str); 11] = [
    ("sql", "name"),
    ("sql", "needs"),
    ("sql", "server"),
    ("sql", "after"),
    ("text", "numbers"),
    ("conf", "name"),
    ("conf", "needs"),
    ("yaml", "name"),
    ("sh", "name"),
    ("console", "name"),
    ("json", "name"),
];

/// Returns what is wrong with the pages of the repository at `root`, each with its place.
#[must_use]
pub fn faults(root: &Path, pages: &[Page]) -> Vec<String> {
    let shown: BTreeMap<_, _> = pages.iter().map(|page| (page.path.as_str(), Shown::of(&page.text))).collect();
    let targets = make_targets(root);
    let mut faults = Vec::new();
    for page in pages {
        let mut fault = |what: String| faults.push(format!("{}: {what}", page.path));
        let shown_page = &shown[page.path.as_str()];
        for link in &shown_page.links {
            if let Some(what) = wrong_link(root, &shown, &page.path, link) {
                fault(what);
            }
        }
        for (number, block) in page.blocks.iter().enumerate() {
            wrong_block(block, number, pages).into_iter().for_each(&mut fault);
        }
        for target in shown_page.commands.iter().chain(page.blocks.iter().map(|block| &block.text)).flat_map(made) {
            if !targets.contains(&target) {
                fault(format!("there is no \"make {target}\""));
            }
        }
        let consoles = page.blocks.iter().filter(|block| block.language == "console").map(|block| &block.text);
        for path in shown_page.commands.iter().chain(consoles).flat_map(|text| files(text)) {
            if !keeps_its_words(&page.path) && !root.join(path).exists() {
                fault(format!("there is no {path}"));
            }
        }
        if !keeps_its_words(&page.path) {
            for sentence in &shown_page.sentences {
                let words = words_of(sentence);
                if words > WORDS {
                    fault(format!("a sentence of {words} words, more than {WORDS}: \"{sentence}\""));
                }
                for (wrong, instead) in wrong_words(sentence) {
                    fault(format!("\"{wrong}\" where \"{instead}\" is clear: \"{sentence}\""));
                }
            }
            for cell in &shown_page.cells {
                if cell.split_whitespace().next().is_some_and(|word| PRONOUNS.contains(&word)) {
                    fault(format!("a cell begins with a pronoun: \"{cell}\""));
                }
            }
        }
    }
    faults.extend(for_agents(pages, &shown));
    let reached = reached(&shown);
    let lost = pages.iter().filter(|page| !reached.contains(page.path.as_str()));
    faults.extend(lost.map(|page| format!("{}: no link leads to it from README.md", page.path)));
    faults
}

/// The list of all pages, for agents.
pub const INDEX: &str = "llms.txt";

/// The page for agents that choose keys.
pub const SKILL: &str = "skills/snowflake-id/SKILL.md";

/// Returns what is wrong with the pages for agents: how they begin (llmstxt.org, agentskills.io),
/// and the pages that the list lacks.
fn for_agents(pages: &[Page], shown: &BTreeMap<&str, Shown>) -> Vec<String> {
    let text = |path: &str| pages.iter().find(|page| page.path == path).map(|page| page.text.as_str());
    let mut faults = Vec::new();
    if text(SKILL).is_some_and(|text| {
        let head =
            text.strip_prefix("---\nname: snowflake-id\ndescription: ").and_then(|text| text.split_once("\n---\n"));
        head.is_none_or(|(description, _)| description.contains(['\n', ':']) || description.len() > 1024)
    }) {
        faults.push(format!("{SKILL}: it does not begin with its directory's name and a description in one line"));
    }
    if let Some(text) = text(INDEX) {
        if !text.starts_with("# ") || text.lines().nth(2).is_none_or(|line| !line.starts_with("> ")) {
            faults.push(format!("{INDEX}: it does not begin with a title and a quotation"));
        }
        let is_for_users = |path: &&&str| path.strip_prefix("docs/").is_some_and(|name| !name.contains('/'));
        let lacks =
            shown.keys().filter(is_for_users).filter(|path| !shown[INDEX].links.iter().any(|link| link == *path));
        faults.extend(lacks.map(|path| format!("{INDEX}: it does not name {path}")));
    }
    faults
}

/// Returns the versions that `Cargo.toml` has, and that a page does not say in these words. The
/// version of Rust is the workspace's, with which the tools build the extension, too.
#[must_use]
pub fn missing_versions(cargo_toml: &str, page: &str) -> Vec<String> {
    let mut workspace = cargo_toml.lines().skip_while(|line| *line != "[workspace.package]");
    let rust = workspace.find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    let feature = |line: &str| line.strip_prefix("pg")?.split_once(" = [")?.0.parse::<u32>().ok();
    let postgres: Vec<_> = cargo_toml.lines().filter_map(feature).collect();
    let (first, last) = (postgres.iter().min(), postgres.iter().max());
    let [rust, first, last] = [rust.map(str::to_owned), first.map(u32::to_string), last.map(u32::to_string)]
        .map(|version| version.expect("Cargo.toml has the versions"));
    let sentences = [format!("PostgreSQL {first} to {last}"), format!("Rust {rust} or later")];
    sentences.into_iter().filter(|sentence| !page.contains(sentence)).collect()
}

/// Whether a page's sentences may be long, and its files gone: the CHANGELOG keeps what was
/// released.
fn keeps_its_words(path: &str) -> bool {
    path == "CHANGELOG.md"
}

/// What a reader sees of a page, and where its links lead.
#[derive(Debug, Default)]
struct Shown {
    links: Vec<String>,
    anchors: BTreeSet<String>,
    sentences: Vec<String>,
    /// Of tables.
    cells: Vec<String>,
    /// Code within sentences.
    commands: Vec<String>,
}

impl Shown {
    fn of(text: &str) -> Self {
        let mut shown = Self::default();
        let (mut prose, mut heading, mut is_code) = (String::new(), String::new(), false);
        for event in parser(text) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    shown.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading.clear(),
                Event::End(TagEnd::Heading(_)) => {
                    shown.add_anchor(&heading);
                    prose.clear();
                }
                Event::Start(Tag::CodeBlock(_)) => is_code = true,
                Event::End(TagEnd::CodeBlock) => is_code = false,
                Event::Text(text) if !is_code => {
                    prose.push_str(&text);
                    heading.push_str(&text);
                }
                Event::Code(code) => {
                    // One word, whatever is in it.
                    prose.push_str(&code.replace(' ', "\u{a0}"));
                    heading.push_str(&code);
                    shown.commands.push(code.into_string());
                }
                Event::SoftBreak | Event::HardBreak => prose.push(' '),
                Event::Html(html) | Event::InlineHtml(html) => shown.add_sources(&html),
                Event::End(TagEnd::TableCell) => {
                    shown.sentences.extend(sentences(&prose));
                    shown.cells.push(mem::take(&mut prose));
                }
                Event::Start(Tag::Item | Tag::Paragraph | Tag::TableCell)
                | Event::End(TagEnd::Item | TagEnd::Paragraph) => {
                    shown.sentences.extend(sentences(&prose));
                    prose.clear();
                }
                _ => {}
            }
        }
        shown
    }

    /// Adds the anchor of a heading, as GitHub makes it.
    fn add_anchor(&mut self, heading: &str) {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut anchor = slug.clone();
        let mut number = 0;
        while !self.anchors.insert(anchor.clone()) {
            number += 1;
            anchor = format!("{slug}-{number}");
        }
    }

    /// Adds the files that HTML shows.
    fn add_sources(&mut self, html: &str) {
        for attribute in ["src=\"", "srcset=\"", "href=\""] {
            let values = html.split(attribute).skip(1);
            self.links.extend(values.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
}

/// Divides prose where a sentence ends: at a full stop, question mark or exclamation mark that a
/// blank follows. A closing bracket, quotation mark or asterisk may stand between them.
fn sentences(prose: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    for word in prose.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let sentence = sentences.last_mut().expect("there is always one");
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        if word.trim_end_matches([')', '"', '*']).ends_with(['.', '?', '!']) && word != "..." {
            sentences.push(String::new());
        }
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

fn words_of(sentence: &str) -> usize {
    sentence.split(' ').filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The wrong words of a sentence, with those to write instead.
fn wrong_words(sentence: &str) -> Vec<(&'static str, &'static str)> {
    let lower = sentence.to_lowercase();
    let words: Vec<_> =
        lower.split([' ', '\n']).map(|word| word.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let fits = |(wanted, word): (&&str, &&str)| {
        wanted == word || *wanted == "*" && word.starts_with(|c: char| c.is_ascii_digit())
    };
    // "Draw on the primary" is a place.
    let is_place = |next: Option<&&str>| next.is_some_and(|word| ["the", "a", "one", "this"].contains(word));
    let has = |phrase: &str| {
        let wanted: Vec<_> = phrase.split(' ').collect();
        let found = words.windows(wanted.len()).enumerate().filter(|(_, found)| wanted.iter().zip(*found).all(fits));
        let mut next = found.map(|(at, _)| words.get(at + wanted.len()));
        next.any(|next| !(phrase.starts_with("draw") && is_place(next)))
    };
    let mut wrong: Vec<_> = WRONG_WORDS.into_iter().filter(|(phrase, _)| has(phrase)).collect();
    if lower.ends_with(", too.") || lower.ends_with(", too") {
        wrong.push((", too", "also"));
    }
    wrong
}

/// The targets of `make` that a text tells the reader to run.
fn made(text: impl AsRef<str>) -> Vec<String> {
    let text = text.as_ref();
    let commands = text.lines().filter_map(|line| line.trim_start_matches("$ ").strip_prefix("make "));
    let targets = commands.filter_map(|rest| rest.split_whitespace().next()).filter(|word| !word.contains('='));
    targets.map(str::to_owned).filter(|target| target.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

/// The repository's files that a text names, from its directory on. Names with capitals, stars or
/// dollar signs stand for several files.
fn files(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split_whitespace().map(|word| word.trim_matches(['"', '(', ')', ',']));
    words.filter(|word| {
        ["tools/", "tests/", "src/", "sql/", "docs/", ".ci/"].iter().any(|directory| word.starts_with(directory))
            && !word.contains(|c: char| c.is_ascii_uppercase() || matches!(c, '*' | '$' | '='))
    })
}

fn make_targets(root: &Path) -> BTreeSet<String> {
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap_or_default();
    let phony = makefile.lines().find_map(|line| line.strip_prefix(".PHONY: ")).unwrap_or_default();
    phony.split_whitespace().map(str::to_owned).collect()
}

fn wrong_block(block: &Block, number: usize, pages: &[Page]) -> Vec<String> {
    let mut faults = Vec::new();
    let first_line = block.text.lines().next().unwrap_or_default();
    if !LANGUAGES.contains(&block.language.as_str()) {
        faults.push(format!("the block \"{first_line}\" has the language \"{}\"", block.language));
    }
    for (key, value) in &block.keys {
        if value.is_empty() || !KEYS.contains(&(&block.language, key)) {
            faults.push(format!("the block \"{first_line}\" has the key \"{key}={value}\""));
        }
    }
    if block.is_hidden && number != 0 {
        faults.push(format!("the block \"{first_line}\" is hidden, and is not the page's first"));
    }
    if block.language == "sql" && !block.runs_with_its_page() && block.key("name").is_none() {
        faults.push(format!("the block \"{first_line}\" needs a name, by which a test can ask for it"));
    }
    let named = |name: &str| {
        let blocks = pages.iter().flat_map(|page| &page.blocks);
        blocks.filter(|block| block.key("name") == Some(name)).count()
    };
    if let Some(name) = block.key("name").filter(|name| named(name) > 1) {
        faults.push(format!("several blocks have name={name}"));
    }
    if let Some(name) = block.key("after").filter(|name| named(name) == 0) {
        faults.push(format!("no block has name={name}"));
    }
    faults
}

fn wrong_link(root: &Path, shown: &BTreeMap<&str, Shown>, page: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { page.to_owned() } else { beside(page, path)? };
    if !shown.contains_key(target.as_str()) && !root.join(&target).exists() {
        return Some(format!("({link}) leads to no file"));
    }
    let anchor = anchor?;
    match shown.get(target.as_str()) {
        None => Some(format!("({link}) has an anchor in a file that is not a page")),
        Some(shown) if !shown.anchors.contains(anchor) => Some(format!("({link}) leads to no heading")),
        Some(_) => None,
    }
}

/// The path of a file that a page names, from the repository's directory on.
fn beside(page: &str, path: &str) -> Option<String> {
    let mut target = PathBuf::new();
    for component in Path::new(page).parent()?.join(path).components() {
        match component {
            Component::ParentDir => {
                target.pop();
            }
            component => target.push(component),
        }
    }
    target.to_str().map(str::to_owned)
}

/// The pages to which links lead from the README, directly or by way of others.
fn reached<'a>(shown: &BTreeMap<&'a str, Shown>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec!["README.md".to_owned()];
    while let Some(path) = next.pop() {
        let Some((&path, shown)) = shown.get_key_value(path.as_str()) else { continue };
        if reached.insert(path) {
            let paths = shown.links.iter().map(|link| link.split('#').next().unwrap_or_default());
            next.extend(paths.filter_map(|link| beside(path, link)));
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks_of;

    /// A repository with these pages, whose other files are this one's.
    fn faults_of(pages: &[(&str, &str)]) -> Vec<String> {
        let page = |(path, text): &(&str, &str)| Page {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
            blocks: blocks_of(text, false),
        };
        faults(&crate::root(), &pages.iter().map(page).collect::<Vec<_>>())
    }

    #[test]
    fn a_page_in_good_form_has_no_fault() {
        let readme = "<!--\n```sql\nSELECT 1;\n```\n-->\n# Title\n\n[here](#title), [there](docs/install.md#a-b)\n\n```console\n$ make test\n```\n\n```sql name=one\nSELECT 1\n```\n\n```sql name=two after=one\nSELECT 2\n```\n";
        assert_eq!(
            faults_of(&[("README.md", readme), ("docs/install.md", "## A *b*!\n\n[back](../README.md)\n")]),
            [""; 0]
        );
    }

    #[test]
    fn each_fault_is_noticed() {
        let long = "Word ".repeat(WORDS + 1);
        for (text, fault) in [
            ("[a](docs/nowhere.md)", "leads to no file"),
            ("[a](#nowhere)", "leads to no heading"),
            ("[a](Makefile#here)", "not a page"),
            ("<img src=\"docs/nowhere.svg\">", "leads to no file"),
            ("```cobol\n```", "has the language"),
            ("```sql mood=good\nSELECT 1\n```", "has the key"),
            ("```python name=x\n```", "has the key"),
            ("```sql needs=citus\nSELECT 1\n```", "needs a name"),
            ("```sql name=a\n```\n```sql name=a\n```", "several blocks"),
            ("```sql name=a after=b\n```", "no block has name=b"),
            ("```sql\n```\n\n<!--\n```sql\nSELECT 1\n```\n-->", "is hidden"),
            ("```console\n$ make coffee\n```", "no \"make coffee\""),
            ("Run `make tea`.", "no \"make tea\""),
            ("`src/core/nowhere.rs` says why.", "no src/core/nowhere.rs"),
            ("```console\n$ tools/brew tea\n```", "no tools/brew"),
            (&long, "a sentence of 31 words"),
            (&format!("| a |\n|---|\n| {long} |"), "a sentence of 31 words"),
            (&format!("- {long}"), "a sentence of 31 words"),
            ("A *typed* number ends.", "\"configured number\" is clear"),
            ("It works from 13 on.", "\"* or later\" is clear"),
            ("It works from 13 on the standby.", "\"* or later\" is clear"),
            ("All servers draw on.", "\"keep generating\" is clear"),
            ("The standby does so, too.", "\"also\" is clear"),
            ("| a |\n|---|\n| It ends. |", "begins with a pronoun"),
        ] {
            let faults = faults_of(&[("README.md", text)]);
            assert!(faults.len() <= 2 && faults[0].contains(fault), "{text}: {faults:?}");
        }
        for (path, text, fault) in [
            (SKILL, "# Title", "does not begin with its directory's name"),
            (SKILL, "---\nname: snowflake-id\ndescription: a: b\n---\n", "does not begin with its directory's name"),
            (INDEX, "Title", "does not begin with a title"),
            (INDEX, "# Title\n\n> It is.\n", "does not name docs/install.md"),
        ] {
            let readme = ("README.md", "[a](llms.txt) [b](skills/snowflake-id/SKILL.md) [c](docs/install.md)");
            let faults = faults_of(&[readme, (path, text), ("docs/install.md", "x")]);
            assert!(faults[0].contains(fault), "{text}: {faults:?}");
        }
        let lost = faults_of(&[("README.md", "x"), ("docs/install.md", "x")]);
        assert_eq!(lost, ["docs/install.md: no link leads to it from README.md"]);
    }

    #[test]
    fn words_that_only_look_wrong_have_no_fault() {
        for text in ["Draw on the primary.", "| a |\n|---|\n| One each. |", "From 13 to 14, it rests.", "Too late."] {
            assert_eq!(faults_of(&[("README.md", text)]), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_page_has_the_versions_of_cargo_toml() {
        let cargo_toml =
            "default = [\"pg15\"]\npg15 = [\"x\"]\npg19 = [\"x\"]\n[workspace.package]\nrust-version = \"1.95\"\n";
        let cargo_toml = format!("rust-version = \"1.96\"\n{cargo_toml}");
        let right = "It needs PostgreSQL 15 to 19. Building needs Rust 1.95 or later.";
        assert_eq!(missing_versions(&cargo_toml, right), [""; 0]);
        let wrong = missing_versions(&cargo_toml, "It needs PostgreSQL 15 to 18. Building needs Rust 1.96 or later.");
        assert_eq!(wrong, ["PostgreSQL 15 to 19", "Rust 1.95 or later"]);
    }

    #[test]
    fn a_block_is_read_with_its_keys() {
        let [block] = &blocks_of("```sql server=other name=there\nSELECT 1;\n\nSELECT 2;\n```\n", false)[..] else {
            panic!("one block")
        };
        assert_eq!((block.language.as_str(), block.text.as_str()), ("sql", "SELECT 1;\n\nSELECT 2;"));
        assert_eq!((block.key("server"), block.key("name")), (Some("other"), Some("there")));
        assert!(!block.runs_with_its_page() && !block.is_hidden);
        assert!(blocks_of("<!--\n```sql\nSELECT 1;\n```\n-->\n\nx", false)[0].is_hidden);
    }
}
