//! Duplicates of an attempt: after the first one finished, and while it runs.

use serde_json::json;

use super::{again, once, status, told};
use crate::fixture::ParityFixture;
use crate::node_process::one_task;
use crate::transport::ParityTransport;

pub(crate) fn a_duplicate_gets_the_recorded_result(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let input = json!({"step": "charge"});
    let process = fixture.process(&one_task(&input, 1));
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    let first = fixture.requests().remove(0);
    for _ in 0..3 {
        assert_eq!(process.invoke(again(&first, &input)).unwrap(), once(&json!("charge")));
    }
    let other = json!({"step": "something else"});
    assert_eq!(
        process.invoke(again(&first, &other)).unwrap(),
        once(&json!("charge")),
        "the key identifies the call"
    );
    assert_eq!(fixture.requests().len(), 5);
    assert_eq!(fixture.activity_log().handled().len(), 1);
    assert_eq!(fixture.effect_counts().into_values().collect::<Vec<_>>(), [1]);
}

pub(crate) fn a_concurrent_duplicate_fails_as_retryable(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let input = json!({"do": "wait", "step": "charge"});
    let process = fixture.process(&one_task(&input, 1));
    process.start("a", json!({}));
    fixture.wait_for_waiting_handler();
    let first = fixture.requests().remove(0);
    let duplicates: Vec<_> = (0..4).map(|_| process.spawn_invoke(again(&first, &input))).collect();
    for duplicate in duplicates {
        let failure = process.join(duplicate).unwrap_err();
        assert_eq!(told(&failure), ("IN_PROGRESS", true));
        assert!(failure.outcome_unknown, "the outcome of the first attempt is not known yet");
        assert_eq!(failure.status.as_deref(), Some("409 ABORTED"));
    }
    fixture.activity_log().go.add_permits(1);
    assert_eq!(process.wait_for_end("a").output.as_deref(), Some(&once(&json!("charge"))));
    assert_eq!(process.invoke(again(&first, &input)).unwrap(), once(&json!("charge")));
    assert_eq!(fixture.activity_log().handled().len(), 1);
    assert_eq!(fixture.effect_counts().into_values().collect::<Vec<_>>(), [1]);
}
