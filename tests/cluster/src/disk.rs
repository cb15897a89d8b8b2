//! A disk that a test can fill: a tmpfs of a few megabytes for one server's data directory, which
//! only root may mount.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, umount2};

use crate::installation::Installation;
use crate::scratch;
use crate::server::Server;

/// Returns whether a disk can be mounted here. If not, a test that needs one calls
/// [`skip`](crate::skip).
#[must_use]
pub fn can_mount() -> bool {
    let directory = scratch::new_directory();
    let mounted = try_mount(&directory, 1).is_ok();
    unmount(&directory);
    let _ = fs::remove_dir(&directory);
    mounted
}

/// Makes a directory and mounts a disk there, for the server's user.
pub(crate) fn mount(path: &Path, megabytes: u32) {
    fs::create_dir(path).expect("the server's directory is writable");
    try_mount(path, megabytes).expect("a test asks for can_mount() before it wants a small disk");
}

fn try_mount(path: &Path, megabytes: u32) -> nix::Result<()> {
    let mut options = format!("size={megabytes}m,mode=0700");
    if let Some((uid, gid)) = Installation::get().server_user() {
        options += &format!(",uid={uid},gid={gid}");
    }
    nix::mount::mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
}

/// Unmounts a disk, even if a process still has a file on it open. Never panics, because a failed
/// test may be unwinding.
pub(crate) fn unmount(path: &Path) {
    let _ = umount2(path, MntFlags::MNT_DETACH);
}

impl Server {
    /// Takes all the space that is left on the server's disk
    /// ([`Builder::small_disk`](crate::Builder::small_disk)).
    ///
    /// # Panics
    ///
    /// Panics if writing fails for another reason than a full disk.
    pub fn fill_disk(&self) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.filler()).expect("the disk is writable");
        // After a large write has failed, a smaller one may still fit.
        for size in [1 << 20, 1 << 12, 1] {
            let full = loop {
                if let Err(error) = file.write_all(&vec![0; size]) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        }
    }

    /// Frees the space again.
    ///
    /// # Panics
    ///
    /// Panics if the disk was not filled.
    pub fn free_disk(&self) {
        fs::remove_file(self.filler()).expect("the disk was filled");
    }

    fn filler(&self) -> PathBuf {
        self.data_dir().join("filler")
    }
}
