//! What lies in shared memory, or is arranged for it.

pub mod lease_status;
pub mod locked;
pub mod page;
pub mod shmem;
pub mod slot;
pub mod tags;
