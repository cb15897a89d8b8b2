//! Checks each id that is drawn, and each mark that is written.

use std::rc::Rc;

use snowflake_core::draw::generator::IdRun;
use snowflake_core::draw::published::MARK_AHEAD_MS;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Field;

use crate::fleet::{Drawer, Known};
use crate::log::{Id, Record, Settled};
use crate::promises::Guarantee;
use crate::server::{Config, Server, Shared};
use crate::session::Session;
use crate::world::World;

impl World {
    pub fn check(&self, session: &Session<'_>, run: IdRun) {
        self.check_ids(session, run.lane(), run.ids());
    }

    /// Checks ids of one lane, ascending.
    pub fn check_ids(&self, session: &Session<'_>, lane: LaneName, ids: impl Iterator<Item = i64>) {
        let Session { server, shared, database, config, .. } = session;
        let (database, layout) = (*database, &config.layout);
        let drawing = config.drawing();
        let leased = self.fleet.as_ref().filter(|_| shared.leases);
        let has_backup = leased.map_or(config.backup, |fleet| fleet.backup);
        let mut last = None;
        for id in ids {
            last = Some(id);
            let parts = layout.parts(id).unwrap();
            let end_ms = parts.created_at_ms + layout.unit().ms();
            let code = match &self.fleet {
                Some(fleet) if shared.leases => {
                    let half = config.half() * i64::from(lane == LaneName::Backup);
                    let worker = parts.worker.map_or(0, i64::from) - half;
                    Config { worker, backup: fleet.backup, ..*config }.drawing().code()
                }
                _ => drawing.code(),
            };
            let log = server.log.borrow();
            let contents = &log.present[database];
            // Ids of two fleets may be equal.
            let of_fleet = contents.stored.fleet.filter(|_| self.two_fleets()).unwrap_or_default();
            let id = Id {
                id,
                lane,
                numbers: (parts.datacenter, parts.worker),
                layout: layout.fingerprint(),
                identity: code,
                of_fleet,
                end_ms,
            };
            self.tell(|| format!("server {} database {database} draws {id:?}", server.number));
            self.count("drawn");
            let of_its_fleet = (of_fleet, id.id);
            let broken = |guarantee, what: &str| {
                self.broken(guarantee, || {
                    format!("{id:?} is drawn in database {database} of server {}, {what}", server.number)
                });
            };
            // What one of two copies of a memory gives back, the other still draws with.
            let is_of_a_copy = |of_fleet, id| self.is_of_a_copy(shared, (of_fleet, id));
            // No mark was flushed, and the other fleet's leases know nothing of this one's.
            let is_excused =
                |held: &Id| held.of_fleet != of_fleet && server.went_back.get() || is_of_a_copy(held.of_fleet, held.id);
            let may_repeat = is_of_a_copy(of_fleet, id.id);
            if shared.issued.borrow().contains(&id.id) {
                broken(Guarantee::G0, "which has drawn it since its start");
            } else if !server.went_back.get() && !may_repeat && server.ever_issued.borrow().contains(&of_its_fleet) {
                broken(Guarantee::G0, "which has drawn it before its start, and its clock was not set back");
            }
            if !server.went_back.get() && !may_repeat && server.predecessors_issued.borrow().contains(&of_its_fleet) {
                broken(Guarantee::Failover, "which has taken over from a server that has drawn it");
            }
            if contents.rows.iter().any(|row| row.id == id.id) {
                broken(Guarantee::G1, "which holds it");
            }
            if server.seen.borrow()[database].iter().any(|seen| seen.id == id.id && !is_excused(seen)) {
                broken(Guarantee::G2, "which a client has seen");
            }
            if !shared.leases && log.durable[database].stored.marks_ms[lane as usize] < end_ms {
                broken(Guarantee::Flushed, "above the mark that is flushed");
            }
            if contents.stored.layout != Some(layout.fingerprint()) {
                broken(Guarantee::Layout, "with another layout");
            }
            let is_above = |held: &Id| (held.numbers, held.layout) != (id.numbers, id.layout) || held.id < id.id;
            let seen = server.seen.borrow();
            if !contents.rows.iter().all(is_above)
                || !seen[database].iter().all(|held| is_above(held) || is_excused(held))
            {
                broken(Guarantee::Order, "though a greater one of the same numbers was drawn before");
            }
            let (advanced_ms, when) = contents.advanced;
            if end_ms <= advanced_ms && session.began > when {
                broken(Guarantee::Advance, "at or below what was given to snowflake_advance()");
            }
            if server.settled[database].get().limit_in(id.layout, has_backup) >= id.id {
                broken(Guarantee::Settled, "at or below a settled id that a client has got");
            }
            if contents.settled.limit_in(id.layout, has_backup) >= id.id {
                broken(Guarantee::Settled, "at or below a settled id that a reader has stored");
            }
            // With a backup worker, two lanes do not ascend together.
            if !has_backup && self.greatest_before(session) >= Some(id.id) {
                broken(Guarantee::Ascending, "though a greater one was drawn before this draw began");
            }
            self.check_fleet(shared, of_its_fleet, parts.worker, parts.created_at_ms, end_ms);
            drop((log, seen));
            shared.issued.borrow_mut().push(id.id);
            server.ever_issued.borrow_mut().push(of_its_fleet);
            server.seen.borrow_mut()[database].push(id);
            if !self.random.one_in(4) {
                shared.uncommitted.borrow_mut().push((database, id));
            }
        }
        let mut greatest = shared.greatest.borrow_mut();
        let so_far = greatest.last().map(|(_, id)| *id);
        greatest.extend(so_far.max(last).map(|id| (self.event(), id)));
    }

    /// Readers of all databases of a server ask for the settled id, and some store it.
    pub fn read_settled(&self, server: &Rc<Server>) {
        for database in 0..server.databases() {
            if !self.reads || self.readers.one_in(2) || !self.has(server) || self.is_restoring(server, database) {
                continue;
            }
            self.read_settled_in(server, database);
        }
    }

    /// A reader asks for the settled id, and may store it.
    pub fn read_settled_in(&self, server: &Rc<Server>, database: usize) {
        let session = Session::new(self, server, database);
        let leased = self.fleet.as_ref().filter(|_| session.shared.leases);
        if leased.map_or(session.config.backup, |fleet| fleet.backup) {
            return; // It is refused.
        }
        let Ok(settled) = session.settled() else { return };
        self.tell(|| format!("server {} database {database}: settled up to {settled}", server.number));
        self.count("read");
        let layout = session.config.layout.fingerprint();
        let before = server.settled[database].get().id_in(layout);
        if settled < before {
            self.broken(Guarantee::Settled, || {
                let number = server.number;
                format!("the settled id of database {database} of server {number} falls from {before} to {settled}")
            });
        }
        let mut log = server.log.borrow_mut();
        // What is not durable may be other numbers after a crash.
        let identity = log.durable[database].stored.identity;
        let settled = Settled::new(layout, identity, settled);
        server.settled[database].set(server.settled[database].get().and(&settled));
        if self.readers.one_in(2) {
            log.insert(Record::Settled(database, settled));
        }
    }

    /// Returns the greatest id of this life of shared memory whose draw had returned before the
    /// session began.
    fn greatest_before(&self, session: &Session<'_>) -> Option<i64> {
        let greatest = session.shared.greatest.borrow();
        let before = greatest.partition_point(|(returned, _)| *returned < session.began);
        before.checked_sub(1).map(|last| greatest[last].1)
    }

    /// Checks that the log up to here has a mark for every row in it, because a copy may end here.
    pub fn check_prefix(&self, server: &Server, database: usize) {
        let log = server.log.borrow();
        let contents = &log.present[database];
        for lane in LaneName::ALL {
            let mark_ms = contents.stored.marks_ms[lane as usize];
            let rows_ms = contents.rows_end_ms[lane as usize];
            if mark_ms < rows_ms {
                self.broken(Guarantee::G1, || {
                    format!("in a prefix of the log, the {lane:?} mark {mark_ms} of database {database} is below the row {rows_ms}")
                });
            }
            if mark_ms < contents.advanced.0 {
                self.broken(Guarantee::Advance, || {
                    format!("in a prefix of the log, the {lane:?} mark {mark_ms} is below it")
                });
            }
        }
    }

    /// Checks that a written mark does not run away from the clock.
    pub fn check_bounded(&self, session: &Session<'_>, mark_ms: i64) {
        let now_ms = session.server.now_ms(self.time_ms());
        // A server that has the wrong layout by mistake may write what a server with the right
        // layout has stored.
        let unit_ms = self.layouts[0].unit().ms().max(self.layouts[1].unit().ms());
        let bound_ms = MARK_AHEAD_MS + self.max_borrow_ms + unit_ms;
        if self.right_clock && mark_ms - now_ms > bound_ms {
            self.broken(Guarantee::Bounded, || {
                format!("the mark is {} ms ahead, more than {bound_ms}", mark_ms - now_ms)
            });
        }
    }

    /// Whether another memory has drawn an id, which was copied. Its copy may have given back the
    /// lease.
    fn is_of_a_copy(&self, shared: &Shared, of_its_fleet: (i64, i64)) -> bool {
        let Some(fleet) = &self.fleet else { return false };
        let drawn = fleet.drawn.borrow();
        drawn.get(&of_its_fleet).is_some_and(|drawer| drawer.may_repeat && drawer.memory != shared.memory)
    }

    /// Checks an id, with the fleet of its database, for the whole fleet.
    pub fn check_fleet(
        &self,
        shared: &Shared,
        (of_fleet, id): (i64, i64),
        worker: Option<u32>,
        start_ms: i64,
        end_ms: i64,
    ) {
        let Some(fleet) = &self.fleet else { return };
        if !shared.leases {
            fleet.configured.borrow_mut().insert(id);
            if fleet.drawn.borrow().keys().any(|(_, drawn)| *drawn == id) {
                self.broken(Guarantee::G3, || {
                    format!("{id} was drawn with a leased number, and now with a configured one")
                });
            }
            return;
        }
        if fleet.configured.borrow().contains(&id) {
            self.broken(Guarantee::G3, || {
                format!("{id} was drawn with a configured number, and now with a leased one")
            });
        }
        let Some(worker) = worker.map(i64::from) else { return };
        let half = fleet.layout.max_of(Field::Worker).unwrap_or(0).div_ceil(2) as i64;
        let worker = if fleet.backup && worker >= half { worker - half } else { worker };
        let memory = shared.memory;
        let mark_ms = fleet.operators.marks.borrow().get(&worker).copied().unwrap_or(i64::MIN);
        if start_ms < mark_ms && !shared.elsewhere {
            self.broken(Guarantee::G3, || format!("{id} may have been drawn while {worker} was configured"));
        }
        let covers = |known: &Known| known.worker == worker && known.from_ms <= start_ms && end_ms <= known.until_ms;
        // One of two copies notices at its next renewal of what both hold. If the registry has
        // forgotten that lease, there is none, and both draw up to its end.
        let is_common = shared.answers_since_copy.get() < 2
            || end_ms <= shared.copied_until_ms.get()
            || fleet.known.borrow().iter().any(|known| known.is_copied && covers(known));
        let may_repeat = shared.was_copied.get() && is_common;
        let drawer = Drawer { memory, may_repeat };
        if let Some(other) = fleet.drawn.borrow_mut().insert((of_fleet, id), drawer) {
            if other.memory != memory && (may_repeat || other.may_repeat) {
                self.count("repeated by a copy of memory");
            } else {
                self.broken(Guarantee::G3, || format!("{id} was drawn before, by {other:?}, and now by {drawer:?}"));
            }
        }
        let mut reached_ms = shared.reached_ms.borrow_mut();
        reached_ms.entry(worker).and_modify(|ms| *ms = end_ms.max(*ms)).or_insert(end_ms);
        let holders = shared.holders.borrow();
        let permits = |known: &Known| {
            let until_ms = if known.is_copied { known.latest_ms } else { known.until_ms };
            known.worker == worker
                && (known.from_ms..=until_ms).contains(&start_ms)
                && end_ms <= until_ms
                && (known.is_copied || holders.contains(&known.holder))
        };
        if !fleet.known.borrow().iter().any(permits) {
            self.broken(Guarantee::R2, || format!("the tick {start_ms}..{end_ms} is in no lease of {worker} here"));
        }
    }
}
