//! The sequences in which a database stores marks, layout, numbers and fleet: which they are.
//!
//! They are found as members of the extension, never by search_path. A remembered sequence needs no
//! invalidation callback, for which a process has few places (`catalog.rs`). It is verified before
//! each use, and a sequence that is gone is not found.

use std::ffi::CStr;

use pgrx::pg_sys;
use snowflake_core::draw::mark::StoredNumber;

use crate::ids::sequence::Sequence;
use crate::postgres::catalog;
use crate::postgres::local::Local;

/// The sequences of this session's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequences {
    pub marks: [Sequence; 2],
    pub local: [Sequence; 2],
    pub layout: Sequence,
    pub identity: Sequence,
    /// The objects of 0.2.0 lack it, and then every fleet is taken for the right one.
    pub fleet: Option<Sequence>,
}

impl Sequences {
    /// Returns the owner of the published marks: this database, with this sequence. A sequence that
    /// is dropped and created again makes another owner.
    pub fn owner(&self) -> u64 {
        owner(self.marks[0].0)
    }

    /// Returns all of them: marks, local marks, layout, numbers, fleet.
    pub fn all(&self) -> [Option<Sequence>; 7] {
        let [marks, local] = [self.marks, self.local].map(|lanes| lanes.map(Some));
        [marks[0], marks[1], local[0], local[1], Some(self.layout), Some(self.identity), self.fleet]
    }

    /// Returns the sequence of a value; `None` where older objects lack it.
    pub fn of(&self, value: StoredNumber) -> Option<Sequence> {
        match value {
            StoredNumber::Mark(lane) => Some(self.marks[lane as usize]),
            StoredNumber::Local(lane) => Some(self.local[lane as usize]),
            StoredNumber::Layout => Some(self.layout),
            StoredNumber::Identity => Some(self.identity),
            StoredNumber::Fleet => self.fleet,
        }
    }
}

/// Returns the owner of the published marks of this database, if `primary` is the sequence of its
/// primary lane's mark.
pub fn owner(primary: pg_sys::Oid) -> u64 {
    // SAFETY: a variable of this backend, read by value.
    let database = unsafe { pg_sys::MyDatabaseId };
    u64::from(database.to_u32()) << 32 | u64::from(primary.to_u32())
}

/// The sequences as they were found last. They may be gone.
static FOUND: Local<Option<Sequences>> = Local::new(None);

/// Finds the sequences of this session's database. Returns `None` without the extension. All but
/// the fleet's are created and dropped together.
pub fn find() -> Option<Sequences> {
    let exists = |sequence: Sequence| catalog::relation_exists(sequence.0);
    let is_there = |found: &Sequences| exists(found.marks[0]) && found.fleet.is_none_or(exists);
    let found = FOUND.get().filter(is_there).or_else(find_members);
    FOUND.set(found);
    found
}

/// Finds them as [`find`] does, and looks for the fleet's again if it was not there before: another
/// session may have updated the extension since.
pub fn find_with_fleet() -> Option<Sequences> {
    let found = find().filter(|found| found.fleet.is_some()).or_else(find_members);
    FOUND.set(found);
    found
}

/// Looks the sequences up among the members of the extension.
fn find_members() -> Option<Sequences> {
    const NAMES: [&CStr; 7] = [
        c"snowflake_mark",
        c"snowflake_mark_backup",
        c"snowflake_mark_local",
        c"snowflake_mark_backup_local",
        c"snowflake_mark_layout",
        c"snowflake_mark_identity",
        c"snowflake_mark_fleet",
    ];
    let mut found = [None; NAMES.len()];
    for member in catalog::members(catalog::extension()?).filter(|member| member.class == pg_sys::RelationRelationId) {
        // SAFETY: the calls look up rows of a catalog; the name is a palloc'd copy. Errors are
        // raised through pgrx's guard.
        unsafe {
            let name = pg_sys::get_rel_name(member.number);
            if name.is_null() || pg_sys::get_rel_relkind(member.number) as u8 != pg_sys::RELKIND_SEQUENCE {
                continue;
            }
            if let Some(which) = NAMES.iter().position(|known| *known == CStr::from_ptr(name)) {
                found[which] = Some(Sequence(member.number));
            }
        }
    }
    let [primary, backup, local_primary, local_backup, layout, identity, fleet] = found;
    let (marks, local) = ([primary?, backup?], [local_primary?, local_backup?]);
    Some(Sequences { marks, local, layout: layout?, identity: identity?, fleet })
}
