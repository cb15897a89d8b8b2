//! The errors that a user can see: SQLSTATE, primary message, DETAIL and HINT of each in one place.
//! The errors of converting a column are in `convert/unconvertible.rs`, and what the background
//! worker tells operators in `error/fleet.rs`.
//!
//! The texts follow PostgreSQL's error message style guide. The core's errors bring their facts and
//! their primary message; only these three files know SQLSTATEs, besides `allocator.rs`. What goes
//! wrong with a registry is worded by its crate. PostgreSQL's own functions raise what PostgreSQL
//! words itself (read-only, recovery), see `backend.rs`.

use std::fmt;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::PgSqlErrorCode::*;
use pgrx::prelude::*;
use snowflake_core::clock::Utc;
use snowflake_core::draw::settled::answers;
use snowflake_core::fleet::registry::Fleet;
use snowflake_core::fleet::segment::FARTHEST;
use snowflake_core::fleet::tag::{TAG_BYTES, TagError};
use snowflake_core::id::encoding::{Encoding, EncodingError};
use snowflake_core::id::layout::{BUILT_IN, Field, Layout, LayoutError};
use snowflake_core::id::parts::IdError;
use snowflake_core::id::public::PublicIdError;

use crate::postgres::public_keys;
use crate::postgres::text::{shell_word, showable};

pub mod fleet;

/// What can go wrong between SQL and the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// A text that is not a layout.
    Layout(LayoutError),
    /// A number that is not an id, or not a part of one.
    Id(IdError),
    /// A number that no text can stand for, or a text that stands for no id.
    Encoding(EncodingError),
    /// A text that is not a prefix of public ids, or a key of a wrong length.
    PublicId(PublicIdError),
    /// No key conceals an id; the first id that a key conceals, if there is a key.
    NoPublicKey(Option<i64>),
    /// A text that is not a token of the prefix, where one is required.
    NoToken(String),
    /// The table of keys may not be what `snowflake_new_public_key()` has made.
    StrangePublicKeys,
    /// The transaction that has made a key ends when the key is about to begin with this id.
    PublicKeyTooLate(i64),
    /// The transaction that has made a key is prepared.
    PublicKeyPrepared,
    /// The system gives no random bytes for a key.
    NoRandomBytes,
    /// Without preload: a source that may not set the layout has set it, which hides the
    /// configuration file's value.
    LayoutRefused(String),
    /// The library was not loaded at server start, so there is no shared memory.
    NotPreloaded,
    /// The layout has the field, and its setting is -1.
    NotSet(Field),
    /// `snowflake_last()` before the session has drawn.
    NothingDrawn,
    /// A count below 0.
    NegativeCount(i32),
    /// The clock's time is before the layout's epoch.
    ClockBeforeEpoch { now_ms: i64, layout: Layout },
    /// The clock is past the layout's last instant.
    TimeUsedUp(Layout),
    /// The clock is behind the last id by more than can be borrowed, and the policy is `error`.
    ClockStepBack { behind_ms: i64, max_borrow_ms: i64, again: Again },
    /// The clock is so far behind the mark that it must have been set back, and the policy is
    /// `error`.
    BehindMark { behind_ms: i64, mark_ms: i64, again: Again },
    /// The mark cannot be reset because the server draws ids by it.
    MarkInUse { is_leased: bool, frozen_ms: Option<i64> },
    /// The mark cannot be reset because this server still draws with a number of the old ids.
    SameNumber,
    /// An advance to an id whose time is further ahead of the clock than permitted.
    FarAhead { id_ms: i64, now_ms: i64, most_ms: i64 },
    /// The clock has jumped by more than permitted.
    Jumped { jump_ms: i64, max_ms: i64, frozen_ms: Option<i64> },
    /// The server runs with `layout`, but the database's ids were drawn with another one.
    OtherLayout { stored: i64, layout: Layout },
    /// The extension's objects in this database have no place for a fleet.
    OldObjects,
    /// There is no fleet to accept, because the server's number is configured.
    NotLeased,
    /// This database's ids were drawn in another fleet; both as a database stores them.
    OtherFleet { stored: i64, fleet: i64 },
    /// This database does not have the extension's sequences.
    NoExtension,
    /// This many databases already draw ids, which is the limit.
    TooManyDatabases(usize),
    /// A worker or datacenter number with a fraction, which PostgreSQL would round.
    NotWhole { setting: String, text: String },
    /// A name with our prefix that is not a setting; the settings' names, and the one probably
    /// meant.
    UnknownSetting { name: String, meant: Option<String>, known: Vec<String> },
    /// The name of one of our settings with another prefix.
    OtherPrefix { name: String, meant: String },
    /// A text that libpq does not accept as a way to the registry: why.
    Registry(String),
    /// A registry is given to a server that was started without one, or the reverse.
    RegistryAtStart,
    /// The settings give a worker number, and a registry that leases one.
    TypedAndLeased(i32),
    /// The layout has no worker field, so there is no number to lease.
    NothingToLease(Layout),
    /// The page of the server's lease cannot be written: why.
    NoPage(String),
    /// The server does not have what the registry gives it, a number or a block of values: why, in
    /// words.
    NotSupplied(Box<Report>),
    /// Dense values are drawn on a server without a registry.
    NoRegistry,
    /// A text that is not the name of a tag.
    Tag(TagError),
    /// The registry's fleet does not have the tag.
    UnknownTag { tag: String, fleet: String },
    /// The tag's values end with those of a bigint.
    TagEnded(String),
    /// The registry may have lost blocks of the tag, and the tag does not jump.
    NoJump { tag: String, fleet: String },
    /// What the server has had of a tag, or is to take over, lies too far above its next value.
    TagTooFar { tag: String, fleet: String },
    /// This many tags are in use on this server, which is the limit.
    TooManyTags(usize),
    /// `snowflake_settled()` on a standby.
    SettledOnStandby,
    /// `snowflake_settled()` on a server with two lanes.
    SettledWithBackup,
    /// `snowflake_settled()` in a parallel worker.
    SettledInParallel,
    /// `snowflake_settled()` outside of a statement, or with a snapshot of another kind.
    NoSnapshot,
    /// A standby took the statement's snapshot, before its promotion.
    SnapshotFromStandby,
    /// The answer to the statement's snapshot is no longer remembered.
    SettledForgotten,
    /// More transactions are being prepared than there are places for.
    TooManyPrepared,
    /// The library comes before Citus in `shared_preload_libraries`.
    BeforeCitus,
}

/// When a clock that is behind permits the next draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again {
    /// The instant that the clock has to reach, in milliseconds since 1970.
    pub at_ms: i64,
    /// How far away that is, in milliseconds.
    pub in_ms: i64,
    /// Whether the layout has no ids for that instant.
    pub is_never: bool,
    /// Whether the server leases its number, and so may have another one after a restart.
    pub is_leased: bool,
    /// Until when the registry leases no number anew, if it is frozen.
    pub frozen_ms: Option<i64>,
}

impl From<TagError> for Error {
    fn from(error: TagError) -> Self {
        Self::Tag(error)
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

impl From<public_keys::Strange> for Error {
    fn from(_: public_keys::Strange) -> Self {
        Self::StrangePublicKeys
    }
}

impl From<PublicIdError> for Error {
    fn from(error: PublicIdError) -> Self {
        Self::PublicId(error)
    }
}

/// The HINT when places for databases run out.
const PLACES: &str = "Raise \"snowflake_id.max_databases\" and restart the server. Dropping a database, or its \
                      extension, frees its place at once.";

/// The layout as messages show it: the name of a built-in one, the text of any other.
pub fn known_as(layout: &Layout) -> String {
    layout.built_in_name().map_or_else(|| layout.to_string(), str::to_owned)
}

/// What has a table that is to be locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// A process, or a prepared transaction.
    pub holder: String,
    /// Its qualified name in SQL.
    pub table: String,
}

impl Blocker {
    /// Sends a NOTICE.
    pub fn send(&self) {
        self.report().report(PgLogLevel::NOTICE);
    }
}

impl Reportable for Blocker {
    fn report(&self) -> Report {
        let Self { holder, table } = self;
        Report::new(ERRCODE_SUCCESSFUL_COMPLETION, format!("waiting for {holder}, which locks {table}"))
    }
}

/// Tables were not all free at the same time before the wait ran out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// What blocked last, if it was there long enough to be found.
    pub blocker: Option<Blocker>,
    /// Whether `lock_timeout` is 0, so that only five minutes limit the wait.
    pub is_patience: bool,
}

impl Reportable for Busy {
    fn report(&self) -> Report {
        let within = if self.is_patience { "5 minutes" } else { "\"lock_timeout\"" };
        let message = format!("could not lock all tables at the same time within {within}");
        let hint = "Try again when fewer sessions use the tables, or with a longer \"lock_timeout\".";
        let report = Report::new(ERRCODE_LOCK_NOT_AVAILABLE, message).hint(hint);
        match &self.blocker {
            Some(Blocker { holder, table }) => report.detail(format!("The last to lock {table} was {holder}.")),
            None => report,
        }
    }
}

/// What PostgreSQL reports. A session that may not see all of it gets `open` in place of the
/// DETAIL.
pub type Report = snowflake_registry::Report<PgSqlErrorCode>;

/// How a report is sent.
pub trait Sent {
    /// Reports it at a level. Returns only below ERROR.
    fn report(self, level: PgLogLevel);

    /// Writes it to the server's log, with its consequence in front of the message. A session that
    /// sets `client_min_messages` to `log` does not get it.
    fn log(self, consequence: &str);
}

impl Sent for Report {
    fn report(self, level: PgLogLevel) {
        let mut report = ErrorReport::new(self.code, self.message, "snowflake_id");
        if let Some(detail) = self.open.or(self.detail) {
            report = report.set_detail(detail);
        }
        let entry = self.entry.map(|entry| format!("See \"{entry}\" in docs/runbook.md."));
        let hint: Vec<_> = self.hint.into_iter().chain(entry).collect();
        if !hint.is_empty() {
            report = report.set_hint(hint.join(" "));
        }
        report.report(level);
    }

    fn log(self, consequence: &str) {
        let message = format!("snowflake_id: {consequence}: {}", self.message);
        Self { message, open: None, ..self }.report(PgLogLevel::LOG_SERVER_ONLY);
    }
}

/// What can be reported.
pub trait Reportable {
    fn report(&self) -> Report;
}

impl Reportable for LayoutError {
    fn report(&self) -> Report {
        let report = Report::new(ERRCODE_INVALID_PARAMETER_VALUE, self.to_string());
        match self {
            Self::UnknownName(_) => {
                let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                report.hint(format!("The built-in layouts are {}.", names.join(", ")))
            }
            _ => report.hint(format!("A layout is written like \"{}\".", BUILT_IN[0].1)),
        }
    }
}

impl Reportable for IdError {
    fn report(&self) -> Report {
        let report = Report::new(ERRCODE_INVALID_PARAMETER_VALUE, self.to_string());
        match self {
            Self::Id { .. } => report.hint("The id may have been drawn with another layout, or by something else."),
            Self::Part { .. } => report,
            Self::NoField { field, .. } => report.hint(format!("Pass 0 as the {field}, or choose another layout.")),
            Self::PartMissing(field) => report.hint(format!("Use the form of the function that takes {field}_id.")),
            Self::NoBackup => report.hint("Turn off \"snowflake_id.backup_worker\", or choose another layout."),
            Self::Time { first_ms, last_ms, .. } => Report { code: ERRCODE_DATETIME_FIELD_OVERFLOW, ..report }
                .detail(format!("The layout holds times from {} to {}.", Utc(*first_ms), Utc(*last_ms))),
        }
    }
}

impl Reportable for EncodingError {
    fn report(&self) -> Report {
        let report = Report::new(ERRCODE_INVALID_PARAMETER_VALUE, self.to_string());
        match self {
            Self::UnknownName(_) => {
                let names = Encoding::ALL.map(Encoding::name);
                report.hint(format!("The encodings are {}.", names.join(" and ")))
            }
            Self::Id(_) => report,
            Self::Character { encoding, .. } => {
                let symbols = encoding.symbols();
                report.detail(match encoding {
                    Encoding::Base32 => format!(
                        "The symbols are {symbols}. Lower case is read as upper case, I and L as 1, and O as 0. \
                         Hyphens are ignored, and there is no check symbol."
                    ),
                    Encoding::Base62 => format!("The symbols are {symbols}."),
                })
            }
            Self::Length { encoding, symbols, .. } => {
                let report = match encoding {
                    Encoding::Base32 => report.detail("Hyphens do not count, and there is no check symbol."),
                    Encoding::Base62 => report,
                };
                if *symbols < encoding.length() {
                    report.hint("Texts are padded with zeros on the left.")
                } else {
                    report
                }
            }
            Self::Overflow { encoding, .. } => {
                let largest = encoding.encode(i64::MAX).unwrap_or_default();
                report.detail(format!("The largest id, {}, is \"{largest}\".", i64::MAX))
            }
        }
    }
}

impl Reportable for PublicIdError {
    fn report(&self) -> Report {
        let report = Report::new(ERRCODE_INVALID_PARAMETER_VALUE, self.to_string());
        match self {
            Self::Prefix(_) => report.hint(
                "A prefix has 1 to 16 small letters from a to z and underscores, and begins and ends with a letter.",
            ),
            Self::KeyLength(_) => report.hint("Leave out the argument \"key\", and a key of 32 random bytes is made."),
        }
    }
}

impl Reportable for Error {
    fn report(&self) -> Report {
        match self {
            Self::Layout(error) => error.report(),
            Self::Id(error) => error.report(),
            Self::Encoding(error) => error.report(),
            Self::PublicId(error) => error.report(),
            Self::NoPublicKey(None) => {
                Report::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "this database has no key for public ids")
                    .entry("No key for public ids")
                    .hint("Let the owner of the extension call snowflake_new_public_key().")
            }
            Self::NoPublicKey(Some(first_id)) => {
                Report::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "no key conceals ids before the first key's")
                    .entry("No key for public ids")
                    .detail(format!("The first key conceals ids from {first_id}."))
                    .hint("Add the key that conceals these ids in other databases, or one from the least bigint on.")
            }
            Self::NoToken(prefix) => Report::new(
                ERRCODE_INVALID_PARAMETER_VALUE,
                format!("the text is not a public id of this database with the prefix \"{prefix}\""),
            )
            .hint("Check the text, the prefix, and whether the key that has made it is still there."),
            Self::StrangePublicKeys => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "table \"snowflake_public_keys\" was not made by the extension",
            )
            .entry("No key for public ids")
            .detail("Its columns are others, or it belongs neither to the owner of the extension nor to a superuser.")
            .hint(
                "If it was restored from a dump without owners, give it to the owner of the extension with ALTER \
                 TABLE. Otherwise rename or drop it.",
            ),
            Self::PublicKeyTooLate(first_id) => {
                Report::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "the transaction has kept a new key for too long")
                    .entry("No key for public ids")
                    .detail(format!(
                        "The key is to conceal ids from {first_id} on. Other sessions may conceal these before they \
                         see the key."
                    ))
                    .hint("Make the key again, and commit within 5 seconds, or give a later \"first_id\".")
            }
            Self::PublicKeyPrepared => Report::new(
                ERRCODE_FEATURE_NOT_SUPPORTED,
                "cannot PREPARE a transaction that has made a key for public ids",
            )
            .hint("Commit the transaction, so that other sessions see the key before it begins."),
            Self::NoRandomBytes => {
                Report::new(ERRCODE_INTERNAL_ERROR, "could not get random bytes for a key from the operating system")
            }
            Self::LayoutRefused(text) => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the server's layout is not known in this session",
            )
            .entry("The extension is not ready")
            .detail(format!(
                "The client, the role or the database sets \"snowflake_id.layout\" to \"{text}\", but only \
                 the configuration file may set it."
            ))
            .hint("Remove that setting, or pass the layout as an argument."),
            Self::NotPreloaded => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "snowflake_id must be loaded via \"shared_preload_libraries\"",
            )
            .entry("The extension is not ready")
            .hint("Add snowflake_id to \"shared_preload_libraries\" in postgresql.conf and restart the server."),
            Self::NotSet(Field::Datacenter) => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "parameter \"snowflake_id.datacenter_id\" is not set",
            )
            .entry("No number is configured")
            .hint("In postgresql.conf, set it to the number of this server's datacenter, and restart the server."),
            Self::NotSet(_) => {
                Report::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "parameter \"snowflake_id.worker_id\" is not set")
                    .entry("No number is configured")
                    .hint(
                        "In postgresql.conf, set it to a number that no other primary of the fleet has, the same on \
                         this primary and its standbys, and restart the server.",
                    )
            }
            Self::NothingDrawn => {
                Report::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "no id has been drawn in this session yet")
                    .hint("Call snowflake_next() first.")
            }
            Self::NegativeCount(count) => Report::new(
                ERRCODE_INVALID_PARAMETER_VALUE,
                format!("count {count} is outside the range 0..{}", i32::MAX),
            ),
            Self::ClockBeforeEpoch { now_ms, layout } => {
                Report::new(ERRCODE_DATETIME_FIELD_OVERFLOW, "clock is before the layout's epoch")
                    .entry("The clock was set back")
                    .detail(format!("The clock says {}, and the epoch is {}.", Utc(*now_ms), Utc(layout.epoch_ms())))
                    .hint(
                        "Check the server's clock and its time synchronization, and the epoch of \
                         \"snowflake_id.layout\".",
                    )
            }
            Self::TimeUsedUp(layout) => Report::new(
                ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                format!("the time of layout \"{}\" has run out", known_as(layout)),
            )
            .entry("The time of the layout ends")
            .detail(format!("Its last instant was {}.", Utc(layout.last_instant_ms())))
            .hint(
                "Check the server's clock. If it is right, choose another layout for new ids; old ids can still be \
                 read.",
            ),
            Self::ClockStepBack { behind_ms, max_borrow_ms, again } => {
                Report::new(ERRCODE_SYSTEM_ERROR, format!("clock is {behind_ms} ms behind the last id"))
                    .entry("The clock was set back")
                    .detail(format!(
                        "Ids may run ahead of the clock by up to {max_borrow_ms} ms (\"snowflake_id.max_borrow\"). \
                         {again}"
                    ))
                    .hint(again.hint(
                        "If the clock was wrong only when the server first drew an id after its start, \
                         restart the server. ",
                    ))
            }
            Self::BehindMark { behind_ms, mark_ms, again } => Report::new(
                ERRCODE_SYSTEM_ERROR,
                format!("clock is {behind_ms} ms behind the last id that may have been drawn"),
            )
            .entry("The clock was set back")
            .detail(format!("Ids of this database may carry times up to {}. {again}", Utc(*mark_ms)))
            .hint(again.hint("")),
            Self::Jumped { jump_ms, max_ms, frozen_ms } => {
                Report::new(ERRCODE_SYSTEM_ERROR, format!("clock jumped ahead by {jump_ms} ms"))
                    .entry("The clock jumped ahead")
                    .detail(format!(
                        "The server accepts a jump of up to {max_ms} ms since it last logged a mark \
                         (\"snowflake_id.max_clock_jump\")."
                    ))
                    .hint(format!(
                        "Check the server's clock. If it is right now and was wrong before, restart the server or \
                         raise \"snowflake_id.max_clock_jump\".{}",
                        not_in_freeze(*frozen_ms)
                    ))
            }
            Self::FarAhead { id_ms, now_ms, most_ms } => Report::new(
                ERRCODE_INVALID_PARAMETER_VALUE,
                format!("id with time {} is too far ahead of the clock", Utc(*id_ms)),
            )
            .detail(format!(
                "The clock says {}; an advance may go up to {most_ms} ms ahead of it \
                 (\"snowflake_id.max_clock_jump\", or one day if that is 0).",
                Utc(*now_ms)
            ))
            .hint(format!(
                "Check that the value is an id of this layout, and check the server's clock. To advance anyway, call \
                 snowflake_advance(id, true). This database then draws no ids until the clock has passed {}, and \
                 neither a rollback nor a restart undoes that.",
                Utc(*id_ms)
            )),
            Self::OtherLayout { stored, layout } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("layout \"{}\" is not the one that this database's ids were drawn with", known_as(layout)),
            )
            .entry("Another layout")
            .detail(match Layout::built_in_with(*stored) {
                Some(name) => format!("They were drawn with layout \"{name}\"."),
                None => format!("They were drawn with a layout that is not built in (fingerprint {stored:016x})."),
            })
            .hint(
                "Set \"snowflake_id.layout\" to that layout and restart the server, or pass the layout as an \
                 argument to read ids. To change the layout for good, call snowflake_accept_layout().",
            ),
            Self::OldObjects => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the extension's objects in this database are older than the server's library",
            )
            .entry("The extension is not ready")
            .hint("Run ALTER EXTENSION snowflake_id UPDATE."),
            Self::NotLeased => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "this server belongs to no fleet, because its worker number is set",
            )
            .hint("A database may be used with a worker number that is set, whatever its fleet is."),
            Self::OtherFleet { stored, fleet } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "this database belongs to another fleet than the one that leases the server's number",
            )
            .entry("Another fleet")
            .detail(format!(
                "The uuid of the database's fleet begins with {}, and that of the server's with {}. Servers of two \
                 fleets can draw the same ids.",
                Fleet::beginning(*stored),
                Fleet::beginning(*fleet)
            ))
            .hint(
                "Set \"snowflake_id.registry\" and \"snowflake_id.fleet\" as on the other servers, and restart the \
                 server. To move this database to the server's fleet for good, call snowflake_accept_fleet().",
            ),
            Self::MarkInUse { is_leased, frozen_ms } => {
                Report::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "cannot reset a mark that is in use")
                    .entry("Ids are far ahead of the clock")
                    .detail("This database draws ids up to that mark.")
                    .hint(if *is_leased {
                        format!(
                            "Restart the server, and call snowflake_reset_mark() before it draws an id.{}",
                            not_in_freeze(*frozen_ms)
                        )
                    } else {
                        "Give the server a number that no server of the fleet has had, restart it, and call \
                         snowflake_reset_mark() before it draws an id."
                            .to_owned()
                    })
            }
            Self::SameNumber => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cannot reset the mark of a server whose number has not changed",
            )
            .entry("Ids are far ahead of the clock")
            .detail("Ids of this database carry a number that this server draws with, so it could draw them again.")
            .hint(
                "Set \"snowflake_id.worker_id\" to a number that no server of the fleet has had, and restart the \
                 server.",
            ),
            Self::NoExtension => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "extension \"snowflake_id\" does not exist in this database",
            )
            .entry("The extension is not ready")
            .hint("Use CREATE EXTENSION snowflake_id."),
            Self::TooManyDatabases(most) => Report::new(
                ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                format!("{most} databases already draw ids, which is the limit"),
            )
            .entry("Too many databases")
            .hint(PLACES),
            // As PostgreSQL words the first two.
            Self::NotWhole { setting, text } => Report::new(
                ERRCODE_INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{setting}\": \"{text}\""),
            )
            .hint("The value must be a whole number."),
            Self::UnknownSetting { name, meant, known } => {
                Report::new(ERRCODE_UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\"")).hint(
                    match meant {
                        Some(meant) => format!("Perhaps you meant \"{meant}\"."),
                        None => format!("The settings are {}.", known.join(", ")),
                    },
                )
            }
            Self::OtherPrefix { name, meant } => {
                Report::new(ERRCODE_WARNING, format!("configuration parameter \"{name}\" has no effect"))
                    .hint(format!("Perhaps you meant \"{meant}\"."))
            }
            Self::Registry(why) => Report::new(
                ERRCODE_INVALID_PARAMETER_VALUE,
                format!("\"snowflake_id.registry\" is wrong: {why}"),
            )
            .hint(
                "Write it as for libpq, such as \"service=fleet\" or \"host=a,b dbname=ids user=snowflake\", and try it \
                 with psql. For etcd, write \"etcd:http://a:2379,http://b:2379\".",
            ),
            Self::RegistryAtStart => Report::new(
                ERRCODE_CANT_CHANGE_RUNTIME_PARAM,
                "a server changes between a configured and a leased number only at its start",
            )
            .hint("Restart the server."),
            Self::TypedAndLeased(worker) => Report::new(
                ERRCODE_INVALID_PARAMETER_VALUE,
                format!("\"snowflake_id.worker_id\" is {worker}, and \"snowflake_id.registry\" leases a worker number"),
            )
            .hint("Remove one of the two from the configuration."),
            Self::NothingToLease(layout) => Report::new(
                ERRCODE_INVALID_PARAMETER_VALUE,
                format!("layout \"{}\" has no worker number that a registry could lease", known_as(layout)),
            )
            .hint("Choose a layout with a worker field, or remove \"snowflake_id.registry\"."),
            Self::NoPage(why) => {
                Report::new(ERRCODE_IO_ERROR, "could not note up to which time ids may be drawn")
                    .entry("A crash would end the lease")
                    .detail(format!("{}.", why.trim_end_matches('.')))
                    .hint(
                        "Connect again, because only this session may have lost the file. If others are refused, too, \
                         restart the server, which then leases a number anew.",
                    )
            }
            Self::NotSupplied(why) => (**why).clone(),
            Self::NoRegistry => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "this server has no registry, from which the values of a tag come",
            )
            .entry("A tag cannot be used")
            .hint(
                "Set \"snowflake_id.registry\" instead of \"snowflake_id.worker_id\", and restart the server. A database \
                 of this server can be the registry.",
            ),
            Self::Tag(error) => Report::new(ERRCODE_INVALID_PARAMETER_VALUE, error.to_string())
                .hint(format!("The name of a tag has 1 to {TAG_BYTES} bytes.")),
            Self::UnknownTag { tag, fleet } => Report::new(
                ERRCODE_UNDEFINED_OBJECT,
                format!("tag \"{}\" does not exist in the registry's fleet \"{fleet}\"", showable(tag)),
            )
            .hint(format!("Make it: {}", tag_command(fleet, "create-tag", tag))),
            Self::TagEnded(tag) => Report::new(
                ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                format!("tag \"{}\" has no values left", showable(tag)),
            )
            .detail(format!("The last value of a tag is {}.", i64::MAX - 1)),
            Self::NoJump { tag, fleet } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("tag \"{}\" gives no values until an operator has said where they go on", showable(tag)),
            )
            .entry("A tag has stopped")
            .detail(
                "The registry may have lost values of the tag, as after a failover or a restore, and the tag's \
                 \"jump\" is not set.",
            )
            .hint(format!(
                "Set the tag's next value above all values that any server has had: run \"{}\".",
                tag_command(fleet, "set-tag --next-value ...", tag)
            )),
            Self::TagTooFar { tag, fleet } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("tag \"{}\" cannot be raised that far by a server", showable(tag)),
            )
            .entry("A tag is too far below")
            .detail(format!(
                "Values that this server has had, or is to take over, lie more than {FARTHEST} above the tag's next value \
                 in the registry."
            ))
            .hint(format!(
                "If the values are right, set the tag's next value above them: run \"{}\".",
                tag_command(fleet, "set-tag --next-value ...", tag)
            )),
            Self::TooManyTags(most) => Report::new(
                ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                format!("{most} tags are in use on this server, which is the limit"),
            )
            .hint("SELECT * FROM snowflake_segment_stat shows them. A tag that is deleted in the registry makes room."),
            Self::SettledOnStandby => {
                Report::new(ERRCODE_FEATURE_NOT_SUPPORTED, "snowflake_settled() does not work on a standby")
                    .detail("Only the primary knows which open transactions have drawn ids.")
                    .hint("Store the settled id in a table on the primary. On the standby, read up to the stored id.")
            }
            Self::SettledWithBackup => Report::new(
                ERRCODE_FEATURE_NOT_SUPPORTED,
                "snowflake_settled() does not work with \"snowflake_id.backup_worker\"",
            )
            .detail("The ids of a server's two worker numbers do not ascend together.")
            .hint("Turn off \"snowflake_id.backup_worker\", and restart the server."),
            Self::SettledInParallel => Report::new(
                ERRCODE_INVALID_TRANSACTION_STATE,
                "snowflake_settled() does not run in a parallel worker",
            )
            .detail("Each worker would get an id of its own.")
            .hint("Mark the function that calls it PARALLEL RESTRICTED, and not PARALLEL SAFE."),
            Self::NoSnapshot => {
                Report::new(ERRCODE_FEATURE_NOT_SUPPORTED, "snowflake_settled() needs a statement's MVCC snapshot")
                    .hint("Call it in a query.")
            }
            Self::SnapshotFromStandby => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the snapshot is from before this server's promotion",
            )
            .detail("The former primary knows which ids were settled then, and this server does not.")
            .hint("Try again in a new transaction."),
            Self::SettledForgotten => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the settled id of this statement is no longer remembered",
            )
            .detail(format!(
                "Within this statement, {} later snapshots of the transaction have asked for a settled id.",
                answers::MOST
            ))
            .hint("Call snowflake_settled() once, before the statement, and use the value in its place."),
            Self::TooManyPrepared => Report::new(
                ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                "too many transactions that have drawn ids are being prepared at the same time",
            )
            .entry("Too many prepared transactions")
            .hint("Try again. If this persists, raise \"max_prepared_transactions\", and restart the server."),
            Self::BeforeCitus => Report::new(
                ERRCODE_WARNING,
                "\"citus\" comes after \"snowflake_id\" in \"shared_preload_libraries\"",
            )
            .detail(
                "Citus then removes the planner hook that lets conditions on an id's time use indexes and partitions \
                 on ids. The server still draws ids.",
            )
            .hint("In \"shared_preload_libraries\", put citus before snowflake_id, and restart the server."),
        }
    }
}

/// The warning that few places for databases are left.
pub fn few_places(taken: usize, all: usize) -> Report {
    let message = format!("snowflake_id: {taken} databases draw ids, and the limit is {all}");
    Report::new(ERRCODE_WARNING, message).entry("Too many databases").hint(PLACES)
}

/// What to add to the advice to restart a server, where the registry is frozen.
fn not_in_freeze(frozen_ms: Option<i64>) -> String {
    frozen_ms.map_or_else(String::new, |frozen_ms| {
        format!(
            " Do not restart it before {}: until then, the registry's freeze may leave it without a number.",
            Utc(frozen_ms)
        )
    })
}

impl Again {
    /// Waiting is best if the clock will be right again within this time.
    const SOON_MS: i64 = 60_000;

    /// What to do about a clock that is behind, or seems to be. `first` comes before the advice to
    /// take a new number.
    fn hint(self, first: &str) -> String {
        let check = "Check the server's time synchronization, and whether \"snowflake_id.max_borrow\" was lowered or \
                     snowflake_advance() was called.";
        if self.in_ms <= Self::SOON_MS {
            return format!(
                "{check} To make sessions wait for the clock, set \"snowflake_id.on_rollback\" to \"wait\"."
            );
        }
        if let Some(frozen_ms) = self.frozen_ms.filter(|frozen_ms| self.at_ms <= *frozen_ms) {
            return format!(
                "Wait, and do not restart the server: the registry's freeze lasts until {}, and a server that starts \
                 may get no number before. {check}",
                Utc(frozen_ms)
            );
        }
        let way_out = if self.is_leased {
            "restart the server, and call snowflake_reset_mark() in each database before it draws an id"
        } else {
            "give the server a number that no server of the fleet has had, restart it, and call \
             snowflake_reset_mark() in each database"
        };
        format!(
            "{check} {first}If ids were drawn while the clock was far ahead, or an advance went too far, {way_out}.{}",
            not_in_freeze(self.frozen_ms)
        )
    }
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never {
            return f.write_str("The layout's time ends before the clock gets there, so it has no more ids.");
        }
        write!(f, "The server draws ids again once its clock reaches {}.", Utc(self.at_ms))
    }
}

/// Turns a result into its value or a PostgreSQL ERROR. pgrx would raise a plain `Result` as 22000
/// without a HINT.
pub trait OrRaise<T> {
    /// Returns the value, or raises the error.
    fn or_raise(self) -> T;
}

impl<T, E: Reportable> OrRaise<T> for Result<T, E> {
    #[inline]
    fn or_raise(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => raise(&error),
        }
    }
}

#[cold]
fn raise(error: &dyn Reportable) -> ! {
    error.report().report(PgLogLevel::ERROR);
    unreachable!("reporting at level ERROR does not return")
}

/// Writes a command of the program with which operators use a registry, about a tag, for a shell.
fn tag_command(fleet: &str, command: &str, tag: &str) -> String {
    let end_of_options = if tag.starts_with('-') { "-- " } else { "" };
    format!("snowflake-registry --fleet {} {command} {end_of_options}{}", shell_word(fleet), shell_word(tag))
}
