//! An error of the server, taken apart into what a test asserts.

/// What the server said when it refused a statement or a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Five characters, such as `55000`.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// DETAIL, if the error has one.
    pub detail: Option<String>,
    /// HINT, if the error has one.
    pub hint: Option<String>,
}

/// Expects that the server refused, and returns what it said.
///
/// # Panics
///
/// Panics if the statement succeeded, or failed for another reason than an error of the server.
#[track_caller]
pub fn refused<T>(result: Result<T, postgres::Error>) -> Refusal {
    let Err(error) = result else { panic!("the statement was to be refused, but it succeeded") };
    let Some(error) = error.as_db_error() else { panic!("the server did not answer: {error}") };
    Refusal {
        sqlstate: error.code().code().to_owned(),
        message: error.message().to_owned(),
        detail: error.detail().map(str::to_owned),
        hint: error.hint().map(str::to_owned),
    }
}
