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
//! draw: the mark is reached (Refusal::MarkReached)
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

use crate::clock::ClockReference;
use crate::generator::Generator;
use crate::identity::{Identity, LaneName};
use crate::layout::{Field, Layout};
use crate::published::{MARK_AHEAD_MS, Marks};

/// A mark as it is logged. The negative control of the crash tests logs one that does not run ahead.
fn logged(mark_ms: i64) -> i64 {
    if cfg!(feature = "mark-without-look-ahead") { mark_ms - MARK_AHEAD_MS } else { mark_ms }
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
    type Error: From<Refused>;

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
pub enum Refused {
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

/// What a session waits for before it can load a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// What a server that draws with a right clock leaves behind, as after each start.
    Start {
        /// How far the clock has to go, in milliseconds.
        wait_ms: i64,
    },
    /// A clock that was set back.
    Clock {
        /// How far the clock has to go, in milliseconds.
        wait_ms: i64,
        /// How far it is behind the mark, in milliseconds.
        behind_ms: i64,
    },
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
    /// The layout that ids are drawn with.
    pub layout: &'a Layout,
}

impl<D: Database> Mark<'_, D> {
    /// Makes it possible to draw ids from `lane` whose tick ends at `end_ms`, or at least to draw on to where `marks` says, as
    /// it said when the draw was refused. The draw is then to be tried again.
    ///
    /// # Errors
    /// [`Refused::Behind`], [`Refused::Jumped`], [`Refused::OtherLayout`], and the database's own.
    pub fn make_way(
        &self,
        identity: &Identity,
        terms: &Terms,
        marks: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), D::Error> {
        // The session's first draw has found no marks; another session may have loaded them.
        let loaded = |marks: &Marks<'_>| marks.mark_ms(lane).is_some();
        let marks = if loaded(&marks) { marks } else { self.database.marks()?.unwrap_or(marks) };
        match marks.mark_ms(lane) {
            None => self.load(identity, terms, lane),
            Some(mark_ms) => {
                let has_to = end_ms > mark_ms;
                self.locked(has_to, |marks| self.extend(identity, terms, marks, lane, end_ms))
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
        identity: &Identity,
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
        if stored_ms > published_ms || stored.is_touched() || !self.is_ours(identity, &stored) {
            // A dump was restored, or an earlier move got as far as the write.
            marks.forget();
            return Ok(());
        }
        if stored_ms < logged(published_ms) {
            self.database.report(Notice::SetBack { stored_ms, mark_ms: published_ms });
        }
        let (now_ms, boot_ms) = self.read_clocks(terms)?;
        // No further than this reading of the clock permits: the draw may have read one that was wrong for a moment.
        let end_ms = end_ms.min(now_ms.saturating_add(terms.max_borrow_ms + self.layout.unit().ms()));
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
    fn load(&self, identity: &Identity, terms: &Terms, lane: LaneName) -> Result<(), D::Error> {
        loop {
            let wait = self.locked(true, |marks| {
                if marks.mark_ms(lane).is_some() {
                    return Ok(None); // Another session has loaded it.
                }
                let stored = self.database.read()?;
                let wait = self.wait(identity, terms, &stored, lane)?;
                if wait.is_none() {
                    self.enter(identity, terms, &stored, lane)?;
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
    fn enter(&self, identity: &Identity, terms: &Terms, stored: &Stored, lane: LaneName) -> Result<(), D::Error> {
        let (now_ms, boot_ms) = self.read_clocks(terms)?;
        let marks = self.database.claim()?;
        let code = identity.code(self.layout);
        let begin_ms = self.begin_ms(identity, stored, lane);
        self.generator.follow(self.layout, now_ms, terms.max_borrow_ms);
        self.generator.raise(lane, self.layout, begin_ms);
        if let Some(old) = stored.identity.filter(|old| *old != code) {
            self.database.report(Notice::OtherIdentity { stored: old, mark_ms: begin_ms });
        }
        // The marks before the numbers, so that a crash in between leaves the old numbers, and nothing is lost.
        if self.is_foreign(identity, stored) {
            self.write_mark(lane.other(), begin_ms)?;
        }
        let mark_ms = begin_ms.max(now_ms.saturating_add(MARK_AHEAD_MS));
        self.write_mark(lane, logged(mark_ms).max(begin_ms))?;
        if stored.identity != Some(code) {
            self.database.write(Value::Identity, code)?;
        }
        if stored.layout.is_none() {
            self.database.write(Value::Layout, self.layout.fingerprint())?;
        }
        self.database.flush()?;
        marks.publish(lane, mark_ms);
        self.clocks.note(now_ms, boot_ms);
        Ok(())
    }

    /// Where a lane has to begin: above its mark, or above the highest if that may have been drawn in the other lane.
    fn begin_ms(&self, identity: &Identity, stored: &Stored, lane: LaneName) -> i64 {
        if self.is_foreign(identity, stored) { stored.highest_ms() } else { stored.mark_ms(lane) }
    }

    /// Whether a lane's mark may concern the other lane: the numbers have changed, or somebody else has written the marks,
    /// whose numbers may have been others.
    fn is_foreign(&self, identity: &Identity, stored: &Stored) -> bool {
        let code = identity.code(self.layout);
        stored.is_touched() || stored.identity.is_some_and(|stored| stored != code)
    }

    /// What to wait for before a lane can be loaded, `None` if for nothing.
    fn wait(
        &self,
        identity: &Identity,
        terms: &Terms,
        stored: &Stored,
        lane: LaneName,
    ) -> Result<Option<Wait>, D::Error> {
        self.require_layout(stored)?;
        let now_ms = self.database.now_ms();
        let mark = |lane| {
            let mark_ms = self.begin_ms(identity, stored, lane);
            (distance(mark_ms, now_ms, terms.max_borrow_ms, self.layout.unit().ms()), mark_ms)
        };
        match mark(lane) {
            (Distance::Reached, _) => Ok(None),
            (Distance::Near { wait_ms }, _) => Ok(Some(Wait::Start { wait_ms })),
            // The other lane serves, and the generator has to know how far behind this one is.
            (Distance::Far { .. }, _) if identity.has_backup() && !mark(lane.other()).0.is_far() => Ok(None),
            // The lane stays where it is, so that this server's other databases, which share it, can draw.
            (Distance::Far { wait_ms }, mark_ms) if terms.wait_for_clock => {
                Ok(Some(Wait::Clock { wait_ms, behind_ms: mark_ms - now_ms }))
            }
            (Distance::Far { .. }, mark_ms) => {
                // Of two lanes that are far behind, the one counts that serves first.
                let mark_ms = if identity.has_backup() { mark_ms.min(mark(lane.other()).1) } else { mark_ms };
                Err(Refused::Behind { behind_ms: mark_ms - now_ms, mark_ms }.into())
            }
        }
    }

    /// Reads both clocks, and refuses one that has jumped ahead.
    fn read_clocks(&self, terms: &Terms) -> Result<(i64, i64), D::Error> {
        let (now_ms, boot_ms) = (self.database.now_ms(), self.database.boot_ms());
        let jump_ms = self.clocks.jump_ms(now_ms, boot_ms);
        if terms.max_clock_jump_ms > 0 && jump_ms > terms.max_clock_jump_ms {
            return Err(Refused::Jumped { jump_ms }.into());
        }
        Ok((now_ms, boot_ms))
    }

    /// Whether the layout is the one that the database's ids were drawn with.
    fn require_layout(&self, stored: &Stored) -> Result<(), D::Error> {
        match stored.layout.filter(|layout| *layout != self.layout.fingerprint()) {
            Some(stored) => Err(Refused::OtherLayout { stored }.into()),
            None => Ok(()),
        }
    }

    /// Whether layout and numbers are what this server stores.
    fn is_ours(&self, identity: &Identity, stored: &Stored) -> bool {
        stored.layout == Some(self.layout.fingerprint()) && stored.identity == Some(identity.code(self.layout))
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
    pub fn recheck(&self, identity: Option<&Identity>, written: Written) -> Result<(), D::Error> {
        if cfg!(feature = "mark-without-look-ahead") {
            return Ok(());
        }
        let is_ours = |stored: &Stored| match identity {
            Some(identity) => self.is_ours(identity, stored),
            None => stored.layout == Some(self.layout.fingerprint()),
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
                self.database.write(Value::Layout, self.layout.fingerprint())?;
            }
            if let Some(identity) = identity.filter(|_| written.identity && stored.identity.is_none() && mark_ms > 0) {
                self.database.write(Value::Identity, identity.code(self.layout))?;
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
    /// [`Refused::OtherLayout`], [`Refused::FarAhead`] unless forced, and the database's own.
    pub fn advance(&self, terms: &Terms, end_ms: i64, force: bool) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            let stored = self.database.read()?;
            self.require_layout(&stored)?;
            let now_ms = self.database.now_ms();
            let (id_ms, most_ms) = (end_ms - self.layout.unit().ms(), terms.max_advance_ms());
            if !force && id_ms.saturating_sub(now_ms) > most_ms {
                return Err(Refused::FarAhead { id_ms, now_ms, most_ms }.into());
            }
            if stored.layout.is_none() {
                // The id was read by it.
                self.database.write(Value::Layout, self.layout.fingerprint())?;
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
                    self.generator.raise(lane, self.layout, end_ms);
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
    /// [`Refused::InUse`], [`Refused::SameNumber`], [`Refused::OtherLayout`], and the database's own.
    pub fn reset(&self, identity: &Identity) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            if LaneName::ALL.into_iter().any(|lane| marks.mark_ms(lane).is_some()) {
                return Err(Refused::InUse.into());
            }
            let stored = self.database.read()?;
            self.require_layout(&stored)?;
            // A layout without numbers has no new one: the operator has to know.
            let numbered =
                [Field::Worker, Field::Datacenter].into_iter().any(|field| self.layout.max_of(field).is_some());
            let old = stored.identity.and_then(|code| Identity::of_code(self.layout, code).ok());
            if numbered && old.is_some_and(|old| old.overlaps(identity)) {
                return Err(Refused::SameNumber.into());
            }
            // First the numbers: were a crash to leave only these, the marks would still hold.
            self.database.write(Value::Identity, identity.code(self.layout))?;
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
    pub fn accept_layout(&self) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            if self.database.read()?.layout != Some(self.layout.fingerprint()) {
                self.database.write(Value::Layout, self.layout.fingerprint())?;
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
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::*;
    use crate::generator::{Limits, Refusal};
    use crate::published::{PublishedMarks, UNCLAIMED};

    /// What the protocol did. A mark is written twice: first the local one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Did {
        Write(Value, i64),
        WriteOnlyMark(LaneName, i64),
        Flush,
        WaitFor(Wait),
        Report(Notice),
    }
    use Did::{Flush, Report, WaitFor, Write, WriteOnlyMark};

    #[derive(Debug, PartialEq, Eq)]
    enum Failure {
        Refused(Refused),
        DiskFull,
    }

    impl From<Refused> for Failure {
        fn from(refused: Refused) -> Self {
            Self::Refused(refused)
        }
    }

    /// A database of one session, which notes what is done to it.
    struct Fake {
        stored: Cell<Stored>,
        /// What another session had stored so far when this one reads for the first time.
        half_stored: Cell<Option<Stored>>,
        now_ms: Cell<i64>,
        boot_ms: Cell<i64>,
        published: PublishedMarks,
        locked: Cell<bool>,
        disk_full: Cell<bool>,
        /// What looks on at each flush.
        at_flush: RefCell<Option<Box<dyn Fn()>>>,
        did: RefCell<Vec<Did>>,
    }

    const NOW_MS: i64 = 1_800_000_000_000;
    const OWNER: u64 = 7;

    impl Fake {
        fn holding(marks_ms: [i64; 2], layout: &Layout, identity: Option<&Identity>) -> Self {
            let identity = identity.map(|identity| identity.code(layout));
            let stored =
                Stored { marks_ms, local_ms: marks_ms, layout: identity.map(|_| layout.fingerprint()), identity };
            let published = PublishedMarks::new();
            assert!(published.claim(UNCLAIMED, OWNER));
            let [now_ms, boot_ms] = [NOW_MS, 5000].map(Cell::new);
            let (locked, disk_full) = (Cell::new(false), Cell::new(false));
            Self {
                stored: Cell::new(stored),
                half_stored: Cell::new(None),
                now_ms,
                boot_ms,
                published,
                locked,
                disk_full,
                at_flush: RefCell::default(),
                did: RefCell::default(),
            }
        }

        fn marks(&self) -> Marks<'_> {
            self.published.of(OWNER).unwrap()
        }

        /// The marks that are published.
        fn published_ms(&self) -> [Option<i64>; 2] {
            LaneName::ALL.map(|lane| self.marks().mark_ms(lane))
        }

        fn did(&self) -> Vec<Did> {
            assert!(!self.locked.get(), "the lock was not given back");
            self.did.take()
        }
    }

    impl Database for &Fake {
        type Error = Failure;

        fn read(&self) -> Result<Stored, Failure> {
            Ok(self.half_stored.take().unwrap_or(self.stored.get()))
        }

        fn marks(&self) -> Result<Option<Marks<'_>>, Failure> {
            Ok(self.published.of(OWNER))
        }

        fn lock(&self, wait: bool) -> Result<Option<Marks<'_>>, Failure> {
            if self.locked.replace(true) {
                assert!(!wait, "it would wait for itself");
                return Ok(None);
            }
            Ok(self.published.of(OWNER))
        }

        fn claim(&self) -> Result<Marks<'_>, Failure> {
            assert!(self.locked.get());
            Ok(Fake::marks(self))
        }

        fn unlock(&self) {
            assert!(self.locked.replace(false));
        }

        fn write(&self, value: Value, number: i64) -> Result<(), Failure> {
            assert!(self.locked.get());
            let mut stored = self.stored.get();
            match value {
                Value::Mark(lane) => stored.marks_ms[lane as usize] = number,
                Value::Local(lane) => stored.local_ms[lane as usize] = number,
                Value::Layout => stored.layout = Some(number),
                Value::Identity => stored.identity = Some(number),
            }
            self.stored.set(stored);
            let mut did = self.did.borrow_mut();
            match value {
                Value::Mark(lane) if did.last() == Some(&Write(Value::Local(lane), number)) => _ = did.pop(),
                Value::Mark(lane) => {
                    did.push(WriteOnlyMark(lane, number));
                    return Ok(());
                }
                _ => {}
            }
            did.push(Write(value, number));
            Ok(())
        }

        fn flush(&self) -> Result<(), Failure> {
            assert!(self.locked.get());
            self.did.borrow_mut().push(Flush);
            self.at_flush.borrow().iter().for_each(|look| look());
            if self.disk_full.get() { Err(Failure::DiskFull) } else { Ok(()) }
        }

        fn now_ms(&self) -> i64 {
            self.now_ms.get()
        }

        fn boot_ms(&self) -> i64 {
            self.boot_ms.get()
        }

        fn wait(&self, wait: Wait) -> Result<(), Failure> {
            assert!(!self.locked.get(), "it waits with the lock held");
            self.did.borrow_mut().push(WaitFor(wait));
            let (Wait::Start { wait_ms } | Wait::Clock { wait_ms, .. }) = wait;
            // A little shorter, as a wait may be.
            let wait_ms = 1.max(wait_ms * 2 / 3);
            self.now_ms.set(self.now_ms.get() + wait_ms);
            self.boot_ms.set(self.boot_ms.get() + wait_ms);
            Ok(())
        }

        fn report(&self, notice: Notice) {
            self.did.borrow_mut().push(Report(notice));
        }
    }

    /// A server: what its sessions share, and its settings.
    struct Server {
        generator: Rc<Generator>,
        clocks: ClockReference,
        layout: Layout,
        identity: Identity,
        terms: Terms,
    }

    /// A generator whose first load is long over, in another database: it waits for no predecessor.
    fn generator_that_has_followed(layout: &Layout) -> Rc<Generator> {
        let generator = Generator::new();
        generator.follow(layout, NOW_MS - 86_400_000, 0);
        Rc::new(generator)
    }

    const PRIMARY: Value = Value::Mark(LaneName::Primary);
    const BACKUP: Value = Value::Mark(LaneName::Backup);

    impl Server {
        fn new(layout: &str, worker: i64, backup: bool) -> Self {
            let layout = Layout::parse(layout).unwrap();
            let identity = Identity::new(&layout, Some(worker), None, backup).unwrap();
            let terms = Terms { max_borrow_ms: 100, max_clock_jump_ms: 60_000, wait_for_clock: false };
            let generator = generator_that_has_followed(&layout);
            Self { generator, clocks: ClockReference::new(), layout, identity, terms }
        }

        /// The same after a start, and at once.
        fn started_again(&self) -> Self {
            Self { generator: Rc::new(Generator::new()), clocks: ClockReference::new(), ..*self }
        }

        fn mark<'a>(&'a self, fake: &'a Fake) -> Mark<'a, &'a Fake> {
            Mark { database: fake, generator: &self.generator, clocks: &self.clocks, layout: &self.layout }
        }

        fn make_way(&self, fake: &Fake, lane: LaneName, end_ms: i64) -> Result<(), Failure> {
            self.mark(fake).make_way(&self.identity, &self.terms, fake.marks(), lane, end_ms)
        }

        /// Loads both lanes of a database that holds nothing.
        fn fresh(&self) -> Fake {
            let fake = Fake::holding([0; 2], &self.layout, None);
            for lane in LaneName::ALL {
                self.make_way(&fake, lane, NOW_MS + 1).unwrap();
            }
            fake.did();
            fake
        }

        fn code(&self) -> i64 {
            self.identity.code(&self.layout)
        }

        /// The end of the tick of the next id that the primary lane would give, or why there is none.
        fn next_end_ms(&self, fake: &Fake) -> Result<i64, Refusal> {
            let identity = Identity::new(&self.layout, Some(0), None, false).unwrap();
            let limits = Limits { max_borrow_ms: self.terms.max_borrow_ms, marks_ms: fake.marks().limits_ms() };
            let run = self.generator.draw(&self.layout, &identity, &|| fake.now_ms.get(), &limits, 1)?;
            Ok(self.layout.created_at_ms(identity.last_id(&self.layout, run)).unwrap() + self.layout.unit().ms())
        }
    }

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

    #[test]
    fn the_first_draw_stores_who_draws_and_how_far() {
        let server = Server::new("snowflake", 5, false);
        let fake = Fake::holding([0; 2], &server.layout, None);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
        let [identity, layout] = [(Value::Identity, server.code()), (Value::Layout, server.layout.fingerprint())];
        let mark = (PRIMARY, NOW_MS + 1000);
        assert_eq!(
            fake.did(),
            [Write(mark.0, mark.1), Write(identity.0, identity.1), Write(layout.0, layout.1), Flush]
        );
        assert_eq!(fake.published_ms(), [Some(NOW_MS + 1000), None]);
        assert_eq!(server.next_end_ms(&fake), Ok(NOW_MS + 1));
        // The second lane has only its mark to store.
        server.make_way(&fake, LaneName::Backup, NOW_MS + 1).unwrap();
        assert_eq!(fake.did(), [Write(BACKUP, NOW_MS + 1000), Flush]);
        assert_eq!(fake.published_ms(), [Some(NOW_MS + 1000); 2]);
    }

    #[test]
    fn the_mark_moves_when_half_of_it_is_used_and_no_sooner() {
        let server = Server::new("snowflake", 5, false);
        let fake = server.fresh();
        let marks_ms = [Some(NOW_MS + 1000); 2];
        fake.now_ms.set(NOW_MS + 600);
        fake.boot_ms.set(fake.boot_ms.get() + 600);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 500).unwrap();
        assert_eq!((fake.did(), fake.published_ms()), (vec![], marks_ms));
        server.make_way(&fake, LaneName::Primary, NOW_MS + 501).unwrap();
        assert_eq!(fake.did(), [Write(PRIMARY, NOW_MS + 1501), Flush]);
        assert_eq!(fake.published_ms(), [Some(NOW_MS + 1501), marks_ms[1]]);
        // While another session holds the lock, only who has to waits for it.
        fake.locked.set(true);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1501).unwrap();
        fake.locked.set(false);
        assert_eq!((fake.did(), fake.published_ms()), (vec![], [Some(NOW_MS + 1501), marks_ms[1]]));
        fake.now_ms.set(NOW_MS + 1502);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1502).unwrap();
        assert_eq!(fake.published_ms()[0], Some(NOW_MS + 2502));
    }

    #[test]
    #[should_panic(expected = "it would wait for itself")]
    fn who_has_to_move_the_mark_waits_for_the_lock() {
        let server = Server::new("snowflake", 5, false);
        let fake = server.fresh();
        fake.locked.set(true);
        let _ = server.make_way(&fake, LaneName::Primary, NOW_MS + 1001);
    }

    #[test]
    fn a_session_that_knows_no_marks_does_not_load_what_is_loaded() {
        let server = Server::new("snowflake", 5, false);
        let fake = server.fresh();
        let nobodys = PublishedMarks::new();
        fake.now_ms.set(NOW_MS + 700);
        let marks = nobodys.of(UNCLAIMED).unwrap();
        server.mark(&fake).make_way(&server.identity, &server.terms, marks, LaneName::Primary, NOW_MS + 701).unwrap();
        assert_eq!(fake.did(), [Write(PRIMARY, NOW_MS + 1701), Flush]);
    }

    #[test]
    fn a_reading_that_was_wrong_for_a_moment_does_not_move_the_mark_far() {
        let server = Server::new("snowflake", 5, false);
        let fake = server.fresh();
        fake.now_ms.set(NOW_MS + 2000);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 86_400_000).unwrap();
        assert_eq!(fake.published_ms()[0], Some(NOW_MS + 2000 + 100 + 1 + 1000));
        // Nor back.
        fake.now_ms.set(NOW_MS - 86_400_000);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 86_400_000).unwrap();
        assert_eq!(fake.published_ms()[0], Some(NOW_MS + 2000 + 100 + 1 + 1000));
    }

    #[test]
    fn a_mark_that_is_not_durable_is_not_published() {
        let server = Server::new("snowflake", 5, false);
        let fake = server.fresh();
        let published_ms = fake.published_ms();
        fake.disk_full.set(true);
        assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1001), Err(Failure::DiskFull));
        assert_eq!((fake.did().len(), fake.published_ms()), (2, published_ms));
        // What is stored is further now: the next one loads it, and draws nothing before.
        fake.disk_full.set(false);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1001).unwrap();
        assert_eq!((fake.did(), fake.published_ms()), (vec![], [None; 2]));
        fake.now_ms.set(NOW_MS + 2001);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 2002).unwrap();
        assert_eq!(fake.published_ms(), [Some(NOW_MS + 3001), None]);
        assert!(server.next_end_ms(&fake).unwrap() > NOW_MS + 2001);

        let fresh = Fake::holding([0; 2], &server.layout, None);
        fresh.disk_full.set(true);
        assert_eq!(server.make_way(&fresh, LaneName::Primary, NOW_MS + 1), Err(Failure::DiskFull));
        assert_eq!((fresh.did().len(), fresh.published_ms()), (4, [None; 2]));
    }

    #[test]
    fn after_a_start_a_lane_begins_above_its_mark() {
        let server = Server::new("snowflake", 5, false);
        for ahead_ms in [-86_400_000, 0, 100, 101, 500, 1101] {
            let generator = generator_that_has_followed(&server.layout);
            let server = Server { generator, clocks: ClockReference::new(), ..server };
            let fake = Fake::holding([NOW_MS + ahead_ms, 0], &server.layout, Some(&server.identity));
            server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
            let did = fake.did();
            let waits = did.iter().filter(|did| matches!(did, WaitFor(_))).count();
            assert_eq!(waits > 0, ahead_ms > 100, "{did:?}");
            assert!(waits == 0 || did[0] == WaitFor(Wait::Start { wait_ms: ahead_ms - 100 }), "{did:?}");
            assert!(fake.now_ms.get() <= NOW_MS + (ahead_ms - 100).max(0));
            let mark_ms = fake.now_ms.get() + 1000;
            assert_eq!(did[waits..], [Write(PRIMARY, mark_ms), Flush]);
            assert_eq!(fake.published_ms(), [Some(mark_ms), None]);
            let end_ms = server.next_end_ms(&fake).unwrap();
            assert!(end_ms > NOW_MS + ahead_ms, "{ahead_ms}: {end_ms}");
        }
    }

    #[test]
    fn the_first_load_of_a_start_begins_after_all_that_a_predecessor_can_have_drawn() {
        let draw = |server: &Server, now_ms: i64, max_borrow_ms| {
            let Server { layout, identity, generator, .. } = server;
            let limits = Limits { max_borrow_ms, marks_ms: [i64::MAX; 2] };
            let run = generator.draw(layout, identity, &|| now_ms, &limits, 1)?;
            Ok::<_, Refusal>((run.lane(), layout.created_at_ms(identity.last_id(layout, run)).unwrap()))
        };
        let server = Server::new("js53", 3, true).started_again();
        // A load that is refused, since its clock cannot be right, settles nothing.
        let behind = Fake::holding([NOW_MS + 3_600_000; 2], &server.layout, Some(&server.identity));
        server.make_way(&behind, LaneName::Primary, NOW_MS + 1000).unwrap_err();
        assert_eq!(draw(&server, NOW_MS, 0), Ok((LaneName::Primary, NOW_MS)));
        // Whatever this database holds: the marks of the others may be as far ahead as ids can have run.
        let server = server.started_again();
        let fake = Fake::holding([0; 2], &server.layout, None);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
        assert!(matches!(draw(&server, NOW_MS + 899, 100), Err(Refusal::UsedUp { .. })));
        // Both lanes, and once: the next database begins where this one is.
        assert_eq!(draw(&server, NOW_MS + 1000, 0), Ok((LaneName::Primary, NOW_MS + 1000)));
        assert_eq!(draw(&server, NOW_MS, 1000), Ok((LaneName::Backup, NOW_MS + 1000)));
        let next = Fake::holding([0; 2], &server.layout, None);
        next.now_ms.set(NOW_MS + 1000);
        server.make_way(&next, LaneName::Primary, NOW_MS + 2000).unwrap();
        assert_eq!(draw(&server, NOW_MS + 1000, 0), Ok((LaneName::Primary, NOW_MS + 1000)));
    }

    /// As soon as the mark is published, other sessions draw.
    #[test]
    fn lanes_are_raised_before_the_mark_is_published() {
        let server = Server::new("js53", 3, true).started_again();
        let fake = Fake::holding([NOW_MS + 2000, 0], &server.layout, Some(&server.identity));
        let reached = Rc::new(Cell::new(None));
        let look = {
            let (generator, layout, reached) = (server.generator.clone(), server.layout, reached.clone());
            move || reached.set(Some(LaneName::ALL.map(|lane| generator.reached_ms(lane, &layout))))
        };
        fake.at_flush.replace(Some(Box::new(look)));
        let server = Server { terms: Terms { max_borrow_ms: 1500, ..server.terms }, ..server };
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
        // At the flush, which comes before: the primary lane above its mark, the other one above what may have been borrowed.
        let [primary_ms, backup_ms] = reached.get().expect("it has flushed").map(Option::unwrap);
        assert!(primary_ms + 1000 >= NOW_MS + 2000, "{primary_ms}");
        assert_eq!(backup_ms, server.layout.start_of_ms(server.layout.tick_at(fake.now_ms.get() + 1500) as u64));
    }

    #[test]
    fn a_clock_that_was_set_back_is_refused_or_waited_for() {
        let mut server = Server::new("snowflake", 5, false);
        let mark_ms = NOW_MS + 1102;
        let fake = Fake::holding([mark_ms, 0], &server.layout, Some(&server.identity));
        let behind = Refused::Behind { behind_ms: 1102, mark_ms };
        assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1), Err(Failure::Refused(behind)));
        assert_eq!((fake.did(), fake.published_ms()), (vec![], [None; 2]));
        // The lane is where it was, for the server's other databases.
        assert_eq!(server.next_end_ms(&server.fresh()), Ok(NOW_MS + 1));
        server.terms.wait_for_clock = true;
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
        assert_eq!(fake.did()[0], WaitFor(Wait::Clock { wait_ms: 1002, behind_ms: 1102 }));
        assert!(server.next_end_ms(&fake).unwrap() > mark_ms);
    }

    #[test]
    fn while_one_lane_is_far_behind_the_other_serves() {
        let server = Server::new("snowflake", 5, true);
        let far_ms = NOW_MS + 3_600_000;
        let fake = Fake::holding([far_ms, NOW_MS], &server.layout, Some(&server.identity));
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
        assert_eq!((fake.did(), fake.published_ms()), (vec![Write(PRIMARY, far_ms), Flush], [Some(far_ms), None]));
        server.make_way(&fake, LaneName::Backup, NOW_MS + 1).unwrap();
        let limits = Limits { max_borrow_ms: 0, marks_ms: fake.marks().limits_ms() };
        let run = server.generator.draw(&server.layout, &server.identity, &|| NOW_MS, &limits, 1).unwrap();
        assert_eq!(run.lane(), LaneName::Backup);
        // If both are, the one that serves first is named.
        let fake = Fake::holding([far_ms, far_ms - 1000], &server.layout, Some(&server.identity));
        for lane in LaneName::ALL {
            let behind = Refused::Behind { behind_ms: 3_599_000, mark_ms: far_ms - 1000 };
            assert_eq!(server.make_way(&fake, lane, NOW_MS + 1), Err(Failure::Refused(behind)));
        }
        // Without a backup lane there is no other.
        let server = Server::new("snowflake", 5, false);
        let fake = Fake::holding([far_ms, 0], &server.layout, Some(&server.identity));
        let behind = Refused::Behind { behind_ms: 3_600_000, mark_ms: far_ms };
        assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1), Err(Failure::Refused(behind)));
    }

    #[test]
    fn with_other_numbers_every_lane_begins_above_the_highest_mark() {
        let (before, server) = (Server::new("js53", 19, false), Server::new("js53", 3, true));
        let marks_ms = [NOW_MS - 5000, NOW_MS - 300];
        let fake = Fake::holding(marks_ms, &server.layout, Some(&before.identity));
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
        let begin_ms = marks_ms[1];
        let other = Notice::OtherIdentity { stored: before.code(), mark_ms: begin_ms };
        // The marks first: whatever part of this is kept in a crash, nothing comes again.
        let mut expected = vec![Report(other), Write(BACKUP, begin_ms), Write(PRIMARY, NOW_MS + 1000)];
        expected.extend([Write(Value::Identity, server.code()), Flush]);
        assert_eq!((fake.did(), fake.published_ms()), (expected, [Some(NOW_MS + 1000), None]));
        assert!(server.next_end_ms(&fake).unwrap() > begin_ms);
    }

    #[test]
    fn above_a_mark_that_a_dump_has_set_both_lanes_begin() {
        // The commit that set it was not looked at: this server was not running with the library.
        let server = Server::new("js53", 3, true);
        for lane in LaneName::ALL {
            let fake = Fake::holding([NOW_MS - 5000, NOW_MS - 3000], &server.layout, Some(&server.identity));
            fake.stored.set(Stored { marks_ms: [NOW_MS - 2000, 0], ..fake.stored.get() });
            server.make_way(&fake, lane, NOW_MS + 1000).unwrap();
            let writes = [(lane.other(), NOW_MS - 2000), (lane, NOW_MS + 1000)];
            let writes = writes.map(|(lane, mark_ms)| Write(Value::Mark(lane), mark_ms));
            assert_eq!(fake.did(), [writes[0], writes[1], Flush]);
        }
    }

    #[test]
    fn another_layout_is_refused_until_it_is_accepted() {
        let (before, server) = (Server::new("js53", 3, false), Server::new("snowflake", 3, false));
        let fake = Fake::holding([NOW_MS, 0], &before.layout, Some(&before.identity));
        let refused = || Err(Failure::Refused(Refused::OtherLayout { stored: before.layout.fingerprint() }));
        assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1), refused());
        assert_eq!(server.mark(&fake).advance(&server.terms, NOW_MS, false), refused());
        assert_eq!(server.mark(&fake).reset(&server.identity), refused());
        assert_eq!(fake.did(), []);
        before.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
        fake.did();
        server.mark(&fake).accept_layout().unwrap();
        assert_eq!(fake.did(), [Write(Value::Layout, server.layout.fingerprint()), Flush]);
        assert_eq!(fake.published_ms(), [None; 2]);
        // There is nothing to accept any more.
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
        fake.did();
        server.mark(&fake).accept_layout().unwrap();
        assert_eq!((fake.did(), fake.published_ms()[0].is_some()), (vec![], true));
    }

    #[test]
    fn a_clock_that_jumps_ahead_moves_no_mark() {
        let mut server = Server::new("snowflake", 5, false);
        let fake = server.fresh();
        let refused = Err(Failure::Refused(Refused::Jumped { jump_ms: 60_001 }));
        fake.now_ms.set(NOW_MS + 60_001);
        assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 60_002), refused);
        // Nor in another database of the server.
        let other = Fake::holding([0; 2], &server.layout, None);
        other.now_ms.set(NOW_MS + 60_001);
        assert_eq!(server.make_way(&other, LaneName::Primary, NOW_MS + 60_002), refused);
        assert_eq!((fake.did(), other.did()), (vec![], vec![]));
        // As far as is permitted, or with the time that has passed, it may.
        fake.boot_ms.set(fake.boot_ms.get() + 1);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 60_002).unwrap();
        assert_eq!(fake.published_ms()[0], Some(NOW_MS + 61_002));
        // That has been noted: as far again.
        fake.now_ms.set(NOW_MS + 120_001);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 120_002).unwrap();
        fake.now_ms.set(NOW_MS + 180_002);
        assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 180_003), refused);
        // 0 permits any jump, also at the load; and that is noted, too.
        server.terms.max_clock_jump_ms = 0;
        server.make_way(&fake, LaneName::Primary, NOW_MS + 180_003).unwrap();
        other.now_ms.set(NOW_MS + 900_000);
        server.make_way(&other, LaneName::Primary, NOW_MS + 900_001).unwrap();
        server.terms.max_clock_jump_ms = 60_000;
        fake.now_ms.set(NOW_MS + 900_000);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 900_001).unwrap();
    }

    #[test]
    fn what_somebody_else_has_stored_is_noticed_when_the_mark_moves() {
        let server = Server::new("snowflake", 5, false);
        let other = Server::new("snowflake", 6, false);
        let due_ms = NOW_MS + 900;
        let extended = |change: &dyn Fn(&mut Stored)| {
            let fake = server.fresh();
            let mut stored = fake.stored.get();
            change(&mut stored);
            fake.stored.set(stored);
            server.make_way(&fake, LaneName::Primary, due_ms).unwrap();
            (fake.did(), fake.published_ms()[0])
        };
        let moved = vec![Write(PRIMARY, NOW_MS + 101 + 1000), Flush];
        assert_eq!(extended(&|_| ()), (moved.clone(), Some(NOW_MS + 1101)));
        // With other numbers, another layout, or a mark that was not stored twice: to be loaded.
        for lane in [0, 1] {
            assert_eq!(extended(&|stored| stored.marks_ms[lane] += 1), (vec![], None));
            assert_eq!(extended(&|stored| stored.marks_ms[lane] -= 1), (vec![], None));
        }
        assert_eq!(extended(&|stored| stored.identity = Some(other.code())), (vec![], None));
        assert_eq!(extended(&|stored| stored.layout = Some(1)), (vec![], None));
        assert_eq!(extended(&|stored| stored.layout = None), (vec![], None));
        // Or with one that is further than published.
        let both = |stored: &mut Stored, by_ms| [&mut stored.marks_ms, &mut stored.local_ms].map(|ms| ms[0] += by_ms);
        assert_eq!(extended(&|stored| _ = both(stored, 1)), (vec![], None));
        // Set back: put up again.
        let notice = Notice::SetBack { stored_ms: NOW_MS + 999, mark_ms: NOW_MS + 1000 };
        let expected = [vec![Report(notice)], moved].concat();
        assert_eq!(extended(&|stored| _ = both(stored, -1)), (expected, Some(NOW_MS + 1101)));
    }

    #[test]
    fn what_a_dump_has_stored_is_noticed_when_it_commits() {
        let server = Server::new("snowflake", 5, true);
        let other = Server::new("snowflake", 6, true);
        let mark_ms = NOW_MS + 1000;
        const ALL: Written = Written { marks: [true; 2], layout: true, identity: true };
        let rechecked = |fake: &Fake, change: &dyn Fn(&mut Stored)| {
            let mut stored = fake.stored.get();
            change(&mut stored);
            fake.stored.set(stored);
            server.mark(fake).recheck(Some(&server.identity), ALL).unwrap();
            (fake.did(), fake.published_ms())
        };
        assert_eq!(rechecked(&server.fresh(), &|_| ()), (vec![], [Some(mark_ms); 2]));
        // Another session is between the two writes of a move: that is nobody else's doing.
        let fake = server.fresh();
        fake.half_stored.set(Some(Stored { local_ms: [mark_ms + 500, mark_ms], ..fake.stored.get() }));
        assert_eq!(rechecked(&fake, &|_| ()), (vec![], [Some(mark_ms); 2]));
        // Whatever differs, both lanes are stored as far as any was, and are loaded.
        let [primary, backup] = [PRIMARY, BACKUP].map(|value| move |mark_ms| Write(value, mark_ms));
        let local = |lane| move |mark_ms| Write(Value::Local(lane), mark_ms);
        let [local_primary, local_backup] = LaneName::ALL.map(local);
        let ahead = |fake: &Fake| rechecked(fake, &|stored| stored.marks_ms[1] += 5);
        let expected = vec![primary(mark_ms + 5), local_backup(mark_ms + 5), Flush];
        assert_eq!(ahead(&server.fresh()), (expected, [None; 2]));
        let changed = rechecked(&server.fresh(), &|stored| stored.identity = Some(other.code()));
        assert_eq!(changed, (vec![Flush], [None; 2]));
        // A dump of a database in which nothing was drawn does not make forget what this one's ids were drawn with.
        let changed = rechecked(&server.fresh(), &|stored| (stored.layout, stored.identity) = (None, None));
        let (layout, identity) = (server.layout.fingerprint(), server.code());
        assert_eq!(changed, (vec![Write(Value::Layout, layout), Write(Value::Identity, identity), Flush], [None; 2]));
        let fake = Fake::holding([0; 2], &server.layout, None);
        assert_eq!(rechecked(&fake, &|_| ()), (vec![Flush], [None; 2]));
        let fake = server.fresh();
        fake.stored.set(Stored { layout: None, ..fake.stored.get() });
        server.mark(&fake).recheck(Some(&server.identity), Written { layout: false, ..ALL }).unwrap();
        assert_eq!(fake.did(), [Flush]);
        // Set back: the operator is told.
        let notice = Notice::SetBack { stored_ms: mark_ms - 1, mark_ms };
        let expected = vec![Report(notice), WriteOnlyMark(LaneName::Primary, mark_ms), Flush];
        assert_eq!(rechecked(&server.fresh(), &|stored| stored.marks_ms[0] -= 1), (expected, [None; 2]));
        // Also before anything is loaded, without a word; and a second dump does not undo what the first one has set.
        let fake = Fake::holding([3000, 5000], &server.layout, Some(&server.identity));
        let expected = vec![local_primary(7000), backup(7000), Flush];
        assert_eq!(rechecked(&fake, &|stored| stored.marks_ms[0] = 7000), (expected, [None; 2]));
        let expected = LaneName::ALL.map(|lane| WriteOnlyMark(lane, 7000));
        let expected = vec![expected[0], expected[1], Flush];
        assert_eq!(rechecked(&fake, &|stored| stored.marks_ms = [1000, 2000]), (expected, [None; 2]));
        // A mark that this transaction has not set is left to the one that does.
        let mut stored = fake.stored.get();
        stored.marks_ms = [1000, 2000];
        fake.stored.set(stored);
        server.mark(&fake).recheck(Some(&server.identity), Written { marks: [false, true], ..ALL }).unwrap();
        assert_eq!(fake.did(), [WriteOnlyMark(LaneName::Backup, 7000), Flush]);
        assert_eq!(fake.stored.get().marks_ms, [1000, 7000]);
        // On a server without a number, too.
        server.mark(&fake).recheck(None, ALL).unwrap();
        assert_eq!(fake.did(), [WriteOnlyMark(LaneName::Primary, 7000), Flush]);
        server.mark(&fake).recheck(None, ALL).unwrap();
        assert_eq!(fake.did(), []);
    }

    #[test]
    fn no_id_at_or_below_one_that_was_advanced_to_is_drawn() {
        let server = Server::new("snowflake", 5, true);
        let mark_ms = NOW_MS + 1000;
        let advanced = |fake: &Fake, end_ms| {
            server.mark(fake).advance(&server.terms, end_ms, false).unwrap();
            (fake.did(), fake.published_ms())
        };
        let writes = |marks_ms: [i64; 2]| vec![Write(PRIMARY, marks_ms[0]), Write(BACKUP, marks_ms[1]), Flush];
        // Within the mark and the clock's reach: the lanes are raised at once.
        let fake = server.fresh();
        assert_eq!(advanced(&fake, NOW_MS - 5000), (writes([mark_ms; 2]), [Some(mark_ms); 2]));
        assert_eq!(server.next_end_ms(&fake), Ok(NOW_MS + 1));
        assert_eq!(advanced(&fake, NOW_MS + 100), (writes([mark_ms; 2]), [Some(mark_ms); 2]));
        assert_eq!(server.next_end_ms(&fake), Ok(NOW_MS + 101));
        // Beyond the clock's reach, or beyond the mark: to be loaded.
        assert_eq!(advanced(&fake, NOW_MS + 101), (writes([mark_ms; 2]), [None; 2]));
        let fake = server.fresh();
        assert_eq!(advanced(&fake, mark_ms + 1), (writes([mark_ms + 1; 2]), [None; 2]));
        let fake = server.fresh();
        fake.now_ms.set(NOW_MS + 1100);
        assert_eq!(advanced(&fake, mark_ms + 1), (writes([mark_ms + 1; 2]), [None; 2]));
        // Nothing is ever lowered: neither what is stored nor what is published.
        let fake = server.fresh();
        let stored = Stored { marks_ms: [mark_ms + 7, 3], ..fake.stored.get() };
        fake.stored.set(stored);
        assert_eq!(advanced(&fake, NOW_MS), (writes([mark_ms + 7; 2]), [None; 2]));
        let fake = server.fresh();
        fake.stored.set(Stored { marks_ms: [3; 2], local_ms: [3; 2], ..fake.stored.get() });
        assert_eq!(advanced(&fake, NOW_MS), (writes([mark_ms; 2]), [Some(mark_ms); 2]));
        let fake = Fake::holding([0; 2], &server.layout, None);
        let layout = Write(Value::Layout, server.layout.fingerprint());
        assert_eq!(advanced(&fake, NOW_MS), ([vec![layout], writes([NOW_MS; 2])].concat(), [None; 2]));
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
        // One lane is loaded: the other is stored as far as was asked for, and read when it is.
        let expected = (writes([mark_ms, NOW_MS + 1]), [Some(mark_ms), None]);
        fake.did();
        assert_eq!(advanced(&fake, NOW_MS + 1), expected);
    }

    #[test]
    fn an_advance_further_ahead_than_the_clock_may_jump_is_refused_unless_it_is_forced() {
        const DAY_MS: i64 = 86_400_000;
        for (layout, unit_ms) in [("snowflake", 1), ("js53", 1000)] {
            for (max_clock_jump_ms, most_ms) in [(60_000, 60_000), (0, DAY_MS), (10 * DAY_MS, 10 * DAY_MS)] {
                let mut server = Server::new(layout, 5, true);
                server.terms.max_clock_jump_ms = max_clock_jump_ms;
                let fake = server.fresh();
                let before = (fake.stored.get(), fake.published_ms());
                let advance = |end_ms, force| server.mark(&fake).advance(&server.terms, end_ms, force);
                // What counts is the start of the id's tick: its time, as everybody else reads it.
                let last_ms = NOW_MS + most_ms + unit_ms;
                for end_ms in [last_ms + unit_ms, i64::MAX] {
                    let id_ms = end_ms - unit_ms;
                    let refused = Refused::FarAhead { id_ms, now_ms: NOW_MS, most_ms };
                    assert_eq!(advance(end_ms, false), Err(Failure::Refused(refused)));
                }
                assert_eq!((fake.did(), (fake.stored.get(), fake.published_ms())), (vec![], before));
                advance(last_ms, false).unwrap();
                assert_eq!(fake.did(), [Write(PRIMARY, last_ms), Write(BACKUP, last_ms), Flush]);
                advance(last_ms + unit_ms, true).unwrap();
                let forced_ms = last_ms + unit_ms;
                assert_eq!(fake.did(), [Write(PRIMARY, forced_ms), Write(BACKUP, forced_ms), Flush]);
                // It counts from the clock, not from the mark: what was forced opens no way for what is not.
                let refused = Refused::FarAhead { id_ms: forced_ms, now_ms: NOW_MS, most_ms };
                assert_eq!(advance(forced_ms + unit_ms, false), Err(Failure::Refused(refused)));
                assert_eq!(fake.did(), []);
            }
        }
    }

    #[test]
    fn a_mark_is_reset_only_by_a_server_with_other_numbers_that_has_not_drawn() {
        let far_ms = NOW_MS + 3_600_000;
        let before = Server::new("js53", 19, false);
        let reset = |server: &Server, fake: &Fake| server.mark(fake).reset(&server.identity);
        let refused = |refused| Err(Failure::Refused(refused));
        let holding = |of: &Server| Fake::holding([far_ms, far_ms], &of.layout, Some(&of.identity));
        // 3 with backup workers draws with 19 too.
        for same in [Server::new("js53", 19, false), Server::new("js53", 3, true)] {
            let fake = holding(&before);
            assert_eq!((reset(&same, &fake), fake.did()), (refused(Refused::SameNumber), vec![]));
        }
        for other in [Server::new("js53", 3, false), Server::new("js53", 4, true)] {
            let fake = holding(&before);
            reset(&other, &fake).unwrap();
            let expected = [Write(Value::Identity, other.code()), Write(PRIMARY, 0), Write(BACKUP, 0), Flush];
            assert_eq!(fake.did(), expected);
            other.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
            assert!(other.next_end_ms(&fake).unwrap() < far_ms);
            assert_eq!(reset(&before, &fake), refused(Refused::InUse));
        }
        // Nothing was drawn: nothing to protect. And one lane in use is enough.
        let fake = Fake::holding([far_ms, 0], &before.layout, None);
        before.make_way(&fake, LaneName::Backup, NOW_MS + 1000).unwrap();
        assert_eq!(reset(&Server::new("js53", 4, true), &fake), refused(Refused::InUse));
        reset(&before, &Fake::holding([far_ms; 2], &before.layout, None)).unwrap();
    }

    #[test]
    fn a_layout_without_numbers_leaves_a_reset_to_the_operator() {
        let layout = Layout::parse("mastodon").unwrap();
        let identity = Identity::new(&layout, None, None, false).unwrap();
        let server = Server { layout, identity, ..Server::new("snowflake", 5, false) };
        let fake = Fake::holding([NOW_MS + 3_600_000, 0], &layout, Some(&identity));
        server.mark(&fake).reset(&identity).unwrap();
        assert_eq!(fake.stored.get().marks_ms, [0; 2]);
    }
}
