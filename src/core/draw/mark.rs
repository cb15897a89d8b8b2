//! The mark: why no id comes twice after a crash, a failover, a restore or a clock set back.
//!
//! Each database stores, for each lane, the latest instant that any id drawn in it *may* carry: its
//! **mark**. The mark runs ahead of the clock by [`MARK_AHEAD_MS`]. So it is written about twice a
//! second while ids are drawn, and not at all otherwise.
//!
//! This file is the protocol, from "the mark is reached" to "drawing may go on". It runs over a
//! [`MarkedDatabase`] that stores, logs, locks and waits. In the extension, that is PostgreSQL's
//! sequences (`src/ids/database_mark.rs`). In `tests/simulation.rs`, it is a simulated log that is
//! crashed, promoted and copied at every step.
//!
//! # Why it holds
//!
//! - **Before an id is drawn, a mark at or after the end of its tick is in WAL, and flushed if
//!   the numbers are configured** (`Mark::extend`: write, flush, publish, in this order; a draw
//!   reads the published mark, I3). The WAL record of any row that holds the id comes later. So
//!   every prefix of WAL that holds the row holds the mark, and no clock enters the argument (G1).
//!   What is flushed survives a crash, whether the id was stored or only seen (G2).
//! - **Before the first id after a start or a promotion, the lane is raised to the stored mark**
//!   (`Mark::load`), so that every id that can have been drawn counts as drawn.
//! - **The first load in a life of shared memory, whichever database it is for, raises both lanes
//!   above all that a predecessor can have drawn by its clock** ([`Generator::follow`]). One reason
//!   is that a crashed server's databases share its lanes, and cannot read each other's marks. The
//!   other is that a standby may be promoted before the last mark has arrived. The marks hold
//!   whatever the clocks say. This holds for clocks that are not behind, and for a `max_borrow`
//!   that is not less (G2, and for two databases).
//! - Within one running server the lane's word never steps back ([`crate::draw::generator`], I1),
//!   whatever the mark does (G0).
//!
//! # The protocol
//!
//! ```text
//! draw: the mark is reached (`generator::Refusal::MarkReached`)
//!   |-- not loaded ---> load:   lock; read; further ahead than the clock? unlock; wait, or refuse; again
//!   |                           else ceiling; follow, once; raise the lane; write, flush, publish;
//!   |                           unlock
//!   |-- beyond it ----> extend: lock; read: is it what was published? ceiling, write, flush, publish;
//!   |                           unlock
//!   '-- half used up -> extend, if the lock is free; the others still have half, and never wait
//! ```
//!
//! # Leased numbers
//!
//! Leased numbers end ([`IdStamp::until_ms`]), and no id may be drawn beyond their end, however far
//! the mark could go. So what is published is the lesser of the two: a draw compares with one word.
//! A session that has written a mark publishes it only if the numbers have not changed since it
//! began. The mark keeps the ids of each database ascending, whatever the numbers.
//!
//! A draw with leased numbers writes the mark and does not flush it, because a crash cannot repeat
//! what only a client has seen (G2). After a crash of a backend, the next life of shared memory
//! begins above every mark that was published: before that, a mark raises the **ceiling**, which
//! is outside of what a crash loses (`fleet/page.rs`). The ceiling comes first. A session that
//! cannot raise it has changed nothing then, and the others draw on: a mark that was written and
//! not published would make them load it, and wait. A life without a ceiling is another holder,
//! with another lease, and so with other ids (`lease.rs`). For ids that are stored (G1), the order
//! in WAL is enough: the row's record comes after the mark's, so every prefix of WAL that holds the
//! row holds the mark. What an operator asks for is flushed all the same: an advance, a reset,
//! another layout, another fleet.
//!
//! Leases of two fleets know nothing of each other. So a database stores the fleet whose leases it
//! was first drawn with ([`IdStamp::fleet`]), durably, before the first of these ids is drawn. It
//! refuses another fleet until an operator accepts it. The other fleet may lease the same number
//! for the same time, and a crash may have lost the last mark. So with the acceptance, the marks
//! are raised above all that can have been drawn by the clock (G2, for a clock that was not set
//! back).
//!
//! # What if another writer sets the mark?
//!
//! A restored dump sets it, higher or lower than it was, and a rollback does not undo that. So each
//! mark is stored twice: dumps carry one copy, and the other is **local**. The protocol writes
//! both, and the greater counts. If they differ, another writer has set one. That is noticed when
//! the writer's transaction commits ([`Mark::recheck`]), whenever the mark moves, and after each
//! start. The mark is then loaded anew.
//!
//! Logical replication can copy all sequences of another server, and then sets both. The process
//! that copies notes before what they held, and puts it back when its transaction commits.
//! `mark/writers.rs` has both, and what operators do to a mark.

use crate::clock::{ClockReference, DAY_MS, Wait};
use crate::draw::generator::Generator;
use crate::draw::numbers::Numbers;
use crate::draw::published::{MARK_AHEAD_MS, Marks};
use crate::draw::stamp::{IdStamp, NO_END};
use crate::id::identity::{Identity, LaneName};
use crate::id::layout::Layout;

mod writers;

/// Whether this build is the negative control: of the crash tests, with logged marks that do not
/// run ahead, and of the fleet's tests, with published marks that do not end with the lease. A
/// variable of the build's environment sets it. A cargo feature must not, because `--all-features`
/// would then switch the guarantee off.
pub const IS_CONTROL: bool = option_env!("SNOWFLAKE_ID_MARK_WITHOUT_LOOK_AHEAD").is_some();

/// Returns where numbers end, in milliseconds since 1970. In the negative control, leases have no
/// end.
pub(crate) fn end_of(drawing: &IdStamp) -> i64 {
    if IS_CONTROL { NO_END - 1 } else { drawing.until_ms() }
}

/// Returns a mark as it is logged.
fn logged(mark_ms: i64) -> i64 {
    if IS_CONTROL { mark_ms - MARK_AHEAD_MS } else { mark_ms }
}

/// What a database stores about the ids drawn in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// For each lane, the latest instant that an id may carry, in milliseconds since 1970; 0 if
    /// none was drawn.
    pub marks_ms: [i64; 2],
    /// The local marks: the same, not carried by dumps.
    pub local_ms: [i64; 2],
    /// The fingerprint of the layout that the ids were drawn with ([`Layout::fingerprint`]).
    pub layout: Option<i64>,
    /// The numbers that the ids were last drawn with ([`Identity::code`]).
    pub identity: Option<i64>,
    /// The fleet that leases numbers for ids of this database
    /// ([`Fleet::code`](crate::fleet::registry::Fleet::code)), not carried by dumps; `None` until
    /// one does.
    pub fleet: Option<i64>,
}

impl Stored {
    /// Returns the mark that counts: the greater copy.
    fn mark_ms(&self, lane: LaneName) -> i64 {
        self.marks_ms[lane as usize].max(self.local_ms[lane as usize])
    }

    /// Returns the higher mark of the two lanes.
    fn highest_ms(&self) -> i64 {
        self.mark_ms(LaneName::Primary).max(self.mark_ms(LaneName::Backup))
    }

    /// Returns the mark above which a primary lane begins at least, whatever the server's numbers,
    /// if it has no backup lane. With the stored numbers, it begins above its own mark, and with
    /// others above the higher one. Takes of each mark what both copies have.
    fn least_begin_ms(&self) -> i64 {
        let [primary_ms, backup_ms] =
            LaneName::ALL.map(|lane| self.marks_ms[lane as usize].min(self.local_ms[lane as usize]));
        let is_own = self.identity.is_some_and(|code| !Identity::has_backup_in(code));
        if is_own { primary_ms } else { primary_ms.max(backup_ms) }
    }

    /// Returns the stored fleet and the server's, if both are there and differ.
    fn other_fleet(&self, drawing: &IdStamp) -> Option<(i64, i64)> {
        self.fleet.zip(drawing.fleet()).filter(|(stored, fleet)| stored != fleet)
    }

    /// Whether another writer has set a mark.
    fn is_touched(&self) -> bool {
        self.marks_ms != self.local_ms
    }
}

/// One of the numbers that a database stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoredNumber {
    /// A lane's mark.
    Mark(LaneName),
    /// A lane's local mark, which dumps do not carry.
    Local(LaneName),
    /// The layout's fingerprint.
    Layout,
    /// The server's numbers.
    Identity,
    /// The fleet, which dumps do not carry.
    Fleet,
}

/// What the protocol asks of a database. An error of any function ends the session's statement, and
/// with it the session's lock.
pub trait MarkedDatabase {
    /// What can go wrong.
    type Error: From<MarkRefusal>;

    /// Reads what is stored, whether it is logged or not. Leaves no lock behind.
    fn read(&self) -> Result<Stored, Self::Error>;

    /// Returns the published marks of the database, if they were claimed for it.
    fn marks(&self) -> Result<Option<Marks<'_>>, Self::Error>;

    /// Takes the database's lock, which one session holds at a time. Returns the published marks,
    /// or marks that permit nothing if none were claimed. Returns `None` if another session has the
    /// lock and `wait` is false.
    fn lock(&self, wait: bool) -> Result<Option<Marks<'_>>, Self::Error>;

    /// Claims published marks for the database, unless it has some. The caller holds the lock.
    fn claim(&self) -> Result<Marks<'_>, Self::Error>;

    /// Releases the lock.
    fn unlock(&self);

    /// Stores a number, and logs it.
    fn write(&self, value: StoredNumber, number: i64) -> Result<(), Self::Error>;

    /// Returns when all that this session has written is durable.
    fn flush(&self) -> Result<(), Self::Error>;

    /// Returns when the marks that are stored are durable, whichever session has written them.
    fn flush_marks(&self) -> Result<(), Self::Error>;

    /// Notes that a mark of leased numbers is going to be published, where the next life of this
    /// server's memory begins above it (`fleet/page.rs`). Nothing of the mark is written yet.
    fn raise_ceiling(&self, mark_ms: i64) -> Result<(), Self::Error>;

    /// Reads the wall clock, in milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Reads the time since boot, in milliseconds. It cannot be set.
    fn boot_ms(&self) -> i64;

    /// Waits for as long as `wait` says, or less.
    fn wait(&self, wait: Wait) -> Result<(), Self::Error>;

    /// Reports a notice to the operator.
    fn report(&self, notice: MarkNotice);
}

/// What a transaction has set outside the protocol, as a restored dump does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WrittenNumbers {
    /// What the database held before another server's values were copied over it, the local marks
    /// among them: logical replication copies sequences so. `None` for anything else. The
    /// process that copies notes it before it begins, so an advance in between may be lost.
    pub copied_over: Option<Stored>,
    /// Each lane's mark.
    pub marks: [bool; 2],
    /// The layout's fingerprint.
    pub layout: bool,
    /// The numbers.
    pub identity: bool,
}

/// Why no ids may be drawn under the mark, or why it stays as it is. Instants are milliseconds
/// since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkRefusal {
    /// The clock is so far behind the mark that it must have been set back since, and the policy is
    /// not to wait.
    Behind {
        /// How far the clock is behind the mark.
        behind_ms: i64,
        /// The mark.
        mark_ms: i64,
    },
    /// The clock has jumped by more than is permitted since a mark last moved on this server.
    Jumped {
        /// By how much, in milliseconds.
        jump_ms: i64,
    },
    /// The database's ids were drawn with another layout.
    OtherLayout {
        /// That layout's fingerprint.
        stored: i64,
    },
    /// The database's ids were drawn with numbers that another fleet leases.
    OtherFleet {
        /// That fleet ([`Fleet::code`](crate::fleet::registry::Fleet::code)).
        stored: i64,
        /// The fleet that leases this server's numbers.
        fleet: i64,
    },
    /// The mark cannot be reset, because it is loaded: ids are drawn under it.
    InUse,
    /// The mark cannot be reset, because the server still draws with a configured number that the
    /// old ids carry.
    SameNumber,
    /// The mark cannot be advanced to an id that lies further ahead of the clock than is permitted.
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
pub enum MarkNotice {
    /// The numbers have changed since the last id was drawn: every lane begins above the highest
    /// mark.
    OtherIdentity {
        /// The old numbers ([`Identity::code`]).
        stored: i64,
        /// Where the lanes begin, in milliseconds since 1970.
        mark_ms: i64,
    },
    /// Another writer has set a mark back, and it is raised again.
    SetBack {
        /// The mark that was found, in milliseconds since 1970.
        stored_ms: i64,
        /// The mark that is in use, in milliseconds since 1970.
        mark_ms: i64,
    },
}

/// The settings that bear on the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkTerms {
    /// How far ids may run ahead of the clock, in milliseconds.
    pub max_borrow_ms: i64,
    /// The farthest that the clock may jump, in milliseconds; 0 for any distance.
    pub max_clock_jump_ms: i64,
    /// Whether to wait for a clock that is far behind the mark.
    pub wait_for_clock: bool,
}

impl MarkTerms {
    /// Returns how far ahead of the clock a mark may be advanced without force, in milliseconds. It
    /// is bounded even where the clock may jump any distance, because a mark cannot be lowered. One
    /// that is too high stops the database until the clock has passed it.
    fn max_advance_ms(&self) -> i64 {
        if self.max_clock_jump_ms > 0 { self.max_clock_jump_ms } else { DAY_MS }
    }
}

/// Returns what to wait for until a lane can begin above a mark; `None` for nothing. A server with
/// a right clock leaves a mark behind that is [`MARK_AHEAD_MS`] and a tick ahead at most. If it is
/// further, the clock was set back.
fn wait_for(mark_ms: i64, now_ms: i64, terms: &MarkTerms, layout: &Layout) -> Result<Option<Wait>, MarkRefusal> {
    let behind_ms = mark_ms.saturating_sub(now_ms);
    let wait_ms = behind_ms.saturating_sub(terms.max_borrow_ms);
    if wait_ms <= 0 {
        Ok(None)
    } else if wait_ms <= MARK_AHEAD_MS + layout.unit().ms() {
        Ok(Some(Wait::Start { wait_ms }))
    } else if terms.wait_for_clock {
        Ok(Some(Wait::ClockStepBack { wait_ms, behind_ms }))
    } else {
        Err(MarkRefusal::Behind { behind_ms, mark_ms })
    }
}

/// Whether that is a clock that was set back.
fn is_far(wait: &Result<Option<Wait>, MarkRefusal>) -> bool {
    matches!(wait, Ok(Some(Wait::ClockStepBack { .. })) | Err(_))
}

/// The mark of one database, and the generator that it guards.
#[derive(Debug)]
pub struct Mark<'a, D> {
    /// Where it is stored.
    pub database: D,
    /// The lanes that it guards.
    pub generator: &'a Generator,
    /// The reference that shows a jump of the clock.
    pub clocks: &'a ClockReference,
    /// The server's numbers, which may change at any time.
    pub numbers: &'a Numbers,
}

impl<D: MarkedDatabase> Mark<'_, D> {
    /// Makes it possible to draw ids from `lane` whose tick ends at `end_ms`, or at least ids up to
    /// the mark that `marks` gave when the draw was refused. The caller then tries the draw again.
    ///
    /// # Errors
    /// [`MarkRefusal::Behind`], [`MarkRefusal::Jumped`], [`MarkRefusal::OtherLayout`],
    /// [`MarkRefusal::OtherFleet`], and the database's own.
    pub fn make_way(
        &self,
        drawing: &IdStamp,
        terms: &MarkTerms,
        marks: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), D::Error> {
        // The session's first draw finds no marks, although another session may have loaded them.
        let loaded = |marks: &Marks<'_>| marks.mark_ms(lane).is_some();
        let marks = if loaded(&marks) { marks } else { self.database.marks()?.unwrap_or(marks) };
        match marks.mark_ms(lane) {
            None => self.load(drawing, terms, lane),
            Some(mark_ms) => {
                let must_move = end_ms > mark_ms;
                self.locked(must_move, |marks| self.extend(drawing, terms, marks, lane, end_ms))
                    .map(Option::unwrap_or_default)
            }
        }
    }

    /// Runs `step` with the lock held. Returns `None` if another session holds it and `wait` is
    /// false.
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

    /// Moves the mark ahead of `end_ms`. The caller holds the lock.
    fn extend(
        &self,
        drawing: &IdStamp,
        terms: &MarkTerms,
        marks: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), D::Error> {
        let found = marks.find(lane);
        let Some(published_ms) = found.mark_ms() else {
            return Ok(()); // It was forgotten. The next attempt loads it.
        };
        if !marks.needs_move(lane, end_ms) {
            return Ok(()); // Another session has moved it.
        }
        if !self.numbers.are(drawing) || published_ms >= end_of(drawing) {
            return Ok(()); // The next attempt has other numbers, or draws up to the end of these.
        }
        let stored = self.database.read()?;
        let stored_ms = stored.mark_ms(lane);
        if stored_ms > published_ms || stored.is_touched() || !self.is_ours(drawing, &stored) {
            // A dump was restored, or an earlier move wrote the mark and did not publish it.
            marks.forget();
            return Ok(());
        }
        if stored_ms < logged(published_ms) {
            self.database.report(MarkNotice::SetBack { stored_ms, mark_ms: published_ms });
        }
        let (now_ms, boot_ms) = self.read_clocks(terms)?;
        // Goes no further than this reading of the clock permits, because the draw may have read
        // one that was wrong for a moment.
        let end_ms = end_ms.min(now_ms.saturating_add(terms.max_borrow_ms + drawing.layout().unit().ms()));
        let mark_ms = published_ms.max(end_ms.saturating_add(MARK_AHEAD_MS)).min(end_of(drawing));
        self.raise_ceiling(drawing, mark_ms)?;
        self.write_mark(lane, logged(mark_ms))?;
        self.flush_for(drawing, &stored)?;
        marks.publish(found, mark_ms);
        self.clocks.note(now_ms, boot_ms);
        Ok(())
    }

    /// Raises the ceiling to a mark that is going to be published, before anything is changed.
    fn raise_ceiling(&self, drawing: &IdStamp, mark_ms: i64) -> Result<(), D::Error> {
        if drawing.is_leased() { self.database.raise_ceiling(mark_ms) } else { Ok(()) }
    }

    /// Flushes what was written before ids are drawn. With leased numbers, no crash can repeat
    /// them, but the fleet that leases the database's first ones is stored, and durable.
    fn flush_for(&self, drawing: &IdStamp, stored: &Stored) -> Result<(), D::Error> {
        match drawing.fleet() {
            Some(_) if stored.fleet.is_some() => return Ok(()),
            Some(fleet) => self.database.write(StoredNumber::Fleet, fleet)?,
            None => {}
        }
        self.database.flush()
    }

    /// Stores both copies of a mark.
    fn write_mark(&self, lane: LaneName, mark_ms: i64) -> Result<(), D::Error> {
        self.database.write(StoredNumber::Local(lane), mark_ms)?;
        self.database.write(StoredNumber::Mark(lane), mark_ms)
    }

    /// Begins to draw from `lane` above what is stored, at the first use after a start or a
    /// promotion. Reads with the lock held, so that no session waits for a mark that another one is
    /// just logging. Waits without the lock.
    fn load(&self, drawing: &IdStamp, terms: &MarkTerms, lane: LaneName) -> Result<(), D::Error> {
        loop {
            let wait = self.locked(true, |marks| {
                if marks.mark_ms(lane).is_some() || !self.numbers.are(drawing) {
                    return Ok(None); // Another session has loaded it, or the numbers have changed.
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

    /// Raises the lane to what is stored, and publishes a mark for drawing. The caller holds the
    /// lock.
    fn enter(&self, drawing: &IdStamp, terms: &MarkTerms, stored: &Stored, lane: LaneName) -> Result<(), D::Error> {
        let (now_ms, boot_ms) = self.read_clocks(terms)?;
        let marks = self.database.claim()?;
        let found = marks.find(lane);
        if !self.numbers.are(drawing) {
            return Ok(()); // The next attempt has the other numbers.
        }
        let code = drawing.code();
        let begin_ms = self.begin_ms(drawing, stored, lane);
        let mark_ms = begin_ms.max(now_ms.saturating_add(MARK_AHEAD_MS).min(end_of(drawing)));
        self.raise_ceiling(drawing, mark_ms.min(end_of(drawing)))?;
        if !drawing.is_leased() {
            // Leased numbers need no `follow`: no later lease covers ticks that a predecessor drew
            // in.
            self.generator.follow(drawing.layout(), now_ms, terms.max_borrow_ms);
        }
        self.generator.raise(lane, drawing.layout(), begin_ms);
        // Leased numbers change by themselves.
        if let Some(old) = stored.identity.filter(|old| *old != code && !drawing.is_leased()) {
            self.database.report(MarkNotice::OtherIdentity { stored: old, mark_ms: begin_ms });
        }
        // The marks are written before the numbers. A crash in between leaves the old numbers, so
        // nothing is lost.
        if self.is_foreign(drawing, stored) {
            self.write_mark(lane.other(), begin_ms)?;
        }
        self.write_mark(lane, logged(mark_ms).max(begin_ms))?;
        if stored.identity != Some(code) {
            self.database.write(StoredNumber::Identity, code)?;
        }
        if stored.layout.is_none() {
            self.database.write(StoredNumber::Layout, drawing.layout().fingerprint())?;
        }
        self.flush_for(drawing, stored)?;
        marks.publish(found, mark_ms.min(end_of(drawing)));
        self.clocks.note(now_ms, boot_ms);
        Ok(())
    }

    /// Returns where a lane has to begin: above its mark, or above the highest mark if that may
    /// concern this lane too.
    fn begin_ms(&self, drawing: &IdStamp, stored: &Stored, lane: LaneName) -> i64 {
        if self.is_foreign(drawing, stored) { stored.highest_ms() } else { stored.mark_ms(lane) }
    }

    /// Whether a lane's mark may concern the other lane: the numbers have changed, or another
    /// writer has set the marks, perhaps with other numbers. Where the log has lost the end of the
    /// first draw, there are marks without numbers.
    fn is_foreign(&self, drawing: &IdStamp, stored: &Stored) -> bool {
        let code = drawing.code();
        stored.is_touched() || stored.identity.map_or(stored.highest_ms() > 0, |stored| stored != code)
    }

    /// Returns what to wait for before a lane can be loaded; `None` for nothing.
    fn wait(
        &self,
        drawing: &IdStamp,
        terms: &MarkTerms,
        stored: &Stored,
        lane: LaneName,
    ) -> Result<Option<Wait>, D::Error> {
        self.require_layout(drawing.layout(), stored)?;
        self.require_fleet(drawing, stored)?;
        let now_ms = self.database.now_ms();
        let wait = |mark_ms| wait_for(mark_ms, now_ms, terms, drawing.layout());
        let [own_ms, other_ms] = [lane, lane.other()].map(|lane| self.begin_ms(drawing, stored, lane));
        let (own, has_backup) = (wait(own_ms), drawing.identity().has_backup());
        // The other lane serves. This one is loaded too, because the generator has to know how far
        // behind it is.
        if is_far(&own) && has_backup && !is_far(&wait(other_ms)) {
            return Ok(None);
        }
        // Meanwhile the lane is not raised, so that this server's other databases, which share it,
        // can draw. If both lanes are refused, the one that serves first counts.
        Ok(if own.is_err() && has_backup { wait(own_ms.min(other_ms)) } else { own }?)
    }

    /// Raises the primary lane to what is stored, so that all ids count as drawn that can have been
    /// drawn in this database before this life of the server. Does not write, and needs no lock and
    /// no numbers. Does nothing where the lane's mark is loaded. Waits as a draw does for a clock
    /// that is behind.
    ///
    /// # Errors
    /// [`MarkRefusal::Behind`], [`MarkRefusal::OtherLayout`], and the database's own.
    pub fn reach(&self, layout: &Layout, terms: &MarkTerms) -> Result<(), D::Error> {
        loop {
            let stored = self.database.read()?;
            // Another session may have loaded the mark, and moved it, before it was read here.
            if self.database.marks()?.is_some_and(|marks| marks.mark_ms(LaneName::Primary).is_some()) {
                return Ok(());
            }
            self.require_layout(layout, &stored)?;
            // The ids may have been drawn with any numbers.
            let (mark_ms, now_ms) = (stored.highest_ms(), self.database.now_ms());
            let Some(wait) = wait_for(mark_ms, now_ms, terms, layout)? else {
                self.generator.raise(LaneName::Primary, layout, mark_ms);
                return Ok(());
            };
            self.database.wait(wait)?;
        }
    }

    /// Returns the greatest id that the database's stored mark covers, durably; 0 if there is none.
    /// After the end of this life of the server, all ids that are drawn in the database are
    /// greater, whatever the clock and the numbers. The same holds in each copy of the database
    /// that has what is written after this call, also in a restored dump. In this life, an id that
    /// is drawn later may be less. It is greater than the lane's last one.
    ///
    /// Where the stored numbers have a backup lane, and this server's do not, that holds for lives
    /// without a backup lane: with the stored numbers, each lane would begin above its own mark.
    ///
    /// `known` is what was returned last in this life, 0 for nothing. It is returned again while
    /// the lane has not gone beyond it. Needs no lock and no numbers, and writes nothing. It
    /// flushes a mark that was moved since, about twice a second while ids are drawn.
    ///
    /// # Errors
    /// The database's own.
    pub fn covered(&self, layout: &Layout, known: i64) -> Result<i64, D::Error> {
        // All ids that any number has in the lane's tick.
        if self.generator.last_id(layout, None) <= known {
            return Ok(known);
        }
        // What is published may be less: it ends with the lease. The backup lane's mark counts only
        // where the stored numbers cannot be the next ones. If the log ends within a reset, it can
        // be above the primary lane's, and nothing there begins above it. Count a mark only as
        // far as both copies hold it, because a dump carries one of them.
        let id = layout.last_id_of_ticks_until(self.database.read()?.least_begin_ms());
        if id != known {
            self.database.flush_marks()?;
        }
        Ok(id)
    }

    /// Reads both clocks, and refuses a clock that has jumped too far.
    fn read_clocks(&self, terms: &MarkTerms) -> Result<(i64, i64), D::Error> {
        let (now_ms, boot_ms) = (self.database.now_ms(), self.database.boot_ms());
        let jump_ms = self.clocks.jump_ms(now_ms, boot_ms);
        if terms.max_clock_jump_ms > 0 && jump_ms > terms.max_clock_jump_ms {
            return Err(MarkRefusal::Jumped { jump_ms }.into());
        }
        Ok((now_ms, boot_ms))
    }

    /// Refuses a layout other than the one that the database's ids were drawn with.
    fn require_layout(&self, layout: &Layout, stored: &Stored) -> Result<(), D::Error> {
        match stored.layout.filter(|stored| *stored != layout.fingerprint()) {
            Some(stored) => Err(MarkRefusal::OtherLayout { stored }.into()),
            None => Ok(()),
        }
    }

    /// Refuses another fleet than the one that has leased numbers for the database's ids. A
    /// configured number belongs to none.
    fn require_fleet(&self, drawing: &IdStamp, stored: &Stored) -> Result<(), D::Error> {
        match stored.other_fleet(drawing) {
            Some((stored, fleet)) => Err(MarkRefusal::OtherFleet { stored, fleet }.into()),
            None => Ok(()),
        }
    }

    /// Whether the stored layout, numbers and fleet are this server's.
    fn is_ours(&self, drawing: &IdStamp, stored: &Stored) -> bool {
        stored.layout == Some(drawing.layout().fingerprint())
            && stored.identity == Some(drawing.code())
            && stored.other_fleet(drawing).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_clock_is_near_and_one_that_was_set_back_is_far() {
        let terms = MarkTerms { max_borrow_ms: 250, max_clock_jump_ms: 0, wait_for_clock: true };
        for layout in ["snowflake", "sonyflake", "js53"].map(|name| Layout::parse(name).unwrap()) {
            let near_ms = MARK_AHEAD_MS + layout.unit().ms();
            let set_back = |wait_ms, behind_ms| Some(Wait::ClockStepBack { wait_ms, behind_ms });
            for (mark_ms, now_ms, expected) in [
                (i64::MIN, i64::MAX, None),
                (250, 0, None),
                (251, 0, Some(Wait::Start { wait_ms: 1 })),
                (250 + near_ms, 0, Some(Wait::Start { wait_ms: near_ms })),
                (251 + near_ms, 0, set_back(near_ms + 1, near_ms + 251)),
                (i64::MAX, i64::MIN, set_back(i64::MAX - 250, i64::MAX)),
            ] {
                assert_eq!(wait_for(mark_ms, now_ms, &terms, &layout), Ok(expected), "{mark_ms} {layout}");
            }
        }
    }
}
