//! [`Local`]: what one process remembers in a static, without atomics or locks.
//!
//! With it, every `Ordering` in this library is about other processes. Values that are not `Copy`
//! are kept in a `Mutex` instead. Must never be placed in shared memory: the words there are
//! atomics (`shmem.rs`).

use std::cell::Cell;

/// A value that belongs to this process alone.
#[derive(Debug)]
pub struct Local<T: Copy>(Cell<T>);

// SAFETY: one thread of a PostgreSQL process runs this library: its functions, hooks and callbacks.
// A signal handler may end the process, and so run our callbacks, but what it interrupted never
// goes on. A forked child gets its own copy of each static. Values are copied in and out, so no
// reference to the inside exists.
unsafe impl<T: Copy + Send> Sync for Local<T> {}

impl<T: Copy> Local<T> {
    /// Begins with `value`.
    pub const fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// Reads the value.
    #[inline(always)]
    pub fn get(&self) -> T {
        self.0.get()
    }

    /// Replaces the value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        self.0.set(value);
    }

    /// Replaces the value and returns the one before.
    #[inline(always)]
    pub fn replace(&self, value: T) -> T {
        self.0.replace(value)
    }
}
