//! What was acknowledged: the last commit and the last public row of every partition, as the writer said them.

use std::collections::HashMap;

/// One line of a writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// The partition's head when the writer started.
    Started { partition: u64, commit: u64 },
    /// Acknowledged.
    Committed { partition: u64, commit: u64 },
    /// The public row of this commit was acknowledged.
    Put { partition: u64, commit: u64 },
    /// The outcome was unknown.
    Unknown { partition: u64, commit: u64 },
    /// Surely not applied, and why.
    Unavailable { partition: u64, commit: u64, reason: String },
}

impl Line {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Started { partition, commit } => format!("S {partition} {commit}\n"),
            Self::Committed { partition, commit } => format!("C {partition} {commit}\n"),
            Self::Put { partition, commit } => format!("P {partition} {commit}\n"),
            Self::Unknown { partition, commit } => format!("U {partition} {commit}\n"),
            Self::Unavailable { partition, commit, reason } => format!("X {partition} {commit} {reason}\n"),
        }
    }

    /// A line as written; half a line, from a writer killed in the middle of it, says nothing.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let text = text.strip_suffix('\n')?;
        let mut words = text.splitn(4, ' ');
        let (kind, partition, commit) =
            (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(match kind {
            "S" => Self::Started { partition, commit },
            "C" => Self::Committed { partition, commit },
            "P" => Self::Put { partition, commit },
            "U" => Self::Unknown { partition, commit },
            "X" => {
                Self::Unavailable { partition, commit, reason: words.next().unwrap_or_default().to_owned() }
            }
            _ => return None,
        })
    }
}

/// All a rig remembers across cycles.
#[derive(Default, Debug)]
pub(crate) struct Ledger {
    pub committed: HashMap<u64, u64>,
    pub put: HashMap<u64, u64>,
    /// How many acknowledgements there were.
    pub acknowledged: u64,
    /// Heads that a restarted writer found behind what had been acknowledged.
    pub lost_at_start: u64,
}

impl Ledger {
    pub(crate) fn note(&mut self, line: &Line) {
        match line {
            Line::Committed { partition, commit } => {
                self.acknowledged += 1;
                self.committed.insert(*partition, *commit);
            }
            Line::Put { partition, commit } => {
                self.acknowledged += 1;
                self.put.insert(*partition, *commit);
            }
            Line::Started { partition, commit } => {
                let acknowledged = self.committed.get(partition).copied().unwrap_or(0);
                self.lost_at_start += u64::from(*commit < acknowledged);
            }
            Line::Unknown { .. } | Line::Unavailable { .. } => {}
        }
    }
}
