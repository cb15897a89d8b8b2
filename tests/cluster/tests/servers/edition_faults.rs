//! The SQL edition under faults, on servers that load no library: draws that are cancelled,
//! terminated and killed at each of their steps, clocks that are set back, crashes, failovers, and
//! copies of a database.
//!
//! The order of draws is observed without a clock, by what clients have received. The tests of the
//! order and of uniqueness can fail: each of the lies below breaks one rule of the edition, and the
//! same history finds it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;

use cluster::drawing::{DAY_MS, HOUR_MS, at_once, wait_until_gone};
use cluster::pages::psql;
use cluster::{
    Builder, Draw, EDITION, Edition, Ends, Known, Load, Promise, Running, Server, Shutdown, assert_ascending,
    assert_unique, faketime_library, postgres_version, refused, skip, wait_until,
};
use postgres::{Client, NoTls};

use crate::random::Random;

/// Four ids in a tick, so that ticks are used up all the time, and ids run ahead of the clock.
const FEW: &str = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";

/// What `pg_locks` has of the lock under which the tick changes.
const WORD_LOCKS: &str =
    "FROM pg_locks WHERE relation = 'edition._snowflake_lock'::regclass AND mode = 'ShareUpdateExclusiveLock'";

/// A server that loads no library.
fn server() -> Builder {
    Server::builder().without_preload().config("max_connections", "60").time_limit()
}

/// Installs a text of the edition's file in the schema `edition`, which every session of the
/// database then finds.
#[track_caller]
fn install(server: &Server, file: &str, arguments: &str) -> Client {
    let mut session = server.connect();
    session
        .batch_execute(
            "ALTER DATABASE postgres SET search_path = public, edition; CREATE SCHEMA edition; SET search_path = edition",
        )
        .unwrap();
    session.batch_execute(file).unwrap();
    session.batch_execute(&format!("SELECT snowflake_install({arguments})")).unwrap();
    server.connect()
}

/// The file with one part replaced by another.
#[track_caller]
fn replaced(file: &str, part: &str, other: &str) -> String {
    assert_eq!(file.matches(part).count(), 1, "the edition has once: {part}");
    file.replace(part, other)
}

/// The file with one part of the function `_snowflake_forward` replaced by another.
#[track_caller]
fn with_other_forward(file: &str, part: &str, other: &str) -> String {
    let (before, rest) = file.split_once("AS $forward$").expect("the edition has the function");
    let (function, after) = rest.split_once("$forward$").expect("it ends");
    format!("{before}AS $forward${}$forward${after}", replaced(function, part, other))
}

const TAKE: &str = "LOCK TABLE @extschema@._snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE;";
const LOOK: &str = "IF target <> tick THEN";

fn word_locks(observer: &mut Client) -> String {
    observer.value(&format!("SELECT count(*) {WORD_LOCKS}"))
}

// Crowds

/// Compares what all sessions receive, while they draw. It only notes faults, because lies are to
/// be found.
#[derive(Default)]
struct Ledger {
    greatest: AtomicI64,
    ids: Mutex<HashSet<i64>>,
    fault: Mutex<Option<String>>,
}

impl Ledger {
    /// Runs a statement that draws. Each id that it returns must be above all that any session had
    /// received when the statement began, and above the id before it.
    fn draw(&self, session: &mut Client, sql: &str) -> Result<(), postgres::Error> {
        // SeqCst here and below: a read sees every id that was received before it.
        let mut before = self.greatest.load(Ordering::SeqCst);
        let ids = session.ids(sql)?;
        for id in &ids {
            if *id <= before {
                self.note(format!("{id} was drawn after {before}"));
            }
            before = *id;
        }
        self.greatest.fetch_max(before, Ordering::SeqCst);
        let mut all = self.ids.lock().unwrap();
        for id in ids {
            if !all.insert(id) {
                self.note(format!("{id} was drawn twice"));
            }
        }
        Ok(())
    }

    fn note(&self, fault: String) {
        self.fault.lock().unwrap().get_or_insert(fault);
    }

    fn count(&self) -> usize {
        self.ids.lock().unwrap().len()
    }

    /// Returns the first fault.
    fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap().clone()
    }
}

/// A transaction of a client that draws in random ways.
fn transaction(session: &mut Client, random: &Random, ledger: &Ledger) -> Result<(), postgres::Error> {
    let draws = [
        "SELECT snowflake_next()",
        "SELECT * FROM snowflake_batch(7)",
        "INSERT INTO t SELECT FROM generate_series(1, 3) RETURNING id",
        "SELECT snowflake_next() FROM generate_series(1, 20)",
    ];
    if random.one_in(2) {
        return ledger.draw(session, random.pick(&draws));
    }
    session.batch_execute("BEGIN")?;
    for _ in 0..random.below(4) {
        if random.one_in(2) {
            session.batch_execute("SAVEPOINT s")?;
        }
        ledger.draw(session, random.pick(&draws))?;
        if random.one_in(3) {
            session.batch_execute("SAVEPOINT s; ROLLBACK TO s")?;
        }
    }
    session.batch_execute(random.pick(&["COMMIT", "ROLLBACK"]))
}

/// Lives as a client until it is told to end, and connects again when it was terminated. Returns
/// its last session.
fn live(server: &Server, number: usize, ledger: &Ledger, end: &AtomicBool) -> Client {
    let random = Random::new(number as u64);
    let mut session = server.connect();
    // Relaxed: it only ends the loop.
    while !end.load(Ordering::Relaxed) {
        let Err(error) = transaction(&mut session, &random, ledger) else { continue };
        let code = error.code().map(|code| code.code().to_owned());
        let ended = ["57014", "57P01"];
        if !session.is_closed() && !code.as_ref().is_some_and(|code| ended.contains(&code.as_str())) {
            ledger.note(format!("a statement failed: {error:?}"));
        }
        // A cancel that comes late hits this one.
        wait_until("the end of a transaction", || session.is_closed() || session.batch_execute("ROLLBACK").is_ok());
        if session.is_closed() {
            session = server.connect();
        }
    }
    session
}

/// Runs 32 sessions until there is a fault, or until all is reached: so many ids, and so many
/// cancels and terminations, of all sessions that hold the lock or wait for it, and of others.
/// Returns the fault.
fn crowd(server: &Server, ids: usize, strikes: usize) -> Option<String> {
    const SESSIONS: usize = 32;
    let mut observer = server.connect();
    observer.batch_execute("CREATE TABLE t (id bigint DEFAULT snowflake_next())").unwrap();
    let (ledger, end, random) = (Ledger::default(), AtomicBool::new(false), Random::new(77));
    let mut struck = 0;
    thread::scope(|scope| {
        let living = Ends(&end);
        let threads: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let (ledger, end) = (&ledger, &end);
                scope.spawn(move || live(server, number, ledger, end))
            })
            .collect();
        // Where ids run ahead, most sessions wait for the clock instead.
        let targets = format!(
            "SELECT pid {WORD_LOCKS} UNION ALL (SELECT pid FROM pg_stat_activity
             WHERE state = 'active' AND query ~ 'snowflake' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 4)"
        );
        wait_until("the crowd", || {
            if struck < strikes {
                for row in observer.query(&targets, &[]).unwrap() {
                    let pid: i32 = row.get(0);
                    let how = if random.one_in(8) { "pg_terminate_backend" } else { "pg_cancel_backend" };
                    observer.execute(&format!("SELECT {how}($1)"), &[&pid]).unwrap();
                    struck += 1;
                }
            }
            ledger.fault().is_some() || struck >= strikes && ledger.count() >= ids
        });
        drop(living);
        // Sessions are still open: what one of them had left behind would be there.
        let sessions: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("it only notes")).collect();
        let left = word_locks(&mut observer);
        drop(sessions);
        if left != "0" {
            ledger.note(format!("{left} locks are left"));
        }
    });
    ledger.fault()
}

#[test]
fn no_id_comes_twice_and_no_lock_stays_while_32_sessions_are_cancelled_and_terminated() {
    // With few ids in a tick, almost every draw takes the lock.
    let few = format!("worker_id => 5, layout => '{FEW}', settled => true");
    for (arguments, ids) in [("worker_id => 5", 1000), (&few, 200)] {
        let server = server().start();
        install(&server, EDITION, arguments);
        assert_eq!(crowd(&server, ids, 50), None, "{arguments}");
        // All of the database can be drawn from as before.
        let mut session = server.connect();
        assert_ascending(&session.draw_batch(100));
        assert_eq!(session.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
        assert_eq!(word_locks(&mut session), "0");
    }
}

/// Finds the fault of an edition that breaks a rule, by the same history.
#[track_caller]
fn find_fault(file: &str, arguments: &str, after: &str) -> String {
    let server = server().start();
    let mut session = install(&server, file, arguments);
    session.batch_execute(after).unwrap();
    // More than any test draws in its five minutes.
    crowd(&server, usize::MAX, 0).expect("the history finds it")
}

/// A session that has waited for the lock sets the tick again that another one has set.
#[test]
fn without_the_second_look_under_the_lock_ids_come_twice() {
    let fault = find_fault(&with_other_forward(EDITION, LOOK, "IF true THEN"), "worker_id => 5", "");
    assert!(fault.ends_with("was drawn twice") || fault.contains("was drawn after"), "{fault}");
}

#[test]
fn without_the_lock_ids_come_twice() {
    let fault = find_fault(&with_other_forward(EDITION, TAKE, ""), "worker_id => 5", "");
    assert!(fault.ends_with("was drawn twice") || fault.contains("was drawn after"), "{fault}");
}

/// A session walks through values that it has taken from the sequence before.
#[test]
fn with_a_cache_of_the_sequence_ids_are_not_in_the_order_drawn() {
    // With a tick of a second, so that such values are not behind the clock.
    let arguments = "worker_id => 5, layout => 'js53'";
    let fault = find_fault(EDITION, arguments, "ALTER SEQUENCE edition.snowflake_word CACHE 20");
    assert!(fault.contains("was drawn after"), "{fault}");
}

// Steps

/// The steps of `_snowflake_forward`, each with the statement before which it is, and whether the
/// lock is held there.
const STEPS: [(&str, &str, bool); 6] = [
    ("locked", "now_ms := (date_part('epoch', clock_timestamp())", true),
    ("read", "tick := next_word >> @k@;", true),
    ("setting", "PERFORM setval('@extschema@.snowflake_word', (target << @k@)", true),
    ("set", "word := nextval('@extschema@.snowflake_word');", true),
    ("drawn", "RAISE EXCEPTION USING ERRCODE = 'SFREL'", true),
    ("released", "IF word IS NULL THEN", false),
];

/// A server whose sessions can be stopped at a step: a session that has set `test.stop_at` waits
/// there for a lock that this function's session holds.
fn stoppable() -> (Server, Client) {
    let server = server().start();
    server
        .connect()
        .batch_execute(
            "CREATE FUNCTION public.step(name text) RETURNS void LANGUAGE plpgsql AS $$
             BEGIN
                 IF current_setting('test.stop_at', true) = name THEN
                     PERFORM pg_advisory_xact_lock_shared(77);
                 END IF;
             END $$",
        )
        .unwrap();
    let file = STEPS.iter().fold(EDITION.to_owned(), |file, (name, before, _)| {
        with_other_forward(&file, before, &format!("PERFORM public.step('{name}'); {before}"))
    });
    install(&server, &file, "worker_id => 5");
    let mut holder = server.connect();
    holder.batch_execute("SELECT pg_advisory_lock(77)").unwrap();
    (server, holder)
}

/// Starts a draw that stops at a step.
#[track_caller]
fn stop_at(server: &Server, step: &str) -> Running {
    let mut session = server.connect();
    session.batch_execute(&format!("SET test.stop_at = '{step}'")).unwrap();
    let running = Running::start(session, "SELECT snowflake_next()");
    server.wait_until_locked(running.pid);
    running
}

#[test]
fn a_draw_that_is_ended_at_any_step_blocks_no_other_and_gives_no_id_twice() {
    let (server, mut holder) = stoppable();
    let mut all = Vec::new();
    for (step, _, is_locked) in STEPS {
        for how in ["pg_cancel_backend", "pg_terminate_backend", "statement_timeout", "nothing"] {
            let stopped = stop_at(&server, step);
            assert_eq!(word_locks(&mut holder), if is_locked { "1" } else { "0" }, "{step}");
            // The others find the word behind the clock, and wait for the lock; or they draw.
            let others: Vec<_> =
                (0..3).map(|_| Running::start(server.connect(), "SELECT * FROM snowflake_batch(50)")).collect();
            if is_locked && step != "set" && step != "drawn" {
                others.iter().for_each(|other| server.wait_until_locked(other.pid));
            }
            let pid = stopped.pid;
            match how {
                "nothing" => holder.batch_execute("SELECT pg_advisory_unlock(77)").unwrap(),
                "statement_timeout" => {
                    // The session's own timeout has ended it in the same place.
                    holder.execute("SELECT pg_cancel_backend($1)", &[&pid]).unwrap();
                }
                _ => drop(holder.execute(&format!("SELECT {how}($1)"), &[&pid]).unwrap()),
            }
            let (mut session, ended) = stopped.end();
            match how {
                "nothing" => all.extend(ended.expect("it goes on")),
                "pg_terminate_backend" => wait_until_gone(&mut holder, pid),
                _ => assert_eq!(refused(ended).sqlstate, "57014", "{step}"),
            }
            for other in others {
                let ids = other.end().1.expect("the lock is free");
                assert_ascending(&ids);
                all.extend(ids);
            }
            assert_eq!(word_locks(&mut holder), "0", "{step} {how}");
            if how != "pg_terminate_backend" {
                session.batch_execute("RESET test.stop_at").unwrap();
                all.push(session.draw());
            }
            if how == "nothing" {
                holder.batch_execute("SELECT pg_advisory_lock(77)").unwrap();
            }
        }
    }
    assert_unique(&all);
}

#[test]
fn a_backend_that_is_killed_at_any_step_gives_no_id_twice() {
    let (server, holder) = stoppable();
    drop(holder);
    let mut greatest = 0;
    for (step, _, _) in STEPS {
        let mut holder = server.connect();
        holder.batch_execute("SELECT pg_advisory_lock(77)").unwrap();
        let stopped = stop_at(&server, step);
        server.kill_backend(stopped.pid);
        assert!(stopped.end().1.is_err());
        wait_until("the end of the sessions", || holder.is_closed() || holder.batch_execute("").is_err());
        server.wait_until_ready();
        let ids = server.connect().draw_batch(100);
        assert_ascending(&ids);
        assert!(ids[0] > greatest, "{step}");
        greatest = ids[99];
    }
}

/// A draw that has begun by the old number finds the sequence of the new one. It draws by the new
/// number, and readers see its lock. The lie compares no generation after `nextval`.
#[test]
fn a_draw_that_began_before_another_installation_gets_an_id_of_the_new_number() {
    const COMPARE: &str = "AND (@extschema@._snowflake_generation() OPERATOR(pg_catalog.=) @generation@::bigint)";
    for (settled, is_lie) in [(false, false), (true, false), (false, true)] {
        let server = server().start();
        server.connect().batch_execute("CREATE FUNCTION public.step() RETURNS void LANGUAGE sql AS ''").unwrap();
        let file = replaced(EDITION, "@hold@word :=", "PERFORM public.step(); @hold@word :=");
        let file = if is_lie { replaced(&file, COMPARE, "") } else { file };
        // Ids may run ahead for longer than the draw is stopped.
        let mut session =
            install(&server, &file, &format!("worker_id => 5, max_borrow => 600000, settled => {settled}"));
        // Stops the first draw only.
        session
            .batch_execute(
                "CREATE OR REPLACE FUNCTION public.step() RETURNS void LANGUAGE plpgsql AS $$
                 BEGIN
                     IF current_setting('test.stop', true) = 'yes' THEN
                         PERFORM pg_advisory_xact_lock_shared(77), set_config('test.stop', 'no', false);
                     END IF;
                 END $$;
                 SELECT pg_advisory_lock(77)",
            )
            .unwrap();
        let mut stopped = server.connect();
        stopped.batch_execute("SET test.stop = 'yes'; BEGIN").unwrap();
        let stopped = Running::start(stopped, "SELECT snowflake_next()");
        server.wait_until_locked(stopped.pid);
        session.batch_execute("SELECT snowflake_install(worker_id => 6)").unwrap();
        // Begins a tick that the stopped draw takes for its own.
        let before = session.draw();
        session.batch_execute("SELECT pg_advisory_unlock(77)").unwrap();
        let (mut open, ids) = stopped.end();
        let id = ids.expect("it goes on")[0];
        let worker = session.value(&format!("SELECT worker_id FROM snowflake_parse({id})"));
        assert_eq!(worker, if is_lie { "5" } else { "6" });
        if settled {
            let bound =
                |session: &mut Client| session.query_one("CALL snowflake_settled()", &[]).unwrap().get::<_, i64>(0);
            assert!(bound(&mut session) < id);
            open.batch_execute("COMMIT").unwrap();
            assert!(bound(&mut session) >= id.max(before));
        }
    }
}

// Transactions

/// Each of these has drawn, and stays open: idle, failed, with a cursor, prepared.
#[test]
fn transactions_that_stay_open_block_no_draw() {
    let server = server().config("max_prepared_transactions", "4").start();
    let mut session = install(&server, EDITION, "worker_id => 5, settled => true");
    let mut open = Vec::new();
    for (number, sql) in [
        "SELECT snowflake_next()",
        "SAVEPOINT s; SELECT snowflake_next(); ROLLBACK TO s; SELECT * FROM snowflake_batch(10)",
        "DECLARE c CURSOR FOR SELECT snowflake_next() FROM generate_series(1, 10); FETCH 3 FROM c",
        "SELECT snowflake_next(); PREPARE TRANSACTION 'p'",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT snowflake_next()",
    ]
    .iter()
    .enumerate()
    {
        let mut client = server.connect();
        client.batch_execute(&format!("BEGIN; {sql}")).unwrap();
        if number == 1 {
            client.batch_execute("SELECT 1 / 0").unwrap_err();
        }
        open.push(client);
    }
    assert_eq!(word_locks(&mut session), "0");
    let known = Known::default();
    let all = at_once(&server, 8, |_, mut client| {
        // PostgreSQL's own limit for the wait for a lock. Waiting for the lock of a tick takes
        // microseconds.
        client.batch_execute("SET lock_timeout = '60s'").unwrap();
        (0..200).flat_map(|_| known.draw(|| client.draw_batch(3))).collect()
    });
    assert_eq!(assert_unique(all.iter().flatten()), 4800);
    assert_eq!(open.iter_mut().filter(|client| !client.is_closed()).count(), 5);
}

/// The control: a row that holds the last id, as hand-written functions have it, is locked until
/// the commit.
#[test]
fn a_row_with_the_last_id_would_block_every_other_session_until_the_commit() {
    let server = server().start();
    let mut open = server.connect();
    open.batch_execute(
        "CREATE TABLE nodes (last bigint); INSERT INTO nodes VALUES (0);
         CREATE FUNCTION next_by_row() RETURNS bigint LANGUAGE sql AS 'UPDATE nodes SET last = last + 1 RETURNING last'",
    )
    .unwrap();
    open.batch_execute("BEGIN; SELECT next_by_row()").unwrap();
    let waiting = Running::start(server.connect(), "SELECT next_by_row()");
    server.wait_until_locked(waiting.pid);
    open.batch_execute("COMMIT").unwrap();
    assert_eq!(waiting.end().1.unwrap(), [2]);
}

// Clocks

/// Reports the test as skipped where libfaketime is not installed.
fn no_clock_to_set() -> bool {
    let missing = faketime_library().is_none();
    if missing {
        skip("libfaketime is not installed");
    }
    missing
}

#[test]
fn a_clock_that_is_set_back_under_load_repeats_nothing() {
    if no_clock_to_set() {
        return;
    }
    let server = server().faketime().start();
    let mut observer = install(&server, EDITION, "worker_id => 5");
    let (known, end, is_behind) = (Known::default(), AtomicBool::new(false), AtomicBool::new(false));
    let (drawn, refusals) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wait_for = |what: &str, counter: &AtomicUsize| {
        let before = counter.load(Ordering::Relaxed);
        wait_until(what, || counter.load(Ordering::Relaxed) > before + 500);
    };
    let all = thread::scope(|scope| {
        let living = Ends(&end);
        let drawing = scope.spawn(|| {
            at_once(&server, 8, |_, mut client| {
                // A statement's time limit follows the clock, which goes an hour forward below.
                client.batch_execute("SET statement_timeout = 0").unwrap();
                let mut ids = Vec::new();
                // Relaxed, here and below: counts to wait for, and the end of a loop.
                while !end.load(Ordering::Relaxed) {
                    // SeqCst, here and below: a draw that sees it before and after is within it.
                    let (was_behind, bound) = (is_behind.load(Ordering::SeqCst), known.now());
                    match client.try_draw() {
                        Ok(id) => {
                            assert!(!was_behind || !is_behind.load(Ordering::SeqCst), "{id} was drawn an hour behind");
                            known.received(bound, &[id]);
                            ids.push(id);
                            drawn.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            let refusal = refused::<()>(Err(error));
                            // The cancel below can come late.
                            let cancelled = refusal.message == "canceling statement due to user request";
                            assert!(refusal.sqlstate == "58000" || cancelled, "{refusal:?}");
                            refusals.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                ids
            })
        });
        wait_for("draws", &drawn);
        // Ids run ahead of the clock.
        server.set_clock_offset(-0.05);
        wait_for("draws", &drawn);
        assert_eq!(refusals.load(Ordering::Relaxed), 0, "50 ms are less than max_borrow");
        // The clock catches up by itself.
        server.set_clock_offset(-1.05);
        wait_for("draws", &drawn);
        server.set_clock_offset(-3601.0);
        is_behind.store(true, Ordering::SeqCst);
        wait_for("refusals", &refusals);
        is_behind.store(false, Ordering::SeqCst);
        server.set_clock_offset(0.0);
        // A draw that slept while the clock was set back still sleeps.
        observer.batch_execute(CANCEL_SLEEPERS).unwrap();
        wait_for("draws", &drawn);
        drop(living);
        wait_until("the end of all draws", || {
            observer.batch_execute(CANCEL_SLEEPERS).unwrap();
            drawing.is_finished()
        });
        drawing.join().unwrap()
    });
    assert_unique(all.iter().flatten());
    assert_eq!(word_locks(&mut observer), "0");
}

const CANCEL_SLEEPERS: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";

/// PostgreSQL sleeps until the clock says so. A session that an operator cannot free would be lost.
#[test]
fn a_draw_that_waits_for_the_clock_can_be_cancelled_after_the_clock_was_set_back() {
    if no_clock_to_set() {
        return;
    }
    let server = server().faketime().start();
    // Ids may run ahead by an hour, so that a draw may wait for so long, too.
    let mut session = install(&server, EDITION, "worker_id => 5, max_borrow => 3600000");
    let last = session.draw();
    server.set_clock_offset(-5400.0);
    let waiting = Running::start(session, "SELECT snowflake_next()");
    let mut observer = server.connect();
    let sleeping =
        format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event = 'PgSleep'", waiting.pid);
    wait_until("the draw to wait", || observer.value(&sleeping) == "1");
    server.set_clock_offset(-9000.0);
    assert_eq!(refused(observer.try_draw()).sqlstate, "58000");
    observer.batch_execute(CANCEL_SLEEPERS).unwrap();
    let (mut session, result) = waiting.end();
    assert_eq!(refused(result).sqlstate, "57014");
    server.set_clock_offset(0.0);
    assert!(session.draw() > last);
}

// Crashes and copies

#[test]
fn ids_stay_unique_across_the_kill_of_a_backend_under_load() {
    let server = server().start();
    install(&server, EDITION, "worker_id => 5");
    let postmaster = server.postmaster_pid();
    for _ in 0..3 {
        let load = Load::start(&server, 8);
        load.wait_for(50);
        let victim = "SELECT pid FROM pg_stat_activity WHERE query ~ 'snowflake' AND pid <> pg_backend_pid() LIMIT 1";
        let mut observer = server.connect();
        let mut found = None;
        wait_until("a session that draws", || {
            found = observer.query_opt(victim, &[]).unwrap();
            found.is_some()
        });
        server.kill_backend(found.unwrap().get(0));
        wait_until("the end of the load", || load.are_all_over());
        server.wait_until_ready();
        load.end().check(&server, Promise::Seen).drawn();
    }
    assert_eq!(server.postmaster_pid(), postmaster);
}

/// A crash, with a clock that is right afterwards, and with one that is an hour behind.
#[test]
fn no_stored_id_comes_again_after_a_crash_whatever_the_clock_says() {
    if no_clock_to_set() {
        return;
    }
    let server = server().faketime().start();
    install(&server, EDITION, "worker_id => 5");
    let ends: [fn(&Server); 3] =
        [|server| server.stop(Shutdown::Immediate), Server::crash, |server| server.stop(Shutdown::Fast)];
    for end in ends {
        let load = Load::start(&server, 6);
        load.wait_for(60);
        end(&server);
        let ledger = load.end();
        server.set_clock("-1h");
        server.start_again();
        let behind_ms = ledger.check(&server, Promise::Held).refused();
        assert!((HOUR_MS - 300_000..=HOUR_MS + 1000).contains(&behind_ms), "{behind_ms}");
        server.set_clock("+0");
        // Nor one that was only seen, if the clock is right.
        ledger.check(&server, Promise::Seen).drawn();
    }
}

/// The clock of an hour ago would give the ids of an hour ago, if the sequence were not in WAL.
#[test]
fn without_wal_of_the_sequence_a_crash_with_a_clock_that_is_behind_would_repeat_ids() {
    if no_clock_to_set() {
        return;
    }
    // The sequence begins at the instant of the installation.
    let server = server().faketime_from("-2h").start();
    let mut session = install(&server, EDITION, "worker_id => 5");
    server.set_clock("+0");
    if session.value("current_setting('server_version_num')::int >= 150000") != "true" {
        return skip("PostgreSQL before 15 has no unlogged sequences");
    }
    session.batch_execute("ALTER SEQUENCE edition.snowflake_word SET UNLOGGED").unwrap();
    let before = session.draw_batch(100);
    server.crash();
    server.set_clock("-1h");
    server.start_again();
    let after = server.connect().draw();
    assert!(after < before[0], "an unlogged sequence begins anew: {after}");
    // The installer notices it.
    let refusal = refused(server.connect().batch_execute("SELECT edition.snowflake_install()"));
    assert_eq!(refusal.message, "sequence \"snowflake_word\" was altered");
}

#[test]
fn a_promoted_standby_continues_above_what_it_has_received() {
    if no_clock_to_set() {
        return;
    }
    let primary = server().faketime().start();
    install(&primary, EDITION, "worker_id => 5");
    let standby = primary.standby().faketime_from("-1h").start();
    let load = Load::start(&primary, 4);
    load.wait_for(100);
    let mut reading = standby.connect();
    assert_eq!(refused(reading.try_draw()).sqlstate, "25006");
    reading.batch_execute("SELECT snowflake_timestamp(id), snowflake_format(id) FROM ledger").unwrap();
    primary.crash();
    let ledger = load.end();
    standby.promote();
    let behind_ms = ledger.check(&standby, Promise::Held).refused();
    assert!((HOUR_MS - 300_000..=HOUR_MS + 1000).contains(&behind_ms), "{behind_ms}");
    standby.set_clock_offset(0.0);
    let first = ledger.check(&standby, Promise::Held).drawn();
    assert!(ledger.seen.iter().all(|id| *id < first));
}

#[test]
fn a_server_recovered_to_any_point_and_a_base_backup_continue_above_what_they_hold() {
    if no_clock_to_set() {
        return;
    }
    let primary = server().archive().start();
    install(&primary, EDITION, "worker_id => 5");
    let load = Load::start(&primary, 3);
    load.wait_for(30);
    let backup = primary.base_backup();
    let mut session = primary.connect();
    let mut points = Vec::new();
    for _ in 0..3 {
        load.wait_for(60);
        points.push(session.value("pg_current_wal_insert_lsn()"));
    }
    let ledger = load.end();
    primary.archive_now();
    primary.stop(Shutdown::Fast);
    let mut held = Vec::new();
    let mut copies = vec![backup.alone().faketime_from("-1h").start()];
    copies.extend(points.iter().map(|point| backup.recovered_to(&primary, point).faketime_from("-1h").start()));
    for copy in copies {
        copy.wait_until_primary();
        held.push(ledger.check_held(&mut copy.connect(), Promise::Held).len());
        ledger.check(&copy, Promise::Held).refused();
        copy.set_clock_offset(0.0);
        let first = ledger.check(&copy, Promise::Held).drawn();
        assert!(ledger.seen.iter().all(|id| *id < first));
    }
    assert!(held.is_sorted() && held[3] > held[1] + 100, "each copy holds more: {held:?}");
}

/// Dumped by a role that owns the database and nothing else, and restored by the same.
#[test]
fn a_dump_of_the_owner_is_restored_and_continues_above_what_it_holds() {
    if no_clock_to_set() {
        return;
    }
    let roles = "CREATE ROLE app LOGIN; CREATE ROLE writer LOGIN; CREATE DATABASE app OWNER app;
                 ALTER DATABASE app SET search_path = public, edition";
    let server = server().start();
    psql(&server, &[], roles);
    let app = |server: &Server| {
        let mut config = server.connection();
        config.user("app").dbname("app");
        config
    };
    let mut owner = app(&server).connect(NoTls).unwrap();
    owner.install_edition("edition", "worker_id => 5, settled => true");
    owner.batch_execute("GRANT USAGE ON SCHEMA edition TO writer").unwrap();
    // In public, an ordinary role creates nothing since PostgreSQL 15, and the owner of the
    // database does.
    let load = Load::start_at(&app(&server), 4);
    load.wait_for(60);
    let dump = server.dump("app", "app", &[]);
    load.wait_for(60);
    let ledger = load.end();

    let copy = self::server().faketime_from("-1h").start();
    psql(&copy, &[], roles);
    copy.restore(&dump, "app", &["--username=app"]);
    let held = ledger.check_held(&mut app(&copy).connect(NoTls).unwrap(), Promise::Held);
    assert!(held.len() >= 240 && held.len() < ledger.stored.len());
    ledger.check_at(&app(&copy), Promise::Held).refused();
    copy.set_clock_offset(0.0);
    let first = ledger.check_at(&app(&copy), Promise::Held).drawn();
    assert!(ledger.seen.iter().all(|id| *id < first));
    // Rights and all the rest have come, too.
    let mut writer = copy.connection().user("writer").dbname("app").connect(NoTls).unwrap();
    assert!(writer.draw() > first);
    writer.batch_execute("CALL snowflake_settled(); SELECT snowflake_parse(snowflake_last())").unwrap();
    assert_eq!(refused(writer.batch_execute("SELECT snowflake_install(worker_id => 6)")).sqlstate, "42501");
    let mut owner = app(&copy).connect(NoTls).unwrap();
    owner.batch_execute("SELECT snowflake_install(worker_id => 6)").unwrap();
    assert_eq!(owner.value("SELECT worker_id FROM snowflake_parse(snowflake_next())"), "6");
}

/// A copy has its template's number, and would give its ids. With a number of its own, it begins
/// above what it holds.
#[test]
fn a_database_made_from_a_template_continues_above_it_and_takes_another_number() {
    let server = server().start();
    install(&server, EDITION, "worker_id => 5");
    let load = Load::start(&server, 4);
    load.wait_for(60);
    let ledger = load.end();
    wait_until("the end of the load's sessions", || {
        server.connect_to("template1").batch_execute("CREATE DATABASE copy TEMPLATE postgres").is_ok()
    });
    let path = "ALTER DATABASE copy SET search_path = public, edition";
    server.connect_to("template1").batch_execute(path).unwrap();
    ledger.check_in(&server, "copy", Promise::Seen).drawn();
    let mut copy = server.connect_to("copy");
    copy.batch_execute("SELECT snowflake_install(worker_id => 6)").unwrap();
    let of_copy: BTreeSet<i64> = copy.draw_batch(1000).into_iter().collect();
    assert!(server.connect().draw_batch(1000).iter().all(|id| !of_copy.contains(id)));
    assert!(of_copy.iter().all(|id| ledger.seen.iter().all(|seen| seen < id)));
}

// Roles

/// What it has is USAGE on the schema. A column's default draws with no other right.
#[test]
fn a_role_with_usage_alone_draws_and_changes_nothing() {
    let server = server().start();
    let mut owner = install(&server, EDITION, "worker_id => 5");
    owner
        .batch_execute(
            "CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA edition TO writer;
             CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text);
             GRANT INSERT ON orders TO writer",
        )
        .unwrap();
    let mut writer = server.connect_as("writer");
    let before = owner.draw();
    writer.batch_execute("INSERT INTO orders (item) VALUES ('tea')").unwrap();
    let id: i64 = owner.value("SELECT max(id) FROM orders").parse().unwrap();
    assert!(id > before);
    // Nor does it see what others may have drawn.
    for sql in [
        "SELECT last_value FROM edition.snowflake_word",
        "SELECT currval('edition.snowflake_word')",
        "SELECT setval('edition.snowflake_word', 1)",
        "ALTER SEQUENCE edition.snowflake_word RESTART",
        "SELECT edition.snowflake_advance(1)",
        "SELECT edition._snowflake_forward(0)",
        "CREATE FUNCTION edition.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP SEQUENCE edition.snowflake_word",
    ] {
        assert_eq!(refused(writer.batch_execute(sql)).sqlstate, "42501", "{sql}");
    }
    owner.batch_execute("REVOKE USAGE ON SCHEMA edition FROM writer").unwrap();
    assert_eq!(refused(server.connect_as("writer").batch_execute("SELECT edition.snowflake_next()")).sqlstate, "42501");
}

/// What other roles can hold in a transaction stops no draw.
#[test]
fn only_the_owner_and_roles_that_may_write_all_can_take_the_lock_of_the_draws() {
    let server = server().start();
    let mut owner = install(&server, EDITION, "worker_id => 5");
    owner.batch_execute("CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA edition TO writer").unwrap();
    let mut writer = server.connect_as("writer");
    let take = [
        "LOCK TABLE edition._snowflake_lock IN ACCESS SHARE MODE",
        "LOCK TABLE edition._snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE",
        "LOCK TABLE edition._snowflake_lock IN ACCESS EXCLUSIVE MODE",
        "TABLE edition._snowflake_lock",
        "COMMENT ON VIEW edition._snowflake_lock IS 'mine'",
        "CREATE OR REPLACE VIEW edition._snowflake_lock AS SELECT 1 AS one",
        "ALTER VIEW edition._snowflake_lock RENAME TO mine",
        "DROP VIEW edition._snowflake_lock",
    ];
    for sql in take {
        writer.batch_execute("BEGIN").unwrap();
        assert_eq!(refused(writer.batch_execute(sql)).sqlstate, "42501", "{sql}");
        writer.batch_execute("ROLLBACK").unwrap();
    }
    let keys = "BEGIN; SELECT snowflake_next(), pg_advisory_xact_lock(name::regclass::integer, 0)
                FROM unnest('{edition.snowflake_word, edition._snowflake_lock}'::text[]) AS name";
    writer.batch_execute(keys).unwrap();
    owner.batch_execute("SET lock_timeout = '10s'").unwrap();
    let ids = owner.draw_batch(10_000);
    assert!(ids[0] >> 22 < ids[9_999] >> 22, "ticks began meanwhile");
    writer.batch_execute("COMMIT").unwrap();
    // Roles that may change all data, as the page says.
    if postgres_version() >= 14 {
        owner.batch_execute("GRANT pg_write_all_data TO writer").unwrap();
        let lock = "LOCK TABLE edition._snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE";
        let set = "SELECT setval('edition.snowflake_word', 9000000000000000000)";
        writer.batch_execute(&format!("BEGIN; {lock}; {set}")).unwrap();
    }
}

/// A draw waits while the owner's session holds the lock, as it does for any lock. Its own timeout
/// ends that, and the end of the other session.
#[test]
fn a_session_of_the_owner_that_takes_the_lock_holds_draws_up_until_it_ends() {
    let server = server().start();
    let mut session = install(&server, EDITION, "worker_id => 5");
    let before = session.draw();
    let mut holder = server.connect();
    holder.batch_execute("BEGIN; LOCK TABLE edition._snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    session.batch_execute("SET lock_timeout = '100ms'").unwrap();
    wait_until("a refusal", || session.try_draw().is_err_and(|error| refused::<()>(Err(error)).sqlstate == "55P03"));
    session.batch_execute("RESET lock_timeout").unwrap();
    let waiting = Running::start(session, "SELECT snowflake_next()");
    server.wait_until_locked(waiting.pid);
    drop(holder);
    assert!(waiting.end().1.unwrap()[0] > before);
}

/// A day ahead of the clock, the way out is another number.
#[test]
fn an_advance_too_far_is_left_behind_with_another_number() {
    let server = server().start();
    let mut session = install(&server, EDITION, "worker_id => 5");
    let before = session.draw();
    let far = before + ((30 * DAY_MS) << 22);
    session.batch_execute(&format!("SELECT snowflake_advance({far}, true)")).unwrap();
    assert_eq!(refused(session.try_draw()).sqlstate, "58000");
    session.batch_execute("DROP SEQUENCE edition.snowflake_word; SELECT snowflake_install(worker_id => 6)").unwrap();
    assert!((before..far).contains(&session.draw()));
}
