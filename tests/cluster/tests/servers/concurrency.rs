//! Many sessions draw at once: no id comes twice, and each is greater than every id that was known
//! when its draw began.
//!
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::drawing::{WORKER, at_once};
use cluster::{Draw, Known, Server, assert_ascending, assert_unique, refused};
use postgres::Client;
use snowflake_core::id::layout::Layout;

/// The rows of one session in the order in which they were drawn.
const ROWS: &str = "SELECT id FROM t WHERE session = $1 AND round = $2 ORDER BY number";

fn rows(client: &mut Client, session: i32, round: i32) -> Vec<i64> {
    client.query(ROWS, &[&session, &round]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn insert(client: &mut Client, session: i32, round: i32, count: i32) -> Vec<i64> {
    let sql = "INSERT INTO t (session, round, number) SELECT $1, $2, i FROM generate_series(1, $3::int) i ORDER BY i";
    assert_eq!(client.execute(sql, &[&session, &round, &count]).unwrap(), u64::try_from(count).unwrap());
    rows(client, session, round)
}

fn copy(client: &mut Client, session: i32, round: i32, count: i32) -> Vec<i64> {
    let mut copy = client.copy_in("COPY t (session, round, number) FROM STDIN").unwrap();
    for number in 1..=count {
        writeln!(copy, "{session}\t{round}\t{number}").unwrap();
    }
    copy.finish().unwrap();
    rows(client, session, round)
}

/// 100,000 by single calls, 160,000 by INSERT, 160,000 by COPY, 580,000 in batches.
#[test]
fn a_million_ids_of_32_sessions_are_unique_and_in_the_order_drawn() {
    const ROUNDS: i32 = 20;
    let server = Server::drawing().time_limit().start_with_extension();
    server
        .connect()
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next(), session int, round int, number int);
             CREATE INDEX ON t (session, round, number)",
        )
        .unwrap();
    let known = Known::default();
    let all = at_once(&server, 32, |session, mut client| {
        let number = i32::try_from(session).unwrap();
        let mut ids = Vec::new();
        for round in 0..ROUNDS {
            match session % 4 {
                0 => (0..625).for_each(|_| ids.extend(known.draw(|| vec![client.draw()]))),
                1 => ids.extend(known.draw(|| insert(&mut client, number, round, 1000))),
                2 => ids.extend(known.draw(|| copy(&mut client, number, round, 1000))),
                _ => ids.extend(known.draw(|| client.draw_batch(3625))),
            }
        }
        assert_eq!(client.value("snowflake_last()"), ids.last().unwrap().to_string());
        assert_ascending(&ids);
        ids
    });
    assert_eq!(assert_unique(all.iter().flatten()), 1_000_000);
}

/// This layout has so few ids in a tick that the second lane serves too, and many draws borrow.
#[test]
fn two_lanes_of_a_server_never_draw_the_same_id() {
    const ROUNDS: usize = 10;
    let server = Server::drawing().set("layout", "js53").set("backup_worker", "on").time_limit().start_with_extension();
    let js53 = Layout::parse("js53").unwrap();
    let worker_of = |id: i64| js53.parts(id).unwrap().worker.unwrap();
    let workers = [WORKER, WORKER + 16];
    let known = workers.map(|_| Known::default());
    let backup_served = AtomicBool::new(false);
    let all = at_once(&server, 32, |session, mut client| {
        let mut ids = Vec::new();
        for round in 0.. {
            // Until both lanes have served, however slow the machine is.
            if round >= ROUNDS && backup_served.load(Ordering::Relaxed) {
                break;
            }
            assert!(round < 100 * ROUNDS, "the backup lane never served");
            let sql = match session % 2 {
                0 => "SELECT snowflake_next() FROM generate_series(1, 500)",
                _ => "SELECT snowflake_batch(500)",
            };
            let bounds = known.each_ref().map(Known::now);
            let drawn = client.ids(sql).unwrap();
            for ((worker, known), bound) in workers.iter().zip(&known).zip(bounds) {
                let of_worker: Vec<_> = drawn.iter().copied().filter(|id| worker_of(*id) == *worker).collect();
                known.received(bound, &of_worker);
            }
            if drawn.iter().any(|id| worker_of(*id) == workers[1]) {
                backup_served.store(true, Ordering::Relaxed);
            }
            ids.extend(drawn);
        }
        for worker in workers {
            let of_worker: Vec<_> = ids.iter().copied().filter(|id| worker_of(*id) == worker).collect();
            assert_ascending(&of_worker);
        }
        ids
    });
    assert!(assert_unique(all.iter().flatten()) >= 32 * ROUNDS * 500);
    let seen: BTreeSet<_> = all.iter().flatten().map(|id| worker_of(*id)).collect();
    assert_eq!(seen, BTreeSet::from(workers));
}

#[test]
fn a_rollback_gives_no_id_back() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let mut ids = vec![session.draw()];
    session.batch_execute("CREATE TABLE t (id bigint DEFAULT snowflake_next())").unwrap();
    for end in ["ROLLBACK", "ROLLBACK TO s; COMMIT", "COMMIT"] {
        session.batch_execute("BEGIN; SAVEPOINT s").unwrap();
        ids.push(session.draw());
        ids.extend(session.draw_batch(2));
        ids.extend(session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap());
        session.batch_execute(end).unwrap();
        assert_eq!(session.value("snowflake_last()"), ids.last().unwrap().to_string(), "after {end}");
        ids.push(session.draw());
    }
    // `snowflake_last()` also knows an id whose statement failed after the draw.
    assert_eq!(refused(session.ids("SELECT snowflake_next() / 0")).sqlstate, "22012");
    ids.extend(session.ids("SELECT snowflake_last()").unwrap());
    ids.push(session.draw());
    assert_ascending(&ids);
}

/// There are slots for three hundred backends, and more than twice as many sessions come one after
/// another. So every slot is reused.
#[test]
fn each_session_has_its_own_last_id() {
    const SESSIONS: usize = 64;
    const CONNECTIONS: usize = 12;
    let server = Server::drawing().config("max_connections", "300").start_with_extension();
    let all = at_once(&server, SESSIONS, |_, mut session| {
        let mut ids = Vec::new();
        for _ in 0..CONNECTIONS {
            let refusal = refused(session.ids("SELECT snowflake_last()"));
            assert_eq!(
                (refusal.sqlstate.as_str(), refusal.message),
                ("55000", "no id has been drawn in this session yet".into())
            );
            assert_eq!(refusal.hint.as_deref(), Some("Call snowflake_next() first."));
            for _ in 0..3 {
                ids.push(session.draw());
                assert_eq!(session.ids("SELECT snowflake_last()").unwrap(), ids[ids.len() - 1..]);
            }
            ids.extend(session.draw_batch(5));
            assert_eq!(session.ids("SELECT snowflake_last()").unwrap(), ids[ids.len() - 1..]);
            drop(session);
            session = server.connect();
        }
        ids
    });
    assert_eq!(assert_unique(all.iter().flatten()), SESSIONS * CONNECTIONS * 8);
}
