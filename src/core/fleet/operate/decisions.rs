//! What an operation writes, and when it is refused: each a function of what was read, and of what
//! the turn has done before.
//!
//! Nothing here keeps anything: `turn.rs` does. All that is read may have been typed by a person,
//! so arithmetic on it saturates.

use std::collections::BTreeMap;

use super::{JumpedTag, LEASES_MS, Operation, Outcome, RESERVED_AHEAD_MS, Refusal, Restored, SKEWS_MS, STEPS};
use crate::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, FleetLimits, Incarnation, MOST_CHANGES, NumberKey, NumberRecord, Reading,
    RecordChange, SinceIncarnation, TagRecord,
};
use crate::fleet::segment::END;
use crate::fleet::tag::Tag;
use crate::id::identity::Identity;
use crate::id::layout::{Field, Layout};

/// What a turn remembers for its decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Began {
    /// The fleet's generation when the turn has read it first, and its freeze: two generations may
    /// have one number.
    pub(super) generation: (u64, i64),
    /// The registry's incarnation then.
    pub(super) incarnation: Incarnation,
    /// The version of the fleet's record under which this turn has closed it.
    pub(super) closed_as: Option<u64>,
    /// The tags that this turn has raised after a restore: the tag's id, and to which next value.
    pub(super) raised: BTreeMap<Tag, (u64, i64)>,
    /// How many changes a swap can have.
    pub(super) most_changes: usize,
}

impl Began {
    /// Begins with what is read first.
    pub fn at(reading: &Reading) -> Self {
        Self {
            generation: (reading.fleet.generation, reading.fleet.freeze_ms),
            incarnation: reading.incarnation,
            closed_as: None,
            raised: BTreeMap::new(),
            most_changes: MOST_CHANGES,
        }
    }

    /// Whether a record shows that this turn has raised the tag. The registry may have forgotten
    /// it.
    fn has_raised(&self, tag: Tag, record: &TagRecord) -> bool {
        self.raised.get(&tag).is_some_and(|(id, next)| *id == record.id && record.next >= *next)
    }
}

/// What an operation writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What is written next, [`MOST_CHANGES`] at most, in one swap.
    pub changes: Vec<RecordChange>,
    /// Whether that is all. Otherwise the registry is read again then, and the rest decided.
    pub is_last: bool,
    /// What the operation does, as far as it is not done yet.
    pub outcome: Outcome,
}

/// Returns the record of a fleet that no server has used. Its first server brings layout, range and
/// limits.
pub fn new_fleet(uuid: u128, incarnation: Incarnation, version: u64) -> Fleet {
    Fleet {
        uuid,
        layout: None,
        range: None,
        loses_nothing: false,
        closed: false,
        longest_ms: 0,
        skew_ms: 0,
        lease_ms: 0,
        clock_skew_ms: 0,
        incarnation,
        generation: 1,
        horizon_ms: i64::MIN,
        freeze_ms: i64::MIN,
        version,
    }
}

/// Returns the record of a fleet that was lost, and is made anew in a registry at `now_ms`: it
/// leases nothing before the lost leases have ended. `new` is its [`new_fleet`].
///
/// # Errors
/// [`Refusal::LeaseOutside`], [`Refusal::SkewOutside`].
pub fn lost_fleet(new: &Fleet, now_ms: i64, lease_ms: i64, skew_ms: i64, version: u64) -> Result<Fleet, Refusal> {
    check_limits(Some(lease_ms), Some(skew_ms))?;
    Ok(lost(new, new.incarnation, now_ms, lease_ms, skew_ms, version))
}

/// Checks that history that ended before an instant may be pruned, and returns that instant. Each
/// number's last lease stays.
///
/// # Errors
/// [`Refusal::MayStillBeDrawnWith`].
pub fn prunable_before(reading: &Reading, before_ms: i64) -> Result<i64, Refusal> {
    let (longest_ms, skew_ms) = reading.fleet.limits_ms();
    let latest_ms = reading.now_ms.saturating_sub(longest_ms).saturating_sub(2 * skew_ms);
    if before_ms > latest_ms {
        return Err(Refusal::MayStillBeDrawnWith { before_ms, latest_ms });
    }
    Ok(before_ms)
}

/// Decides what an operation writes after a reading of what it [wants](Operation::wanted).
/// `random` returns a random number that no other call returns, in no program.
///
/// # Errors
/// [`Refusal`].
pub fn decide(
    operation: &Operation,
    began: &Began,
    reading: &Reading,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    let fleet = reading.fleet;
    match *operation {
        Operation::SetRange { first, last } => {
            let numbers = numbers(&fleet);
            if first < 0 {
                return Err(Refusal::RangeBelowZero { first });
            } else if first > last {
                return Err(Refusal::EmptyRange { first, last });
            } else if let Some(numbers) = numbers.filter(|numbers| last >= *numbers) {
                return Err(Refusal::RangeOutsideLayout { first, last, numbers });
            }
            let new = Fleet { range: Some((first, last)), ..fleet };
            Ok(fleet_alone(new, Outcome::RangeSet { first, last, numbers }, random))
        }
        Operation::SetLimits { lease_ms, skew_ms } => set_limits(reading, lease_ms, skew_ms, random),
        Operation::SetLease { lease_ms, skew_ms } => set_lease(&fleet, lease_ms, skew_ms, random),
        Operation::SetLosesNothing { loses_nothing } => {
            if loses_nothing {
                if !reading.incarnation.has_timelines() {
                    return Err(Refusal::NoTimelines);
                }
                check_noted(reading)?;
            }
            Ok(fleet_alone(Fleet { loses_nothing, ..fleet }, Outcome::LosesNothingSet { loses_nothing }, random))
        }
        Operation::Close => {
            // Opening then says that nothing was lost.
            check_noted(reading)?;
            Ok(fleet_alone(Fleet { closed: true, ..fleet }, Outcome::Closed { was_closed: fleet.closed }, random))
        }
        Operation::Open { moved } => open(began, reading, moved, random),
        Operation::ResetSettings => reset_settings(began, reading, random),
        Operation::Restored { lease_ms, skew_ms } => restored(began, reading, lease_ms, skew_ms, random),
        Operation::Lost { lease_ms, skew_ms, uuid } => made_anew(began, reading, lease_ms, skew_ms, uuid, random),
        Operation::Reserve { number, until_ms, force } => reserve(reading, number, until_ms, force, random),
        Operation::DropNumbers { before_ms } => drop_numbers(began, reading, before_ms, random),
        Operation::CreateTag { tag, next, steps, jumps } => {
            check_open(&fleet)?;
            check_steps(steps)?;
            if reading.tags.contains_key(&tag) {
                return Err(Refusal::TagExists { tag });
            }
            check_noted(reading)?;
            let generation = fleet.generation;
            let (id, nonce, written_ms) = (random(), random(), reading.now_ms);
            let record = TagRecord { id, next, steps, jumps, nonce, generation, written_ms, returnable: END };
            Ok(of_tag(tag, None, Some(record), Outcome::TagCreated { tag, record }))
        }
        Operation::SetTag { tag, next, least, greatest, jumps } => {
            check_open(&fleet)?;
            let was = *reading.tags.get(&tag).ok_or(Refusal::NoSuchTag { tag })?;
            let wanted = WantedTag { next, least, greatest, jumps };
            let record = changed_tag(began, reading, tag, &was, &wanted, random)?;
            Ok(of_tag(tag, Some(was.nonce), Some(record), Outcome::TagSet { tag, was, record }))
        }
        Operation::DropTag { tag } => {
            check_open(&fleet)?;
            let was = *reading.tags.get(&tag).ok_or(Refusal::NoSuchTag { tag })?;
            Ok(of_tag(tag, Some(was.nonce), None, Outcome::TagDropped { tag, was }))
        }
    }
}

/// Writes the fleet's record, and nothing else. It is written also where it stays the same: only a
/// swap that is answered shows that what was read is durable.
fn fleet_alone(new: Fleet, outcome: Outcome, random: &mut dyn FnMut() -> u64) -> Decision {
    Decision { changes: vec![RecordChange::Fleet(Fleet { version: random(), ..new })], is_last: true, outcome }
}

fn of_tag(tag: Tag, was: Option<u64>, record: Option<TagRecord>, outcome: Outcome) -> Decision {
    Decision { changes: vec![RecordChange::Tag { tag, was, record }], is_last: true, outcome }
}

/// Returns how many numbers the fleet's layout has for servers, if it is built in: what the line of
/// such a layout means never changes.
fn numbers(fleet: &Fleet) -> Option<i64> {
    let (fingerprint, has_backup) = fleet.layout?;
    Identity::worker_numbers(&built_in(fingerprint)?, has_backup).ok()
}

fn built_in(fingerprint: i64) -> Option<Layout> {
    Layout::parse(Layout::built_in_with(fingerprint)?).ok()
}

fn check_limits(lease_ms: Option<i64>, skew_ms: Option<i64>) -> Result<(), Refusal> {
    if let Some(lease_ms) = lease_ms.filter(|lease_ms| !LEASES_MS.contains(lease_ms)) {
        return Err(Refusal::LeaseOutside { lease_ms, allowed: LEASES_MS });
    }
    match skew_ms.filter(|skew_ms| !SKEWS_MS.contains(skew_ms)) {
        Some(skew_ms) => Err(Refusal::SkewOutside { skew_ms, allowed: SKEWS_MS }),
        None => Ok(()),
    }
}

/// Whether all that the registry may have lost shows in the fleet's record. A failover that loses
/// nothing need not show.
fn is_noted(reading: &Reading) -> bool {
    match reading.incarnation.since(&reading.fleet.incarnation) {
        SinceIncarnation::Same => true,
        SinceIncarnation::Failover => reading.fleet.loses_nothing,
        SinceIncarnation::Other => false,
    }
}

/// Refuses what would hide that the registry has failed over, or was restored.
fn check_noted(reading: &Reading) -> Result<(), Refusal> {
    if is_noted(reading) { Ok(()) } else { Err(Refusal::NotNoted { is_closed: reading.fleet.closed }) }
}

/// Refuses to change tags and numbers of a fleet that is closed for a move: the registry may be
/// copied already, without this.
fn check_open(fleet: &Fleet) -> Result<(), Refusal> {
    if fleet.closed { Err(Refusal::IsClosed) } else { Ok(()) }
}

/// Refuses what an operator has said of one generation, where another hand has begun another one
/// since the turn began. A generation would be one too many, and stop tags for which an operator
/// has set a next value meanwhile. And such a value was chosen without knowing what is lost now.
fn check_generation(began: &Began, fleet: &Fleet) -> Result<(), Refusal> {
    let Fleet { generation, freeze_ms, .. } = *fleet;
    if (generation, freeze_ms) == began.generation {
        return Ok(());
    }
    Err(Refusal::GenerationBegan { was: began.generation.0, generation, freeze_ms })
}

/// Returns the record with other limits. What is used stays what it was: a raise that a failover
/// can lose must not be used.
fn with_limits(fleet: &Fleet, longest_ms: i64, skew_ms: i64) -> Fleet {
    let (old_longest_ms, old_skew_ms) = fleet.limits_ms();
    let known = Fleet { longest_ms: old_longest_ms, skew_ms: old_skew_ms, ..*fleet };
    let (lease_ms, clock_skew_ms) = (known.used_lease_ms(), known.used_skew_ms());
    Fleet { longest_ms, skew_ms, lease_ms, clock_skew_ms, ..*fleet }
}

fn set_limits(
    reading: &Reading,
    lease_ms: Option<i64>,
    skew_ms: Option<i64>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    let fleet = reading.fleet;
    if lease_ms.is_none() && skew_ms.is_none() {
        return Err(Refusal::NothingToSet);
    }
    check_limits(lease_ms, skew_ms)?;
    let (least_lease_ms, least_skew_ms) = match reading.incarnation.since(&fleet.incarnation) {
        SinceIncarnation::Same => (fleet.longest_ms, fleet.skew_ms),
        // What the first server has written may be lost, and leases with it.
        SinceIncarnation::Failover | SinceIncarnation::Other => fleet.limits_ms(),
    };
    let is_lowered = |wanted: Option<i64>, least: i64| wanted.is_some_and(|wanted| wanted < least);
    if is_lowered(lease_ms, least_lease_ms) || is_lowered(skew_ms, least_skew_ms) {
        return Err(Refusal::LimitsLowered { lease_ms, skew_ms, least_lease_ms, least_skew_ms });
    }
    let (longest_ms, skew_ms) = (lease_ms.unwrap_or(fleet.longest_ms), skew_ms.unwrap_or(fleet.skew_ms));
    let new = with_limits(&fleet, longest_ms, skew_ms);
    let (longest, skew) = new.limits_ms();
    let used = Fleet { longest_ms: longest, skew_ms: skew, ..new };
    let (used_lease_ms, used_skew_ms) = (used.used_lease_ms(), used.used_skew_ms());
    Ok(fleet_alone(new, Outcome::LimitsSet { longest_ms, skew_ms, used_lease_ms, used_skew_ms }, random))
}

fn set_lease(
    fleet: &Fleet,
    lease_ms: Option<i64>,
    skew_ms: Option<i64>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    if lease_ms.is_none() && skew_ms.is_none() {
        return Err(Refusal::NothingToSet);
    }
    check_limits(lease_ms, skew_ms)?;
    let (longest_ms, most_skew_ms) = fleet.limits_ms();
    if lease_ms.is_some_and(|lease_ms| lease_ms > longest_ms) || skew_ms.is_some_and(|skew_ms| skew_ms > most_skew_ms) {
        return Err(Refusal::BeyondLimits { lease_ms, skew_ms, longest_ms, most_skew_ms });
    }
    let lease_ms = lease_ms.unwrap_or(fleet.lease_ms);
    let clock_skew_ms = skew_ms.unwrap_or(fleet.clock_skew_ms);
    let new = Fleet { lease_ms, clock_skew_ms, ..*fleet };
    let used = Fleet { longest_ms, skew_ms: most_skew_ms, ..new };
    let outcome = Outcome::LeaseSet { lease_ms: used.used_lease_ms(), skew_ms: used.used_skew_ms() };
    Ok(fleet_alone(new, outcome, random))
}

fn open(
    began: &Began,
    reading: &Reading,
    moved: Option<bool>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    let fleet = reading.fleet;
    match (moved, fleet.closed) {
        (Some(true), false) => return Err(Refusal::NotClosed),
        // If servers have reached a moved copy, and this one is opened, both lease the same
        // numbers.
        (None, true) => return Err(Refusal::IsClosed),
        // It may have been opened by this turn, without an answer. Servers may have leased then,
        // and the registry may have lost both.
        (Some(true), true) if reading.incarnation.since(&began.incarnation) != SinceIncarnation::Same => {
            return Err(Refusal::NotNoted { is_closed: true });
        }
        _ => {}
    }
    let moved = moved == Some(true);
    let incarnation = if moved { reading.incarnation } else { fleet.incarnation };
    let outcome = Outcome::Opened { was_closed: fleet.closed, moved };
    Ok(fleet_alone(Fleet { closed: false, incarnation, ..fleet }, outcome, random))
}

/// Decides in two steps, because a swap does not compare all numbers. First the fleet is closed, so
/// that no server begins a lease after the numbers are read.
fn reset_settings(began: &Began, reading: &Reading, random: &mut dyn FnMut() -> u64) -> Result<Decision, Refusal> {
    let fleet = reading.fleet;
    check_noted(reading)?;
    let last_ms = reading.numbers.values().filter(|record| !is_reserved(record)).map(|record| record.until_ms).max();
    // Clocks may be apart by the skew, and the registry's own may have been.
    let leases_ms = last_ms.map_or(i64::MIN, |last_ms| last_ms.saturating_add(2 * fleet.limits_ms().1));
    // By the end of the freeze, all leases that are lost have ended.
    let until_ms = leases_ms.max(fleet.freeze_ms);
    if until_ms > reading.now_ms {
        return Err(Refusal::MayStillDraw { until_ms });
    }
    let is_whole = fleet.range.is_some() && fleet.range == numbers(&fleet).map(|numbers| (0, numbers - 1));
    let range = fleet.range.filter(|_| !is_whole);
    // The next server's limits may be a raise, and so may the present ones, which a failover can
    // lose. So what is used stays.
    let (longest_ms, skew_ms) = fleet.limits_ms();
    let known = Fleet { longest_ms, skew_ms, ..fleet };
    let less = |used_ms: i64, default_ms: i64| if used_ms < default_ms { used_ms } else { 0 };
    let lease_ms = less(known.used_lease_ms(), DEFAULT_LEASE_MS);
    let clock_skew_ms = less(known.used_skew_ms(), DEFAULT_SKEW_MS);
    let is_closed = stays_closed(began, &fleet);
    let outcome = Outcome::SettingsReset { is_closed };
    if !fleet.closed {
        return Ok(Decision { is_last: false, ..fleet_alone(Fleet { closed: true, ..fleet }, outcome, random) });
    }
    let used = Fleet { lease_ms, clock_skew_ms, ..fleet };
    let new = Fleet { layout: None, range, closed: is_closed, longest_ms: 0, skew_ms: 0, ..used };
    Ok(fleet_alone(new, outcome, random))
}

/// Decides what a restore changes: leases and tags first, and the fleet's record last. Whatever
/// comes in between, tags are raised only, and lie above what was lost when the generation begins.
/// A tag that is made in between jumps with the generation. If a failover forgets that, all of this
/// has to be done again, for the other tags, too.
fn restored(
    began: &Began,
    reading: &Reading,
    lease_ms: Option<i64>,
    skew_ms: Option<i64>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    check_limits(lease_ms, skew_ms)?;
    check_generation(began, &reading.fleet)?;
    let Reading { fleet, incarnation, now_ms, .. } = *reading;
    let longest_ms = fleet.longest_ms.max(lease_ms.unwrap_or(0));
    let skew_ms = fleet.skew_ms.max(skew_ms.unwrap_or(0));
    if longest_ms <= 0 || skew_ms <= 0 {
        return Err(Refusal::LimitsUnknown);
    }
    let new = with_limits(&fleet, longest_ms, skew_ms);
    let new = new.begin_generation(incarnation, now_ms, FleetLimits::default(), random());
    let Fleet { generation, horizon_ms, freeze_ms, .. } = new;
    let mut outcome = Restored { generation, horizon_ms, freeze_ms, ..Restored::default() };
    let mut changes = Vec::new();
    for (number, record) in &reading.numbers {
        // The freeze of the new generation outlasts all leases that may be.
        if record.until_ms <= freeze_ms || is_reserved(record) {
            continue;
        }
        // The nonce stays, so that a server that lives recognizes its lease.
        let cut = NumberRecord { from_ms: record.from_ms.min(freeze_ms), until_ms: freeze_ms, ..*record };
        changes.push(RecordChange::Number { number: *number, was: Some(record.nonce), record: cut });
    }
    for (tag, record) in &reading.tags {
        if !record.jumps {
            outcome.stopped.push((*tag, record.next));
        } else if !began.has_raised(*tag, record)
            && let Some(raised) = record.restored(&new, now_ms, random())
        {
            outcome.jumped.push(JumpedTag { tag: *tag, from: record.next, to: raised.next_in(&new) });
            changes.push(RecordChange::Tag { tag: *tag, was: Some(record.nonce), record: Some(raised) });
        }
    }
    let is_last = changes.len() < began.most_changes;
    changes.truncate(began.most_changes);
    if is_last {
        changes.push(RecordChange::Fleet(new));
    }
    Ok(Decision { changes, is_last, outcome: Outcome::Restored(outcome) })
}

/// Decides in two steps, because a swap does not compare that there is no lease and no tag. First
/// the fleet is closed, so that none is made after this is read. A tag of the generation before
/// would jump for this one, and again by as much if a failover forgets this one: it begins one with
/// the same number.
fn made_anew(
    began: &Began,
    reading: &Reading,
    lease_ms: i64,
    skew_ms: i64,
    uuid: Option<u128>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    let fleet = reading.fleet;
    check_limits(Some(lease_ms), Some(skew_ms))?;
    check_generation(began, &fleet)?;
    if !reading.numbers.is_empty() {
        return Err(Refusal::HasLeases);
    } else if !reading.tags.is_empty() {
        return Err(Refusal::HasTags);
    }
    let is_closed = stays_closed(began, &fleet);
    let old = Fleet { uuid: uuid.unwrap_or(fleet.uuid), closed: is_closed, ..fleet };
    let new = lost(&old, reading.incarnation, reading.now_ms, lease_ms, skew_ms, random());
    let Fleet { generation, freeze_ms, uuid, .. } = new;
    let outcome = Outcome::Lost { generation, freeze_ms, uuid, is_closed };
    if !fleet.closed {
        // `open --moved` trusts whoever closes a fleet, also if the turn ends before its next step.
        check_noted(reading)?;
        return Ok(Decision { is_last: false, ..fleet_alone(Fleet { closed: true, ..fleet }, outcome, random) });
    }
    Ok(Decision { changes: vec![RecordChange::Fleet(new)], is_last: true, outcome })
}

/// Whether another operator has closed the fleet, for a move, and not this turn.
fn stays_closed(began: &Began, fleet: &Fleet) -> bool {
    fleet.closed && began.closed_as != Some(fleet.version)
}

fn lost(old: &Fleet, incarnation: Incarnation, now_ms: i64, lease_ms: i64, skew_ms: i64, version: u64) -> Fleet {
    let new = with_limits(old, old.longest_ms.max(lease_ms), old.skew_ms.max(skew_ms));
    let new = new.begin_generation(incarnation, now_ms, FleetLimits::default(), version);
    // The lost registry may have had many generations. Its servers must see that this one is newer.
    let seconds = u64::try_from(now_ms / 1000).unwrap_or(0);
    Fleet { generation: new.generation.max(seconds), ..new }
}

/// Whether an operator keeps the number: no lease has the fingerprint 0 of a server.
fn is_reserved(record: &NumberRecord) -> bool {
    record.server == 0
}

fn check_number(fleet: &Fleet, number: NumberKey) -> Result<(), Refusal> {
    if number.worker < 0 || number.datacenter.is_some_and(|datacenter| datacenter < 0) {
        return Err(Refusal::NoSuchNumber { number });
    }
    if let Some(numbers) = numbers(fleet).filter(|numbers| number.worker >= *numbers) {
        return Err(Refusal::NumberOutsideLayout { number, numbers });
    }
    let Some(layout) = fleet.layout.and_then(|(fingerprint, _)| built_in(fingerprint)) else { return Ok(()) };
    let greatest = layout.max_of(Field::Datacenter).map(|greatest| greatest as i64);
    let is_right = match (number.datacenter, greatest) {
        (None, None) => true,
        (Some(datacenter), Some(greatest)) => datacenter <= greatest,
        _ => false,
    };
    if is_right { Ok(()) } else { Err(Refusal::DatacenterOutsideLayout { number, greatest }) }
}

fn reserve(
    reading: &Reading,
    number: NumberKey,
    until_ms: i64,
    force: bool,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    let Reading { fleet, now_ms, .. } = *reading;
    check_open(&fleet)?;
    check_number(&fleet, number)?;
    let most_ms = now_ms.saturating_add(RESERVED_AHEAD_MS);
    if until_ms > most_ms && !force {
        return Err(Refusal::ReservedTooLong { number, until_ms, most_ms });
    }
    // A lost lease of the number may run. Its server would stop drawing, because the number is
    // taken.
    check_noted(reading)?;
    let old = reading.numbers.get(&number);
    let is_older = old.is_none_or(|old| old.generation < fleet.generation);
    if let Some(old) = old.filter(|old| !is_reserved(old)) {
        let again_ms = old.until_ms.saturating_add(fleet.limits_ms().1);
        if again_ms > now_ms {
            return Err(Refusal::NumberLeased { number, until_ms: old.until_ms, again_ms });
        }
    }
    if is_older && fleet.freeze_ms > now_ms {
        return Err(Refusal::MayBeLost { number, until_ms: fleet.freeze_ms });
    }
    if let Some(old) = old.filter(|old| until_ms < old.until_ms) {
        return Err(Refusal::EndedLater { number, until_ms, ended_ms: old.until_ms });
    }
    // The record is of this generation. So it says by itself where all lost leases have ended: a
    // server whose clock is behind must not begin before.
    let until_ms = if is_older { until_ms.max(fleet.freeze_ms) } else { until_ms };
    let record = NumberRecord {
        holder: u128::from(random()) << 64 | u128::from(random()),
        nonce: random(),
        count: old.map_or(0, |old| old.count).saturating_add(1),
        server: 0,
        // A server that remembers a lost lease finds that this begins after it.
        from_ms: old.map_or(i64::MIN, |old| old.until_ms).max(now_ms.min(until_ms)),
        until_ms,
        generation: fleet.generation,
        renewed_ms: now_ms,
        offset_ms: 0,
    };
    let changes = vec![RecordChange::Number { number, was: old.map(|old| old.nonce), record }];
    Ok(Decision { changes, is_last: true, outcome: Outcome::Reserved { number, until_ms } })
}

/// Decides in two steps. First the freeze is raised: a number without a record is leased from there
/// on. So whatever the clocks, it is not leased again for times of what is deleted then.
fn drop_numbers(
    began: &Began,
    reading: &Reading,
    before_ms: i64,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, Refusal> {
    let Reading { fleet, numbers, now_ms, .. } = reading;
    check_open(fleet)?;
    let latest_ms = fleet.over_ms(*now_ms);
    if before_ms > latest_ms {
        return Err(Refusal::MayStillBeDrawnWith { before_ms, latest_ms });
    } else if fleet.freeze_ms > latest_ms {
        return Err(Refusal::InFreeze { until_ms: fleet.freeze_ms.saturating_add(now_ms - latest_ms) });
    }
    let over = numbers.iter().filter(|(_, record)| record.until_ms <= before_ms);
    let mut changes: Vec<_> =
        over.map(|(number, record)| RecordChange::DropNumber { number: *number, was: record.nonce }).collect();
    let outcome = |count| Outcome::NumbersDropped { before_ms, count };
    if !changes.is_empty() && fleet.freeze_ms < before_ms {
        let raised = Fleet { freeze_ms: before_ms, ..*fleet };
        return Ok(Decision { is_last: false, ..fleet_alone(raised, outcome(0), random) });
    }
    let is_last = changes.len() < began.most_changes;
    changes.truncate(began.most_changes);
    let outcome = outcome(changes.len());
    if is_last {
        changes.push(RecordChange::Fleet(Fleet { version: random(), ..*fleet }));
    }
    Ok(Decision { changes, is_last, outcome })
}

fn check_steps(steps: (u32, u32)) -> Result<(), Refusal> {
    if !STEPS.contains(&steps.0) || !STEPS.contains(&steps.1) || steps.0 > steps.1 {
        return Err(Refusal::StepsOutside { steps, allowed: STEPS });
    }
    Ok(())
}

/// What is changed of a tag ([`Operation::SetTag`]).
struct WantedTag {
    next: Option<i64>,
    least: Option<u32>,
    greatest: Option<u32>,
    jumps: Option<bool>,
}

fn changed_tag(
    began: &Began,
    reading: &Reading,
    tag: Tag,
    was: &TagRecord,
    wanted: &WantedTag,
    random: &mut dyn FnMut() -> u64,
) -> Result<TagRecord, Refusal> {
    let WantedTag { next, least, greatest, jumps } = *wanted;
    if next.is_none() && least.is_none() && greatest.is_none() && jumps.is_none() {
        return Err(Refusal::NothingToSet);
    }
    let steps = (least.unwrap_or(was.steps.0), greatest.unwrap_or(was.steps.1));
    let jumps = jumps.unwrap_or(was.jumps);
    check_steps(steps)?;
    let fleet = &reading.fleet;
    let is_behind = was.generation < fleet.generation;
    // With another nonce, no server's change that is under way undoes this.
    let mut changed = TagRecord { steps, jumps, nonce: random(), ..*was };
    if was.jumps && jumps && is_behind {
        // What is set must not take the place of the jumps that are due.
        let (next, generation) = (was.next_in(fleet), fleet.generation);
        changed = TagRecord { next, generation, written_ms: reading.now_ms, returnable: END, ..changed };
    }
    let Some(next) = next else {
        let has_stopped = !was.jumps && (is_behind || !is_noted(reading));
        let needs_next = has_stopped && jumps;
        return if needs_next { Err(Refusal::NeedsNext { tag, least: was.next }) } else { Ok(changed) };
    };
    check_generation(began, fleet)?;
    if next < changed.next {
        return Err(Refusal::NextLowered { tag, next, least: changed.next });
    }
    // In the generation that the next server begins, the tag would stop again. It cannot be of that
    // one yet: what is given in it may be forgotten together with it.
    check_noted(reading)?;
    let generation = fleet.generation;
    Ok(TagRecord { next, generation, written_ms: reading.now_ms, returnable: END, ..changed })
}
