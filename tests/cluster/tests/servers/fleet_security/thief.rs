//! What a thief of the servers' password can do in a registry in PostgreSQL, and no more: one test
//! for each rule at the head of `sql/registry.sql`. None of these needs the extension.
//!
//! The thief calls `read` and `swap` in SQL, with whatever JSON it likes. Each test first shows
//! what the registry takes, and then changes that in one place. All tests share a server, where
//! each has a fleet of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use cluster::registry::{Poll, ROLE, config, now_ms, number, operator_config};
use cluster::{Draw, Member, Operated, Oracle, Refusal, Server, refused, wait_until};
use postgres::Client;
use serde_json::{Value, json};
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::LeaseNotice;
use snowflake_core::fleet::operate::new_fleet;
use snowflake_core::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, FleetLimits, NumberRecord, Reading, RecordChange, Store, Swap,
    SwapAnswer, TagRecord, Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::fleet::segment::{Ask, END, FARTHEST, Grant, JUMP, Return};
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::layout::{BUILT_IN, Field, Layout};
use snowflake_registry::{Config, Postgres, Registry, RegistryError};

const HOUR_MS: i64 = 3_600_000;
const MONTH_MS: i64 = 30 * 24 * HOUR_MS;

/// The registry that all tests share. It lasts as long as the process.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Server::builder().without_preload().durable().start();
        server.make_registry();
        server
    })
}

/// A fleet whose servers' password is stolen.
struct Stolen {
    fleet: String,
    /// The registry's owner.
    owner: Client,
    /// An operator, by the owner's role.
    operator: Postgres<Poll>,
    /// A server.
    victim: Postgres<Poll>,
    /// The thief, as another server would connect.
    store: Postgres<Poll>,
    /// The thief, with its own SQL.
    thief: Client,
}

/// What only the one server knows, and what only the other one does.
const VICTIM: u128 = 0xefab_cdef_abcd;
const THIEF: u128 = 0x2222;

impl Stolen {
    /// Makes a fleet with the numbers 7 and 8.
    fn new() -> Self {
        Self::with(|fleet| Fleet {
            layout: Some((5, false)),
            range: Some((7, 8)),
            longest_ms: DEFAULT_LEASE_MS,
            skew_ms: DEFAULT_SKEW_MS,
            ..fleet
        })
    }

    fn with(columns: impl FnOnce(Fleet) -> Fleet) -> Self {
        static FLEETS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only the number itself matters.
        let number = FLEETS.fetch_add(1, Ordering::Relaxed);
        let (server, fleet) = (server(), format!("fleet {number}"));
        let of = |config: Config| Postgres::new(Config { fleet: fleet.clone(), ..config }, Poll);
        let operator = of(operator_config(&server.conninfo()));
        let (incarnation, _) = operator.now().unwrap();
        let empty = new_fleet(u128::from(number), incarnation, 1);
        assert_eq!(operator.create_fleet(&columns(empty)), Ok(true));
        let member = config(&server.registry_conninfo());
        Self {
            victim: of(Config { secret: VICTIM, ..member.clone() }),
            store: of(Config { secret: THIEF, ..member }),
            owner: server.connect(),
            thief: server.connect_as(ROLE),
            operator,
            fleet,
        }
    }

    fn reading(&self) -> Reading {
        let tags = WantedTags::Named(vec![orders()]);
        self.store.read(&Wanted { numbers: WantedNumbers::All, tags }).unwrap()
    }

    /// Changes columns of a table of this fleet, as the registry's owner may.
    fn set(&mut self, table: &str, columns: &str) {
        let name = if table == "fleets" { "name" } else { "fleet" };
        let sql = format!("UPDATE snowflake_registry.{table} SET {columns} WHERE {name} = '{}'", self.fleet);
        self.owner.batch_execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Calls `swap` with what the thief likes, under what it has read.
    fn swap(&mut self, new_fleet: Option<&Value>, numbers: Option<&Value>, tags: Option<&Value>) -> Answer {
        let reading = self.reading();
        let sql = "SELECT done FROM snowflake_registry.swap($1, 0, $2, $3, $4, false, $5::text::jsonb, \
                   $6::text::jsonb, $7::text::jsonb)";
        let text = |value: Option<&Value>| value.map(Value::to_string);
        let (version, store) = (reading.fleet.version.cast_signed(), reading.incarnation.store.cast_signed());
        let timeline = reading.incarnation.timeline.cast_signed();
        let (fleet, values) = (self.fleet.clone(), [new_fleet, numbers, tags].map(text));
        let row = self.thief.query_one(sql, &[&fleet, &version, &store, &timeline, &values[0], &values[1], &values[2]]);
        row.map(|row| row.get(0))
    }

    fn number(&mut self, change: &Value) -> Answer {
        self.swap(None, Some(&json!([change])), None)
    }

    fn tag(&mut self, change: &Value) -> Answer {
        self.swap(None, None, Some(&json!([change])))
    }

    /// Expects that the registry itself refuses what no server's own rules permit.
    #[track_caller]
    fn refuses(answer: Answer, words: &str) {
        let refusal = refused(answer);
        assert_eq!(refusal.sqlstate, "SF005", "{refusal:?}");
        assert!(refusal.message.contains(words), "{words}: {refusal:?}");
        // For the list of all of them.
        println!("{}", refusal.message);
    }

    /// The victim leases number 7, from ten seconds ago for so long from now.
    fn victim_leases(&self, ms: i64) -> NumberRecord {
        let reading = self.reading();
        let record = NumberRecord {
            holder: 1,
            nonce: 11,
            count: 1,
            server: 5,
            from_ms: reading.now_ms - 10_000,
            until_ms: reading.now_ms + ms,
            generation: reading.fleet.generation,
            renewed_ms: reading.now_ms,
            offset_ms: 0,
        };
        let was = reading.numbers.get(&number(7)).map(|record| record.nonce);
        written(&self.victim, &reading, RecordChange::Number { number: number(7), was, record });
        record
    }

    /// Returns a lease of a number that the registry takes, for ten seconds after the one before.
    fn lease(&self, worker: i64) -> Value {
        let reading = self.reading();
        let old = reading.numbers.get(&number(worker));
        let from_ms = old.map_or(reading.now_ms, |old| old.until_ms.max(reading.now_ms));
        json!({
            "datacenter": -1, "worker": worker, "was": old.map(|old| old.nonce.cast_signed()),
            "holder": format!("{:032x}", 2), "nonce": old.map_or(22, |old| old.nonce + 1),
            "count": old.map_or(1, |old| old.count + 1), "server": 6, "from_ms": from_ms, "until_ms": from_ms + 10_000,
            "generation": reading.fleet.generation, "renewed_ms": from_ms, "offset_ms": 0, "host": "thief", "port": 1,
            "cluster_name": "", "version": "", "secret": format!("{THIEF:032x}")
        })
    }

    /// Returns the SQL of a transaction that holds the new numbers of a part up.
    fn holds(&self, worker: i64) -> String {
        format!(
            "BEGIN; SELECT snowflake_registry.swap('{}', 0, 0, 0, 0, false, NULL, \
             '[{{\"datacenter\": -1, \"worker\": {worker}}}]', NULL)",
            self.fleet
        )
    }

    /// Returns what `check` says, in one line.
    fn checked(&self) -> String {
        let output = server().operator().args(["check", "--fleet", &self.fleet]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the fleet's record as `swap` takes it, with another version.
    fn fleet(&mut self) -> Value {
        let sql = "SELECT row_to_json(f)::text FROM snowflake_registry.fleets f WHERE name = $1";
        let text: String = self.owner.query_one(sql, &[&self.fleet]).unwrap().get(0);
        let mut fleet: Value = serde_json::from_str(&text).unwrap();
        fleet["version"] = json!(fleet["version"].as_i64().unwrap() ^ 1);
        fleet
    }

    /// Makes the tag `orders`, from 1 on, with blocks of 10 to 20 values.
    fn make_tag(&mut self, jumps: bool) {
        let sql = format!(
            "INSERT INTO snowflake_registry.tags (fleet, tag, least_step, greatest_step, jumps, description)
             VALUES ('{}', 'orders', 10, 20, {jumps}, 'not for servers')",
            self.fleet
        );
        self.owner.batch_execute(&sql).unwrap();
    }

    fn orders(&self) -> TagRecord {
        self.reading().tags[&orders()]
    }

    /// A server reserves a block, as the core decides.
    fn reserves(store: &Postgres<Poll>, was: Option<u64>, nonce: u64) -> (i64, i64) {
        let reading = store.read(&Wanted::tags(vec![orders()])).unwrap();
        let (above, least, generation) = (i64::MIN, i64::MIN, reading.fleet.generation);
        let ask = Ask { tag: orders(), id: None, step: Some(20), above, least, generation, was, nonce };
        let old = reading.tags[&orders()];
        let (Grant::Block { block, .. }, Some(record)) = old.answer(&ask, &reading.fleet, reading.now_ms) else {
            panic!("there are values")
        };
        written(store, &reading, RecordChange::Tag { tag: orders(), was: Some(old.nonce), record: Some(record) });
        (block.first, block.end())
    }

    /// Returns a change of the tag that reserves the next ten values, which the registry takes.
    fn block(&self) -> Value {
        let TagRecord { id, next, steps, jumps, nonce, .. } = self.orders();
        json!({
            "tag": "orders", "was": nonce.cast_signed(), "id": id.cast_signed(), "next_value": next + 10,
            "least_step": steps.0, "greatest_step": steps.1, "jumps": jumps, "nonce": nonce.cast_signed() ^ 1,
            "generation": self.reading().fleet.generation, "written_ms": 0, "returnable_from": next,
            "secret": format!("{THIEF:032x}")
        })
    }
}

type Answer = Result<bool, postgres::Error>;

fn orders() -> Tag {
    Tag::new("orders").unwrap()
}

#[track_caller]
fn written(store: &Postgres<Poll>, reading: &Reading, change: RecordChange) {
    assert!(matches!(store.swap(&Swap::after(reading, vec![change])), Ok(SwapAnswer::Done(_))));
}

/// Returns a record with another value in one place.
fn with(record: &Value, name: &str, value: impl Into<Value>) -> Value {
    let mut record = record.clone();
    record[name] = value.into();
    record
}

fn uuid(bits: u128) -> String {
    format!("{bits:032x}")
}

// Numbers

#[test]
fn leases_of_one_number_do_not_overlap() {
    let mut stolen = Stolen::new();
    let held = stolen.victim_leases(30_000);
    let next = stolen.lease(7);
    for (early_ms, words) in [(1, "cannot begin 1 ms before the end"), (40_000, "cannot begin 40000 ms before the end")]
    {
        Stolen::refuses(stolen.number(&with(&next, "from_ms", held.until_ms - early_ms)), words);
    }
    assert!(stolen.number(&next).unwrap());
}

#[test]
fn a_lease_that_runs_is_not_taken() {
    let mut stolen = Stolen::new();
    let held = stolen.victim_leases(300_000);
    let next = stolen.lease(7);
    Stolen::refuses(stolen.number(&next), "cannot be taken before");
    // Nor if the number is never to be used.
    Stolen::refuses(stolen.number(&with(&next, "until_ms", held.until_ms)), "cannot be taken before");
    // Its holder gives it back.
    let reading = stolen.reading();
    let record = NumberRecord { nonce: 12, count: 2, until_ms: reading.now_ms, ..held };
    written(&stolen.victim, &reading, RecordChange::Number { number: number(7), was: Some(held.nonce), record });
    let next = stolen.lease(7);
    assert!(stolen.number(&next).unwrap());
}

/// What counts is how far clocks are taken to be apart, and not how far they may be.
#[test]
fn a_lease_that_runs_is_not_taken_whatever_the_limit_of_the_skew_is() {
    for (columns, ends_in_ms) in [("clock_skew_ms = 1000", 30_000), ("skew_ms = 3600000", 300_000)] {
        let mut stolen = Stolen::new();
        stolen.victim_leases(ends_in_ms);
        stolen.set("fleets", columns);
        Stolen::refuses(stolen.number(&stolen.lease(7)), "cannot be taken before");
        stolen.set("fleets", "skew_ms = 3600000, clock_skew_ms = 3600000");
        assert!(stolen.number(&stolen.lease(7)).unwrap(), "{columns}");
    }
}

/// The thief reads everything of a lease but its secret.
#[test]
fn only_its_holder_changes_a_lease() {
    let mut stolen = Stolen::new();
    let held = stolen.victim_leases(300_000);
    let same = with(&stolen.lease(7), "holder", uuid(held.holder));
    let same = with(&with(&same, "from_ms", held.from_ms), "until_ms", held.until_ms);
    for until_ms in [held.from_ms, held.until_ms - 1, held.until_ms, held.until_ms + 1] {
        let change = with(&same, "until_ms", until_ms);
        Stolen::refuses(stolen.number(&change), "belongs to another server");
        Stolen::refuses(stolen.number(&with(&change, "secret", Value::Null)), "belongs to another server");
        let mut unnamed = change.clone();
        // What is not named must not stay as it was.
        unnamed.as_object_mut().unwrap().remove("secret");
        Stolen::refuses(stolen.number(&unnamed), "belongs to another server");
    }
    // A lease without a secret is no server's.
    stolen.set("numbers", "secret = NULL");
    Stolen::refuses(stolen.number(&with(&same, "secret", Value::Null)), "belongs to another server");
    stolen.set("numbers", &format!("secret = '{}'", uuid(VICTIM)));
    assert!(stolen.number(&with(&same, "secret", uuid(VICTIM))).unwrap());
    // Nor does the holder itself begin it anew, in ids that another server may have drawn.
    let first = stolen.lease(8);
    assert!(stolen.number(&first).unwrap());
    let same = with(&stolen.lease(8), "until_ms", first["until_ms"].clone());
    let from_ms = first["from_ms"].as_i64().unwrap();
    for from_ms in [from_ms - 1, from_ms + 1] {
        Stolen::refuses(stolen.number(&with(&same, "from_ms", from_ms)), "cannot begin at another time");
    }
    assert!(stolen.number(&with(&same, "from_ms", from_ms)).unwrap());
}

/// Not even by a lease that is empty.
#[test]
fn no_number_is_taken_away_for_longer_than_a_lease() {
    let mut stolen = Stolen::new();
    let (free, fleet) = (stolen.lease(8), stolen.reading().fleet);
    let from_ms = free["from_ms"].as_i64().unwrap();
    let latest_ms = from_ms + fleet.longest_ms + 2 * fleet.skew_ms;
    let lease = |from_ms: i64, until_ms: i64| with(&with(&free, "from_ms", from_ms), "until_ms", until_ms);
    let far = 9_224_318_015_999_999_i64;
    for (from_ms, until_ms) in [
        (from_ms, latest_ms + HOUR_MS),
        (from_ms, far),
        (latest_ms + HOUR_MS, latest_ms + HOUR_MS),
        (far, far),
        (i64::MAX, i64::MAX),
        (from_ms, i64::MAX),
    ] {
        Stolen::refuses(stolen.number(&lease(from_ms, until_ms)), "cannot end as late as");
    }
    // A freeze that lies ahead permits one that is empty, in the tick where it ends.
    stolen.set("fleets", &format!("generation = 2, freeze_ms = {}", latest_ms + HOUR_MS));
    let (frozen, latest_ms) = (with(&free, "generation", 2), latest_ms + HOUR_MS + 1000);
    let lease = |from_ms: i64, until_ms: i64| with(&with(&frozen, "from_ms", from_ms), "until_ms", until_ms);
    Stolen::refuses(stolen.number(&lease(latest_ms + 1, latest_ms + 1)), "cannot end as late as");
    Stolen::refuses(stolen.number(&lease(latest_ms - 1, latest_ms)), "cannot end as late as");
    // What no calendar has, and what ends before it begins, no table has, whoever writes.
    for (from_ms, until_ms) in [(i64::MIN, i64::MIN), (i64::MIN, from_ms), (latest_ms, latest_ms - 1)] {
        let refusal = refused(stolen.number(&with(&lease(from_ms, until_ms), "generation", 2)));
        assert!(["23514", "SF005"].contains(&refusal.sqlstate.as_str()), "{refusal:?}");
        println!("{}", refusal.message);
    }
    stolen.set("fleets", "freeze_ms = 0");
    for (from_ms, until_ms) in [(i64::MIN, i64::MIN), (i64::MIN, from_ms)] {
        let refusal = refused(stolen.number(&lease(from_ms, until_ms)));
        assert!(["23514", "SF005"].contains(&refusal.sqlstate.as_str()), "{refusal:?}");
        println!("{}", refusal.message);
    }
    assert!(stolen.number(&with(&free, "generation", 2)).unwrap());
}

#[test]
fn no_lease_begins_before_the_end_of_a_freeze_and_none_becomes_newer() {
    let mut stolen = Stolen::new();
    let first = stolen.lease(8);
    assert!(stolen.number(&first).unwrap());
    let until_ms = first["until_ms"].as_i64().unwrap();
    let freeze_ms = now_ms() + HOUR_MS;
    // In what is lost, another server may have had number 8 after this lease.
    stolen.set("fleets", &format!("generation = 2, horizon_ms = {}, freeze_ms = {freeze_ms}", until_ms + 1000));
    let own = stolen.lease(8);
    let next = with(&own, "holder", uuid(3));
    Stolen::refuses(stolen.number(&with(&next, "generation", 1)), "before the end of the freeze");
    Stolen::refuses(stolen.number(&next), "before the end of the freeze");
    Stolen::refuses(stolen.number(&with(&stolen.lease(7), "generation", 2)), "before the end of the freeze");
    // The thief's own lease, which would count as written after the loss.
    let own = with(&with(&own, "from_ms", first["from_ms"].clone()), "until_ms", until_ms);
    for end_ms in [until_ms + 1, until_ms, until_ms - 1] {
        Stolen::refuses(stolen.number(&with(&own, "until_ms", end_ms)), "may have changed hands");
    }
    Stolen::refuses(
        stolen.number(&with(&with(&own, "generation", 1), "until_ms", until_ms + 1)),
        "cannot be of generation 1, because the fleet has generation 2",
    );
    for generation in [0, 3, i64::MAX] {
        Stolen::refuses(stolen.number(&with(&own, "generation", generation)), "cannot be of generation");
    }
    // What is given back keeps its generation.
    assert!(stolen.number(&with(&with(&own, "generation", 1), "until_ms", until_ms - 1)).unwrap());
}

#[test]
fn only_numbers_in_the_range_are_leased() {
    let mut stolen = Stolen::new();
    for worker in [6, 9, i64::MAX] {
        Stolen::refuses(stolen.number(&stolen.lease(worker)), "is outside of the range 7 to 8");
    }
    assert_eq!(refused(stolen.number(&stolen.lease(-1))).sqlstate, "SF005");
    assert!(stolen.number(&stolen.lease(8)).unwrap());
    // A range that no server has brought yet has no number.
    let mut unknown = Stolen::with(|fleet| fleet);
    Stolen::refuses(unknown.number(&unknown.lease(7)), "is outside of the range NULL to NULL");
}

/// One answer has so many records at most.
#[test]
fn no_more_records_are_made_than_an_operator_can_read() {
    let mut stolen = Stolen::with(|fleet| Fleet {
        layout: Some((5, false)),
        range: Some((0, 1 << 40)),
        longest_ms: DEFAULT_LEASE_MS,
        skew_ms: DEFAULT_SKEW_MS,
        ..fleet
    });
    stolen.make_tag(false);
    stolen.set("tags", &format!("description = '{}'", "x".repeat(1000)));
    assert!(stolen.number(&stolen.lease(0)).unwrap());
    // As long as JSON can make them.
    let name = "\u{1}".repeat(255);
    let sql = "INSERT INTO snowflake_registry.numbers SELECT n.fleet, n.datacenter, w, n.holder, n.nonce, n.count, \
               n.server, n.from_ms, n.until_ms, n.generation, n.renewed_ms, n.offset_ms, $2, n.port, $2, $2, n.secret \
               FROM snowflake_registry.numbers n, generate_series(1, $3::bigint) w WHERE n.fleet = $1";
    let most = 120_000_i64;
    stolen.owner.execute(sql, &[&stolen.fleet, &name, &(most - 4)]).unwrap();
    // An operator may have removed the layout of a wrong first server. These are of other parts.
    for (worker, datacenter) in [(most - 3, 63), (most - 2, i32::MAX)] {
        assert!(stolen.number(&with(&stolen.lease(worker), "datacenter", datacenter)).unwrap());
    }
    assert!(stolen.number(&stolen.lease(most - 1)).unwrap());
    Stolen::refuses(stolen.number(&stolen.lease(most)), "would be one record too many");
    // What is there is leased anew.
    stolen.set("numbers", &format!("until_ms = greatest(from_ms, {})", now_ms()));
    assert!(stolen.number(&with(&stolen.lease(most - 1), "holder", uuid(3))).unwrap());
    let count = "SELECT count(*) FROM snowflake_registry.numbers WHERE fleet = $1";
    assert_eq!(stolen.owner.query_one(count, &[&stolen.fleet]).unwrap().get::<_, i64>(0), most);
    for arguments in [&["show"][..], &["check"], &["restored"]] {
        let said = server().operate_once(&[&["--fleet", &stolen.fleet], arguments].concat());
        // The check finds that something is BAD.
        assert!([Some(0), Some(4)].contains(&said.status.code()), "{arguments:?}: {said:?}");
        assert!(!said.stdout.is_empty() && said.stderr.is_empty(), "{arguments:?}");
    }
}

/// Otherwise each of them would count without the others' records.
#[test]
fn open_transactions_make_records_one_after_the_other() {
    let mut stolen = Stolen::new();
    let base = stolen.victim_leases(20_000);
    let old = stolen.lease(8);
    let mut sleeper = server().connect_as(ROLE);
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1";
    sleeper.batch_execute(snapshot).unwrap();
    // Also in a savepoint, whose own lock ends with it.
    stolen.thief.batch_execute("BEGIN; SAVEPOINT s").unwrap();
    assert!(stolen.number(&old).unwrap());
    stolen.thief.batch_execute("RELEASE s").unwrap();
    let pid: i32 = stolen.thief.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);

    // Another server gets no new number, and is told why.
    let (hasty, reading) =
        (Config { timeout: Duration::from_secs(1), ..stolen.victim.config().clone() }, stolen.reading());
    let hasty = Postgres::new(hasty, Poll);
    let swap = |reading: &Reading, was| {
        let record = NumberRecord { nonce: 33, count: base.count + 1, ..base };
        let worker = if was { 7 } else { 8 };
        let was = was.then_some(base.nonce);
        Swap::after(reading, vec![RecordChange::Number { number: number(worker), was, record }])
    };
    match hasty.swap(&swap(&reading, false)) {
        Err(RegistryError::Locked(Some(by))) => assert!(by.contains(&format!("process {pid} (")), "{by}"),
        other => panic!("{other:?}"),
    }
    // The one that has a number renews it.
    assert!(matches!(hasty.swap(&swap(&stolen.reading(), true)), Ok(SwapAnswer::Done(_))));
    let output = server().operator().args(["check", "--fleet", &stolen.fleet]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("\nBAD   numbers     new numbers of 1 of 64 parts cannot be leased")
            && said.contains(&format!("process {pid}")),
        "{said}"
    );
    stolen.thief.batch_execute("COMMIT").unwrap();

    // A transaction whose snapshot is older sees too few records of the part.
    stolen.thief = sleeper;
    let refusal = refused(stolen.number(&with(&old, "datacenter", 63)));
    assert_eq!(refusal.sqlstate, "40001", "{refusal:?}");
}

/// Neither by a wait for another lock, nor behind sessions that come and go.
#[test]
fn the_session_that_holds_new_numbers_up_cannot_hide() {
    let mut stolen = Stolen::new();
    let mut other = server().connect_as(ROLE);
    other.batch_execute("SELECT pg_advisory_lock(52)").unwrap();
    let mut holder = server().connect_as(ROLE);
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let (holds, flickers) =
        (format!("{}; SELECT pg_advisory_lock(52)", stolen.holds(8)), format!("{}; ROLLBACK", stolen.holds(7)));
    let holding = thread::spawn(move || holder.batch_execute(&holds));
    let is_waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)";
    wait_until("the holder waits", || stolen.owner.query_one(is_waiting, &[&pid]).unwrap().get(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let flickering = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut session = server().connect_as(ROLE);
            // Relaxed: only the flag itself matters.
            while !is_over.load(Ordering::Relaxed) {
                session.batch_execute(&flickers).unwrap();
            }
        }
    });
    let said = stolen.checked();
    is_over.store(true, Ordering::Relaxed);
    flickering.join().unwrap();
    assert!(said.contains(" BAD numbers ") && said.contains(&format!("process {pid} (transaction")), "{said}");
    let hasty = Config { timeout: Duration::from_secs(1), ..stolen.victim.config().clone() };
    let reading = stolen.reading();
    let record = NumberRecord { holder: 1, nonce: 33, ..stolen.victim_leases(20_000) };
    let swap = Swap::after(&reading, vec![RecordChange::Number { number: number(8), was: None, record }]);
    match Postgres::new(hasty, Poll).swap(&swap) {
        Err(RegistryError::Locked(Some(by))) => assert!(by.contains(&format!("process {pid} (")), "{by}"),
        other => panic!("{other:?}"),
    }
    drop(other);
    holding.join().unwrap().unwrap();
}

#[test]
fn numbers_of_another_fleet_and_of_other_parts_are_not_held_up() {
    let (stolen, other) = (Stolen::new(), Stolen::new());
    let mut holder = server().connect_as(ROLE);
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    holder.batch_execute(&stolen.holds(8)).unwrap();
    let said = other.checked();
    assert!(!said.contains(" BAD numbers "), "{said}");
    let said = stolen.checked();
    let found = " BAD numbers new numbers of 1 of 64 parts cannot be leased, because a transaction does not end";
    assert!(said.contains(found) && said.contains(&format!("process {pid} (")), "{said}");
}

#[test]
fn no_record_is_made_of_a_datacenter_that_the_layout_does_not_have() {
    for (name, allowed, refused) in [("twitter", &[0, 31][..], &[-1, 32, i32::MAX][..]), ("snowflake", &[-1], &[0, 1])]
    {
        let layout = Layout::parse(name).unwrap();
        let mut stolen = Stolen::with(|fleet| Fleet {
            layout: Some((layout.fingerprint(), false)),
            range: Some((7, 8)),
            longest_ms: DEFAULT_LEASE_MS,
            skew_ms: DEFAULT_SKEW_MS,
            ..fleet
        });
        for datacenter in refused {
            let answer = stolen.number(&with(&stolen.lease(7), "datacenter", *datacenter));
            Stolen::refuses(answer, "is of a datacenter that the fleet's layout does not have");
        }
        for datacenter in allowed {
            assert!(stolen.number(&with(&stolen.lease(7), "datacenter", *datacenter)).unwrap(), "{datacenter}");
        }
    }
}

/// The file has the layouts' fingerprints.
#[test]
fn the_registry_knows_the_datacenters_of_each_built_in_layout() {
    let sql = std::fs::read_to_string(cluster::registry::registry_sql()).unwrap();
    let (_, rest) = sql.split_once("WHEN f.layout IN (").unwrap();
    let (with_field, rest) = rest.split_once(')').unwrap();
    let (_, rest) = rest.split_once("WHEN f.layout IN (").unwrap();
    let (without, _) = rest.split_once(')').unwrap();
    for (name, _) in BUILT_IN {
        let layout = Layout::parse(name).unwrap();
        let greatest = layout.max_of(Field::Datacenter);
        let is_in = [with_field, without].map(|list| list.contains(&layout.fingerprint().to_string()));
        assert_eq!(is_in, [greatest == Some(31), greatest.is_none()], "{name}");
    }
}

/// A thief deletes nothing, and an operator deletes what is over.
#[test]
fn only_records_that_are_over_are_deleted_and_only_by_operators() {
    let mut stolen = Stolen::with(|fleet| Fleet {
        layout: Some((5, false)),
        range: Some((7, 9)),
        longest_ms: DEFAULT_LEASE_MS,
        skew_ms: DEFAULT_SKEW_MS,
        ..fleet
    });
    let held = stolen.victim_leases(HOUR_MS / 12);
    assert!(stolen.number(&stolen.lease(8)).unwrap());
    let ago_ms = now_ms() - HOUR_MS;
    let is_eight = format!("from_ms = CASE worker WHEN 8 THEN {} ELSE from_ms END, ", ago_ms - 1000);
    stolen.set("numbers", &format!("{is_eight} until_ms = CASE worker WHEN 8 THEN {ago_ms} ELSE until_ms END"));
    let eight = stolen.reading().numbers[&number(8)];
    let delete = json!({"datacenter": -1, "worker": 8, "was": eight.nonce.cast_signed(), "delete": true});
    Stolen::refuses(stolen.number(&delete), "a server cannot delete the record of a number");
    // By SQL nothing is deleted that ends after the freeze.
    let sql = format!("DELETE FROM snowflake_registry.numbers WHERE fleet = '{}'", stolen.fleet);
    assert_eq!(refused(stolen.owner.batch_execute(&sql)).sqlstate, "55000");
    // Never waits: all that the other tests do would wait behind it for their open transactions.
    let truncate = "SET LOCAL lock_timeout = '1ms'; TRUNCATE snowflake_registry.numbers";
    wait_until("nobody has the records locked", || {
        let refusal = refused(stolen.owner.batch_execute(truncate));
        assert!(["55000", "55P03"].contains(&&*refusal.sqlstate), "{refusal:?}");
        refusal.sqlstate == "55000"
    });
    let operate = |fleet: &str| server().operate(&["drop-numbers", "--fleet", fleet]);
    assert!(operate(&stolen.fleet).contains("The records of 1 number are deleted, "));
    let reading = stolen.reading();
    assert_eq!(reading.numbers.keys().map(|number| number.worker).collect::<Vec<_>>(), [7]);
    assert!(reading.fleet.freeze_ms > ago_ms && reading.fleet.freeze_ms < now_ms());
    assert_eq!(reading.numbers[&number(7)].nonce, held.nonce);
    // The history keeps the end of its last lease.
    let sql = "SELECT until_ms FROM snowflake_registry.history WHERE fleet = $1 AND worker = 8";
    assert_eq!(stolen.owner.query_one(sql, &[&stolen.fleet]).unwrap().get::<_, Option<i64>>(0), Some(ago_ms));
    // Nobody leases it for times before that.
    let early = with(&with(&stolen.lease(8), "from_ms", ago_ms), "until_ms", ago_ms + 10);
    Stolen::refuses(stolen.number(&early), "before the end of the freeze");
    assert!(stolen.number(&stolen.lease(8)).unwrap());
}

#[test]
fn more_records_are_deleted_than_one_swap_has() {
    let mut stolen = Stolen::with(|fleet| Fleet {
        layout: Some((5, false)),
        range: Some((0, 999)),
        longest_ms: DEFAULT_LEASE_MS,
        skew_ms: DEFAULT_SKEW_MS,
        ..fleet
    });
    assert!(stolen.number(&stolen.lease(0)).unwrap());
    let ago_ms = now_ms() - HOUR_MS;
    stolen.set("numbers", &format!("from_ms = {}, until_ms = {ago_ms}", ago_ms - 1000));
    let sql = "INSERT INTO snowflake_registry.numbers SELECT n.fleet, n.datacenter, w, n.holder, n.nonce, n.count, \
               n.server, n.from_ms, n.until_ms, n.generation, n.renewed_ms, n.offset_ms, n.host, n.port, \
               n.cluster_name, n.version, n.secret FROM snowflake_registry.numbers n, generate_series(1, 250) w \
               WHERE n.fleet = $1";
    stolen.owner.execute(sql, &[&stolen.fleet]).unwrap();
    let would = server().operate(&["drop-numbers", "--dry-run", "--fleet", &stolen.fleet]);
    assert!(would.contains("records of 251 numbers are deleted") && would.lines().count() < 9, "{would}");
    let said = server().operate(&["drop-numbers", "--fleet", &stolen.fleet]);
    assert!(said.contains("The records of 251 numbers are deleted, "), "{said}");
    assert!(stolen.reading().numbers.is_empty());
}

#[test]
fn a_count_leaves_room_for_the_next_one_and_a_nonce_is_another() {
    let mut stolen = Stolen::new();
    let held = stolen.victim_leases(1000);
    let (free, next) = (stolen.lease(8), stolen.lease(7));
    for count in [i64::MIN, -1, 0, now_ms() + HOUR_MS, i64::MAX] {
        Stolen::refuses(stolen.number(&with(&free, "count", count)), "cannot have count");
    }
    Stolen::refuses(stolen.number(&with(&next, "count", held.count)), "cannot have count 1, only 2 to");
    Stolen::refuses(stolen.number(&with(&next, "nonce", held.nonce)), "needs another nonce");
    // It would not be told from a number that an operator keeps.
    Stolen::refuses(stolen.number(&with(&free, "server", 0)), "needs the fingerprint of a server");
    assert!(stolen.number(&with(&free, "count", stolen.reading().now_ms)).unwrap());
    assert!(stolen.number(&next).unwrap());
}

#[test]
fn what_an_operator_keeps_stays_kept() {
    let mut stolen = Stolen::new();
    let reading = stolen.reading();
    let until_ms = reading.now_ms + 10 * 24 * HOUR_MS;
    let kept = NumberRecord {
        holder: 9,
        nonce: 9,
        count: 1,
        server: 0,
        from_ms: reading.now_ms,
        until_ms,
        generation: 1,
        renewed_ms: 0,
        offset_ms: 0,
    };
    written(&stolen.operator, &reading, RecordChange::Number { number: number(8), was: None, record: kept });
    let next = stolen.lease(8);
    Stolen::refuses(stolen.number(&next), "cannot be taken before");
    Stolen::refuses(stolen.number(&with(&next, "until_ms", until_ms)), "cannot be taken before");
    let same = with(&with(&next, "holder", uuid(9)), "from_ms", kept.from_ms);
    for end_ms in [kept.from_ms, until_ms - 1, until_ms] {
        for secret in [Value::Null, json!(uuid(THIEF))] {
            let change = with(&with(&same, "until_ms", end_ms), "secret", secret);
            Stolen::refuses(stolen.number(&change), "belongs to another server");
        }
    }
    // Also one that is reserved twice until the same instant, so that its record is empty.
    let reading = stolen.reading();
    let until_ms = reading.now_ms + 300_000;
    for (was, from_ms, nonce) in [(None, reading.now_ms, 10), (Some(10), until_ms, 11)] {
        let record = NumberRecord { nonce, count: nonce, from_ms, until_ms, ..kept };
        written(&stolen.operator, &reading, RecordChange::Number { number: number(7), was, record });
    }
    Stolen::refuses(stolen.number(&stolen.lease(7)), "cannot be taken before");
    stolen.set("numbers", &format!("from_ms = 0, until_ms = {}", now_ms()));
    assert!(stolen.number(&stolen.lease(8)).unwrap());
}

// The fleet

#[test]
fn a_server_changes_nothing_of_the_operators_in_a_fleet() {
    let mut stolen = Stolen::new();
    let fleet = stolen.fleet();
    for (name, value) in [
        ("uuid", json!(uuid(77))),
        ("layout", json!(6)),
        ("layout", Value::Null),
        ("backup", json!(true)),
        ("first_worker", json!(0)),
        ("last_worker", json!(1023)),
        ("last_worker", Value::Null),
        ("loses_nothing", json!(true)),
        ("closed", json!(true)),
        ("longest_ms", json!(DEFAULT_LEASE_MS + 1)),
        ("longest_ms", json!(0)),
        ("longest_ms", Value::Null),
        ("skew_ms", json!(1)),
        ("lease_ms", json!(1)),
        ("clock_skew_ms", json!(1)),
    ] {
        Stolen::refuses(
            stolen.swap(Some(&with(&fleet, name, value)), None, None),
            "cannot change what an operator sets",
        );
        let mut unnamed = fleet.clone();
        unnamed.as_object_mut().unwrap().remove(name);
        Stolen::refuses(stolen.swap(Some(&unnamed), None, None), "cannot change what an operator sets");
    }
    for (name, value, words) in [
        ("version", json!(stolen.reading().fleet.version.cast_signed()), "needs another version"),
        ("store", json!(1), "this is store"),
        ("timeline", json!(7), "this is store"),
        ("horizon_ms", json!(0), "cannot follow generation 1"),
        ("freeze_ms", json!(0), "cannot follow generation 1"),
    ] {
        Stolen::refuses(stolen.swap(Some(&with(&fleet, name, value)), None, None), words);
    }
    // Of another fleet, and of its name, it changes nothing either.
    assert!(stolen.swap(Some(&with(&fleet, "name", "default")), None, None).unwrap());
    let name = stolen.fleet.clone();
    assert!(stolen.operator.fleets().unwrap().contains(&name));
}

/// A registry that has lost the first server's limits must get the same ones again.
#[test]
fn every_first_server_brings_the_same_limits() {
    let mut stolen = Stolen::with(|fleet| fleet);
    let reading = stolen.reading();
    let begun = reading.fleet.begin_generation(reading.incarnation, reading.now_ms, FleetLimits::default(), 77);
    let fleet = with(&stolen.fleet(), "layout", 5);
    let fleet = with(&with(&with(&fleet, "backup", false), "first_worker", 0), "last_worker", 1023);
    for (longest_ms, skew_ms) in
        [(0, 0), (12_000, DEFAULT_SKEW_MS), (DEFAULT_LEASE_MS, 10), (DEFAULT_LEASE_MS + 1, DEFAULT_SKEW_MS)]
    {
        let limited = with(&with(&fleet, "longest_ms", longest_ms), "skew_ms", skew_ms);
        let frozen = with(&with(&limited, "generation", 2), "horizon_ms", begun.horizon_ms);
        let frozen = with(&frozen, "freeze_ms", begun.freeze_ms + HOUR_MS);
        for fleet in [limited, frozen] {
            Stolen::refuses(stolen.swap(Some(&fleet), None, None), "the limits of a fleet");
        }
    }
    let fleet = with(&with(&fleet, "longest_ms", DEFAULT_LEASE_MS), "skew_ms", DEFAULT_SKEW_MS);
    assert!(stolen.swap(Some(&fleet), None, None).unwrap());
}

#[test]
fn no_freeze_is_cut_short_and_none_lasts_for_ever() {
    let mut stolen = Stolen::new();
    let reading = stolen.reading();
    let begun = reading.fleet.begin_generation(reading.incarnation, reading.now_ms, FleetLimits::default(), 99);
    let fleet = stolen.fleet();
    let freeze = |generation: u64, horizon_ms: i64, freeze_ms: i64| {
        with(&with(&with(&fleet, "generation", generation), "horizon_ms", horizon_ms), "freeze_ms", freeze_ms)
    };
    let (horizon_ms, freeze_ms) = (begun.horizon_ms, begun.freeze_ms);
    for generation in [0, 3, i64::MAX as u64] {
        let fleet = freeze(generation, horizon_ms, freeze_ms);
        Stolen::refuses(stolen.swap(Some(&fleet), None, None), "cannot follow generation 1");
    }
    for (horizon_ms, freeze_ms) in
        [(i64::MIN, i64::MIN), (horizon_ms, horizon_ms), (horizon_ms - 120_000, freeze_ms - 120_000), (0, freeze_ms)]
    {
        let fleet = freeze(2, horizon_ms, freeze_ms);
        Stolen::refuses(stolen.swap(Some(&fleet), None, None), "cannot begin with a freeze until");
    }
    let most_ms = reading.now_ms + MONTH_MS + 2 * HOUR_MS;
    for (horizon_ms, freeze_ms) in [
        (i64::MAX, i64::MAX),
        (horizon_ms, i64::MAX),
        (most_ms, most_ms + DEFAULT_LEASE_MS),
        (horizon_ms, most_ms + HOUR_MS),
    ] {
        let fleet = freeze(2, horizon_ms, freeze_ms);
        Stolen::refuses(stolen.swap(Some(&fleet), None, None), "a freeze cannot last until");
    }
    assert!(stolen.swap(Some(&freeze(2, horizon_ms, most_ms)), None, None).unwrap());
}

/// A registry that shows another timeline may have lost leases. Only a new generation hides that,
/// with its freeze, unless an operator vouches for its standby.
#[test]
fn no_failover_is_hidden() {
    let mut stolen = Stolen::new();
    let now = stolen.reading().incarnation;
    let back = |stolen: &mut Stolen| {
        let (mut fleet, now) = (stolen.fleet(), stolen.reading().incarnation);
        fleet["store"] = json!(now.store.cast_signed());
        fleet["timeline"] = json!(now.timeline);
        fleet
    };
    // As if the record had been written two failovers before.
    stolen.set("fleets", &format!("timeline = {}", now.timeline.cast_signed() - 2));
    let same = back(&mut stolen);
    Stolen::refuses(stolen.swap(Some(&same), None, None), "cannot stay in generation 1");
    let reading = stolen.reading();
    let begun = reading.fleet.begin_generation(now, reading.now_ms, FleetLimits::default(), 99);
    let begun = with(&with(&same, "horizon_ms", begun.horizon_ms), "freeze_ms", begun.freeze_ms);
    // Tags jump once for each generation.
    Stolen::refuses(stolen.swap(Some(&with(&begun, "generation", 2)), None, None), "cannot follow generation 1");
    Stolen::refuses(stolen.swap(Some(&with(&begun, "generation", 4)), None, None), "cannot follow generation 1");
    assert!(stolen.swap(Some(&with(&begun, "generation", 3)), None, None).unwrap());

    stolen.set("fleets", &format!("loses_nothing = true, timeline = {}", now.timeline.cast_signed() - 1));
    let same = back(&mut stolen);
    assert!(stolen.swap(Some(&same), None, None).unwrap());
    // A synchronous standby says nothing of another store.
    stolen.set("fleets", "store = store + 1");
    let same = back(&mut stolen);
    Stolen::refuses(stolen.swap(Some(&same), None, None), "cannot stay in generation 3");
}

// Tags

#[test]
fn a_server_changes_nothing_of_the_operators_in_a_tag_and_makes_and_deletes_none() {
    let mut stolen = Stolen::new();
    stolen.make_tag(true);
    let block = stolen.block();
    for (name, value) in [
        ("id", json!(1)),
        ("least_step", json!(1)),
        ("greatest_step", json!(10_000_000)),
        ("jumps", json!(false)),
        ("jumps", Value::Null),
        ("id", Value::Null),
    ] {
        Stolen::refuses(stolen.tag(&with(&block, name, value)), "has what only an operator sets");
    }
    Stolen::refuses(stolen.tag(&with(&block, "nonce", block["was"].clone())), "needs another nonce");
    for name in ["next_value", "nonce", "generation", "returnable_from"] {
        Stolen::refuses(stolen.tag(&with(&block, name, Value::Null)), "lacks a value");
    }
    let new = with(&with(&block, "tag", "invoices"), "was", Value::Null);
    Stolen::refuses(stolen.tag(&new), "cannot make or delete a tag");
    Stolen::refuses(stolen.tag(&with(&block, "delete", true)), "cannot make or delete a tag");
    assert!(stolen.tag(&with(&block, "description", "mine")).unwrap());
    // A restore jumps the further, the older a record says that it is.
    assert!(stolen.orders().written_ms > now_ms() - HOUR_MS);
    assert_eq!(stolen.operator.descriptions().unwrap()[&orders()], "not for servers");
}

#[test]
fn one_call_does_not_use_up_a_tag() {
    let mut stolen = Stolen::new();
    stolen.make_tag(false);
    let block = stolen.block();
    let next = stolen.orders().next;
    for far in [next + FARTHEST + 21, END - 1, END] {
        let far = with(&with(&block, "next_value", far), "returnable_from", far);
        Stolen::refuses(stolen.tag(&far), "cannot go on from 1 to");
    }
    let far = with(&with(&block, "next_value", next + FARTHEST + 20), "returnable_from", next + FARTHEST);
    let twice = json!([far, with(&far, "next_value", next + FARTHEST + 10)]);
    assert_eq!(refused(stolen.swap(None, None, Some(&twice))).sqlstate, "40001");
    assert_eq!(stolen.orders().next, next);
    assert!(stolen.tag(&far).unwrap());
}

/// What servers have had since the registry lost something may have been lost with it.
#[test]
fn a_tag_is_not_used_without_its_jumps() {
    let mut stolen = Stolen::new();
    stolen.make_tag(true);
    // Not even by the server that has had the last block.
    assert!(stolen.tag(&stolen.block()).unwrap());
    stolen.set("fleets", "generation = 3");
    let (block, next) = (stolen.block(), stolen.orders().next);
    let jumped = next + 2 * JUMP;
    for value in [next + 10, jumped - 1, jumped] {
        Stolen::refuses(stolen.tag(&with(&block, "next_value", value)), "cannot go on from");
    }
    // Nor by what is given back from there.
    let block = with(&block, "next_value", jumped + 10);
    for value in [i64::MIN, 1, next, jumped - 1] {
        Stolen::refuses(stolen.tag(&with(&block, "returnable_from", value)), "cannot be given back from");
    }
    for generation in [0, 1, 2, 4] {
        let block = with(&with(&block, "returnable_from", jumped), "generation", generation);
        Stolen::refuses(stolen.tag(&block), "cannot be of generation");
    }
    assert!(stolen.tag(&with(&block, "returnable_from", jumped)).unwrap());
}

#[test]
fn a_stopped_tag_is_not_opened() {
    let mut stolen = Stolen::new();
    stolen.make_tag(false);
    assert!(stolen.tag(&stolen.block()).unwrap());
    stolen.set("fleets", "generation = 2");
    let (block, next) = (stolen.block(), stolen.orders().next);
    for (generation, value) in [(2, next + 10), (1, next), (1, next - 5), (0, next + 10)] {
        let change = with(&with(&block, "generation", generation), "next_value", value);
        Stolen::refuses(stolen.tag(&change), "does not jump, and waits for an operator");
    }
    let told = with(&block, "generation", 1);
    Stolen::refuses(stolen.tag(&with(&told, "next_value", next + FARTHEST + 21)), "cannot go on from");
    // What it tells is not its own, so that it does not come back when the tag goes on.
    assert!(stolen.tag(&with(&told, "returnable_from", 0)).unwrap());
    stolen.set("tags", "jumps = true, next_value = next_value + 1000");
    let next = stolen.orders().next;
    let back = with(&with(&stolen.block(), "next_value", next - 1), "returnable_from", END);
    Stolen::refuses(stolen.tag(&back), "cannot go on from");
}

/// The values from 1 to 40 are the victim's. The thief knows the tag's nonce, but not the secret.
#[test]
fn values_of_another_server_are_not_given_back() {
    let mut stolen = Stolen::new();
    stolen.make_tag(false);
    assert_eq!(Stolen::reserves(&stolen.victim, None, 101), (1, 21));
    assert_eq!(Stolen::reserves(&stolen.victim, Some(101), 102), (21, 41));
    assert_eq!(stolen.orders().returnable, 1);
    let back = |stolen: &Stolen, next: i64| with(&with(&stolen.block(), "next_value", next), "returnable_from", END);
    for next in [i64::MIN, 1, 21, 40, 41] {
        let change = back(&stolen, next);
        Stolen::refuses(stolen.tag(&change), "cannot go on from");
        Stolen::refuses(stolen.tag(&with(&change, "secret", Value::Null)), "cannot go on from");
        let mut unnamed = change.clone();
        unnamed.as_object_mut().unwrap().remove("secret");
        Stolen::refuses(stolen.tag(&unnamed), "cannot go on from");
    }
    // It reserves a block, and says in each way that its own goes back further.
    for from in [i64::MIN, 0, 1, 40] {
        Stolen::refuses(stolen.tag(&with(&stolen.block(), "returnable_from", from)), "cannot be given back from");
    }
    assert!(stolen.tag(&stolen.block()).unwrap());
    for from in [i64::MIN, 1, 40] {
        Stolen::refuses(stolen.tag(&with(&stolen.block(), "returnable_from", from)), "cannot be given back from");
    }
    for next in [1, 40] {
        Stolen::refuses(stolen.tag(&back(&stolen, next)), "cannot go on from");
    }
    // Its own comes back once, to where it began.
    Stolen::refuses(stolen.tag(&with(&back(&stolen, 41), "returnable_from", 41)), "cannot go on from");
    assert!(stolen.tag(&back(&stolen, 41)).unwrap());
    Stolen::refuses(stolen.tag(&back(&stolen, 40)), "cannot go on from");
    // Without a secret, a block is no server's.
    assert!(stolen.tag(&with(&stolen.block(), "secret", Value::Null)).unwrap());
    Stolen::refuses(stolen.tag(&with(&back(&stolen, 41), "secret", Value::Null)), "cannot go on from");
    // The victim's blocks are not the last any more.
    let given = Return { tag: orders(), id: stolen.orders().id, was: 102, first: 21, nonce: 103 };
    let reading = stolen.reading();
    assert_eq!(stolen.orders().take_back(&given, &reading.fleet, reading.now_ms), None);
}

/// A server has two blocks at most.
#[test]
fn no_more_comes_back_than_two_blocks() {
    let mut stolen = Stolen::new();
    stolen.make_tag(false);
    let mut was = None;
    for nonce in [201, 202, 203] {
        Stolen::reserves(&stolen.store, was, nonce);
        was = Some(nonce);
    }
    assert_eq!((stolen.orders().next, stolen.orders().returnable), (61, 1));
    let back = |next: i64| with(&with(&stolen.block(), "next_value", next), "returnable_from", END);
    let (more, most) = (back(20), back(21));
    Stolen::refuses(stolen.tag(&more), "cannot go on from 61 to 20");
    assert!(stolen.tag(&most).unwrap());
    // In another generation, nothing does.
    let mut lost = Stolen::new();
    lost.make_tag(true);
    Stolen::reserves(&lost.store, None, 201);
    lost.set("fleets", "generation = 2");
    let back = with(&with(&lost.block(), "next_value", 11), "returnable_from", END);
    Stolen::refuses(lost.tag(&back), "cannot go on from");
}

// What a call may be

#[test]
fn nothing_is_written_without_a_comparison_and_nothing_as_an_operator() {
    let mut stolen = Stolen::new();
    stolen.make_tag(false);
    let (number, tag) = (stolen.lease(8).to_string(), stolen.block().to_string());
    let before = stolen.reading();
    let swap = |compared: &str, operator: &str| {
        format!(
            "SELECT done FROM snowflake_registry.swap('{}', 0, {compared}, {operator}, NULL, '[{number}]', '[{tag}]')",
            stolen.fleet
        )
    };
    let incarnation = format!("{}, {}", before.incarnation.store.cast_signed(), before.incarnation.timeline);
    let right = format!("{}, {incarnation}", before.fleet.version.cast_signed());
    let operator = [swap(&right, "true"), swap(&right, "NULL")];
    let wrong = [
        swap("NULL, NULL, NULL", "false"),
        swap(&format!("NULL, {incarnation}"), "false"),
        swap(&format!("{}, {incarnation}", before.fleet.version.cast_signed() ^ 1), "false"),
        swap(&format!("{}, NULL, NULL", before.fleet.version.cast_signed()), "false"),
    ];
    for sql in wrong {
        assert_eq!(stolen.thief.value(&sql), "false", "{sql}");
    }
    for sql in operator {
        let refusal = refused(stolen.thief.query(&sql, &[]));
        assert_eq!(refusal.sqlstate, "42501", "{refusal:?}");
        assert!(refusal.message.contains("is not an operator of the registry"), "{refusal:?}");
        // Whatever it has set before.
        stolen.thief.batch_execute("SET snowflake_registry.writer = 'operator'").unwrap();
    }
    let change = with(&stolen.lease(8), "until_ms", now_ms() + 24 * HOUR_MS);
    Stolen::refuses(stolen.number(&change), "cannot end as late as");
    // Another server has changed the tag, so the number is not written either.
    let (numbers, tags) = (json!([stolen.lease(8)]), json!([with(&stolen.block(), "was", 5)]));
    assert!(!stolen.swap(None, Some(&numbers), Some(&tags)).unwrap());
    assert_eq!(stolen.reading().numbers, before.numbers);
    // A fleet that is closed takes nothing from a server.
    stolen.set("fleets", "closed = true");
    assert!(!stolen.number(&stolen.lease(8)).unwrap());
    let reading = stolen.reading();
    let open = Fleet { closed: false, version: 77, ..reading.fleet };
    written(&stolen.operator, &reading, RecordChange::Fleet(open));
    assert!(stolen.number(&stolen.lease(8)).unwrap());
}

#[test]
fn whatever_json_is_sent_nothing_is_written_by_halves() {
    let mut stolen = Stolen::new();
    stolen.make_tag(false);
    stolen.victim_leases(300_000);
    // Other tests change their own fleets meanwhile.
    let rows = "SELECT concat((SELECT string_agg(f::text, '' ORDER BY f::text) FROM snowflake_registry.fleets f \
                 WHERE f.name IN ($1, 'default')), \
                (SELECT string_agg(n::text, '' ORDER BY n::text) FROM snowflake_registry.numbers n \
                 WHERE n.fleet = $1), (SELECT string_agg(t::text, '' ORDER BY t::text) \
                 FROM snowflake_registry.tags t WHERE t.fleet = $1))";
    let name = stolen.fleet.clone();
    let all = move |owner: &mut Client| owner.query_one(rows, &[&name]).unwrap().get::<_, String>(0);
    let before = all(&mut stolen.owner);
    let (fleet, lease, block) = (stolen.fleet(), stolen.lease(8), stolen.block());
    let odd = || {
        let texts = ["", "NaN", "infinity", "0x", "1e400", "5;", "\u{1}"].map(|text| json!(text));
        let numbers = [json!(0.5), json!(-0.5), json!(1e300), json!(u64::MAX), json!(i64::MIN)];
        [texts.to_vec(), numbers.to_vec(), vec![Value::Null, json!({}), json!([]), json!([1]), json!(true)]].concat()
    };
    // What only people read, and a secret, may be anything.
    let free = ["host", "cluster_name", "version", "secret", "offset_ms", "renewed_ms", "written_ms", "server"];
    // A place of a record has another kind of value, or none.
    for (record, is_tag) in [(&lease, false), (&block, true)] {
        for key in record.as_object().unwrap().keys().filter(|key| !free.contains(&key.as_str())) {
            for value in odd().into_iter().filter(|value| record[key] != *value) {
                // Any number is a nonce.
                if key == "nonce" && value.is_i64() {
                    continue;
                }
                let change = json!([with(record, key, value)]);
                let (numbers, tags) = if is_tag { (None, Some(&change)) } else { (Some(&change), None) };
                // A wrong name finds nothing.
                assert!(!stolen.swap(None, numbers, tags).unwrap_or(false), "{change}");
            }
        }
    }
    assert_eq!(all(&mut stolen.owner), before);
    // The whole has another form.
    let many = |record: &Value, count: usize| Value::from(vec![record.clone(); count]);
    for whole in [json!({}), json!(5), json!("x"), Value::Null, json!([5]), json!([null]), json!([[]]), json!([{}])] {
        for place in 0..3 {
            let mut values = [None; 3];
            values[place] = Some(&whole);
            assert!(!stolen.swap(values[0], values[1], values[2]).unwrap_or(false), "{whole} {place}");
        }
    }
    for count in [2, 100, 101, 10_000] {
        for answer in
            [stolen.swap(None, Some(&many(&lease, count)), None), stolen.swap(None, None, Some(&many(&block, count)))]
        {
            let refusal = refused(answer);
            let sqlstate = if count > 100 { "SF005" } else { "40001" };
            assert_eq!(refusal.sqlstate, sqlstate, "{count}: {refusal:?}");
        }
    }
    // One change of many is not permitted.
    let wrong = with(&stolen.lease(7), "count", 0);
    let numbers = json!([lease, wrong]);
    assert!(stolen.swap(Some(&fleet), Some(&numbers), Some(&json!([block]))).is_err());
    assert_eq!(all(&mut stolen.owner), before);
    // A record of another fleet, and columns that are none.
    let other = with(&with(&lease, "fleet", "default"), "nothing", json!({"deep": [1, 2]}));
    assert!(stolen.number(&other).unwrap());
    assert_eq!(stolen.owner.value("SELECT count(*) FROM snowflake_registry.numbers WHERE fleet = 'default'"), "0");
    assert_eq!(stolen.reading().numbers.len(), 2);
}

/// Neither a secret, nor what only people read, nor which tags there are.
#[test]
fn nothing_is_shown_that_a_server_does_not_need() {
    let mut stolen = Stolen::new();
    stolen.make_tag(false);
    stolen.victim_leases(300_000);
    Stolen::reserves(&stolen.victim, None, 101);
    let secrets = ["efabcdefabcd", "member", "not for servers"];
    let read = |numbers: &str, tags: &str| {
        format!(
            "SELECT string_agg(kind || record, '') FROM snowflake_registry.read('{}', '{numbers}', -1, 7, {tags})",
            stolen.fleet
        )
    };
    let (shown, listed) =
        (["one", "datacenter", "all"].map(|numbers| read(numbers, "'{orders}'")), read("none", "NULL"));
    for sql in shown {
        let shown = stolen.thief.value(&sql);
        assert!(shown.contains("next_value") && shown.contains("until_ms"), "{shown}");
        assert!(!secrets.iter().any(|secret| shown.contains(secret)), "{shown}");
    }
    assert_eq!(refused(stolen.thief.query(&listed, &[])).sqlstate, "42501");
    assert!(matches!(stolen.store.read(&Wanted::all()), Err(RegistryError::NoRights(_))));
    assert_eq!(stolen.operator.read(&Wanted::all()).unwrap().tags.len(), 1);
    // Nor by an error, which would have the whole row.
    let lease = stolen.lease(7);
    let says = |refusal: Refusal| {
        let said = format!("{refusal:?}");
        assert!(!secrets.iter().any(|secret| said.contains(secret)), "{said}");
    };
    for name in ["holder", "nonce", "count", "server", "from_ms", "until_ms", "generation", "host", "port", "version"] {
        for value in [Value::Null, json!(-1), json!(i64::MAX)] {
            let held = with(&with(&lease, "holder", uuid(1)), name, value.clone());
            if let Err(error) = stolen.number(&held) {
                says(refused::<()>(Err(error)));
            }
            let mut unnamed = held;
            unnamed.as_object_mut().unwrap().remove(name);
            if let Err(error) = stolen.number(&unnamed) {
                says(refused::<()>(Err(error)));
            }
        }
    }
    let block = stolen.block();
    for name in ["id", "next_value", "least_step", "greatest_step", "nonce", "generation", "returnable_from"] {
        for value in [Value::Null, json!(-1), json!(i32::MAX)] {
            if let Err(error) = stolen.tag(&with(&block, name, value)) {
                says(refused::<()>(Err(error)));
            }
        }
    }
}

#[test]
fn the_operators_views_and_queries_cannot_be_broken() {
    let mut stolen = Stolen::new();
    let queries = [
        "SELECT count(f) FROM snowflake_registry.fleet f WHERE fleet = $1",
        "SELECT count(l) FROM snowflake_registry.leases l WHERE fleet = $1",
        // The form of the alarm queries of the page and of `monitoring`.
        "SELECT 2 * (max(abs(n.offset_ms)) < 1e16)::integer::bigint FROM snowflake_registry.numbers n WHERE fleet = $1",
    ];
    for extreme in [i64::MIN, i64::MAX] {
        for worker in [7, 8] {
            let mut lease = stolen.lease(worker);
            for name in ["offset_ms", "renewed_ms"] {
                lease[name] = json!(extreme);
            }
            for name in ["host", "cluster_name", "version"] {
                lease[name] = json!("x".repeat(100_000));
            }
            lease["holder"] = json!(uuid(extreme as u128 + worker as u128));
            assert!(stolen.number(&lease).unwrap());
        }
        for query in &queries[..1] {
            let count: i64 = stolen.owner.query_one(*query, &[&stolen.fleet]).unwrap().get(0);
            assert_eq!(count, 2, "{extreme}: {query}");
        }
        let count: i64 = stolen.owner.query_one(queries[2], &[&stolen.fleet]).unwrap().get(0);
        assert_eq!(count, 2, "{extreme}");
        assert!(stolen.operator.names().unwrap().values().all(|name| name.host.len() == 255));
    }
    let count: i64 = stolen.owner.query_one(queries[1], &[&stolen.fleet]).unwrap().get(0);
    assert_eq!(count, 4);
}

/// What a thief can do, and what operators do about it.
#[test]
fn leases_are_frozen_and_no_more() {
    let mut stolen = Stolen::new();
    let oracle = Oracle::new();
    stolen.set("fleets", "layout = NULL, backup = NULL");
    let of = |stolen: &Stolen| Config { fleet: stolen.fleet.clone(), ..config(&server().registry_conninfo()) };
    let victim = Member::new(of(&stolen), &oracle);
    // It renews until the lease is longer than what clocks may be apart.
    let lease = [(); 5].map(|()| victim.lease())[4];
    // It tries to end the lease, to take the number, and to pass for a copy of the victim's memory.
    let reading = stolen.reading();
    let old = reading.numbers[&number(lease.worker)];
    for record in [
        NumberRecord { nonce: 1, count: old.count + 1, until_ms: old.from_ms, ..old },
        NumberRecord { nonce: 1, count: old.count + 1, ..old },
        NumberRecord {
            holder: 1,
            nonce: 1,
            count: old.count + 1,
            from_ms: old.until_ms,
            until_ms: old.until_ms,
            ..old
        },
    ] {
        let change = RecordChange::Number { number: number(lease.worker), was: Some(old.nonce), record };
        let answer = stolen.store.swap(&Swap::after(&reading, vec![change]));
        assert!(matches!(answer, Err(RegistryError::Refused(ref diagnostic)) if diagnostic.sqlstate == "SF005"));
    }
    // It freezes the fleet for as long as it can, with a horizon as far as it can. The victim draws
    // on, and cannot renew what it holds.
    let mut fleet = reading.fleet;
    (fleet.generation, fleet.version) = (fleet.generation + 1, 77);
    (fleet.horizon_ms, fleet.freeze_ms) = (reading.now_ms + 2 * HOUR_MS, reading.now_ms + MONTH_MS);
    written(&stolen.store, &reading, RecordChange::Fleet(fleet));
    let _ = victim.keep();
    assert_eq!(victim.held().map(|held| held.holder), Some(lease.holder));
    assert_eq!(stolen.reading().numbers[&number(lease.worker)], old);
    assert!(victim.draw().is_some());
    assert!(!victim.has_reported(|notice| matches!(notice, LeaseNotice::Copied(_) | LeaseNotice::Overlapped(_))));
    let starter = Member::new(of(&stolen), &oracle);
    assert!(matches!(starter.keep(), Err(Failure::Frozen { .. })));
    // An operator begins a generation with the horizon and the freeze that the limits need.
    server().operate(&["--fleet", &stolen.fleet, "restored"]);
    let begun = stolen.reading().fleet;
    assert!(begun.freeze_ms < reading.now_ms + HOUR_MS && old.until_ms > begun.horizon_ms);
    victim.keep().unwrap();
    assert_eq!(victim.held().map(|held| held.holder), Some(lease.holder));
    let renewed = stolen.reading().numbers[&number(lease.worker)];
    assert_eq!((renewed.generation, renewed.holder), (begun.generation, old.holder));
    assert!(renewed.until_ms > old.until_ms);
}
