//! An error of the server, split into the parts that a test asserts, and its effect on the server's
//! statistics and log.

use postgres::Client;

use crate::drawing::Draw;
use crate::pages::block;
use crate::server::Server;

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
/// Panics if the statement succeeded, or failed without an error of the server.
#[track_caller]
pub fn refused<T>(result: Result<T, postgres::Error>) -> Refusal {
    let Err(error) = result else { panic!("the statement must be refused, but it succeeded") };
    let Some(error) = error.as_db_error() else { panic!("the error is not the server's: {error}") };
    Refusal {
        sqlstate: error.code().code().to_owned(),
        message: error.message().to_owned(),
        detail: error.detail().map(str::to_owned),
        hint: error.hint().map(str::to_owned),
    }
}

/// Asserts what a refusal's SQLSTATE and primary message are.
///
/// # Panics
///
/// Panics if they are different.
#[track_caller]
pub fn assert_refused_as(refusal: &Refusal, sqlstate: &str, message: &str) {
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), (sqlstate, message));
}

/// The columns of `snowflake_stat` that count refused draws: each draw counts in one of them.
pub const REFUSALS: [&str; 7] = [
    "clock_steps_back_refused",
    "clock_jumps_refused",
    "mark_refused",
    "layout_refused",
    "number_refused",
    "time_used_up_refused",
    "databases_refused",
];

/// Tries to draw, `draws` times in the database `postgres`, and asserts what [`assert_counted_in`]
/// does.
#[track_caller]
pub fn assert_counted(server: &Server, draws: i64, sqlstate: &str, column: &str, message: &str) {
    assert_counted_in(server, "postgres", draws, sqlstate, column, message);
}

/// Tries to draw `draws` times in a database, by both functions, in a session that stays and in new
/// ones. Asserts that each draw is refused and counts once, in `column` alone; that the pages'
/// alarm then has a row; and that the log has one line, with `message`. The database `postgres`
/// must have the extension.
///
/// # Panics
///
/// Panics if not, or if draws were refused for that reason in the minute before.
#[track_caller]
pub fn assert_counted_in(server: &Server, database: &str, draws: i64, sqlstate: &str, column: &str, message: &str) {
    let mut observer = server.connect();
    let counts = |observer: &mut Client| {
        REFUSALS.map(|column| observer.value(&format!("SELECT {column} FROM snowflake_stat")).parse::<i64>().unwrap())
    };
    let (before, start) = (counts(&mut observer), server.log_length());
    let mut lasting = server.connect_to(database);
    for number in 0..draws {
        let mut new = server.connect_to(database);
        let session = if number % 2 == 0 { &mut lasting } else { &mut new };
        let calls = ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(10)", "SELECT snowflake_batch(1)"];
        let refusal = refused(session.ids(calls[number as usize % calls.len()]));
        assert_eq!(refusal.sqlstate, sqlstate, "{refusal:?}");
    }
    let mut expected = before;
    let counted = REFUSALS.iter().position(|refusals| *refusals == column).expect("it is one of REFUSALS");
    expected[counted] += draws;
    assert_eq!(counts(&mut observer), expected, "{REFUSALS:?}");
    let alarm = block("alarm");
    assert_eq!(observer.query(alarm, &[]).expect("the pages' query runs").len(), 1);
    let log = server.log_since(start);
    let lines: Vec<_> = log.lines().filter(|line| line.contains("draws are refused")).collect();
    let said = format!("LOG:  snowflake_id: draws are refused: {message}");
    assert!(lines.len() == 1 && lines[0].contains(&said), "{lines:?}");
}
