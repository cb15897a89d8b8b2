//! Drawing over a session: the loop from "an id is wanted" to a run of ids, or to the reason why
//! there is none.
//!
//! ```text
//! draw: a lane serves, within the published mark --> the run
//!   |-- the mark is reached, or it is time to move it --> make way (`mark.rs`), draw up to the mark; again
//!   |-- the numbers' lease is reached --> wait for the lease, or refuse; again
//!   |-- all ids are drawn, or the clock is a little behind --> wait; again
//!   '-- the clock was set back --> wait, or refuse, as the operator chose
//! ```
//!
//! In the extension, a [`DrawingSession`] is a PostgreSQL backend (`src/ids/next.rs`), with a fast
//! path for a lane that serves at once. In `tests/simulation`, it is a simulated one. Each round
//! reads anew whatever may have changed while the session waited (clock, marks, numbers), so that
//! nothing rests on how long a wait took.

use crate::clock::{Clock, Wait};
use crate::draw::generator::{Announce, DrawRefusal, Generator, IdRun, Limits, MarkLimits};
use crate::draw::mark::{MarkTerms, end_of};
use crate::draw::published::Marks;
use crate::draw::stamp::IdStamp;
use crate::id::identity::LaneName;

/// What a draw asks of the session that it runs in. An error of any function ends the draw.
pub trait DrawingSession: Clock {
    /// What can go wrong.
    type Error;

    /// Returns the published marks of the session's database, or marks that permit nothing if none
    /// are claimed yet.
    fn last_seen(&self) -> Result<Marks<'_>, Self::Error>;

    /// Returns what ids are drawn with now, which must be read after the marks that
    /// [`last_seen`](Self::last_seen) returns were looked up. As long as the marks have that
    /// version, the server has these numbers ([`Numbers`]), but their end may be later by now. So a
    /// fast path may keep the two together, and this must read them anew.
    ///
    /// [`Numbers`]: crate::draw::numbers::Numbers
    fn drawing(&self) -> Result<IdStamp, Self::Error>;

    /// Waits until the server may draw later ticks than these numbers' last one, holding nothing;
    /// or ends the draw.
    fn lease(&self, drawing: &IdStamp) -> Result<(), Self::Error>;

    /// Returns the settings that bear on the draw.
    fn terms(&self) -> MarkTerms;

    /// Returns what a draw announces its attempts to (`settled.rs`). By default, that is nothing.
    fn announce(&self) -> impl Announce {}

    /// Returns the limits that a draw reads at each attempt. A simulation lets other sessions run
    /// before each reading.
    fn marks<'a>(&'a self, limits: impl MarkLimits + 'a) -> impl MarkLimits + 'a {
        limits
    }

    /// Moves or loads the mark; see [`Mark::make_way`](crate::draw::mark::Mark::make_way).
    fn make_way(
        &self,
        drawing: &IdStamp,
        terms: &MarkTerms,
        known: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), Self::Error>;

    /// Waits for the clock, or a shorter time. The session holds no lock.
    fn wait(&self, wait: Wait) -> Result<(), Self::Error>;

    /// Makes the error for a draw that is refused, and neither waits nor makes way: the clock is
    /// before the epoch, or was set back, or the layout's time is used up.
    fn refused(&self, drawing: &IdStamp, refusal: DrawRefusal) -> Self::Error;
}

/// Draws a run of `count` ids (1 to [`longest_run`](crate::draw::generator::longest_run)). Moves
/// the mark where needed, and waits for as long as the terms say.
///
/// # Errors
/// [`DrawRefusal`], as the session words it, and the session's own.
pub fn draw<S: DrawingSession>(session: &S, generator: &Generator, count: u32) -> Result<IdRun, S::Error> {
    loop {
        let mut known = session.last_seen()?;
        let mut drawing = session.drawing()?;
        let terms = session.terms();
        let max_borrow_ms = terms.max_borrow_ms;
        // Before the draw: meanwhile another session may wait for the tick, and load the mark.
        let mut is_first = is_first_draw(known, &drawing);
        let limits = Limits { max_borrow_ms, marks_ms: session.marks(known) };
        let mut drawn = generator.draw_announced(&drawing, session, &limits, count, session.announce());
        if let Err(DrawRefusal::MarkReached { lane, end_ms }) = drawn {
            if end_ms > end_of(&drawing) {
                session.lease(&drawing)?;
                continue;
            }
            session.make_way(&drawing, &terms, known, lane, end_ms)?;
            known = session.last_seen()?;
            drawing = session.drawing()?;
            is_first = is_first_draw(known, &drawing);
            // While another session moves the mark early, this one need not wait.
            let limits = Limits { max_borrow_ms, marks_ms: session.marks(known.both_lanes()) };
            drawn = generator.draw_announced(&drawing, session, &limits, count, session.announce());
        }
        let wait = match drawn {
            Ok(run) => return Ok(run),
            // Another session has moved the mark, a dump was restored, or the numbers have changed.
            Err(DrawRefusal::MarkReached { .. }) => continue,
            Err(DrawRefusal::UsedUp { wait_ms }) => Wait::UsedUp { wait_ms },
            // A saturated generator has borrowed all it may, and would otherwise report the
            // smallest step back as a rollback.
            Err(DrawRefusal::Behind { wait_ms, .. }) if wait_ms <= max_borrow_ms => Wait::Borrowed { wait_ms },
            Err(refusal @ DrawRefusal::Behind { behind_ms, wait_ms }) => {
                // Numbers that were given back leave a lane a tick further, which is not a
                // rollback.
                if session.drawing()?.version() != drawing.version() {
                    continue;
                }
                // So can numbers that were entered.
                let is_in_the_next_tick = wait_ms <= drawing.layout().unit().ms();
                if is_first && is_in_the_next_tick {
                    session.wait(Wait::UsedUp { wait_ms })?;
                    continue;
                }
                if !terms.wait_for_clock {
                    return Err(session.refused(&drawing, refusal));
                }
                Wait::ClockStepBack { wait_ms, behind_ms }
            }
            Err(refusal @ (DrawRefusal::BeforeEpoch { .. } | DrawRefusal::TimeUsedUp)) => {
                return Err(session.refused(&drawing, refusal));
            }
        };
        session.wait(wait)?;
    }
}

/// Whether a lane may lie in the tick after the clock's because leased numbers were entered.
/// Nothing is drawn with them before a mark is loaded.
fn is_first_draw(known: Marks<'_>, drawing: &IdStamp) -> bool {
    let lanes = if drawing.identity().has_backup() { &LaneName::ALL[..] } else { &[LaneName::Primary] };
    drawing.is_leased() && lanes.iter().any(|lane| known.mark_ms(*lane).is_none())
}
