//! Every error that a user can see: one place that maps it to SQLSTATE, primary message, DETAIL and HINT.
//!
//! The texts follow PostgreSQL's error message style guide. The core's errors bring their facts and their line of text;
//! only this file knows SQLSTATEs, and `convert/error.rs` for what keeps a column from becoming a snowflake column. Errors that
//! PostgreSQL words itself (read-only, recovery) are raised by its own functions, see `backend.rs`.

use std::fmt;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use snowflake_core::clock::Utc;
use snowflake_core::encoding::{Encoding, EncodingError};
use snowflake_core::id::IdError;
use snowflake_core::layout::{BUILT_IN, Field, Layout, LayoutError};

use crate::convert::Unconvertible;

/// What can go wrong between SQL and the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// A text that is no layout.
    Layout(LayoutError),
    /// A number that is no id, or no part of one.
    Id(IdError),
    /// A number that has no text, or a text that stands for no id.
    Encoding(EncodingError),
    /// Without preload: a value for the setting from a source that may not set it, which hides the configuration file's.
    LayoutRefused(String),
    /// The library was not loaded at server start, so that there is no shared memory.
    NotPreloaded,
    /// The setting of a field that the layout has is -1.
    NotSet(Field),
    /// `snowflake_last()` before the session has drawn.
    NothingDrawn,
    /// A count below 0.
    NegativeCount(i32),
    /// The clock says a time before the layout's epoch.
    ClockBeforeEpoch { now_ms: i64, layout: Layout },
    /// The last instant of the layout is over.
    TimeUsedUp(Layout),
    /// The clock is behind the last id by more than can be borrowed, and the policy is `error`.
    Rollback { behind_ms: i64, max_borrow_ms: i64, again: Again },
    /// The clock is so far behind the mark that it must have been set back, and the policy is `error`.
    BehindMark { behind_ms: i64, mark_ms: i64, again: Again },
    /// A mark that ids are drawn by is to be reset.
    MarkInUse,
    /// The mark is to be reset by a server that draws with a number of the old ids.
    SameNumber,
    /// The mark is to be advanced to an id whose time is further ahead of the clock than is permitted.
    FarAhead { id_ms: i64, now_ms: i64, most_ms: i64 },
    /// The clock has jumped ahead by more than is permitted.
    Jumped { jump_ms: i64, max_ms: i64 },
    /// The database's ids were drawn with another layout than `layout`, the running one.
    OtherLayout { stored: i64, layout: Layout },
    /// The extension's sequences are not in this database.
    NoExtension,
    /// So many databases draw ids already.
    TooManyDatabases(usize),
    /// A column that cannot become a snowflake column.
    Unconvertible(Unconvertible),
    /// A number of servers with a fraction, which PostgreSQL would round.
    NotWhole { setting: String, text: String },
    /// A name with our prefix that is no setting; the settings' names, and which of them may be meant.
    UnknownSetting { name: String, meant: Option<String>, known: Vec<String> },
    /// A setting's name with another prefix than ours.
    OtherPrefix { name: String, meant: String },
    /// The library stands before Citus in `shared_preload_libraries`.
    BeforeCitus,
}

/// When a clock that is behind is far enough for ids to be drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again {
    /// What the clock has to say, in milliseconds since 1970.
    pub at_ms: i64,
    /// How far that is from what it says, in milliseconds.
    pub in_ms: i64,
    /// Whether the layout has no ids for then.
    pub is_never: bool,
}

impl From<Unconvertible> for Error {
    fn from(error: Unconvertible) -> Self {
        Self::Unconvertible(error)
    }
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<IdError> for Error {
    fn from(error: IdError) -> Self {
        Self::Id(error)
    }
}

impl From<EncodingError> for Error {
    fn from(error: EncodingError) -> Self {
        Self::Encoding(error)
    }
}

/// What to do about too few places for databases.
const PLACES: &str = "Raise \"snowflake_id.max_databases\" and restart the server. A database that is dropped, or whose extension is \
                      dropped, gives its place back at once.";

/// A layout as people know it: its name if it is built in, else its text.
pub fn known_as(layout: &Layout) -> String {
    layout.built_in_name().map_or_else(|| layout.to_string(), str::to_owned)
}

/// The setting that gives a field's number.
fn setting_of(field: Field) -> &'static str {
    if field == Field::Datacenter { "snowflake_id.datacenter_id" } else { "snowflake_id.worker_id" }
}

impl Error {
    /// The error's SQLSTATE.
    pub fn sqlstate(&self) -> PgSqlErrorCode {
        use PgSqlErrorCode::*;
        match self {
            Self::Id(IdError::Time { .. }) | Self::ClockBeforeEpoch { .. } => ERRCODE_DATETIME_FIELD_OVERFLOW,
            Self::Layout(_) | Self::Id(_) | Self::Encoding(_) | Self::NegativeCount(_) | Self::FarAhead { .. } => {
                ERRCODE_INVALID_PARAMETER_VALUE
            }
            Self::LayoutRefused(_) | Self::NotPreloaded | Self::NotSet(_) | Self::NothingDrawn => {
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
            }
            Self::OtherLayout { .. } | Self::NoExtension | Self::MarkInUse | Self::SameNumber => {
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
            }
            Self::TooManyDatabases(_) => ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            Self::TimeUsedUp(_) => ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
            Self::Rollback { .. } | Self::BehindMark { .. } | Self::Jumped { .. } => ERRCODE_SYSTEM_ERROR,
            Self::Unconvertible(error) => error.sqlstate(),
            Self::NotWhole { .. } => ERRCODE_INVALID_PARAMETER_VALUE,
            Self::UnknownSetting { .. } => ERRCODE_UNDEFINED_OBJECT,
            Self::OtherPrefix { .. } | Self::BeforeCitus => ERRCODE_WARNING,
        }
    }

    /// The primary message: one line, lower case, no period.
    pub fn message(&self) -> String {
        match self {
            Self::Layout(error) => error.to_string(),
            Self::Id(error) => error.to_string(),
            Self::Encoding(error) => error.to_string(),
            Self::LayoutRefused(_) => "the server's layout is not known in this session".into(),
            Self::NotPreloaded => "snowflake_id must be loaded via \"shared_preload_libraries\"".into(),
            Self::NotSet(field) => format!("parameter \"{}\" is not set", setting_of(*field)),
            Self::NothingDrawn => "no id has been drawn in this session yet".into(),
            Self::NegativeCount(count) => format!("count {count} is outside the range 0..{}", i32::MAX),
            Self::ClockBeforeEpoch { .. } => "clock is before the layout's epoch".into(),
            Self::TimeUsedUp(layout) => format!("the time of layout \"{}\" is used up", known_as(layout)),
            Self::Rollback { behind_ms, .. } => {
                format!("clock is {behind_ms} ms behind the last id")
            }
            Self::BehindMark { behind_ms, .. } => {
                format!("clock is {behind_ms} ms behind the last id that can have been drawn")
            }
            Self::FarAhead { id_ms, .. } => format!("id of {} is too far ahead of the clock", Utc(*id_ms)),
            Self::Jumped { jump_ms, .. } => format!("clock jumped ahead by {jump_ms} ms"),
            Self::OtherLayout { layout, .. } => {
                format!("layout \"{}\" is not the one that this database's ids were drawn with", known_as(layout))
            }
            Self::MarkInUse => "cannot reset a mark that is in use".into(),
            Self::SameNumber => "cannot reset the mark of a server whose number has not changed".into(),
            Self::NoExtension => "extension \"snowflake_id\" is not created in this database".into(),
            Self::TooManyDatabases(most) => format!("ids are drawn in {most} databases already, which is the limit"),
            Self::Unconvertible(error) => error.message(),
            // As PostgreSQL words the first two.
            Self::NotWhole { setting, text } => format!("invalid value for parameter \"{setting}\": \"{text}\""),
            Self::UnknownSetting { name, .. } => format!("unrecognized configuration parameter \"{name}\""),
            Self::OtherPrefix { name, .. } => format!("configuration parameter \"{name}\" has no effect"),
            Self::BeforeCitus => "\"citus\" stands after \"snowflake_id\" in \"shared_preload_libraries\"".into(),
        }
    }

    /// The DETAIL: facts, in full sentences.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Id(IdError::Time { first_ms, last_ms, .. }) => {
                Some(format!("The layout holds times from {} to {}.", Utc(*first_ms), Utc(*last_ms)))
            }
            Self::Encoding(EncodingError::Character { encoding, .. }) => {
                let symbols = encoding.symbols();
                Some(match encoding {
                    Encoding::Base32 => format!(
                        "The symbols are {symbols}. Lower case is read as upper case, I and L as 1, O as 0; hyphens are \
                         ignored; there is no check symbol."
                    ),
                    Encoding::Base62 => format!("The symbols are {symbols}."),
                })
            }
            Self::Encoding(EncodingError::Length { encoding: Encoding::Base32, .. }) => {
                Some("Hyphens do not count, and there is no check symbol.".into())
            }
            Self::Encoding(EncodingError::Overflow { encoding, .. }) => {
                let largest = encoding.encode(i64::MAX).unwrap_or_default();
                Some(format!("The largest id, {}, is \"{largest}\".", i64::MAX))
            }
            Self::LayoutRefused(text) => Some(format!(
                "The client, the role or the database sets \"snowflake_id.layout\" to \"{text}\", which only the \
                 configuration file may."
            )),
            Self::ClockBeforeEpoch { now_ms, layout } => {
                Some(format!("It is {} by the clock, and the epoch is {}.", Utc(*now_ms), Utc(layout.epoch_ms())))
            }
            Self::TimeUsedUp(layout) => Some(format!("Its last instant was {}.", Utc(layout.last_instant_ms()))),
            Self::Rollback { max_borrow_ms, again, .. } => Some(format!(
                "Ids may run ahead of the clock by up to {max_borrow_ms} ms (\"snowflake_id.max_borrow\"). {again}"
            )),
            Self::BehindMark { mark_ms, again, .. } => {
                Some(format!("Ids of this database may carry times up to {}. {again}", Utc(*mark_ms)))
            }
            Self::FarAhead { now_ms, most_ms, .. } => Some(format!(
                "The clock says {}; an advance may lead up to {most_ms} ms ahead of it (\"snowflake_id.max_clock_jump\", or a day \
                 where that is 0).",
                Utc(*now_ms)
            )),
            Self::Jumped { max_ms, .. } => Some(format!(
                "Since this server last logged a mark it may jump by up to {max_ms} ms (\"snowflake_id.max_clock_jump\")."
            )),
            Self::OtherLayout { stored, .. } => Some(match Layout::built_in_with(*stored) {
                Some(name) => format!("They were drawn with layout \"{name}\"."),
                None => format!("They were drawn with a layout that is not built in (fingerprint {stored:016x})."),
            }),
            Self::MarkInUse => Some("Ids are drawn in this database, up to that mark.".into()),
            Self::SameNumber => {
                Some("Ids of this database carry a number with which this server draws, and could come again.".into())
            }
            Self::Unconvertible(error) => error.detail(),
            Self::BeforeCitus => Some(
                "Citus then takes the planner's hook away, by which conditions on an id's time use indexes and partitions on \
                 ids. Ids are drawn all the same."
                    .into(),
            ),
            _ => None,
        }
    }

    /// The HINT: what to do about it, in full sentences.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Layout(LayoutError::UnknownName(_)) => {
                let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                format!("The built-in layouts are {}.", names.join(", "))
            }
            Self::Layout(_) => format!("A layout is written like \"{}\".", BUILT_IN[0].1),
            Self::Id(IdError::Id { .. }) => {
                "The id may have been drawn with another layout, or by something else.".into()
            }
            Self::Id(IdError::PartMissing(field)) => format!("Use the form of the function with {field}_id."),
            Self::Id(IdError::NoField { field, .. }) => format!("Give 0 as the {field}, or choose another layout."),
            Self::Id(IdError::NoBackup) => {
                "Switch \"snowflake_id.backup_worker\" off, or choose another layout.".into()
            }
            Self::Id(IdError::Part { .. } | IdError::Time { .. }) => return None,
            Self::Encoding(EncodingError::UnknownName(_)) => {
                let names = Encoding::ALL.map(Encoding::name);
                format!("The encodings are {}.", names.join(" and "))
            }
            Self::Encoding(EncodingError::Length { encoding, symbols, .. }) if *symbols < encoding.length() => {
                "Texts are padded with zeros on the left.".into()
            }
            Self::Encoding(_) => return None,
            Self::LayoutRefused(_) => "Remove that, or give the layout as an argument.".into(),
            Self::NotPreloaded => {
                "Add snowflake_id to \"shared_preload_libraries\" in postgresql.conf and restart the server.".into()
            }
            Self::NotSet(Field::Datacenter) => "Give the servers of each datacenter the datacenter's number, in \
                 postgresql.conf, and restart the server."
                .into(),
            Self::NotSet(_) => "Give every primary of the fleet a number of its own, the same as its standbys', in \
                 postgresql.conf, and restart the server."
                .into(),
            Self::NothingDrawn => "Call snowflake_next() first.".into(),
            Self::NegativeCount(_) => return None,
            Self::ClockBeforeEpoch { .. } => {
                "Check the server's clock and its time synchronization, and the epoch of \"snowflake_id.layout\".".into()
            }
            Self::TimeUsedUp(_) => {
                "Check the server's clock. If it is right, choose another layout for new ids; old ids can still be read."
                    .into()
            }
            Self::Rollback { again, .. } => {
                again.hint("If the clock was wrong only at the first draw after the start, restart the server. ")
            }
            Self::BehindMark { again, .. } => again.hint(""),
            Self::FarAhead { id_ms, .. } => format!(
                "Look for a value that is not an id of this layout, and check the server's clock. If the id is meant, call \
                 snowflake_advance(id, true): no id is then drawn in this database until the clock has passed {}, and neither \
                 a rollback nor a restart undoes that.",
                Utc(*id_ms)
            ),
            Self::Jumped { .. } => "Check the server's clock. If it is right now, and \
                 was wrong before, restart the server or raise \"snowflake_id.max_clock_jump\"."
                .into(),
            Self::OtherLayout { .. } => {
                "Set \"snowflake_id.layout\" to that layout and restart the server, or give the layout as an argument to \
                 read ids. To change the layout for good, call snowflake_accept_layout()."
                    .into()
            }
            Self::MarkInUse => "Give the server a number that no server of the fleet has had, restart it, and \
                 call snowflake_reset_mark() before anything is drawn."
                .into(),
            Self::SameNumber => {
                "Set \"snowflake_id.worker_id\" to a number that no server of the fleet has had, and restart the server."
                    .into()
            }
            Self::NoExtension => "Use CREATE EXTENSION snowflake_id.".into(),
            Self::TooManyDatabases(_) => PLACES.into(),
            Self::Unconvertible(error) => return error.hint(),
            Self::NotWhole { .. } => "The value must be a whole number.".into(),
            Self::UnknownSetting { meant: Some(meant), .. } | Self::OtherPrefix { meant, .. } => {
                format!("Perhaps you meant \"{meant}\".")
            }
            Self::UnknownSetting { known, .. } => format!("The settings are {}.", known.join(", ")),
            Self::BeforeCitus => {
                "Set \"shared_preload_libraries\" to 'citus,snowflake_id', in this order, and restart the server.".into()
            }
        })
    }

    /// The error as PostgreSQL reports it.
    pub fn report(&self) -> ErrorReport {
        self.report_with(self.message())
    }

    /// What is said, as a warning, when few places for databases are left.
    pub fn few_places(taken: usize, all: usize) -> ErrorReport {
        let message = format!("snowflake_id: {taken} of {all} places for databases that draw ids are taken");
        ErrorReport::new(PgSqlErrorCode::ERRCODE_WARNING, message, "snowflake_id").set_hint(PLACES)
    }

    /// Writes the error to the server's log, with what comes of it before its message.
    pub fn log(&self, consequence: &str) {
        self.report_with(format!("snowflake_id: {consequence}: {}", self.message())).report(PgLogLevel::LOG);
    }

    fn report_with(&self, message: String) -> ErrorReport {
        let mut report = ErrorReport::new(self.sqlstate(), message, "snowflake_id");
        if let Some(detail) = self.detail() {
            report = report.set_detail(detail);
        }
        if let Some(hint) = self.hint() {
            report = report.set_hint(hint);
        }
        report
    }
}

impl Again {
    /// A clock that is right again within this time is best waited for.
    const SOON_MS: i64 = 60_000;

    /// What to do about a clock that is behind, or seems to be. `first` comes before what takes a new number.
    fn hint(self, first: &str) -> String {
        let check = "Check the server's time synchronization, and whether \"snowflake_id.max_borrow\" was lowered or \
                     snowflake_advance() was called.";
        if self.in_ms <= Self::SOON_MS {
            return format!("{check} To make sessions wait for the clock, set \"snowflake_id.on_rollback\" to wait.");
        }
        format!(
            "{check} {first}If ids were drawn while the clock was far ahead, or an advance went too far: give the server a \
             number that no server of the fleet has had, restart it, and call snowflake_reset_mark() in each database."
        )
    }
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never {
            return f.write_str("By then the time of the layout is used up.");
        }
        write!(f, "Ids are drawn again from {} on.", Utc(self.at_ms))
    }
}

/// Turns a result into its value or a PostgreSQL ERROR. pgrx would raise a plain `Result` as 22000 without a HINT.
pub trait OrRaise<T> {
    /// Returns the value, or raises the error.
    fn or_raise(self) -> T;
}

impl<T, E: Into<Error>> OrRaise<T> for Result<T, E> {
    #[inline]
    fn or_raise(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => raise(error.into()),
        }
    }
}

#[cold]
fn raise(error: Error) -> ! {
    error.report().report(PgLogLevel::ERROR);
    unreachable!("reporting at level ERROR does not return")
}
