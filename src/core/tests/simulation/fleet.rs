//! The fleet's part of a history: what is known of it, when its servers turn to the registry,
//! copies of a memory, and the end, when everything has to work again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use snowflake_core::draw::numbers::NextNumbers;
use snowflake_core::draw::stamp::NO_END;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{Holder, LeaseTerms};
use snowflake_core::fleet::operate::new_fleet;
use snowflake_core::fleet::registry::{DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, Incarnation, NumberRecord};
use snowflake_core::id::identity::{Identity, LaneName};
use snowflake_core::id::layout::{Field, Layout};

use crate::keeper::{Keeper, NoAnswer};
use crate::kit::random::Random;
use crate::kit::registry::{Kind, Store};
use crate::kit::server::Connected;
use crate::operators::{Operators, is_kept};
use crate::promises::{Guarantee, Lie};
use crate::server::{DATACENTER, Server, Shared};
use crate::session::Session;
use crate::tags::{Late, Tags};
use crate::world::{Story, World};

/// The uuids of the fleet, and of the other one.
pub const HOME: u128 = 1 << 68;
pub const ELSEWHERE: u128 = 2 << 68;

/// What is done to a registry beyond what the guarantee covers, to measure it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// It is restored as files, shows the same incarnation, and no generation begins.
    RestoredSilently,
    /// An operator vouches for a standby that is not synchronous.
    VouchedWrongly,
}

/// A lease as its holder knows it.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub worker: i64,
    pub holder: u128,
    pub from_ms: i64,
    pub until_ms: i64,
    /// The latest end that it has had: what one of two copies gives back, the other still draws.
    pub latest_ms: i64,
    pub memory: u64,
    /// Whether it is of the other fleet.
    pub elsewhere: bool,
    /// Whether the server has begun to draw with it.
    pub is_entered: bool,
    /// Whether two copies of one memory have it: one may give it back while the other draws.
    pub is_copied: bool,
}

/// The fleet of a history.
pub struct Registered {
    /// The servers' settings.
    pub terms: LeaseTerms,
    /// How long leases are, as the operator has set it last.
    pub lease_ms: Cell<i64>,
    /// How far clocks are apart.
    pub skew_ms: i64,
    pub operators: Operators,
    /// Whether a synchronous standby was vouched for in the beginning.
    pub is_synchronous: bool,
    /// How many of the registry's changes no failover forgets.
    pub kept: Cell<usize>,
    pub layout: Layout,
    pub backup: bool,
    pub range: (i64, i64),
    /// Whether the registry may lose changes. Its clocks are then within the skew.
    pub forgets: bool,
    pub beyond: Option<Beyond>,
    pub store: RefCell<Store>,
    /// The registry of another fleet, which some servers are started with by mistake.
    pub other: Option<RefCell<Store>>,
    /// What the primary had before the last failover, of which another standby may be promoted, and
    /// how much of it the promoted one had.
    pub failed: RefCell<Option<(Store, usize)>>,
    /// Whether a second standby of one primary had more than the first one: leases come back then
    /// that their servers have taken for forgotten.
    pub has_more: Cell<bool>,
    pub away_until_ms: Cell<i64>,
    pub late: RefCell<Vec<Late>>,
    /// What was given and drawn of tags, and what excuses them.
    pub tags: Tags,
    pub known: RefCell<Vec<Known>>,
    /// With which secret each holder has written first.
    pub secrets: RefCell<BTreeMap<u128, u128>>,
    /// The memories of holders whose leases were found to overlap, and where.
    pub overlaps: RefCell<Vec<([u64; 2], i64, i64)>>,
    /// All leased ids with the fleet of their database, and who has drawn them.
    pub drawn: RefCell<BTreeMap<(i64, i64), Drawer>>,
    /// Ids that were drawn with configured numbers.
    pub configured: RefCell<BTreeSet<i64>>,
}

/// Which memory has drawn an id.
#[derive(Debug, Clone, Copy)]
pub struct Drawer {
    pub memory: u64,
    /// Whether this memory has a copy, which may draw the same.
    pub may_repeat: bool,
}

impl Registered {
    pub fn new(
        random: &Random,
        layout: Layout,
        right_clock: bool,
        max_borrow_ms: i64,
        story: Story,
        lie: Option<Lie>,
    ) -> Self {
        let (beyond, has_tags) = (story.beyond(), story.has_tags());
        let kind = random.pick(&[Kind::Postgres, Kind::Postgres, Kind::Synchronous, Kind::Etcd]);
        let kind = if beyond.is_some() { Kind::Postgres } else { kind };
        let skew_ms = if has_tags { DEFAULT_SKEW_MS } else { random.pick(&[200, 1000, 5000]) };
        let terms = LeaseTerms { max_borrow_ms };
        let lease_ms = random.pick(&[2000, 10_000, 60_000]).max(terms.least_ms(&layout));
        // The operator sets limits when the fleet is made, or leaves them to the first server.
        let brings = lie == Some(Lie::BringsOther) || random.one_in(4);
        let limits = match !has_tags && (beyond.is_some() || !brings) {
            true => (lease_ms, skew_ms),
            false => (0, 0),
        };
        let lease_ms = if limits.0 > 0 { lease_ms } else { lease_ms.min(DEFAULT_LEASE_MS) };
        // What is used is the default up to the limits, or what the operator sets.
        let set = if has_tags || limits.0 > 0 && random.one_in(2) { (0, 0) } else { (lease_ms, skew_ms) };
        let lease_ms = if set.0 == 0 { lease_ms.min(DEFAULT_LEASE_MS) } else { lease_ms };
        let first = if layout.max_of(Field::Worker).is_some_and(|max| max >= 31) { 12 } else { 0 };
        let range = (first, first + random.of(0..=2));
        // These lies need a registry that forgets leases.
        let forgets =
            has_tags || beyond.is_some() || matches!(lie, Some(Lie::OneSkew | Lie::BringsOther)) || random.one_in(2);
        let backup = random.one_in(2);
        let counts = if kind == Kind::Etcd { [2, 3] } else { [0; 2] };
        let timeline = if kind == Kind::Etcd { 0 } else { 1 };
        let fleet = Fleet {
            range: Some(range).filter(|_| !has_tags),
            loses_nothing: kind == Kind::Synchronous || beyond == Some(Beyond::VouchedWrongly),
            longest_ms: limits.0,
            skew_ms: limits.1,
            lease_ms: set.0,
            clock_skew_ms: set.1,
            ..new_fleet(HOME, Incarnation { store: 1, timeline, counts }, random.bits())
        };
        let incarnation = Incarnation { store: 2, ..fleet.incarnation };
        let elsewhere = Fleet { uuid: ELSEWHERE, incarnation, ..fleet };
        let offset_ms = if right_clock { 0 } else { random.pick(&[-skew_ms / 2, skew_ms / 2]) };
        Self {
            terms,
            lease_ms: Cell::new(lease_ms),
            skew_ms,
            operators: Operators::new(
                if limits.0 > 0 { limits.0 } else { DEFAULT_LEASE_MS },
                if limits.1 > 0 { limits.1 } else { DEFAULT_SKEW_MS },
            ),
            is_synchronous: kind == Kind::Synchronous,
            kept: Cell::new(1),
            layout,
            backup,
            range,
            forgets,
            beyond,
            store: RefCell::new(Store::new(kind, fleet, offset_ms)),
            other: (story == Story::TwoFleets).then(|| RefCell::new(Store::new(kind, elsewhere, 0))),
            failed: RefCell::default(),
            has_more: Cell::new(false),
            away_until_ms: Cell::new(i64::MIN),
            late: RefCell::default(),
            tags: Tags::default(),
            known: RefCell::default(),
            secrets: RefCell::default(),
            overlaps: RefCell::default(),
            drawn: RefCell::default(),
            configured: RefCell::default(),
        }
    }

    pub fn datacenter(&self) -> Option<i64> {
        self.layout.max_of(Field::Datacenter).map(|_| DATACENTER)
    }

    /// Returns how far a server's clock is off: mostly so little that it may acquire a number, and
    /// seldom by more than a lease.
    pub fn any_offset_ms(&self, random: &Random) -> i64 {
        let half_ms = self.skew_ms / 2;
        let little_ms = random.of(-half_ms..=half_ms);
        random.weighed(&[(3, -half_ms), (3, half_ms), (3, 3 * half_ms), (3, little_ms), (2, 4 * self.length_ms())])
    }

    /// Returns the registry that a server reaches.
    pub fn store_of(&self, shared: &Shared) -> &RefCell<Store> {
        self.other.as_ref().filter(|_| shared.elsewhere).unwrap_or(&self.store)
    }

    /// All standbys have what is written.
    pub fn keep_all(&self) {
        let mut store = self.store.borrow_mut();
        store.sync();
        self.kept.set(store.changes());
        self.failed.take();
    }

    /// Returns the length of a lease, for how long to let pass.
    pub fn length_ms(&self) -> i64 {
        self.terms.first_ms(self.lease_ms.get(), &self.layout)
    }
}

impl World {
    /// Runs the process that leases the server's number.
    pub fn keep(&self, server: &Rc<Server>) {
        let shared = server.shared();
        let Some(fleet) = self.fleet.as_ref().filter(|_| shared.leases) else { return };
        let keeper = Keeper::new(self, fleet, server, &shared);
        let Ok(mut holder) = shared.holder.try_borrow_mut() else { return };
        if server.is_standby() && !self.settles.get() && self.random.one_in(2) {
            return;
        }
        let before = *holder;
        let kept = holder.renew_or_acquire(&Connected(&keeper), &keeper.terms);
        let has_ended = keeper.leaves(&mut holder, before, kept == Err(Failure::Away(NoAnswer)));
        keeper.drop_others(&holder);
        if has_ended {
            return self.process_ends(server);
        }
        self.tell(|| format!("server {} keeps: {}", server.number, self.result(&kept)));
        if shared.gone.get() {
            return;
        }
        match kept {
            Ok(()) => {
                self.count("kept");
                shared.answers_since_copy.set(shared.answers_since_copy.get() + 1);
            }
            Err(Failure::Away(NoAnswer)) => {
                self.count("no answer");
                if self.lies(Lie::LostIsNo) {
                    *holder = before;
                }
            }
            Err(Failure::NoneFree { .. }) => self.count("none free"),
            Err(Failure::Frozen { .. }) => self.count("frozen"),
            Err(Failure::ClockOff { .. }) => self.count("clock off"),
            Err(Failure::Contended) => self.count("contended"),
            Err(Failure::Closed) => self.count("fleet closed"),
            // An operator has not said yet which fleet it is.
            Err(Failure::OtherFleet { .. }) if self.lie.is_some() => {}
            Err(other) => panic!("{other:?}"),
        }
        if self.lies(Lie::NotFolded) && holder.held().is_some() {
            shared.numbers.extend(NO_END - 1);
        }
    }

    /// Ends the process that leases the number, or the whole server, cleanly.
    pub fn give_back(&self, server: &Rc<Server>) {
        let shared = server.shared();
        let Some(fleet) = self.fleet.as_ref().filter(|_| shared.leases) else { return };
        let keeper = Keeper::new(self, fleet, server, &shared);
        let Ok(mut holder) = shared.holder.try_borrow_mut() else { return };
        let before = *holder;
        keeper.gives_back.set(true);
        let given = holder.give_back(&Connected(&keeper));
        let has_ended = keeper.leaves(&mut holder, before, given == Err(Failure::Away(NoAnswer)));
        keeper.drop_others(&holder);
        if has_ended {
            return self.process_ends(server);
        }
        self.tell(|| format!("server {} gives back: {}", server.number, self.result(&given)));
        self.count("gives back");
        if given.is_err() && self.lies(Lie::LostIsNo) {
            // It takes the lost answer for a no, and goes on.
            *holder = before;
            resume(fleet, &shared, &holder);
        }
    }

    fn result(&self, result: &Result<(), Failure<NoAnswer>>) -> String {
        result.as_ref().map_or_else(|failure| self.words.failure(failure), |()| "done".to_owned())
    }

    /// The process that leases the number has ended at a call.
    pub fn process_ends(&self, server: &Rc<Server>) {
        self.tell(|| format!("server {}: the process ends", server.number));
        self.count("process ends");
    }

    /// A server draws, and gives its number back; another one takes it and draws, at the same
    /// moment.
    pub fn hand_over(&self, server: &Rc<Server>) {
        for _ in 0..self.random.below(5) {
            self.draw(server);
        }
        self.give_back(server);
        // What was sent may have arrived, and not been answered.
        if self.crashes && self.has(server) {
            self.crash(server);
        }
        self.all_draw(server);
    }

    /// Whether there is another fleet.
    pub fn two_fleets(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| fleet.other.is_some())
    }

    /// A server is restarted with another registry, or with its own, or an operator accepts the
    /// fleet that it is in.
    pub fn go_elsewhere(&self, server: &Rc<Server>) {
        if server.is_standby() || self.is_restoring_any() {
            return;
        }
        if server.shared().elsewhere && self.random.one_in(8) {
            let database = self.any_database(server);
            let accepted = Session::new(self, server, database).accept_fleet();
            self.tell(|| format!("server {} database {database}: the fleet is accepted: {accepted:?}", server.number));
            self.count("fleet accepted");
            return;
        }
        self.restart(server);
        self.count("other registry");
        for _ in 0..3 {
            self.keep(server);
            self.draw(server);
        }
    }

    /// Makes a copy of a running server with its memory, as a virtual machine's snapshot does.
    pub fn copy_memory(&self, original: &Rc<Server>) {
        let shared = original.shared();
        let Some(fleet) = self.fleet.as_ref().filter(|_| shared.leases) else { return };
        if original.is_standby() || original.is_orphan.get() || self.is_restoring_any() {
            return;
        }
        let Ok(holder) = shared.holder.try_borrow().map(|holder| *holder) else { return };
        let copy = self.clone_server(original);
        let memory = copy.shared();
        memory.holders.borrow_mut().clone_from(&shared.holders.borrow());
        *memory.holder.borrow_mut() = holder;
        memory.secret.set(shared.secret.get());
        for lease in [holder.held(), holder.kept(), holder.next()].into_iter().flatten() {
            let mut known = fleet.known.borrow_mut();
            known.iter_mut().filter(|known| known.holder == lease.holder).for_each(|known| known.is_copied = true);
        }
        for of in [&shared, &memory] {
            of.was_copied.set(true);
            of.answers_since_copy.set(0);
            of.copied_until_ms.set(holder.held().or(holder.kept()).map_or(i64::MIN, |held| held.until_ms));
        }
        for lane in LaneName::ALL {
            if let Some(start_ms) = shared.generator.reached_ms(lane, &fleet.layout) {
                // The words cannot be copied, so the copy begins in the next tick.
                memory.generator.raise(lane, &fleet.layout, start_ms + fleet.layout.unit().ms());
            }
        }
        if shared.numbers.read(&fleet.layout).is_some() {
            resume(fleet, &memory, &holder);
        }
        self.count("memory copied");
        self.tell(|| format!("server {} is copied with its memory, as server {}", original.number, copy.number));
    }

    /// For the lie that a holder survives a crash.
    pub fn survive(&self, before: &Shared, after: &Shared, now_ms: i64) {
        let Some(fleet) = self.fleet.as_ref().filter(|_| before.leases && after.leases) else { return };
        let Ok(holder) = before.holder.try_borrow().map(|holder| *holder) else { return };
        *after.holder.borrow_mut() = holder;
        after.secret.set(before.secret.get());
        after.generator.follow(&fleet.layout, now_ms, self.max_borrow_ms);
        resume(fleet, after, &holder);
    }

    /// Where leases overlap, sets the clocks of both servers to an instant there, and draws.
    pub fn draw_where_leases_overlap(&self) {
        let Some(fleet) = &self.fleet else { return };
        for (memories, from_ms, until_ms) in fleet.overlaps.take() {
            let servers: Vec<_> =
                self.leasing().into_iter().filter(|server| memories.contains(&server.shared().memory)).collect();
            for at_ms in [from_ms, from_ms.midpoint(until_ms), until_ms - 1] {
                for server in servers.iter().filter(|server| servers.len() == 2 && !server.is_standby()) {
                    server.stands_at_ms.set(Some(at_ms));
                    (0..4).for_each(|_| self.draw(server));
                }
            }
        }
    }

    /// With right clocks and a registry that answers, every server has a number after a freeze, and
    /// draws.
    pub fn settle(&self) {
        let Some(fleet) = self.fleet.as_ref().filter(|_| self.right_clock && self.lie.is_none()) else { return };
        let orphans: Vec<_> = self.servers.borrow().iter().filter(|server| server.is_orphan.get()).cloned().collect();
        orphans.iter().for_each(|orphan| assert!(self.ends_as_orphan(orphan)));
        self.settles.set(true);
        fleet.late.borrow_mut().clear();
        self.settle_operators(fleet);
        // A generation may begin only now, and dead holders keep their numbers until their ends.
        self.pass(fleet.away_until_ms.get().saturating_sub(self.time_ms()).max(0));
        let servers = self.leasing();
        // Twice: a copy of a memory may be found out only by the second call, and begin a
        // generation.
        for server in servers.iter().chain(&servers) {
            self.keep(server);
        }
        let (longest_ms, most_skew_ms) = fleet.operators.limits_ms();
        self.pass(longest_ms * 2 + 4 * most_skew_ms + 1000);
        let free_in = |store: &RefCell<Store>| {
            let store = store.borrow();
            let (first, last) = store.fleet.range.expect("an operator has set it");
            let now_ms = self.time_ms() + store.offset_ms;
            // A lease begins with a whole tick, and the one in which a kept number's time ends is
            // not whole.
            let unit_ms = fleet.layout.unit().ms();
            let is_taken = |record: &NumberRecord| is_kept(record) && record.until_ms.saturating_add(unit_ms) > now_ms;
            let kept = store
                .numbers
                .iter()
                .filter(|(number, record)| (first..=last).contains(&number.worker) && is_taken(record));
            (last - first + 1) as usize - kept.count()
        };
        // All servers may have been started with the other registry.
        let free = fleet.other.iter().chain([&fleet.store]).map(free_in).min().unwrap_or(0);
        for server in servers.iter().take(free) {
            let shared = server.shared();
            let keeper = Keeper::new(self, fleet, server, &shared);
            let mut holder = shared.holder.borrow_mut();
            let kept = holder.renew_or_acquire(&Connected(&keeper), &keeper.terms);
            if kept.is_err() || keeper.calls.get() > MOST_CALLS || holder.held().is_none() {
                self.broken(Guarantee::Live, || {
                    format!("after {} calls, server {} keeps {kept:?}", keeper.calls.get(), server.number)
                });
            }
        }
        for server in servers.iter().take(free).filter(|server| !server.is_standby()) {
            self.count("settled");
            self.draw(server);
        }
    }
}

/// The most calls of the registry that a server with a right clock needs: to look at what it held,
/// to note what the registry has forgotten or another length, and to look for a number and lease
/// it.
const MOST_CALLS: u32 = 8;

/// The longest time between two renewals of leases that have their first length, and a fifth more.
pub fn timer_ms(terms: &LeaseTerms, lease_ms: i64, layout: &Layout) -> i64 {
    (terms.first_ms(lease_ms, layout) / 10).min(10_000) * 6 / 5
}

/// Draws with what the holder holds.
fn resume(fleet: &Registered, shared: &Shared, holder: &Holder) {
    let Some(held) = holder.held() else { return };
    let datacenter = fleet.layout.max_of(Field::Datacenter).map(|_| DATACENTER);
    let identity = Identity::new(&fleet.layout, Some(held.worker), datacenter, fleet.backup).unwrap();
    let fleet_code = Fleet::code(if shared.elsewhere { ELSEWHERE } else { HOME });
    let span = NextNumbers { identity, from_ms: held.from_ms, until_ms: held.until_ms, fleet: fleet_code };
    shared.numbers.enter(&shared.marks, &shared.generator, &fleet.layout, &span);
}
