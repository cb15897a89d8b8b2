//! Drawing dense values for SQL: finding a tag's place, the fast path, waiting for a block.
//!
//! Why no value comes twice: `core/fleet/segment.rs`. The background worker reserves the blocks
//! (`keeper.rs`). While a session waits for one, it must hold no lock of any kind.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Oid};
use snowflake_core::fleet::segment::{PlaceRefusal, State, ValueRun};
use snowflake_core::fleet::tag::{TAG_BYTES, Tag, TagError};
use snowflake_core::id::fnv::fnv1a;

use crate::error::fleet::{WorkerSeen, no_block};
use crate::error::{Error, Reportable, Sent};
use crate::ids::database_mark;
use crate::ids::stamp;
use crate::ids::stats::MINUTE_MS;
use crate::ids::waiting::BlockWait;
use crate::postgres::backend;
use crate::postgres::local::Local;
use crate::postgres::text::{is_utf8_database, to_utf8};
use crate::settings::guc;
use crate::shared::lease_status;
use crate::shared::shmem::{self, Topic};
use crate::shared::tags::{Tags, Ticket};

/// How many tags a session remembers. Of two that fall on one place, the later one.
const REMEMBERED: usize = 64;

/// The places that this session has found. A ticket whose claim is over draws nothing.
static FOUND: [Local<Option<(Tag, Ticket)>>; REMEMBERED] = [const { Local::new(None) }; REMEMBERED];

/// The fleet that this session's database is known to belong to; -1 if none is.
static CHECKED_FLEET: Local<i64> = Local::new(-1);

/// The function that this session has called last.
static FUNCTION: Local<Oid> = Local::new(pg_sys::InvalidOid);

/// Notes which function is called. Returns whether it is another one than before.
#[inline]
pub fn is_other_function(function: Oid) -> bool {
    FUNCTION.replace(function) != function
}

/// Forgets what this session has found and checked.
#[cold]
pub fn forget() {
    CHECKED_FLEET.set(-1);
    FOUND.iter().for_each(|found| found.set(None));
}

/// Returns the ticket of a tag that this session has drawn from before; 0 if it remembers none. The
/// name is in the database's encoding. Raises nothing.
#[inline]
pub fn ticket_of_argument(name: &[u8]) -> u64 {
    if name.is_ascii() || is_utf8_database() { ticket_of(name) } else { 0 }
}

/// Returns the ticket of a tag that this session has drawn from before; 0 if it remembers none.
#[inline]
fn ticket_of(name: &[u8]) -> u64 {
    let found = remembered(name).get().filter(|(tag, _)| tag.as_bytes() == name);
    found.map_or(0, |(_, ticket)| ticket.bits())
}

/// Returns where a tag is remembered, by a hash of its name.
#[inline]
fn remembered(name: &[u8]) -> &'static Local<Option<(Tag, Ticket)>> {
    &FOUND[fnv1a(name) as usize % REMEMBERED]
}

/// Draws one value of the tag that a ticket was given for, if that takes no waiting and raises
/// nothing.
#[inline(always)]
pub fn one_at_once(ticket: u64) -> Option<i64> {
    let (ticket, tags) = (Ticket::of_bits(ticket)?, shmem::tags()?);
    if !backend::may_write() {
        return None;
    }
    let drawn = tags.view(ticket).draw(1).ok()?;
    if drawn.needs_refill {
        tags.wake_worker();
    }
    Some(drawn.run.first)
}

/// Checks that a text, in the database's encoding, is not much too long for a tag's name, before it
/// is copied. In UTF-8 it has a quarter of its bytes at least, so that it is too long there, too.
///
/// # Errors
/// [`Error::Tag`].
pub fn check_length(name: &[u8]) -> Result<(), Error> {
    match name.len() {
        length if length > 4 * TAG_BYTES => Err(TagError::TooLong { length }.into()),
        _ => Ok(()),
    }
}

/// Draws one value of a tag, whose name is in the database's encoding.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NoRegistry`], [`Error::Tag`], [`Error::UnknownTag`],
/// [`Error::TagEnded`], [`Error::NoJump`], [`Error::TagTooFar`], [`Error::TooManyTags`],
/// [`Error::NotSupplied`], [`Error::OtherFleet`]. PostgreSQL itself raises what `nextval` refuses.
pub fn one(tag: &[u8]) -> Result<i64, Error> {
    check_length(tag)?;
    Ok(TagSource::find(c"snowflake_segment_next()", &to_utf8(tag))?.draw(1)?.first)
}

/// Draws `count` values of a tag, ascending, as the iterator asks for them.
///
/// # Errors
/// As for [`one`], and [`Error::NegativeCount`]. Each item can fail in the same way.
pub fn batch(tag: &[u8], count: i32) -> Result<impl Iterator<Item = Result<i64, Error>> + use<>, Error> {
    let mut left = u32::try_from(count).map_err(|_| Error::NegativeCount(count))?;
    // Another function than the one that `is_other_function` notes.
    CHECKED_FLEET.set(-1);
    check_length(tag)?;
    let source = TagSource::find(c"snowflake_segment_batch()", &to_utf8(tag))?;
    let mut run = ValueRun { first: 0, count: 0 };
    let mut next = move || {
        if run.count == 0 {
            if left == 0 {
                return Ok(None);
            }
            run = source.draw(left)?;
            left -= run.count;
        }
        let value = run.first;
        run = ValueRun { first: value.wrapping_add(1), count: run.count - 1 };
        Ok(Some(value))
    };
    Ok(std::iter::from_fn(move || next().transpose()))
}

/// Values of a tag that a session takes over: those that were drawn elsewhere lie below.
#[derive(Clone, Copy)]
pub struct Takeover(TagSource);

impl Takeover {
    /// Checks what can be checked before values are taken over. `command` names the SQL function in
    /// messages.
    ///
    /// # Errors
    /// As for [`one`], without those of waiting.
    pub fn find(command: &'static CStr, tag: &str) -> Result<Self, Error> {
        TagSource::find(command, tag).map(Self)
    }

    /// Returns the value that this server draws next, and does not draw it. Waits for a block if
    /// there is none.
    ///
    /// # Errors
    /// As for [`one`].
    pub fn next(self) -> Result<i64, Error> {
        let Self(source) = self;
        source.obtain(|ticket| source.tags.view(ticket).find(1).map(|found| Some(found.run().first)))
    }

    /// Makes this server draw no value below `least` any more. Throws away what lies below in its
    /// blocks, and raises the tag's next value in the registry. Returns the value that it draws
    /// next, which may be greater.
    ///
    /// # Errors
    /// As for [`one`].
    pub fn raise(self, least: i64) -> Result<i64, Error> {
        let Self(source) = self;
        source.obtain(|ticket| {
            // A place may have been claimed anew, so repeat the minimum in each turn; the lock is
            // brief.
            source.tags.raise_minimum(ticket, least);
            let first = source.tags.view(ticket).find(1)?.run().first;
            if first >= least {
                return Ok(Some(first));
            }
            let below = u32::try_from(least.saturating_sub(first)).unwrap_or(u32::MAX);
            source.take(ticket, below).map(|_| None)
        })
    }

    /// Draws a value that the registry has handed out after this call began, so it lies above all
    /// that servers have had before. Throws away what is left of this server's blocks.
    ///
    /// # Errors
    /// As for [`one`].
    pub fn fresh(self) -> Result<i64, Error> {
        let Self(source) = self;
        // A block may be under way when the place is first empty. The worker asks for the one after
        // that only when it has put this one in place.
        let (mut emptied, mut is_empty) = (0, false);
        source.obtain(|ticket| {
            let taken = source.take_all(ticket);
            if !is_empty && taken.is_err() {
                emptied += 1;
            }
            is_empty = taken.is_err();
            taken.map(|run| (emptied >= 2).then_some(run.first))
        })
    }
}

/// Where a tag's values are drawn. It is checked once per call.
#[derive(Clone, Copy)]
struct TagSource {
    tags: &'static Tags,
    tag: Tag,
}

impl TagSource {
    /// Checks what can be checked before the first draw. `command` names the SQL function in
    /// messages.
    fn find(command: &'static CStr, tag: &str) -> Result<Self, Error> {
        let tags = shmem::tags().ok_or(Error::NotPreloaded)?;
        let tag = Tag::new(tag)?;
        backend::require_writable(command);
        if !stamp::is_leased() {
            return Err(Error::NoRegistry);
        }
        Ok(Self { tags, tag })
    }

    /// Draws up to `count` values, at least one, and waits for them if it has to.
    fn draw(self, count: u32) -> Result<ValueRun, Error> {
        self.obtain(|ticket| self.take(ticket, count).map(Some))
    }

    /// Draws up to `count` values, at least one, if that takes no waiting.
    fn take(self, ticket: Ticket, count: u32) -> Result<ValueRun, PlaceRefusal> {
        let drawn = self.tags.view(ticket).draw(count)?;
        if drawn.needs_refill {
            self.tags.wake_worker();
        }
        Ok(drawn.run)
    }

    /// Draws what is left of a block.
    fn take_all(self, ticket: Ticket) -> Result<ValueRun, PlaceRefusal> {
        self.take(ticket, u32::MAX)
    }

    /// Attempts something at the tag's place, and waits for a block whenever there is none. The
    /// attempt returns `None` to be made again at once.
    fn obtain<T>(self, mut attempt: impl FnMut(Ticket) -> Result<Option<T>, PlaceRefusal>) -> Result<T, Error> {
        let Self { tags, tag } = self;
        let mut found = self.found().map(|ticket| (ticket, false));
        let wait = BlockWait::new();
        let result = loop {
            // A place that is claimed here is asked for at the registry. One that was found before
            // may be out of date.
            let (ticket, is_new) = match found {
                Some(found) => found,
                None => (tags.find(tag).map_err(|full| Error::TooManyTags(full.places))?, true),
            };
            found = Some((ticket, is_new));
            self.check_fleet()?;
            match attempt(ticket) {
                Ok(Some(obtained)) => {
                    // The fleet may have become known since, with the first block.
                    self.check_fleet()?;
                    self.remember(ticket);
                    break Ok(obtained);
                }
                Ok(None) => {}
                Err(PlaceRefusal::Void) => found = None,
                Err(PlaceRefusal::Empty(State::Unknown)) if !is_new => found = None,
                Err(PlaceRefusal::Empty(State::Unknown)) => {
                    break Err(Error::UnknownTag { tag: tag.as_str().to_owned(), fleet: guc::fleet() });
                }
                Err(PlaceRefusal::Empty(state @ (State::Ended | State::NoJump | State::TooFar))) => {
                    // It asks again, but not more often than once a second.
                    tags.wake_worker();
                    let (tag, fleet) = (tag.as_str().to_owned(), guc::fleet());
                    break Err(match state {
                        State::Ended => Error::TagEnded(tag),
                        State::TooFar => Error::TagTooFar { tag, fleet },
                        _ => Error::NoJump { tag, fleet },
                    });
                }
                Err(PlaceRefusal::Empty(State::Open)) => {
                    // Once is enough: the worker looks at all tags after each answer, and again
                    // after a failure.
                    if wait.begins() {
                        tags.wake_worker();
                        tags.count(ticket, |counts| counts.waits += 1);
                    }
                    if !lease_status::can_lease() || !wait.wait() {
                        break Err(self.why_none());
                    }
                }
            }
            pgrx::check_for_interrupts!();
        };
        if let Some((ticket, _)) = found.filter(|_| wait.has_begun() || result.is_err()) {
            tags.count(ticket, |counts| {
                counts.wait_micros += wait.micros();
                counts.refused += u64::from(result.is_err());
            });
        }
        result.inspect_err(note_refusal)
    }

    /// Returns the place that this session has found for the tag before.
    fn found(&self) -> Option<Ticket> {
        Ticket::of_bits(ticket_of(self.tag.as_bytes()))
    }

    fn remember(&self, ticket: Ticket) {
        remembered(self.tag.as_bytes()).set(Some((self.tag, ticket)));
    }

    /// Ensures that the session's database belongs to the fleet whose values these are. The first
    /// value that a database draws makes it belong to it.
    fn check_fleet(&self) -> Result<(), Error> {
        match self.tags.fleet() {
            Some(fleet) if fleet != CHECKED_FLEET.get() => {
                database_mark::require_fleet(fleet)?;
                CHECKED_FLEET.set(fleet);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns why there is no block.
    fn why_none(&self) -> Error {
        let (failing, runs) = (self.tags.failing(), self.tags.has_worker());
        let worker = WorkerSeen { failing, runs, can_run: lease_status::can_lease() };
        Error::NotSupplied(Box::new(no_block(self.tag.as_str(), &worker)))
    }
}

/// Logs the first refusal of a minute for which an operator has to do something.
#[cold]
fn note_refusal(error: &Error) {
    let is_operators =
        matches!(error, Error::NotSupplied(_) | Error::TagEnded(_) | Error::NoJump { .. } | Error::TagTooFar { .. });
    if is_operators && shmem::is_due(Topic::BlockRefused, MINUTE_MS) {
        error.report().log("draws are refused");
    }
}
