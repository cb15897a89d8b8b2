//! Which tag is in which place. A session looks a tag up once, and keeps its view of the place.

use super::{PLACES, Place, PlaceView, State};
use crate::fleet::tag::Tag;

/// The tags of all places, in shared memory. The server's lock guards it: whoever uses a directory
/// holds that lock.
#[derive(Debug, Clone, Copy)]
pub struct Directory {
    tags: [Option<Tag>; PLACES],
    /// Below which no value is wanted, for each place.
    leasts: [i64; PLACES],
}

/// A place that is claimed for a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// Which place.
    pub place: usize,
    /// Which claim of it ([`PlaceView::claim`]).
    pub claim: u64,
    /// The tag.
    pub tag: Tag,
    /// Below this no value is wanted ([`Directory::raise_minimum`]).
    pub least: i64,
}

/// All places have tags that the registry knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// How many there are.
    pub places: usize,
}

impl Directory {
    /// Makes the directory of places that were never claimed.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self { tags: [None; PLACES], leasts: [i64::MIN; PLACES] }
    }

    /// Returns the place of a tag, and which one it is. Claims one if the tag has none: its own if
    /// the registry did not know the tag before, one that was never claimed, or one whose tag the
    /// registry does not have.
    ///
    /// # Errors
    /// [`Full`] if all places are in use.
    pub fn find<'a>(&mut self, places: &'a [Place], tag: Tag) -> Result<(usize, PlaceView<'a>), Full> {
        let is_free = |at: &usize| places[*at].state() == State::Unknown;
        let all = 0..places.len().min(PLACES);
        let own = all.clone().find(|at| self.tags[*at] == Some(tag));
        if let Some(at) = own.filter(|at| !is_free(at)) {
            return Ok((at, places[at].view()));
        }
        let claimed = own
            .or_else(|| all.clone().find(|at| self.tags[*at].is_none()))
            .or_else(|| all.clone().find(is_free))
            .ok_or(Full { places: all.len() })?;
        // The name comes first: should this process end here, the place is still free.
        self.tags[claimed] = Some(tag);
        self.leasts[claimed] = i64::MIN;
        Ok((claimed, places[claimed].claim()))
    }

    /// Notes that values below `least` are not wanted of a place under this claim. Blocks that are
    /// there, or under way, may lie below. It holds as long as the claim, and is not lowered, but
    /// may be [forgotten](Self::drop_minimum).
    pub fn raise_minimum(&mut self, places: &[Place], at: usize, claim: u64, least: i64) {
        if places.get(at).is_some_and(|place| place.claimed() == claim) {
            self.leasts[at] = self.leasts[at].max(least);
        }
    }

    /// Forgets a minimum that the registry has refused, so that others can draw. A greater one that
    /// was made since stays.
    pub fn drop_minimum(&mut self, places: &[Place], at: usize, claim: u64, least: i64) {
        if places.get(at).is_some_and(|place| place.claimed() == claim) && self.leasts[at] == least {
            self.leasts[at] = i64::MIN;
        }
    }

    /// Returns the places that are claimed.
    pub fn claimed(&self, places: &[Place]) -> Vec<Claimed> {
        let places = places.iter().enumerate().take(PLACES).filter(|(_, place)| place.state() != State::Unknown);
        places
            .filter_map(|(at, place)| {
                let (claim, tag, least) = (place.claimed(), self.tags[at]?, self.leasts[at]);
                Some(Claimed { place: at, claim, tag, least })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::segment::{Block, PlaceRefusal};

    fn tag(name: &str) -> Tag {
        Tag::new(name).unwrap()
    }

    #[test]
    fn a_tag_keeps_its_place_until_the_registry_does_not_know_it() {
        let places = [Place::new(), Place::new()];
        let mut directory = Directory::new();
        let (at, a) = directory.find(&places, tag("a")).unwrap();
        let (other, b) = directory.find(&places, tag("b")).unwrap();
        assert_eq!((at, other), (0, 1));
        assert_eq!(directory.find(&places, tag("a")).unwrap().1.claim(), a.claim());
        assert_eq!(directory.find(&places, tag("c")).unwrap_err(), Full { places: 2 });
        let tags = |directory: &Directory| directory.claimed(&places).into_iter().map(|claimed| claimed.tag);
        assert!(tags(&directory).eq([tag("a"), tag("b")]));

        places[0].fill(places[0].room().unwrap(), Block { first: 1, count: 5 });
        places[0].free();
        assert!(tags(&directory).eq([tag("b")]));
        let (at, c) = directory.find(&places, tag("c")).unwrap();
        assert_eq!((at, a.draw(1), c.draw(1)), (0, Err(PlaceRefusal::Void), Err(PlaceRefusal::Empty(State::Open))));
        assert!(tags(&directory).eq([tag("c"), tag("b")]));

        // A tag that the registry did not know is asked for again, in the same place.
        places[1].free();
        let (at, again) = directory.find(&places, tag("b")).unwrap();
        assert_eq!((at, b.draw(1), again.draw(1)), (1, Err(PlaceRefusal::Void), Err(PlaceRefusal::Empty(State::Open))));
    }

    #[test]
    fn a_wish_holds_for_one_claim_and_is_not_lowered() {
        let places = [Place::new()];
        let mut directory = Directory::new();
        let (at, a) = directory.find(&places, tag("a")).unwrap();
        let least = |directory: &Directory| directory.claimed(&places)[0].least;
        assert_eq!(least(&directory), i64::MIN);
        for (minimum, then) in [(7, 7), (3, 7), (9, 9)] {
            directory.raise_minimum(&places, at, a.claim(), minimum);
            directory.find(&places, tag("a")).unwrap();
            assert_eq!(least(&directory), then);
        }
        places[0].free();
        let (at, b) = directory.find(&places, tag("b")).unwrap();
        // A session that does not know yet that its tag is gone.
        directory.raise_minimum(&places, at, a.claim(), 100);
        assert_eq!(least(&directory), i64::MIN);
        directory.raise_minimum(&places, at, b.claim(), 5);
        directory.raise_minimum(&places, PLACES, b.claim(), 6);
        assert_eq!(least(&directory), 5);
    }

    /// The process ends between the two statements of a claim.
    #[test]
    fn a_place_that_is_half_claimed_is_free() {
        let places = [Place::new()];
        let mut directory = Directory::new();
        directory.tags[0] = Some(tag("a"));
        assert!(directory.claimed(&places).is_empty());
        let (at, view) = directory.find(&places, tag("b")).unwrap();
        assert_eq!((at, view.claim()), (0, 1));
    }
}
