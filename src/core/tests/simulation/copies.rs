//! Copies of servers and databases: base backups, standbys that are promoted, dumps that are
//! restored, sequences that are copied.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use snowflake_core::draw::generator::Generator;
use snowflake_core::fleet::lease::Holder;
use snowflake_core::id::identity::LaneName;

use crate::log::{Contents, Id, Log, Record};
use crate::server::{Config, MOST_DATABASES, Server, Shared};
use crate::session::Session;
use crate::world::World;

impl World {
    /// Makes a server with the same disk and settings, whose memory is new.
    pub fn clone_server(&self, original: &Rc<Server>) -> Rc<Server> {
        let (log, seen) = {
            let log = original.log.borrow();
            (log.copy(log.inserted()), original.seen.borrow().clone())
        };
        self.add_server(log, original.config.get(), original.offset_ms.get(), seen, None);
        let copy = self.servers.borrow().last().expect("it was added").clone();
        copy.leases.set(true);
        copy.elsewhere.set(original.shared().elsewhere);
        let life = original.shared().life;
        *copy.shared.borrow_mut() = Rc::new(Shared { life, ..self.new_memory(&copy) });
        copy.page().bytes.set(original.page().bytes.get());
        self.has_begun(&copy);
        copy
    }

    pub fn add_server(
        &self,
        log: Log,
        config: Config,
        offset_ms: i64,
        seen: Vec<Vec<Id>>,
        standby_of: Option<Rc<Server>>,
    ) {
        let number = self.event();
        let leases = self.any_leases();
        let name = if self.fleet.is_some() && self.random.one_in(4) { 1 } else { number };
        let server = Rc::new(Server {
            leases: Cell::new(leases),
            elsewhere: Cell::default(),
            name,
            number: number as usize,
            standby_of: RefCell::new(standby_of),
            config: Cell::new(config),
            log: RefCell::new(log),
            seen: RefCell::new(seen),
            settled: std::array::from_fn(|_| Cell::default()),
            shared: RefCell::new(Rc::new(Shared::new(Generator::new(), false, false, Holder::new(0), 0))),
            page: RefCell::default(),
            is_orphan: Cell::default(),
            cut_off_until_ms: Cell::new(i64::MIN),
            offset_ms: Cell::new(offset_ms),
            stands_at_ms: Cell::new(None),
            latest_ms: Cell::new(i64::MIN),
            went_back: Cell::new(false),
            ever_issued: RefCell::default(),
            predecessors_issued: RefCell::default(),
        });
        server.settled_is_what_it_holds();
        self.flush_all(&server);
        self.start(&server);
        let mut servers = self.servers.borrow_mut();
        if servers.len() == 3 {
            servers.swap_remove(self.random.below(3));
        }
        servers.push(server);
    }

    /// Returns a prefix of a server's log, and the ids that its marks cover.
    pub fn any_prefix(&self, original: &Server) -> (Log, Vec<Vec<Id>>) {
        let log = original.log.borrow();
        let first = log.flushed().min(2);
        let from = if self.random.one_in(2) { log.flushed().saturating_sub(6).max(first) } else { first };
        let copy = log.copy(self.random.of(from as i64..=log.flushed() as i64) as usize);
        let covered = |(contents, seen): (&Contents, &Vec<Id>)| covered(contents, seen);
        let seen = copy.present.iter().zip(&*original.seen.borrow()).map(covered).collect();
        (copy, seen)
    }

    /// Returns the settings and the clock of a copy: those of the original, or others.
    pub fn of_a_copy(&self, original: &Server) -> (Config, i64) {
        let offset_ms = match &self.fleet {
            _ if self.right_clock => 0,
            Some(fleet) if !self.random.one_in(6) => fleet.any_offset_ms(&self.random),
            _ => self.random.pick(&[0, 0, -5, -800, -3_600_000, 3_600_000]),
        };
        let config = if self.random.one_in(2) { original.config.get() } else { self.any_config(original.config.get()) };
        (config, offset_ms)
    }

    /// Makes a base backup, or recovers to a point in time: the copy holds a prefix of the log. The
    /// original may go on, but nothing is promised between the two.
    pub fn copy(&self, original: &Rc<Server>) {
        let (copy, seen) = self.any_prefix(original);
        self.tell(|| format!("server {} is copied, {} records of its log", original.number, copy.inserted()));
        self.count("copy");
        let (config, offset_ms) = self.of_a_copy(original);
        self.add_server(copy, config, offset_ms, seen, None);
        self.lie_about_copy(original);
    }

    /// Starts a standby, perhaps long before its promotion. Its shared memory is as old as that.
    pub fn add_standby(&self, original: &Rc<Server>) {
        let (copy, seen) = self.any_prefix(original);
        self.tell(|| format!("server {} gets a standby", original.number));
        self.count("standby");
        let (config, offset_ms) = self.of_a_copy(original);
        self.add_server(copy, config, offset_ms, seen, Some(original.clone()));
    }

    /// Promotes a standby to a primary of its own, beside its original. Its log may end anywhere.
    pub fn promote(&self, standby: &Rc<Server>) {
        let Some(original) = standby.standby_of.borrow().clone() else { return };
        let (log, seen) = self.any_prefix(&original);
        self.promote_with(standby, log, seen);
    }

    /// Promotes a standby that has this log.
    pub fn promote_with(&self, standby: &Rc<Server>, log: Log, seen: Vec<Vec<Id>>) {
        standby.standby_of.take();
        self.tell(|| format!("server {} is promoted, {} records of its log", standby.number, log.inserted()));
        standby.log.replace(log);
        standby.seen.replace(seen);
        standby.settled_is_what_it_holds();
        self.flush_all(standby);
    }

    /// Ends a server for good, and promotes its standby, if it has one: at once, while the load
    /// goes on.
    pub fn fail_over(&self, original: &Rc<Server>) {
        let is_standby =
            |server: &&Rc<Server>| server.standby_of.borrow().as_ref().is_some_and(|of| Rc::ptr_eq(of, original));
        let Some(standby) = self.servers.borrow().iter().find(is_standby).cloned() else { return };
        for _ in 0..self.random.below(4) {
            self.draw(original);
        }
        if !self.has(original) {
            return; // It has died meanwhile.
        }
        self.count("failover");
        original.shared().gone.set(true);
        self.servers.borrow_mut().retain(|server| !Rc::ptr_eq(server, original));
        self.tell(|| format!("server {} dies", original.number));
        self.promote(&standby);
        let mut issued = standby.predecessors_issued.borrow_mut();
        issued.extend(&*original.predecessors_issued.borrow());
        issued.extend(&*original.ever_issued.borrow());
        drop(issued);
        // From here on, its clock is compared with that of the dead server.
        standby.latest_ms.set(original.latest_ms.get());
        standby.went_back.set(false);
        self.pass(self.random.weighed(&[(4, 0), (2, 1), (2, 30), (2, 400), (1, 2000)]));
        for _ in 0..self.random.below(4) {
            self.draw(&standby);
        }
    }

    pub fn create_database(&self, server: &Rc<Server>) {
        if server.databases() == MOST_DATABASES {
            return;
        }
        let template = Some(self.any_database(server)).filter(|_| !self.random.one_in(4));
        self.tell(|| format!("server {}: CREATE DATABASE from {template:?}", server.number));
        server.log.borrow_mut().insert(Record::NewDatabase(template));
        self.flush_all(server);
        let mut seen = server.seen.borrow_mut();
        let log = server.log.borrow();
        let of_template = template.map(|template| covered(&log.present[template], &seen[template]));
        seen.push(of_template.unwrap_or_default());
        server.settled[log.present.len() - 1].set(log.present[log.present.len() - 1].settled);
    }

    /// Runs DROP EXTENSION and CREATE EXTENSION: promises about earlier ids end.
    pub fn create_extension(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        self.tell(|| format!("server {} database {database}: DROP EXTENSION, CREATE EXTENSION", server.number));
        server.log.borrow_mut().insert(Record::NewExtension(database));
        self.flush_all(server);
        server.seen.borrow_mut()[database].clear();
        server.begins_anew(database);
        server.shared().uncommitted.borrow_mut().retain(|(of, _)| *of != database);
    }

    pub fn dump(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        self.tell(|| format!("server {} database {database} is dumped", server.number));
        *self.dump.borrow_mut() = Some(Rc::new(server.log.borrow().present[database].clone()));
    }

    /// Restores a dump into a new database, or into one that has drawn.
    pub fn restore(&self, server: &Rc<Server>) {
        let Some(dump) = self.dump.borrow().clone() else { return };
        let database = if self.random.one_in(2) && server.databases() < MOST_DATABASES {
            server.log.borrow_mut().insert(Record::NewDatabase(None));
            server.seen.borrow_mut().push(Vec::new());
            server.databases() - 1
        } else {
            let database = self.any_database(server);
            let stored = server.log.borrow().present[database].stored;
            // A value that is set to what it was looks as if it was not set.
            let told = |lane| dump.stored.marks_ms[lane as usize] != stored.marks_ms[lane as usize];
            let holds = LaneName::ALL.into_iter().all(told);
            if !holds || dump.stored.layout.is_some_and(|layout| stored.layout != Some(layout)) {
                return;
            }
            database
        };
        self.tell(|| format!("server {} database {database}: {:?} is restored", server.number, dump.stored));
        self.count("restore");
        self.restoring.set(Some((server.number, database)));
        let begin = server.log.borrow().inserted();
        Session::new(self, server, database)
            .restore(&dump.stored, self.random.one_in(2))
            .expect("nothing ends a restore");
        {
            let mut log = server.log.borrow_mut();
            log.insert(Record::Restored(database, dump));
            log.restored(begin);
        }
        self.flush_all(server);
        self.restoring.set(None);
        self.check_prefix(server, database);
    }

    /// Copies the sequences of another database, perhaps of another server, over those of one that
    /// has drawn. (While no session draws there and nothing crashes. The copy is not atomic.) With
    /// another layout, the other mark may be further ahead than this layout's ticks let it be: a
    /// right clock is then behind, too.
    pub fn copy_sequences(&self, server: &Rc<Server>) {
        let Some(other) = self.dump.borrow().clone() else { return };
        let database = self.any_database(server);
        if self.right_clock && other.stored.layout != server.log.borrow().present[database].stored.layout {
            return;
        }
        self.tell(|| format!("server {} database {database}: {:?} is copied", server.number, other.stored));
        self.count("sequences copied");
        self.restoring.set(Some((server.number, database)));
        let begin = server.log.borrow().inserted();
        Session::new(self, server, database)
            .copy_sequences(&other.stored, self.random.one_in(2))
            .expect("nothing ends a copy");
        server.log.borrow_mut().restored(begin);
        self.flush_all(server);
        self.restoring.set(None);
        self.check_prefix(server, database);
    }
}

/// Returns the ids that a copy's marks cover.
pub fn covered(contents: &Contents, seen: &[Id]) -> Vec<Id> {
    let marks_ms = contents.stored.marks_ms;
    let covers = |id: &&Id| {
        // A mark with other numbers is about other ids.
        let same = contents.stored.identity == Some(id.identity);
        let mark_ms = if same { marks_ms[id.lane as usize] } else { marks_ms[0].min(marks_ms[1]) };
        id.end_ms <= mark_ms
    };
    seen.iter().filter(covers).copied().collect()
}
