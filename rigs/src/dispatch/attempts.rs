//! Reads a receiver's log of attempts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Identifies a call: execution id and idempotency key.
pub(crate) type WorkId = (String, String);

/// The attempts and probes of one call that reached the receiver.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct WorkAttempts {
    /// The numbers of the attempts, in the order of arrival.
    pub attempts: Vec<u32>,
    /// The numbers of the attempts that were probed.
    pub probes: Vec<u32>,
}

/// Reads the log: attempts by call, and lines that cannot be parsed.
pub(crate) fn read(log: &Path) -> Result<(BTreeMap<WorkId, WorkAttempts>, Vec<String>), String> {
    let text = fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let (mut received, mut unreadable) = (BTreeMap::<WorkId, WorkAttempts>::new(), Vec::new());
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [execution, key, attempt, kind] = fields.as_slice() else {
            unreadable.push(line.to_owned());
            continue;
        };
        let work = received.entry(((*execution).to_owned(), (*key).to_owned())).or_default();
        match (*kind, attempt.parse()) {
            ("probe", Ok(attempt)) => work.probes.push(attempt),
            ("delivery", Ok(attempt)) => work.attempts.push(attempt),
            _ => unreadable.push(line.to_owned()),
        }
    }
    Ok((received, unreadable))
}
