//! The verdict finds what it is there to find: accounts that are in order, and each way in which one may not be.

use serde_json::{Value, json};

use super::*;
use crate::dispatch::flows::Kind;
use crate::dispatch::ledger::Flow;
use crate::dispatch::stores::Entry;

/// A flow of four entries and everything that is said of it, all in order.
struct Told {
    ledger: Ledger,
    journal: Journal,
    accounts: BTreeMap<Who, Account>,
}

fn in_order() -> Told {
    let flow = Flow { id: "f".to_owned(), kind: Kind::Near, times: 1, acknowledged: true, ended: true };
    let (mut ledger, mut journal) = (Ledger::default(), Journal::default());
    let empty = || Account { came: BTreeMap::new(), done: Done::default() };
    let mut accounts: BTreeMap<Who, Account> = Who::RECEIVERS.into_iter().map(|who| (who, empty())).collect();
    let mut answers: Vec<Value> = Vec::new();
    for (n, call) in flow.calls().into_iter().enumerate() {
        let work = ("f/1".to_owned(), format!("k{n}"));
        let account = accounts.get_mut(&call.who).unwrap();
        let entry = Entry { execution: work.0.clone(), key: work.1.clone(), attempt: 0 };
        account.done.entries.insert(call.tag, vec![entry]);
        account.came.insert(work.clone(), Came { attempts: vec![0, 2], probes: vec![2] });
        journal.calls.insert(work, 2);
        answers.push(if call.who == Who::Rust { json!({"added": true}) } else { json!({"balance": 1}) });
    }
    journal.answers.insert(flow.id.clone(), answers);
    ledger.flows.insert(flow.id.clone(), flow);
    Told { ledger, journal, accounts }
}

/// What is found after this was changed.
fn found(change: impl FnOnce(&mut Told)) -> Vec<Broken> {
    let mut told = in_order();
    change(&mut told);
    compare(&mut told.ledger, &told.journal, &told.accounts);
    told.ledger.findings.into_iter().map(|(broken, _)| broken).collect()
}

fn rust(told: &mut Told) -> &mut Account {
    told.accounts.get_mut(&Who::Rust).unwrap()
}

#[test]
fn accounts_in_order_are_counted_and_nothing_is_found() {
    let Told { mut ledger, journal, accounts } = in_order();
    let figures = compare(&mut ledger, &journal, &accounts);
    assert!(ledger.findings.is_empty(), "{:?}", ledger.findings);
    assert_eq!((figures.calls, figures.deliveries, figures.redeliveries), (4, 8, 4));
    assert_eq!((figures.probes, figures.effects, figures.from_record), (4, 4, 4));
}

#[test]
fn an_answer_that_only_a_probe_brought_is_one_from_the_record() {
    let Told { mut ledger, journal, mut accounts } = in_order();
    for account in accounts.values_mut() {
        account.done.entries.values_mut().flatten().for_each(|entry| entry.attempt = 2);
    }
    assert_eq!(compare(&mut ledger, &journal, &accounts).from_record, 0, "made by the last delivery");
    let work = ("f/1".to_owned(), "k0".to_owned());
    let came = accounts.get_mut(&Who::Rust).unwrap().came.get_mut(&work).unwrap();
    came.attempts = vec![0];
    assert_eq!(compare(&mut ledger, &journal, &accounts).from_record, 1);
}

#[test]
fn an_effect_that_was_had_twice_or_never_is_found() {
    let doubled = found(|told| {
        let entries = rust(told).done.entries.get_mut("f.0").unwrap();
        entries.push(entries[0].clone());
    });
    assert_eq!(doubled, [Broken::Doubled]);
    assert_eq!(found(|told| drop(rust(told).done.entries.remove("f.0"))), [Broken::Missing]);
    assert_eq!(found(|told| rust(told).done.torn.push("half of it".to_owned())), [Broken::Wrong]);
}

#[test]
fn a_delivery_that_the_journal_does_not_count_is_found() {
    let key = |n: usize| ("f/1".to_owned(), format!("k{n}"));
    let more = found(|told| rust(told).came.get_mut(&key(0)).unwrap().attempts.push(3));
    assert_eq!(more, [Broken::Unexplained]);
    let again = found(|told| rust(told).came.get_mut(&key(0)).unwrap().attempts.push(2));
    assert_eq!(again, [Broken::Unexplained]);
    let unknown = found(|told| drop(rust(told).came.insert(key(9), Came::default())));
    assert_eq!(unknown, [Broken::Unexplained]);
    // Both the delivery and the effect are nobody's then.
    let forgotten = found(|told| told.journal.calls.retain(|work, _| *work != key(0)));
    assert_eq!(forgotten, [Broken::Unexplained; 2]);
}

#[test]
fn work_that_nobody_asked_for_and_answers_that_are_not_those_of_the_work_are_found() {
    let unasked = found(|told| rust(told).done.runs.extend([("g.0".to_owned(), 1)]));
    assert_eq!(unasked, [Broken::Unexplained]);
    let otherwise = found(|told| {
        told.journal.answers.get_mut("f").unwrap()[1] = json!({"balance": 2});
    });
    assert_eq!(otherwise, [Broken::Wrong]);
}
