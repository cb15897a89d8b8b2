//! Copies of a server: base backup, standby, recovery to a point, promotion, `pg_rewind`, dump.
//!
//! A copy has the settings of the server that it was made from, except for the archive. A test can
//! change them ([`Builder::config`]). Its clock is the real one, unless the test gives it another
//! ([`Builder::faketime_from`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::drawing::Draw;
use crate::installation::Installation;
use crate::outcome::wait_until;
use crate::scratch;
use crate::server::{Builder, Server, copy, run};

/// The file whose presence makes a server a standby.
const STANDBY: &str = "standby.signal";

/// A base backup, from which any number of servers can be started.
#[derive(Debug)]
pub struct Backup {
    files: Arc<Files>,
    settings: BTreeMap<String, String>,
}

/// The backup's files. They exist as long as the backup, or a description of a server that starts
/// with them.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
}

impl Files {
    /// Makes a place for files.
    pub(crate) fn new() -> Self {
        Self { directory: scratch::new_directory() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Backup {
    /// Describes a server that starts with the backup as it is, as a separate primary.
    #[must_use]
    pub fn alone(&self) -> Builder {
        Builder::copy_of(&self.files, self.settings.clone(), None)
    }

    /// Describes a standby, which gets the primary's WAL as it is written, asynchronously.
    #[must_use]
    pub fn standby_of(&self, primary: &Server) -> Builder {
        let standby = Builder::copy_of(&self.files, self.settings.clone(), Some(STANDBY));
        standby.config("primary_conninfo", &primary.conninfo())
    }

    /// Describes a server that recovers to a point in the archive of `server`
    /// ([`Builder::archive`]), and then is a separate primary ([`Server::wait_until_primary`]).
    #[must_use]
    pub fn recovered_to(&self, server: &Server, lsn: &str) -> Builder {
        Builder::copy_of(&self.files, self.settings.clone(), Some("recovery.signal"))
            .config("restore_command", &format!("cp '{}/%f' %p", server.archive_dir().display()))
            .config("recovery_target_lsn", lsn)
            .config("recovery_target_action", "promote")
    }
}

impl Server {
    /// Takes a base backup.
    ///
    /// # Panics
    ///
    /// Panics if `pg_basebackup` fails.
    #[must_use]
    #[track_caller]
    pub fn base_backup(&self) -> Backup {
        let mut settings = self.settings();
        settings.retain(|name, _| !name.starts_with("archive_"));
        let files = Files::new();
        run(self.client("pg_basebackup").args(["--checkpoint=fast", "--no-sync", "--pgdata"]).arg(files.data_dir()));
        Backup { files: Arc::new(files), settings }
    }

    /// Copies the data directory file by file, as a storage system does, and describes a server
    /// that starts with the copy, as a separate primary. The server may run.
    #[must_use]
    pub fn copied_files(&self) -> Builder {
        let paused = self.is_running().then(|| self.pause());
        let files = Files::new();
        copy(&self.data_dir(), &files.data_dir());
        drop(paused);
        // It names the postmaster of this server.
        let _ = fs::remove_file(files.data_dir().join("postmaster.pid"));
        Builder::copy_of(&Arc::new(files), self.settings(), None)
    }

    /// Takes a base backup, and describes a standby of this server that starts with it.
    #[must_use]
    #[track_caller]
    pub fn standby(&self) -> Builder {
        self.base_backup().standby_of(self)
    }

    /// Makes a standby a primary, and returns when it is one.
    ///
    /// # Panics
    ///
    /// Panics if the promotion fails.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.connect().value("pg_promote()"), "true", "the promotion has failed");
    }

    /// Waits until recovery is over.
    ///
    /// # Panics
    ///
    /// Panics if it does not end.
    #[track_caller]
    pub fn wait_until_primary(&self) {
        let mut session = self.connect();
        wait_until("the end of recovery", || session.value("pg_is_in_recovery()") == "false");
    }

    /// Returns the position up to which this primary's WAL is flushed.
    #[must_use]
    #[track_caller]
    pub fn flushed(&self) -> String {
        self.connect().value("pg_current_wal_flush_lsn()")
    }

    /// Waits until this standby has replayed the WAL up to a point.
    ///
    /// # Panics
    ///
    /// Panics if it does not.
    #[track_caller]
    pub fn wait_until_replayed(&self, lsn: &str) {
        let mut session = self.connect();
        let replayed = format!("pg_last_wal_replay_lsn() >= '{lsn}'");
        wait_until("the standby to catch up", || session.value(&replayed) == "true");
    }

    /// Cuts this standby off from its primary. Returns the position up to which it has received the
    /// WAL, where it would become a primary.
    ///
    /// # Panics
    ///
    /// Panics if it keeps on receiving.
    #[must_use]
    #[track_caller]
    pub fn cut_off(&self) -> String {
        self.unset_config("primary_conninfo");
        self.reload();
        let mut session = self.connect();
        wait_until("the end of streaming", || session.value("SELECT count(*) FROM pg_stat_wal_receiver") == "0");
        session.value("pg_last_wal_receive_lsn()")
    }

    /// Makes this server, which is down, a standby of another server from its next start on.
    ///
    /// # Panics
    ///
    /// Panics if the data directory is not writable.
    pub fn follow(&self, primary: &Server) {
        fs::write(self.data_dir().join(STANDBY), "").expect("the data directory is writable");
        self.set_config("primary_conninfo", &primary.conninfo());
    }

    /// Rewinds this server, which is down, to the state of `source` with `pg_rewind`. It keeps its
    /// own settings.
    ///
    /// # Panics
    ///
    /// Panics if `pg_rewind` fails.
    #[track_caller]
    pub fn rewind_to(&self, source: &Server) {
        // Until a checkpoint, the source's control file names the timeline before its promotion:
        // "no rewind required".
        source.connect().batch_execute("CHECKPOINT").expect("the source is running");
        let mut rewind = Installation::get().command("pg_rewind", self.directory());
        rewind.arg("--target-pgdata").arg(self.data_dir()).arg("--source-server").arg(source.conninfo());
        run(&mut rewind);
        self.write_config();
    }

    /// Archives all WAL up to now, and returns when it is there.
    ///
    /// # Panics
    ///
    /// Panics if archiving fails.
    #[track_caller]
    pub fn archive_now(&self) {
        let mut session = self.connect();
        let last = session.value("pg_walfile_name(pg_switch_wal())");
        wait_until("the archive", || self.archive_dir().join(&last).exists());
    }

    /// Dumps a database as one of its users, with more options for `pg_dump`, and returns the file.
    ///
    /// # Panics
    ///
    /// Panics if `pg_dump` fails.
    #[must_use]
    #[track_caller]
    pub fn dump(&self, database: &str, user: &str, options: &[&str]) -> PathBuf {
        let file = self.directory().join(format!("{database}.sql"));
        let mut pg_dump = self.client("pg_dump");
        pg_dump.args(["--username", user]).args(options).arg("--file").arg(&file).arg(database);
        run(&mut pg_dump);
        file
    }

    /// Runs a dump in a database, as the superuser, with more options for `psql`.
    ///
    /// # Panics
    ///
    /// Panics with the first error in it.
    #[track_caller]
    pub fn restore(&self, dump: &Path, database: &str, options: &[&str]) {
        let mut psql = self.client("psql");
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"])
            .args(options)
            .arg("--file")
            .arg(dump)
            .arg(database);
        run(&mut psql);
    }
}
