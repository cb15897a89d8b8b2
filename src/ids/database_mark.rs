//! The mark in PostgreSQL: a [`MarkedDatabase`] for the protocol. `core/draw/mark.rs` has the
//! protocol, with the reasons why no id comes twice after a crash, a failover or a restore.
//!
//! What is stored lies in sequences (`members.rs`, `sequence.rs`). The lock is on the primary
//! lane's sequence. Marks are published in shared memory for database and sequence. What
//! invalidates known marks: `invalidation.rs`.

use std::cell::Cell;

use pgrx::prelude::*;
use snowflake_core::clock::{Clock, Utc, Wait};
use snowflake_core::draw::known_tick::KnownTick;
use snowflake_core::draw::mark::{Mark, MarkNotice, MarkRefusal, MarkTerms, MarkedDatabase, Stored, StoredNumber};
use snowflake_core::draw::published::{Marks, Published, UNCLAIMED};
use snowflake_core::id::identity::Identity;
use snowflake_core::id::layout::{Field, Layout};

use crate::error::{Again, Error};
use crate::ids::members::{self, Sequences};
use crate::ids::sequence::{self, Sequence};
use crate::ids::stamp;
use crate::ids::stats;
use crate::ids::waiting::Request;
use crate::postgres::backend::{self, WallClock};
use crate::postgres::catalog;
use crate::postgres::local::Local;
use crate::settings::guc::{self, OnRollback};
use crate::shared::shmem;
use crate::shared::slot::Counter;

/// The published marks of this session's database, once it has claimed or found them.
static KNOWN: Local<Option<Marks<'static>>> = Local::new(None);

/// The tick that this session draws from, once it has drawn by the marks in [`KNOWN`]. Whatever
/// replaces those forgets this.
static TICK: Local<Option<KnownTick<'static>>> = Local::new(None);

/// The millisecond in which this session last tried to move the mark early.
static LAST_TRY_MS: Local<i64> = Local::new(i64::MIN);

/// Whether this transaction has seen that the running layout can read the database's ids.
static LAYOUT_CHECKED: Local<bool> = Local::new(false);

/// Returns the marks that this session's draws look at, if they were found before. Raises nothing.
#[inline(always)]
pub fn known() -> Option<Marks<'static>> {
    KNOWN.get()
}

/// Returns the tick that this session draws from, if it is known. Raises nothing.
#[inline(always)]
pub fn known_tick() -> Option<KnownTick<'static>> {
    TICK.get()
}

/// Remembers the tick of an id that was drawn by the marks of [`known`].
pub fn remember_tick(tick: KnownTick<'static>) {
    TICK.set(Some(tick));
}

/// Returns the marks of [`known`], or marks that permit nothing, so that the first draw loads them.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn known_or_none() -> Result<Marks<'static>, Error> {
    known().or_else(unclaimed).ok_or(Error::NotPreloaded)
}

/// Forgets which marks this session's draws look at, because a rollback may have removed the
/// sequence.
pub fn forget_known() {
    KNOWN.set(None);
    TICK.set(None);
}

/// Forgets what holds for one transaction only.
pub fn end_transaction() {
    LAYOUT_CHECKED.set(false);
}

fn unclaimed() -> Option<Marks<'static>> {
    shmem::unclaimed_marks()?.of(UNCLAIMED)
}

/// Checks that `layout`, the running one, can read this database's ids: once in a transaction.
/// Works on a standby, and without preload.
///
/// # Errors
/// [`Error::OtherLayout`].
#[inline]
pub fn check_layout(layout: &Layout) -> Result<(), Error> {
    if LAYOUT_CHECKED.get() { Ok(()) } else { check_layout_now(layout) }
}

#[cold]
fn check_layout_now(layout: &Layout) -> Result<(), Error> {
    // Without the extension, nothing is stored that could differ.
    if let Some(sequences) = members::find() {
        let stored = sequences.layout.read()?;
        if let Some(stored) = stored.filter(|stored| *stored != layout.fingerprint()) {
            return Err(Error::OtherLayout { stored, layout: *layout });
        }
    }
    LAYOUT_CHECKED.set(true);
    Ok(())
}

/// Returns what this session's database stores; `None` without the extension.
///
/// # Errors
/// As when a sequence is read.
pub fn stored() -> Result<Option<Stored>, Error> {
    members::find_with_fleet().map(read).transpose()
}

fn read(sequences: Sequences) -> Result<Stored, Error> {
    let both =
        |[primary, backup]: [Sequence; 2]| Ok::<_, Error>([primary.read()?.unwrap_or(0), backup.read()?.unwrap_or(0)]);
    Ok(Stored {
        marks_ms: both(sequences.marks)?,
        local_ms: both(sequences.local)?,
        layout: sequences.layout.read()?,
        identity: sequences.identity.read()?,
        // Objects of 0.2.0 have no place for a fleet. This server's then counts as theirs, if it
        // has numbers at all: what needs none must not fail for want of them.
        fleet: match sequences.fleet {
            Some(fleet) => fleet.read()?,
            None => stamp::read().ok().flatten().and_then(|drawing| drawing.fleet()),
        },
    })
}

/// Ensures that this session's database belongs to a fleet, from whose registry it gets dense
/// values. The first one is stored.
///
/// # Errors
/// [`Error::OtherFleet`], [`Error::NoExtension`], [`Error::NotPreloaded`].
pub fn require_fleet(fleet: i64) -> Result<(), Error> {
    match members::find_with_fleet().ok_or(Error::NoExtension)?.fleet {
        Some(sequence) if sequence.read()? == Some(fleet) => Ok(()),
        Some(_) => {
            let layout = stamp::layout().ok_or(Error::NotPreloaded)?;
            of(layout, &Request::new())?.adopt_fleet(fleet)
        }
        None => Err(Error::OldObjects),
    }
}

/// Returns the settings that bear on the mark.
pub fn terms() -> MarkTerms {
    MarkTerms {
        max_borrow_ms: guc::max_borrow_ms(),
        max_clock_jump_ms: guc::max_clock_jump_ms(),
        wait_for_clock: guc::on_rollback() == OnRollback::Wait,
    }
}

/// Returns the mark of the session's database, for a request.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn of<'a>(
    layout: &'a Layout,
    request: &'a Request,
) -> Result<Mark<'static, impl MarkedDatabase<Error = Error> + 'a>, Error> {
    let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
    let clocks = shmem::clocks().ok_or(Error::NotPreloaded)?;
    let numbers = shmem::numbers().ok_or(Error::NotPreloaded)?;
    let database = SessionDatabase { layout, locked: Cell::new(None), request };
    Ok(Mark { database, generator, clocks, numbers })
}

/// The database that this session is connected to.
#[derive(Debug)]
struct SessionDatabase<'a> {
    layout: &'a Layout,
    /// The sequence that was locked last.
    locked: Cell<Option<Sequence>>,
    /// The request that it serves.
    request: &'a Request,
}

impl MarkedDatabase for SessionDatabase<'_> {
    type Error = Error;

    fn read(&self) -> Result<Stored, Error> {
        read(members::find_with_fleet().ok_or(Error::NoExtension)?)
    }

    fn marks(&self) -> Result<Option<Marks<'_>>, Error> {
        let owner = members::find().ok_or(Error::NoExtension)?.owner();
        Ok(shmem::marks_in_use().find_map(|marks| marks.of(owner)).map(remember))
    }

    fn lock(&self, wait: bool) -> Result<Option<Marks<'_>>, Error> {
        if !wait {
            // The lock is tried once per millisecond at most, because trying slows down a session
            // that draws while another one moves the mark.
            let now_ms = self.now_ms();
            if LAST_TRY_MS.replace(now_ms) == now_ms {
                return Ok(None);
            }
        }
        loop {
            let sequences = members::find().ok_or(Error::NoExtension)?;
            if !sequences.marks[0].lock(wait) {
                return Ok(None);
            }
            // The sequence may have been dropped while this session waited for it.
            if members::find() == Some(sequences) {
                self.locked.set(Some(sequences.marks[0]));
                let marks = self.marks()?;
                return Ok(if marks.is_some() { marks } else { unclaimed() });
            }
            sequences.marks[0].unlock();
            pgrx::check_for_interrupts!();
        }
    }

    fn claim(&self) -> Result<Marks<'_>, Error> {
        claim(members::find().ok_or(Error::NoExtension)?.owner())
    }

    fn unlock(&self) {
        self.locked.get().iter().for_each(|sequence| sequence.unlock());
    }

    fn write(&self, value: StoredNumber, number: i64) -> Result<(), Error> {
        let sequences = members::find().ok_or(Error::NoExtension)?;
        // Objects of 0.2.0 have no place for a fleet.
        let Some(sequence) = sequences.of(value) else { return Ok(()) };
        self.request.writes();
        sequence.set(number);
        match value {
            StoredNumber::Mark(_) => stats::count(Counter::MarksMoved, 1),
            StoredNumber::Layout => sequences.layout.announce(),
            StoredNumber::Local(_) | StoredNumber::Identity | StoredNumber::Fleet => {}
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        sequence::flush();
        self.request.has_moved();
        Ok(())
    }

    fn flush_marks(&self) -> Result<(), Error> {
        let sequences = members::find().ok_or(Error::NoExtension)?;
        sequences.marks.into_iter().chain(sequences.local).try_for_each(Sequence::flush_value)
    }

    fn raise_ceiling(&self, mark_ms: i64) -> Result<(), Error> {
        Ok(shmem::raise_ceiling(mark_ms)?)
    }

    fn now_ms(&self) -> i64 {
        WallClock.now_ms()
    }

    fn boot_ms(&self) -> i64 {
        backend::boot_ms()
    }

    fn wait(&self, wait: Wait) -> Result<(), Error> {
        self.request.wait(wait);
        Ok(())
    }

    fn report(&self, notice: MarkNotice) {
        match notice {
            MarkNotice::OtherIdentity { stored, mark_ms } => {
                let numbers = |identity: &Identity| numbers(self.layout, identity);
                let old = Identity::of_code(self.layout, stored).as_ref().map_or("other numbers".into(), numbers);
                let new = stamp::current().map_or_else(|_| String::new(), |drawing| numbers(drawing.identity()));
                let begin = Utc(mark_ms);
                log!("snowflake_id: this database's ids were drawn with {old}; ids with {new} begin after {begin}");
            }
            MarkNotice::SetBack { stored_ms, mark_ms } => {
                let (stored, mark) = (Utc(stored_ms), Utc(mark_ms));
                warning!(
                    "snowflake_id: the mark of this database was set back to {stored}; the server has raised it \
                     to {mark} again"
                );
            }
        }
    }
}

impl From<MarkRefusal> for Error {
    fn from(refused: MarkRefusal) -> Self {
        match refused {
            MarkRefusal::Behind { behind_ms, mark_ms } => {
                let max_borrow_ms = guc::max_borrow_ms();
                let is_never = stamp::layout().is_some_and(|layout| mark_ms > layout.last_instant_ms());
                let (at_ms, in_ms) = (mark_ms - max_borrow_ms, behind_ms - max_borrow_ms);
                let again =
                    Again { at_ms, in_ms, is_never, is_leased: stamp::is_leased(), frozen_ms: stamp::frozen_ms() };
                Self::BehindMark { behind_ms, mark_ms, again }
            }
            MarkRefusal::Jumped { jump_ms } => {
                Self::Jumped { jump_ms, max_ms: guc::max_clock_jump_ms(), frozen_ms: stamp::frozen_ms() }
            }
            MarkRefusal::OtherLayout { stored } => {
                let layout = *stamp::layout().expect("a mark exists only where the settings are defined");
                Self::OtherLayout { stored, layout }
            }
            MarkRefusal::OtherFleet { stored, fleet } => Self::OtherFleet { stored, fleet },
            MarkRefusal::InUse => Self::MarkInUse { is_leased: stamp::is_leased(), frozen_ms: stamp::frozen_ms() },
            MarkRefusal::SameNumber => Self::SameNumber,
            MarkRefusal::FarAhead { id_ms, now_ms, most_ms } => Self::FarAhead { id_ms, now_ms, most_ms },
        }
    }
}

/// Words a server's numbers for people: `datacenter 3, worker 5, backup worker on`.
fn numbers(layout: &Layout, identity: &Identity) -> String {
    let number = |field: Field| layout.max_of(field).map(|_| format!("{field} {}", identity.number(layout, field)));
    let backup = identity.has_backup().then(|| "backup worker on".to_owned());
    let parts = [number(Field::Datacenter), number(Field::Worker), backup];
    parts.into_iter().flatten().reduce(|line, part| line + ", " + &part).unwrap_or_else(|| "no number".into())
}

/// Takes over the published marks of this database, or free ones. Warns when few are left.
fn claim(owner: u64) -> Result<Marks<'static>, Error> {
    let all = shmem::marks().ok_or(Error::NotPreloaded)?;
    let is_new = !shmem::marks_in_use().any(|marks| marks.owner() >> 32 == owner >> 32);
    let gone = |database| !catalog::database_exists(database);
    let marks = Published::claim_one(all, owner, gone).ok_or(Error::TooManyDatabases(all.len()))?;
    // Counted only where that many are possible, because each one is looked up.
    if is_new && stats::are_few_places_left(shmem::marks_in_use().count(), all.len()) {
        stats::warn_of_few_places(places_taken(), all.len());
    }
    Ok(remember(marks))
}

/// Returns how many databases draw ids, and have a place for their marks.
pub fn places_taken() -> usize {
    shmem::marks_in_use().filter(|marks| catalog::database_exists((marks.owner() >> 32) as u32)).count()
}

/// Remembers the marks for this session's draws. Numbers that were read before are not drawn with
/// under other marks (`core/draw/numbers.rs`).
fn remember(marks: Marks<'static>) -> Marks<'static> {
    if KNOWN.replace(Some(marks)).is_none_or(|known| !known.is_same(&marks)) {
        TICK.set(None);
        stamp::forget_kept();
    }
    marks
}
