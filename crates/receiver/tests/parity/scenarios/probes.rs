//! Probes: after an attempt without a response, the node probes the receiver before it repeats the attempt.

use std::sync::Arc;

use serde_json::json;

use super::{once, status};
use crate::crashing_store::CrashPoint;
use crate::fixture::{ParityFixture, is_recorded_as_sent};
use crate::node_process::one_task;
use crate::transport::ParityTransport;

/// Why the scenario is skipped for LOCAL.
pub(crate) fn cannot_be_probed(over: ParityTransport) -> Option<&'static str> {
    let reason = "no response can be lost without a wire; the activity is called again in process and returns its recorded result";
    (over == ParityTransport::Local).then_some(reason)
}

pub(crate) fn an_attempt_without_a_response_is_probed_before_it_is_repeated(over: ParityTransport) {
    // The activity ran, and the process crashed before the result was durable.
    let fixture = ParityFixture::with_probe(over, true);
    let log = Arc::clone(fixture.activity_log());
    let has_run = move |_| !log.handled().is_empty();
    let received = after_death(&fixture, CrashPoint::Before(Box::new(has_run)));
    assert_eq!(received, [(false, 0), (true, 1)], "probed, and not sent again");
    // The attempt was recorded, and the process crashed before sending it.
    let fixture = ParityFixture::with_probe(over, true);
    let rows = Arc::clone(&fixture.rows);
    let recorded = move |_| is_recorded_as_sent(&rows);
    let received = after_death(&fixture, CrashPoint::After(Box::new(recorded)));
    assert_eq!(received, [(true, 1), (false, 1)], "probed, and then sent");
}

/// Crashes a process, lets another end the run, and returns the received requests: whether each is a probe, and its
/// attempt number.
fn after_death(fixture: &ParityFixture, crash_point: CrashPoint) -> Vec<(bool, u32)> {
    let definition = one_task(&json!({"step": "charge"}), 3);
    let dying = fixture.start_until_crash(&definition, Some(crash_point));
    assert!(dying.run("a", json!({})).is_none(), "the process should crash");
    drop(dying);
    fixture.wait_until_idle();
    let process = fixture.process(&definition);
    let view = process.wait_for_end("a");
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    assert_eq!(fixture.activity_log().handled().len(), 1);
    assert_eq!(fixture.effect_counts().into_values().collect::<Vec<_>>(), [1]);
    fixture.requests().iter().map(|request| (request.probe, request.attempt())).collect()
}
