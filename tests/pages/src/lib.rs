//! The project's pages in Markdown: README.md, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md, those
//! for agents, and all of `docs`.
//!
//! The tests of `tests/cluster` run the fenced blocks that they find here. What runs a block stands
//! behind its fence, where renderers ignore it:
//!
//! ```text
//! sql                     the test of the page runs it, in the order of the page
//! sql needs=citus         it needs more than PostgreSQL: a test asks for it by its name
//! sql server=other        it is for another server than the page's: the same
//! sql after=own-rows      it continues the session of the block with that name
//! sql name=retention      a test also asks for it by this name
//! text                    psql's output of the SQL before it, word for word
//! text numbers=vary       the same, but for its numbers, which are of new ids
//! ```
//!
//! A page may begin with a block within an HTML comment, which renderers do not show: what its
//! examples need. The program of this crate checks the pages' form, and that their tables of alerts
//! and of messages say what the code says (`tools/lint` runs it).

#![forbid(unsafe_code)]

pub mod alerts;
pub mod form;
pub mod messages;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The first word behind the fence: `sql`, `text`, `python`...
    pub language: String,
    /// The words after that, each a key and its value.
    pub keys: Vec<(String, String)>,
    /// The text between the fences, without the end of its last line.
    pub text: String,
    /// Whether it stands in an HTML comment.
    pub is_hidden: bool,
}

impl Block {
    /// Returns the value of a key.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether the test of its page runs it. If not, a test asks for it by its name.
    #[must_use]
    pub fn runs_with_its_page(&self) -> bool {
        self.language == "sql" && ["needs", "server", "after"].iter().all(|key| self.key(key).is_none())
    }
}

/// A file in Markdown.
#[derive(Debug)]
pub struct Page {
    /// Its path in the repository, such as `docs/install.md`.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// Its fenced blocks, in their order.
    pub blocks: Vec<Block>,
}

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let names = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", form::INDEX, form::SKILL];
    let mut paths: Vec<_> = names.map(PathBuf::from).into();
    add_pages_of(Path::new("docs"), &mut paths);
    paths.sort();
    paths.into_iter().map(read).collect()
});

/// Returns the repository's directory.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn add_pages_of(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(directory)).expect("the directory is there") {
        let entry = entry.expect("it can be listed");
        let path = directory.join(entry.file_name());
        if entry.path().is_dir() {
            add_pages_of(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}

fn read(path: PathBuf) -> Page {
    let text = fs::read_to_string(root().join(&path)).expect("the page is UTF-8");
    let path = path.to_str().expect("its name is ASCII").to_owned();
    Page { path, blocks: blocks_of(&text, false), text }
}

/// The parser for all pages: that of GitHub, as far as the pages go.
fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_GFM)
}

fn blocks_of(text: &str, is_hidden: bool) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut html = String::new();
    for event in parser(text) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => open = Some(opened(&info, is_hidden)),
            Event::Text(line) => {
                if let Some(block) = &mut open {
                    block.text.push_str(&line);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take().map(|mut block| {
                block.text.truncate(block.text.trim_end_matches('\n').len());
                block
            })),
            Event::Start(Tag::HtmlBlock) => html.clear(),
            Event::Html(line) => html.push_str(&line),
            Event::End(TagEnd::HtmlBlock) => {
                let comment = html.trim().strip_prefix("<!--").and_then(|comment| comment.strip_suffix("-->"));
                blocks.extend(comment.map(|comment| blocks_of(comment, true)).into_iter().flatten());
            }
            _ => {}
        }
    }
    blocks
}

/// An empty block with what stands behind the fence.
fn opened(info: &str, is_hidden: bool) -> Block {
    let mut words = info.split_whitespace();
    let language = words.next().unwrap_or_default().to_owned();
    let key = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key.to_owned(), value.to_owned())
    };
    Block { language, keys: words.map(key).collect(), text: String::new(), is_hidden }
}

/// Returns all pages, by the order of their paths.
#[must_use]
pub fn pages() -> &'static [Page] {
    &PAGES
}

/// Returns the page with this path.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
#[track_caller]
pub fn page(path: &str) -> &'static Page {
    pages().iter().find(|page| page.path == path).unwrap_or_else(|| panic!("there is no page {path}"))
}

/// Returns the text of the block that has this name, on whichever page.
///
/// # Panics
///
/// Panics if there is no such block, or more than one.
#[must_use]
#[track_caller]
pub fn block(name: &str) -> &'static str {
    let is_meant = |block: &&Block| block.key("name") == Some(name);
    match pages().iter().flat_map(|page| &page.blocks).filter(is_meant).collect::<Vec<_>>()[..] {
        [block] => &block.text,
        [] => panic!("no page has a block with name={name}"),
        _ => panic!("several blocks have name={name}"),
    }
}
