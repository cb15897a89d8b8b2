//! Histories whose events are chosen, in which nothing else happens: for rules that random ones
//! hardly ever need, because several rare things must come together.

use std::rc::Rc;

use snowflake_core::operate::Operation;
use snowflake_core::tag::Tag;

use super::operators::FLEET;
use super::world::{Life, TAGS, World};
use crate::course::Course;
use crate::kit::operator::Went;
use crate::kit::registry::{Kind, Store, unused_fleet};
use crate::office::Operated;
use crate::promises::Lie;

/// Returns a world with a registry in PostgreSQL, and one tag, which has these steps.
fn calm(lie: Option<Lie>, steps: (u32, u32), jumps: bool) -> (World, Tag) {
    let world = World::new(1, false, lie, crate::number("SEED").is_some());
    world.store.replace(Store::new(Kind::Postgres, unused_fleet(Kind::Postgres, FLEET, 1), 0));
    world.settles.set(true);
    let tag = Tag::new(TAGS[0]).unwrap();
    world.perform(Operation::CreateTag { tag, next: 1, steps, jumps }, false);
    (world, tag)
}

fn draw_some(world: &World, life: &Rc<Life>, tag: Tag) {
    for _ in 0..10 {
        world.draw(life, tag, 10);
        world.supply(life);
    }
}

/// A tag jumps after its greatest step was raised. The next failover forgets both.
pub fn a_failover_forgets_a_raised_step(lie: Option<Lie>) -> Course {
    let (world, tag) = calm(lie, (10, 10), true);
    let (before, after) = (world.start(), world.start());
    world.supply(&before);
    let changes = world.store.borrow().changes();
    let raise = Operation::SetTag { tag, next: None, least: None, greatest: Some(20), jumps: None };
    world.perform(raise, false);
    let raised = world.store.borrow().changes();
    world.promote(raised);
    draw_some(&world, &before, tag);
    world.promote(changes);
    draw_some(&world, &after, tag);
    assert!(world.counts.borrow()["forgot"] > 1, "the tag jumps twice");
    world.course
}

/// An operator raises a tag that does not jump. Before that is written, a server reserves blocks
/// beyond, and a failover forgets them. Another server has noted that when the operator goes on.
pub fn the_registry_forgets_what_an_operator_did_not_know(lie: Option<Lie>) -> Course {
    let (world, tag) = calm(lie, (10, 10), false);
    let (before, after) = (world.start(), world.start());
    world.supply(&before);
    let raise = Operation::SetTag { tag, next: Some(31), least: None, greatest: None, jumps: None };
    let mut operator = world.begin(raise, false);
    assert!(matches!(world.go_on(&mut operator), Went::On), "it reads");
    let changes = world.store.borrow().changes();
    draw_some(&world, &before, tag);
    world.promote(changes);
    world.keep(&after);
    while matches!(world.go_on(&mut operator), Went::On) {}
    draw_some(&world, &after, tag);
    world.course
}

/// A fleet without tags is made anew. Before that is written, another operator makes a tag.
pub fn a_tag_is_made_while_a_fleet_is_made_anew(lie: Option<Lie>) -> Course {
    let world = World::new(1, false, lie, crate::number("SEED").is_some());
    world.store.replace(Store::new(Kind::Postgres, unused_fleet(Kind::Postgres, FLEET, 1), 0));
    world.settles.set(true);
    let tag = Tag::new(TAGS[0]).unwrap();
    let (before, after) = (world.start(), world.start());
    let lost = Operation::Lost { lease_ms: 600_000, skew_ms: 60_000, uuid: None };
    world.perform(lost.clone(), false);
    world.supply(&before);
    world.draw(&before, tag, 1);
    world.supply(&before);
    world.supply(&before);
    let mut operator = world.begin(lost, false);
    assert!(matches!(world.go_on(&mut operator), Went::On), "it reads");
    world.perform(Operation::CreateTag { tag, next: 1, steps: (10, 10), jumps: true }, false);
    let changes = world.store.borrow().changes();
    while matches!(world.go_on(&mut operator), Went::On) {}
    draw_some(&world, &before, tag);
    world.promote(changes);
    draw_some(&world, &after, tag);
    world.course
}
