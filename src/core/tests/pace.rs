//! When servers ask a registry again: the waits, and what becomes of a registry that a whole fleet
//! asks at once.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

mod kit;

use kit::random::Random;
use snowflake_core::fleet::pace::{AttemptFailure, LONGEST_CONTENDED_MS, LONGEST_MS, Pace, counts_in_ms, varied_ms};

#[test]
fn a_registry_that_is_away_is_asked_each_second() {
    let (mut pace, mut now_ms, random) = (Pace::default(), 0, Random::new(1));
    for _ in 0..1000 {
        let wait_ms = pace.failed(AttemptFailure::Otherwise, now_ms, random.bits());
        let allowed = if now_ms < 3000 { 160..=240 } else { 800..=1200 };
        assert!(allowed.contains(&wait_ms), "{wait_ms} at {now_ms}");
        now_ms += wait_ms;
    }
    pace.succeeded();
    assert!(pace.failed(AttemptFailure::Otherwise, now_ms, 0) < 800, "a failure is new again");
}

#[test]
fn a_registry_that_is_overloaded_is_asked_less_often_each_time() {
    let (mut pace, mut longest_ms) = (Pace::default(), Vec::new());
    for _ in 0..6 {
        let mut after = pace;
        let most_ms = (0..40_000)
            .map(|random| {
                after = pace;
                after.failed(AttemptFailure::Overloaded, 0, random)
            })
            .max();
        longest_ms.push(most_ms.expect("there are many"));
        assert_eq!(Pace::clone(&pace).failed(AttemptFailure::Overloaded, 0, 0), 1000, "the shortest");
        pace = after;
    }
    assert_eq!(longest_ms, [2000, 4000, 8000, 16_000, LONGEST_MS, LONGEST_MS]);

    // A server that was down for a while is not overloaded, and a success forgets all.
    assert!(pace.failed(AttemptFailure::Otherwise, 10_000, 400) <= 1200);
    assert!(pace.failed(AttemptFailure::Overloaded, 10_000, u64::MAX) <= 2000);
    pace.succeeded();
    assert!(pace.failed(AttemptFailure::Overloaded, 10_000, u64::MAX) <= 2000);
}

#[test]
fn servers_that_were_not_first_come_again_at_different_times_and_less_often_each_time() {
    let (mut pace, mut longest_ms) = (Pace::default(), Vec::new());
    for _ in 0..9 {
        let mut after = pace;
        let mut wait_ms = |random| {
            after = pace;
            after.failed(AttemptFailure::Contended, 0, random)
        };
        let waits: Vec<_> = (0..5000).map(&mut wait_ms).collect();
        assert_eq!(waits.iter().min(), Some(&0));
        longest_ms.extend(waits.into_iter().max());
        pace = after;
    }
    assert_eq!(longest_ms, [50, 100, 200, 400, 800, 1600, 3200, LONGEST_CONTENDED_MS, LONGEST_CONTENDED_MS]);
    pace.succeeded();
    assert!(pace.failed(AttemptFailure::Contended, 0, u64::MAX) <= 50);
}

#[test]
fn waits_and_counts_are_within_what_is_documented() {
    assert_eq!((varied_ms(1000, 0), varied_ms(1000, 200), varied_ms(1000, 400)), (800, 1000, 1200));
    assert_eq!([0, 1, 100, 1000, 8192].map(counts_in_ms), [60_000, 60_000, 60_000, 600_000, 4_915_200]);
    assert_eq!(counts_in_ms(i64::MAX), i64::MAX);
}

/// A registry that works on all requests alike, and does not notice that a server has given up.
struct Registry {
    /// What is left to do of each request, in processor time, and of which server it is.
    requests: Vec<(f64, usize)>,
}

/// What one server does.
#[derive(Clone, Copy)]
enum Doing {
    /// It waits for an answer, and gives up then.
    Asks {
        until_ms: i64,
    },
    /// It waits, and asks then.
    Waits {
        until_ms: i64,
    },
    Done,
}

/// Lets a fleet start at once. Returns after how many milliseconds all servers have their answer,
/// and `None` if that takes more than ten minutes. `wait_ms` says when a server asks again.
fn starts(servers: usize, mut wait_ms: impl FnMut(usize, i64) -> i64) -> Option<i64> {
    /// The time that one processor needs for a request: connecting, and the reads and the swap of a
    /// start. `tools/bench scale` measures it for fleets of a thousand.
    const REQUEST_MS: f64 = 30.0;
    const PROCESSORS: f64 = 2.0;
    const GIVEN_UP_AFTER_MS: i64 = 5000;
    const STEP_MS: i64 = 50;
    let mut registry = Registry { requests: Vec::new() };
    let mut all = vec![Doing::Waits { until_ms: 0 }; servers];
    for now_ms in (0..600_000).step_by(STEP_MS as usize) {
        for (server, doing) in all.iter_mut().enumerate() {
            match *doing {
                Doing::Waits { until_ms } if until_ms <= now_ms => {
                    registry.requests.push((REQUEST_MS, server));
                    *doing = Doing::Asks { until_ms: now_ms + GIVEN_UP_AFTER_MS };
                }
                // What it has asked for is still worked on.
                Doing::Asks { until_ms } if until_ms <= now_ms => {
                    registry.requests.iter_mut().filter(|(_, of)| *of == server).for_each(|(_, of)| *of = usize::MAX);
                    *doing = Doing::Waits { until_ms: now_ms + wait_ms(server, now_ms) };
                }
                _ => {}
            }
        }
        let share = (PROCESSORS / registry.requests.len() as f64).min(1.0) * STEP_MS as f64;
        registry.requests.retain_mut(|(left, server)| {
            *left -= share;
            if let (true, Some(doing)) = (*left <= 0.0, all.get_mut(*server)) {
                *doing = Doing::Done;
            }
            *left > 0.0
        });
        if all.iter().all(|doing| matches!(doing, Doing::Done)) {
            return Some(now_ms);
        }
    }
    None
}

#[test]
fn a_registry_that_a_thousand_ask_at_once_serves_them_all() {
    for seed in 0..3 {
        let (random, mut paces) = (Random::new(seed), vec![Pace::default(); 1000]);
        let took_ms =
            starts(1000, |server, now_ms| paces[server].failed(AttemptFailure::Overloaded, now_ms, random.bits()));
        let took_ms = took_ms.expect("the registry serves all within ten minutes");
        assert!(took_ms < 300_000, "seed {seed}: {took_ms}");
    }
    // A hundred are served before one gives up.
    assert!(starts(100, |_, _| unreachable!("no server gives up")).is_some());
}

/// The negative control: with the same wait each time, all work is done for nothing.
#[test]
fn servers_that_ask_again_after_a_second_starve_it() {
    let random = Random::new(1);
    assert_eq!(starts(1000, |_, _| varied_ms(1000, random.bits())), None);
}
