//! What libpq gives out: results, arrays of options, and texts.
//!
//! These facts are what the `unsafe` here relies on:
//!
//! - A `PGresult` belongs to one [`Answered`], and an array of options to one [`OptionArray`]. Each
//!   frees what it has when dropped, once.
//! - A text that libpq returns lives as long as what it comes from. It is copied before anything
//!   else is done with that.

use std::ffi::{CStr, CString, c_char, c_int};
use std::{iter, ptr};

use pq_sys as pq;

use crate::error::Diagnostic;

/// A result of libpq's.
pub(crate) struct Answered(*mut pq::PGresult);

impl Answered {
    /// # Safety
    /// The pointer is a live PGresult, and nothing else frees it.
    pub unsafe fn new(result: *mut pq::PGresult) -> Self {
        Self(result)
    }

    pub fn status(&self) -> pq::ExecStatusType {
        // SAFETY: this is a live PGresult; so in the functions below.
        unsafe { pq::PQresultStatus(self.0) }
    }

    pub fn rows(&self) -> Vec<Vec<Option<String>>> {
        // SAFETY: as above.
        let (rows, columns) = unsafe { (pq::PQntuples(self.0), pq::PQnfields(self.0)) };
        let value = |row, column| {
            // SAFETY: as above, and both numbers are within its bounds. The text is copied.
            unsafe { (pq::PQgetisnull(self.0, row, column) == 0).then(|| copied(pq::PQgetvalue(self.0, row, column))) }
        };
        (0..rows).map(|row| (0..columns).map(|column| value(row, column)).collect()).collect()
    }

    pub fn diagnostic(&self) -> Diagnostic {
        // SAFETY: as above.
        unsafe { diagnostic_of(self.0) }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        // SAFETY: it is a live PGresult, which nothing uses afterwards.
        unsafe { pq::PQclear(self.0) };
    }
}

/// An array of connection options that libpq has allocated.
pub(crate) struct OptionArray(*mut pq::_PQconninfoOption);

impl OptionArray {
    /// # Safety
    /// The pointer is null, or one that `PQconninfoParse` or `PQconninfo` has returned, and that
    /// nothing else frees.
    pub unsafe fn new(array: *mut pq::_PQconninfoOption) -> Self {
        Self(array)
    }

    /// Parses a connection string or URI.
    ///
    /// # Errors
    /// libpq's words.
    pub fn parse(conninfo: &CStr) -> Result<Self, String> {
        let mut message = ptr::null_mut();
        // SAFETY: both arguments are valid for the call.
        let array = unsafe { Self::new(pq::PQconninfoParse(conninfo.as_ptr(), &raw mut message)) };
        if !array.0.is_null() {
            return Ok(array);
        }
        // SAFETY: libpq has allocated the text, or left null if it is out of memory. It is copied,
        // and then freed once.
        let text = unsafe {
            let text = copied(message);
            pq::PQfreemem(message.cast());
            text
        };
        Err(if text.is_empty() { "out of memory".to_owned() } else { one_paragraph(&text) })
    }

    /// Adds what libpq takes from a service file and the environment to options, which are keywords
    /// and values. Does not connect, and looks into no password file.
    pub fn completed<'a>(options: impl Iterator<Item = (&'a CStr, &'a CStr)>) -> Self {
        // With a password, libpq needs no password file. With this mode, it refuses to connect.
        let own = [(c"password", c"none"), (c"sslmode", c"none")];
        let is_own = |keyword: &CStr| own.iter().any(|(name, _)| *name == keyword);
        let options = options.filter(|(keyword, _)| !is_own(keyword)).chain(own);
        let ends = iter::once((ptr::null(), ptr::null()));
        let (keywords, values): (Vec<*const c_char>, Vec<*const c_char>) =
            options.map(|(keyword, value)| (keyword.as_ptr(), value.as_ptr())).chain(ends).unzip();
        // SAFETY: both arrays end with a null pointer, and hold as many C strings, which live as
        // long as the caller's options. libpq copies them, and accepts a null PGconn below. What
        // `PQconninfo` returns is independent of the PGconn, which nothing uses afterwards.
        unsafe {
            let conn = pq::PQconnectStartParams(keywords.as_ptr(), values.as_ptr(), 0);
            let array = Self::new(pq::PQconninfo(conn));
            pq::PQfinish(conn);
            array
        }
    }

    /// Returns the options that have a value.
    pub fn options(&self) -> Vec<(CString, CString)> {
        let mut options = Vec::new();
        let mut next = self.0;
        if next.is_null() {
            return options;
        }
        // SAFETY: libpq ends the array with an option without a keyword. Keywords and values are C
        // strings, or a value is null. They are copied.
        unsafe {
            while !(*next).keyword.is_null() {
                if !(*next).val.is_null() {
                    options.push((CStr::from_ptr((*next).keyword).to_owned(), CStr::from_ptr((*next).val).to_owned()));
                }
                next = next.add(1);
            }
        }
        options
    }
}

impl Drop for OptionArray {
    fn drop(&mut self) {
        // SAFETY: see `new`. libpq ignores null.
        unsafe { pq::PQconninfoFree(self.0) };
    }
}

/// # Safety
/// `result` is a live PGresult.
pub(crate) unsafe fn diagnostic_of(result: *const pq::PGresult) -> Diagnostic {
    // The codes of postgres_ext.h.
    let field = |code: u8| {
        // SAFETY: as above. The text is null or a C string of the result, and copied.
        let text = unsafe { copied(pq::PQresultErrorField(result, c_int::from(code))) };
        (!text.is_empty()).then_some(text)
    };
    // SAFETY: as above.
    let whole = || unsafe { copied(pq::PQresultErrorMessage(result)) };
    Diagnostic {
        severity: field(b'V').unwrap_or_default(),
        sqlstate: field(b'C').unwrap_or_default(),
        message: field(b'M').unwrap_or_else(whole),
        detail: field(b'D'),
        hint: field(b'H'),
    }
}

/// Returns a copy of a text; an empty one for null.
///
/// # Safety
/// `text` is null or a C string.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns libpq's lines as the sentences of one paragraph.
pub(crate) fn one_paragraph(text: &str) -> String {
    let mut paragraph = String::new();
    for line in text.lines() {
        if !paragraph.is_empty() && !paragraph.ends_with(['.', ':', '?']) {
            paragraph.push('.');
        }
        for word in line.split_whitespace() {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(word);
        }
    }
    paragraph
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_sentences() {
        let lines = "connection failed: No such file\n\tIs the server running?\nconnection failed:\n timeout\n";
        let paragraph = "connection failed: No such file. Is the server running? connection failed: timeout";
        assert_eq!(one_paragraph(lines), paragraph);
        assert_eq!(one_paragraph(""), "");
    }
}
