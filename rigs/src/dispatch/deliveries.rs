//! What came to a receiver, as it wrote it down.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A piece of work: execution id and idempotency key.
pub(crate) type Work = (String, String);

/// What came of one piece of work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Came {
    /// The attempts that deliveries said they were, in the order they came.
    pub attempts: Vec<u32>,
    /// Those that were asked about before.
    pub probes: Vec<u32>,
}

/// What came, by work, and lines that cannot be read.
pub(crate) fn read(log: &Path) -> Result<(BTreeMap<Work, Came>, Vec<String>), String> {
    let text = fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let (mut came, mut unreadable) = (BTreeMap::<Work, Came>::new(), Vec::new());
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [execution, key, attempt, kind] = fields.as_slice() else {
            unreadable.push(line.to_owned());
            continue;
        };
        let of = came.entry(((*execution).to_owned(), (*key).to_owned())).or_default();
        match (*kind, attempt.parse()) {
            ("probe", Ok(attempt)) => of.probes.push(attempt),
            ("delivery", Ok(attempt)) => of.attempts.push(attempt),
            _ => unreadable.push(line.to_owned()),
        }
    }
    Ok((came, unreadable))
}
