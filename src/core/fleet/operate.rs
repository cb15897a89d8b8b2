//! What operators do to a fleet: its limits, its range, its moves, its restores, its tags.
//!
//! A program performs an [`Operation`] over a [`Store`](crate::fleet::registry::Store). What it is
//! to write is decided here, from what the registry holds, and it is written by the same
//! compare-and-swap as a server's changes (`registry.rs`). So an operation neither undoes what a
//! server has written meanwhile, nor rests on what was not true any more. An operation that is not
//! permitted is a [`Refusal`]. Both carry facts. The program has the words.
//!
//! | question | file, in `operate/` |
//! |---|---|
//! | What does an operation write, and when is it refused? | `decisions.rs` |
//! | What if the registry, a server or another operator comes between two of its steps? | `turn.rs` |

mod decisions;
mod turn;

pub use decisions::{Began, Decision, decide, lost_fleet, new_fleet, prunable_before};
pub use turn::{NotPerformed, Turn};

use std::ops::RangeInclusive;

use crate::clock::DAY_MS;
use crate::fleet::registry::{MOST_LEASE_MS, MOST_SKEW_MS, NumberKey, TagRecord, Wanted, WantedNumbers, WantedTags};
use crate::fleet::segment::LONGEST_BLOCK;
use crate::fleet::tag::Tag;

/// How long leases can be, in milliseconds: from a second to 30 days. A limit that was typed
/// wrongly would make a freeze of years.
pub const LEASES_MS: RangeInclusive<i64> = 1000..=MOST_LEASE_MS;

/// How far apart clocks can be taken to be, in milliseconds: from 10 ms to an hour.
pub const SKEWS_MS: RangeInclusive<i64> = 10..=MOST_SKEW_MS;

/// How far ahead a number can be kept without force, in milliseconds: 30 days. It cannot be undone.
pub const RESERVED_AHEAD_MS: i64 = 30 * DAY_MS;

/// How many values a block of a tag can have.
pub const STEPS: RangeInclusive<u32> = 1..=LONGEST_BLOCK;

/// What an operator wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Set which numbers may be leased. Configured numbers must lie outside.
    SetRange {
        /// The first number.
        first: i64,
        /// The last number.
        last: i64,
    },
    /// Raise how long leases may be, and how far clocks may be apart. What is used stays.
    SetLimits {
        /// How long a lease may be, in milliseconds ([`LEASES_MS`]); `None` leaves it as it is.
        lease_ms: Option<i64>,
        /// How far clocks may be apart, in milliseconds ([`SKEWS_MS`]); `None` leaves it as it is.
        skew_ms: Option<i64>,
    },
    /// Set how long leases are, and how far clocks are taken to be apart, up to the limits.
    SetLease {
        /// How long leases are, in milliseconds ([`LEASES_MS`]); `None` leaves it as it is.
        lease_ms: Option<i64>,
        /// How far clocks are apart, in milliseconds ([`SKEWS_MS`]); `None` leaves it as it is.
        skew_ms: Option<i64>,
    },
    /// Vouch that a failover of the registry loses nothing, or no longer.
    SetLosesNothing {
        /// Whether it loses nothing.
        loses_nothing: bool,
    },
    /// Refuse every change from servers, to move the registry.
    Close,
    /// End what [`Close`](Self::Close) has begun.
    Open {
        /// Whether this is the closed registry, moved whole, so that nothing is frozen. `false`
        /// gives the move up, which is right only if no server has reached an opened copy. `None`
        /// is for a fleet that is not closed.
        moved: Option<bool>,
    },
    /// Forget what the first server has brought, also limits, for a fleet that draws nothing. What
    /// is used is not raised.
    ResetSettings,
    /// After a restore: begin a generation.
    Restored {
        /// The greatest limit of leases that was set, in milliseconds ([`LEASES_MS`]), if the
        /// backup may not know it.
        lease_ms: Option<i64>,
        /// The greatest limit of the skew that was set, in milliseconds ([`SKEWS_MS`]), if the
        /// backup may not know it.
        skew_ms: Option<i64>,
    },
    /// In a registry that was lost and is made anew: lease nothing before the lost leases have
    /// ended. [`lost_fleet`] makes such a fleet in one step.
    Lost {
        /// The longest that the lost leases may have been, in milliseconds ([`LEASES_MS`]).
        lease_ms: i64,
        /// How far clocks may have been apart, in milliseconds ([`SKEWS_MS`]).
        skew_ms: i64,
        /// The lost fleet's uuid; without it, servers see another fleet.
        uuid: Option<u128>,
    },
    /// Keep a number that was configured on a server from being leased for ids before an instant:
    /// the highest mark of that server's databases. It cannot be undone.
    Reserve {
        /// Which number.
        number: NumberKey,
        /// Until when, in milliseconds since 1970.
        until_ms: i64,
        /// Whether it may be more than [`RESERVED_AHEAD_MS`] from now.
        force: bool,
    },
    /// Delete the records of numbers whose leases ended at or before an instant. A number without a
    /// record is leased only for ids after that.
    DropNumbers {
        /// In milliseconds since 1970; [`over_ms`](crate::fleet::registry::Fleet::over_ms) at the
        /// latest.
        before_ms: i64,
    },
    /// Make a tag.
    CreateTag {
        /// The tag.
        tag: Tag,
        /// Its first value.
        next: i64,
        /// The fewest and the most values of a block ([`STEPS`]).
        steps: (u32, u32),
        /// [`TagRecord::jumps`].
        jumps: bool,
    },
    /// Change a tag. `None` leaves a value as it is. Jumps that are due come first, unless the tag
    /// is to jump no more.
    SetTag {
        /// The tag.
        tag: Tag,
        /// The first value of the next block. It can be raised only. The same value again says that
        /// a tag which gives nothing goes on there.
        next: Option<i64>,
        /// The fewest values of a block ([`STEPS`]).
        least: Option<u32>,
        /// The most values of a block ([`STEPS`]).
        greatest: Option<u32>,
        /// [`TagRecord::jumps`].
        jumps: Option<bool>,
    },
    /// Delete a tag. Servers draw what they have of it for up to 20 seconds.
    DropTag {
        /// The tag.
        tag: Tag,
    },
}

impl Operation {
    /// Returns what is read for it.
    pub fn wanted(&self) -> Wanted {
        match self {
            Self::SetRange { .. }
            | Self::SetLimits { .. }
            | Self::SetLease { .. }
            | Self::SetLosesNothing { .. }
            | Self::Close
            | Self::Open { .. } => Wanted::default(),
            Self::ResetSettings | Self::DropNumbers { .. } => {
                Wanted { numbers: WantedNumbers::All, tags: WantedTags::None }
            }
            Self::Restored { .. } | Self::Lost { .. } => Wanted::all(),
            Self::Reserve { number, .. } => Wanted::number(*number),
            Self::CreateTag { tag, .. } | Self::SetTag { tag, .. } | Self::DropTag { tag } => Wanted::tags(vec![*tag]),
        }
    }
}

/// What an operation has done, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// These numbers may be leased.
    RangeSet {
        /// The first number.
        first: i64,
        /// The last number.
        last: i64,
        /// How many numbers the fleet's layout has for servers, from 0, if that layout is known
        /// here. Servers refuse a range beyond theirs.
        numbers: Option<i64>,
    },
    /// The limits.
    LimitsSet {
        /// How long a lease may be, in milliseconds; 0 if the first server brings that.
        longest_ms: i64,
        /// How far clocks may be apart, in milliseconds; 0 if the first server brings that.
        skew_ms: i64,
        /// How long leases are, in milliseconds.
        used_lease_ms: i64,
        /// How far clocks are taken to be apart, in milliseconds.
        used_skew_ms: i64,
    },
    /// What is used, from each server's next renewal on.
    LeaseSet {
        /// How long leases are, in milliseconds.
        lease_ms: i64,
        /// How far clocks are taken to be apart, in milliseconds.
        skew_ms: i64,
    },
    /// Whether a failover loses nothing.
    LosesNothingSet {
        /// Whether it does.
        loses_nothing: bool,
    },
    /// Nothing is leased or renewed.
    Closed {
        /// Whether that was so before.
        was_closed: bool,
    },
    /// Servers use the registry.
    Opened {
        /// Whether the fleet was closed before.
        was_closed: bool,
        /// Whether this registry counts as the one that was moved.
        moved: bool,
    },
    /// The next server brings layout and backup numbers. Limits are as for a new fleet.
    SettingsReset {
        /// Whether the fleet is closed, as it was before.
        is_closed: bool,
    },
    /// A generation has begun.
    Restored(Restored),
    /// The fleet is made anew.
    Lost {
        /// The generation.
        generation: u64,
        /// Numbers are leased for ids from here on, in milliseconds since 1970.
        freeze_ms: i64,
        /// The fleet's uuid.
        uuid: u128,
        /// Whether the fleet is closed, as it was before.
        is_closed: bool,
    },
    /// The number is not leased for ids before this instant.
    Reserved {
        /// Which number.
        number: NumberKey,
        /// In milliseconds since 1970. Later than what was asked for, where a lost lease of the
        /// number may have ended later. It has passed then.
        until_ms: i64,
    },
    /// These records are deleted.
    NumbersDropped {
        /// What ended at or before this instant, in milliseconds since 1970.
        before_ms: i64,
        /// How many.
        count: usize,
    },
    /// The tag is there.
    TagCreated {
        /// The tag.
        tag: Tag,
        /// Its record.
        record: TagRecord,
    },
    /// The tag is changed.
    TagSet {
        /// The tag.
        tag: Tag,
        /// Its record before.
        was: TagRecord,
        /// Its record now.
        record: TagRecord,
    },
    /// The tag is deleted.
    TagDropped {
        /// The tag.
        tag: Tag,
        /// Its last record.
        was: TagRecord,
    },
}

/// What a restore changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The generation that begins.
    pub generation: u64,
    /// Where its horizon is, in milliseconds since 1970: what ends later is renewed.
    pub horizon_ms: i64,
    /// Numbers are leased again for ids from here on, in milliseconds since 1970.
    pub freeze_ms: i64,
    /// Tags that jump ahead.
    pub jumped: Vec<JumpedTag>,
    /// Tags that give no values until their next value is set, and that value.
    pub stopped: Vec<(Tag, i64)>,
}

/// A tag that jumps ahead because the registry was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JumpedTag {
    /// The tag.
    pub tag: Tag,
    /// Its next value before.
    pub from: i64,
    /// The next value that it gives.
    pub to: i64,
}

/// Why an operation is not performed. Nothing is changed, unless a variant says something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A lease cannot be that long.
    LeaseOutside {
        /// In milliseconds.
        lease_ms: i64,
        /// What can be: [`LEASES_MS`].
        allowed: RangeInclusive<i64>,
    },
    /// Clocks cannot be that far apart.
    SkewOutside {
        /// In milliseconds.
        skew_ms: i64,
        /// What can be: [`SKEWS_MS`].
        allowed: RangeInclusive<i64>,
    },
    /// The store has no timelines, so nothing is to be vouched for: etcd.
    NoTimelines,
    /// The range begins below 0.
    RangeBelowZero {
        /// The first number.
        first: i64,
    },
    /// The range has no numbers.
    EmptyRange {
        /// The first number.
        first: i64,
        /// The last number.
        last: i64,
    },
    /// The range has numbers that the fleet's layout does not have. Servers would renew nothing.
    RangeOutsideLayout {
        /// The first number.
        first: i64,
        /// The last number.
        last: i64,
        /// How many numbers the layout has for servers, from 0.
        numbers: i64,
    },
    /// Limits cannot be lowered: leases of that length may still run, or be lost.
    LimitsLowered {
        /// What was asked for, in milliseconds.
        lease_ms: Option<i64>,
        /// What was asked for, in milliseconds.
        skew_ms: Option<i64>,
        /// The least limit of leases that can be set, in milliseconds.
        least_lease_ms: i64,
        /// The least limit of the skew that can be set, in milliseconds.
        least_skew_ms: i64,
    },
    /// Leases and skew cannot be beyond the limits, which have to be raised first.
    BeyondLimits {
        /// What was asked for, in milliseconds.
        lease_ms: Option<i64>,
        /// What was asked for, in milliseconds.
        skew_ms: Option<i64>,
        /// How long leases may be, in milliseconds.
        longest_ms: i64,
        /// How far clocks may be apart, in milliseconds.
        most_skew_ms: i64,
    },
    /// The registry has failed over, or was restored, since the fleet's record was written, and no
    /// server has noted that yet. This operation would hide it.
    NotNoted {
        /// Whether the fleet is closed, so that no server can note it.
        is_closed: bool,
    },
    /// The fleet is closed for a move. Only an operator who says whether it was moved
    /// opens it. Numbers and tags are not changed meanwhile, because the registry may be copied
    /// already.
    IsClosed,
    /// The fleet is not closed, so it was not moved.
    NotClosed,
    /// Servers may still draw ids.
    MayStillDraw {
        /// Up to this instant, in milliseconds since 1970.
        until_ms: i64,
    },
    /// The limits of what the registry may lack are not known, so they have to be given.
    LimitsUnknown,
    /// Another hand, an operator's or a server's, has begun a generation since this turn has read
    /// the registry first. After a restore, leases may be cut and tags have jumped by then. A tag's
    /// next value was chosen without knowing what is lost now.
    GenerationBegan {
        /// The generation that was read first.
        was: u64,
        /// The generation now.
        generation: u64,
        /// Where its freeze ends, in milliseconds since 1970.
        freeze_ms: i64,
    },
    /// The fleet has leases, so it is not one that was just made anew.
    HasLeases,
    /// The fleet has tags. They are made when it is no longer lost: they would jump once for each
    /// second since 1970.
    HasTags,
    /// No server can have this number.
    NoSuchNumber {
        /// Which number.
        number: NumberKey,
    },
    /// The fleet's layout does not have this number.
    NumberOutsideLayout {
        /// Which number.
        number: NumberKey,
        /// How many numbers the layout has for servers, from 0.
        numbers: i64,
    },
    /// The fleet's layout has no such datacenter, or has a field for it that was not given.
    DatacenterOutsideLayout {
        /// Which number.
        number: NumberKey,
        /// The greatest datacenter, if the layout has that field.
        greatest: Option<i64>,
    },
    /// The number would be kept for longer than [`RESERVED_AHEAD_MS`], and that was not forced.
    ReservedTooLong {
        /// Which number.
        number: NumberKey,
        /// Until when, in milliseconds since 1970.
        until_ms: i64,
        /// Until when it can be kept without force, in milliseconds since 1970.
        most_ms: i64,
    },
    /// The number is leased.
    NumberLeased {
        /// Which number.
        number: NumberKey,
        /// Where the lease ends, in milliseconds since 1970.
        until_ms: i64,
        /// When this can be asked again, in milliseconds since 1970: clocks may be apart.
        again_ms: i64,
    },
    /// A lost lease of the number may still run. The number is not leased to another server
    /// meanwhile.
    MayBeLost {
        /// Which number.
        number: NumberKey,
        /// Up to this instant, in milliseconds since 1970.
        until_ms: i64,
    },
    /// The number's last lease has ended later, or the number is kept for longer. It is leased only
    /// for ids after that.
    EndedLater {
        /// Which number.
        number: NumberKey,
        /// What was asked for, in milliseconds since 1970.
        until_ms: i64,
        /// Where it ended, in milliseconds since 1970.
        ended_ms: i64,
    },
    /// The tag is there already.
    TagExists {
        /// The tag.
        tag: Tag,
    },
    /// There is no such tag.
    NoSuchTag {
        /// The tag.
        tag: Tag,
    },
    /// A tag cannot have these steps.
    StepsOutside {
        /// The fewest and the most values of a block.
        steps: (u32, u32),
        /// What can be: [`STEPS`]. The least is not above the greatest.
        allowed: RangeInclusive<u32>,
    },
    /// A next value cannot be lowered: servers have had the values before it.
    NextLowered {
        /// The tag.
        tag: Tag,
        /// What was asked for.
        next: i64,
        /// The least that can be set.
        least: i64,
    },
    /// The registry may have lost values of the tag, which did not jump then. So its next value has
    /// to be set as well.
    NeedsNext {
        /// The tag.
        tag: Tag,
        /// The least that can be set.
        least: i64,
    },
    /// Nothing was asked for.
    NothingToSet,
    /// What ended after this may still be drawn with, so neither its history nor its record can be
    /// deleted.
    MayStillBeDrawnWith {
        /// What was asked for, in milliseconds since 1970.
        before_ms: i64,
        /// What can be, in milliseconds since 1970.
        latest_ms: i64,
    },
    /// A freeze runs, or has just ended, so that no record of a number is deleted yet.
    InFreeze {
        /// Up to this instant, in milliseconds since 1970.
        until_ms: i64,
    },
    /// Servers or other operators have changed the records at each try.
    Contended,
}
