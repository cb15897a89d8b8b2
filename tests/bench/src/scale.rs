//! How many members one registry serves, and what that costs it: in PostgreSQL, with a pooler and
//! without, and in etcd, with one member and three.
//!
//! The members are simulated, and the protocol is not ([`Crowd`]). All run on the machine of the
//! registry, so that the times are those of both together. The processor time is the registry's
//! alone. `docs/fleet-size.md` has the table.

use std::fmt::Write;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cluster::crowd::Took;
use cluster::pooler::{PgBouncer, PoolMode, has_pgbouncer};
use cluster::registry::{Member, ROLE, config, now_ms};
use cluster::{Crowd, Draw, Etcd, Fleet, Operated, Order, Shutdown, has_etcd};
use snowflake_core::fleet::pace::counts_in_ms;
use snowflake_core::fleet::registry::{Store, Wanted};

use crate::Failure;
use crate::figure::Measured;
use crate::report::{machine, shown, today};
use crate::series::median;
use crate::session::Measure;

/// How long a step of a server's worker may take (`src/fleet/keeper/server.rs`).
const STEP: Duration = Duration::from_secs(5);

/// How long the registry is watched with no members, to know what it costs by itself.
const IDLE: Duration = Duration::from_secs(3);

/// How long members need until each renews every ten seconds: the first leases are shorter.
const SETTLING: Duration = Duration::from_secs(10);

/// How long they are watched then: each renews once.
const STEADY: Duration = Duration::from_secs(10);

/// How long all renew without a pause.
const HURRYING: Duration = Duration::from_secs(3);

/// How long leases are before the registry goes away: for more than half of it, and beyond it. A
/// server renews ten times as often, and a thousand of them must not be more than etcd can serve.
const LEASE: Duration = Duration::from_secs(10);
const LEASE_OF_MANY: Duration = Duration::from_secs(60);
const MANY: usize = 1000;

/// How long to wait until all have come back.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often all records are read for the figure.
const READS: u32 = 20;

/// Sessions of PostgreSQL behind the pooler.
const SESSIONS: usize = 20;

/// What etcd takes unless `--quota-backend-bytes` says otherwise, in bytes.
const QUOTA: f64 = 2e9;

/// Where the registry is, and of how many members the fleet is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    Pooled,
    Etcd(usize),
}

/// A registry that runs.
enum Place {
    // The pooler is dropped first.
    Postgres(Option<PgBouncer>, Box<Fleet>, String),
    Etcd(Etcd),
}

impl Place {
    fn start(kind: Kind, members: usize) -> Self {
        if let Kind::Etcd(nodes) = kind {
            let etcd = Etcd::start(nodes);
            etcd.make_registry();
            return Self::Etcd(etcd);
        }
        let connections = if kind == Kind::Pooled { 2 * SESSIONS } else { members + 20 };
        let fleet = Fleet::start_with(|registry| registry.config("max_connections", &connections.to_string()).tcp());
        // As servers connect: through TCP, where a full queue of the postmaster lets them wait.
        let mut session = fleet.registry.connect();
        let password = session.value("SELECT gen_random_uuid()::text");
        session.batch_execute(&format!("ALTER ROLE {ROLE} PASSWORD '{password}'")).expect("the role is there");
        let port = fleet.registry.port();
        let address = format!("host=127.0.0.1 port={port} dbname=postgres user={ROLE} password={password}");
        let pooler = (kind == Kind::Pooled)
            .then(|| PgBouncer::start_sized(&fleet.registry, PoolMode::Transaction, SESSIONS, members + 20));
        Self::Postgres(pooler, Box::new(fleet), address)
    }

    fn address(&self) -> String {
        match self {
            Self::Postgres(Some(pooler), ..) => pooler.conninfo(),
            Self::Postgres(None, _, address) => address.clone(),
            Self::Etcd(etcd) => etcd.address(),
        }
    }

    /// Sets how long leases are.
    fn set_lease(&self, lease: Duration) {
        let ms = format!("{} ms", lease.as_millis());
        let operated: &dyn Operated = match self {
            Self::Postgres(_, fleet, _) => &**fleet,
            Self::Etcd(etcd) => etcd,
        };
        operated.operate(&["set-lease", "--lease", &ms]);
    }

    fn take_away(&mut self) {
        match self {
            Self::Postgres(_, fleet, _) => fleet.registry.stop(Shutdown::Immediate),
            Self::Etcd(etcd) => (0..etcd.pids().len()).for_each(|number| etcd.kill_member(number)),
        }
    }

    fn bring_back(&mut self, kind: Kind) {
        match (self, kind) {
            (Self::Etcd(etcd), Kind::Etcd(nodes)) => {
                (0..nodes).for_each(|number| etcd.start_member(number));
                etcd.wait();
            }
            (Self::Postgres(_, fleet, _), _) => fleet.registry.start_again(),
            _ => {}
        }
    }

    /// Returns the processor time of the registry so far, in milliseconds. A process that has ended
    /// takes its time along, and while members only renew, none does.
    fn cpu_ms(&self) -> f64 {
        let own = match self {
            Self::Postgres(_, fleet, _) => vec![fleet.registry.postmaster_pid()],
            Self::Etcd(etcd) => etcd.pids(),
        };
        let children = own.iter().flat_map(|pid| {
            let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
        });
        own.iter().copied().chain(children).map(nanoseconds).sum::<f64>() / 1e6
    }

    /// Returns the bytes of log so far, in PostgreSQL; in etcd the size of the database.
    fn bytes(&self) -> Result<f64, Failure> {
        match self {
            Self::Postgres(_, fleet, _) => {
                let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::double precision";
                Ok(fleet.registry.connect().number(sql)?)
            }
            Self::Etcd(etcd) => Ok(status(etcd, "dbSizeInUse")),
        }
    }
}

/// Returns the time that all threads of a process have run, in nanoseconds. `stat` has it in ticks
/// of 10 ms, which is more than a session of a registry needs.
fn nanoseconds(pid: i32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split_ascii_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
    };
    tasks.map(of_task).sum()
}

/// Returns a number of etcd's state, of the member that has most.
fn status(etcd: &Etcd, name: &str) -> f64 {
    let json = etcd.ctl(&["--write-out=json", "endpoint", "status"]);
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<f64>();
    json.split(&format!("\"{name}\":")).skip(1).map(|rest| number(rest).expect("a number follows")).fold(0.0, f64::max)
}

/// A line of the table, for one fleet.
struct Line {
    what: &'static str,
    unit: &'static str,
    value: f64,
}

/// The lines of one fleet.
#[derive(Default)]
struct Lines(Vec<Line>);

impl Lines {
    fn push(&mut self, what: &'static str, unit: &'static str, value: f64) {
        self.0.push(Line { what, unit, value });
    }

    /// Notes until when all had done something. A fleet that has not shows as such.
    fn push_time(&mut self, what: &'static str, crowd: &Crowd, took: Option<Duration>) {
        if took.is_none() {
            eprintln!("\n{what}: not within {PATIENCE:?}: {:?} {:?}", crowd.tally(), crowd.failures());
        }
        self.push(what, "s", took.map_or(f64::NAN, |took| took.as_secs_f64()));
    }
}

/// Measures one fleet.
fn fleet(kind: Kind, members: usize) -> Result<Lines, Failure> {
    let (mut place, mut lines) = (Place::start(kind, members), Lines::default());
    // What the page advises for so many.
    let (layout, lease) = if members < MANY { ("snowflake", LEASE) } else { ("instagram", LEASE_OF_MANY) };
    let address = place.address();
    let of_member = |number: usize| {
        let mut config = config(&address);
        config.timeout = STEP;
        config.member.host = format!("db-{number:04}.example.com");
        config
    };
    // The first server brings layout and range.
    let first = Member::new(of_member(0), None).with_layout(layout);
    first.lease();
    first.give_back();
    let before = (place.cpu_ms(), Instant::now());
    thread::sleep(IDLE);
    let idle = (place.cpu_ms() - before.0) / before.1.elapsed().as_secs_f64();

    let crowd = Crowd::new(members, layout, of_member);
    let (size, cpu) = (members as f64, place.cpu_ms());
    crowd.order(Order::Keep);
    let took = crowd.wait(PATIENCE);
    let (tally, distinct) = (crowd.tally(), crowd.numbers().len());
    lines.push_time("start: until all have a number", &crowd, took.map(|took| took.last));
    if took.is_some() && distinct != members {
        return Err(format!("{members} members have {distinct} numbers").into());
    }
    lines.push("start: transactions of each", "", tally.transactions() as f64 / size);
    lines.push("start: swaps that were refused, of each", "", tally.calls.refused as f64 / size);
    lines.push("start: calls without an answer, of each", "", tally.calls.unanswered as f64 / size);
    lines.push("start: processor time of each", "ms", (place.cpu_ms() - cpu) / size);

    thread::sleep(SETTLING);
    let before = (place.cpu_ms(), place.bytes()?, Instant::now());
    crowd.begin();
    thread::sleep(STEADY);
    let (tally, seconds) = (crowd.tally(), before.2.elapsed().as_secs_f64());
    let (cpu, bytes, kept) = (place.cpu_ms() - before.0 - idle * seconds, place.bytes()? - before.1, tally.kept as f64);
    lines.push("renewing: transactions per second", "/s", tally.transactions() as f64 / seconds);
    lines.push("renewing: calls without an answer", "", tally.calls.unanswered as f64);
    let renewal_ms = cpu.max(0.0) / kept;
    lines.push("renewing: processor time of a renewal", "ms", renewal_ms);
    if let Place::Postgres(..) = place {
        lines.push("renewing: log of a renewal", "bytes", bytes / kept);
    }

    crowd.begin();
    let (bytes, revision) = match &place {
        Place::Etcd(etcd) => (place.bytes()?, status(etcd, "revision")),
        Place::Postgres(..) => (0.0, 0.0),
    };
    crowd.order(Order::Hurry);
    thread::sleep(HURRYING);
    let kept = crowd.tally().kept as f64;
    lines.push("renewing: at most", "/s", kept / HURRYING.as_secs_f64());
    crowd.order(Order::Wait);
    // Until the last call has ended.
    let mut before = crowd.tally().transactions();
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = crowd.tally().transactions();
        if now == before {
            break;
        }
        before = now;
    }
    match &place {
        Place::Etcd(etcd) => {
            let grown = (place.bytes()? - bytes) / (status(etcd, "revision") - revision);
            lines.push("renewing: database of a renewal", "bytes", grown);
            lines.push("renewing: until the database has 2 GB, uncompacted", "days", QUOTA / (grown * size * 8640.0));
            etcd.ctl(&["compact", &format!("{:.0}", status(etcd, "revision"))]);
            lines.push("database in use, compacted", "kB", status(etcd, "dbSizeInUse") / 1e3);
        }
        Place::Postgres(_, fleet, _) => {
            let mut session = fleet.registry.connect();
            let table = "pg_total_relation_size('snowflake_registry.numbers')::double precision / 1000";
            lines.push("size of the table of numbers", "kB", session.number(&format!("SELECT {table}"))?);
            let hot = "SELECT 100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = 'numbers'";
            lines.push(
                "updates that touch no index",
                "%",
                session.number(&format!("SELECT ({hot})::double precision"))?,
            );
        }
    }

    // What each does once a minute, and more rarely in large fleets.
    let cpu = place.cpu_ms();
    for _ in 0..READS {
        first.read(&Wanted::numbers_of(None)).map_err(|error| format!("{error:?}"))?;
    }
    let count_ms = (place.cpu_ms() - cpu) / f64::from(READS);
    lines.push("counting free numbers: processor time", "ms", count_ms);
    let counts_in_s = counts_in_ms(members as i64) as f64 / 1e3;
    let share = (idle + size * (renewal_ms / 10.0 + count_ms / counts_in_s)) / 10.0;
    lines.push("renewing every ten seconds, and counting: of one processor", "%", share);

    crowd.order(Order::Stop);
    let took = crowd.wait(PATIENCE);
    lines.push_time("stop: until all have ended", &crowd, took.map(|took| took.last));
    lines.push("stop: numbers that were not given back", "", size - crowd.tally().kept as f64);
    place.set_lease(lease);
    crowd.order(Order::Keep);
    let took = crowd.wait(PATIENCE);
    lines.push_time("start again: until all have their number", &crowd, took.map(|took| took.last));
    for (what, is_beyond) in [
        ("outage of more than half a lease: until all have renewed", false),
        ("outage beyond the lease: until all have renewed", true),
    ] {
        place.take_away();
        let (away, ends_ms) = (Instant::now(), crowd.leased_until_ms());
        while if is_beyond { now_ms() <= ends_ms } else { away.elapsed() < lease * 6 / 10 } {
            thread::sleep(Duration::from_millis(100));
        }
        crowd.begin();
        place.bring_back(kind);
        let took = crowd.wait(PATIENCE).map(|Took { first, last }| last - first);
        lines.push_time(what, &crowd, took);
    }
    Ok(lines)
}

/// Measures a fleet so often, and returns the medians.
fn fleets(kind: Kind, members: usize, runs: usize) -> Result<Lines, Failure> {
    let mut all = (0..runs).map(|_| fleet(kind, members)).collect::<Result<Vec<_>, _>>()?;
    for line in 0..all[0].0.len() {
        all[0].0[line].value = median(&all.iter().map(|lines| lines.0[line].value).collect::<Vec<_>>());
    }
    Ok(all.swap_remove(0))
}

/// Formats a table with a column for each fleet.
fn table(title: &str, columns: &[(String, Lines)]) -> Result<String, Failure> {
    let mut table = format!("| {title} |");
    columns.iter().try_for_each(|(name, _)| write!(table, " {name} |"))?;
    write!(table, "\n|---|{}", "---|".repeat(columns.len()))?;
    for (number, line) in columns[0].1.0.iter().enumerate() {
        write!(table, "\n| {} |", line.what)?;
        for (_, lines) in columns {
            let Line { value, unit, .. } = lines.0[number];
            let cell = if value.is_nan() { "not reached".to_owned() } else { shown(value, unit) };
            write!(table, " {cell} |")?;
        }
    }
    Ok(table + "\n")
}

/// Measures registries in PostgreSQL.
pub fn measure_postgres(runs: usize) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    let mut large = vec![("1,000", Kind::Postgres)];
    if has_pgbouncer() {
        large.push(("1,000, PgBouncer", Kind::Pooled));
    } else {
        measured.left_out.push("a registry behind PgBouncer: it is not installed".to_owned());
    }
    measured.tables = tables("PostgreSQL", &large, runs)?;
    Ok(measured)
}

/// Measures registries in etcd.
pub fn measure_etcd(runs: usize) -> Result<Measured, Failure> {
    if !has_etcd() {
        return Ok(Measured::left_out("a registry in etcd", "etcd and etcdctl are not installed"));
    }
    let large = [("1,000", Kind::Etcd(1)), ("1,000, three members of etcd", Kind::Etcd(3))];
    Ok(Measured { tables: tables("etcd", &large, runs)?, ..Measured::default() })
}

/// Measures fleets of ten and a hundred members with the first kind of registry, and of a thousand
/// with each.
fn tables(title: &str, large: &[(&str, Kind)], runs: usize) -> Result<Vec<String>, Failure> {
    let mut columns = Vec::new();
    let small = [("10", 10), ("100", 100)].map(|(name, members)| (name, large[0].1, members));
    for (name, kind, members) in small.into_iter().chain(large.iter().map(|(name, kind)| (*name, *kind, MANY))) {
        columns.push((name.to_owned(), fleets(kind, members, runs)?));
        // What was measured is of use, even if the rest fails.
        eprintln!("\n{}", table(title, &columns)?);
    }
    Ok(vec![format!("Measured on {}. {}\n", today(), machine()), table(title, &columns)?])
}
