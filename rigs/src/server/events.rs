//! Checks the events that a run consumed: each acknowledged event once, in the order in which they were raised.

use std::collections::HashMap;

use serde_json::Value;

use super::ledger::EventEntry;

/// The nested events in the output of a loop, `[[[[], a], b], c]`, as a list.
pub(crate) fn flatten_loop_output(seen: &Value) -> Vec<&Value> {
    let mut list = Vec::new();
    let mut rest = seen;
    while let Some([before, last]) = rest.as_array().map(Vec::as_slice) {
        list.push(last);
        rest = before;
    }
    list.reverse();
    list
}

/// Compares the raised events with the consumed ones. An event whose response was lost may be missing; an event that
/// was sent several times may be consumed as often.
pub(crate) fn event_violations(raised: &[EventEntry], consumed: &[&Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut counts: HashMap<String, u32> = HashMap::new();
    for event in consumed {
        *counts.entry(event.to_string()).or_default() += 1;
    }
    for event in raised {
        let count = counts.remove(&event.payload.to_string()).unwrap_or(0);
        if count < u32::from(event.acknowledged) || count > event.sends {
            let EventEntry { payload, sends, acknowledged } = event;
            let state = if *acknowledged { "acknowledged" } else { "not acknowledged" };
            problems
                .push(format!("event {payload}, sent {sends} times and {state}, was consumed {count} times"));
        }
    }
    problems
        .extend(counts.keys().map(|event| format!("event {event} was consumed, but no client raised it")));
    // Events that were sent once cannot have overtaken each other.
    let place = |event: &EventEntry| consumed.iter().position(|consumed| **consumed == event.payload);
    let places: Vec<usize> = raised.iter().filter(|event| event.sends == 1).filter_map(place).collect();
    if !places.is_sorted() {
        problems.push(format!("events were consumed out of order: {consumed:?}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(number: u64, sends: u32, acknowledged: bool) -> EventEntry {
        EventEntry { payload: json!(number), sends, acknowledged }
    }

    fn found(raised: &[EventEntry], seen: &Value) -> usize {
        event_violations(raised, &flatten_loop_output(seen)).len()
    }

    #[test]
    fn an_acknowledged_event_is_consumed_and_others_may_be_missing_or_repeated() {
        let raised = [event(1, 1, true), event(2, 1, false), event(3, 3, true)];
        assert_eq!(found(&raised, &json!([[[], 1], 3])), 0);
        assert_eq!(found(&raised, &json!([[[[[], 1], 2], 3], 3])), 0);
        assert_eq!(found(&raised, &json!([[], 3])), 1, "lost");
        assert_eq!(found(&raised, &json!([[[[], 1], 1], 3])), 1, "twice");
        assert_eq!(found(&raised, &json!([[[[], 2], 1], 3])), 1, "out of order");
        assert_eq!(found(&raised, &json!([[[[], 1], 3], 4])), 1, "invented");
    }
}
