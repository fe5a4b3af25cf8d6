//! A delivery that nobody answered: whoever can be asked is asked before it is given the work again.

use std::sync::Arc;

use serde_json::json;

use super::{once, status};
use crate::over::Over;
use crate::process::one_task;
use crate::store::Death;
use crate::world::{World, is_recorded_as_sent};

/// Why there is nothing to play.
pub(crate) fn cannot_be_asked(over: Over) -> Option<&'static str> {
    let why = "there is no wire that an answer could be lost on; what is in process is called again, and its record answers";
    (over == Over::Local).then_some(why)
}

pub(crate) fn an_unanswered_delivery_is_asked_for_before_it_is_repeated(over: Over) {
    // It ran, and the process died before the answer was durable.
    let world = World::with_probe(over, true);
    let book = Arc::clone(world.book());
    let answered = move |_| !book.ran().is_empty();
    let asked = after_death(&world, Death::Before(Box::new(answered)));
    assert_eq!(asked, [(false, 0), (true, 1)], "asked, and not sent again");
    // It was recorded, and the process died before it was sent.
    let world = World::with_probe(over, true);
    let rows = Arc::clone(&world.rows);
    let recorded = move |_| is_recorded_as_sent(&rows);
    let asked = after_death(&world, Death::After(Box::new(recorded)));
    assert_eq!(asked, [(true, 1), (false, 1)], "asked, and then sent");
}

/// What arrived when the run has ended: whether it was a question, and after how many deliveries.
fn after_death(world: &World, death: Death) -> Vec<(bool, u32)> {
    let definition = one_task(&json!({"step": "charge"}), 3);
    let dying = world.mortal(&definition, Some(death));
    assert!(dying.run("a", json!({})).is_none(), "it dies");
    drop(dying);
    world.until_quiet();
    let process = world.process(&definition);
    let view = process.ended("a");
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    assert_eq!(world.book().ran().len(), 1);
    assert_eq!(world.effects().into_values().collect::<Vec<_>>(), [1]);
    world.arrivals().iter().map(|arrival| (arrival.probe, arrival.attempt())).collect()
}
