//! What libpq gives out: results, arrays of options, and texts.
//!
//! These facts are what the `unsafe` here relies on:
//!
//! - A `PGresult` belongs to one [`Answered`], and an array of options to one [`OptionArray`]. Each
//!   frees what it has when dropped, once.
//! - A text that libpq returns lives as long as what it comes from. It is copied before anything
//!   else is done with that.
//!
//! What is copied is bounded, whatever the other end sends: each message, and all rows of an answer
//! together ([`Rows`]). libpq itself holds one message at a time, which may have a gigabyte.

use std::ffi::{CStr, CString, c_char, c_int};
use std::{iter, ptr};

use pq_sys as pq;

use crate::MOST_RECORDS;
use crate::error::{Diagnostic, RegistryError};

/// How many rows an answer may have: the registry's, the fleet's, and one for each record.
const MOST_ROWS: usize = MOST_RECORDS + 2;

/// How many bytes the texts of an answer's rows may have together.
const MOST_BYTES: usize = 64 << 20;

/// The most columns of a row.
const MOST_COLUMNS: usize = 100;

/// How many bytes of a message are copied. One may name many hosts.
const LONGEST_MESSAGE: usize = 4000;

/// The rows of an answer, as texts, one behind the other.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Rows {
    texts: String,
    /// Where each value lies in `texts`; `None` for NULL.
    values: Vec<Option<(u32, u32)>>,
    /// Where each row ends in `values`.
    ends: Vec<u32>,
}

impl Rows {
    /// Returns how many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the values of each row.
    pub fn iter(&self) -> impl Iterator<Item = Vec<Option<&str>>> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| {
            let values = &self.values[begin as usize..*end as usize];
            values.iter().map(|value| value.map(|(from, to)| &self.texts[from as usize..to as usize])).collect()
        })
    }

    /// Adds a row.
    pub fn push<'a>(&mut self, row: impl Iterator<Item = Option<&'a [u8]>>) -> Result<(), RegistryError> {
        let too_long = |most, of_what| Err(RegistryError::TooLong { most, of_what });
        if self.ends.len() == MOST_ROWS {
            return too_long(MOST_ROWS, "rows");
        }
        for (column, value) in row.enumerate() {
            if column == MOST_COLUMNS {
                return too_long(MOST_COLUMNS, "columns");
            }
            let from = self.texts.len();
            if let Some(value) = value {
                if value.len() > MOST_BYTES.saturating_sub(from) {
                    return too_long(MOST_BYTES, "bytes");
                }
                // One that is not UTF-8 becomes longer.
                self.texts.push_str(&String::from_utf8_lossy(value));
                if self.texts.len() > MOST_BYTES {
                    return too_long(MOST_BYTES, "bytes");
                }
            }
            self.values.push(value.map(|_| (from as u32, self.texts.len() as u32)));
        }
        self.ends.push(self.values.len() as u32);
        Ok(())
    }
}

// What is counted above fits the places.
const _: () = assert!(MOST_BYTES < 1 << 32);
const _: () = assert!(MOST_ROWS * MOST_COLUMNS < 1 << 32);

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

    /// Adds this result's rows to those of an answer.
    pub fn add_rows(&self, rows: &mut Rows) -> Result<(), RegistryError> {
        // SAFETY: as above.
        let (count, columns) = unsafe { (pq::PQntuples(self.0), pq::PQnfields(self.0)) };
        let value = |row, column| {
            // SAFETY: as above, and both numbers are within its bounds. The value has that many
            // bytes, and lives as long as the result.
            unsafe {
                let length = usize::try_from(pq::PQgetlength(self.0, row, column)).unwrap_or(0);
                let value = pq::PQgetvalue(self.0, row, column).cast::<u8>();
                (pq::PQgetisnull(self.0, row, column) == 0).then(|| std::slice::from_raw_parts(value, length))
            }
        };
        (0..count).try_for_each(|row| rows.push((0..columns).map(|column| value(row, column))))
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

    /// Parses a connection string or URI; `None` for what libpq refuses.
    pub fn parse(conninfo: &CStr) -> Option<Self> {
        // SAFETY: the text is valid for the call. libpq accepts a null pointer, and then gives no
        // message.
        let array = unsafe { Self::new(pq::PQconninfoParse(conninfo.as_ptr(), ptr::null_mut())) };
        (!array.0.is_null()).then_some(array)
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

/// Returns a copy of a text, or of the beginning of a long one; an empty one for null.
///
/// # Safety
/// `text` is null or a C string.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as above.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    // A few bytes more, so that no character at the end is cut.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_MESSAGE + 4)]);
    text[..text.floor_char_boundary(LONGEST_MESSAGE)].to_owned()
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

    fn push(rows: &mut Rows, row: &[Option<&[u8]>]) -> Result<(), RegistryError> {
        rows.push(row.iter().copied())
    }

    #[test]
    fn rows_are_read_as_they_were_added() {
        let mut rows = Rows::default();
        push(&mut rows, &[Some(b"a"), None, Some(b"")]).unwrap();
        push(&mut rows, &[]).unwrap();
        push(&mut rows, &["ä".as_bytes().into(), Some(b"\xff")]).unwrap();
        let read: Vec<_> = rows.iter().collect();
        assert_eq!(read, [vec![Some("a"), None, Some("")], vec![], vec![Some("ä"), Some("\u{fffd}")]]);
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn rows_are_bounded() {
        let too_long = |most, of_what| Err(RegistryError::TooLong { most, of_what });
        let mut rows = Rows::default();
        for _ in 0..MOST_ROWS {
            push(&mut rows, &[]).unwrap();
        }
        assert_eq!(push(&mut rows, &[]), too_long(MOST_ROWS, "rows"));
        let mut rows = Rows::default();
        push(&mut rows, &[None; MOST_COLUMNS]).unwrap();
        assert_eq!(push(&mut rows, &[None; MOST_COLUMNS + 1]), too_long(MOST_COLUMNS, "columns"));
        // What is not UTF-8 takes three bytes.
        for (byte, count) in [(b'x', 2), (0xff, 1)] {
            let (half, mut rows) = (vec![byte; MOST_BYTES / 2], Rows::default());
            let pushed: Vec<_> = (0..=count).map(|_| push(&mut rows, &[Some(&half)])).collect();
            assert_eq!(pushed.last(), Some(&too_long(MOST_BYTES, "bytes")));
            assert_eq!(pushed.iter().filter(|pushed| pushed.is_ok()).count(), if byte == b'x' { 2 } else { 0 });
        }
    }

    #[test]
    fn a_long_message_is_cut() {
        for (sent, copy) in [("ä".repeat(20_000), "ä".repeat(2000)), ("x".repeat(3999), "x".repeat(3999))] {
            let text = CString::new(sent).unwrap();
            // SAFETY: a C string.
            assert_eq!(unsafe { copied(text.as_ptr()) }, copy);
        }
    }

    #[test]
    fn lines_become_sentences() {
        let lines = "connection failed: No such file\n\tIs the server running?\nconnection failed:\n timeout\n";
        let paragraph = "connection failed: No such file. Is the server running? connection failed: timeout";
        assert_eq!(one_paragraph(lines), paragraph);
        assert_eq!(one_paragraph(""), "");
    }
}
