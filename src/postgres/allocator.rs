//! What happens if Rust gets no memory: the session ends (FATAL, 53200), and not the server.
//!
//! Without this, Rust would abort the process. The postmaster takes that for a crash, ends all
//! sessions, and recovers. PostgreSQL's own memory raises an ERROR instead, which no allocation in
//! Rust can do: it must not unwind. A process that ends by FATAL gives back its locks, and rolls
//! its transaction back. In the background worker's case the postmaster starts another one.
//! The postmaster itself, in which libraries are loaded and settings are checked at a reload, ends
//! as it does where PostgreSQL gets no memory there.
//!
//! This is the second line. No text of a user's is copied before its length is known (`text.rs`),
//! and no answer of a registry is longer than `snowflake_registry` permits.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_char, c_int};
use std::ptr;

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    // utils/elog.h; declared here, because pgrx's wrappers allocate where they fail.
    fn errstart(elevel: c_int, domain: *const c_char) -> bool;
    fn errcode(sqlerrcode: c_int) -> c_int;
    fn errmsg_internal(fmt: *const c_char, ...) -> c_int;
    fn errdetail_internal(fmt: *const c_char, ...) -> c_int;
    fn errfinish(filename: *const c_char, lineno: c_int, funcname: *const c_char);
}

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: the system's allocator does all the work. A null pointer of its ends the process, which
// does not unwind.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's; so below.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(memory, layout, size) }, size)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[inline]
fn given(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        end(size);
    }
    memory
}

/// Ends the process as PostgreSQL does where it cannot go on.
#[cold]
fn end(size: usize) -> ! {
    // SAFETY: the process has one thread, which PostgreSQL may end anywhere but in a critical
    // section, where nothing of ours runs. An error report has memory that PostgreSQL has set aside
    // for this. The format's only argument is a size. FATAL does not return.
    unsafe {
        if errstart(pg_sys::FATAL as c_int, ptr::null()) {
            errcode(pgrx::PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as c_int);
            errmsg_internal(c"out of memory".as_ptr());
            errdetail_internal(c"snowflake_id failed on a request of %zu bytes.".as_ptr(), size);
            errfinish(c"allocator.rs".as_ptr(), 0, c"end".as_ptr());
        }
    }
    std::process::abort()
}
