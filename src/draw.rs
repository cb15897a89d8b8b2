//! Drawing ids for SQL: what is checked first, who waits for what, and what follows a clock set back.
//!
//! The decision is the core's (`core/generator.rs`); this file acts on it. While it waits it holds no lock of any kind,
//! and it reads the clock anew after each wait, so that nothing rests on how long a sleep took.

use std::ffi::CStr;

use snowflake_core::generator::{Generator, Limits, NO_MARK, Refusal, Run, longest_run};

use crate::backend::{self, WallClock};
use crate::error::Error;
use crate::guc::{self, Drawing, OnRollback};
use crate::shmem::{self, Slot};

/// A borrow at which oversleeping a tick by some milliseconds loses no ids: they can still be drawn afterwards.
const AMPLE_BORROW_MS: i64 = 5;

/// What a draw needs, found and checked once per call.
#[derive(Clone, Copy)]
struct Session {
    generator: &'static Generator,
    slot: &'static Slot,
    drawing: &'static Drawing,
}

impl Session {
    /// Checks what can be checked before the first draw. `command` names the SQL function in messages.
    fn new(command: &'static CStr) -> Result<Self, Error> {
        let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
        let drawing = guc::drawing()?;
        backend::require_writable(command);
        Ok(Self { generator, slot: shmem::claim_slot()?, drawing })
    }

    /// The same, if all has been found and checked before. Raises nothing.
    #[inline(always)]
    fn known() -> Option<Self> {
        let (generator, drawing) = (shmem::generator()?, guc::drawing_if_set()?);
        let slot = shmem::slot()?;
        backend::may_write().then_some(Self { generator, slot, drawing })
    }

    /// Draws a run of `count` ids if a lane serves at once.
    #[inline(always)]
    fn draw_at_once(self, count: u32) -> Result<Run, Refusal> {
        let Drawing { layout, identity } = self.drawing;
        let limits = Limits { max_borrow_ms: guc::max_borrow_ms(), marks_ms: [NO_MARK; 2] };
        self.generator.draw(layout, identity, &WallClock, &limits, count)
    }

    /// Draws a run of `count` ids, waiting as long as the policy says.
    fn draw(self, count: u32) -> Result<Run, Error> {
        loop {
            match self.draw_at_once(count) {
                Ok(run) => return Ok(run),
                Err(refusal) => self.act_on(refusal)?,
            }
        }
    }

    /// Composes the id of a run of one, notes it in the slot, and returns it.
    #[inline(always)]
    fn note(self, run: Run) -> i64 {
        let id = self.drawing.identity.last_id(&self.drawing.layout, run);
        self.slot.note(id);
        id
    }

    /// Waits a while, or gives up.
    #[cold]
    fn act_on(self, refusal: Refusal) -> Result<(), Error> {
        let layout = self.drawing.layout;
        let max_borrow_ms = guc::max_borrow_ms();
        match refusal {
            Refusal::BeforeEpoch { now_ms } => return Err(Error::ClockBeforeEpoch { now_ms, layout }),
            Refusal::TimeUsedUp => return Err(Error::TimeUsedUp(layout)),
            Refusal::Rollback { behind_ms, .. } if guc::on_rollback() == OnRollback::Error => {
                return Err(Error::Rollback { behind_ms, max_borrow_ms });
            }
            Refusal::UsedUp { wait_ms: 1 } if max_borrow_ms < AMPLE_BORROW_MS => backend::nap(),
            Refusal::UsedUp { wait_ms } | Refusal::Behind { wait_ms } | Refusal::Rollback { wait_ms, .. } => {
                backend::sleep(wait_ms);
            }
            Refusal::MarkReached { .. } => unreachable!("no mark limits this draw"),
        }
        Ok(())
    }
}

/// Draws one id.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`], [`Error::ClockBeforeEpoch`], [`Error::TimeUsedUp`], [`Error::Rollback`].
/// What `nextval` refuses, PostgreSQL raises itself.
pub fn one() -> Result<i64, Error> {
    let session = Session::new(c"snowflake_next()")?;
    Ok(session.note(session.draw(1)?))
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
    let session = Session::new(c"snowflake_batch()")?;
    let Drawing { layout, identity } = session.drawing;
    let longest = longest_run(layout);
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
        Ok(ids.insert(identity.ids(layout, session.draw(length)?)).next())
    };
    Ok(std::iter::from_fn(move || Some(next().transpose()?.inspect(|id| session.slot.note(*id)))))
}

/// The last id drawn in this session.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NothingDrawn`].
pub fn last() -> Result<i64, Error> {
    shmem::claim_slot()?.last_id().ok_or(Error::NothingDrawn)
}
