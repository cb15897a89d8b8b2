//! Segments: dense values in blocks, from one space that many servers share.
//!
//! A **tag** names a space of values, from one value upward. The registry hands the values out in
//! **blocks** of consecutive values (Leaf-segment, Meituan 2017). A server keeps two blocks of each
//! tag that its sessions use, the current one and the next, and draws from them without asking.
//!
//! | question | file, in `segment/` |
//! |---|---|
//! | What does the registry hold of a tag, and which block does it give? | `record.rs` |
//! | How do sessions draw, and how do blocks change while they do? | `place.rs` |
//! | Which tag is where? | `directory.rs` |
//! | When is a block reserved, how large is it, and what is given back? | `supply.rs` |
//! | Whom does a session wake for it? | `latch.rs` |
//!
//! # Why no value comes twice
//!
//! - **S1** In the registry, the blocks of one tag never overlap: a tag's next value only grows,
//!   and each block begins there. There is one exception: a server gives back values that it will
//!   not draw, if no block was reserved since its own. Every change of a tag writes another nonce,
//!   and the one who gives back compares it. The value alone could come again.
//! - **S2** A server draws only from blocks that it knows to be written. An answer that is lost
//!   loses the block.
//! - **S3** A value is drawn by one compare-exchange of one word, which never holds the same twice
//!   (`place.rs`). The block that the word points to cannot change before the word does.
//! - **S4** Blocks lie in shared memory alone. No crash, backup or copy of a disk brings one back.
//! - **S5** After the registry may have forgotten something, each tag jumps ahead by more than what
//!   was forgotten (below).
//!
//! Two equal values of a tag would lie in one block (S1, S5), hence in one life of one server's
//! memory (S2, S4), which contradicts S3.
//!
//! **On one server, values ascend in the order drawn.** The word ascends, and a block is put in
//! place only if it lies above all blocks of the tag before. The server tells the registry up to
//! where it has had values, so that the registry gives nothing below.
//!
//! # When the registry forgets
//!
//! Blocks do not expire, so that waiting does not help, as it does for leases (`lease.rs`). A
//! server that has a forgotten block may never come back to tell. So in a new generation
//! (`registry.rs`) a tag gives nothing until an operator has set its next value. If the operator
//! has said so ([`TagRecord::jumps`]), it jumps ahead by [`JUMP`] instead, when it is used first.
//!
//! While a tag gives nothing, every server that uses it tells up to where it has had values. The
//! registry raises the next value to that. So the operator has to know only of servers that are
//! gone. No tag jumps unless an operator wants it, because no jump is enough for all that can
//! be forgotten: the simulation breaks ten greatest steps (`Lie::TenSteps`).
//!
//! Forgetting may come twice, and the second time may forget the jump. So a tag jumps once for each
//! generation since its record was written, and generations grow by the registry's timelines. Files
//! that are copied back have an old timeline. So after a restore, of which only an operator knows,
//! a tag jumps once more for each second since its record was written ([`TagRecord::restored`]). It
//! is enough if fewer values than [`JUMP`] were given in all changes that were forgotten since the
//! record was written; the jumps themselves do not count.
//!
//! **All jumps are equally far.** If a tag's distance could be raised, the tag could jump by the
//! larger one, and the registry could forget both. More of the smaller jumps would then lead to
//! values that servers have had (`Lie::JumpsByStep`).
//!
//! Every swap compares the fleet's record and the registry's incarnation with what was read, as
//! those of a lease do. So no earlier one changes a registry that has forgotten something since.
//! A server that finds a tag below the values that it has had begins a generation itself.
//!
//! # Taking over
//!
//! A column may hold values that a sequence has drawn. A session that takes them over sets a
//! **minimum** ([`Directory::raise_minimum`]). The server sends it with all that it asks for, and
//! the registry begins its block there, or above. A minimum can only raise a tag's next value, so
//! S1 holds. Blocks that servers have had before may lie below.
//!
//! How far a minimum raises the next value counts with the values that are forgotten (below). A
//! minimum that raises it by more than a jump, and is forgotten, may be followed by values below
//! it. The server that has set it does not draw there as long as its memory lasts. Other servers
//! may, so an operator looks at the next value when the registry fails over soon after.
//!
//! # What the registry does not believe
//!
//! A server may be in error, or its password stolen. Two rules keep that from spoiling a tag:
//!
//! - A call raises the next value by [`FARTHEST`] at most, so that it cannot use up the tag. An
//!   operator raises it further. A minimum that was refused is dropped
//!   ([`Directory::drop_minimum`]).
//! - A server gives back values of its own blocks only. PostgreSQL keeps a secret of the server
//!   that has written a record beside it, so that it can check this (`sql/registry.sql`).
//!
//! # What is lost
//!
//! | event | values lost, for each tag |
//! |---|---|
//! | the server crashes | what is left of two blocks at most |
//! | an answer is lost, or the worker ends before it has put a block in place | the block |
//! | the server stops cleanly | what is left of a block after which another server has reserved one |
//! | that stop does not reach the registry, or a generation has begun since | what is left of two blocks at most |
//! | the registry may have forgotten something, and the tag jumps | the jumps |
//! | a session takes over values | what is left of two blocks at most, and what lies below its minimum |
//! | a transaction rolls back | what it has drawn, as with a sequence |
//!
//! # What is not noticed
//!
//! - A registry that forgets and shows the same incarnation, until a server asks that has had
//!   forgotten values. Every server asks for the tags that it uses every ten seconds.
//! - A generation that was forgotten, if nothing tells of it: of two standbys that were promoted
//!   one after the other with the same timeline, or of a restore before this one. Such tags jump to
//!   the same values again, so an operator has to set their next values. (Failovers that a restore
//!   forgets are covered: [`TagRecord::restored`].)
//! - Two registries that both take writes.
//! - A copy of a running server's memory. Both draw the same values from up to two blocks.
//!
//! [`TagRecord::jumps`]: crate::fleet::registry::TagRecord::jumps
//! [`TagRecord::restored`]: crate::fleet::registry::TagRecord::restored

mod directory;
mod latch;
mod place;
mod record;
mod supply;

pub use directory::{Claimed, Directory, Full};
pub use latch::WorkerLatch;
pub use place::{Drawn, FoundValues, Place, PlaceRefusal, PlaceView, Rest, Room, State, ValueRun};
pub use record::{Ask, Grant, Return};
pub use supply::{LastSeenTag, SuppliedServer, Supply, SupplyNotice};

/// How many tags a server can use at a time.
pub const PLACES: usize = 256;

/// The most values of a block. A tag's steps must not be greater.
pub const LONGEST_BLOCK: u32 = 10_000_000;

/// How far one call of a server can raise a tag's next value: a thousand of the longest blocks. An
/// operator can raise it further.
pub const FARTHEST: i64 = 1000 * LONGEST_BLOCK as i64;

/// How many values a tag jumps ahead at a time. This never changes, because a change could be
/// forgotten.
pub const JUMP: i64 = 1_000_000_000;

/// Where values end. No block reaches this value, which is the last one of a `bigint`.
pub const END: i64 = i64::MAX;

/// Consecutive values of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The first value.
    pub first: i64,
    /// How many values there are, from 1 to [`LONGEST_BLOCK`].
    pub count: u32,
}

impl Block {
    /// Returns the value after the last one; [`END`] for a block that would reach beyond it.
    pub fn end(&self) -> i64 {
        self.first.saturating_add(self.count.into())
    }

    /// Whether there can be such a block, whatever a registry says.
    pub fn is_possible(&self) -> bool {
        (1..=LONGEST_BLOCK).contains(&self.count) && self.first.checked_add(self.count.into()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_with_bigint() {
        assert_eq!(Block { first: 7, count: 3 }.end(), 10);
        assert_eq!(Block { first: END - 3, count: 3 }.end(), END);
        assert_eq!(Block { first: END - 3, count: 30 }.end(), END);
    }
}
