//! Compares three accounts: the server's call records, the attempts that reached the receivers, and the receivers'
//! stores.

use std::collections::{BTreeMap, BTreeSet};

use abide_testkit::effect_ledger::EffectLedger;

use super::attempts::{WorkAttempts, WorkId};
use super::flows::CallBehaviour;
use super::ledger::{DispatchLedger, DispatchViolation};
use super::receiver_stores::ReceiverState;
use super::receiver_wires::RigProcess;
use super::server_calls::ServerCalls;

/// The accounts of one receiver.
pub(crate) struct ReceiverAccount {
    pub attempts: BTreeMap<WorkId, WorkAttempts>,
    pub done: ReceiverState,
}

/// The figures of the final report.
#[derive(Default, Debug)]
pub(crate) struct DispatchFigures {
    pub calls: usize,
    pub attempts: usize,
    pub repeated_attempts: usize,
    pub probes: usize,
    pub effects: usize,
    /// Calls that got the result of an earlier attempt, as far as it can be seen: the last attempt was only probed, or
    /// did not make the entry.
    pub from_record: usize,
}

pub(crate) fn compare(
    ledger: &mut DispatchLedger,
    journal: &ServerCalls,
    accounts: &BTreeMap<RigProcess, ReceiverAccount>,
) -> DispatchFigures {
    let mut figures = DispatchFigures { calls: journal.calls.len(), ..DispatchFigures::default() };
    let mut from_record = BTreeSet::new();
    for (who, account) in accounts {
        check_deliveries(ledger, journal, *who, &account.attempts);
        for (work, WorkAttempts { attempts, probes }) in &account.attempts {
            figures.attempts += attempts.len();
            figures.repeated_attempts += attempts.iter().filter(|attempt| **attempt > 0).count();
            figures.probes += probes.len();
            let last = journal.calls.get(work);
            if last.is_some_and(|last| probes.contains(last) && !attempts.contains(last)) {
                from_record.insert(work.clone());
            }
        }
        for half_written in &account.done.half_written {
            ledger.findings.add(DispatchViolation::Wrong, format!("{}: {half_written}", who.name()));
        }
        for entry in account.done.entries.values().flatten() {
            figures.effects += 1;
            let work = (entry.execution.clone(), entry.key.clone());
            match journal.calls.get(&work) {
                Some(attempt) if *attempt > entry.attempt => drop(from_record.insert(work)),
                Some(_) => {}
                None => {
                    let what = format!("{} has an effect without a call record: {entry:?}", who.name());
                    ledger.findings.add(DispatchViolation::Unexplained, what);
                }
            }
        }
    }
    figures.from_record = from_record.len();
    check_effects(ledger, journal, accounts);
    figures
}

/// Checks that the call record counts every attempt, and that no attempt number arrived twice.
fn check_deliveries(
    ledger: &mut DispatchLedger,
    journal: &ServerCalls,
    who: RigProcess,
    received: &BTreeMap<WorkId, WorkAttempts>,
) {
    for (work, WorkAttempts { attempts, probes }) in received {
        let (execution, key) = work;
        let about = format!("{} saw {execution} {key}", who.name());
        let Some(last) = journal.calls.get(work) else {
            let what = format!("{about}, which has no call record: attempts {attempts:?}, probes {probes:?}");
            ledger.findings.add(DispatchViolation::Unexplained, what);
            continue;
        };
        if attempts.iter().any(|attempt| attempt > last) {
            let what = format!("{about} as attempts {attempts:?}, but the call record counts up to {last}");
            ledger.findings.add(DispatchViolation::Unexplained, what);
        }
        if attempts.iter().collect::<BTreeSet<_>>().len() < attempts.len() {
            ledger.findings.add(
                DispatchViolation::Unexplained,
                format!("{about} twice with the same attempt number: {attempts:?}"),
            );
        }
    }
}

/// Checks that every call of a completed flow had its effect once and returned its result.
fn check_effects(
    ledger: &mut DispatchLedger,
    journal: &ServerCalls,
    accounts: &BTreeMap<RigProcess, ReceiverAccount>,
) {
    let mut expected: BTreeSet<(RigProcess, String)> = BTreeSet::new();
    let mut findings = Vec::new();
    for flow in ledger.acknowledged() {
        let results = journal.call_results.get(&flow.id);
        for (n, call) in flow.calls().into_iter().enumerate() {
            let Some(account) = accounts.get(&call.who) else { continue };
            let entries = account.done.entries.get(&call.tag).map(Vec::as_slice).unwrap_or_default();
            let runs = account.done.runs.get(&call.tag).copied();
            let times = match call.does {
                CallBehaviour::Add => entries.len(),
                CallBehaviour::Wait => usize::try_from(runs.unwrap_or_default()).unwrap_or(usize::MAX),
                // Its result says how often it failed.
                CallBehaviour::Fail => usize::from(runs.is_some()),
            };
            let name = call.who.name();
            match times {
                0 if results.is_some() => {
                    findings.push((
                        DispatchViolation::Missing,
                        format!("{name}: {} has a result, but no effect", call.tag),
                    ));
                }
                0 | 1 => {}
                _ => {
                    let made: Vec<u32> = entries.iter().map(|entry| entry.attempt).collect();
                    let what =
                        format!("{name}: {} took effect {times} times, by attempts {made:?}", call.tag);
                    findings.push((DispatchViolation::Doubled, what));
                }
            }
            if let Some(results) = results {
                let result = results.get(n).cloned().unwrap_or_default();
                findings.extend(
                    call.result_violation(&result, runs)
                        .map(|wrong| (DispatchViolation::Wrong, format!("{name}: {wrong}"))),
                );
            }
            expected.insert((call.who, call.tag));
        }
    }
    let mut effects = EffectLedger::default();
    for (who, account) in accounts {
        let tags = account.done.entries.keys().chain(account.done.runs.keys());
        tags.for_each(|tag| effects.record((*who, tag.clone()), 1));
    }
    for (who, tag) in effects.compare(expected).invented {
        let what = format!("{}: {tag} belongs to no flow that was started", who.name());
        findings.push((DispatchViolation::Unexplained, what));
    }
    ledger.findings.extend(findings);
}

#[cfg(test)]
mod tests;
