//! Histories whose events are chosen, in which nothing else happens: for rules that random ones
//! hardly ever need, because several rare things must come together.

use std::rc::Rc;

use snowflake_core::fleet::operate::Operation;
use snowflake_core::fleet::tag::Tag;

use super::TAGS;
use super::operators::set_tag;
use crate::course::Course;
use crate::fleet::HOME;
use crate::kit::operator::Went;
use crate::kit::registry::{Kind, Store, unused_fleet};
use crate::promises::Lie;
use crate::server::Server;
use crate::world::{Story, World};

/// Returns a world with a registry in PostgreSQL.
fn calm(lie: Option<Lie>) -> (World, Tag) {
    let world = World::new(1, Story::Tags, lie, crate::number("SEED").is_some());
    world.registered().store.replace(Store::new(Kind::Postgres, unused_fleet(Kind::Postgres, HOME, 1), 0));
    world.settles.set(true);
    (world, Tag::new(TAGS[0]).unwrap())
}

/// Returns a world with one tag, which has these steps.
fn with_tag(lie: Option<Lie>, steps: (u32, u32), jumps: bool) -> (World, Tag) {
    let (world, tag) = calm(lie);
    world.perform(Operation::CreateTag { tag, next: 1, steps, jumps }, false);
    (world, tag)
}

/// A standby of the registry is promoted that has so many changes.
fn promote(world: &World, changes: usize) {
    let fleet = world.registered();
    let mut next = fleet.store.borrow().prefix(changes);
    next.incarnation.timeline += 1;
    fleet.store.replace(next);
    fleet.tags.lose();
}

fn changes(world: &World) -> usize {
    world.registered().store.borrow().changes()
}

fn draw_some(world: &World, server: &Rc<Server>, tag: Tag) {
    for _ in 0..10 {
        world.draw_tag(server, tag, 10);
        world.supply(server);
    }
}

/// A tag jumps after its greatest step was raised. The next failover forgets both.
pub fn a_failover_forgets_a_raised_step(lie: Option<Lie>) -> Course {
    let (world, tag) = with_tag(lie, (10, 10), true);
    let (before, after) = (world.add_tagged(), world.add_tagged());
    world.supply(&before);
    let then = changes(&world);
    world.perform(Operation::SetTag { tag, next: None, least: None, greatest: Some(20), jumps: None }, false);
    promote(&world, changes(&world));
    draw_some(&world, &before, tag);
    promote(&world, then);
    draw_some(&world, &after, tag);
    assert!(world.counts.borrow()["forgot"] > 1, "the tag jumps twice");
    world.course
}

/// An operator raises a tag that does not jump. Before that is written, a server reserves blocks
/// beyond, and a failover forgets them. Another server has noted that when the operator goes on.
pub fn the_registry_forgets_what_an_operator_did_not_know(lie: Option<Lie>) -> Course {
    let (world, tag) = with_tag(lie, (10, 10), false);
    let (before, after) = (world.add_tagged(), world.add_tagged());
    world.supply(&before);
    let mut operator = world.begin(set_tag(tag, Some(31)), false);
    assert!(matches!(world.go_on(&mut operator), Went::On), "it reads");
    let then = changes(&world);
    draw_some(&world, &before, tag);
    promote(&world, then);
    world.keep(&after);
    while matches!(world.go_on(&mut operator), Went::On) {}
    draw_some(&world, &after, tag);
    world.course
}

/// A fleet without tags is made anew. Before that is written, another operator makes a tag.
pub fn a_tag_is_made_while_a_fleet_is_made_anew(lie: Option<Lie>) -> Course {
    let (world, tag) = calm(lie);
    let (before, after) = (world.add_tagged(), world.add_tagged());
    let lost = Operation::Lost { lease_ms: 600_000, skew_ms: 60_000, uuid: None };
    world.perform(lost.clone(), false);
    world.supply(&before);
    world.draw_tag(&before, tag, 1);
    world.supply(&before);
    world.supply(&before);
    let mut operator = world.begin(lost, false);
    assert!(matches!(world.go_on(&mut operator), Went::On), "it reads");
    world.perform(Operation::CreateTag { tag, next: 1, steps: (10, 10), jumps: true }, false);
    let then = changes(&world);
    while matches!(world.go_on(&mut operator), Went::On) {}
    draw_some(&world, &before, tag);
    promote(&world, then);
    draw_some(&world, &after, tag);
    world.course
}
