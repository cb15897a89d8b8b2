//! A fleet's registry on a real server, members that lease numbers from it as a server does, and an
//! oracle that refuses leases that overlap.
//!
//! A [`Member`] is a server without PostgreSQL: the core's [`Holder`] with words of its own, over
//! the extension's connection to the registry.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use postgres::Client;
use snowflake_core::clock::Clock;
use snowflake_core::draw::generator::{Generator, Limits};
use snowflake_core::draw::numbers::Numbers;
use snowflake_core::draw::published::{PublishedMarks, UNCLAIMED};
use snowflake_core::fleet::exchange::{self, Failure};
use snowflake_core::fleet::lease::{self, Holder, Lease, LeaseNotice, LeaseTerms, SharedWords};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::registry::{
    MemberTerms, NumberKey, NumberRecord, Reading, RecordChange, SinceIncarnation, Store, Swap, SwapAnswer, TagRecord,
    Wanted, WantedNumbers,
};
use snowflake_core::fleet::segment::END;
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;
use snowflake_registry::{Config, Interest, Registry, RegistryError, Stopped, Waiter, open};

use crate::operator::Operated;
use crate::server::{Server, locked};

/// The settings of every member, unless a test changes them: the extension's defaults.
pub const TERMS: LeaseTerms = LeaseTerms { max_borrow_ms: 100 };

/// The only database of a member.
const DATABASE: u64 = 1;

/// The role of the members, as `sql/registry.sql` recommends it.
pub const ROLE: &str = "snowflake";

/// Returns the file that makes a registry.
#[must_use]
pub fn registry_sql() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/registry.sql")
}

/// Returns the commands with which `sql/registry.sql` recommends to make the members' role.
///
/// # Panics
///
/// Panics if its head has none.
#[must_use]
pub fn role_sql() -> String {
    let file = fs::read_to_string(registry_sql()).expect("the file is in the repository");
    let (_, rest) = file.split_once("CREATE ROLE").expect("the head has the command");
    let (commands, _) = rest.split_once("\n--\n").expect("a line without a command follows");
    format!("CREATE ROLE{}", commands.replace("\n--", "\n"))
}

impl Server {
    /// Makes this server the registry of a fleet, and the members' role.
    ///
    /// # Panics
    ///
    /// Panics if it is one.
    #[track_caller]
    pub fn make_registry(&self) {
        self.make_registry_with(&[]);
        self.connect().batch_execute(&role_sql()).expect("the registry is new");
    }

    /// Makes this server the registry of a fleet, with more options for psql. Returns what psql
    /// said.
    ///
    /// # Panics
    ///
    /// Panics if the file fails.
    #[track_caller]
    pub fn make_registry_with(&self, options: &[&str]) -> String {
        let output = self.registry_file(options);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
        said
    }

    /// Runs the file that makes a registry, with more options for psql.
    #[must_use]
    pub fn registry_file(&self, options: &[&str]) -> Output {
        self.psql_file(&registry_sql(), &[&["--quiet", "--set=ON_ERROR_STOP=1"], options].concat())
    }

    /// Limits how long the fleet's leases are, and how far clocks may be apart, before its first
    /// server starts.
    ///
    /// # Panics
    ///
    /// Panics if that is refused.
    #[track_caller]
    pub fn limit_leases<'a>(&self, lease: &str, skew: impl Into<Option<&'a str>>) {
        let mut arguments = vec!["set-limits", "--lease", lease];
        arguments.extend(skew.into().map(|skew| ["--skew", skew]).into_iter().flatten());
        self.operate(&arguments);
    }

    /// Returns the string with which members connect.
    #[must_use]
    pub fn registry_conninfo(&self) -> String {
        format!("host='{}' port={} dbname=postgres user={ROLE}", self.directory().display(), self.port())
    }
}

/// Waits with `poll`, and never ends.
#[derive(Debug, Clone, Copy)]
pub struct Poll;

impl Waiter for Poll {
    fn wait(&self, socket: BorrowedFd<'_>, interest: Interest, timeout: Duration) -> Result<bool, Stopped> {
        let flags = match interest {
            Interest::Read => PollFlags::POLLIN,
            Interest::Write => PollFlags::POLLOUT,
            Interest::ReadOrWrite => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        // Rounded up: a timeout of 0 would not wait at all.
        let timeout = PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        Ok(poll(&mut [PollFd::new(socket, flags)], timeout).is_ok_and(|ready| ready > 0))
    }
}

/// Returns how a member reaches a registry. Each call has another secret. Steps may take half a
/// minute, because the machine may be busy.
#[must_use]
pub fn config(conninfo: &str) -> Config {
    let member = snowflake_registry::MemberName {
        host: "member".to_owned(),
        port: 5432,
        cluster_name: String::new(),
        version: "0.3.0".to_owned(),
    };
    let (conninfo, fleet, timeout) = (conninfo.to_owned(), "default".to_owned(), Duration::from_secs(30));
    let secret = u128::from(random()) << 64 | u128::from(random());
    Config { conninfo, fleet, member, secret, operator: false, timeout }
}

/// Returns how an operator reaches a registry.
#[must_use]
pub fn operator_config(conninfo: &str) -> Config {
    let member = snowflake_registry::MemberName::default();
    Config { member, secret: 0, operator: true, ..config(conninfo) }
}

/// Names a number in a layout without a datacenter.
#[must_use]
pub fn number(worker: i64) -> NumberKey {
    NumberKey::new(None, worker)
}

/// Returns the record of a lease that begins at an instant and ends at another, in milliseconds.
#[must_use]
pub fn lease(holder: u128, nonce: u64, (from_ms, until_ms): (i64, i64)) -> NumberRecord {
    NumberRecord {
        holder,
        nonce,
        count: nonce,
        server: 5,
        from_ms,
        until_ms,
        generation: 1,
        renewed_ms: 0,
        offset_ms: 0,
    }
}

/// Returns the tag of a name that is one.
///
/// # Panics
///
/// Panics if it is none.
#[must_use]
pub fn tag(name: &str) -> Tag {
    Tag::new(name).expect("a tag has one to 63 bytes")
}

/// Returns the record of a tag that does not jump, in the first generation.
#[must_use]
pub fn tag_record(next: i64, nonce: u64) -> TagRecord {
    TagRecord { id: 1, next, steps: (5, 50), jumps: false, nonce, generation: 1, written_ms: 2, returnable: END }
}

/// Returns the change of a number without a datacenter.
#[must_use]
pub fn of_number(worker: i64, was: Option<u64>, record: NumberRecord) -> RecordChange {
    RecordChange::Number { number: number(worker), was, record }
}

/// Returns the change of a tag.
#[must_use]
pub fn of_tag(name: &str, was: Option<u64>, record: Option<TagRecord>) -> RecordChange {
    RecordChange::Tag { tag: tag(name), was, record }
}

/// Swaps after a reading. Returns whether it was done.
///
/// # Panics
///
/// Panics if the registry does not answer, or is another one since.
#[track_caller]
pub fn swaps(store: &dyn Registry, reading: &Reading, changes: Vec<RecordChange>) -> bool {
    match store.swap(&Swap::after(reading, changes)).expect("the registry answers") {
        SwapAnswer::Done(after) => {
            assert_eq!(after.since(&reading.incarnation), SinceIncarnation::Same);
            true
        }
        SwapAnswer::Refused => false,
    }
}

/// How often a member has called the registry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reads of one number's record.
    pub reads: u64,
    /// Reads of all numbers' records.
    pub reads_of_all: u64,
    /// Compare-and-swaps.
    pub swaps: u64,
    /// How many of these the registry refused, because a record had changed.
    pub refused: u64,
    /// Calls without an answer.
    pub unanswered: u64,
}

/// A member of a fleet.
pub struct Member<'a> {
    registry: Box<dyn Registry>,
    oracle: Option<&'a Oracle>,
    terms: Cell<LeaseTerms>,
    layout: Layout,
    datacenter: Option<i64>,
    server: u64,
    holder: Cell<Holder>,
    generator: Generator,
    numbers: Numbers,
    marks: [PublishedMarks; 1],
    notices: RefCell<Vec<LeaseNotice>>,
    fleet_notices: RefCell<Vec<FleetNotice>>,
    calls: Cell<Calls>,
}

impl<'a> Member<'a> {
    /// Makes a member that has nothing yet. All its leases go to the oracle, unless a benchmark has
    /// none.
    #[must_use]
    pub fn new(config: Config, oracle: impl Into<Option<&'a Oracle>>) -> Self {
        let (server, marks) = (random(), [PublishedMarks::new()]);
        assert!(marks[0].claim(UNCLAIMED, DATABASE), "they are new");
        Self {
            registry: open(config, Poll),
            oracle: oracle.into(),
            terms: Cell::new(TERMS),
            layout: Layout::parse("snowflake").expect("it is built in"),
            datacenter: None,
            server,
            holder: Cell::new(Holder::new(server)),
            generator: Generator::new(),
            numbers: Numbers::new(),
            marks,
            notices: RefCell::default(),
            fleet_notices: RefCell::default(),
            calls: Cell::default(),
        }
    }

    /// Changes its settings.
    #[must_use]
    pub fn with_terms(self, terms: LeaseTerms) -> Self {
        self.terms.set(terms);
        self
    }

    /// Changes the layout of its ids.
    ///
    /// # Panics
    ///
    /// Panics if there is no such layout.
    #[must_use]
    pub fn with_layout(self, layout: &str) -> Self {
        Self { layout: Layout::parse(layout).expect("there is such a layout"), ..self }
    }

    /// Changes the datacenter of its ids.
    #[must_use]
    pub fn in_datacenter(self, datacenter: i64) -> Self {
        Self { datacenter: Some(datacenter), ..self }
    }

    /// Returns its connection to the registry.
    #[must_use]
    pub fn registry(&self) -> &dyn Registry {
        &*self.registry
    }

    /// Changes how it reaches the registry. It is the same life of the same server.
    pub fn set_config(&mut self, config: Config) {
        let secret = self.registry.config().secret;
        self.registry = open(Config { secret, ..config }, Poll);
    }

    /// Renews or acquires.
    ///
    /// # Errors
    ///
    /// What the core says.
    pub fn keep(&self) -> Result<(), Failure<RegistryError>> {
        let (mut holder, terms) = (self.holder.get(), self.terms.get());
        let kept = holder.renew_or_acquire(self, &terms);
        self.holder.set(holder);
        kept
    }

    /// Renews or acquires, again as long as other members come first, and returns the lease.
    ///
    /// # Panics
    ///
    /// Panics if it gets none.
    #[track_caller]
    pub fn lease(&self) -> Lease {
        for _ in 0..100 {
            match self.keep() {
                Err(Failure::Contended) => {}
                Err(failure) => panic!("no lease: {failure:?}"),
                Ok(()) => return self.held().expect("what is leased now begins now"),
            }
        }
        panic!("other members always come first")
    }

    /// Expects that the registry has no answer, and returns why.
    ///
    /// # Panics
    ///
    /// Panics if it has one.
    #[track_caller]
    pub fn unanswered(&self) -> RegistryError {
        match self.keep() {
            Err(Failure::Away(error)) => error,
            other => panic!("the registry has an answer: {other:?}"),
        }
    }

    /// Gives back what it has.
    ///
    /// # Panics
    ///
    /// Panics if the registry does not answer.
    #[track_caller]
    pub fn give_back(&self) {
        self.try_give_back().expect("the registry answers");
    }

    /// Gives back what it has.
    ///
    /// # Errors
    ///
    /// What the core says.
    pub fn try_give_back(&self) -> Result<(), Failure<RegistryError>> {
        let mut holder = self.holder.get();
        let given_back = holder.give_back(self);
        self.holder.set(holder);
        given_back
    }

    /// Begins to draw with its next lease, if the clock has reached it.
    pub fn enter(&self) {
        let (mut holder, terms) = (self.holder.get(), self.terms.get());
        let Ok(()) = holder.enter(self, &terms);
        self.holder.set(holder);
    }

    /// Returns how long a server waits from one renewal to the next, in milliseconds, before it
    /// varies that.
    #[must_use]
    pub fn interval_ms(&self) -> i64 {
        self.holder.get().interval_ms(&self.terms.get(), &self.layout)
    }

    /// Returns in how many milliseconds its next lease begins, if it has one.
    #[must_use]
    pub fn enters_in_ms(&self) -> Option<i64> {
        self.holder.get().enters_in_ms(self, &self.terms.get())
    }

    /// Draws an id, if it has a number. A mark that does not end before the lease permits it.
    ///
    /// # Panics
    ///
    /// Panics if the registry has changed its numbers meanwhile.
    pub fn draw(&self) -> Option<i64> {
        let drawing = self.numbers.read(&self.layout)?;
        let marks = self.marks[0].of(DATABASE).expect("they are claimed");
        assert!(marks.publish(marks.find(LaneName::Primary), drawing.until_ms()), "no other thread publishes");
        let limits = Limits { max_borrow_ms: 0, marks_ms: marks.both_lanes() };
        Some(self.generator.draw(&drawing, self, &limits, 1).ok()?.last_id())
    }

    /// Crashes: becomes another life of the same server, which knows nothing of its leases.
    pub fn crash(&self) {
        self.holder.set(Holder::new(self.server));
    }

    /// Returns what it draws with.
    #[must_use]
    pub fn held(&self) -> Option<Lease> {
        self.holder.get().held()
    }

    /// Returns what it draws with, or will draw with.
    #[must_use]
    pub fn leased(&self) -> Option<Lease> {
        let holder = self.holder.get();
        holder.held().or(holder.next())
    }

    /// Returns how often it has called the registry.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.calls.get()
    }

    fn count(&self, counted: impl FnOnce(&mut Calls)) {
        let mut calls = self.calls.get();
        counted(&mut calls);
        self.calls.set(calls);
    }

    /// Returns whether it has begun a generation.
    pub fn has_begun_a_generation(&self) -> bool {
        self.fleet_notices.borrow().iter().any(|notice| matches!(notice, FleetNotice::Forgot(_)))
    }

    /// Returns whether such a notice was reported.
    pub fn has_reported(&self, what: impl Fn(&LeaseNotice) -> bool) -> bool {
        self.notices.borrow().iter().any(what)
    }
}

impl Clock for Member<'_> {
    fn now_ms(&self) -> i64 {
        now_ms()
    }
}

impl exchange::Member for Member<'_> {
    type End = Infallible;

    fn member(&self) -> MemberTerms {
        lease::member(&self.layout, false)
    }

    fn nonce(&self) -> u64 {
        random()
    }

    fn report_fleet(&self, notice: FleetNotice) -> Result<(), Infallible> {
        self.fleet_notices.borrow_mut().push(notice);
        Ok(())
    }
}

impl lease::LeasingServer for Member<'_> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn datacenter(&self) -> Option<i64> {
        self.datacenter
    }

    fn has_backup(&self) -> bool {
        false
    }

    fn words(&self) -> SharedWords<'_> {
        SharedWords { numbers: &self.numbers, generator: &self.generator, marks: &self.marks }
    }

    fn report(&self, notice: LeaseNotice) -> Result<(), Infallible> {
        self.notices.borrow_mut().push(notice);
        Ok(())
    }
}

/// The registry, with an oracle that hears of every yes.
impl Store for Member<'_> {
    type Error = RegistryError;

    fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
        let reading = self.registry.read(wanted);
        self.count(|calls| {
            match wanted.numbers {
                WantedNumbers::None | WantedNumbers::One(_) => calls.reads += 1,
                WantedNumbers::Of(_) | WantedNumbers::All => calls.reads_of_all += 1,
            }
            calls.unanswered += u64::from(reading.is_err());
        });
        reading
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        let answer = self.registry.swap(swap);
        self.count(|calls| {
            calls.swaps += 1;
            calls.refused += u64::from(matches!(answer, Ok(SwapAnswer::Refused)));
            calls.unanswered += u64::from(answer.is_err());
        });
        let answer = answer?;
        if let (SwapAnswer::Done(incarnation), Some(oracle)) = (answer, self.oracle)
            // As the holder does: etcd's counts may have grown.
            && incarnation.since(&swap.incarnation) == SinceIncarnation::Same
        {
            for change in &swap.changes {
                if let RecordChange::Number { number, record, .. } = change {
                    oracle.accept(*number, record);
                }
            }
        }
        Ok(answer)
    }
}

/// Returns what the clock says, in milliseconds since 1970.
///
/// # Panics
///
/// Panics before 1970.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    i64::try_from(since.as_millis()).expect("it is not that late")
}

pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Knows all leases of a fleet, in a database that does not forget with the registry. PostgreSQL
/// itself refuses those that overlap.
pub struct Oracle {
    fleet: i64,
    session: Mutex<Client>,
}

/// Ranges take the place of btree_gist, which not every installation has.
const AUDIT: &str = "
    CREATE TABLE audit (
        fleet bigint, datacenter bigint, worker bigint, holder text, ids int8range NOT NULL,
        PRIMARY KEY (fleet, datacenter, worker, holder),
        EXCLUDE USING gist (int8range(fleet, fleet, '[]') WITH &&, int8range(datacenter, datacenter, '[]') WITH &&,
            int8range(worker, worker, '[]') WITH &&, ids WITH &&)
    )";

impl Oracle {
    /// Makes an oracle that knows of no lease yet, for one fleet. All oracles of a process share a
    /// server, which lasts as long as the process.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    #[must_use]
    pub fn new() -> Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        static FLEETS: AtomicI64 = AtomicI64::new(0);
        let server = SERVER.get_or_init(|| {
            let server = Server::builder().without_preload().start();
            server.connect().batch_execute(AUDIT).expect("the database is new");
            server
        });
        // Relaxed: only the number itself matters.
        let fleet = FLEETS.fetch_add(1, Ordering::Relaxed);
        Self { fleet, session: Mutex::new(server.connect()) }
    }

    /// Hears of a number's record that its holder knows to be written: a new lease, one that was
    /// renewed, or one that was given back.
    ///
    /// # Panics
    ///
    /// Panics if it overlaps another lease of the number.
    #[track_caller]
    pub fn accept(&self, number: NumberKey, record: &NumberRecord) {
        let NumberRecord { holder, from_ms, until_ms, .. } = *record;
        if let Err(error) = self.try_accept(number, holder, from_ms, until_ms) {
            panic!("{number:?} from {from_ms} to {until_ms}: {error}");
        }
    }

    /// Hears of a lease.
    ///
    /// # Errors
    ///
    /// What PostgreSQL says if it overlaps another lease of the number.
    pub fn try_accept(
        &self,
        number: NumberKey,
        holder: u128,
        from_ms: i64,
        until_ms: i64,
    ) -> Result<(), postgres::Error> {
        let sql = "INSERT INTO audit VALUES ($1, $2, $3, $4, int8range($5, $6)) \
                   ON CONFLICT ON CONSTRAINT audit_pkey DO UPDATE SET ids = excluded.ids";
        let NumberKey { datacenter, worker } = number;
        let (datacenter, holder) = (datacenter.unwrap_or(-1), format!("{holder:032x}"));
        let mut session = locked(&self.session);
        session.execute(sql, &[&self.fleet, &datacenter, &worker, &holder, &from_ms, &until_ms]).map(|_| ())
    }

    /// Hears of all leases that a registry has in its history. Returns how many there are.
    ///
    /// # Panics
    ///
    /// Panics if two overlap.
    #[track_caller]
    pub fn accept_history(&self, registry: &mut Client) -> usize {
        let sql = "SELECT h.datacenter::bigint, h.worker, h.holder::text, h.from_ms, coalesce(n.until_ms, h.until_ms) \
                   FROM snowflake_registry.history h LEFT JOIN snowflake_registry.numbers n \
                   USING (fleet, datacenter, worker, from_ms, holder)";
        let rows = registry.query(sql, &[]).expect("it is a registry");
        for row in &rows {
            let holder: String = row.get(2);
            let holder = u128::from_str_radix(&holder.replace('-', ""), 16).expect("it is a uuid");
            let datacenter: i64 = row.get(0);
            let number = NumberKey::new((datacenter >= 0).then_some(datacenter), row.get(1));
            if let Err(error) = self.try_accept(number, holder, row.get(3), row.get(4)) {
                panic!("{number:?}: {error}");
            }
        }
        rows.len()
    }

    /// Returns how many leases it knows.
    ///
    /// # Panics
    ///
    /// Panics if its server is gone.
    #[must_use]
    pub fn count(&self) -> usize {
        locked(&self.session).query("SELECT FROM audit WHERE fleet = $1", &[&self.fleet]).expect("it is there").len()
    }
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}
