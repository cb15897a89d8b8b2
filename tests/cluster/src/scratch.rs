//! The directory below which every server of this process lives, and the reaper that empties it.
//!
//! The reaper is a shell that waits for the end of a pipe. Only this process holds the other end,
//! so the reaper acts however this process ends (return, panic, Ctrl-C, SIGKILL). It stops
//! everything that still runs in the directory, and then removes the directory. Rejected:
//! PR_SET_PDEATHSIG, which fires when the *thread* that started a server ends, and leaves the
//! directory behind.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::installation::Installation;

/// The reaper leaves a directory alone that holds this file.
pub(crate) const KEEP: &str = "keep";

/// `$1` is the scratch directory. The reaper trusts a process id only if the process works in the
/// data directory, because another process may have the id by now.
const REAPER: &str = r#"
read -r _
cd "$1" || exit
kept=
for server in */; do
    if [ -e "$server/keep" ]; then kept=yes; continue; fi
    # What supervises a server, and would start it again, has the directory as its own.
    for cwd in $(find /proc/[0-9]*/cwd -maxdepth 0 -lname "$1/${server%/}"); do
        cwd=${cwd%/cwd}
        kill -KILL "${cwd#/proc/}"
    done
    pid=$(head -n 1 "$server/data/postmaster.pid") &&
        [ "$(readlink "/proc/$pid/cwd")" = "$1/${server}data" ] &&
        kill -QUIT "$pid" && {
            tries=0
            while [ -d "/proc/$pid" ] && [ $((tries += 1)) -lt 200 ]; do sleep 0.05; done
        }
    # What a server that was killed has left behind: server.rs says where its number stands.
    ipcrm -m "$(awk 'NR == 7 { print $2 }' "$server/data/postmaster.pid")"
    # The page of its lease, also where a test has moved the directory aside.
    for data in "$server"/data*; do rm -f /dev/shm/snowflake_id.*."$(stat -c %d.%i "$data")"; done
    # A small disk, or a memory; fails on every other server.
    umount "$server/data" || umount "$server"
    # A program that was just starting may still write.
    tries=0
    until rm -rf "$server" || [ $((tries += 1)) -ge 50 ]; do sleep 0.1; done
done
[ -n "$kept" ] || rm -rf "$1"
"#;

struct Scratch {
    path: PathBuf,
    /// Holds the pipe's other end for as long as this process lives; nothing is ever written to it.
    _reaper: Child,
}

/// Returns the scratch directory of this process. Only the servers' user and root can enter it,
/// because everyone who reaches a server's socket can be its superuser.
pub(crate) fn directory() -> &'static Path {
    static SCRATCH: OnceLock<Scratch> = OnceLock::new();
    let scratch = SCRATCH.get_or_init(|| {
        let template = env::temp_dir().join("snowflake_id.XXXXXX");
        let path = nix::unistd::mkdtemp(&template).expect("the directory for temporary files is writable");
        let path = path.canonicalize().expect("it was just made");
        Installation::get().hand_over(&path);
        let reaper = Command::new("sh")
            .args(["-c", REAPER, "reaper"])
            .arg(&path)
            // Ctrl-C goes to a whole process group, and must not reach the reaper.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is a shell");
        Scratch { path, _reaper: reaper }
    });
    &scratch.path
}

/// Makes a directory for one server.
pub(crate) fn new_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only the number itself matters.
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = directory().join(format!("server-{number}"));
    fs::create_dir(&path).expect("the scratch directory is writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it was just made");
    Installation::get().hand_over(&path);
    path
}
