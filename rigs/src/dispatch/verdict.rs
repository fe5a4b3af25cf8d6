//! Holds three accounts against each other: what the server says, what came to the receivers, and what is in their stores.

use std::collections::{BTreeMap, BTreeSet};

use super::deliveries::{Came, Work};
use super::flows::Does;
use super::journal::Journal;
use super::ledger::{Broken, Ledger};
use super::lines::Who;
use super::stores::Done;

/// One receiver's accounts.
pub(crate) struct Account {
    pub came: BTreeMap<Work, Came>,
    pub done: Done,
}

/// What is told in the end.
#[derive(Default, Debug)]
pub(crate) struct Figures {
    pub calls: usize,
    pub deliveries: usize,
    pub redeliveries: usize,
    pub probes: usize,
    pub effects: usize,
    /// Calls whose answer is that of an earlier delivery, as far as it shows: the last one was only asked about, or did not make the entry.
    pub from_record: usize,
}

pub(crate) fn compare(ledger: &mut Ledger, journal: &Journal, accounts: &BTreeMap<Who, Account>) -> Figures {
    let mut figures = Figures { calls: journal.calls.len(), ..Figures::default() };
    let mut from_record = BTreeSet::new();
    for (who, account) in accounts {
        check_deliveries(ledger, journal, *who, &account.came);
        for (work, Came { attempts, probes }) in &account.came {
            figures.deliveries += attempts.len();
            figures.redeliveries += attempts.iter().filter(|attempt| **attempt > 0).count();
            figures.probes += probes.len();
            let last = journal.calls.get(work);
            if last.is_some_and(|last| probes.contains(last) && !attempts.contains(last)) {
                from_record.insert(work.clone());
            }
        }
        for torn in &account.done.torn {
            ledger.find(Broken::Wrong, format!("{}: {torn}", who.name()));
        }
        for entry in account.done.entries.values().flatten() {
            figures.effects += 1;
            let work = (entry.execution.clone(), entry.key.clone());
            match journal.calls.get(&work) {
                Some(attempt) if *attempt > entry.attempt => drop(from_record.insert(work)),
                Some(_) => {}
                None => {
                    let what = format!("{} did what no journal knows: {entry:?}", who.name());
                    ledger.find(Broken::Unexplained, what);
                }
            }
        }
    }
    figures.from_record = from_record.len();
    check_effects(ledger, journal, accounts);
    figures
}

/// Every delivery is one that the journal counts, and no two are the same one.
fn check_deliveries(ledger: &mut Ledger, journal: &Journal, who: Who, came: &BTreeMap<Work, Came>) {
    for (work, Came { attempts, probes }) in came {
        let (execution, key) = work;
        let about = format!("{} saw {execution} {key}", who.name());
        let Some(last) = journal.calls.get(work) else {
            let what = format!("{about}, which no journal knows: attempts {attempts:?}, probes {probes:?}");
            ledger.find(Broken::Unexplained, what);
            continue;
        };
        if attempts.iter().any(|attempt| attempt > last) {
            let what = format!("{about} as attempts {attempts:?}, and the journal counts up to {last}");
            ledger.find(Broken::Unexplained, what);
        }
        if attempts.iter().collect::<BTreeSet<_>>().len() < attempts.len() {
            ledger.find(Broken::Unexplained, format!("{about} twice under one number: {attempts:?}"));
        }
    }
}

/// Every call of a flow that completed had its effect once, and was answered with it.
fn check_effects(ledger: &mut Ledger, journal: &Journal, accounts: &BTreeMap<Who, Account>) {
    let mut expected: BTreeSet<(Who, String)> = BTreeSet::new();
    let mut found = Vec::new();
    for flow in ledger.acknowledged() {
        let answers = journal.answers.get(&flow.id);
        for (n, call) in flow.calls().into_iter().enumerate() {
            let Some(account) = accounts.get(&call.who) else { continue };
            let entries = account.done.entries.get(&call.tag).map(Vec::as_slice).unwrap_or_default();
            let runs = account.done.runs.get(&call.tag).copied();
            let times = match call.does {
                Does::Add => entries.len(),
                Does::Wait => usize::try_from(runs.unwrap_or_default()).unwrap_or(usize::MAX),
                // How often it failed is told by its answer.
                Does::Fail => usize::from(runs.is_some()),
            };
            let name = call.who.name();
            match times {
                0 if answers.is_some() => {
                    found.push((
                        Broken::Missing,
                        format!("{name}: {} was answered and has no effect", call.tag),
                    ));
                }
                0 | 1 => {}
                _ => {
                    let made: Vec<u32> = entries.iter().map(|entry| entry.attempt).collect();
                    let what =
                        format!("{name}: {} took effect {times} times, by deliveries {made:?}", call.tag);
                    found.push((Broken::Doubled, what));
                }
            }
            if let Some(answers) = answers {
                let answer = answers.get(n).cloned().unwrap_or_default();
                found.extend(
                    call.wrong(&answer, runs).map(|wrong| (Broken::Wrong, format!("{name}: {wrong}"))),
                );
            }
            expected.insert((call.who, call.tag));
        }
    }
    for (who, account) in accounts {
        for tag in account.done.entries.keys().chain(account.done.runs.keys()) {
            if !expected.contains(&(*who, tag.clone())) {
                found.push((
                    Broken::Unexplained,
                    format!("{}: {tag} is of no flow that was started", who.name()),
                ));
            }
        }
    }
    ledger.findings.extend(found);
}

#[cfg(test)]
mod tests;
