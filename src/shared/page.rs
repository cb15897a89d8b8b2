//! The page of this server's lease: a record that a crash of a backend does not lose, though it
//! loses the shared memory. `core/fleet/page.rs` says what it holds, and why no id comes twice.
//!
//! It lies in a file without a name (a `memfd`), which the postmaster makes before it starts its
//! first process, and which all processes inherit. No copy of a disk has it, and it is gone with
//! the postmaster's last process. It is never mapped: no stray write reaches it.
//!
//! One process at a time uses it, under a lock of shared memory (`shmem.rs`).

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use snowflake_core::fleet::page::{self, NextLife, PAGE_BYTES, PageFailure, PageStore};
use snowflake_registry::RegistryError;

use crate::error::Error;
use crate::postgres::local::Local;

/// Its name in `/proc`, for people.
const NAME: &CStr = c"snowflake_id lease";

/// The page; `None` where no number is leased, or none could be made. The postmaster sets it, and
/// its children inherit it.
static PAGE: Local<Option<OwnPage>> = Local::new(None);

/// The page, as each process of the server reaches it.
#[derive(Debug, Clone, Copy)]
pub struct OwnPage {
    descriptor: RawFd,
    /// The file's device and inode: another library may have closed the descriptor, which then is
    /// another file's.
    place: (u64, u64),
}

/// Why the page was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageError(String);

impl From<PageFailure<io::Error>> for PageError {
    fn from(failure: PageFailure<io::Error>) -> Self {
        Self(match failure {
            PageFailure::Store(error) => error.to_string(),
            PageFailure::Fenced => "Another life of this server goes on with its lease".to_owned(),
        })
    }
}

impl From<PageError> for Error {
    fn from(PageError(why): PageError) -> Self {
        Self::NoPage(why)
    }
}

impl From<PageError> for RegistryError {
    fn from(PageError(why): PageError) -> Self {
        Self::NotNoted(why)
    }
}

/// Returns this server's page, if it has one.
pub fn own() -> Option<OwnPage> {
    PAGE.get()
}

/// Gives up the page, for this process and those that it starts.
pub fn give_up() {
    PAGE.set(None);
}

/// Makes the page, for a server's first life. Call it in the postmaster, before it starts others.
///
/// # Errors
/// The system's.
pub fn make(next: &NextLife) -> io::Result<()> {
    const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let file = create()?;
    let metadata = file.metadata()?;
    let own = OwnPage { descriptor: file.as_raw_fd(), place: (metadata.dev(), metadata.ino()) };
    page::make(&own, next)?;
    // SAFETY: the descriptor is open, and the call takes an integer.
    if unsafe { libc::fcntl(own.descriptor, libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // It stays open for as long as the process runs.
    std::mem::forget(file);
    PAGE.set(Some(own));
    Ok(())
}

/// Makes a file without a name, which programs that a process starts do not inherit.
fn create() -> io::Result<File> {
    // Some systems let a file be made only so. Linux knows the flag from 6.3 on.
    const NOEXEC_SEAL: libc::c_uint = 8;
    const FLAGS: libc::c_uint = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    for flags in [FLAGS | NOEXEC_SEAL, FLAGS] {
        // SAFETY: the name is a text, which is copied.
        let descriptor = unsafe { libc::memfd_create(NAME.as_ptr(), flags) };
        if descriptor >= 0 {
            // SAFETY: it was opened just now, and nothing else knows it.
            return Ok(unsafe { File::from_raw_fd(descriptor) });
        }
    }
    Err(io::Error::last_os_error())
}

impl OwnPage {
    /// Returns the file, if the descriptor is still the page's.
    fn file(&self) -> io::Result<ManuallyDrop<File>> {
        // SAFETY: the file is never dropped, so that this closes no descriptor. Whose it is is
        // looked at before it is used.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(self.descriptor) });
        let metadata = file.metadata()?;
        if (metadata.dev(), metadata.ino()) == self.place {
            Ok(file)
        } else {
            Err(io::Error::other("The descriptor is another file's"))
        }
    }
}

impl PageStore for OwnPage {
    type Error = io::Error;

    fn read(&self) -> io::Result<[u8; PAGE_BYTES]> {
        let mut bytes = [0; PAGE_BYTES];
        self.file()?.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn write(&self, bytes: &[u8; PAGE_BYTES]) -> io::Result<()> {
        self.file()?.write_all_at(bytes, 0)
    }
}
