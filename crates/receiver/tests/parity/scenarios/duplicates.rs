//! The same delivery again: after the first was answered, and while it is worked on.

use serde_json::json;

use super::{again, once, status, told};
use crate::over::Over;
use crate::process::one_task;
use crate::world::World;

pub(crate) fn a_duplicate_gets_the_recorded_answer(over: Over) {
    let (world, input) = (World::new(over), json!({"step": "charge"}));
    let process = world.process(&one_task(&input, 1));
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    let first = world.arrivals().remove(0);
    for _ in 0..3 {
        assert_eq!(process.deliver(again(&first, &input)).unwrap(), once(&json!("charge")));
    }
    let other = json!({"step": "something else"});
    assert_eq!(process.deliver(again(&first, &other)).unwrap(), once(&json!("charge")), "the key decides");
    assert_eq!(world.arrivals().len(), 5);
    assert_eq!(world.book().ran().len(), 1);
    assert_eq!(world.effects().into_values().collect::<Vec<_>>(), [1]);
}

pub(crate) fn a_concurrent_duplicate_is_told_to_come_back(over: Over) {
    let (world, input) = (World::new(over), json!({"do": "wait", "step": "charge"}));
    let process = world.process(&one_task(&input, 1));
    process.start("a", json!({}));
    world.one_waits();
    let first = world.arrivals().remove(0);
    let duplicates: Vec<_> = (0..4).map(|_| process.delivering(again(&first, &input))).collect();
    for duplicate in duplicates {
        let failure = process.joined(duplicate).unwrap_err();
        assert_eq!(told(&failure), ("IN_PROGRESS", true));
        assert!(failure.outcome_unknown, "nobody knows yet what comes of the first one");
        assert_eq!(failure.status.as_deref(), Some("409 ABORTED"));
    }
    world.book().go.add_permits(1);
    assert_eq!(process.ended("a").output.as_deref(), Some(&once(&json!("charge"))));
    assert_eq!(process.deliver(again(&first, &input)).unwrap(), once(&json!("charge")));
    assert_eq!(world.book().ran().len(), 1);
    assert_eq!(world.effects().into_values().collect::<Vec<_>>(), [1]);
}
