//! What happens to the registry, to the way to it, and to what an operator has set in it.

use std::rc::Rc;

use snowflake_core::registry::{Change, DEFAULT_LEASE_MS, Fleet, FleetLimits, Incarnation, SinceIncarnation};

use crate::fleet::{Beyond, Registered, bits, raised, timer_ms};
use crate::promises::Lie;
use crate::registry::{Kind, Store};
use crate::server::Server;
use crate::swarm::Choice;
use crate::world::World;

/// One more than the most changes that a failover forgets.
const MOST_LOST: usize = 8;

impl World {
    /// Something happens to the registry.
    pub fn disturb_registry(&self, _: &Rc<Server>) {
        let Some(fleet) = &self.fleet else { return };
        type Action = fn(&World, &Registered);
        let actions: [(usize, Action); 8] = [
            (2, Self::fail_over_and_freeze),
            (6, Self::deliver),
            (3, Self::cut_registry_off),
            (3, Self::cut_server_off),
            (4, Self::fail_registry_over),
            (1, Self::restore_registry),
            (1, Self::lose_registry),
            (6, Self::change_lease),
        ];
        self.swarm.weighed(&self.random, Choice::Registry, &actions)(self, fleet);
    }

    /// A late message arrives.
    pub fn deliver(&self, fleet: &Registered) {
        let swap = {
            let mut late = fleet.late.borrow_mut();
            if late.is_empty() || self.time_ms() < fleet.away_until_ms.get() {
                return;
            }
            let at = self.random.below(late.len());
            late.swap_remove(at)
        };
        let mut store = fleet.store.borrow_mut();
        if store.compares(&swap, self.lies(Lie::NumberAlone)) {
            self.tell(|| format!("{}: arrives late, and is written", self.words.change(&swap.change, &store.fleet)));
            store.write(swap.change);
            self.count("written late");
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
        if self.right_clock { 0 } else { self.random.pick(&[-half_ms, half_ms]) }
    }

    pub fn fail_registry_over(&self, fleet: &Registered) {
        if !fleet.forgets {
            return;
        }
        let mut store = fleet.store.borrow_mut();
        // An etcd that was restored is noticed by its counts, unless they have grown again before.
        if store.kind == Kind::Etcd && store.incarnation.since(&store.fleet.incarnation) != SinceIncarnation::Same {
            return;
        }
        // Two standbys of one primary, promoted one after the other, get the same timeline. The
        // first one must have had more: a number that it has leased anew, because it lacked a
        // lease, could be renewed in the second.
        let again = fleet.failed.take().filter(|(failed, _)| failed.kind == Kind::Postgres && self.random.one_in(2));
        if again.is_some() {
            self.count("registry fails over twice");
            // What was sent to the first one does not reach the second.
            fleet.late.borrow_mut().clear();
        }
        let (failed, changes) = again.unwrap_or_else(|| (store.clone(), store.changes()));
        let kind = failed.kind;
        let first = if kind == Kind::Synchronous {
            failed.synced
        } else {
            changes.saturating_sub(self.random.below(MOST_LOST))
        };
        let first = first.max(fleet.kept.get());
        let end = if kind == Kind::Etcd { changes } else { self.random.of(first as i64..=changes as i64) as usize };
        let mut next = failed.prefix(end);
        match kind {
            Kind::Etcd => next.incarnation.counts = next.incarnation.counts.map(|count| count + 1),
            _ => next.incarnation.timeline += 1,
        }
        (next.offset_ms, next.started_ms) = (self.any_offset(fleet), self.time_ms());
        self.tell(|| format!("the registry fails over, and loses {} of {changes} changes", changes - end));
        self.count("registry fails over");
        fleet.failed.replace(Some((failed, end)));
        *store = next;
    }

    /// Restores a backup: in the ways that show, and as files, after which an operator begins a
    /// generation.
    pub fn restore_registry(&self, fleet: &Registered) {
        if !fleet.forgets {
            return;
        }
        let mut store = fleet.store.borrow_mut();
        let changes = store.changes();
        let mut next = store.prefix(self.random.of(1..=changes as i64) as usize);
        (next.offset_ms, next.started_ms) = (self.any_offset(fleet), self.time_ms());
        let silently = matches!(fleet.beyond, Some(Beyond::RestoredSilently | Beyond::RestoredWithGrace));
        // A synchronous standby vouches for PostgreSQL's timeline.
        let begins = next.kind == Kind::Synchronous || self.random.one_in(2);
        if next.kind == Kind::Etcd {
            // It falls at each restore, below zero, too.
            next.incarnation.counts[1] = next.fleet.incarnation.counts[1] - 1;
        }
        if !silently {
            // The operator knows to what the limits were raised after the backup was taken.
            let mut known = fleet.with_limits(&next.fleet);
            known.version = bits(&self.random);
            if begins {
                let now_ms = self.time_ms() + next.offset_ms;
                known = known.begin_generation(next.incarnation, now_ms, FleetLimits::default(), known.version);
            } else if next.kind != Kind::Etcd {
                next.incarnation.store += 1;
            }
            next.write(Change::Fleet(known));
            next.synced = next.changes();
        }
        self.tell(|| format!("the registry is restored, with {} of {changes} changes", next.changes()));
        self.count("registry is restored");
        fleet.failed.take();
        fleet.kept.set(if silently { 1 } else { next.changes() });
        *store = next;
        drop(store);
        if silently {
            self.timers_fire(fleet);
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
        if !fleet.forgets || fleet.beyond.is_some() {
            return;
        }
        let mut store = fleet.store.borrow_mut();
        let was = store.fleet;
        let offset_ms = self.any_offset(fleet);
        let incarnation = Incarnation { store: was.incarnation.store + 7, ..store.incarnation };
        let now_ms = self.time_ms() + offset_ms;
        // The operator says how long leases were, which the registry has forgotten, too.
        let new = Fleet { generation: 0, ..fleet.with_limits(&was) };
        let mut new = new.begin_generation(incarnation, now_ms, FleetLimits::default(), bits(&self.random));
        if self.lies(Lie::LostUnfrozen) {
            (new.freeze_ms, new.horizon_ms) = (i64::MIN, i64::MIN);
        }
        self.tell(|| "the registry is lost, and made again".to_owned());
        self.count("registry is lost");
        fleet.failed.take();
        fleet.kept.set(1);
        *store = Store::new(store.kind, new, offset_ms, self.time_ms());
    }

    /// The operator changes the length of leases: first the fleet's limit, if that is less, and
    /// what is used only when no failover can forget it.
    pub fn change_lease(&self, fleet: &Registered) {
        let mut store = fleet.store.borrow_mut();
        if fleet.beyond.is_some() || self.time_ms() < fleet.away_until_ms.get() {
            return;
        }
        // The operator first sees to it that no standby is left over from before a failover.
        if fleet.failed.borrow().is_some() {
            fleet.failed.borrow_mut().take_if(|_| self.random.one_in(2));
            return;
        }
        let write = |store: &mut Store, new: Fleet| {
            store.write(Change::Fleet(Fleet { version: bits(&self.random), ..new }));
            store.synced = store.changes();
        };
        let set = |store: &mut Store, lease_ms: i64| {
            self.tell(|| format!("leases are to be {lease_ms} ms long"));
            self.count("lease set");
            let new = Fleet { lease_ms, ..store.fleet };
            write(store, new);
            fleet.lease_ms.set(lease_ms);
        };
        if let Some((lease_ms, changes)) = fleet.raised.get() {
            if store.fleet.longest_ms < lease_ms {
                self.tell(|| "a failover has forgotten the raise".to_owned());
                self.count("raise forgotten");
                fleet.raised.set(None);
            } else if store.changes() >= changes + MOST_LOST {
                fleet.kept.set(changes);
                set(&mut store, lease_ms);
                fleet.raised.set(None);
            }
            return;
        }
        let lease_ms = self.random.pick(&[2000, 10_000, 60_000, 2 * DEFAULT_LEASE_MS]);
        let lease_ms = lease_ms.max(fleet.terms.least_ms(&fleet.layout));
        let is_unknown = store.fleet.longest_ms == 0;
        // Below the default, a limit is set only while no server has one, and none was forgotten.
        let is_forgotten = store.incarnation.since(&store.fleet.incarnation) != SinceIncarnation::Same;
        if is_unknown && is_forgotten && lease_ms < DEFAULT_LEASE_MS {
            return;
        }
        if !is_unknown && lease_ms <= store.fleet.longest_ms || self.lies(Lie::BeyondLimit) {
            return set(&mut store, lease_ms);
        }
        self.tell(|| format!("the fleet's limit is raised to {lease_ms} ms"));
        self.count(if is_unknown { "limit set" } else { "limit raised" });
        let new = match self.lies(Lie::RaisesBoth) {
            true => Fleet { longest_ms: lease_ms, ..store.fleet },
            false => raised(&store.fleet, lease_ms, store.fleet.skew_ms),
        };
        write(&mut store, new);
        fleet.longest_ms.set(lease_ms.max(fleet.longest_ms.get()));
        if self.lies(Lie::UsedAtOnce) {
            set(&mut store, lease_ms);
        } else {
            fleet.raised.set(Some((lease_ms, store.changes())));
        }
        drop(store);
        self.fail_over_and_freeze(fleet);
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
