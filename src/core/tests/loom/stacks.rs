//! Keeps the stacks of a schedule's threads for the next schedule.
//!
//! loom runs each thread of each schedule on a stack of its own. The crate `generator` maps it,
//! protects the page at its end, and unmaps it. For a million schedules, that and the page faults
//! took more than the schedules: 68 of 115 seconds of processors. The functions here take the place
//! of libc's in all Rust code of this program. libc's own code, such as its allocator, does not use
//! them. What is not such a stack goes to the kernel as before.
//!
//! They are right for this program, not for any other. Of all that it links, only `generator` maps
//! with `MAP_STACK`: memory without a file, to read and to write. It protects one page, the first
//! of the mapping, and unmaps the whole. A stack that is used again holds what the last thread has
//! left, where a new one holds zeros. Nothing depends on these: `generator` reads only its own mark
//! at the stack's end, which it writes anew.

use std::cell::RefCell;
use std::ptr;

use libc::{c_int, c_long, c_void, off_t, size_t};

/// As many as the threads of one schedule. Others are unmapped.
const MOST: usize = 8;

/// A stack with its guard page.
#[derive(Clone, Copy)]
struct Stack {
    start: *mut c_void,
    length: size_t,
    is_used: bool,
    is_protected: bool,
}

thread_local! {
    /// Of this thread, because loom runs all threads of a schedule in one, which also drops them.
    /// So the thread that has mapped a stack unmaps it. They stay after a test.
    static STACKS: RefCell<[Option<Stack>; MOST]> = const { RefCell::new([None; MOST]) };
}

/// Does something with one of this thread's stacks, if there is one.
fn with_stack<T>(is_one: impl Fn(&Stack) -> bool, act: impl FnOnce(&mut Stack) -> T) -> Option<T> {
    STACKS.with_borrow_mut(|stacks| stacks.iter_mut().flatten().find(|stack| is_one(stack)).map(act))
}

/// Takes the place of `mmap(2)`.
///
/// # Safety
///
/// As for the system call.
// SAFETY: only libc has another function of this name, and the program's comes first. What it
// answers is libc's, or a mapping of this length that nothing uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    start: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_stack = start.is_null() && flags & libc::MAP_STACK != 0;
    if is_stack {
        let take = |stack: &mut Stack| {
            stack.is_used = true;
            stack.start
        };
        if let Some(start) = with_stack(|stack| !stack.is_used && stack.length == length, take) {
            return start;
        }
    }
    // SAFETY: the caller's.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            start,
            length,
            c_long::from(protection),
            c_long::from(flags),
            c_long::from(file),
            offset,
        )
    };
    let start = ptr::with_exposed_provenance_mut(answer as usize);
    if is_stack && start != libc::MAP_FAILED {
        STACKS.with_borrow_mut(|stacks| {
            if let Some(place) = stacks.iter_mut().find(|stack| stack.is_none()) {
                *place = Some(Stack { start, length, is_used: true, is_protected: false });
            }
        });
    }
    start
}

/// Takes the place of `mprotect(2)`.
///
/// # Safety
///
/// As for the system call.
// SAFETY: only libc has another function of this name, and the program's comes first. What it
// leaves out was done for this stack before, and `munmap` does not undo it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, length: size_t, protection: c_int) -> c_int {
    if protection == libc::PROT_NONE {
        let protect = |stack: &mut Stack| std::mem::replace(&mut stack.is_protected, true);
        if with_stack(|stack| stack.start == start, protect) == Some(true) {
            return 0;
        }
    }
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_mprotect, start, length, c_long::from(protection)) as c_int }
}

/// Takes the place of `munmap(2)`.
///
/// # Safety
///
/// As for the system call.
// SAFETY: only libc has another function of this name, and the program's comes first. A stack stays
// mapped, which no caller may rely on or notice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, length: size_t) -> c_int {
    if with_stack(|stack| stack.start == start && stack.length == length, |stack| stack.is_used = false).is_some() {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_munmap, start, length) as c_int }
}
