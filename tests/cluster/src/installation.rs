//! The PostgreSQL installation under test, and the user who runs its programs.
//!
//! PostgreSQL refuses to run as root. If the caller is root, its programs run as user `postgres`,
//! otherwise as the caller. `setpriv` changes the user and becomes the program. `runuser` would
//! stay as its parent, and kill it two seconds after a signal.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::{Gid, Uid, User, geteuid};

/// Part of util-linux, as `runuser` is. An absolute path, because Rust copies this process to
/// search for a program.
const SETPRIV: &str = "/usr/bin/setpriv";

/// The argument of [`use_installation`].
static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Makes the servers of this process run from the installation that this `pg_config` describes,
/// instead of the one of `PG_CONFIG`.
///
/// # Panics
///
/// Panics if a server was started before, or if another installation was chosen.
pub fn use_installation(pg_config: impl Into<PathBuf>) {
    let pg_config = pg_config.into();
    CHOSEN.set(pg_config.clone()).expect("no installation was chosen before");
    assert_eq!(Installation::get().pg_config, pg_config, "the installation was chosen after its first use");
}

/// Returns the major version of the servers, for tests of PostgreSQL's own messages, which change.
///
/// # Panics
///
/// Panics if there is no installation.
#[must_use]
pub fn postgres_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let output = Command::new(&Installation::get().pg_config).arg("--version").output().expect("pg_config runs");
        let version = String::from_utf8(output.stdout).expect("--version prints text");
        // "PostgreSQL 15.18 (Debian ...)", or "PostgreSQL 19beta1".
        let digits = version.trim_start_matches("PostgreSQL ").split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no version in {version:?}"))
    })
}

/// Returns whether the extension runs on the servers. Older ones run the SQL edition alone.
///
/// # Panics
///
/// Panics if there is no installation.
#[must_use]
pub fn runs_extension() -> bool {
    postgres_version() >= 15
}

/// Returns the path of one of PostgreSQL's programs, among which is the one for operators.
///
/// # Panics
///
/// Panics if there is no installation.
#[must_use]
pub fn program_path(name: &str) -> PathBuf {
    Installation::get().program(name)
}

/// Compiles a library in C for the servers, `libraries/NAME.c`, which may include PostgreSQL's
/// server headers. Returns whether these headers are installed. If not, the test calls
/// [`skip`](crate::skip).
///
/// # Panics
///
/// Panics if it does not compile.
#[must_use]
pub fn compile_library(name: &str, library: &Path) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("libraries").join(name).with_extension("c");
    let output = Command::new(&Installation::get().pg_config).arg("--includedir-server").output();
    let headers = String::from_utf8(output.expect("pg_config runs").stdout).expect("--includedir-server prints a path");
    let headers = Path::new(headers.trim_end());
    if !headers.join("postgres.h").exists() {
        return false;
    }
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-I"]).arg(headers).arg("-o").arg(library).arg(source);
    let output = cc.output().expect("there is a C compiler");
    assert!(output.status.success(), "{cc:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// Returns where `make setup` puts what tests need without installing it.
pub(crate) fn cache() -> Option<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME")?).join(".cache"),
    };
    Some(cache.join("snowflake_id"))
}

/// Returns where the programs are of the installation that a `pg_config` describes.
pub(crate) fn programs_of(pg_config: &Path) -> PathBuf {
    let output = Command::new(pg_config).arg("--bindir").output();
    let output = output.unwrap_or_else(|error| panic!("could not run {pg_config:?} (set PG_CONFIG): {error}"));
    String::from_utf8(output.stdout).expect("--bindir prints a path").trim_end().into()
}

/// What `PG_CONFIG` (default `pg_config`) describes.
pub(crate) struct Installation {
    pg_config: PathBuf,
    bin: PathBuf,
    /// The user to run as, if the caller is root.
    server_user: Option<(Uid, Gid)>,
}

impl Installation {
    /// Returns the installation, which it takes from `PG_CONFIG` at the first call.
    ///
    /// # Panics
    ///
    /// Panics if there is no such program, or if the caller is root and there is no user
    /// `postgres`.
    pub(crate) fn get() -> &'static Self {
        static INSTALLATION: OnceLock<Installation> = OnceLock::new();
        INSTALLATION.get_or_init(|| {
            let from_environment = || env::var_os("PG_CONFIG").unwrap_or_else(|| "pg_config".into()).into();
            let pg_config = CHOSEN.get().cloned().unwrap_or_else(from_environment);
            let bin = programs_of(&pg_config);
            let server_user = geteuid().is_root().then(|| {
                let user = User::from_name("postgres").ok().flatten();
                let user = user.expect("as root, tests need a user \"postgres\" to run servers as");
                (user.uid, user.gid)
            });
            Self { pg_config, bin, server_user }
        })
    }

    /// Returns the path of one of PostgreSQL's programs. An absolute path stays as it is.
    pub(crate) fn program(&self, name: impl AsRef<Path>) -> PathBuf {
        self.bin.join(name)
    }

    /// Prepares a run of one of PostgreSQL's programs in `directory`, as the server's user. The
    /// environment has nothing from the caller's: no `PGHOST`, no locale, no `RUST_BACKTRACE`.
    ///
    /// To change the user by itself, Rust would copy this process first. Its memory, with hundreds
    /// of threads, takes ten times as long to copy and to discard as `setpriv` takes to start.
    pub(crate) fn command(&self, name: impl AsRef<Path>, directory: &Path) -> Command {
        let Some((uid, gid)) = self.server_user.filter(|_| Path::new(SETPRIV).exists()) else {
            return self.command_in_a_copy(name, directory);
        };
        let mut command = Command::new(SETPRIV);
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).args(["--clear-groups", "--"]);
        command.arg(self.program(name));
        set_environment(&mut command, directory);
        command
    }

    /// Prepares a run like [`Installation::command`], without `setpriv`. A program needs it that is
    /// preloaded with libfaketime. That makes a semaphore for the process, and may not open it when
    /// the process has become another user's.
    pub(crate) fn command_in_a_copy(&self, name: impl AsRef<Path>, directory: &Path) -> Command {
        let mut command = Command::new(self.program(name));
        set_environment(&mut command, directory);
        if let Some((uid, gid)) = self.server_user {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    /// Gives `path` to the server's user.
    pub(crate) fn hand_over(&self, path: &Path) {
        if let Some((uid, gid)) = self.server_user {
            nix::unistd::chown(path, Some(uid), Some(gid)).expect("root may give a file away");
        }
    }

    /// Returns the server's user, if it is not the caller.
    pub(crate) fn server_user(&self) -> Option<(Uid, Gid)> {
        self.server_user
    }

    /// Returns whether servers run as another user than the caller.
    pub(crate) fn changes_user(&self) -> bool {
        self.server_user.is_some()
    }
}

fn set_environment(command: &mut Command, directory: &Path) {
    command.env_clear().current_dir(directory).env("HOME", directory).env("LC_ALL", "C").env("TZ", "UTC");
    for kept in ["PATH", "LD_LIBRARY_PATH"] {
        if let Some(value) = env::var_os(kept) {
            command.env(kept, value);
        }
    }
}
