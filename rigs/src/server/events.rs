//! Whether a run took the events it should have: each acknowledged one once, in the order they were raised.

use std::collections::HashMap;

use serde_json::Value;

use super::ledger::Event;

/// What a loop has seen, `[[[[], a], b], c]`, as a list.
pub(crate) fn flatten(seen: &Value) -> Vec<&Value> {
    let mut list = Vec::new();
    let mut rest = seen;
    while let Some([before, last]) = rest.as_array().map(Vec::as_slice) {
        list.push(last);
        rest = before;
    }
    list.reverse();
    list
}

/// What is wrong with what was taken. An event whose answer was lost may be missing; one that was sent again may be there as often.
pub(crate) fn problems(raised: &[Event], taken: &[&Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut counts: HashMap<String, u32> = HashMap::new();
    for event in taken {
        *counts.entry(event.to_string()).or_default() += 1;
    }
    for event in raised {
        let count = counts.remove(&event.payload.to_string()).unwrap_or(0);
        if count < u32::from(event.acknowledged) || count > event.sends {
            let Event { payload, sends, acknowledged } = event;
            let told = if *acknowledged { "acknowledged" } else { "not acknowledged" };
            problems.push(format!("event {payload}, sent {sends} times and {told}, was taken {count} times"));
        }
    }
    problems.extend(counts.keys().map(|event| format!("event {event} was taken, and nobody raised it")));
    // Those that were sent once cannot have overtaken each other.
    let place = |event: &Event| taken.iter().position(|taken| **taken == event.payload);
    let places: Vec<usize> = raised.iter().filter(|event| event.sends == 1).filter_map(place).collect();
    if !places.is_sorted() {
        problems.push(format!("events were taken out of order: {taken:?}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(number: u64, sends: u32, acknowledged: bool) -> Event {
        Event { payload: json!(number), sends, acknowledged }
    }

    fn found(raised: &[Event], seen: &Value) -> usize {
        problems(raised, &flatten(seen)).len()
    }

    #[test]
    fn an_acknowledged_event_is_taken_once_and_others_may_be_missing_or_there_again() {
        let raised = [event(1, 1, true), event(2, 1, false), event(3, 3, true)];
        assert_eq!(found(&raised, &json!([[[], 1], 3])), 0);
        assert_eq!(found(&raised, &json!([[[[[], 1], 2], 3], 3])), 0);
        assert_eq!(found(&raised, &json!([[], 3])), 1, "lost");
        assert_eq!(found(&raised, &json!([[[[], 1], 1], 3])), 1, "twice");
        assert_eq!(found(&raised, &json!([[[[], 2], 1], 3])), 1, "out of order");
        assert_eq!(found(&raised, &json!([[[[], 1], 3], 4])), 1, "invented");
    }
}
