//! Sequences that logical replication copies, from PostgreSQL 19 on. A publication `FOR ALL
//! SEQUENCES` has those of the extension, too. A worker of the subscriber then sets them to what
//! the publisher's hold: marks, local marks, layout and numbers.
//!
//! When that is done, a subscriber that has drawn has its own layout and numbers, and the higher
//! mark.

use cluster::marks::{Marks, end_ms, start_ms, worker};
use cluster::pages::block;
use cluster::plans::rows;
use cluster::{Draw, Server, Shutdown, postgres_version, refused, wait_until};
use postgres::config::Host;
use snowflake_core::id::layout::Layout;

const LAYOUT: &str = "snowflake";

/// A server with the extension, from which others can replicate. Its draws wait for the clock, even
/// if that is far behind the mark.
fn server(layout: &str, number: u32) -> Server {
    let server =
        Server::builder().set("layout", layout).set("worker_id", &number.to_string()).set("on_rollback", "wait");
    let server = if layout == LAYOUT { server } else { server.set("datacenter_id", "3") };
    server.config("wal_level", "logical").start_with_extension()
}

/// Subscribes to all sequences of a publisher.
#[track_caller]
fn subscribe(subscriber: &Server, publisher: &Server) {
    publisher.connect().batch_execute("CREATE PUBLICATION numbers FOR ALL SEQUENCES").unwrap();
    subscriber.connect().batch_execute(&subscription(publisher)).unwrap();
    wait_until_copied(subscriber);
}

fn subscription(publisher: &Server) -> String {
    let config = publisher.connection();
    let [Host::Unix(directory)] = config.get_hosts() else { panic!("a server is reached through its socket") };
    format!(
        "CREATE SUBSCRIPTION numbers CONNECTION 'host={} dbname=postgres user=postgres' PUBLICATION numbers",
        directory.display()
    )
}

/// Copies the sequences once more, by the page's statements.
#[track_caller]
fn refresh(subscriber: &Server) {
    let mut session = subscriber.connect();
    session.batch_execute(&block("copy-sequences").replace("SUBSCRIPTION orders", "SUBSCRIPTION numbers")).unwrap();
    wait_until("the sequences to be copied", || session.value(block("sequences-left").trim_end_matches(';')) == "0");
    wait_until_copied(subscriber);
}

#[track_caller]
fn wait_until_copied(subscriber: &Server) {
    let mut session = subscriber.connect();
    // The seven of the extension, each ready.
    let states = "SELECT srrelid::regclass, srsubstate FROM pg_subscription_rel ORDER BY 1";
    wait_until("the sequences to be copied", || {
        let states = rows(&mut session, states).unwrap();
        states.len() == 7 && states.iter().all(|state| state.ends_with('r'))
    });
}

#[track_caller]
fn stored_layout(server: &Server) -> String {
    server.connect().value("SELECT last_value FROM snowflake_mark_layout")
}

/// Draws an id beyond what the server's clock shows now. (It waits for that time.)
#[track_caller]
fn draw_ahead(server: &Server) -> i64 {
    let mut session = server.connect();
    session.batch_execute("SELECT snowflake_advance(snowflake_compose(now() + '1500 ms', 0, 0))").unwrap();
    session.draw()
}

#[test]
fn a_subscriber_keeps_its_number_and_its_mark_never_falls() {
    if postgres_version() < 19 {
        return;
    }
    let [publisher, subscriber] = [1, 2].map(|number| server(LAYOUT, number));
    publisher.connect().draw();
    let last = draw_ahead(&subscriber);
    let mark_ms = subscriber.connect().mark_ms();
    assert!(publisher.connect().mark_ms() < mark_ms, "else the copy would set nothing back");
    subscribe(&subscriber, &publisher);
    assert!(subscriber.connect().mark_ms() >= mark_ms, "{:?} < {mark_ms:?}", subscriber.connect().mark_ms());

    let next = subscriber.connect().draw();
    assert!(next > last);
    assert_eq!(worker(LAYOUT, next), 2);

    // The publisher is ahead now.
    draw_ahead(&publisher);
    let mark_ms = publisher.connect().mark_ms().unwrap();
    assert!(Some(mark_ms) > subscriber.connect().mark_ms(), "else the copy would raise nothing");
    refresh(&subscriber);
    let next = subscriber.connect().draw();
    assert!(start_ms(LAYOUT, next) >= mark_ms);
    assert_eq!(worker(LAYOUT, next), 2);

    subscriber.crash();
    subscriber.start_again();
    assert!(subscriber.connect().mark_ms() >= Some(mark_ms));
    let after = subscriber.connect().draw();
    assert!(after > next);
    assert_eq!(worker(LAYOUT, after), 2);
}

#[test]
fn a_subscriber_without_the_extension_is_refused() {
    if postgres_version() < 19 {
        return;
    }
    let publisher = server(LAYOUT, 1);
    let subscriber = Server::builder().without_preload().start();
    publisher.connect().batch_execute("CREATE PUBLICATION numbers FOR ALL SEQUENCES").unwrap();
    let refusal = refused(subscriber.connect().batch_execute(&subscription(&publisher)));
    assert_eq!(refusal.sqlstate, "42P01");
    assert!(refusal.message.contains("snowflake_mark"), "{refusal:?}");
}

/// An upgrade by logical replication: the successor takes over the number with the mark.
#[test]
fn a_successor_with_the_publishers_number_draws_above_what_the_publisher_has_drawn() {
    if postgres_version() < 19 {
        return;
    }
    let [publisher, successor] = [7, 7].map(|number| server(LAYOUT, number));
    subscribe(&successor, &publisher);
    let last = draw_ahead(&publisher);
    let mark_ms = publisher.connect().mark_ms();
    assert!(mark_ms > successor.connect().mark_ms(), "else the copy would raise nothing");
    refresh(&successor);
    assert_eq!(successor.connect().mark_ms(), mark_ms);
    let first = successor.connect().draw();
    assert!(first > last && start_ms(LAYOUT, first) >= end_ms(LAYOUT, last), "{last}, {first}");
}

#[test]
fn a_subscriber_of_another_layout_keeps_it() {
    if postgres_version() < 19 {
        return;
    }
    let [publisher, subscriber] = [(LAYOUT, 1), ("twitter", 2)].map(|(layout, number)| server(layout, number));
    publisher.connect().draw();
    let mut session = subscriber.connect();
    let last = session.draw();
    subscribe(&subscriber, &publisher);
    let next = session.draw();
    assert!(next > last);
    assert_eq!(worker("twitter", next), 2);
    assert_eq!(stored_layout(&subscriber), Layout::parse("twitter").unwrap().fingerprint().to_string());
}

#[test]
fn a_mark_does_not_fall_when_nothing_was_drawn_since_the_start() {
    if postgres_version() < 19 {
        return;
    }
    let [publisher, subscriber] = [1, 2].map(|number| server(LAYOUT, number));
    publisher.connect().draw();
    draw_ahead(&subscriber);
    let mark_ms = subscriber.connect().mark_ms();
    subscribe(&subscriber, &publisher);
    for _ in 0..2 {
        // Only the stored marks remember then.
        subscriber.stop(Shutdown::Fast);
        subscriber.start_again();
        refresh(&subscriber);
        assert!(subscriber.connect().mark_ms() >= mark_ms, "{:?} < {mark_ms:?}", subscriber.connect().mark_ms());
    }
}

/// A database in which nothing was drawn has nothing to keep.
#[test]
fn a_new_subscriber_takes_over_the_layout_of_the_ids_that_it_will_receive() {
    if postgres_version() < 19 {
        return;
    }
    let [publisher, subscriber] = [("twitter", 1), (LAYOUT, 2)].map(|(layout, number)| server(layout, number));
    publisher.connect().draw();
    subscribe(&subscriber, &publisher);
    let refusal = refused(subscriber.connect().try_draw());
    assert_eq!(refusal.sqlstate, "55000");
    assert!(refusal.detail.as_deref().is_some_and(|detail| detail.contains("twitter")), "{refusal:?}");
}
