//! Text in a database of any encoding: function arguments, and names in messages.
//!
//! pgrx's `&str` requires UTF-8, and raises XX000 for anything else. Layouts and the texts of ids
//! are ASCII, so any other character is read as a question mark or U+FFFD. The text is then refused
//! like any other that is not valid.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ffi::{CStr, c_char};
use std::ptr;

use pgrx::FromDatum;
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};

/// More bytes than any argument has that means something: a layout has [`MAX_TEXT`] at most, the
/// name of a zone 255 (TZ_STRLEN_MAX in PostgreSQL's pgtime.h).
///
/// [`MAX_TEXT`]: snowflake_core::id::layout::MAX_TEXT
pub const LONGEST: usize = 1000;

/// Returns a text, or the beginning of a long one, which means nothing then. A character of UTF-8
/// is not cut.
pub fn beginning(bytes: &[u8]) -> &[u8] {
    match bytes.get(..LONGEST + 1) {
        Some(longer) => {
            let is_first = |end: &usize| longer[*end] & 0b1100_0000 != 0b1000_0000;
            &longer[..(LONGEST - 3..=LONGEST).rev().find(is_first).unwrap_or(LONGEST)]
        }
        None => bytes,
    }
}

/// Reads a text as UTF-8. If it is not UTF-8, each byte beyond ASCII becomes a question mark.
pub fn legible(bytes: &[u8]) -> Cow<'_, str> {
    let ascii = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
    str::from_utf8(bytes).map_or_else(|_| Cow::Owned(bytes.iter().map(ascii).collect()), Cow::Borrowed)
}

/// Whether the session's database has the encoding UTF-8.
pub fn is_utf8_database() -> bool {
    // SAFETY: reads a variable that is set when a session begins.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as i32 }
}

/// Converts a text from the database's encoding to UTF-8. Raises 22021 for bytes that are not text.
/// It copies the text, so its length must be known.
pub fn to_utf8(bytes: &[u8]) -> String {
    let length = i32::try_from(bytes.len()).ok().filter(|_| !bytes.is_ascii());
    let Some(length) = length else { return legible(bytes).into_owned() };
    // SAFETY: reads that many bytes, and returns either the same ones or a text of its own, which
    // ends with a zero byte. Errors are raised through pgrx's guard.
    let converted = unsafe {
        let given = bytes.as_ptr().cast::<c_char>();
        let converted = pg_sys::pg_server_to_any(given, length, pg_sys::pg_enc::PG_UTF8 as i32);
        if ptr::eq(converted, given) { bytes } else { CStr::from_ptr(converted).to_bytes() }
    };
    legible(converted).into_owned()
}

/// Returns a text as the session's database can show it: with question marks for characters beyond
/// ASCII, unless the database's encoding is UTF-8.
pub fn showable(text: &str) -> String {
    let is_shown = |c: char| c.is_ascii() || is_utf8_database();
    text.chars().map(|c| if is_shown(c) { c } else { '?' }).collect()
}

/// Writes a text as a word of a shell, with octal escapes of UTF-8 for what the session's database
/// cannot show.
pub fn shell_word(text: &str) -> String {
    if showable(text) == text {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let escaped = |byte: u8| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        _ if byte.is_ascii() => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    format!("$'{}'", text.bytes().map(escaped).collect::<String>())
}

/// An argument of type `text`.
pub struct Text<'fcx> {
    bytes: &'fcx [u8],
    read: OnceCell<Cow<'fcx, str>>,
}

impl<'a> Text<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, read: OnceCell::new() }
    }

    /// Returns the text, or its [`beginning`], with question marks for what is not UTF-8.
    pub fn as_str(&self) -> &str {
        self.read.get_or_init(|| legible(beginning(self.bytes)))
    }

    /// Returns how many bytes the whole text has, in the database's encoding.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the whole text, in the database's encoding.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the text's characters without copying it. In a database that is not UTF-8, every
    /// character beyond ASCII becomes U+FFFD. Only the first of them is sure to be counted right,
    /// because other encodings can look like UTF-8 with fewer characters.
    pub fn characters(&self) -> impl Iterator<Item = char> + Clone + use<'a> {
        let is_known = self.bytes.is_ascii() || is_utf8_database();
        let known = move |c: char| if c.is_ascii() || is_known { c } else { char::REPLACEMENT_CHARACTER };
        self.bytes.utf8_chunks().flat_map(move |chunk| {
            let unknown = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
            chunk.valid().chars().map(known).chain(unknown)
        })
    }
}

impl FromDatum for Text<'_> {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, of: pg_sys::Oid) -> Option<Self> {
        // SAFETY: the caller passes a text, whose bytes live as long as the value that it belongs
        // to.
        unsafe { <&[u8]>::from_polymorphic_datum(datum, is_null, of) }.map(Self::new)
    }
}

// SAFETY: text is stored like bytea, as a varlena of arbitrary bytes.
unsafe impl<'fcx> ArgAbi<'fcx> for Text<'fcx> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller passes a text that is not null and lives as long as the call.
        Self::new(unsafe { ArgAbi::unbox_arg_unchecked(arg) })
    }
}

// SAFETY: maps to SQL's text, which unbox_arg_unchecked reads.
unsafe impl SqlTranslatable for Text<'_> {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Text);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("text"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("text")));
}
