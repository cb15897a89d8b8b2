//! The layouts that this session uses: the setting's, and those named in `layout` arguments.

use parking_lot::Mutex;
use snowflake_core::id::layout::{Layout, LayoutError, MAX_TEXT};

use crate::error::Error;
use crate::ids::database_mark;
use crate::ids::stamp;
use crate::postgres::text::Text;
use crate::settings::guc;

/// The layout texts that this session has used, with their meaning, because a query names its
/// layout once per row.
static PARSED: Mutex<Vec<(String, Layout)>> = Mutex::new(Vec::new());

/// The most texts to remember: more than the built-in layouts, and bounded because a table can hold
/// any number of layouts.
const MOST_PARSED: usize = 32;

/// The layout of this database's ids, for decoding without a `layout` argument.
///
/// # Errors
/// As [`configured`], and [`Error::OtherLayout`] if the database's ids were drawn with another
/// layout.
#[inline]
pub fn current() -> Result<Layout, Error> {
    let layout = configured()?;
    database_mark::check_layout(&layout)?;
    Ok(layout)
}

/// The layout of the setting, even if this database's ids were drawn with another one.
///
/// # Errors
/// [`Error::Layout`] or [`Error::LayoutRefused`] if the library is not preloaded and the setting's
/// value was refused.
pub fn configured() -> Result<Layout, Error> {
    match stamp::layout() {
        Some(layout) => Ok(*layout),
        None => named(&guc::layout_text_without_preload()?),
    }
}

/// The layout that an argument names or spells out.
///
/// # Errors
/// [`Error::Layout`].
pub fn of(argument: &Text<'_>) -> Result<Layout, Error> {
    match argument.length() {
        bytes if bytes > MAX_TEXT => Err(LayoutError::TooLong { bytes }.into()),
        _ => named(argument.as_str()),
    }
}

/// The layout that a text names or spells out.
///
/// # Errors
/// [`Error::Layout`].
fn named(text: &str) -> Result<Layout, Error> {
    let mut parsed = PARSED.lock();
    if let Some((_, layout)) = parsed.iter().find(|(known, _)| known == text) {
        return Ok(*layout);
    }
    let layout = Layout::parse(text)?;
    if parsed.len() == MOST_PARSED {
        parsed.clear();
    }
    parsed.push((text.to_owned(), layout));
    Ok(layout)
}
