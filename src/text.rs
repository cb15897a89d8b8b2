//! Text in a database of any encoding: an argument of a function, a name in a message.
//!
//! pgrx's `&str` insists on UTF-8, and raises XX000 for anything else. No layout and no id's text holds a character beyond ASCII,
//! so others are read as question marks or U+FFFD, and the text is then refused like any that is none.

use std::borrow::Cow;
use std::cell::OnceCell;

use pgrx::FromDatum;
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};

/// Reads a text as UTF-8; if it is none, with a question mark for each byte beyond ASCII.
pub fn legible(bytes: &[u8]) -> Cow<'_, str> {
    let ascii = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
    str::from_utf8(bytes).map_or_else(|_| Cow::Owned(bytes.iter().map(ascii).collect()), Cow::Borrowed)
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

    /// The text, with question marks for what is not UTF-8.
    pub fn as_str(&self) -> &str {
        self.read.get_or_init(|| legible(self.bytes))
    }

    /// The text's characters, without a copy of it. Where the database is not UTF-8, all beyond ASCII are U+FFFD, and only the first of
    /// them is sure to be counted right: other encodings can look like UTF-8 with fewer characters.
    pub fn characters(&self) -> impl Iterator<Item = char> + Clone + use<'a> {
        // SAFETY: reads what is set when a session begins.
        let is_utf8 = || unsafe { pg_sys::GetDatabaseEncoding() } == pg_sys::pg_enc::PG_UTF8 as i32;
        let is_known = self.bytes.is_ascii() || is_utf8();
        let known = move |c: char| if c.is_ascii() || is_known { c } else { char::REPLACEMENT_CHARACTER };
        self.bytes.utf8_chunks().flat_map(move |chunk| {
            let unknown = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
            chunk.valid().chars().map(known).chain(unknown)
        })
    }
}

impl FromDatum for Text<'_> {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, of: pg_sys::Oid) -> Option<Self> {
        // SAFETY: the caller hands over a text, whose bytes live as long as what it is a part of.
        unsafe { <&[u8]>::from_polymorphic_datum(datum, is_null, of) }.map(Self::new)
    }
}

// SAFETY: text is stored as bytea is, a varlena whose bytes may be anything.
unsafe impl<'fcx> ArgAbi<'fcx> for Text<'fcx> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller hands over a text that is not null, and it lives as long as the call.
        Self::new(unsafe { ArgAbi::unbox_arg_unchecked(arg) })
    }
}

// SAFETY: maps to SQL's text, which is what unbox_arg_unchecked reads.
unsafe impl SqlTranslatable for Text<'_> {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Text);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("text"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("text")));
}
