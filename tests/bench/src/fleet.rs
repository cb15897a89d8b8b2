//! What leases cost: the time from a promotion to the first id, how many renewals a registry
//! serves, and one INSERT every three seconds.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cluster::registry::{Member, config};
use cluster::{Builder, Fleet, Leases, Operated, Server};

use crate::Failure;
use crate::figure::{Bar, Figure};
use crate::pause;
use crate::series::Series;
use crate::servers;

/// How many members renew at once, each as often as it can. A member of a fleet renews every ten
/// seconds.
const MEMBERS: [usize; 3] = [1, 4, 16];

/// For how long they do so in each run.
const RENEWING: Duration = Duration::from_secs(1);

/// Measures all of it.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Failure> {
    let fleet = Fleet::start();
    let mut figures = promotions(&fleet, runs)?;
    for members in MEMBERS {
        let values = (0..runs).map(|_| renewals_per_second(&fleet, members)).collect();
        let what = format!("renewals per second, {members} members");
        figures.push(Figure::alone(&Series::new(what, "1/s", values), Bar::None));
    }
    let server = servers::leasing(&fleet).start_with_extension();
    server.connect().wait_for_lease();
    figures.extend(pause::measure_on(&server, "leased number", 2 * runs)?);
    Ok(figures)
}

/// Promotes standbys with a configured number, with a lease that they hold already, and with one
/// that they acquire at the promotion.
fn promotions(fleet: &Fleet, runs: usize) -> Result<Vec<Figure>, Failure> {
    let small = Fleet::start();
    // A standby holds a lease only where half of all numbers are free.
    small.operate(&["set-range", "0", "63"]);
    for number in 0..40 {
        small.operate(&["reserve", &number.to_string(), "in 1 hour"]);
    }
    let mut values = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..runs {
        values[0].push(promotion_ms(servers::drawing(), false)?);
        values[1].push(promotion_ms(servers::leasing(fleet), true)?);
        values[2].push(promotion_ms(servers::leasing(&small), false)?);
    }
    let [configured, held, acquired] = values;
    let configured = Series::new("configured number", "ms", configured);
    Ok(vec![
        Figure::ratio(&Series::new("promotion to the first id, lease held before", "ms", held), &configured, Bar::None),
        Figure::ratio(
            &Series::new("promotion to the first id, lease acquired then", "ms", acquired),
            &configured,
            Bar::None,
        ),
    ])
}

/// Stops a primary, promotes its standby, and returns how long it takes until a session there that
/// was open before has an id.
fn promotion_ms(primary: Builder, holds_lease: bool) -> Result<f64, Failure> {
    let primary = primary.start_with_extension();
    primary.connect().execute("SELECT snowflake_next()", &[])?;
    let standby: Server = primary.standby().start();
    let mut session = standby.connect();
    if holds_lease {
        session.wait_for_lease();
    }
    primary.stop(cluster::Shutdown::Fast);
    let mut draws = standby.connect();
    let start = Instant::now();
    session.execute("SELECT pg_promote(false)", &[])?;
    while draws.query("SELECT snowflake_next()", &[]).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    let elapsed = start.elapsed();
    // Gives its number back.
    standby.stop(cluster::Shutdown::Fast);
    Ok(elapsed.as_secs_f64() * 1000.0)
}

/// Lets members renew for a while, and returns how many renewals there were in a second.
fn renewals_per_second(fleet: &Fleet, members: usize) -> f64 {
    let (ready, conninfo) = (Barrier::new(members), fleet.conninfo());
    let renewals: u32 = thread::scope(|scope| {
        let renew = || {
            let member = Member::new(config(&conninfo), None);
            member.lease();
            ready.wait();
            let end = Instant::now() + RENEWING;
            let mut renewals = 0;
            while Instant::now() < end {
                member.keep().expect("the registry answers");
                renewals += 1;
            }
            member.give_back();
            renewals
        };
        let members: Vec<_> = (0..members).map(|_| scope.spawn(renew)).collect();
        members.into_iter().map(|member| member.join().expect("it renews")).sum()
    });
    f64::from(renewals) / RENEWING.as_secs_f64()
}
