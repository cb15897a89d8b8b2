//! What the background worker tells operators: notices, failures and gaps between leases, in words;
//! and what a session is told that has no number, or no block, for that reason.
//! What went wrong with the registry itself, its crate words (`registry/error.rs`): a program that
//! runs without PostgreSQL can say it, too.

use pgrx::prelude::PgSqlErrorCode::*;
use pgrx::prelude::*;
use snowflake_core::clock::Utc;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{Lease, LeaseNotice};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::page::{Beginning, Void};
use snowflake_core::fleet::segment::{FARTHEST, SupplyNotice};
use snowflake_core::id::layout::Layout;
use snowflake_registry::{Kind, RegistryError};

use super::{Report, known_as};
use crate::postgres::backend;
use crate::postgres::text::showable;

/// The HINT where clocks are apart.
const CHECK_CLOCKS: &str =
    "Check the time synchronization of both. If several servers report this, the registry's clock is wrong.";

/// Words what the worker of leases tells: the level, and the report. `fleet` is the fleet's uuid.
/// The caller says how often.
pub fn lease_notice(notice: &LeaseNotice, fleet: Option<u128>, max_borrow_ms: i64) -> Option<(PgLogLevel, Report)> {
    Some(match notice {
        LeaseNotice::Entered(_) => return None,
        LeaseNotice::Acquired(lease) => {
            let (worker, from, until) = (lease.worker, Utc(lease.from_ms), Utc(lease.until_ms));
            // If the registry is lost, its fleet's uuid is needed to make it again.
            let fleet = fleet.map(uuid).unwrap_or_default();
            told(format!("worker number {worker} is leased, for ids from {from} to {until} and on, in fleet {fleet}"))
        }
        LeaseNotice::GivenBack(lease) => {
            let (worker, until) = (lease.worker, Utc(lease.until_ms));
            told(format!("worker number {worker} is given back, for ids from {until} on"))
        }
        LeaseNotice::Lost(lease) => {
            let (worker, until) = (lease.worker, Utc(lease.until_ms));
            told(format!("the lease of worker number {worker} ended at {until}, and another server has it now"))
        }
        LeaseNotice::Older(lease) => warned(
            "A lease ends before another begins",
            format!(
                "the registry has lost this server's lease of worker number {}, or a part of it; the server draws ids \
             with it until {}",
                lease.worker,
                Utc(lease.until_ms)
            ),
        ),
        LeaseNotice::Copied(lease) => warned(
            "A server was copied",
            format!(
                "a copy of this server's memory, such as a virtual machine's snapshot, has renewed the lease of worker number \
             {}; this server draws no more ids with it",
                lease.worker
            ),
        ),
        LeaseNotice::Overlapped(lease) => warned(
            "Two servers have one number",
            format!(
                "another server has leased worker number {} for times of this server's lease; this server draws no more ids \
             with it",
                lease.worker
            ),
        ),
        LeaseNotice::ClockOff { offset_ms } => (PgLogLevel::WARNING, clock_is_off(*offset_ms, max_borrow_ms)),
    })
}

/// Words what the worker tells of the fleet's record.
pub fn fleet_notice(notice: &FleetNotice) -> (PgLogLevel, Report) {
    match notice {
        FleetNotice::Adopted(fleet) => {
            let (longest_ms, skew_ms) = (fleet.longest_ms, fleet.skew_ms);
            let (first, last) = fleet.range.unwrap_or_default();
            told(format!(
                "this server is the fleet's first; the registry now has its layout, leases numbers {first} to {last}, and \
                 limits leases to {longest_ms} ms and clocks to {skew_ms} ms apart"
            ))
        }
        FleetNotice::Forgot(fleet) => warned(
            "The registry fails over",
            format!(
                "the registry has lost leases, as after a failover or a restore; numbers that are not leased now can be \
             used from {} on",
                Utc(fleet.freeze_ms)
            ),
        ),
    }
}

/// Words what the worker of dense values tells.
pub fn supply_notice(notice: &SupplyNotice) -> (PgLogLevel, Report) {
    match notice {
        SupplyNotice::Jumped { tag, skipped, to } => warned(
            "A tag has stopped",
            format!(
                "tag \"{tag}\" jumps ahead by {skipped} values, to {to}, because the registry may have lost values that \
             servers have had"
            ),
        ),
        SupplyNotice::Gone(tag) => told(format!("the registry does not have tag \"{tag}\" any more")),
        SupplyNotice::Ended(tag) => warned("A tag cannot be used", format!("tag \"{tag}\" has no values left")),
        SupplyNotice::NoJump(tag) => warned(
            "A tag has stopped",
            format!(
                "tag \"{tag}\" gives no values, because the registry may have lost some, and the tag does not jump; \
             set its next_value in the registry"
            ),
        ),
        SupplyNotice::TooFar { tag, from } => warned(
            "A tag is too far below",
            format!(
                "tag \"{tag}\" gives no values, because this server wants them from {from} on, more than {FARTHEST} above the \
             tag's next value; set its next_value in the registry"
            ),
        ),
        SupplyNotice::Below { tag, above } => warned(
            "The registry was restored",
            format!("the registry has lost values of tag \"{tag}\", of which this server has had those before {above}"),
        ),
        SupplyNotice::Unusable { tag, block } => told(format!(
            "{} values of tag \"{tag}\", from {} on, cannot be used, and are lost",
            block.count, block.first
        )),
        SupplyNotice::GivenBack { tag, first } => {
            told(format!("the values of tag \"{tag}\" from {first} on are given back"))
        }
    }
}

/// Words the warning that a failover of the registry would stop the fleet.
pub fn close_terms(kind: Kind, lease_ms: i64, skew_ms: i64) -> Report {
    let stops_ms = lease_ms.saturating_add(skew_ms.saturating_mul(2));
    // A failover of etcd loses nothing.
    let (event, way_out) = match kind {
        Kind::Postgres => (
            "failover",
            " Or use a synchronous standby of the registry, and declare it with \"snowflake-registry set-loses-nothing true\".",
        ),
        Kind::Etcd => ("restore", ""),
    };
    warning(format!("after a {event} of the registry, this server may draw no ids for {stops_ms} ms"))
        .detail(format!(
            "A lease of {lease_ms} ms is not several times as long as two clock skews of {skew_ms} ms, and is not \
             renewed then."
        ))
        .hint(format!("Make leases longer, or let clocks be less apart: run {}.{way_out}", program("set-lease")))
}

/// Words the warning that no background worker can lease this server's number.
pub fn no_worker() -> Report {
    Report::new(
        ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        "snowflake_id: the server will draw no ids, because no background worker can lease its worker number",
    )
    .entry("No process leases the number")
    .hint("Raise \"max_worker_processes\" by one, and restart the server.")
}

/// Words that a life goes on with its lease after a crash of a backend, or a restart.
pub fn goes_on(event: &str, Beginning { begins_ms, kept }: &Beginning) -> Report {
    let lease = kept.holder.kept().or(kept.holder.next());
    let (worker, until) = lease.map_or((0, Utc(0)), |lease| (lease.worker, Utc(lease.until_ms)));
    // Nothing may have been drawn with it.
    let after = if *begins_ms > 0 { format!("; ids go on after {}", Utc(*begins_ms)) } else { String::new() };
    line(format!("after a {event}, worker number {worker} is kept, and leased until {until}{after}"))
}

/// Words why a life after such an event does not go on with its lease.
pub fn begins_anew(event: &str, void: &Void) -> Report {
    let why = match void {
        Void::Broken => "what was noted of it is broken".to_owned(),
        Void::MadeForOther => "one of \"snowflake_id.registry\", \"snowflake_id.fleet\", \"snowflake_id.layout\", \
             \"snowflake_id.datacenter_id\" and \"snowflake_id.backup_worker\" has changed, or it was noted for \
             another server"
            .to_owned(),
        Void::NoLease => "there is none".to_owned(),
        Void::Over { until_ms } => format!("it has ended, at {}", Utc(*until_ms)),
        Void::FarAhead { ahead_ms } => format!("ids may have been drawn up to {ahead_ms} ms ahead of the clock"),
    };
    line(format!("the lease from before the {event} is not kept, because {why}; the server leases a number anew"))
}

/// Words that no lease is kept through a crash of a backend.
pub fn no_page(error: &std::io::Error) -> Report {
    needs_registry("crash of a backend")
        .detail(format!("What it needs to go on with its lease cannot be noted in memory: {error}."))
        .hint("If a security policy forbids memfd_create(), allow it, and restart the server.")
}

/// Words that no lease is kept through a restart.
pub fn no_file(error: &std::io::Error) -> Report {
    needs_registry("restart")
        .detail(format!("What it needs to go on with its lease cannot be noted in a file of /dev/shm: {error}."))
        .hint("See that this server alone uses its data directory, and may write to /dev/shm, a tmpfs with free space.")
}

fn needs_registry(event: &str) -> Report {
    warning(format!("after a {event}, this server will need its registry to draw ids"))
        .entry("A crash would end the lease")
}

/// Words that the page is broken.
pub fn page_is_broken() -> Report {
    needs_registry("crash of a backend")
        .detail("What was noted of its lease is broken. Something has written to it from outside.")
        .hint("Nothing else is lost, and the next restart notes it anew.")
}

/// Words that this server was promoted, and generates ids with this number.
pub fn promoted(worker: i64) -> Report {
    line(format!("this server was promoted, and generates ids with worker number {worker}"))
}

/// Words that ids go on with this number.
pub fn generates_again(worker: i64, since_ms: i64) -> Report {
    let since = Utc(since_ms);
    line(format!("this server generates ids again, with worker number {worker}; it had not since {since}"))
}

/// Words that the registry leases this server's number again.
pub fn leases_again(since_ms: i64) -> Report {
    line(format!("the registry leases this server's worker number again; it had not since {}", Utc(since_ms)))
}

/// Words that the registry gives blocks of values again.
pub fn supplies_again(since_ms: i64) -> Report {
    line(format!("the registry gives blocks of values again; it had not since {}", Utc(since_ms)))
}

/// Words that this server's number stays leased, because giving it back has failed.
pub fn number_kept(failure: &Failure<RegistryError>, kind: Kind, own: Option<(&Layout, bool)>) -> Report {
    let why = at_the_end(failure, kind, own);
    line(format!("the worker number was not given back, and stays leased to its end: {why}"))
}

/// Words that the rest of this server's blocks is lost, because giving it back has failed.
pub fn blocks_kept(failure: &Failure<RegistryError>, kind: Kind, own: Option<(&Layout, bool)>) -> Report {
    let why = at_the_end(failure, kind, own);
    line(format!("the values that are left of this server's blocks were not given back, and are lost: {why}"))
}

/// Words why nothing was given back when the worker ended.
fn at_the_end(failure: &Failure<RegistryError>, kind: Kind, own: Option<(&Layout, bool)>) -> String {
    match failure {
        Failure::Away(RegistryError::Stopped) => "the registry did not answer within two seconds".to_owned(),
        failure => worded(failure, kind, own).message,
    }
}

/// What a line of the log says, below a warning.
fn line(message: String) -> Report {
    Report::new(ERRCODE_SUCCESSFUL_COMPLETION, format!("snowflake_id: {message}"))
}

fn told(message: String) -> (PgLogLevel, Report) {
    (PgLogLevel::LOG, line(message))
}

/// A warning, whose entry in the runbook has this heading.
fn warned(entry: &'static str, message: String) -> (PgLogLevel, Report) {
    (PgLogLevel::WARNING, warning(message).entry(entry))
}

fn warning(message: String) -> Report {
    Report::new(ERRCODE_WARNING, format!("snowflake_id: {message}"))
}

/// Returns the warning that the clocks are further apart than is allowed for.
fn clock_is_off(offset_ms: i64, max_borrow_ms: i64) -> Report {
    let (distance_ms, side) = (offset_ms.abs(), if offset_ms < 0 { "behind" } else { "ahead of" });
    let report =
        warning(format!("this server's clock is {distance_ms} ms {side} the registry's")).entry("Clocks are apart");
    if offset_ms <= max_borrow_ms {
        return report.hint(CHECK_CLOCKS);
    }
    report
        .detail(format!(
            "Ids carry this clock's times. If this clock is wrong, draws will wait or be refused once it is right, for \
             about {distance_ms} ms, until it has passed the time of the last id."
        ))
        .hint(format!(
            "{CHECK_CLOCKS} To avoid that, let the time synchronization slow this clock down instead of setting it back."
        ))
}

/// Words that the lease is not renewed, and that another one begins too late: at `until_ms`.
pub fn of_gap(held: Option<Lease>, next: Option<Lease>, until_ms: i64) -> Report {
    let until = Utc(until_ms);
    let message = match (held, next) {
        (Some(held), Some(next)) => format!(
            "the lease of worker number {} ends at {} and is not renewed, and that of number {} begins at {until}",
            held.worker,
            Utc(held.until_ms),
            next.worker
        ),
        (None, Some(next)) => format!("the lease of worker number {} begins at {until}", next.worker),
        (_, None) => format!("no number can be used before {until}"),
    };
    let report = Report::new(ERRCODE_SYSTEM_ERROR, message)
        .entry("A lease ends before another begins")
        .detail("The registry may have lost leases, as after a failover or a restore, which end by then")
        .hint(
            "Do not restart this server while it draws ids. After the gap they go on by themselves. To draw ids meanwhile, \
             give it a configured number outside of the fleet's range (\"snowflake_id.worker_id\").",
        );
    Report { open: Some(report.message.clone()), ..report }
}

/// Words that no blocks of values are reserved, and why.
pub fn not_supplied(why: Report) -> Report {
    with_consequence("no blocks of values are reserved, and sessions draw from those that are left", why)
}

/// Returns a report for the server's log, with the consequence in front of the message.
fn with_consequence(consequence: &str, report: Report) -> Report {
    let message = format!("snowflake_id: {consequence}: {}", report.message);
    let logged = Report::new(ERRCODE_SYSTEM_ERROR, message);
    Report { detail: report.detail.map(sentence), hint: report.hint, entry: report.entry, ..logged }
}

/// Adds to a HINT that a restart would cost this server its number.
pub fn without_restart(report: Report) -> Report {
    let hint = report.hint.unwrap_or_default();
    let hint = format!("Restart this server only if you must, because it may have no number then. {hint}");
    Report { hint: Some(hint), ..report }
}

/// Words that the lease is not renewed, and why: from when until when there is a gap, if one is
/// known, and the lease that the server has.
pub fn not_renewed(gap: Option<(i64, i64)>, lease: Option<Lease>, is_standby: bool, why: Report) -> Report {
    let consequence = match (gap, lease) {
        (Some((from_ms, until_ms)), _) => {
            let generates = if is_standby { "would generate no ids if promoted," } else { "generates no ids" };
            format!("this server {generates} from {} to {}", Utc(from_ms), Utc(until_ms))
        }
        (None, Some(held)) => format!(
            "the lease of worker number {} is not renewed, and the server draws ids until {}",
            held.worker,
            Utc(held.until_ms)
        ),
        (None, None) => "no worker number is leased, and the server draws no ids".to_owned(),
    };
    with_consequence(&consequence, why)
}

/// A text of limited length, in shared memory.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    length: usize,
    bytes: [u8; 480],
}

impl Line {
    /// Takes a text, or as much of it as there is room for.
    fn new(text: &str) -> Self {
        let mut bytes = [0; 480];
        let length = text.floor_char_boundary(bytes.len());
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Self { length, bytes }
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.length]).into_owned()
    }
}

/// What the background worker has met last at the registry, in shared memory.
#[derive(Debug, Clone, Copy)]
pub struct Failing {
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// For operators. It may say where the registry is, and how it is reached.
    pub whole: Line,
    /// For every role.
    pub open: Line,
}

impl Failing {
    /// Takes from a report what is shown of it.
    pub fn new(since_ms: i64, why: &Report) -> Self {
        let whole = why.whole();
        Self { since_ms, whole: Line::new(&whole), open: Line::new(why.open.as_ref().unwrap_or(&whole)) }
    }
}

/// The background worker, where a session misses what it gets from the registry.
#[derive(Debug, Clone, Copy)]
pub struct WorkerSeen {
    /// What it has met last. `None` if it has met nothing, or was not started.
    pub failing: Option<Failing>,
    /// Whether it runs.
    pub runs: bool,
    /// Whether it can run on this server at all: neither in single-user mode nor under pg_upgrade.
    pub can_run: bool,
}

/// Words why this server has no leased number: where the lease that is over has ended, and before
/// which instant no number can be used, if that is known.
pub fn no_lease(over_ms: Option<i64>, gap_until_ms: Option<i64>, worker: &WorkerSeen) -> Report {
    let report = Report::new(
        ERRCODE_SYSTEM_ERROR,
        match over_ms {
            Some(over_ms) => format!("the lease of this server's worker number ended at {}", Utc(over_ms)),
            None => "this server has no worker number yet".to_owned(),
        },
    )
    .entry("No worker number");
    if let Some(until_ms) = gap_until_ms {
        return report
            .detail(format!(
                "No number can be used before {}: the registry may have lost leases, as after a failover or a restore, \
                 which end by then.",
                Utc(until_ms)
            ))
            .hint(
                "Ids go on then by themselves; a restart does not help. To draw ids before, give this server a \
                 configured number outside of the fleet's range (\"snowflake_id.worker_id\").",
            );
    }
    without_supply(report, worker, &NUMBER)
}

/// Words why this server has no values of a tag.
pub fn no_block(tag: &str, worker: &WorkerSeen) -> Report {
    let message = format!("no values of tag \"{}\" are left on this server", showable(tag));
    without_supply(Report::new(ERRCODE_SYSTEM_ERROR, message).entry("No block of values"), worker, &BLOCKS)
}

/// The words for what a server gets from the registry.
struct Supplied {
    does: &'static str,
    has_not: &'static str,
    view: &'static str,
    draws: &'static str,
    again: &'static str,
    /// What may help if the worker runs, and nothing has failed.
    more: &'static str,
}

const NUMBER: Supplied = Supplied {
    does: "leases one",
    has_not: "leased one",
    view: "snowflake_lease",
    draws: "ids",
    again: "a number",
    more: "",
};

const BLOCKS: Supplied = Supplied {
    does: "reserves them",
    has_not: "given any",
    view: "snowflake_segment_stat",
    draws: "values",
    again: "some",
    more: " If values are drawn faster than they are reserved, raise least_step and greatest_step of the tag in the \
           registry.",
};

/// Says what the worker has met, and what to do about it.
fn without_supply(report: Report, worker: &WorkerSeen, words: &Supplied) -> Report {
    let Supplied { does, has_not, view, draws, again, more } = words;
    match &worker.failing {
        Some(Failing { since_ms, whole, open }) => {
            let detail =
                |why: &Line| format!("Since {}, the registry has not {has_not}: {}", Utc(*since_ms), why.text());
            let open = (!backend::may_monitor()).then(|| detail(open));
            Report { open, ..report }.detail(detail(whole)).hint(format!(
                "SELECT * FROM {view} shows what the server knows. It goes on trying, and draws {draws} again as soon as \
                 it has {again}."
            ))
        }
        None if worker.runs => report
            .detail(format!("The process that {does} has not had an answer from the registry yet."))
            .hint(format!("Check the registry, and try again.{more}")),
        None if !worker.can_run => report
            .detail(format!("In single-user mode, and under pg_upgrade, no background worker {does}."))
            .hint(format!("Start the server as usual to draw {draws}.")),
        None => report.detail(format!("The background worker that {does} does not run.")).hint(
            "If the server's log says that there are too many background workers, raise \"max_worker_processes\" and \
             restart the server.",
        ),
    }
}

/// Ends a text with a period.
fn sentence(text: String) -> String {
    if text.ends_with(['.', '!', '?']) { text } else { text + "." }
}

/// Names a command of the program with which operators use a registry, of either kind.
fn program(command: &str) -> String {
    format!("\"snowflake-registry {command}\"")
}

/// Writes a uuid as PostgreSQL does.
fn uuid(uuid: u128) -> String {
    pgrx::Uuid::from_bytes(uuid.to_be_bytes()).to_string()
}

/// Words why there is no lease. `own` is this server's layout, and whether it has a backup number.
pub fn worded(failure: &Failure<RegistryError>, kind: Kind, own: Option<(&Layout, bool)>) -> Report {
    // The core's facts do not say how to reach the registry: every role may see the DETAIL, too.
    let new = |message: String, detail: Option<String>, hint: &str| {
        let report = Report::new(ERRCODE_SYSTEM_ERROR, message).entry("The registry reports an error").hint(hint);
        Report { detail, ..report }
    };
    let run = |command| format!("Run {}.", program(command));
    match failure {
        Failure::Away(error) => error.report().coded(ERRCODE_SYSTEM_ERROR),
        Failure::OtherLayout { layout, backup } => new(
            format!(
                "the fleet has layout {} with \"backup_worker\" {}",
                Layout::built_in_with(*layout)
                    .map_or_else(|| format!("with fingerprint {layout:016x}"), |name| format!("\"{name}\"")),
                if *backup { "on" } else { "off" }
            ),
            own.map(|(own, has_backup)| {
                let backup = if has_backup { "on" } else { "off" };
                format!("This server has layout \"{}\" with \"backup_worker\" {backup}", known_as(own))
            }),
            "Set \"snowflake_id.layout\" and \"snowflake_id.backup_worker\" as on the fleet's other servers, or name \
             another fleet in \"snowflake_id.fleet\".",
        ).entry("Another layout"),
        Failure::OutsideLayout { range: (first, last), numbers } => new(
            format!("the fleet's range of numbers is {first}..{last}, and the layout has 0..{}", numbers - 1),
            None,
            &run("set-range"),
        ),
        Failure::TooShort { lease_ms, least_ms } => new(
            format!("the fleet's leases are {lease_ms} ms long, but the layout needs {least_ms} ms"),
            None,
            &run("set-lease"),
        ),
        Failure::OtherFleet { known, found } => new(
            "the registry has another fleet than the one that this server belongs to".to_owned(),
            Some(format!("The registry's fleet has the uuid {}, and this server's {}", uuid(*found), uuid(*known))),
            &format!(
                "Check \"snowflake_id.registry\". If the registry was lost and is made again, give the new one the old \
                 uuid ({}). To join the other fleet for good, restart the server, and call snowflake_accept_fleet() in \
                 each database.",
                program("lost")
            ),
        ).entry("Another fleet"),
        Failure::Closed => new(
            "the fleet is closed".to_owned(),
            None,
            &format!(
                "If the fleet has moved, correct this server's \"snowflake_id.registry\", and reload; do not restart it. \
                 If it is being moved now, wait. Only if the move is given up, run {} for this registry: for one that \
                 servers have left, it lets two servers draw the same ids.",
                program("open --not-moved")
            ),
        ).entry("The fleet is closed"),
        Failure::ClockOff { now_ms, registry_ms, skew_ms } => new(
            format!("this server's clock and the registry's are more than {skew_ms} ms apart"),
            Some(format!("This server's clock says {}, and the registry's {}", Utc(*now_ms), Utc(*registry_ms))),
            CHECK_CLOCKS,
        ).entry("Clocks are apart"),
        Failure::NoneFree { numbers, living, first } => new(
            format!("all {numbers} worker numbers of the fleet are leased"),
            Some(match first {
                Some((first, at_ms)) => format!(
                    "Running servers renew {living} of them. Of the others, number {first} becomes free first, at {}",
                    Utc(*at_ms)
                ),
                None => "Running servers renew all of them, so the range is too small for the fleet".to_owned(),
            }),
            &format!(
                "Widen the range with {}, or stop servers that are not needed: a clean stop gives the number back. {} \
                 tells which servers have them.",
                program("set-range"),
                program("show")
            ),
        ).entry("All numbers are leased"),
        Failure::Frozen { until_ms } => new(
            format!("no number can be used before {}", Utc(*until_ms)),
            Some("The registry has lost leases, as after a failover or a restore, which end by then".to_owned()),
            &format!(
                "Servers that hold a number draw up to the end of their leases; do not restart them before then.{}",
                match kind {
                    Kind::Postgres => {
                        " With a synchronous standby that is declared with \"snowflake-registry set-loses-nothing \
                         true\", a failover loses nothing."
                    }
                    Kind::Etcd => "",
                }
            ),
        ).entry("A lease ends before another begins"),
        Failure::Contended => new(
            "other servers have changed the registry's records at each try".to_owned(),
            None,
            "The server tries again.",
        ),
    }
}
