//! Reading rows in the order of their ids (`snowflake_settled()`), on real servers: writers of
//! every kind, readers of every form, who holds a reader back, prepared transactions, crashes,
//! refusals.
//!
//! The control reads as one would without the function, from the greatest id that it has seen. In
//! the same run it must miss rows.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cluster::drawing::{HOUR_MS, noon, wait_until_gone};
use cluster::pages::{block, psql};
use cluster::refusal::assert_refused_as;
use cluster::{
    Builder, Draw, Ends, Fleet, Leases, Operated, Server, Shutdown, assert_ascending, faketime_library, plan,
    postgres_version, refused, skip, wait_until,
};
use postgres::{Client, Error, NoTls};

use snowflake_core::draw::settled::answers;
use snowflake_core::draw::settled::ended::MOST_ENDED;
use snowflake_core::draw::settled::prepared::SPARE;

use crate::random::Random;

/// A server on which transactions can be prepared.
fn server() -> Builder {
    Server::drawing().config("max_prepared_transactions", "20").time_limit()
}

fn settled(session: &mut Client) -> i64 {
    session.ids("SELECT snowflake_settled()").expect("there is a settled id")[0]
}

fn execute(session: &mut Client, sql: &str) {
    session.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// A partitioned table, whose partitions are scanned one after the other in one statement.
pub(crate) const TABLES: &str = "
    CREATE TABLE outbox (id bigint PRIMARY KEY DEFAULT snowflake_next(), writer int) PARTITION BY HASH (id);
    CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 3, REMAINDER 0);
    CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 3, REMAINDER 1);
    CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES WITH (MODULUS 3, REMAINDER 2);
    CREATE PROCEDURE writes(writer int, times int) LANGUAGE plpgsql AS $$
        BEGIN
            FOR n IN 1..times LOOP
                INSERT INTO outbox (writer) SELECT writes.writer FROM generate_series(1, n);
                IF n % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
            END LOOP;
        END $$;
    CREATE FUNCTION outlives() RETURNS bigint LANGUAGE plpgsql AS $$
        DECLARE id bigint;
        BEGIN
            BEGIN id := snowflake_next(); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END;
            PERFORM count(*) FROM generate_series(1, 100000);
            RETURN id;
        END $$;
    CREATE FUNCTION settled() RETURNS bigint STABLE LANGUAGE plpgsql AS $$
        BEGIN RETURN snowflake_settled(); END $$;
    CREATE FUNCTION pages(last bigint) RETURNS SETOF bigint VOLATILE LANGUAGE plpgsql AS $$
        DECLARE ids bigint[];
        BEGIN
            FOR n IN 1..3 LOOP
                ids := ARRAY(SELECT id FROM outbox WHERE id > last AND id <= snowflake_settled() ORDER BY id LIMIT 9);
                RETURN QUERY SELECT unnest(ids);
                last := coalesce(ids[array_upper(ids, 1)], last);
            END LOOP;
        END $$;
    CREATE TABLE copied (id bigint);
    CREATE PROCEDURE copies(last bigint) LANGUAGE plpgsql AS $$
        BEGIN
            FOR n IN 1..3 LOOP
                INSERT INTO copied SELECT id FROM outbox WHERE id > last AND id <= snowflake_settled();
                COMMIT;
                last := coalesce((SELECT max(id) FROM copied), last);
            END LOOP;
        END $$";

/// A statement that takes the server some time.
fn busy(random: &Random) -> String {
    format!("SELECT count(*) FROM generate_series(1, {})", random.below(60_000))
}

/// Returns the statements of one transaction of a writer, each of which is sent by itself.
fn transaction(writer: usize, turn: u64, random: &Random) -> Vec<String> {
    let insert = |count: usize| format!("INSERT INTO outbox (writer) SELECT {writer} FROM generate_series(1, {count})");
    let (begin, commit) = ("BEGIN".to_owned(), "COMMIT".to_owned());
    let gid = format!("writer {writer} {turn}");
    match random.below(12) {
        0 => vec![begin, insert(1), busy(random), insert(1), commit],
        1 => {
            let (savepoint, back) = ("SAVEPOINT s".to_owned(), "ROLLBACK TO s".to_owned());
            vec![begin, savepoint, insert(1), back, busy(random), insert(2), commit]
        }
        2 => vec![begin, insert(3), busy(random), "ROLLBACK".to_owned()],
        3 => {
            let end = if random.below(4) == 0 { "ROLLBACK" } else { "COMMIT" };
            let end = format!("{end} PREPARED '{gid}'");
            vec![begin, insert(1), format!("PREPARE TRANSACTION '{gid}'"), busy(random), end]
        }
        4 => vec![format!("CALL writes({writer}, 7)")],
        // It draws, and writes nothing.
        5 => vec![begin, "SELECT snowflake_next()".to_owned(), busy(random), commit],
        // It draws, and gets an xid later.
        6 => vec![begin, "SELECT count(*) FROM snowflake_batch(20)".to_owned(), busy(random), insert(1), commit],
        7 => {
            let hold = "DECLARE held CURSOR WITH HOLD FOR SELECT snowflake_next() FROM generate_series(1, 5)";
            vec![begin, hold.to_owned(), insert(1), commit, "CLOSE held".to_owned()]
        }
        8 => vec![insert(10)],
        // Its ids outlive the savepoints in which they were drawn.
        9 => vec![format!("INSERT INTO outbox SELECT outlives(), {writer} FROM generate_series(1, 3)")],
        _ => vec![insert(1)],
    }
}

/// Writes until it is told to end, to the server that is the primary then. Its session may be
/// terminated at any time, and the server may be down until the end.
fn write<'a>(primary: impl Fn() -> &'a Server, writer: usize, end: &AtomicBool) {
    let random = Random::new(writer as u64);
    let mut turn = 0;
    let connect = || {
        let mut session = primary().connection().application_name("writer").connect(NoTls)?;
        // What the session before has prepared.
        let sql = format!("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'writer {writer} %'");
        for row in session.query(&sql, &[])? {
            session.batch_execute(&format!("COMMIT PREPARED '{}'", row.get::<_, String>(0)))?;
        }
        Ok::<_, Error>(session)
    };
    // Relaxed: it only ends the loop.
    while !end.load(Ordering::Relaxed) {
        let Ok(mut session) = connect() else {
            thread::yield_now();
            continue;
        };
        while !end.load(Ordering::Relaxed) && !session.is_closed() {
            turn += 1;
            let mut statements = transaction(writer, turn, &random).into_iter();
            if statements.any(|sql| session.batch_execute(&sql).is_err()) && !session.is_closed() {
                let _ = session.batch_execute("ROLLBACK");
            }
        }
    }
    connect().expect("the server accepts a connection");
}

/// What a reader gets at one time: rows, and from where it goes on.
pub(crate) type Page = (Vec<i64>, i64);

/// A way to read the rows after an id.
pub(crate) type Form = fn(&mut Client, i64) -> Result<Page, Error>;

/// From where a reader goes on that got all rows up to a settled id, and each row once.
fn page(ids: Vec<i64>, last: i64) -> Page {
    let last = ids.last().copied().unwrap_or(last);
    (ids, last)
}

/// The settled id, and the rows up to it, in one statement.
fn in_one_statement(session: &mut Client, last: i64) -> Result<Page, Error> {
    let rows = session.query(
        "WITH s AS MATERIALIZED (SELECT snowflake_settled() AS settled)
         SELECT settled, id FROM s LEFT JOIN outbox ON id > $1 AND id <= settled ORDER BY id",
        &[&last],
    )?;
    let settled: i64 = rows[0].get(0);
    assert!(settled >= last, "{settled} is below {last}");
    Ok((rows.iter().filter_map(|row| row.get(1)).collect(), settled))
}

fn with_a_limit(session: &mut Client, last: i64) -> Result<Page, Error> {
    let sql = "SELECT id FROM outbox WHERE id > $1 AND id <= snowflake_settled() ORDER BY id LIMIT 7";
    Ok(page(session.query(sql, &[&last])?.iter().map(|row| row.get(0)).collect(), last))
}

/// The condition is a filter, and so computed for each row.
fn by_a_filter(session: &mut Client, last: i64) -> Result<Page, Error> {
    Ok(page(
        session
            .ids(&format!("SELECT id FROM outbox WHERE id > {last} AND id + 0 <= snowflake_settled() ORDER BY 1"))?,
        last,
    ))
}

fn by_a_stable_function(session: &mut Client, last: i64) -> Result<Page, Error> {
    Ok(page(session.ids(&format!("SELECT id FROM outbox WHERE id > {last} AND id <= settled() ORDER BY 1"))?, last))
}

/// The function is called after other work of the statement, and so long after the statement's
/// snapshot was taken.
fn late_in_a_statement(session: &mut Client, last: i64) -> Result<Page, Error> {
    let settled = "SELECT CASE WHEN count(*) > 0 THEN snowflake_settled() END FROM generate_series(1, 20000)";
    Ok(page(session.ids(&format!("SELECT id FROM outbox WHERE id > {last} AND id <= ({settled}) ORDER BY id"))?, last))
}

/// With one plan for all executions.
fn by_a_prepared_statement(session: &mut Client, last: i64) -> Result<Page, Error> {
    if session.ids("SELECT count(*) FROM pg_prepared_statements WHERE name = 'page'")? == [0] {
        let query = "SELECT id FROM outbox WHERE id > $1 AND id <= snowflake_settled() ORDER BY id";
        session
            .batch_execute(&format!("SET plan_cache_mode = force_generic_plan; PREPARE page (bigint) AS {query}"))?;
    }
    Ok(page(session.ids(&format!("EXECUTE page ({last})"))?, last))
}

/// Several statements within one, each with a snapshot of its own.
fn by_a_volatile_function(session: &mut Client, last: i64) -> Result<Page, Error> {
    Ok(page(session.ids(&format!("SELECT pages FROM pages({last})"))?, last))
}

/// Several transactions within one statement.
fn by_a_procedure(session: &mut Client, last: i64) -> Result<Page, Error> {
    // A part may have been copied before an error.
    let copied = session.batch_execute(&format!("CALL copies({last})"));
    let mut all = session.ids("DELETE FROM copied RETURNING id")?;
    if all.is_empty() {
        copied?;
    }
    all.sort_unstable();
    Ok(page(all, last))
}

/// First the settled id, and then the rows, with a later snapshot.
fn in_two_statements(session: &mut Client, last: i64) -> Result<Page, Error> {
    let settled = session.ids("SELECT snowflake_settled()")?[0];
    assert!(settled >= last, "{settled} is below {last}");
    let rows = session.ids(&format!("SELECT id FROM outbox WHERE id > {last} AND id <= {settled} ORDER BY id"))?;
    Ok((rows, settled))
}

/// Several statements with one snapshot.
fn in_a_transaction(session: &mut Client, last: i64, mode: &str) -> Result<Page, Error> {
    let read = |session: &mut Client| {
        session.batch_execute(&format!("BEGIN ISOLATION LEVEL {mode}"))?;
        let settled = session.ids("SELECT snowflake_settled()")?[0];
        let mut all = Vec::new();
        for _ in 0..3 {
            let (ids, _) = with_a_limit(session, all.last().copied().unwrap_or(last))?;
            all.extend(ids);
        }
        assert_eq!(session.ids("SELECT snowflake_settled()")?[0], settled, "it is one snapshot");
        Ok(page(all, last))
    };
    let result = read(session);
    session.batch_execute("ROLLBACK")?;
    result
}

fn with_repeatable_reads(session: &mut Client, last: i64) -> Result<Page, Error> {
    in_a_transaction(session, last, "REPEATABLE READ")
}

fn serializable(session: &mut Client, last: i64) -> Result<Page, Error> {
    in_a_transaction(session, last, "SERIALIZABLE READ ONLY")
}

/// One query, whose rows are fetched by many statements.
fn by_a_cursor(session: &mut Client, last: i64) -> Result<Page, Error> {
    let read = |session: &mut Client| {
        // Without a sort, the partitions are scanned while the rows are fetched.
        let query = format!("SELECT id FROM outbox WHERE id > {last} AND id <= snowflake_settled()");
        session.batch_execute(&format!("BEGIN; DECLARE rows CURSOR FOR {query}"))?;
        let mut all = Vec::new();
        loop {
            let ids = session.ids("FETCH 3 FROM rows")?;
            if ids.is_empty() {
                break;
            }
            all.extend(ids);
        }
        all.sort_unstable();
        Ok(page(all, last))
    };
    let result = read(session);
    session.batch_execute("ROLLBACK")?;
    result
}

/// The control.
fn from_the_greatest_id(session: &mut Client, last: i64) -> Result<Page, Error> {
    Ok(page(session.ids(&format!("SELECT id FROM outbox WHERE id > {last} ORDER BY id"))?, last))
}

const FORMS: [Form; 12] = [
    in_one_statement,
    with_a_limit,
    by_a_filter,
    by_a_stable_function,
    late_in_a_statement,
    by_a_prepared_statement,
    by_a_volatile_function,
    by_a_procedure,
    in_two_statements,
    with_repeatable_reads,
    serializable,
    by_a_cursor,
];

/// Reads until it is told to end, and then until there is nothing more. Returns what it got.
fn read(server: &Server, form: Form, end: &AtomicBool) -> Vec<i64> {
    let mut session = server.connect();
    let (mut all, mut last) = (Vec::new(), 0);
    loop {
        let is_last = end.load(Ordering::Acquire);
        match form(&mut session, last) {
            Ok((ids, _)) if ids.is_empty() && is_last => return all,
            Ok((ids, next)) => {
                all.extend(ids);
                last = next;
            }
            Err(error) => panic!("{form:?} is refused: {error:?}"),
        }
    }
}

/// Lets writers write and readers read at once, until there are rows enough. Returns the ids of all
/// rows, what each form of reading got, and what the control got. The outbox must be empty.
#[track_caller]
pub(crate) fn read_while_writing<const N: usize>(
    server: &Server,
    writers: usize,
    forms: [Form; N],
) -> (Vec<i64>, [Vec<i64>; N], Vec<i64>) {
    let mut observer = server.connect();
    let (written, read_all) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (writing, reading) = (Ends(&written), Ends(&read_all));
        let writers: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn({
                    let written = &written;
                    move || write(|| server, writer, written)
                })
            })
            .collect();
        let readers = forms.map(|form| {
            scope.spawn({
                let read_all = &read_all;
                move || read(server, form, read_all)
            })
        });
        let control = scope.spawn(|| read(server, from_the_greatest_id, &read_all));
        // A session is terminated each time that this looks.
        wait_until("rows", || {
            let terminate = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
                             WHERE application_name = 'writer' ORDER BY random() LIMIT 1) AS writer";
            execute(&mut observer, terminate);
            observer.value("SELECT count(*) > 5000 FROM outbox") == "true"
        });
        drop(writing);
        for writer in writers {
            writer.join().expect("a writer ends");
        }
        let stored = observer.ids("SELECT id FROM outbox ORDER BY id").unwrap();
        drop(reading);
        let readings = readers.map(|reader| reader.join().expect("a reader's assertions hold"));
        (stored, readings, control.join().expect("the control ends"))
    })
}

/// Returns how many of the stored rows a reading lacks.
pub(crate) fn missed(stored: &[i64], reading: &[i64]) -> usize {
    let seen: BTreeSet<_> = reading.iter().collect();
    stored.iter().filter(|id| !seen.contains(id)).count()
}

#[test]
fn a_reader_that_goes_up_to_the_settled_id_misses_nothing_and_one_that_does_not_misses_rows() {
    let server = server().config("max_connections", "60").start_with_extension();
    execute(&mut server.connect(), TABLES);
    let (stored, readings, control) = read_while_writing(&server, 16, FORMS);
    for (form, reading) in readings.into_iter().enumerate() {
        assert_ascending(&reading);
        let missed = missed(&stored, &reading);
        assert!(missed == 0 && reading.len() == stored.len(), "form {form} has missed {missed}");
    }
    assert!(missed(&stored, &control) > 0, "without the settled id, nothing is missed among {} rows", stored.len());
}

#[test]
fn only_open_transactions_that_have_drawn_in_the_same_database_hold_it_back() {
    let server = server().start_with_extension();
    execute(&mut server.connect(), "CREATE DATABASE other");
    execute(&mut server.connect(), "CREATE TABLE t (id bigint DEFAULT snowflake_next(), n int)");
    execute(&mut server.connect_to("other"), "CREATE EXTENSION snowflake_id");
    let mut reader = server.connect();
    // Nothing was drawn in this life of the server. What may have been drawn before is settled.
    let first = settled(&mut reader);
    let mut writer = server.connect();
    let id = writer.draw();
    assert!(id > first && settled(&mut reader) == id, "on an idle server, all that was drawn is settled");

    // A transaction that draws in another database, or only writes, does not hold it back.
    let mut elsewhere = server.connect_to("other");
    execute(&mut elsewhere, "BEGIN; SELECT snowflake_next()");
    let mut writes = server.connect();
    execute(&mut writes, "BEGIN; INSERT INTO t (id) VALUES (1)");
    let id = writer.draw();
    assert_eq!(settled(&mut reader), id);
    assert_eq!(reader.value("SELECT count(*) FROM snowflake_unsettled"), "0");

    // One that draws here does, whether it writes or not, until it ends, however it ends.
    for end in ["COMMIT", "ROLLBACK", "SELECT 1/0"] {
        for statements in [
            "SELECT snowflake_next()",
            "INSERT INTO t DEFAULT VALUES",
            "SAVEPOINT s; SELECT count(*) FROM snowflake_batch(9); ROLLBACK TO s; RELEASE s; INSERT INTO t VALUES (1)",
        ] {
            let before = settled(&mut reader);
            execute(&mut writes, "ROLLBACK; BEGIN");
            execute(&mut writes, statements);
            let after = writer.draw();
            let sql = "SELECT pid, first_id, state, gid IS NULL FROM snowflake_unsettled";
            let row = reader.query_one(sql, &[]).unwrap();
            let (pid, first_id, state): (i32, i64, String) = (row.get(0), row.get(1), row.get(2));
            assert!(pid == writes.pid() && before < first_id && first_id < after && row.get::<_, bool>(3));
            assert_eq!(state, "idle in transaction");
            assert_eq!(settled(&mut reader), first_id - 1, "{statements}");
            // A transaction's own draws hold it back as well.
            assert_eq!(settled(&mut writes), first_id - 1);
            // The error of a statement arrives before PostgreSQL ends the transaction, and that of
            // the next statement after it.
            if writes.batch_execute(end).is_err() {
                assert_eq!(refused(writes.batch_execute("SELECT 1")).sqlstate, "25P02");
            }
            assert!(settled(&mut reader) >= after, "{statements}; {end}");
            assert_eq!(reader.value("SELECT count(*) FROM snowflake_unsettled"), "0");
        }
    }
    // It holds back what is read there.
    let mut other = server.connect_to("other");
    assert!(settled(&mut other) < settled(&mut reader));
    assert_eq!(other.value("SELECT pid FROM snowflake_unsettled"), elsewhere.pid().to_string());

    // The server's figure is about all of its databases.
    let lag = |session: &mut Client| session.value("SELECT settled_lag_ms FROM snowflake_stat").parse::<i64>().unwrap();
    wait_until("the lag to grow", || lag(&mut reader) > 100);
    execute(&mut elsewhere, "ROLLBACK");
    assert_eq!(lag(&mut reader), 0);
}

#[test]
fn a_session_that_ends_in_any_way_holds_nothing_back() {
    let server = server().start_with_extension();
    let mut reader = server.connect();
    execute(&mut reader, "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    for end in ["SELECT pg_terminate_backend($1)", "", "kill"] {
        let mut writer = server.connect();
        execute(&mut writer, "BEGIN; INSERT INTO t DEFAULT VALUES");
        let (pid, id) = (writer.pid(), reader.draw());
        assert!(settled(&mut reader) < id);
        match end {
            "" => drop(writer),
            "kill" => server.kill_backend(pid),
            sql => _ = reader.query_one(sql, &[&pid]).unwrap(),
        }
        if end == "kill" {
            server.wait_until_ready();
            reader = server.connect();
        } else {
            wait_until_gone(&mut reader, pid);
        }
        assert!(settled(&mut reader) >= id, "{end}");
    }
    assert_eq!(reader.value("SELECT count(*) FROM t"), "0");
}

#[test]
fn an_older_snapshot_has_a_lower_settled_id_than_a_newer_one_had_before() {
    let server = server().start_with_extension();
    let [mut old, mut new, mut writer] = [(); 3].map(|()| server.connect());
    execute(&mut new, "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    execute(&mut writer, "BEGIN; INSERT INTO t DEFAULT VALUES");
    execute(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    execute(&mut writer, "COMMIT");
    let id = new.ids("SELECT id FROM t").unwrap()[0];
    assert_eq!(settled(&mut new), id);
    // The row is not visible to the older one.
    assert_eq!(old.value("SELECT count(*) FROM t"), "0");
    assert_eq!(settled(&mut old), id - 1);
    execute(&mut old, "COMMIT");
    assert_eq!(settled(&mut old), id);
}

#[test]
fn a_snapshot_from_before_the_ends_of_many_transactions_gets_an_earlier_id() {
    let server = server().start_with_extension();
    let [mut old, mut writer] = [(); 2].map(|()| server.connect());
    execute(&mut writer, "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    let insert = |writer: &mut Client, count: usize| {
        (0..count).for_each(|_| execute(writer, "INSERT INTO t DEFAULT VALUES"));
    };
    for many in [MOST_ENDED, 100 * MOST_ENDED] {
        insert(&mut writer, many);
        execute(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        let [first, visible] = ["min(id)", "max(id)"].map(|id| old.ids(&format!("SELECT {id} FROM t")).unwrap()[0]);
        insert(&mut writer, many);
        let invisible = writer.ids(&format!("SELECT min(id) FROM t WHERE id > {visible}")).unwrap()[0];
        let id = settled(&mut old);
        assert!(id < invisible && id >= first, "{first} {id} {invisible}");
        if many == MOST_ENDED {
            assert!(id >= visible, "{id} {visible}");
        }
        // What was found for a snapshot stays.
        insert(&mut writer, 1);
        assert_eq!(settled(&mut old), id);
        execute(&mut old, "ROLLBACK");
        let greatest = old.ids("SELECT max(id) FROM t").unwrap()[0];
        assert_eq!(settled(&mut old), greatest);
    }
}

/// A transaction that is being prepared and waits for a synchronous standby stands twice among
/// those that run. So a later snapshot knows as many of them as the cursor's, and not the same.
#[test]
fn a_transaction_that_is_being_prepared_gives_no_statement_the_answer_of_another() {
    let server = server().start_with_extension();
    let [mut prepares, mut commits, mut later, mut reader, mut holder] = [(); 5].map(|()| server.connect());
    execute(
        &mut holder,
        "CREATE TABLE t (id bigint DEFAULT snowflake_next()); CREATE TABLE u (n int); INSERT INTO t DEFAULT VALUES;
         CREATE FUNCTION reads(OUT settled bigint, OUT ids bigint[]) LANGUAGE plpgsql AS $$
             DECLARE page CURSOR FOR
                 SELECT snowflake_settled(), ARRAY(SELECT id FROM t WHERE id <= snowflake_settled());
             BEGIN
                 OPEN page;
                 PERFORM pg_advisory_xact_lock(1);
                 PERFORM snowflake_settled();
                 FETCH page INTO settled, ids;
             END $$",
    );
    // With plans that exist, the planner asks no more.
    execute(&mut reader, "SET plan_cache_mode = force_generic_plan; SELECT reads()");
    server.set_config("synchronous_standby_names", "gone");
    server.reload();
    for session in [&mut commits, &mut later, &mut reader, &mut holder] {
        execute(session, "SET synchronous_commit = local");
    }
    wait_until("the setting", || prepares.value("SELECT current_setting('synchronous_standby_names')") == "gone");
    execute(&mut prepares, "BEGIN; INSERT INTO u VALUES (1)");
    execute(&mut commits, "BEGIN; INSERT INTO t DEFAULT VALUES");
    // So that no end of the others raises xmax.
    execute(&mut later, "INSERT INTO u VALUES (2)");
    execute(&mut holder, "SELECT pg_advisory_lock(1)");
    let (preparing, reading) = (prepares.pid(), reader.pid());
    let (settled, ids) = thread::scope(|scope| {
        let read = scope.spawn(|| {
            let row = reader.query_one("SELECT * FROM reads()", &[]).unwrap();
            (row.get::<_, i64>(0), row.get::<_, Vec<i64>>(1))
        });
        server.wait_until_locked(reading);
        execute(&mut commits, "COMMIT");
        let prepare = scope.spawn(|| execute(&mut prepares, "PREPARE TRANSACTION 'p'"));
        let waits = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {preparing} AND wait_event = 'SyncRep'");
        wait_until("the wait for a standby", || later.value(&waits) == "1");
        execute(&mut holder, "SELECT pg_advisory_unlock(1)");
        let read = read.join().expect("it reads");
        execute(&mut later, &format!("SELECT pg_cancel_backend({preparing})"));
        prepare.join().expect("it is prepared here");
        read
    });
    let up_to = later.ids(&format!("SELECT id FROM t WHERE id <= {settled} ORDER BY id")).unwrap();
    assert_eq!(ids, up_to, "a row is missed");
    execute(&mut later, "COMMIT PREPARED 'p'");
}

/// The planner asks, too, for each statement, and all have other snapshots.
#[test]
fn a_transaction_of_a_thousand_statements_is_never_refused() {
    let server = server().start_with_extension();
    let [mut reader, mut writer] = [(); 2].map(|()| server.connect());
    execute(&mut writer, "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next())");
    execute(&mut reader, "BEGIN");
    let (mut last, mut read) = (0, 0);
    for n in 0..1000 {
        let id = writer.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap()[0];
        let page = format!("SELECT id FROM t WHERE id > {last} AND id <= snowflake_settled() ORDER BY id");
        // By both protocols.
        let ids = if n % 2 == 0 {
            reader.ids(&page).unwrap()
        } else {
            let rows = reader.simple_query(&page).unwrap();
            let ids = rows.iter().filter_map(|row| match row {
                postgres::SimpleQueryMessage::Row(row) => row.get(0).map(|id| id.parse().unwrap()),
                _ => None,
            });
            ids.collect()
        };
        assert_eq!(ids, [id], "{n}");
        (last, read) = (id, read + 1);
    }
    assert_eq!(read, 1000);
}

/// A cursor's query is one statement, whatever happens between its FETCHes.
#[test]
fn it_is_the_same_for_the_whole_statement_and_a_new_one_for_the_next() {
    let server = server().start_with_extension();
    let [mut reader, mut writer, mut other] = [(); 3].map(|()| server.connect());
    // Copies of a snapshot lack so many subtransactions.
    let mut savepoints = server.connect();
    execute(&mut savepoints, "CREATE TEMP TABLE u (n int)");
    execute(&mut savepoints, &format!("BEGIN; {}", "SAVEPOINT s; INSERT INTO u VALUES (1);".repeat(70)));
    execute(&mut writer, "BEGIN");
    let held = writer.draw();
    let id = other.draw();
    execute(&mut reader, "BEGIN; DECLARE c CURSOR FOR SELECT snowflake_settled() FROM generate_series(1, 3)");
    // The last one below what is held, which is no drawn id if the clock has gone on meanwhile.
    assert_eq!(reader.ids("FETCH 1 FROM c").unwrap(), [held - 1]);
    // It had no xid, so PostgreSQL's snapshots do not differ, and an equal answer is right. But
    // another process may have taken an xid.
    execute(&mut writer, "COMMIT");
    assert!([held - 1, id].contains(&settled(&mut reader)));
    other.ids("SELECT pg_current_xact_id()::text::bigint").unwrap();
    assert_eq!(settled(&mut reader), id);
    assert_eq!(reader.ids("FETCH 1 FROM c").unwrap(), [held - 1]);
    execute(&mut reader, "COMMIT");

    // Within a statement that takes snapshots of its own, the outer one keeps its answer.
    execute(
        &mut reader,
        "CREATE FUNCTION inner_settled() RETURNS bigint VOLATILE LANGUAGE plpgsql AS $$
         DECLARE result bigint;
         BEGIN
             PERFORM snowflake_settled() FROM generate_series(1, 3);
             SELECT snowflake_settled() INTO result;
             RETURN result;
         END $$",
    );
    let rows = reader.query("SELECT snowflake_settled(), inner_settled() FROM generate_series(1, 50)", &[]).unwrap();
    let outer: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(outer.len(), 1);
}

/// A cursor's answer is forgotten, because many statements have come within it. Another answer
/// would lose rows that the first one held back.
#[test]
fn a_statement_whose_answer_is_forgotten_is_refused() {
    let server = server().start_with_extension();
    let [mut reader, mut holder, mut writer] = [(); 3].map(|()| server.connect());
    execute(&mut writer, "CREATE TABLE u (n int)");
    let before = writer.draw();
    execute(&mut holder, "BEGIN; SELECT snowflake_next()");
    let after = writer.draw();
    execute(&mut reader, "BEGIN; DECLARE c CURSOR FOR SELECT snowflake_settled() FROM generate_series(1, 3)");
    assert_eq!(reader.ids("FETCH 1 FROM c").unwrap(), [before]);
    // It had no xid, so PostgreSQL's snapshots do not differ.
    execute(&mut holder, "COMMIT");
    for n in 0..answers::MOST {
        // Each statement has another snapshot. What has not drawn is no reason for a refusal.
        execute(&mut writer, "INSERT INTO u VALUES (1)");
        assert_eq!(settled(&mut reader), after, "{n}");
    }
    let refusal = refused(reader.ids("FETCH 1 FROM c"));
    assert_refused_as(&refusal, "55000", "the settled id of this statement is no longer remembered");
    execute(&mut reader, "ROLLBACK");
    assert_eq!(settled(&mut reader), after);
}

/// A function that is wrongly marked takes the call to where each process would get an answer of
/// its own.
#[test]
fn a_parallel_worker_is_refused() {
    let server = server().start_with_extension();
    let mut session = server.connect();
    execute(
        &mut session,
        "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next());
         INSERT INTO t SELECT FROM generate_series(1, 5000); ANALYZE t;
         CREATE FUNCTION wrongly_marked() RETURNS bigint STABLE PARALLEL SAFE LANGUAGE plpgsql AS $$
             BEGIN RETURN snowflake_settled(); END $$;
         SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
         SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
         SET parallel_leader_participation = off",
    );
    // The value is computed for each row, in the workers.
    let query = "SELECT count(*) FROM t WHERE id + 0 <= wrongly_marked()";
    let parallel = plan(&mut session, query);
    assert!(parallel.contains("Parallel Seq Scan"), "{parallel}");
    let refusal = refused(session.query(query, &[]));
    assert_refused_as(&refusal, "25000", "snowflake_settled() does not run in a parallel worker");
    execute(&mut session, "ALTER FUNCTION wrongly_marked() PARALLEL RESTRICTED");
    assert_eq!(session.value(query), "5000");
}

#[test]
fn a_condition_with_it_uses_the_index_and_no_parallel_worker() {
    let server = server().start_with_extension();
    let mut session = server.connect();
    execute(
        &mut session,
        "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next());
         INSERT INTO t SELECT FROM generate_series(1, 5000); ANALYZE t",
    );
    let middle = session.value("SELECT id FROM t ORDER BY id OFFSET 4990 LIMIT 1");
    let query = format!("SELECT id FROM t WHERE id > {middle} AND id <= snowflake_settled() ORDER BY id LIMIT 1000");
    let indexed = plan(&mut session, &query);
    assert!(indexed.contains("Index Cond: ((id > ") && indexed.contains("id <= snowflake_settled()"), "{indexed}");
    execute(
        &mut session,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0",
    );
    let parallel = plan(&mut session, "SELECT count(*) FROM t WHERE id > 0");
    assert!(parallel.contains("Parallel"), "{parallel}");
    let serial = plan(&mut session, "SELECT count(*) FROM t WHERE id <= snowflake_settled()");
    assert!(!serial.contains("Parallel"), "{serial}");
}

/// In a read-only transaction, after a start, nothing need be written.
#[test]
fn a_reader_may_come_before_any_draw_and_write_nothing() {
    let server = server().start_with_extension();
    let mut session = server.connect();
    execute(
        &mut session,
        "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next()); INSERT INTO t DEFAULT VALUES",
    );
    let greatest = session.ids("SELECT id FROM t").unwrap()[0];
    for restart in ["fast", "crash"] {
        // Otherwise reading sets hint bits, which are written where pages have checksums.
        for sql in ["VACUUM", "CHECKPOINT"] {
            execute(&mut server.connect(), sql);
        }
        if restart == "fast" {
            server.restart()
        } else {
            server.crash();
            server.start_again()
        }
        let mut session = server.connect();
        execute(&mut session, "SET default_transaction_read_only = on");
        let before = session.value("SELECT pg_current_wal_insert_lsn()");
        let id = settled(&mut session);
        assert!(id >= greatest, "{restart}");
        assert_eq!(session.value("SELECT pg_current_wal_insert_lsn()"), before);
        assert_eq!(
            session.value("SELECT age(backend_xid) IS NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()"),
            "true"
        );
        execute(&mut session, "SET default_transaction_read_only = off");
        assert!(session.draw() > id);
    }
}

#[test]
fn prepared_transactions_hold_it_back_through_restarts_until_they_end() {
    let server = server().start_with_extension();
    let mut session = server.connect();
    execute(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    for (end, life) in
        ["COMMIT", "ROLLBACK"].into_iter().flat_map(|end| ["same", "restart", "crash"].map(|life| (end, life)))
    {
        let mut writer = server.connect();
        execute(&mut writer, "BEGIN; INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION 'p'");
        drop(writer);
        let mut reader = server.connect();
        let row =
            reader.query_one("SELECT first_id, pid IS NULL, gid, usename::text FROM snowflake_unsettled", &[]).unwrap();
        let (id, is_prepared, gid, user): (i64, bool, String, String) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        assert!(is_prepared && gid == "p" && user == "postgres");
        match life {
            "restart" => server.restart(),
            "crash" => {
                server.crash();
                server.start_again();
            }
            _ => {}
        }
        let [mut reader, mut old] = [(); 2].map(|()| server.connect());
        let after = reader.draw();
        assert_eq!(settled(&mut reader), id - 1, "{end} {life}");
        assert_eq!(reader.ids("SELECT first_id FROM snowflake_unsettled").unwrap(), [id]);
        execute(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
        execute(&mut reader, &format!("{end} PREPARED 'p'"));
        assert_eq!(settled(&mut reader), after, "{end} {life}");
        assert_eq!(reader.value("SELECT count(*) FROM snowflake_unsettled"), "0");
        // A snapshot from before its end does not see the row.
        assert_eq!(settled(&mut old), id - 1);
        execute(&mut old, "COMMIT");
        assert_eq!(settled(&mut old), after);
    }
    // A transaction that has drawn nothing is of no interest, and one that is not prepared in the
    // end leaves nothing.
    let mut session = server.connect();
    execute(&mut session, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'q'");
    let id = session.draw();
    assert_eq!(settled(&mut session), id);
    execute(&mut session, "COMMIT PREPARED 'q'");
    execute(&mut session, "BEGIN; CREATE TEMP TABLE x (); INSERT INTO t DEFAULT VALUES");
    assert_eq!(refused(session.batch_execute("PREPARE TRANSACTION 'r'")).sqlstate, "0A000");
    let id = session.draw();
    assert_eq!(settled(&mut session), id);
    assert_eq!(session.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}

/// No reader has asked before the prepared transaction ends.
#[test]
fn a_snapshot_from_before_the_end_of_a_transaction_of_a_former_life_does_not_see_it() {
    let server = server().start_with_extension();
    let mut session = server.connect();
    execute(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    for end in ["COMMIT", "ROLLBACK"] {
        execute(&mut session, "BEGIN; INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION 'p'");
        let id = session.ids("SELECT first_id FROM snowflake_unsettled").unwrap()[0];
        server.restart();
        session = server.connect();
        let [mut old, mut writer] = [(); 2].map(|()| server.connect());
        // An ordinary transaction that runs for the snapshot, and ends before the first call.
        execute(&mut writer, "BEGIN; SELECT pg_current_xact_id()");
        execute(&mut session, "SELECT pg_current_xact_id()");
        execute(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
        execute(&mut writer, "COMMIT");
        execute(&mut session, &format!("{end} PREPARED 'p'"));
        assert_eq!(settled(&mut old), id - 1, "{end}");
        assert!(settled(&mut session) >= id, "{end}");
    }
}

/// A subscription's worker ends prepared transactions without a command, before the first call.
#[test]
fn a_snapshot_from_before_the_end_of_a_subscription_s_prepared_transaction_does_not_see_it() {
    let publisher = server().config("wal_level", "logical").start_with_extension();
    let subscriber = Server::builder().set("worker_id", "6").config("max_prepared_transactions", "20");
    let subscriber = subscriber.time_limit().start_with_extension();
    let mut session = publisher.connect();
    execute(&mut session, "CREATE TABLE t (n int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t");
    let mut there = subscriber.connect();
    execute(&mut there, "CREATE TABLE t (n int PRIMARY KEY, id bigint DEFAULT snowflake_next())");
    let conninfo = publisher.conninfo().replace('\'', "''");
    let subscribe = format!("CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p WITH (two_phase = on)");
    execute(&mut there, &subscribe);
    let is_enabled = "SELECT subtwophasestate = 'e' FROM pg_subscription";
    wait_until("two-phase commit", || there.value(is_enabled) == "true");
    execute(&mut session, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'q'");
    wait_until("the prepared transaction", || there.value("SELECT count(*) FROM pg_prepared_xacts") == "1");
    subscriber.restart();
    let [mut old, mut there] = [(); 2].map(|()| subscriber.connect());
    execute(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    execute(&mut session, "COMMIT PREPARED 'q'");
    wait_until("its end", || there.value("SELECT count(*) FROM t") == "1");
    let id = there.ids("SELECT id FROM t").unwrap()[0];
    assert_eq!(settled(&mut old), id - 1);
    execute(&mut old, "ROLLBACK");
    assert!(settled(&mut old) >= id);
    execute(&mut there, "DROP SUBSCRIPTION s");
}

/// More transactions are prepared and end than have places, while an old one runs.
#[test]
fn the_table_of_prepared_transactions_does_not_run_out() {
    let server = server().start_with_extension();
    let [mut session, mut running, mut old] = [(); 3].map(|()| server.connect());
    execute(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_next()); CREATE TABLE u (n int)");
    // It keeps the xmin of all snapshots where it is.
    execute(&mut running, "BEGIN; INSERT INTO u VALUES (1)");
    execute(&mut session, "BEGIN; INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION 'first'");
    let first = session.ids("SELECT first_id FROM snowflake_unsettled").unwrap()[0];
    execute(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    for n in 0..400 {
        execute(&mut session, "BEGIN; INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION 'p'");
        assert_eq!(settled(&mut session), first - 1, "{n}");
        execute(&mut session, "COMMIT PREPARED 'p'");
        assert_eq!(settled(&mut session), first - 1, "{n}");
    }
    assert_eq!(settled(&mut old), first - 1);
    execute(&mut session, "COMMIT PREPARED 'first'");
    let greatest = session.ids("SELECT max(id) FROM t").unwrap()[0];
    assert_eq!(settled(&mut session), greatest);
}

/// Most have ended, and no other transaction ends, so that each snapshot has the same xmax.
#[test]
fn transactions_that_were_prepared_before_a_restart_find_room_in_the_table() {
    const OLD: usize = 100;
    let server = server().config("max_prepared_transactions", "200").start_with_extension();
    let mut session = server.connect();
    execute(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    let prepare = |session: &mut Client, gid: &str| {
        execute(session, &format!("BEGIN; INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION '{gid}'"));
    };
    (0..OLD).for_each(|n| prepare(&mut session, &format!("old {n}")));
    let first = session.ids("SELECT min(first_id) FROM snowflake_unsettled").unwrap()[0];
    server.restart();
    let mut session = server.connect();
    for _ in 0..2 * SPARE {
        prepare(&mut session, "new");
        execute(&mut session, "ROLLBACK PREPARED 'new'");
    }
    assert_eq!(settled(&mut session), first - 1);
    assert_eq!(session.value("SELECT count(*) FROM snowflake_unsettled"), OLD.to_string());
    (0..OLD).for_each(|n| prepare(&mut session, &format!("pending {n}")));
    assert_eq!(settled(&mut session), first - 1);
    (0..OLD).for_each(|n| execute(&mut session, &format!("COMMIT PREPARED 'old {n}'")));
    // What has made room holds nothing back, though nothing else has ended.
    let first = session.ids("SELECT min(first_id) FROM snowflake_unsettled").unwrap()[0];
    assert_eq!(settled(&mut session), first - 1);
}

/// Another library draws a transaction's first id while the transaction is being prepared, after
/// this one has looked.
#[test]
fn an_id_that_is_drawn_while_a_transaction_is_being_prepared_holds_it_back() {
    let server = server().start_with_extension();
    execute(&mut server.connect(), "CREATE TABLE t (id bigint DEFAULT snowflake_next()); CREATE TABLE u (n int)");
    let Some(library) = server.compile_library("preparer") else { return };
    server.set_config("shared_preload_libraries", &format!("{}, snowflake_id", library.display()));
    server.restart();
    let [mut session, mut reader] = [(); 2].map(|()| server.connect());
    // The session has drawn before, so that it may take the fast path.
    let before = session.draw();
    for statement in ["INSERT INTO t DEFAULT VALUES", "INSERT INTO t SELECT snowflake_batch(3)"] {
        execute(&mut session, &format!("SET preparer.statement = '{statement}'"));
        for writes in ["INSERT INTO u VALUES (1)", "INSERT INTO t DEFAULT VALUES"] {
            execute(&mut session, &format!("BEGIN; {writes}; PREPARE TRANSACTION 'p'"));
            let held = reader.ids("SELECT first_id FROM snowflake_unsettled").unwrap();
            let after = reader.draw();
            assert!(held.len() == 1 && (before + 1..after).contains(&held[0]), "{statement}, {writes}: {held:?}");
            assert_eq!(settled(&mut reader), held[0] - 1);
            execute(&mut reader, "COMMIT PREPARED 'p'");
            assert_eq!(reader.ids(&format!("SELECT min(id) FROM t WHERE id >= {}", held[0])).unwrap(), held);
            assert_eq!(settled(&mut reader), after);
        }
    }
    // What fails there is not prepared, and leaves nothing.
    execute(&mut session, "SET preparer.statement = 'SELECT snowflake_next() / 0'");
    execute(&mut session, "BEGIN; INSERT INTO u VALUES (1)");
    assert_eq!(refused(session.batch_execute("PREPARE TRANSACTION 'p'")).sqlstate, "22012");
    // An error is sent before its transaction is rolled back, so the session is asked once more.
    execute(&mut session, "SET preparer.statement = ''");
    let id = reader.draw();
    assert_eq!(settled(&mut reader), id);
    execute(&mut session, "BEGIN; INSERT INTO t DEFAULT VALUES");
    let held = session.ids("SELECT first_id FROM snowflake_unsettled").unwrap();
    execute(&mut session, "COMMIT");
    assert!(held.len() == 1 && settled(&mut reader) >= held[0]);
}

#[test]
fn a_standby_refuses_until_it_is_promoted_and_then_all_rows_are_settled() {
    let primary = server().start_with_extension();
    let standby = primary.standby().start();
    let mut session = primary.connect();
    execute(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_next()); INSERT INTO t DEFAULT VALUES");
    execute(&mut session, "BEGIN; INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION 'p'");
    let held = session.ids("SELECT first_id FROM snowflake_unsettled").unwrap()[0];
    let greatest = session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap()[0];
    standby.wait_until_replayed(&primary.flushed());
    let refusal = refused(standby.connect().ids("SELECT snowflake_settled()"));
    assert_refused_as(&refusal, "0A000", "snowflake_settled() does not work on a standby");

    primary.stop(Shutdown::Fast);
    standby.promote();
    let mut session = standby.connect();
    assert_eq!(settled(&mut session), held - 1);
    execute(&mut session, "COMMIT PREPARED 'p'");
    assert!(settled(&mut session) >= greatest);
    assert!(session.draw() > greatest);
}

/// Nothing can be prepared here, so no table would tell.
#[test]
fn a_snapshot_from_before_a_promotion_is_refused() {
    let primary = Server::drawing().time_limit().start_with_extension();
    let standby = primary.standby().start();
    let mut session = primary.connect();
    execute(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    standby.wait_until_replayed(&primary.flushed());
    let mut old = standby.connect();
    execute(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    execute(&mut session, "INSERT INTO t DEFAULT VALUES");
    standby.wait_until_replayed(&primary.flushed());
    primary.stop(Shutdown::Fast);
    standby.promote();
    let refusal = refused(old.ids("SELECT snowflake_settled()"));
    assert_refused_as(&refusal, "55000", "the snapshot is from before this server's promotion");
    execute(&mut old, "ROLLBACK");
    let greatest = old.ids("SELECT max(id) FROM t").unwrap()[0];
    assert!(settled(&mut old) >= greatest);
}

/// The settled id has no clock in it. After a start, a reader needs a clock that has reached what
/// was drawn before, as a draw does.
#[test]
fn a_clock_that_is_set_back_does_not_lower_it_and_after_a_start_is_refused() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let id = session.draw();
    for back_ms in [0, 50, HOUR_MS] {
        server.freeze_clock(noon() - back_ms);
        assert_eq!(settled(&mut session), id);
    }
    assert_eq!(refused(session.try_draw()).sqlstate, "58000");

    server.restart();
    let mut session = server.connect();
    let refusal = refused(session.ids("SELECT snowflake_settled()"));
    assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
    assert_eq!(refusal.message, refused(session.try_draw()).message);
    server.freeze_clock(noon() + HOUR_MS);
    assert!(settled(&mut session) >= id);
}

/// Another database of the server draws far ahead of this one's mark. A restart loses that, and the
/// clock is set back.
#[test]
fn no_row_comes_below_it_after_a_restart_though_another_database_has_drawn_ahead() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().faketime().time_limit().start_with_extension();
    execute(&mut server.connect(), "CREATE DATABASE other");
    execute(&mut server.connect(), "CREATE TABLE t (id bigint DEFAULT snowflake_next())");
    execute(&mut server.connect_to("other"), "CREATE EXTENSION snowflake_id");
    for (how, ahead_s) in [(Shutdown::Fast, 1800.0), (Shutdown::Immediate, 3600.0)] {
        let mut session = server.connect();
        let greatest = session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap()[0];
        server.set_clock_offset(ahead_s);
        let ahead = server.connect_to("other").draw();
        // All rows of this database are settled.
        let before = settled(&mut session);
        assert!((greatest..ahead).contains(&before), "{greatest} {before} {ahead}");
        server.stop(how);
        server.set_clock_offset(0.0);
        server.start_again();
        let mut session = server.connect();
        let at_first = settled(&mut session);
        let id = session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap()[0];
        assert!(id < ahead, "the other database was not ahead: {id} {ahead}");
        assert!(at_first >= before && id > at_first, "{before} {at_first} {id}, {how:?}");
        assert_eq!(settled(&mut session), id);
    }
}

/// Publishes the settled id as on the page until it is told to end, and once more then. The server
/// may be down meanwhile.
fn publish<'a>(primary: impl Fn() -> &'a Server, end: &AtomicBool) {
    loop {
        let is_last = end.load(Ordering::Acquire);
        let published = primary().connection().connect(NoTls).and_then(|mut session| {
            loop {
                // Each statement is a transaction of its own.
                block("publish").split_inclusive(";\n").try_for_each(|statement| session.batch_execute(statement))?;
                if is_last || end.load(Ordering::Acquire) {
                    return Ok(());
                }
            }
        });
        if is_last && published.is_ok() {
            return;
        }
        thread::yield_now();
    }
}

/// Reads by a query of the page until it is told to end, and then until there is nothing more. The
/// server may be down until then, or cancel the query.
fn read_by(server: &Server, query: &str, end: &AtomicBool) -> Vec<i64> {
    let (mut all, mut last) = (Vec::new(), 0);
    loop {
        let is_last = end.load(Ordering::Acquire);
        let read = server.connection().connect(NoTls).and_then(|mut session| {
            loop {
                let ids = session.ids(&query.replace("id > 0", &format!("id > {last}")))?;
                last = ids.last().copied().unwrap_or(last);
                all.extend(&ids);
                if ids.is_empty() && (is_last || end.load(Ordering::Acquire)) {
                    return Ok(());
                }
            }
        });
        match read {
            Ok(()) if is_last => return all,
            Err(error) if is_last => panic!("{query}: {error}"),
            _ => thread::yield_now(),
        }
    }
}

#[test]
fn a_reader_on_a_standby_misses_nothing_through_restarts_and_a_promotion_and_one_without_the_bound_does() {
    let primary = server().config("max_connections", "60").config("cluster_name", "east").start_with_extension();
    execute(&mut primary.connect(), &format!("{TABLES}; {}", block("settled-ids")));
    let standby = primary.standby().config("wal_retrieve_retry_interval", "100ms").start();
    let query = block("standby-read").replace("id, item FROM orders", "id FROM outbox");
    assert!(query.contains("FROM outbox"));

    let (servers, at) = ([&primary, &standby], AtomicUsize::new(0));
    let (written, published, read_all) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    // Acquire: pairs with the store after the promotion.
    let current = || servers[at.load(Ordering::Acquire)];
    let rows = || current().connect().ids("SELECT count(*) FROM outbox").unwrap()[0];
    let wait_for_rows = || {
        let before = rows();
        wait_until("rows", || rows() > before + 500);
    };
    let (stored, reading, control) = thread::scope(|scope| {
        let ends = [&written, &published, &read_all].map(Ends);
        let (current, written, published, read_all) = (&current, &written, &published, &read_all);
        let writers: Vec<_> = (0..16).map(|writer| scope.spawn(move || write(current, writer, written))).collect();
        let publisher = scope.spawn(move || publish(current, published));
        let reader = scope.spawn(|| read_by(&standby, &query, read_all));
        let control =
            scope.spawn(|| read_by(&standby, "SELECT id FROM outbox WHERE id > 0 ORDER BY id LIMIT 1000", read_all));
        for server in [&standby, &primary] {
            wait_for_rows();
            server.restart();
            wait_for_rows();
            server.crash();
            server.start_again();
        }
        wait_for_rows();
        standby.wait_until_replayed(&primary.flushed());
        primary.crash();
        standby.promote();
        at.store(1, Ordering::Release);
        wait_for_rows();
        let [writing, publishing, reading] = ends;
        drop(writing);
        writers.into_iter().for_each(|writer| writer.join().expect("a writer ends"));
        drop(publishing);
        publisher.join().expect("the publisher ends");
        let stored = standby.connect().ids("SELECT id FROM outbox ORDER BY id").unwrap();
        drop(reading);
        (stored, reader.join().expect("the reader ends"), control.join().expect("the control ends"))
    });
    assert_ascending(&reading);
    assert_eq!((missed(&stored, &reading), reading.len()), (0, stored.len()));
    assert!(missed(&stored, &control) > 0, "without the bound, nothing is missed among {} rows", stored.len());
}

#[test]
fn a_standby_of_19_waits_for_a_published_id_with_one_statement() {
    if postgres_version() < 19 {
        return;
    }
    let primary = Server::drawing().start_with_extension();
    execute(&mut primary.connect(), block("settled-ids"));
    let standby = primary.standby().start();
    psql(&primary, &[], block("publish"));
    let wait = block("wait-for-lsn").replace("0/1A2B3C4D", &primary.flushed());
    assert!(!wait.contains("1A2B3C4D"));
    psql(&standby, &[], &wait);
    assert_eq!(standby.connect().value("SELECT count(*) FROM settled_ids"), "1");
}

/// A subscription of the hub to a server, of the tables that the page has for this.
fn subscribe(hub: &Server, server: &Server, name: &str) {
    execute(&mut server.connect(), "CREATE PUBLICATION feed FOR TABLE feed, settled_ids");
    let conninfo = server.conninfo().replace('\'', "''");
    execute(&mut hub.connect(), &format!("CREATE SUBSCRIPTION of_{name} CONNECTION '{conninfo}' PUBLICATION feed"));
}

/// What the writers insert becomes rows of the page's table, in the same transactions.
const FEED: &str = "
    CREATE FUNCTION feeds() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO feed (id) VALUES (new.id); RETURN NULL; END $$;
    CREATE TRIGGER feeds AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION feeds()";

/// The recipe of the page for rows from several servers, with its SQL.
#[test]
fn a_hub_that_three_servers_replicate_to_misses_no_row_of_any_through_crashes() {
    const NAMES: [&str; 3] = ["east", "west", "south"];
    let servers = [0, 1, 2].map(|n: usize| {
        let server = Server::builder().set("worker_id", &(n + 1).to_string()).config("wal_level", "logical");
        let server = server.config("cluster_name", NAMES[n]).config("max_prepared_transactions", "20");
        server.time_limit().start_with_extension()
    });
    let hub = Server::drawing().config("wal_retrieve_retry_interval", "100ms").time_limit().start_with_extension();
    for server in servers.iter().chain([&hub]) {
        execute(&mut server.connect(), &[block("settled-ids"), block("hub-tables")].join("\n"));
    }
    servers.iter().for_each(|server| execute(&mut server.connect(), &format!("{TABLES}; {FEED}")));
    servers.iter().zip(NAMES).for_each(|(server, name)| subscribe(&hub, server, name));
    let mut observer = hub.connect();
    wait_until("the first copies", || {
        observer.value("SELECT count(*) = 6 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "true"
    });

    // A row that is committed late. The hub has the later one before it, and does not read on.
    let [mut late, mut early, mut joining] = [0, 0, 1].map(|n| servers[n].connect());
    execute(&mut late, "BEGIN; INSERT INTO feed (item) VALUES ('late')");
    execute(&mut joining, "BEGIN");
    let missed = joining.ids("INSERT INTO feed DEFAULT VALUES RETURNING id").unwrap()[0];
    execute(&mut early, &format!("SELECT snowflake_advance({missed})"));
    execute(&mut early, "INSERT INTO feed (item) VALUES ('early')");
    psql(&servers[0], &[], block("publish"));
    wait_until("the settled id", || observer.value("SELECT count(*) FROM settled_ids") == "1");
    assert_eq!(observer.value("SELECT item FROM feed"), "early");
    assert!(observer.query(block("hub-read"), &[]).unwrap().is_empty());
    execute(&mut late, "COMMIT");
    psql(&servers[0], &[], block("publish"));
    wait_until("both rows", || observer.ids(block("hub-merge")).unwrap().len() == 2);
    // The merge has gone beyond the row of a server that has not published, and will not get it.
    assert!(observer.ids(block("hub-merge")).unwrap()[1] > missed);
    execute(&mut joining, "COMMIT");
    servers.iter().for_each(|server| _ = psql(server, &[], block("publish")));
    wait_until("all settled ids", || observer.value("SELECT count(*) FROM settled_ids") == "3");
    // An idle server goes on, so that it does not hold back the others' rows.
    let published = || servers[2].connect().ids("SELECT id FROM settled_ids").unwrap()[0];
    let before = published();
    psql(&servers[2], &[], block("publish"));
    assert!(published() > before);

    let (written, published, read_all) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let (readings, merged) = thread::scope(|scope| {
        let [writing, publishing, reading] = [&written, &published, &read_all].map(Ends);
        let (hub, written, published, read_all) = (&hub, &written, &published, &read_all);
        let (mut writers, mut publishers) = (Vec::new(), Vec::new());
        for (n, server) in servers.iter().enumerate() {
            writers.extend((0..3).map(|writer| scope.spawn(move || write(|| server, 3 * n + writer, written))));
            publishers.push(scope.spawn(move || publish(|| server, published)));
        }
        let readers = NAMES.map(|name| {
            let query = block("hub-read").replace("'east'", &format!("'{name}'"));
            scope.spawn(move || read_by(hub, &query, read_all))
        });
        let merges = scope.spawn(move || read_by(hub, block("hub-merge"), read_all));
        let wait_for_rows = || {
            for (server, name) in servers.iter().zip(NAMES) {
                let count = format!("SELECT count(*) FROM feed WHERE server = '{name}'");
                let before = server.connect().ids(&count).unwrap()[0];
                wait_until("rows", || hub.connect().ids(&count).unwrap()[0] > before + 200);
            }
        };
        for server in [&servers[0], &servers[1], hub] {
            wait_for_rows();
            server.restart();
            wait_for_rows();
            server.crash();
            server.start_again();
        }
        wait_for_rows();
        drop(writing);
        writers.into_iter().for_each(|writer| writer.join().expect("a writer ends"));
        drop(publishing);
        publishers.into_iter().for_each(|publisher| publisher.join().expect("a publisher ends"));
        let mut observer = hub.connect();
        for (server, name) in servers.iter().zip(NAMES) {
            let settled = format!("SELECT id FROM settled_ids WHERE server = '{name}'");
            let last = server.connect().value(&settled);
            wait_until("the last settled id", || observer.value(&settled) == last);
        }
        drop(reading);
        (readers.map(|reader| reader.join().expect("a reader ends")), merges.join().expect("the merge ends"))
    });
    let stored = servers.each_ref().map(|server| server.connect().ids("SELECT id FROM feed ORDER BY id").unwrap());
    for (stored, reading) in stored.iter().zip(readings) {
        assert_eq!(&reading, stored);
    }
    // The merge stops at the least of the last settled ids.
    let least = hub.connect().ids("SELECT min(id) FROM settled_ids").unwrap()[0];
    let mut all: Vec<_> = stored.into_iter().flatten().filter(|id| *id <= least).collect();
    all.sort_unstable();
    assert_eq!(merged, all);
}

#[test]
fn it_is_refused_where_ids_have_no_order_or_no_memory() {
    let server = Server::drawing().set("backup_worker", "on").start_with_extension();
    let refusal = refused(server.connect().ids("SELECT snowflake_settled()"));
    assert_refused_as(&refusal, "0A000", "snowflake_settled() does not work with \"snowflake_id.backup_worker\"");
    let server = Server::builder().without_preload().start_with_extension();
    let refusal = refused(server.connect().ids("SELECT snowflake_settled()"));
    assert_refused_as(&refusal, "55000", "snowflake_id must be loaded via \"shared_preload_libraries\"");
}

/// A tick of the layout js53 is a second. Ids are borrowed from ticks that lie ahead, so the number
/// changes in the middle of a tick. (With a frozen clock, the postmaster does not start the process
/// again that leases a number.)
#[test]
fn ids_ascend_through_a_change_of_the_leased_number_within_a_tick() {
    let fleet = Fleet::start();
    let range = |number: i64| _ = fleet.operate(&["set-range", &number.to_string(), &number.to_string()]);
    let server = fleet.member().set("layout", "js53").set("max_borrow", "10s").start_with_extension();
    execute(&mut server.connect(), "CREATE DATABASE other");
    let mut other = server.connect_to("other");
    execute(&mut other, "CREATE EXTENSION snowflake_id");
    let mut session = server.connect();
    session.draw();
    let ticks = |from: i64, to: i64| (to >> 21) - (from >> 21);
    // A busy machine may need longer than a tick for a change. Numbers rise and fall.
    let mut within_a_tick = 0;
    for number in [9, 3, 8, 2].into_iter().cycle() {
        if within_a_tick == 4 {
            break;
        }
        range(number);
        let before = session.ids("SELECT max(id) FROM snowflake_batch(400000) AS id").unwrap()[0];
        assert_eq!(settled(&mut session), before);
        server.end_worker(session.lease("pid").parse().unwrap());
        wait_until("the next number", || session.lease("worker_id") == number.to_string());
        let after = other.draw();
        assert!(after > before, "{before} {after}");
        within_a_tick += i32::from(ticks(before, after) == 1);
        // This database has drawn nothing with the next number yet.
        assert!(settled(&mut other) >= after && settled(&mut session) >= before);
    }
}

/// Reading finds the marks of the next number, and its short way to an id would still have the old
/// one.
#[test]
fn a_session_that_reads_after_a_change_of_the_leased_number_draws_with_the_next_one() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let [mut reader, mut writer] = [server.connect(), server.connect()];
    reader.draw();
    fleet.operate(&["set-range", "9", "9"]);
    server.end_worker(reader.lease("pid").parse().unwrap());
    wait_until("the next number", || writer.lease("worker_id") == "9");
    writer.draw();
    settled(&mut reader);
    assert_eq!(reader.value("(snowflake_parse(snowflake_next())).worker_id"), "9");
}
