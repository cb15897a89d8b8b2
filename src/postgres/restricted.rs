//! Work as another role, whose effects are undone and whose errors are caught. It must never leave
//! the session with another role, or with settings of that work.

use std::ffi::c_int;

use pgrx::pg_sys::{self, Oid};

use crate::postgres::backend::in_subtransaction;

/// The classes of SQLSTATEs that end the statement whoever catches them: no transaction can go on
/// (40), no resources (53), the operator's intervention (57).
const NOT_CAUGHT: [i32; 3] = [class(b"40"), class(b"53"), class(b"57")];

/// The classes that blame the data: data exceptions (22) and violated constraints (23).
const OF_DATA: [i32; 2] = [class(b"22"), class(b"23")];

/// The two characters of a class as PostgreSQL encodes them, six bits each (utils/elog.h).
const fn class(of: &[u8; 2]) -> i32 {
    (of[0] - b'0') as i32 | ((of[1] - b'0') as i32) << 6
}

/// Why the work has failed.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    /// Whether the SQLSTATE says that a value is wrong.
    pub is_of_data: bool,
}

/// Runs `work` as a role, as PostgreSQL runs the functions of an index: in a security-restricted
/// operation, which does not let them act as another role later. What it changes is rolled back.
///
/// # Errors
/// What the work raises, except for a cancel, a deadlock and the like, which pass.
pub fn run_as<T>(role: Oid, work: impl FnOnce() -> T) -> Result<T, Failure> {
    let work = || {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        // SAFETY: this is how PostgreSQL runs the functions of an index (index_build()). The end of
        // the subtransaction restores role and context.
        unsafe {
            pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
            pg_sys::SetUserIdAndSecContext(role, context | pg_sys::SECURITY_RESTRICTED_OPERATION as c_int);
        }
        Ok(work())
    };
    in_subtransaction(
        work,
        |_| false,
        |report| {
            let class = report.sql_error_code() as i32 & 0xfff;
            let failure = || Failure { message: report.message().to_owned(), is_of_data: OF_DATA.contains(&class) };
            (!NOT_CAUGHT.contains(&class)).then(|| Err(failure()))
        },
    )
}
