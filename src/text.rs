//! Text in a database of any encoding: function arguments, and names in messages.
//!
//! pgrx's `&str` requires UTF-8, and raises XX000 for anything else. Layouts and the texts of ids
//! are ASCII, so any other character is read as a question mark or U+FFFD. The text is then refused
//! like any other that is not valid.

use std::borrow::Cow;
use std::cell::OnceCell;

use pgrx::FromDatum;
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};

/// Reads a text as UTF-8. If it is not UTF-8, each byte beyond ASCII becomes a question mark.
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

    /// Returns the text, with question marks for what is not UTF-8.
    pub fn as_str(&self) -> &str {
        self.read.get_or_init(|| legible(self.bytes))
    }

    /// Returns the text's characters without copying it. In a database that is not UTF-8, every
    /// character beyond ASCII becomes U+FFFD. Only the first of them is sure to be counted right,
    /// because other encodings can look like UTF-8 with fewer characters.
    pub fn characters(&self) -> impl Iterator<Item = char> + Clone + use<'a> {
        // SAFETY: reads a variable that is set when a session begins.
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
