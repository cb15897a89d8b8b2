//! Drawing ids for SQL: what is checked first, the fast path, and what is counted.
//!
//! The core has the loop that moves the mark, waits and refuses (`core/draw/session.rs`); this file
//! is its session. While it waits, it must hold no lock of any kind. Each refused draw must leave
//! through `stats::note_refusal`, which counts it.
//!
//! Three ways lead to an id, the shortest first: of the tick that the session knows, of any tick
//! without waiting, and through the core's loop. `docs/internals/testing.md` (Figures) has what the
//! shortest costs, instruction by instruction.

use std::ffi::CStr;

use snowflake_core::clock::{Clock, Wait};
use snowflake_core::draw::generator::{Announce, DrawRefusal, Generator, IdRun, Limits, longest_run};
use snowflake_core::draw::known_tick::{self, KnownTick};
use snowflake_core::draw::mark::MarkTerms;
use snowflake_core::draw::published::Marks;
use snowflake_core::draw::session::{DrawingSession, draw};
use snowflake_core::draw::settled::FirstDraw;
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::bounds::Instant;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;

use crate::error::{Again, Error};
use crate::ids::database_mark;
use crate::ids::members;
use crate::ids::prepared;
use crate::ids::stamp;
use crate::ids::stats;
use crate::ids::waiting::Request;
use crate::postgres::backend::{self, WallClock};
use crate::postgres::local::Local;
use crate::settings::guc;
use crate::shared::lease_status;
use crate::shared::shmem;
use crate::shared::slot::Slot;

/// Where ids are drawn from and counted. It is found and checked once per call.
#[derive(Clone, Copy)]
struct IdSource {
    generator: &'static Generator,
    slot: &'static Slot,
}

impl IdSource {
    /// Checks what can be checked before the first draw. `command` names the SQL function in
    /// messages.
    fn find(command: &'static CStr) -> Result<Self, Error> {
        let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
        // The slot comes before all that may refuse the draw, because refusals are counted in it.
        let slot = shmem::claim_slot()?;
        stamp::check()?;
        backend::require_writable(command);
        Ok(Self { generator, slot })
    }

    /// Returns what [`find`](Self::find) does, if all of it was found and checked before. Raises
    /// nothing.
    #[inline(always)]
    fn known() -> Option<Self> {
        let (generator, slot) = (shmem::generator()?, shmem::slot()?);
        backend::may_write().then_some(Self { generator, slot })
    }

    /// Draws a run of `count` ids, waiting as long as the policy says.
    fn draw(self, count: u32) -> Result<IdRun, Error> {
        let is_first = !self.slot.has_first_id();
        let session = BackendSession { request: Request::new(), announce: self.slot.announce() };
        let run = draw(&session, self.generator, count)?;
        if is_first {
            prepared::has_drawn()?;
        }
        Ok(run)
    }

    /// Counts a run of one, notes its id in the slot, and returns it.
    #[inline(always)]
    fn note(self, run: &IdRun) -> i64 {
        let id = run.last_id();
        self.slot.note_run(run, 1);
        match run.lane() {
            LaneName::Primary => self.slot.note_id(id),
            LaneName::Backup => self.slot.note_any(id),
        }
        id
    }
}

/// This backend, as one draw sees it.
struct BackendSession {
    request: Request,
    announce: FirstDraw<'static>,
}

impl BackendSession {
    /// Returns what `look` finds, and waits until it does, as long as a draw waits for a lease.
    fn with_lease<T>(&self, look: impl Fn() -> Result<Option<T>, Error>) -> Result<T, Error> {
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if !lease_status::can_lease() || !self.request.wait_for_lease() {
                return Err(stamp::no_lease());
            }
        }
    }
}

impl Clock for BackendSession {
    fn now_ms(&self) -> i64 {
        WallClock.now_ms()
    }
}

impl DrawingSession for BackendSession {
    type Error = Error;

    fn last_seen(&self) -> Result<Marks<'_>, Error> {
        database_mark::known_or_none()
    }

    fn drawing(&self) -> Result<IdStamp, Error> {
        self.with_lease(stamp::keep)
    }

    fn lease(&self, before: &IdStamp) -> Result<(), Error> {
        let is_later = |now: &IdStamp| now.version() != before.version() || now.until_ms() > before.until_ms();
        self.with_lease(|| Ok(stamp::read()?.filter(is_later).map(drop)))
    }

    fn terms(&self) -> MarkTerms {
        database_mark::terms()
    }

    fn announce(&self) -> impl Announce {
        self.announce
    }

    fn make_way(
        &self,
        drawing: &IdStamp,
        terms: &MarkTerms,
        known: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), Error> {
        let result = database_mark::of(drawing.layout(), &self.request)?.make_way(drawing, terms, known, lane, end_ms);
        // A leased number's mark is not flushed.
        self.request.has_moved();
        if matches!(result, Err(Error::BehindMark { .. })) {
            self.request.note_step_back();
        }
        stats::warn_in_the_last_year(drawing.layout());
        result
    }

    fn wait(&self, wait: Wait) -> Result<(), Error> {
        self.request.wait(wait);
        Ok(())
    }

    fn refused(&self, drawing: &IdStamp, refusal: DrawRefusal) -> Error {
        let layout = *drawing.layout();
        match refusal {
            DrawRefusal::BeforeEpoch { now_ms } => {
                self.request.note_step_back();
                Error::ClockBeforeEpoch { now_ms, layout }
            }
            DrawRefusal::TimeUsedUp => Error::TimeUsedUp(layout),
            DrawRefusal::Behind { behind_ms, wait_ms } => {
                self.request.note_step_back();
                let at_ms = WallClock.now_ms().saturating_add(wait_ms);
                let (is_leased, frozen_ms) = (drawing.is_leased(), stamp::frozen_ms());
                let again = Again { at_ms, in_ms: wait_ms, is_never: false, is_leased, frozen_ms };
                Error::ClockStepBack { behind_ms, max_borrow_ms: guc::max_borrow_ms(), again }
            }
            DrawRefusal::UsedUp { .. } | DrawRefusal::MarkReached { .. } => {
                unreachable!("a draw goes on after {refusal:?}")
            }
        }
    }
}

/// Draws one id.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`], [`Error::NotSupplied`], [`Error::ClockBeforeEpoch`],
/// [`Error::TimeUsedUp`], [`Error::ClockStepBack`], and those of
/// [`Mark::make_way`](snowflake_core::draw::mark::Mark::make_way), as [`Error`] words them.
/// PostgreSQL itself raises what `nextval` refuses.
pub fn one() -> Result<i64, Error> {
    let draw = || {
        let source = IdSource::find(c"snowflake_next()")?;
        Ok(source.note(&source.draw(1)?))
    };
    draw().inspect_err(stats::note_refusal)
}

/// Draws and discards one id, uncounted, and returns it. It is above all that this server has
/// drawn, except for borrowed ones. `command` names the SQL function in messages.
///
/// # Errors
/// As for [`one`].
pub fn above_drawn(command: &'static CStr) -> Result<i64, Error> {
    let draw = || Ok(IdSource::find(command)?.draw(1)?.last_id());
    draw().inspect_err(stats::note_refusal)
}

/// Draws and discards one id, uncounted, and returns the least id that this server can draw from
/// now on. `command` names the SQL function in messages.
///
/// # Errors
/// As for [`one`].
pub fn least_to_come(command: &'static CStr) -> Result<i64, Error> {
    let draw = || {
        let run = IdSource::find(command)?.draw(1)?;
        Ok((stamp::layout().ok_or(Error::NotPreloaded)?, run))
    };
    let (layout, run) = draw().inspect_err(stats::note_refusal)?;
    let next = run.last_id();
    if !stamp::has_backup() {
        return Ok(next);
    }
    // The other lane may be behind this one by what was borrowed, but not behind the clock.
    let tick = u64::try_from(layout.tick_at(WallClock.now_ms())).unwrap_or(0);
    let start = Instant { ms: layout.start_of_ms(tick), later: false };
    Ok(next.min(layout.last_id_before(start) + 1))
}

/// Draws one id of the tick that the session knows (`core/draw/known_tick.rs`), if the transaction
/// has drawn before. Raises and waits for nothing. Panics only if an invariant of the core is
/// broken. Such a panic ends in an abort, so that no wrong id gets out.
#[inline(always)]
pub fn one_of_known_tick() -> Option<i64> {
    let (generator, slot) = (shmem::generator()?, shmem::slot()?);
    if !slot.has_first_id() {
        return None;
    }
    // Recovery was over when the session learned the tick.
    let id = known_tick::draw_one(generator, &WallClock, database_mark::known_tick, backend::may_still_write)?;
    slot.note_one(id);
    Some(id)
}

/// Draws one id of any tick, perhaps the first of a transaction, which is announced. Learns the
/// tick for the next draws. Raises and waits for nothing. A function of its own, so that the one
/// above need not save what this one uses.
#[inline(never)]
pub fn one_of_any_tick() -> Option<i64> {
    let (source, marks, drawing) = (IdSource::known()?, database_mark::known()?, stamp::kept()?);
    let is_first = !source.slot.has_first_id();
    // What is then to be done may raise an error.
    if is_first && prepared::is_preparing() {
        return None;
    }
    let limits = Limits { max_borrow_ms: guc::max_borrow_ms(), marks_ms: marks };
    let announce = source.slot.announce();
    let run = source.generator.draw_announced(drawing, &WallClock, &limits, 1, announce).ok()?;
    // Most transactions draw one id, and need no more. A tick that is ahead of the clock does not
    // serve.
    if !is_first
        && run.borrowed() == 0
        && let Some(tick) = KnownTick::of(&run, marks)
    {
        database_mark::remember_tick(tick);
    }
    Some(source.note(&run))
}

/// Draws `count` ids in runs, as the iterator asks for them.
///
/// # Errors
/// As for [`one`], and [`Error::NegativeCount`]. Each item can fail in the same way.
pub fn batch(count: i32) -> Result<impl Iterator<Item = Result<i64, Error>>, Error> {
    let source = IdSource::find(c"snowflake_batch()").inspect_err(stats::note_refusal)?;
    let longest = longest_run(stamp::layout().ok_or(Error::NotPreloaded)?);
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
        let run = source.draw(length)?;
        source.slot.note_run(&run, run.count());
        Ok(ids.insert(run.ids()).next())
    };
    Ok(std::iter::from_fn(move || {
        let id = next().inspect_err(stats::note_refusal).transpose()?;
        Some(id.inspect(|id| source.slot.note_any(*id)))
    }))
}

/// Returns the last id drawn in this session.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NothingDrawn`].
pub fn last() -> Result<i64, Error> {
    stamp::layout().ok_or(Error::NotPreloaded)?;
    let is_known = |id: &i64| *id != FORGOTTEN.get();
    shmem::slot().and_then(Slot::last_id).filter(is_known).ok_or(Error::NothingDrawn)
}

/// The id that [`forget_last`] has made this session forget; -1 if there is none. The session never
/// draws that id again.
static FORGOTTEN: Local<i64> = Local::new(-1);

/// Makes the session forget its last id, until it draws another one. Raises nothing.
pub fn forget_last() {
    if let Some(id) = shmem::slot().and_then(Slot::last_id) {
        FORGOTTEN.set(id);
    }
}

/// Ensures that this database draws no id at or below `id` from now on; with `force`, even if `id`
/// is far ahead of the clock.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::Id`], [`Error::FarAhead`], [`Error::OtherLayout`], and those
/// of a database without the extension.
pub fn advance(id: i64, force: bool) -> Result<(), Error> {
    let layout = writable_layout(c"snowflake_advance()")?;
    let end_ms = layout.created_at_ms(id)? + layout.unit().ms();
    database_mark::of(layout, &Request::new())?.advance(layout, &database_mark::terms(), end_ms, force)
}

/// Makes the running layout the database's.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NoExtension`].
pub fn accept_layout() -> Result<(), Error> {
    let layout = writable_layout(c"snowflake_accept_layout()")?;
    database_mark::of(layout, &Request::new())?.accept_layout(layout)
}

/// Lets the server's fleet draw ids in this database from now on.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`], [`Error::NotLeased`], [`Error::NotSupplied`],
/// [`Error::NoExtension`], [`Error::OldObjects`], [`Error::Jumped`].
pub fn accept_fleet() -> Result<(), Error> {
    let layout = writable_layout(c"snowflake_accept_fleet()")?;
    if !stamp::is_leased() {
        return Err(Error::NotLeased);
    }
    if members::find_with_fleet().ok_or(Error::NoExtension)?.fleet.is_none() {
        return Err(Error::OldObjects);
    }
    let session = BackendSession { request: Request::new(), announce: FirstDraw::default() };
    let drawing = DrawingSession::drawing(&session)?;
    database_mark::of(layout, &session.request)?.accept_fleet(&drawing, &database_mark::terms())
}

/// Stores that nothing was drawn in this database.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`], [`Error::MarkInUse`], [`Error::SameNumber`],
/// [`Error::OtherLayout`], [`Error::OtherFleet`], [`Error::NoExtension`].
pub fn reset_mark() -> Result<(), Error> {
    let layout = writable_layout(c"snowflake_reset_mark()")?;
    let session = BackendSession { request: Request::new(), announce: FirstDraw::default() };
    // Waits for a lease, which the server may not have yet after the restart before this.
    let drawing = DrawingSession::drawing(&session)?;
    database_mark::of(layout, &session.request)?.reset(&drawing)
}

/// Returns the running layout, where something may be written. `command` names the SQL function in
/// messages.
fn writable_layout(command: &'static CStr) -> Result<&'static Layout, Error> {
    let layout = stamp::layout().ok_or(Error::NotPreloaded)?;
    backend::require_writable(command);
    // The statistics need a slot.
    shmem::claim_slot()?;
    Ok(layout)
}
