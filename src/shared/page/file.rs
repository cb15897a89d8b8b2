//! The file of a page that outlives the server: where it lies, whose it is, and its two locks.
//!
//! It lies in `/dev/shm`, which is this machine's memory, or a container's. So a restart finds it,
//! also after a kill, and nothing that copies a disk does. Its name and what it belongs to tell it
//! from that of any other data directory, and from one of before the machine has booted.
//!
//! Only this server's user may have written it: whatever else is found there is not used, and the
//! page is one that a restart loses.
//!
//! Both locks are records locks of POSIX, which one process has: no child inherits them, and they
//! go with the process. They also go with *any* descriptor of the file that the process closes. So
//! no process opens the file twice.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use parking_lot::Mutex;
use pgrx::prelude::*;
use snowflake_core::fleet::page::{PAGE_BYTES, has_lease};

use super::{OwnPage, PageStore};
use crate::postgres::backend;

/// Where it lies.
const DIRECTORY: &str = "/dev/shm";

/// Which boot of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Bytes of the file, on which the locks are.
#[derive(Debug, Clone, Copy)]
enum Lock {
    Postmaster = 0,
    Writer = 1,
}

/// Its path, for the end of the postmaster, when there is no shared memory any more.
static PATH: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The file of this server's page, locked for the postmaster.
pub struct Opened {
    pub file: File,
    /// Its device and inode.
    pub place: (u64, u64),
    /// A hash of what it belongs to.
    pub belongs_to: u64,
    /// Whether nothing was written yet.
    pub is_new: bool,
}

/// Opens the file of this server's page, or makes it.
///
/// # Errors
/// The system's, and why it is not used.
pub fn open() -> io::Result<Opened> {
    let directory = fs::metadata(backend::data_directory())?;
    let server = (directory.uid(), backend::system_identifier(), directory.dev(), directory.ino());
    let (user, system, device, inode) = server;
    let path = PathBuf::from(format!("{DIRECTORY}/snowflake_id.{user}.{system}.{device}.{inode}"));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(&path)?;
    let metadata = file.metadata()?;
    let refused = |why: &str| Err(io::Error::other(why.to_owned()));
    if !metadata.is_file() || !is_in_memory(&file)? {
        return refused("It is not a file in memory");
    }
    if metadata.uid() != user || metadata.mode() & 0o077 != 0 {
        return refused("Another user may have written it");
    }
    lock_for_postmaster(&file)?;
    // Looked at with the lock: the server that had it may have removed the file.
    if file.metadata()?.nlink() != 1 {
        return refused("It does not have one name");
    }
    let length = libc::off_t::try_from(PAGE_BYTES).expect("it is small");
    // SAFETY: the descriptor is open, and the call takes integers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let place = (metadata.dev(), metadata.ino());
    let mut belongs_to = DefaultHasher::new();
    (fs::read(BOOT_ID)?, place, server).hash(&mut belongs_to);
    PATH.lock().replace(path);
    Ok(Opened { place, belongs_to: belongs_to.finish(), is_new: metadata.len() == 0, file })
}

/// Whether a file is in memory, which a restart of the machine and a backup lose.
fn is_in_memory(file: &File) -> io::Result<bool> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and the call writes a whole struct if it succeeds.
    if unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { found.assume_init() }.f_type == libc::TMPFS_MAGIC)
}

/// Locks the file for this postmaster, until that ends.
///
/// # Errors
/// The system's, and that another server has it.
pub fn lock_for_postmaster(file: &File) -> io::Result<()> {
    match lock(file.as_raw_fd(), Lock::Postmaster, libc::F_WRLCK)? {
        true => Ok(()),
        false => Err(io::Error::other("Another server uses it")),
    }
}

/// Locks the file for a process that writes it. Returns false if another process has the lock.
///
/// # Errors
/// The system's.
pub fn lock_for_writer(file: &File) -> io::Result<bool> {
    lock(file.as_raw_fd(), Lock::Writer, libc::F_WRLCK)
}

/// Gives the writer's lock back.
pub fn unlock_for_writer(descriptor: RawFd) {
    // Otherwise it goes with the process.
    let _ = lock(descriptor, Lock::Writer, libc::F_UNLCK);
}

/// Whether the postmaster of this id has the file locked.
///
/// # Errors
/// The system's.
pub fn is_postmasters(file: &File, pid: i32) -> io::Result<bool> {
    let mut found = record(Lock::Postmaster, libc::F_WRLCK);
    // SAFETY: the descriptor is open, and the call reads and writes the struct.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::from(found.l_type) != libc::F_UNLCK && found.l_pid == pid)
}

fn lock(descriptor: RawFd, lock: Lock, kind: libc::c_int) -> io::Result<bool> {
    let wanted = record(lock, kind);
    // SAFETY: whatever the descriptor is, the call changes no memory, and reads the struct.
    if unsafe { libc::fcntl(descriptor, libc::F_SETLK, &raw const wanted) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) => Ok(false),
        error => Err(error),
    }
}

fn record(lock: Lock, kind: libc::c_int) -> libc::flock {
    // The constants are small, and have another type than the struct's fields.
    let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock { l_type, l_whence, l_start: lock as libc::off_t, l_len: 1, l_pid: 0 }
}

/// Lets the postmaster remove the file when it ends, if the lease was given back.
pub fn is_removed_at_the_end() {
    // SAFETY: called by the postmaster, whose children forget its callbacks.
    unsafe { pg_sys::on_proc_exit(Some(ends), pg_sys::Datum::from(0)) };
}

#[pg_guard]
unsafe extern "C-unwind" fn ends(_code: libc::c_int, _argument: pg_sys::Datum) {
    if let Some(page) = super::own() {
        // What stays is void, or is found at the next start.
        let _ = remove(&page);
    }
}

fn remove(page: &OwnPage) -> io::Result<()> {
    let Some(path) = PATH.lock().take() else { return Ok(()) };
    let found = fs::symlink_metadata(&path)?;
    // No other server begins with it meanwhile, because this one has the lock.
    if (found.dev(), found.ino()) == page.place && !has_lease(&page.read()?) { fs::remove_file(path) } else { Ok(()) }
}
