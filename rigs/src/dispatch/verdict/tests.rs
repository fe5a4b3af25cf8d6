//! The verdict accepts accounts that agree, and finds each way in which they may differ.

use serde_json::{Value, json};

use super::*;
use crate::dispatch::flows::FlowKind;
use crate::dispatch::ledger::FlowEntry;
use crate::dispatch::receiver_stores::LedgerEntry;

/// A flow of four entries with accounts that agree.
struct Accounts {
    ledger: DispatchLedger,
    journal: ServerCalls,
    accounts: BTreeMap<RigProcess, ReceiverAccount>,
}

fn in_order() -> Accounts {
    let flow = FlowEntry {
        id: "f".to_owned(),
        kind: FlowKind::Near,
        failures_first: 1,
        acknowledged: true,
        ended: true,
    };
    let mut ledger = DispatchLedger::default();
    let mut journal = ServerCalls::default();
    let empty = || ReceiverAccount { attempts: BTreeMap::new(), done: ReceiverState::default() };
    let mut accounts: BTreeMap<RigProcess, ReceiverAccount> =
        RigProcess::RECEIVERS.into_iter().map(|who| (who, empty())).collect();
    let mut results: Vec<Value> = Vec::new();
    for (n, call) in flow.calls().into_iter().enumerate() {
        let work = ("f/1".to_owned(), format!("k{n}"));
        let account = accounts.get_mut(&call.who).unwrap();
        let entry = LedgerEntry { execution: work.0.clone(), key: work.1.clone(), attempt: 0 };
        account.done.entries.insert(call.tag, vec![entry]);
        account.attempts.insert(work.clone(), WorkAttempts { attempts: vec![0, 2], probes: vec![2] });
        journal.calls.insert(work, 2);
        results.push(if call.who == RigProcess::Rust {
            json!({"added": true})
        } else {
            json!({"balance": 1})
        });
    }
    journal.call_results.insert(flow.id.clone(), results);
    ledger.flows.insert(flow.id.clone(), flow);
    Accounts { ledger, journal, accounts }
}

/// The findings after a change.
fn found(change: impl FnOnce(&mut Accounts)) -> Vec<DispatchViolation> {
    let mut flow = in_order();
    change(&mut flow);
    compare(&mut flow.ledger, &flow.journal, &flow.accounts);
    flow.ledger.findings.kinds().copied().collect()
}

fn rust(flow: &mut Accounts) -> &mut ReceiverAccount {
    flow.accounts.get_mut(&RigProcess::Rust).unwrap()
}

#[test]
fn accounts_that_agree_are_counted_without_findings() {
    let Accounts { mut ledger, journal, accounts } = in_order();
    let figures = compare(&mut ledger, &journal, &accounts);
    assert!(ledger.findings.is_empty(), "{:?}", ledger.findings);
    assert_eq!((figures.calls, figures.attempts, figures.repeated_attempts), (4, 8, 4));
    assert_eq!((figures.probes, figures.effects, figures.from_record), (4, 4, 4));
}

#[test]
fn a_result_from_a_probe_counts_as_answered_from_the_record() {
    let Accounts { mut ledger, journal, mut accounts } = in_order();
    for account in accounts.values_mut() {
        account.done.entries.values_mut().flatten().for_each(|entry| entry.attempt = 2);
    }
    assert_eq!(compare(&mut ledger, &journal, &accounts).from_record, 0, "made by the last attempt");
    let work = ("f/1".to_owned(), "k0".to_owned());
    let received = accounts.get_mut(&RigProcess::Rust).unwrap().attempts.get_mut(&work).unwrap();
    received.attempts = vec![0];
    assert_eq!(compare(&mut ledger, &journal, &accounts).from_record, 1);
}

#[test]
fn a_duplicate_or_missing_effect_is_found() {
    let doubled = found(|flow| {
        let entries = rust(flow).done.entries.get_mut("f.0").unwrap();
        entries.push(entries[0].clone());
    });
    assert_eq!(doubled, [DispatchViolation::Doubled]);
    assert_eq!(found(|flow| drop(rust(flow).done.entries.remove("f.0"))), [DispatchViolation::Missing]);
    assert_eq!(
        found(|flow| rust(flow).done.half_written.push("half of it".to_owned())),
        [DispatchViolation::Wrong]
    );
}

#[test]
fn an_attempt_that_the_call_record_does_not_count_is_found() {
    let key = |n: usize| ("f/1".to_owned(), format!("k{n}"));
    let more = found(|flow| rust(flow).attempts.get_mut(&key(0)).unwrap().attempts.push(3));
    assert_eq!(more, [DispatchViolation::Unexplained]);
    let again = found(|flow| rust(flow).attempts.get_mut(&key(0)).unwrap().attempts.push(2));
    assert_eq!(again, [DispatchViolation::Unexplained]);
    let unknown = found(|flow| drop(rust(flow).attempts.insert(key(9), WorkAttempts::default())));
    assert_eq!(unknown, [DispatchViolation::Unexplained]);
    // Both the attempt and the effect are then unexplained.
    let without_record = found(|flow| flow.journal.calls.retain(|work, _| *work != key(0)));
    assert_eq!(without_record, [DispatchViolation::Unexplained; 2]);
}

#[test]
fn effects_of_no_flow_and_wrong_results_are_found() {
    let of_no_flow = found(|flow| rust(flow).done.runs.extend([("g.0".to_owned(), 1)]));
    assert_eq!(of_no_flow, [DispatchViolation::Unexplained]);
    let wrong_result = found(|flow| {
        flow.journal.call_results.get_mut("f").unwrap()[1] = json!({"balance": 2});
    });
    assert_eq!(wrong_result, [DispatchViolation::Wrong]);
}
