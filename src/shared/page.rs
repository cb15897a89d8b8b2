//! The page of this server's lease: a record that a crash of a backend does not lose, though it
//! loses the shared memory, and a restart does not lose either. `core/fleet/page.rs` says what it
//! holds, and why no id comes twice.
//!
//! It lies in a file that the postmaster opens before it starts its first process, and which all
//! processes inherit. The file outlives the server ([`mod@file`]). If there can be none, it has no
//! name (a `memfd`), and is gone with the postmaster's last process. No copy of a disk has either.
//! It is never mapped: no stray write reaches it.
//!
//! One process at a time uses it, under a lock of shared memory (`shmem.rs`), and where it outlives
//! the server, under the writer's lock as well.

mod file;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

use snowflake_core::fleet::page::{self, Beginning, NextLife, PAGE_BYTES, PageFailure, PageStore, Void};
use snowflake_registry::RegistryError;

use crate::error::Error;
use crate::postgres::backend;
use crate::postgres::local::Local;

/// Its name in `/proc`, for people.
const NAME: &CStr = c"snowflake_id lease";

/// How often the writer's lock is tried, once in a millisecond. A process that has it is through
/// after some microseconds, unless it was stopped.
const TRIES: u32 = 100;

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
    /// A hash of what the file belongs to, if it outlives the server.
    belongs_to: Option<u64>,
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

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        PageFailure::Store(error).into()
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

/// How a life begins: on from the page of the one before, or anew; `None` where it made the page.
pub type Begun = Option<Result<Beginning, Void>>;

/// Returns this server's page, if it has one.
pub fn own() -> Option<OwnPage> {
    PAGE.get()
}

/// Gives up the page, for this process and those that it starts.
pub fn give_up() {
    PAGE.set(None);
}

/// Begins a server's first life, with a page that outlives the server. `next` gets what that
/// belongs to. Call it in the postmaster, before it starts others.
///
/// # Errors
/// The system's, in words.
pub fn begin_in_file(next: impl FnOnce(Option<u64>) -> NextLife) -> io::Result<Begun> {
    let opened = file::open()?;
    let own = OwnPage { descriptor: opened.file.as_raw_fd(), place: opened.place, belongs_to: Some(opened.belongs_to) };
    let next = next(own.belongs_to);
    let begun = match opened.is_new {
        true => own.begins(|page| page::make(page, &next)).map(|()| None),
        false => own.begins(|page| page::begin(page, &next)).map(Some),
    }?;
    own.is_kept(opened.file);
    file::is_removed_at_the_end();
    Ok(begun)
}

/// Begins a server's first life, with a page that outlives a crash of a backend only. Call it as
/// above.
///
/// # Errors
/// The system's.
pub fn begin_in_memory(next: impl FnOnce(Option<u64>) -> NextLife) -> io::Result<Begun> {
    const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let file = create()?;
    let metadata = file.metadata()?;
    let place = (metadata.dev(), metadata.ino());
    let own = OwnPage { descriptor: file.as_raw_fd(), place, belongs_to: None };
    page::make(&own, &next(None))?;
    // SAFETY: the descriptor is open, and the call takes an integer.
    if unsafe { libc::fcntl(own.descriptor, libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    own.is_kept(file);
    Ok(None)
}

/// The writer's lock of a page, which this process has.
pub struct WriterLock(Option<RawFd>);

impl Drop for WriterLock {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0 {
            file::unlock_for_writer(descriptor);
        }
    }
}

/// Tries until there is a result. Call it with no lock held.
///
/// # Errors
/// Those of a try, and that another process has the writer's lock for too long.
pub fn patiently<T, E: From<io::Error>>(mut attempt: impl FnMut() -> Result<Option<T>, E>) -> Result<T, E> {
    for _ in 0..TRIES {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other("Another process has locked it").into())
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
    /// Begins a later life of the same postmaster.
    ///
    /// # Errors
    /// The system's, also where another library has lost the postmaster's lock, and another server
    /// has it now.
    pub fn begin_again(&self, next: impl FnOnce(Option<u64>) -> NextLife) -> io::Result<Begun> {
        if self.belongs_to.is_some() {
            file::lock_for_postmaster(&*self.file()?)?;
        }
        let next = next(self.belongs_to);
        self.begins(|page| page::begin(page, &next)).map(Some)
    }

    /// Returns a hash of what the page belongs to, if it outlives the server.
    pub fn belongs_to(&self) -> Option<u64> {
        self.belongs_to
    }

    /// Takes the writer's lock, for as long as what is returned lives; `None` if another process
    /// has it. A page in memory needs none.
    ///
    /// # Errors
    /// The system's.
    pub fn lock(&self) -> io::Result<Option<WriterLock>> {
        if self.belongs_to.is_none() {
            return Ok(Some(WriterLock(None)));
        }
        let has = file::lock_for_writer(&*self.file()?)?;
        Ok(has.then_some(WriterLock(Some(self.descriptor))))
    }

    /// Begins a life, with the writer's lock.
    fn begins<T>(&self, begin: impl Fn(&Self) -> io::Result<T>) -> io::Result<T> {
        patiently(|| {
            let Some(_lock) = self.lock()? else { return Ok(None) };
            begin(self).map(Some)
        })
    }

    /// Keeps the file open for as long as the process runs, for it and those that it starts.
    fn is_kept(self, file: File) {
        std::mem::forget(file);
        PAGE.set(Some(self));
    }

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

    fn is_own(&self) -> io::Result<bool> {
        match self.belongs_to {
            Some(_) => file::is_postmasters(&*self.file()?, backend::postmaster_pid()),
            // Only this server's processes have it.
            None => Ok(true),
        }
    }

    /// What somebody has cut off counts as zero.
    fn read(&self) -> io::Result<[u8; PAGE_BYTES]> {
        let (file, mut bytes) = (self.file()?, [0; PAGE_BYTES]);
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok([0; PAGE_BYTES]),
            read => read.map(|()| bytes),
        }
    }

    fn write(&self, bytes: &[u8; PAGE_BYTES]) -> io::Result<()> {
        self.file()?.write_all_at(bytes, 0)
    }
}
