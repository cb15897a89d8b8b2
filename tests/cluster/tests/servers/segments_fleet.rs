//! Three servers draw dense values of one tag under load, while servers and the registry fail. A
//! ledger outside of them holds every value that a client saw: no two are equal, and those of one
//! session ascend.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cluster::registry::ROLE;
use cluster::{Draw, Fleet, Server, Shutdown, assert_ascending, refused, wait_until};
use postgres::{Client, NoTls};
use snowflake_core::fleet::segment::JUMP;

/// Sessions on each server.
const SESSIONS: usize = 8;

/// How long a session rests between two statements, and before it tries to connect again.
const REST: Duration = Duration::from_millis(2);

/// Sessions of one server that draw until they are told to end. They connect again when their
/// server is gone.
struct Load {
    drawn: Arc<[AtomicUsize]>,
    refused: Arc<AtomicUsize>,
    end: Arc<AtomicBool>,
    sessions: Vec<JoinHandle<Vec<i64>>>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let drawn: Arc<[AtomicUsize]> = (0..SESSIONS).map(|_| AtomicUsize::new(0)).collect();
        let (refused, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let start = |number: usize| {
            let (drawn, refused, end) = (Arc::clone(&drawn), Arc::clone(&refused), Arc::clone(&end));
            let connection = server.connection();
            thread::spawn(move || {
                let mut values = Vec::new();
                let mut client = None;
                // Relaxed, here and below: nothing else depends on it.
                while !end.load(Ordering::Relaxed) {
                    let Some(session) = client.as_mut() else {
                        client = connection.connect(NoTls).ok();
                        thread::sleep(REST);
                        continue;
                    };
                    match draw(session, values.len() + number) {
                        Ok(more) => values.extend(more),
                        Err(_) if session.is_closed() => client = None,
                        Err(error) => {
                            note_refusal(error);
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    drawn[number].store(values.len(), Ordering::Relaxed);
                    thread::sleep(REST);
                }
                values
            })
        };
        let sessions = (0..SESSIONS).map(start).collect();
        Self { drawn, refused, end, sessions }
    }

    fn drawn(&self) -> Vec<usize> {
        self.drawn.iter().map(|drawn| drawn.load(Ordering::Relaxed)).collect()
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Waits until each session has drawn so many more.
    #[track_caller]
    fn wait_for(&self, more: usize) {
        let wanted: Vec<_> = self.drawn().into_iter().map(|drawn| drawn + more).collect();
        wait_until("values", || self.drawn().iter().zip(&wanted).all(|(drawn, wanted)| drawn >= wanted));
    }

    /// Ends the sessions, and returns what they have drawn.
    fn end(self) -> Vec<i64> {
        self.end.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for session in self.sessions {
            let values = session.join().expect("a session only notes what it sees");
            assert_ascending(&values);
            all.extend(values);
        }
        all
    }
}

/// Draws as clients do: one, some in one statement, a batch.
fn draw(session: &mut Client, turn: usize) -> Result<Vec<i64>, postgres::Error> {
    session.ids(match turn % 3 {
        0 => "SELECT snowflake_segment_next('t')",
        1 => "SELECT snowflake_segment_next('t') FROM generate_series(1, 5)",
        _ => "SELECT * FROM snowflake_segment_batch('t', 20)",
    })
}

/// The only errors are those of a registry that is away, and of a server that ends.
fn note_refusal(error: postgres::Error) {
    let refusal = refused::<()>(Err(error));
    assert!(refusal.sqlstate == "58000" || refusal.sqlstate.starts_with("57P"), "{refusal:?}");
}

/// How members find the registry: on whichever of the two is the primary.
fn conninfo(registry: &Server, standby: &Server) -> String {
    let sockets = [registry, standby].map(|server| server.data_dir().parent().unwrap().display().to_string());
    format!("host='{}' user={ROLE} dbname=postgres target_session_attrs=read-write", sockets.join(","))
}

fn make_tag(fleet: &Fleet, columns: &str, values: &str) {
    let sql = format!("INSERT INTO snowflake_registry.tags (tag{columns}) VALUES ('t'{values})");
    fleet.registry.connect().batch_execute(&sql).expect("the tag is new");
}

#[track_caller]
fn count_repeats(values: &[i64]) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let all = sorted.len();
    sorted.dedup();
    all - sorted.len()
}

#[test]
fn three_servers_share_a_tag_through_every_failure() {
    let fleet = Fleet::start();
    // Small blocks, so that many are reserved.
    make_tag(&fleet, ", least_step, greatest_step, jumps", ", 50, 500, true");
    let standby = fleet.registry.standby().start();
    let conninfo = conninfo(&fleet.registry, &standby);
    let servers = [(); 3].map(|()| fleet.member().set("registry", &conninfo).start_with_extension());
    let loads = servers.each_ref().map(Load::start);
    let all_draw = |more: usize| loads.iter().for_each(|load| load.wait_for(more));
    all_draw(300);

    servers[0].crash();
    loads[1].wait_for(100);
    servers[0].start_again();
    all_draw(200);

    // Away until all have used up their blocks.
    let before: Vec<_> = loads.iter().map(Load::refused).collect();
    fleet.registry.crash();
    wait_until("refusals", || loads.iter().zip(&before).all(|(load, before)| load.refused() > *before));
    fleet.registry.start_again();
    all_draw(200);

    servers[1].restart();
    all_draw(100);

    // It fails over, and what it gave last is lost.
    let received = standby.cut_off();
    all_draw(300);
    fleet.registry.crash();
    standby.wait_until_replayed(&received);
    standby.promote();
    all_draw(500);

    servers[2].stop(Shutdown::Fast);
    let values: Vec<_> = loads.into_iter().flat_map(Load::end).collect();
    assert_eq!(count_repeats(&values), 0, "of {} values", values.len());

    let logs: String = servers.iter().map(Server::log).collect();
    assert!(logs.contains("tag \"t\" jumps ahead by"), "the failover shows");
    let (before, after): (Vec<i64>, Vec<i64>) = values.iter().partition(|value| **value < JUMP);
    let density = |values: &[i64]| {
        let span = values.iter().max().unwrap() - values.iter().min().unwrap() + 1;
        values.len() as f64 / span as f64
    };
    // What the crashes, the answers that were lost and the last blocks may have lost.
    let lost = before.iter().max().unwrap() - before.len() as i64;
    assert!(lost <= 20 * 500, "{lost} values are lost");
    println!(
        "{} values before the failover, density {:.3}; {} after it, density {:.3}",
        before.len(),
        density(&before),
        after.len(),
        density(&after)
    );
}

/// The ledger finds repeats, if there are any: here because a failover loses that an operator has
/// raised the tag by as much as it jumps ahead.
#[test]
fn too_short_a_jump_repeats_values() {
    let fleet = Fleet::start();
    make_tag(&fleet, ", least_step, greatest_step, jumps", ", 50, 50, true");
    let standby = fleet.registry.standby().start();
    let conninfo = conninfo(&fleet.registry, &standby);
    let server = fleet.member().set("registry", &conninfo).start_with_extension();
    let draw = |server: &Server| server.connect().ids("SELECT * FROM snowflake_segment_batch('t', 500)").unwrap();
    let mut values = draw(&server);
    standby.wait_until_replayed(&fleet.registry.flushed());
    let received = standby.cut_off();
    let raise = format!("UPDATE snowflake_registry.tags SET next_value = next_value + {JUMP}");
    fleet.registry.connect().batch_execute(&raise).unwrap();
    values.extend(draw(&server));
    server.crash();
    fleet.registry.crash();
    standby.wait_until_replayed(&received);
    standby.promote();
    let other = fleet.member().set("registry", &conninfo).start_with_extension();
    assert_eq!(count_repeats(&values), 0);
    values.extend(draw(&other));
    assert!(count_repeats(&values) > 300, "{} repeats", count_repeats(&values));
}
