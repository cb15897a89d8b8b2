//! Measures the core without PostgreSQL: drawing from one lane with one, two and four threads, and
//! what statements do for each row, reading and writing ids and layouts.
//!
//! Run `cargo bench -p core_bench`; add a word of a benchmark's name behind `--` to run only
//! that. The clock stands still, so the figures show the core alone. The sequence is so wide that
//! no millisecond is used up.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use snowflake_core::clock;
use snowflake_core::draw::generator::{Generator, Limits, NO_MARK};
use snowflake_core::draw::known_tick::{KnownTick, draw_one};
use snowflake_core::draw::published::{PublishedMarks, UNCLAIMED};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::layout::Layout;

const WIDE: &str = "time:32 sequence:31 unit:1ms epoch:2027-01-01T00:00:00Z";
const NOW_MS: i64 = 1_800_000_000_000;
const LIMITS: Limits = Limits { max_borrow_ms: 100, marks_ms: [NO_MARK; 2] };

/// How many ids are drawn at once.
#[derive(Clone, Copy)]
enum Draw {
    /// One, from a tick that the session knows.
    Known,
    Run(u32),
}

/// Returns how long the threads take, until each has drawn `times` from one lane.
fn draw(threads: usize, times: u64, what: Draw) -> Duration {
    let layout = Layout::parse(WIDE).expect("the layout is right");
    let drawing = IdStamp::new(layout, None, None, false).expect("the layout has no fields for numbers");
    let (generator, start) = (Generator::new(), Barrier::new(threads));
    let clock = || black_box(NOW_MS);
    let published = PublishedMarks::new();
    let marks = published.of(UNCLAIMED).expect("nothing was claimed");
    assert!(marks.set(0, marks.get(0), NO_MARK));
    let draw = || {
        let run = generator.draw(&drawing, &clock, &LIMITS, 1).expect("nothing is used up");
        let tick = black_box(KnownTick::of(&run, marks));
        start.wait();
        let begun = Instant::now();
        for _ in 0..times {
            black_box(match what {
                Draw::Known => draw_one(&generator, &clock, || tick, || true).expect("nothing is used up"),
                Draw::Run(count) => {
                    generator.draw(&drawing, &clock, &LIMITS, count).expect("nothing is used up").last_id()
                }
            });
        }
        begun.elapsed()
    };
    thread::scope(|scope| {
        let drawing: Vec<_> = (0..threads).map(|_| scope.spawn(draw)).collect();
        let took = drawing.into_iter().map(|thread| thread.join().expect("drawing does not panic"));
        took.max().expect("there is a thread")
    })
}

/// Measures each thread's time per draw, and the ids per second of all threads.
fn drawing(criterion: &mut Criterion) {
    let whats = [("one id of a known tick", Draw::Known), ("one id", Draw::Run(1)), ("a run of 64", Draw::Run(64))];
    for (name, what) in whats {
        let count = if let Draw::Run(count) = what { count } else { 1 };
        let mut group = criterion.benchmark_group(name);
        for threads in [1, 2, 4] {
            group.throughput(Throughput::Elements(threads as u64 * u64::from(count)));
            group.bench_function(BenchmarkId::new("threads", threads), |bencher| {
                bencher.iter_custom(|times| draw(threads, times, what));
            });
        }
        group.finish();
    }
}

/// Measures what statements ask about an id, and how settings and arguments are read.
fn reading(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("text and parts");
    let layout = Layout::parse("snowflake").expect("it is built in");
    let id = layout.compose(Some(NOW_MS), None, Some(5), 4).expect("the parts are within the layout");
    group.bench_function("parts of an id", |bencher| bencher.iter(|| layout.parts(black_box(id))));
    group.bench_function("id of its parts", |bencher| {
        bencher.iter(|| layout.compose(black_box(Some(NOW_MS)), None, Some(5), 4));
    });
    let specification = "time:41 datacenter:5 worker:5 sequence:12 unit:1ms epoch:2010-11-04T01:42:54.657Z";
    for (what, text) in [("layout of its name", "snowflake"), ("layout of its fields", specification)] {
        group.bench_function(what, |bencher| bencher.iter(|| Layout::parse(black_box(text))));
    }
    group.bench_function("instant of a text", |bencher| {
        bencher.iter(|| clock::parse_instant(black_box("2010-11-04T01:42:54.657Z")));
    });
    group.finish();
}

criterion_group!(benches, drawing, reading);
criterion_main!(benches);
