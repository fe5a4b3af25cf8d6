//! The ledger of acknowledgements: the last commit of every partition and the revision of every public row, as printed
//! by the writer.

use std::collections::HashMap;

use crate::workload;

/// One line of a writer's output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WriterLine {
    /// The partition's head when the writer started, or when it read the head after a failure.
    Started {
        partition: u64,
        commit: u64,
    },
    Committed {
        partition: u64,
        commit: u64,
    },
    /// The public row of this commit was acknowledged.
    Put {
        partition: u64,
        commit: u64,
    },
    /// The outcome was unknown.
    Unknown {
        partition: u64,
        commit: u64,
    },
    /// The commit was certainly not applied.
    Unavailable {
        partition: u64,
        commit: u64,
        reason: String,
    },
    /// The head could not be read after this commit.
    Unread {
        partition: u64,
        commit: u64,
        reason: String,
    },
    /// The store reported a false outcome for this commit.
    FalseOutcome {
        partition: u64,
        commit: u64,
        what: String,
    },
}

impl WriterLine {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Started { partition, commit } => format!("S {partition} {commit}\n"),
            Self::Committed { partition, commit } => format!("C {partition} {commit}\n"),
            Self::Put { partition, commit } => format!("P {partition} {commit}\n"),
            Self::Unknown { partition, commit } => format!("U {partition} {commit}\n"),
            Self::Unavailable { partition, commit, reason } => format!("X {partition} {commit} {reason}\n"),
            Self::Unread { partition, commit, reason } => format!("R {partition} {commit} {reason}\n"),
            Self::FalseOutcome { partition, commit, what } => format!("L {partition} {commit} {what}\n"),
        }
    }

    /// Parses a line. Half a line, from a writer killed while writing it, gives `None`.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let text = text.strip_suffix('\n')?;
        let mut words = text.splitn(4, ' ');
        let (kind, partition, commit) =
            (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let rest = words.next().unwrap_or_default().to_owned();
        Some(match kind {
            "S" => Self::Started { partition, commit },
            "C" => Self::Committed { partition, commit },
            "P" => Self::Put { partition, commit },
            "U" => Self::Unknown { partition, commit },
            "X" => Self::Unavailable { partition, commit, reason: rest },
            "R" => Self::Unread { partition, commit, reason: rest },
            "L" => Self::FalseOutcome { partition, commit, what: rest },
            _ => return None,
        })
    }
}

/// The state of a rig across cycles.
#[derive(Default, Debug)]
pub(crate) struct StoreLedger {
    pub committed: HashMap<u64, u64>,
    /// Partition and row → revision.
    pub put: HashMap<(u64, u64), u64>,
    /// The number of acknowledgements.
    pub acknowledged: u64,
    /// How often a writer found a head older than an acknowledged commit.
    pub lost_at_start: u64,
    pub false_outcomes: u64,
    pub first_false_outcome: Option<String>,
    /// Partition → its commit that was certainly not applied and has not been retried.
    refused: HashMap<u64, u64>,
}

impl StoreLedger {
    pub(crate) fn record(&mut self, line: &WriterLine) {
        match line {
            WriterLine::Committed { partition, commit } => {
                self.acknowledged += 1;
                self.committed.insert(*partition, *commit);
                self.refused.remove(partition);
            }
            WriterLine::Put { partition, commit } => {
                self.acknowledged += 1;
                self.put.insert((*partition, workload::public_slot(*commit)), *commit);
            }
            WriterLine::Started { partition, commit } => {
                let acknowledged = self.committed.get(partition).copied().unwrap_or(0);
                self.lost_at_start += u64::from(*commit < acknowledged);
                self.record_head(*partition, *commit);
            }
            WriterLine::Unknown { partition, .. } => {
                self.refused.remove(partition);
            }
            WriterLine::Unavailable { partition, commit, .. } => {
                self.refused.insert(*partition, *commit);
            }
            WriterLine::Unread { .. } => {}
            WriterLine::FalseOutcome { partition, commit, what } => {
                self.refused.remove(partition);
                self.record_false_outcome(format!("partition {partition}, commit {commit}: {what}"));
            }
        }
    }

    /// A partition's head was read: a commit that was certainly not applied must not be in it.
    pub(crate) fn record_head(&mut self, partition: u64, commit: u64) {
        if let Some(refused) = self.refused.remove(&partition)
            && commit >= refused
        {
            self.record_false_outcome(format!(
                "partition {partition}, commit {refused}: reported as not applied, but the head is at {commit}"
            ));
        }
    }

    fn record_false_outcome(&mut self, what: String) {
        self.false_outcomes += 1;
        self.first_false_outcome.get_or_insert(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_parsed_as_written() {
        let text = || "why not".to_owned();
        let partition = 3;
        let commit = 17;
        for line in [
            WriterLine::Started { partition, commit },
            WriterLine::Committed { partition, commit },
            WriterLine::Put { partition, commit },
            WriterLine::Unknown { partition, commit },
            WriterLine::Unavailable { partition, commit, reason: text() },
            WriterLine::Unread { partition, commit, reason: text() },
            WriterLine::FalseOutcome { partition, commit, what: text() },
        ] {
            assert_eq!(WriterLine::from_text(&line.to_text()), Some(line));
        }
        assert_eq!(WriterLine::from_text("C 3 1"), None);
    }

    #[test]
    fn a_refused_commit_that_was_applied_is_a_false_outcome() {
        let refused = WriterLine::Unavailable { partition: 1, commit: 8, reason: String::new() };
        let mut ledger = StoreLedger::default();
        ledger.record(&refused);
        ledger.record_head(1, 7);
        // It was retried, and the writer was killed.
        ledger.record_head(1, 8);
        assert_eq!(ledger.false_outcomes, 0);
        ledger.record(&refused);
        ledger.record(&WriterLine::Started { partition: 1, commit: 8 });
        assert_eq!(ledger.false_outcomes, 1);
        assert!(ledger.first_false_outcome.is_some());
    }
}
