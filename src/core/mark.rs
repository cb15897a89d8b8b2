//! The mark: why no id comes twice after a crash, a failover, a restore or a clock set back.
//!
//! Each database stores, for each lane, the latest instant that any id drawn in it *may* carry: its **mark**. It runs ahead
//! of the clock by [`MARK_AHEAD_MS`], so that it is written about twice a second while ids are drawn, and not at all
//! otherwise. This file is the protocol, from "the mark is reached" to "it may be drawn on", over a [`Database`] that
//! stores, logs, locks and waits: PostgreSQL's sequences in the extension (`src/mark.rs`), a simulated log in
//! `tests/simulation.rs`, which crashes, promotes and copies it at every step.
//!
//! # Why it holds
//!
//! - **Before an id is drawn, a mark at or after the end of its tick is in the log, flushed** (`Mark::extend`: write, flush,
//!   publish, in this order; a draw looks at the published mark, I3). The log record of any row that holds the id comes
//!   later. So every prefix of the log that holds the row holds the mark: no clock enters the argument (G1). And what is
//!   flushed survives a crash, whether the id was stored or only seen (G2).
//! - **Before the first id after a start or a promotion, the lane is raised to the mark that is stored** (`Mark::load`), so
//!   that all which can have been drawn counts as drawn.
//! - **The first load of a life of shared memory, whichever database it is for, raises both lanes above all that a predecessor
//!   can have drawn by its clock** ([`Generator::follow`]): a crashed server's databases share its lanes, and cannot read each
//!   other's marks; and a standby may be promoted before the last mark has arrived. What the marks do whatever the clocks say,
//!   this does for clocks that are not behind, and for a `max_borrow` that is not less (G2, and for two databases).
//! - Within one running server the lane's word never steps back ([`crate::generator`], I1), whatever the mark does (G0).
//!
//! # The protocol
//!
//! ```text
//! draw: the mark is reached (`generator::Refusal::MarkReached`)
//!   |-- not loaded ---> load:   lock; read; further ahead than the clock? unlock; wait, or refuse; again
//!   |                           else follow, once; raise the lane; write, flush, publish; unlock
//!   |-- beyond it ----> extend: lock; read: is it what we published? write, flush, publish; unlock
//!   '-- half used up -> extend, if the lock is free: so that the others, who have the other half left, never wait
//! ```
//!
//! # What if somebody else writes the mark?
//!
//! A dump that is restored sets it, higher or lower than it was, and a rollback does not undo that. So each mark is stored
//! twice: one is carried by dumps, the other one is **local**. We write both, the greater counts, and if they differ,
//! somebody else has written. That is noticed when his transaction commits ([`Mark::recheck`]), whenever the mark moves,
//! and after each start; then the mark is loaded anew.

use crate::clock::{ClockReference, Wait};
use crate::generator::Generator;
use crate::identity::{Drawing, Identity, LaneName};
use crate::layout::{Field, Layout};
use crate::published::{MARK_AHEAD_MS, Marks};

/// Whether this build is the negative control of the crash tests, whose logged marks do not run ahead. A
/// variable of the build's environment and not a cargo feature, because `--all-features` would switch
/// the guarantee off.
pub const IS_CONTROL: bool = option_env!("SNOWFLAKE_ID_MARK_WITHOUT_LOOK_AHEAD").is_some();

/// A mark as it is logged.
fn logged(mark_ms: i64) -> i64 {
    if IS_CONTROL { mark_ms - MARK_AHEAD_MS } else { mark_ms }
}

/// What a database stores about the ids drawn in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// For each lane, the latest instant that an id may carry, in milliseconds since 1970; 0 if none was drawn.
    pub marks_ms: [i64; 2],
    /// The same, not carried by dumps.
    pub local_ms: [i64; 2],
    /// The fingerprint of the layout they were drawn with ([`Layout::fingerprint`]).
    pub layout: Option<i64>,
    /// The numbers they were last drawn with ([`Identity::code`]).
    pub identity: Option<i64>,
}

impl Stored {
    /// The mark that counts.
    fn mark_ms(&self, lane: LaneName) -> i64 {
        self.marks_ms[lane as usize].max(self.local_ms[lane as usize])
    }

    /// The higher mark of the two lanes.
    fn highest_ms(&self) -> i64 {
        self.mark_ms(LaneName::Primary).max(self.mark_ms(LaneName::Backup))
    }

    /// Whether somebody else has written a mark.
    fn is_touched(&self) -> bool {
        self.marks_ms != self.local_ms
    }
}

/// One of the numbers that a database stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// A lane's mark.
    Mark(LaneName),
    /// The same, not carried by dumps.
    Local(LaneName),
    /// The layout's fingerprint.
    Layout,
    /// The server's numbers.
    Identity,
}

/// What the protocol asks of a database. An error of any of these ends the session's statement, and with it its lock.
pub trait Database {
    /// What can go wrong.
    type Error: From<Refusal>;

    /// Reads what is stored, be it logged or not. Leaves no lock behind.
    fn read(&self) -> Result<Stored, Self::Error>;

    /// The published marks of the database, if they were claimed for it.
    fn marks(&self) -> Result<Option<Marks<'_>>, Self::Error>;

    /// Takes the database's lock, which one session holds at a time; gives the published marks, or marks that permit nothing
    /// if none were claimed. `None` if another session has the lock and `wait` is false.
    fn lock(&self, wait: bool) -> Result<Option<Marks<'_>>, Self::Error>;

    /// Claims published marks for the database, unless it has some. (The lock is held.)
    fn claim(&self) -> Result<Marks<'_>, Self::Error>;

    /// Gives the lock back.
    fn unlock(&self);

    /// Stores a number, and logs it.
    fn write(&self, value: Value, number: i64) -> Result<(), Self::Error>;

    /// Returns when all that this session has written is durable.
    fn flush(&self) -> Result<(), Self::Error>;

    /// Reads the wall clock, in milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Reads the time since boot, which nobody sets, in milliseconds.
    fn boot_ms(&self) -> i64;

    /// Waits so long, or shorter.
    fn wait(&self, wait: Wait) -> Result<(), Self::Error>;

    /// Tells the operator.
    fn report(&self, notice: Notice);
}

/// What a transaction has set that was not ours to set: what a dump restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Each lane's mark.
    pub marks: [bool; 2],
    /// The layout's fingerprint.
    pub layout: bool,
    /// The numbers.
    pub identity: bool,
}

/// Why the mark does not permit ids to be drawn, or is not changed. Instants are milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The clock is so far behind the mark that it must have been set back since, and the policy is not to wait.
    Behind {
        /// How far the clock is behind the mark.
        behind_ms: i64,
        /// The mark.
        mark_ms: i64,
    },
    /// The clock has jumped ahead by more than is permitted since a mark last moved on this server.
    Jumped {
        /// By how much, in milliseconds.
        jump_ms: i64,
    },
    /// The database's ids were drawn with another layout.
    OtherLayout {
        /// That layout's fingerprint.
        stored: i64,
    },
    /// The mark is to be reset, but it is loaded: ids are drawn by it.
    InUse,
    /// The mark is to be reset, but the server still draws with a number that the old ids carry.
    SameNumber,
    /// The mark is to be advanced to an id that lies further ahead of the clock than is permitted.
    FarAhead {
        /// The start of the id's tick.
        id_ms: i64,
        /// What the clock says.
        now_ms: i64,
        /// How far ahead of the clock the id may lie, in milliseconds.
        most_ms: i64,
    },
}

/// What the operator should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The numbers have changed since the last id was drawn: every lane begins above the highest mark.
    OtherIdentity {
        /// The old numbers ([`Identity::code`]).
        stored: i64,
        /// Where the lanes begin, in milliseconds since 1970.
        mark_ms: i64,
    },
    /// Somebody has set a mark back; it is put up again.
    SetBack {
        /// What was found.
        stored_ms: i64,
        /// What is in use.
        mark_ms: i64,
    },
}

/// The settings that bear on the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How far ids may run ahead of the clock, in milliseconds.
    pub max_borrow_ms: i64,
    /// The farthest that the clock may jump ahead, in milliseconds; 0 for any distance.
    pub max_clock_jump_ms: i64,
    /// Whether a clock that is far behind the mark is waited for.
    pub wait_for_clock: bool,
}

impl Terms {
    /// How far ahead of the clock a mark may be advanced unless that is forced, in milliseconds. Bounded even where the clock may
    /// jump to anywhere: a mark that is too high stops the database until the clock has passed it, and cannot be lowered.
    fn max_advance_ms(&self) -> i64 {
        const DAY_MS: i64 = 86_400_000;
        if self.max_clock_jump_ms > 0 { self.max_clock_jump_ms } else { DAY_MS }
    }
}

/// How far the clock has to go until a lane can begin above its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distance {
    /// Nowhere.
    Reached,
    /// No further than a server that draws with a right clock leaves behind.
    Near {
        /// How far.
        wait_ms: i64,
    },
    /// Further: the clock was set back.
    Far {
        /// How far.
        wait_ms: i64,
    },
}

impl Distance {
    fn is_far(self) -> bool {
        matches!(self, Self::Far { .. })
    }
}

fn distance(mark_ms: i64, now_ms: i64, max_borrow_ms: i64, unit_ms: i64) -> Distance {
    let ahead_ms = mark_ms.saturating_sub(now_ms);
    let wait_ms = ahead_ms.saturating_sub(max_borrow_ms);
    if wait_ms <= 0 {
        Distance::Reached
    } else if wait_ms <= MARK_AHEAD_MS + unit_ms {
        Distance::Near { wait_ms }
    } else {
        Distance::Far { wait_ms }
    }
}

/// The mark of one database, and what it guards.
#[derive(Debug)]
pub struct Mark<'a, D> {
    /// Where it is stored.
    pub database: D,
    /// What it guards.
    pub generator: &'a Generator,
    /// How a jump of the clock is known.
    pub clocks: &'a ClockReference,
}

impl<D: Database> Mark<'_, D> {
    /// Makes it possible to draw ids from `lane` whose tick ends at `end_ms`, or at least to draw on to where `marks` says, as
    /// it said when the draw was refused. The draw is then to be tried again.
    ///
    /// # Errors
    /// [`Refusal::Behind`], [`Refusal::Jumped`], [`Refusal::OtherLayout`], and the database's own.
    pub fn make_way(
        &self,
        drawing: &Drawing,
        terms: &Terms,
        marks: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), D::Error> {
        // The session's first draw has found no marks; another session may have loaded them.
        let loaded = |marks: &Marks<'_>| marks.mark_ms(lane).is_some();
        let marks = if loaded(&marks) { marks } else { self.database.marks()?.unwrap_or(marks) };
        match marks.mark_ms(lane) {
            None => self.load(drawing, terms, lane),
            Some(mark_ms) => {
                let has_to = end_ms > mark_ms;
                self.locked(has_to, |marks| self.extend(drawing, terms, marks, lane, end_ms))
                    .map(Option::unwrap_or_default)
            }
        }
    }

    /// Runs `step` with the lock held. `None` if another session holds it and `wait` is false.
    fn locked<T>(
        &self,
        wait: bool,
        step: impl FnOnce(Marks<'_>) -> Result<T, D::Error>,
    ) -> Result<Option<T>, D::Error> {
        let Some(marks) = self.database.lock(wait)? else { return Ok(None) };
        let result = step(marks);
        self.database.unlock();
        result.map(Some)
    }

    /// Moves the mark ahead of `end_ms`. (The lock is held.)
    fn extend(
        &self,
        drawing: &Drawing,
        terms: &Terms,
        marks: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), D::Error> {
        let Some(published_ms) = marks.mark_ms(lane) else {
            return Ok(()); // Forgotten meanwhile. The next attempt loads it.
        };
        if !marks.is_due(lane, end_ms) {
            return Ok(()); // Another session has moved it.
        }
        let stored = self.database.read()?;
        let stored_ms = stored.mark_ms(lane);
        if stored_ms > published_ms || stored.is_touched() || !self.is_ours(drawing, &stored) {
            // A dump was restored, or an earlier move got as far as the write.
            marks.forget();
            return Ok(());
        }
        if stored_ms < logged(published_ms) {
            self.database.report(Notice::SetBack { stored_ms, mark_ms: published_ms });
        }
        let (now_ms, boot_ms) = self.read_clocks(terms)?;
        // No further than this reading of the clock permits: the draw may have read one that was wrong for a moment.
        let end_ms = end_ms.min(now_ms.saturating_add(terms.max_borrow_ms + drawing.layout().unit().ms()));
        let mark_ms = published_ms.max(end_ms.saturating_add(MARK_AHEAD_MS));
        self.write_mark(lane, logged(mark_ms))?;
        self.database.flush()?;
        marks.publish(lane, mark_ms);
        self.clocks.note(now_ms, boot_ms);
        Ok(())
    }

    /// Stores a mark, twice.
    fn write_mark(&self, lane: LaneName, mark_ms: i64) -> Result<(), D::Error> {
        self.database.write(Value::Local(lane), mark_ms)?;
        self.database.write(Value::Mark(lane), mark_ms)
    }

    /// Begins to draw from `lane` above what is stored: at the first use after a start or a promotion. Looks with the lock held,
    /// so that nobody waits for a mark that another session is just logging; waits without it.
    fn load(&self, drawing: &Drawing, terms: &Terms, lane: LaneName) -> Result<(), D::Error> {
        loop {
            let wait = self.locked(true, |marks| {
                if marks.mark_ms(lane).is_some() {
                    return Ok(None); // Another session has loaded it.
                }
                let stored = self.database.read()?;
                let wait = self.wait(drawing, terms, &stored, lane)?;
                if wait.is_none() {
                    self.enter(drawing, terms, &stored, lane)?;
                }
                Ok(wait)
            })?;
            match wait.flatten() {
                None => return Ok(()),
                Some(wait) => self.database.wait(wait)?,
            }
        }
    }

    /// Raises the lane to what is stored, and takes up drawing. (The lock is held.)
    fn enter(&self, drawing: &Drawing, terms: &Terms, stored: &Stored, lane: LaneName) -> Result<(), D::Error> {
        let (now_ms, boot_ms) = self.read_clocks(terms)?;
        let marks = self.database.claim()?;
        let code = drawing.code();
        let begin_ms = self.begin_ms(drawing, stored, lane);
        self.generator.follow(drawing.layout(), now_ms, terms.max_borrow_ms);
        self.generator.raise(lane, drawing.layout(), begin_ms);
        if let Some(old) = stored.identity.filter(|old| *old != code) {
            self.database.report(Notice::OtherIdentity { stored: old, mark_ms: begin_ms });
        }
        // The marks before the numbers, so that a crash in between leaves the old numbers, and nothing is lost.
        if self.is_foreign(drawing, stored) {
            self.write_mark(lane.other(), begin_ms)?;
        }
        let mark_ms = begin_ms.max(now_ms.saturating_add(MARK_AHEAD_MS));
        self.write_mark(lane, logged(mark_ms).max(begin_ms))?;
        if stored.identity != Some(code) {
            self.database.write(Value::Identity, code)?;
        }
        if stored.layout.is_none() {
            self.database.write(Value::Layout, drawing.layout().fingerprint())?;
        }
        self.database.flush()?;
        marks.publish(lane, mark_ms);
        self.clocks.note(now_ms, boot_ms);
        Ok(())
    }

    /// Where a lane has to begin: above its mark, or above the highest if that may have been drawn in the other lane.
    fn begin_ms(&self, drawing: &Drawing, stored: &Stored, lane: LaneName) -> i64 {
        if self.is_foreign(drawing, stored) { stored.highest_ms() } else { stored.mark_ms(lane) }
    }

    /// Whether a lane's mark may concern the other lane: the numbers have changed, or somebody else has written the marks,
    /// whose numbers may have been others.
    fn is_foreign(&self, drawing: &Drawing, stored: &Stored) -> bool {
        let code = drawing.code();
        stored.is_touched() || stored.identity.is_some_and(|stored| stored != code)
    }

    /// What to wait for before a lane can be loaded, `None` if for nothing.
    fn wait(
        &self,
        drawing: &Drawing,
        terms: &Terms,
        stored: &Stored,
        lane: LaneName,
    ) -> Result<Option<Wait>, D::Error> {
        self.require_layout(drawing.layout(), stored)?;
        let now_ms = self.database.now_ms();
        let mark = |lane| {
            let mark_ms = self.begin_ms(drawing, stored, lane);
            (distance(mark_ms, now_ms, terms.max_borrow_ms, drawing.layout().unit().ms()), mark_ms)
        };
        match mark(lane) {
            (Distance::Reached, _) => Ok(None),
            (Distance::Near { wait_ms }, _) => Ok(Some(Wait::Start { wait_ms })),
            // The other lane serves, and the generator has to know how far behind this one is.
            (Distance::Far { .. }, _) if drawing.identity().has_backup() && !mark(lane.other()).0.is_far() => Ok(None),
            // The lane stays where it is, so that this server's other databases, which share it, can draw.
            (Distance::Far { wait_ms }, mark_ms) if terms.wait_for_clock => {
                Ok(Some(Wait::Rollback { wait_ms, behind_ms: mark_ms - now_ms }))
            }
            (Distance::Far { .. }, mark_ms) => {
                // Of two lanes that are far behind, the one counts that serves first.
                let mark_ms = if drawing.identity().has_backup() { mark_ms.min(mark(lane.other()).1) } else { mark_ms };
                Err(Refusal::Behind { behind_ms: mark_ms - now_ms, mark_ms }.into())
            }
        }
    }

    /// Reads both clocks, and refuses one that has jumped ahead.
    fn read_clocks(&self, terms: &Terms) -> Result<(i64, i64), D::Error> {
        let (now_ms, boot_ms) = (self.database.now_ms(), self.database.boot_ms());
        let jump_ms = self.clocks.jump_ms(now_ms, boot_ms);
        if terms.max_clock_jump_ms > 0 && jump_ms > terms.max_clock_jump_ms {
            return Err(Refusal::Jumped { jump_ms }.into());
        }
        Ok((now_ms, boot_ms))
    }

    /// Whether the layout is the one that the database's ids were drawn with.
    fn require_layout(&self, layout: &Layout, stored: &Stored) -> Result<(), D::Error> {
        match stored.layout.filter(|stored| *stored != layout.fingerprint()) {
            Some(stored) => Err(Refusal::OtherLayout { stored }.into()),
            None => Ok(()),
        }
    }

    /// Whether layout and numbers are what this server stores.
    fn is_ours(&self, drawing: &Drawing, stored: &Stored) -> bool {
        stored.layout == Some(drawing.layout().fingerprint()) && stored.identity == Some(drawing.code())
    }

    /// Looks whether somebody else has written what is stored: to be called before the commit of a transaction that may have.
    /// A mark that was set back is put up again; whatever differs, the marks are loaded at the next draw.
    ///
    /// `written` is what this transaction has set. That alone is set again: the rest may just be set by another session of the
    /// same restore, which does not know our lock. The local marks nobody sets but us. `identity` are this server's numbers,
    /// if it has some.
    ///
    /// # Errors
    /// The database's own.
    pub fn recheck(&self, layout: &Layout, identity: Option<&Identity>, written: Written) -> Result<(), D::Error> {
        if IS_CONTROL {
            return Ok(());
        }
        let code = identity.map(|identity| identity.code(layout));
        let is_ours = |stored: &Stored| {
            stored.layout == Some(layout.fingerprint()) && (code.is_none() || stored.identity == code)
        };
        let untouched = |stored: &Stored| is_ours(stored) && !stored.is_touched();
        if untouched(&self.database.read()?) {
            return Ok(());
        }
        self.locked(true, |marks| {
            let stored = self.database.read()?;
            if untouched(&stored) {
                return Ok(());
            }
            // Of both lanes the higher: his numbers may have been others. At once, also if it was set ahead: for the next
            // dump, and for the next restore, which may set it back.
            let mark_ms = stored.highest_ms();
            for lane in LaneName::ALL {
                let (stored_ms, local_ms) = (stored.marks_ms[lane as usize], stored.local_ms[lane as usize]);
                if local_ms < mark_ms {
                    self.database.write(Value::Local(lane), mark_ms)?;
                }
                if stored_ms < mark_ms && written.marks[lane as usize] {
                    // Not while a dump is restored into a new database, value by value.
                    if stored_ms < local_ms && marks.mark_ms(lane).is_some() {
                        self.database.report(Notice::SetBack { stored_ms, mark_ms });
                    }
                    self.database.write(Value::Mark(lane), mark_ms)?;
                }
            }
            // A dump of a database in which nothing was drawn: what was drawn here has a layout and numbers.
            if written.layout && stored.layout.is_none() && mark_ms > 0 {
                self.database.write(Value::Layout, layout.fingerprint())?;
            }
            if let Some(code) = code.filter(|_| written.identity && stored.identity.is_none() && mark_ms > 0) {
                self.database.write(Value::Identity, code)?;
            }
            self.database.flush()?;
            // Also if it was set back: what was found may be above the lane, and rows up to there were restored.
            marks.forget();
            Ok(())
        })?;
        Ok(())
    }

    /// Sees to it that no id is drawn in this database any more whose tick ends at `end_ms` or before. With `force`, however
    /// far ahead of the clock that is.
    ///
    /// # Errors
    /// [`Refusal::OtherLayout`], [`Refusal::FarAhead`] unless forced, and the database's own.
    pub fn advance(&self, layout: &Layout, terms: &Terms, end_ms: i64, force: bool) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            let stored = self.database.read()?;
            self.require_layout(layout, &stored)?;
            let now_ms = self.database.now_ms();
            let (id_ms, most_ms) = (end_ms - layout.unit().ms(), terms.max_advance_ms());
            if !force && id_ms.saturating_sub(now_ms) > most_ms {
                return Err(Refusal::FarAhead { id_ms, now_ms, most_ms }.into());
            }
            if stored.layout.is_none() {
                // The id was read by it.
                self.database.write(Value::Layout, layout.fingerprint())?;
            }
            let reachable = end_ms <= now_ms.saturating_add(terms.max_borrow_ms);
            let mut as_published = true;
            for lane in LaneName::ALL {
                let stored_ms = if stored.is_touched() { stored.highest_ms() } else { stored.mark_ms(lane) };
                let mark_ms = end_ms.max(stored_ms).max(marks.mark_ms(lane).unwrap_or(0));
                self.write_mark(lane, mark_ms)?;
                as_published &= marks.mark_ms(lane).is_none_or(|published_ms| published_ms == mark_ms);
            }
            self.database.flush()?;
            if as_published && reachable {
                for lane in LaneName::ALL.into_iter().filter(|lane| marks.mark_ms(*lane).is_some()) {
                    self.generator.raise(lane, layout, end_ms);
                }
            } else {
                // To be loaded, which waits for the clock, or refuses.
                marks.forget();
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Counts nothing as drawn any more, for a server that has a new number.
    ///
    /// # Errors
    /// [`Refusal::InUse`], [`Refusal::SameNumber`], [`Refusal::OtherLayout`], and the database's own.
    pub fn reset(&self, drawing: &Drawing) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            if LaneName::ALL.into_iter().any(|lane| marks.mark_ms(lane).is_some()) {
                return Err(Refusal::InUse.into());
            }
            let stored = self.database.read()?;
            self.require_layout(drawing.layout(), &stored)?;
            // A layout without numbers has no new one: the operator has to know.
            let numbered =
                [Field::Worker, Field::Datacenter].into_iter().any(|field| drawing.layout().max_of(field).is_some());
            let old = stored.identity.and_then(|code| Identity::of_code(drawing.layout(), code).ok());
            if numbered && old.is_some_and(|old| old.overlaps(drawing.identity())) {
                return Err(Refusal::SameNumber.into());
            }
            // First the numbers: were a crash to leave only these, the marks would still hold.
            self.database.write(Value::Identity, drawing.code())?;
            for lane in LaneName::ALL {
                self.write_mark(lane, 0)?;
            }
            self.database.flush()
        })?;
        Ok(())
    }

    /// Takes the layout for the database's from now on.
    ///
    /// # Errors
    /// The database's own.
    pub fn accept_layout(&self, layout: &Layout) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            if self.database.read()?.layout != Some(layout.fingerprint()) {
                self.database.write(Value::Layout, layout.fingerprint())?;
                self.database.flush()?;
                marks.forget();
            }
            Ok(())
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_clock_is_near_and_one_that_was_set_back_is_far() {
        for unit_ms in [1, 10, 100, 1000] {
            let near_ms = MARK_AHEAD_MS + unit_ms;
            for (ahead_ms, expected) in [
                (i64::MIN, Distance::Reached),
                (250, Distance::Reached),
                (251, Distance::Near { wait_ms: 1 }),
                (250 + near_ms, Distance::Near { wait_ms: near_ms }),
                (251 + near_ms, Distance::Far { wait_ms: near_ms + 1 }),
                (i64::MAX, Distance::Far { wait_ms: i64::MAX - 250 }),
            ] {
                assert_eq!(distance(ahead_ms, 0, 250, unit_ms), expected, "{ahead_ms} {unit_ms}");
            }
        }
        assert!(distance(i64::MAX, i64::MIN, 0, 1).is_far());
        assert!(!distance(i64::MIN, i64::MAX, 0, 1).is_far());
    }
}
