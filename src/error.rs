//! Every error that a user can see: one place that maps it to SQLSTATE, primary message, DETAIL and HINT.
//!
//! The texts follow PostgreSQL's error message style guide. The core's errors bring their facts and their line of text;
//! only this file knows SQLSTATEs. Errors that PostgreSQL words itself (read-only, recovery) are raised by its own
//! functions, see `backend.rs`.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use snowflake_core::clock::Utc;
use snowflake_core::error::{IdError, LayoutError};
use snowflake_core::layout::{BUILT_IN, Field, Layout};

/// What can go wrong between SQL and the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// A text that is no layout.
    Layout(LayoutError),
    /// A number that is no id, or no part of one.
    Id(IdError),
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
    Rollback { behind_ms: i64, max_borrow_ms: i64 },
    /// The clock is so far behind the mark that it must have been set back, and the policy is `error`.
    BehindMark { behind_ms: i64, mark_ms: i64 },
    /// A mark that ids are drawn by is to be reset.
    MarkInUse,
    /// The mark is to be reset by a server that draws with a number of the old ids.
    SameNumber,
    /// The clock has leapt ahead by more than is permitted.
    Leapt { leap_ms: i64, max_ms: i64 },
    /// The database's ids were drawn with another layout than `layout`, the running one.
    OtherLayout { stored: i64, layout: Layout },
    /// The extension's sequences are not in this database.
    NoExtension,
    /// So many databases draw ids already.
    TooManyDatabases(usize),
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
            Self::Layout(_) | Self::Id(_) | Self::NegativeCount(_) => ERRCODE_INVALID_PARAMETER_VALUE,
            Self::LayoutRefused(_) | Self::NotPreloaded | Self::NotSet(_) | Self::NothingDrawn => {
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
            }
            Self::OtherLayout { .. } | Self::NoExtension | Self::MarkInUse | Self::SameNumber => {
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
            }
            Self::TooManyDatabases(_) => ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            Self::TimeUsedUp(_) => ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
            Self::Rollback { .. } | Self::BehindMark { .. } | Self::Leapt { .. } => ERRCODE_SYSTEM_ERROR,
        }
    }

    /// The primary message: one line, lower case, no period.
    pub fn message(&self) -> String {
        match self {
            Self::Layout(error) => error.to_string(),
            Self::Id(error) => error.to_string(),
            Self::LayoutRefused(_) => "the server's layout is not known in this session".into(),
            Self::NotPreloaded => "snowflake_id must be loaded via \"shared_preload_libraries\"".into(),
            Self::NotSet(field) => format!("parameter \"{}\" is not set", setting_of(*field)),
            Self::NothingDrawn => "no id has been drawn in this session yet".into(),
            Self::NegativeCount(count) => format!("count {count} is outside the range 0..{}", i32::MAX),
            Self::ClockBeforeEpoch { .. } => "clock is before the layout's epoch".into(),
            Self::TimeUsedUp(layout) => format!("the time of layout \"{}\" is used up", known_as(layout)),
            Self::Rollback { behind_ms, .. } => {
                format!("clock moved backwards: it is {behind_ms} ms behind the last id")
            }
            Self::BehindMark { behind_ms, .. } => {
                format!("clock moved backwards: it is {behind_ms} ms behind the last id that can have been drawn")
            }
            Self::Leapt { leap_ms, .. } => format!("clock leapt ahead by {leap_ms} ms"),
            Self::OtherLayout { layout, .. } => {
                format!("layout \"{}\" is not the one that this database's ids were drawn with", known_as(layout))
            }
            Self::MarkInUse => "cannot reset a mark that is in use".into(),
            Self::SameNumber => "cannot reset the mark of a server whose number has not changed".into(),
            Self::NoExtension => "extension \"snowflake_id\" is not created in this database".into(),
            Self::TooManyDatabases(most) => format!("ids are drawn in {most} databases already, which is the limit"),
        }
    }

    /// The DETAIL: facts, in full sentences.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Id(IdError::Time { first_ms, last_ms, .. }) => {
                Some(format!("The layout holds times from {} to {}.", Utc(*first_ms), Utc(*last_ms)))
            }
            Self::LayoutRefused(text) => Some(format!(
                "The client, the role or the database sets \"snowflake_id.layout\" to \"{text}\", which only the \
                 configuration file may."
            )),
            Self::ClockBeforeEpoch { now_ms, layout } => {
                Some(format!("It is {} by the clock, and the epoch is {}.", Utc(*now_ms), Utc(layout.epoch_ms())))
            }
            Self::TimeUsedUp(layout) => Some(format!("Its last instant was {}.", Utc(layout.last_instant_ms()))),
            Self::Rollback { max_borrow_ms, .. } => Some(format!(
                "Ids may run ahead of the clock by up to {max_borrow_ms} ms (\"snowflake_id.max_borrow\")."
            )),
            Self::BehindMark { mark_ms, .. } => {
                Some(format!("Ids of this database may carry times up to {}.", Utc(*mark_ms)))
            }
            Self::Leapt { max_ms, .. } => Some(format!(
                "Since this server last logged a mark it may leap by up to {max_ms} ms (\"snowflake_id.max_clock_jump\")."
            )),
            Self::OtherLayout { stored, .. } => Some(match Layout::built_in_with(*stored) {
                Some(name) => format!("They were drawn with layout \"{name}\"."),
                None => format!("They were drawn with a layout that is not built in (fingerprint {stored:016x})."),
            }),
            Self::MarkInUse => Some("Ids are drawn in this database, up to that mark.".into()),
            Self::SameNumber => {
                Some("Ids of this database carry a number with which this server draws, and could come again.".into())
            }
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
            Self::ClockBeforeEpoch { .. } => "Check the server's clock and its time synchronization.".into(),
            Self::TimeUsedUp(_) => {
                "Check the server's clock. If it is right, choose another layout for new ids; old ids can still be read."
                    .into()
            }
            Self::Rollback { .. } => "Check the server's time synchronization, and whether \"snowflake_id.max_borrow\" \
                 was lowered. Ids are drawn again as soon as the clock has passed the last id; to make sessions wait for \
                 that, set \"snowflake_id.on_rollback\" to wait. If the clock was wrong only when the server started, restart \
                 the server."
                .into(),
            Self::BehindMark { .. } => "Check the server's time synchronization. Ids are drawn again as soon as \
                 the clock has passed that time; to make sessions wait for that, set \"snowflake_id.on_rollback\" to \
                 wait. If the clock had been far ahead, give the server a new number and call snowflake_reset_mark()."
                .into(),
            Self::Leapt { .. } => "Check the server's clock. If it is right now, and \
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
            Self::TooManyDatabases(_) => {
                "Restart the server: databases that draw no more ids are then not counted.".into()
            }
        })
    }

    /// The error as PostgreSQL reports it.
    pub fn report(&self) -> ErrorReport {
        let mut report = ErrorReport::new(self.sqlstate(), self.message(), "snowflake_id");
        if let Some(detail) = self.detail() {
            report = report.set_detail(detail);
        }
        if let Some(hint) = self.hint() {
            report = report.set_hint(hint);
        }
        report
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
