//! Drawing ids for SQL: what is checked first, who waits for what, and what follows a clock set back.
//!
//! The decision is the core's (`core/generator.rs`); this file acts on it. While it waits it holds no lock of any kind,
//! and it reads the clock anew after each wait, so that nothing rests on how long a sleep took. Each draw that is refused leaves
//! through `stats::note_refusal`, which counts it.

use std::ffi::CStr;

use snowflake_core::bounds::Instant;
use snowflake_core::clock::Clock;
use snowflake_core::generator::{Generator, Limits, MarkLimits, Refusal, Run, longest_run};
use snowflake_core::identity::{Drawing, LaneName};
use snowflake_core::layout::Layout;
use snowflake_core::published::Marks;

use crate::backend::{self, WallClock};
use crate::error::{Again, Error};
use crate::guc::{self, OnRollback};
use crate::local::Local;
use crate::mark;
use crate::shmem::{self, Slot};
use crate::stats::{self, Request, Wait};

/// A borrow at which oversleeping a tick by some milliseconds loses no ids: they can still be drawn afterwards.
const AMPLE_BORROW_MS: i64 = 5;

/// What a draw needs, found and checked once per call.
#[derive(Clone, Copy)]
struct Session {
    generator: &'static Generator,
    slot: &'static Slot,
    drawing: Drawing,
    marks: Marks<'static>,
}

impl Session {
    /// Checks what can be checked before the first draw. `command` names the SQL function in messages.
    fn new(command: &'static CStr) -> Result<Self, Error> {
        let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
        // Before all that may refuse the draw, which is counted there.
        let slot = shmem::claim_slot()?;
        let drawing = guc::drawing()?;
        backend::require_writable(command);
        Ok(Self { generator, slot, drawing, marks: mark::known_or_none()? })
    }

    /// The same, if all has been found and checked before. Raises nothing.
    #[inline(always)]
    fn known() -> Option<Self> {
        let (generator, drawing) = (shmem::generator()?, guc::drawing_if_set()?);
        let (slot, marks) = (shmem::slot()?, mark::known()?);
        backend::may_write().then_some(Self { generator, slot, drawing, marks })
    }

    /// Draws a run of `count` ids if a lane serves at once, within the marks given.
    #[inline(always)]
    fn draw_within<M: MarkLimits>(self, marks_ms: M, count: u32) -> Result<Run, Refusal> {
        let limits = Limits { max_borrow_ms: guc::max_borrow_ms(), marks_ms };
        self.generator.draw(&self.drawing, &WallClock, &limits, count)
    }

    /// The same, unless it is time to look after the mark.
    #[inline(always)]
    fn draw_at_once(self, count: u32) -> Result<Run, Refusal> {
        self.draw_within(self.marks, count)
    }

    /// Draws a run of `count` ids, moving the mark where it has to be, and waiting as long as the policy says.
    fn draw(mut self, count: u32) -> Result<Run, Error> {
        let request = Request::new();
        loop {
            let result = match self.draw_at_once(count) {
                Err(Refusal::MarkReached { lane, end_ms }) => {
                    mark::make_way(&self.drawing, &request, self.marks, lane, end_ms)?;
                    self.marks = mark::known_or_none()?;
                    // To the mark itself: while another session moves it early, this one need not wait.
                    self.draw_within(self.marks.limits_ms(), count)
                }
                result => result,
            };
            match result {
                Ok(run) => return Ok(run),
                Err(Refusal::MarkReached { .. }) => {}
                Err(refusal) => self.act_on(refusal, &request)?,
            }
            // Another session may have moved the mark, or a dump was restored.
            self.marks = mark::known_or_none()?;
        }
    }

    /// Composes the id of a run of one, notes it in the slot, and returns it.
    #[inline(always)]
    fn note(self, run: Run) -> i64 {
        let id = run.last_id();
        self.slot.note_run(&run, 1);
        match run.lane() {
            LaneName::Primary => self.slot.note_id(id),
            LaneName::Backup => self.slot.note_any(id),
        }
        id
    }

    /// Waits a while, or gives up.
    #[cold]
    fn act_on(self, refusal: Refusal, request: &Request) -> Result<(), Error> {
        let layout = *self.drawing.layout();
        let max_borrow_ms = guc::max_borrow_ms();
        match refusal {
            Refusal::BeforeEpoch { now_ms } => {
                request.note_step_back();
                return Err(Error::ClockBeforeEpoch { now_ms, layout });
            }
            Refusal::TimeUsedUp => return Err(Error::TimeUsedUp(layout)),
            Refusal::Rollback { behind_ms, wait_ms } if guc::on_rollback() == OnRollback::Error => {
                request.note_step_back();
                let again =
                    Again { at_ms: WallClock.now_ms().saturating_add(wait_ms), in_ms: wait_ms, is_never: false };
                return Err(Error::Rollback { behind_ms, max_borrow_ms, again });
            }
            Refusal::UsedUp { wait_ms: 1 } if max_borrow_ms < AMPLE_BORROW_MS => request.nap(stats::used_up()),
            Refusal::UsedUp { wait_ms } => request.wait(stats::used_up(), wait_ms),
            // No rollback: see Refusal::Behind.
            Refusal::Behind { wait_ms } => request.wait(Wait::Clock, wait_ms),
            Refusal::Rollback { behind_ms, wait_ms } => request.wait_for_clock(behind_ms, wait_ms),
            Refusal::MarkReached { .. } => unreachable!("draw() moves the mark"),
        }
        Ok(())
    }
}

/// Draws one id.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`], [`Error::ClockBeforeEpoch`], [`Error::TimeUsedUp`], [`Error::Rollback`], and
/// those of [`mark::make_way`].
/// What `nextval` refuses, PostgreSQL raises itself.
pub fn one() -> Result<i64, Error> {
    let draw = || {
        let session = Session::new(c"snowflake_next()")?;
        Ok(session.note(session.draw(1)?))
    };
    draw().inspect_err(stats::note_refusal)
}

/// Draws one id for nobody, which is not counted either, and returns the least id that this server can draw from now on, for `command`.
///
/// # Errors
/// As [`one`].
pub fn least_to_come(command: &'static CStr) -> Result<i64, Error> {
    let draw = || {
        let session = Session::new(command)?;
        Ok((session.drawing, session.draw(1)?))
    };
    let (drawing, run) = draw().inspect_err(stats::note_refusal)?;
    let (next, layout) = (run.last_id(), drawing.layout());
    if !drawing.identity().has_backup() {
        return Ok(next);
    }
    // The other lane may be behind this one by what has been borrowed, though not behind the clock.
    let tick = u64::try_from(layout.tick_at(WallClock.now_ms())).unwrap_or(0);
    let start = Instant { ms: layout.start_of_ms(tick), later: false };
    Ok(next.min(layout.last_id_before(start) + 1))
}

/// Draws one id if that takes no waiting, raises nothing and is not the session's first. Panics only if an invariant of
/// the core is broken; nothing then stands between the panic and an abort, so that no wrong id gets out.
#[inline(always)]
pub fn one_at_once() -> Option<i64> {
    let session = Session::known()?;
    Some(session.note(session.draw_at_once(1).ok()?))
}

/// Draws `count` ids as they are asked for, in runs.
///
/// # Errors
/// As [`one`], and [`Error::NegativeCount`]; the iterator's items likewise.
pub fn batch(count: i32) -> Result<impl Iterator<Item = Result<i64, Error>>, Error> {
    let session = Session::new(c"snowflake_batch()").inspect_err(stats::note_refusal)?;
    let longest = longest_run(session.drawing.layout());
    let mut left = u32::try_from(count).map_err(|_| Error::NegativeCount(count))?;
    let mut ids = None;
    let mut next = move || {
        if let Some(id) = ids.as_mut().and_then(Iterator::next) {
            return Ok(Some(id));
        }
        if left == 0 {
            return Ok(None);
        }
        let length = left.min(longest);
        left -= length;
        // Another session may have been the first to draw since this one looked.
        let session = Session { marks: mark::known_or_none()?, ..session };
        let run = session.draw(length)?;
        session.slot.note_run(&run, run.count());
        Ok(ids.insert(run.ids()).next())
    };
    Ok(std::iter::from_fn(move || {
        let id = next().inspect_err(stats::note_refusal).transpose()?;
        Some(id.inspect(|id| session.slot.note_any(*id)))
    }))
}

/// The last id drawn in this session.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NothingDrawn`].
pub fn last() -> Result<i64, Error> {
    guc::config().ok_or(Error::NotPreloaded)?;
    let is_known = |id: &i64| *id != FORGOTTEN.get();
    shmem::slot().and_then(Slot::last_id).filter(is_known).ok_or(Error::NothingDrawn)
}

/// The id that [`forget_last`] has made this session forget; -1 if there is none. No id that it draws later is the same.
static FORGOTTEN: Local<i64> = Local::new(-1);

/// Makes the session forget its last id, until it draws another one. Raises nothing.
pub fn forget_last() {
    if let Some(id) = shmem::slot().and_then(Slot::last_id) {
        FORGOTTEN.set(id);
    }
}

/// Draws no id at or below `id` any more in this database; with `force`, even if `id` is far ahead of the clock.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::Id`], and those of [`mark::advance`].
pub fn advance(id: i64, force: bool) -> Result<(), Error> {
    let layout = writable_layout(c"snowflake_advance()")?;
    mark::advance(layout, layout.created_at_ms(id)? + layout.unit().ms(), force)
}

/// Takes the running layout for the database's.
///
/// # Errors
/// [`Error::NotPreloaded`], and those of [`mark::accept_layout`].
pub fn accept_layout() -> Result<(), Error> {
    mark::accept_layout(writable_layout(c"snowflake_accept_layout()")?)
}

/// Counts nothing as drawn any more in this database.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`], and those of [`mark::reset`].
pub fn reset_mark() -> Result<(), Error> {
    writable_layout(c"snowflake_reset_mark()")?;
    mark::reset(&guc::drawing()?)
}

/// The running layout, where something may be written.
fn writable_layout(command: &'static CStr) -> Result<&'static Layout, Error> {
    let config = guc::config().ok_or(Error::NotPreloaded)?;
    backend::require_writable(command);
    // For the statistics.
    shmem::claim_slot()?;
    Ok(&config.layout)
}
