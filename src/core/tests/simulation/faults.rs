//! What happens to the registry, to the way to it, and to what an operator has set in it.

use std::rc::Rc;

use snowflake_core::fleet::operate::{Operation, lost_fleet, new_fleet};
use snowflake_core::fleet::registry::{Fleet, Incarnation, SinceIncarnation, SwapAnswer};

use crate::fleet::{Beyond, HOME, Registered, timer_ms};
use crate::kit::registry::{Kind, Store};
use crate::operators::FIRST_FREE;
use crate::promises::Lie;
use crate::server::Server;
use crate::swarm::{Chance, Choice};
use crate::tags::Late;
use crate::world::World;

/// One more than the most changes that a failover forgets.
pub const MOST_LOST: usize = 8;

impl World {
    /// Something happens to the registry, or an operator does something.
    pub fn disturb_registry(&self, server: &Rc<Server>) {
        let Some(fleet) = &self.fleet else { return };
        if self.happens(Chance::Operates, 4) {
            return self.operate(server);
        }
        type Action = fn(&World, &Registered);
        let actions: [(usize, Action); 8] = [
            (4, Self::hasten),
            (2, Self::fail_over_and_freeze),
            (6, Self::deliver),
            (3, Self::cut_registry_off),
            (3, Self::cut_server_off),
            (4, Self::fail_registry_over),
            (1, Self::restore_registry),
            (1, Self::lose_registry),
        ];
        self.chooses(Choice::Registry, &actions)(self, fleet);
    }

    /// A late message arrives.
    pub fn deliver(&self, fleet: &Registered) {
        let message = {
            let mut late = fleet.late.borrow_mut();
            if late.is_empty() || self.time_ms() < fleet.away_until_ms.get() || fleet.operators.is_sealed() {
                return;
            }
            let at = self.random.below(late.len());
            late.swap_remove(at)
        };
        self.tell(|| "a message arrives late".to_owned());
        let (answer, written) = match message {
            Late::Server(message) => (self.arrive(&message), "written late"),
            Late::Operator(sent) => (self.arrive_from_operator(fleet, &sent), "an operator's is written late"),
        };
        if answer != SwapAnswer::Refused {
            self.count(written);
        }
    }

    pub fn cut_registry_off(&self, fleet: &Registered) {
        let length_ms = fleet.length_ms();
        let away_ms = self.random.pick(&[50, 1000, length_ms / 2, length_ms * 2]);
        self.tell(|| format!("the registry is away for {away_ms} ms"));
        fleet.away_until_ms.set(self.time_ms() + away_ms);
    }

    /// One server does not reach the registry for a while, and draws on.
    pub fn cut_server_off(&self, fleet: &Registered) {
        let servers = self.leasing();
        if servers.is_empty() {
            return;
        }
        let server = &servers[self.random.below(servers.len())];
        let length_ms = fleet.length_ms();
        let cut_off_ms = self.random.pick(&[length_ms / 2, length_ms, length_ms * 4]);
        self.tell(|| format!("server {} does not reach the registry for {cut_off_ms} ms", server.number));
        self.count("server cut off");
        server.cut_off_until_ms.set(self.time_ms() + cut_off_ms);
    }

    /// Returns how far the clock of another machine of the registry is off.
    pub fn any_offset(&self, fleet: &Registered) -> i64 {
        let half_ms = fleet.skew_ms / 2;
        if self.right_clock && !self.has_tags { 0 } else { self.random.pick(&[-half_ms, half_ms]) }
    }

    pub fn fail_registry_over(&self, fleet: &Registered) {
        // Of a registry that was just restored there is no standby yet.
        if !fleet.forgets || fleet.operators.is_sealed() {
            return;
        }
        self.some_seconds_pass(fleet);
        let mut store = fleet.store.borrow_mut();
        let since = store.incarnation.since(&store.fleet.incarnation);
        let is_new = match self.has_tags {
            true => store.incarnation.store != store.fleet.incarnation.store || since == SinceIncarnation::Other,
            // An etcd that was restored is noticed by its counts, unless they have grown again
            // before.
            false => store.kind == Kind::Etcd && since != SinceIncarnation::Same,
        };
        if is_new {
            return;
        }
        // Two standbys of one primary, promoted one after the other, get the same timeline, unless
        // the second one knows the first one's. The first one must have had more: a number that it
        // has leased anew, because it lacked a lease, could be renewed in the second. So could a
        // block of a tag that has jumped: here the second one knows.
        let again = fleet.failed.take().filter(|(failed, _)| failed.kind == Kind::Postgres && self.random.one_in(2));
        let knows = self.has_tags;
        if again.is_some() {
            self.count("registry fails over twice");
            if !knows {
                // What was sent to the first one does not reach the second. Nothing shows that it
                // is another one, so operators begin again what they were doing.
                fleet.late.borrow_mut().clear();
                fleet.operators.stop();
            }
        }
        let (failed, had) = again.unwrap_or_else(|| (store.clone(), store.changes()));
        let changes = if knows { failed.changes() } else { had };
        let kind = failed.kind;
        let first = if kind == Kind::Synchronous {
            failed.synced
        } else {
            changes.saturating_sub(self.random.below(MOST_LOST))
        };
        let first = first.max(fleet.kept.get()).max(if self.has_tags { of_this_store(&failed) } else { 0 });
        let end = if kind == Kind::Etcd { changes } else { self.random.of(first as i64..=changes as i64) as usize };
        let mut next = failed.prefix(end);
        if knows {
            next.incarnation = store.incarnation;
        }
        match kind {
            Kind::Etcd => next.incarnation.counts = next.incarnation.counts.map(|count| count + 1),
            _ => next.incarnation.timeline += 1,
        }
        next.offset_ms = self.any_offset(fleet);
        self.tell(|| format!("the registry fails over, and loses {} of {changes} changes", changes - end));
        self.count("registry fails over");
        fleet.operators.failovers.set(fleet.operators.failovers.get() + 1);
        fleet.has_more.set(fleet.has_more.get() || end > had);
        fleet.failed.replace(Some((failed, end)));
        *store = next;
        fleet.tags.lose();
    }

    /// A promotion and a restore take some seconds, so that generations do not follow each other
    /// faster than tags jump (`TagRecord::restored`).
    fn some_seconds_pass(&self, fleet: &Registered) {
        fleet.note_generation();
        if self.has_tags {
            self.pass(3000);
        }
    }

    /// Restores a backup: in the ways that show, and as files, after which an operator begins a
    /// generation.
    pub fn restore_registry(&self, fleet: &Registered) {
        let changes = fleet.store.borrow().changes();
        let oldest = fleet.operators.oldest_backup.get().min(changes);
        self.restore_to(fleet, self.random.of(oldest as i64..=changes as i64) as usize);
    }

    pub fn restore_to(&self, fleet: &Registered, end: usize) {
        if !fleet.forgets || fleet.operators.is_sealed() {
            return;
        }
        self.some_seconds_pass(fleet);
        let mut store = fleet.store.borrow_mut();
        let (changes, mut next) = (store.changes(), store.prefix(end));
        next.offset_ms = self.any_offset(fleet);
        let silently = fleet.beyond == Some(Beyond::RestoredSilently);
        if !silently {
            fleet.tags.restores.set(fleet.tags.restores.get() + 1);
        }
        let plan = match self.has_tags {
            _ if silently => Vec::new(),
            true => self.plan_restored_tags(fleet, &store, &mut next),
            false => self.plan_restored(fleet, &mut next),
        };
        self.tell(|| format!("the registry is restored, with {} of {changes} changes", next.changes()));
        self.count(if silently { "registry is restored silently" } else { "registry is restored" });
        fleet.failed.take();
        // A silent one has standbys from before, all of which have what every backup has.
        fleet.kept.set(if silently { fleet.operators.oldest_backup.get().min(end) } else { end });
        next.sync();
        self.plan(fleet, plan);
        if next.kind == Kind::Etcd {
            // It does not compare what it has forgotten of a number.
            fleet.late.borrow_mut().retain(|late| matches!(late, Late::Server(message) if !message.is_of_number()));
            fleet.operators.cuts.set(fleet.operators.cuts.get() + 1);
        }
        *store = next;
        drop(store);
        fleet.tags.lose();
        if self.has_tags {
            fleet.note_restores();
        } else if silently {
            self.timers_fire(fleet);
        }
    }

    /// The registry is another one, to which this has to be done before servers reach it.
    fn plan(&self, fleet: &Registered, plan: Vec<Operation>) {
        fleet.operators.plan(plan);
        if self.has_tags {
            fleet.late.borrow_mut().retain(|late| matches!(late, Late::Server(_)));
        }
    }

    /// Lets the time pass in which every server turns to the registry once, in any order.
    pub fn timers_fire(&self, fleet: &Registered) {
        let mut servers = self.leasing();
        let step_ms = timer_ms(&fleet.terms, fleet.lease_ms.get(), &fleet.layout) / (servers.len() as i64 + 1);
        while !servers.is_empty() {
            self.pass(step_ms);
            self.keep(&servers.swap_remove(self.random.below(servers.len())));
        }
    }

    /// The registry is lost, and an operator makes it anew, saying so.
    pub fn lose_registry(&self, fleet: &Registered) {
        let is_possible = fleet.forgets && fleet.beyond.is_none() && !fleet.operators.is_sealed();
        // A fleet with tags begins anew without them.
        if !is_possible || self.has_tags && !self.random.one_in(4) {
            return;
        }
        let mut store = fleet.store.borrow_mut();
        let offset_ms = self.any_offset(fleet);
        let incarnation = Incarnation { store: store.incarnation.store + 7, ..store.incarnation };
        let now_ms = self.time_ms() + offset_ms;
        // The operator knows how long leases may have been.
        let (lease_ms, skew_ms) = fleet.operators.limits_ms();
        let mut new = new_fleet(HOME, incarnation, self.random.bits());
        let range = Operation::SetRange { first: FIRST_FREE, last: fleet.range.1 };
        let mut plan = Vec::from_iter(Some(range).filter(|_| !self.has_tags));
        if self.random.one_in(2) {
            plan.insert(0, Operation::Lost { lease_ms, skew_ms, uuid: Some(HOME) });
            new.uuid = self.random.bits().into();
        } else {
            new = lost_fleet(&new, now_ms, lease_ms, skew_ms, self.random.bits()).expect("limits that were set");
            if self.lies(Lie::LostUnfrozen) {
                (new.freeze_ms, new.horizon_ms) = (i64::MIN, i64::MIN);
            }
        }
        self.tell(|| "the registry is lost, and made again".to_owned());
        self.count("registry is lost");
        fleet.failed.take();
        fleet.kept.set(1);
        if !self.has_tags {
            fleet.operators.oldest_backup.set(0);
        }
        self.plan(fleet, plan);
        *store = Store::new(store.kind, new, offset_ms);
        drop(store);
        fleet.tags.lose();
        fleet.tags.forget_restores();
        fleet.note_restores();
    }

    /// Shows that a registry is restored, unless it is so by files alone. Returns what an operator
    /// has to do before servers reach it.
    fn plan_restored(&self, fleet: &Registered, next: &mut Store) -> Vec<Operation> {
        // A synchronous standby vouches for PostgreSQL's timeline.
        let by_files = next.kind == Kind::Synchronous || self.random.one_in(2);
        if next.kind == Kind::Etcd {
            // It falls at each restore, below zero, too.
            next.incarnation.counts[1] = next.fleet.incarnation.counts[1] - 1;
        }
        let (longest_ms, most_skew_ms) = fleet.operators.limits_ms();
        let (lease_ms, skew_ms) = (Some(longest_ms), Some(most_skew_ms));
        let Fleet { closed, loses_nothing, .. } = next.fleet;
        // The operator knows to what limits were raised after the backup was taken.
        let knows_more = next.fleet.longest_ms < longest_ms || next.fleet.skew_ms < most_skew_ms;
        let mut plan = Vec::new();
        let restored = Operation::Restored { lease_ms, skew_ms };
        if !by_files && next.kind != Kind::Etcd {
            next.incarnation.store += 1;
        }
        if by_files || closed || knows_more && self.random.one_in(2) {
            plan.push(restored);
        } else if knows_more {
            plan.push(Operation::SetLimits { lease_ms, skew_ms });
        }
        if loses_nothing && next.kind != Kind::Synchronous {
            plan.push(Operation::SetLosesNothing { loses_nothing: false });
        }
        if closed {
            plan.push(Operation::Open { moved: Some(false) });
        }
        plan
    }

    /// Some servers renew, and a failover forgets it, perhaps together with a raise of the limit
    /// just before. Some notice, and some acquire what is free when the freeze is over.
    pub fn fail_over_and_freeze(&self, fleet: &Registered) {
        self.some_keep();
        self.fail_registry_over(fleet);
        self.some_keep();
        // A server that crashes wants another number.
        if let Some(server) = self.leasing().first().filter(|_| !self.is_restoring_any()) {
            self.crash(server);
        }
        let record = fleet.store.borrow().fleet;
        let freeze_ms = record.longest_ms + 3 * record.skew_ms;
        self.pass(self.random.pick(&[0, freeze_ms, freeze_ms]));
        self.some_keep();
    }

    pub fn some_keep(&self) {
        self.leasing().iter().filter(|_| self.random.one_in(2)).for_each(|server| self.keep(server));
    }
}

/// Returns how many changes there were when the fleet's record first told of this store. Its
/// standbys are made after that.
fn of_this_store(store: &Store) -> usize {
    let mut its = store.fleets().filter(|(_, fleet)| fleet.incarnation.store == store.incarnation.store);
    its.next().map_or(store.changes(), |(at, _)| at + 1)
}
