//! A registry in PostgreSQL with a standby: away, failed over, restored from a backup.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use cluster::registry::ROLE;
use cluster::{Backup, Fleet, Operated, Server};

use super::operators::tell_restored;
use super::random::Random;
use super::registry::{KEPT_WAL, LEASE_MS, Limits, RANGE, Registry};

/// How far clocks may be apart, in milliseconds.
const SKEW_MS: u32 = 500;

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
        let Fleet { registry: server, .. } = Fleet::start_with(|registry| registry.config("wal_keep_size", KEPT_WAL));
        server.operate(&["create-tag", "t", "--least-step", "10", "--greatest-step", "1000", "--jumps", "true"]);
        server.operate(&["set-range", RANGE[0], RANGE[1]]);
        server.limit_leases(&format!("{LEASE_MS} ms"), &*format!("{SKEW_MS} ms"));
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
    fn restore(&mut self, limits: Limits, random: &mut Random) -> String {
        let Some(backup) = self.backup.take() else {
            self.backup = Some(self.server.base_backup());
            return "a backup is taken".to_owned();
        };
        self.server.crash();
        let new = backup.alone().start();
        let twice = random.below(2) == 0;
        tell_restored(&new, limits, twice);
        self.standby = new.standby().start();
        self.replace(new);
        format!("from the backup, told {}", if twice { "twice at once" } else { "once" })
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

    fn happen(&mut self, event: usize, step: usize, random: &mut Random, limits: Limits) -> Option<String> {
        if self.away.is_some() {
            return None;
        }
        Some(match event {
            0 => self.crash(step, random),
            1 => self.fail_over(random),
            _ => self.restore(limits, random),
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

    fn first_limits(&self) -> Limits {
        Limits { lease_ms: LEASE_MS, skew_ms: SKEW_MS }
    }

    fn operated(&self) -> &(dyn Operated + Sync) {
        &self.server
    }

    fn wait_until_replicated(&self) {
        if self.away.is_none() {
            self.standby.wait_until_replayed(&self.server.flushed());
        }
    }

    fn has_right_clock(&self) -> bool {
        true
    }
}

/// Returns where a server has its socket.
fn directory(server: &Server) -> PathBuf {
    server.data_dir().parent().expect("it has a parent").to_owned()
}
