//! A registry in PostgreSQL with a standby: away, failed over, restored from a backup.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use cluster::registry::ROLE;
use cluster::{Backup, Fleet, Server};

use super::random::Random;
use super::registry::{LEASE_MS, RANGE, Registry};

/// The registry. Members reach whichever server has it through a link to the socket's directory.
pub struct InPostgres {
    server: Server,
    standby: Server,
    /// When the server is started again.
    away: Option<usize>,
    backup: Option<Backup>,
    link: PathBuf,
    /// The first server, whose directory has the link, once it is gone.
    first: Option<Server>,
}

impl InPostgres {
    /// Starts it with the tag `t`.
    pub fn start() -> Self {
        let Fleet { registry: server, .. } = Fleet::start();
        // No jump is too short: what a restore loses is less than a million blocks.
        let tag = "INSERT INTO snowflake_registry.tags (tag, least_step, greatest_step, jump) VALUES ('t', 10, 1000, 1000000)";
        server.connect().batch_execute(tag).expect("the tag is new");
        let range = format!("SELECT snowflake_registry.set_range({}, {})", RANGE[0], RANGE[1]);
        server.connect().batch_execute(&range).expect("the fleet is there");
        server.limit_leases(&format!("{LEASE_MS} ms"), "500 ms");
        let link = directory(&server).join("registry");
        symlink(directory(&server), &link).expect("the directory is writable");
        let standby = server.standby().start();
        Self { server, standby, away: None, backup: None, link, first: None }
    }

    fn crash(&mut self, step: usize, random: &mut Random) -> String {
        let end = step + random.between(1, 10);
        self.server.crash();
        self.away = Some(end);
        format!("up to step {end}")
    }

    /// Lets the standby take over, sometimes without the last changes.
    fn fail_over(&mut self, random: &mut Random) -> String {
        let is_cut_off = random.below(2) == 0;
        if is_cut_off {
            let received = self.standby.cut_off();
            thread::sleep(Duration::from_millis(500));
            self.standby.wait_until_replayed(&received);
        }
        self.server.crash();
        self.standby.promote();
        let standby = self.standby.standby().start();
        let new = std::mem::replace(&mut self.standby, standby);
        self.replace(new);
        if is_cut_off { "its tail is lost" } else { "orderly" }.to_owned()
    }

    /// Takes a backup, or replaces the server by the last one.
    fn restore(&mut self) -> String {
        let Some(backup) = self.backup.take() else {
            self.backup = Some(self.server.base_backup());
            return "a backup is taken".to_owned();
        };
        self.server.crash();
        let new = backup.alone().start();
        new.connect().batch_execute("SELECT snowflake_registry.restored()").expect("an operator may call it");
        self.standby = new.standby().start();
        self.replace(new);
        "from the backup".to_owned()
    }

    fn replace(&mut self, new: Server) {
        let link = self.link.with_extension("new");
        symlink(directory(&new), &link).expect("the directory is writable");
        fs::rename(link, &self.link).expect("the directory is writable");
        let old = std::mem::replace(&mut self.server, new);
        self.first.get_or_insert(old);
    }
}

impl Registry for InPostgres {
    fn address(&self) -> String {
        format!("host='{}' user={ROLE} dbname=postgres", self.link.display())
    }

    fn events(&self) -> &'static [&'static str] {
        &["registry away", "registry fails over", "registry restored"]
    }

    fn happen(&mut self, event: usize, step: usize, random: &mut Random) -> Option<String> {
        if self.away.is_some() {
            return None;
        }
        Some(match event {
            0 => self.crash(step, random),
            1 => self.fail_over(random),
            _ => self.restore(),
        })
    }

    fn end_what_is_due(&mut self, step: usize) {
        if self.away.take_if(|end| *end <= step).is_some() {
            self.server.start_again();
        }
    }

    fn mend(&mut self) {
        self.end_what_is_due(usize::MAX);
    }
}

/// Returns where a server has its socket.
fn directory(server: &Server) -> PathBuf {
    server.data_dir().parent().expect("it has a parent").to_owned()
}
