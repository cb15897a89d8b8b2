//! A `layout` argument, in a database of any encoding.
//!
//! pgrx's `&str` insists on UTF-8, and raises XX000 for anything else. No layout holds a character beyond ASCII, so others
//! are read as question marks, and the text is then refused like any that is no layout.

use std::borrow::Cow;

use pgrx::FromDatum;
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};

/// An argument of type `text`.
pub struct Text<'fcx>(Cow<'fcx, str>);

impl<'a> Text<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => Cow::Borrowed(text),
            Cow::Owned(text) => Cow::Owned(text.replace(char::REPLACEMENT_CHARACTER, "?")),
        })
    }

    /// The text, with question marks for what is not UTF-8.
    pub fn as_str(&self) -> &str {
        &self.0
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
