//! What was acknowledged: the last commit of every partition and the revision of every public row, as the writer said them.

use std::collections::HashMap;

use crate::workload;

/// One line of a writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// The partition's head when the writer started, or when it asked again after a failure.
    Started { partition: u64, commit: u64 },
    /// Acknowledged.
    Committed { partition: u64, commit: u64 },
    /// The public row of this commit was acknowledged.
    Put { partition: u64, commit: u64 },
    /// The outcome was unknown.
    Unknown { partition: u64, commit: u64 },
    /// Surely not applied, and why.
    Unavailable { partition: u64, commit: u64, reason: String },
    /// What came of this commit could not be asked, and why.
    Unread { partition: u64, commit: u64, reason: String },
    /// The store said of this commit what was not so.
    Lied { partition: u64, commit: u64, what: String },
}

impl Line {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Started { partition, commit } => format!("S {partition} {commit}\n"),
            Self::Committed { partition, commit } => format!("C {partition} {commit}\n"),
            Self::Put { partition, commit } => format!("P {partition} {commit}\n"),
            Self::Unknown { partition, commit } => format!("U {partition} {commit}\n"),
            Self::Unavailable { partition, commit, reason } => format!("X {partition} {commit} {reason}\n"),
            Self::Unread { partition, commit, reason } => format!("R {partition} {commit} {reason}\n"),
            Self::Lied { partition, commit, what } => format!("L {partition} {commit} {what}\n"),
        }
    }

    /// A line as written; half a line, from a writer killed in the middle of it, says nothing.
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
            "L" => Self::Lied { partition, commit, what: rest },
            _ => return None,
        })
    }
}

/// All a rig remembers across cycles.
#[derive(Default, Debug)]
pub(crate) struct Ledger {
    pub committed: HashMap<u64, u64>,
    /// Partition and row → revision.
    pub put: HashMap<(u64, u64), u64>,
    /// How many acknowledgements there were.
    pub acknowledged: u64,
    /// Heads that a writer found behind what had been acknowledged.
    pub lost_at_start: u64,
    pub lies: u64,
    pub first_lie: Option<String>,
    /// Commits that were surely not applied and have not been tried again.
    refused: HashMap<u64, u64>,
}

impl Ledger {
    pub(crate) fn note(&mut self, line: &Line) {
        match line {
            Line::Committed { partition, commit } => {
                self.acknowledged += 1;
                self.committed.insert(*partition, *commit);
                self.refused.remove(partition);
            }
            Line::Put { partition, commit } => {
                self.acknowledged += 1;
                self.put.insert((*partition, workload::public_slot(*commit)), *commit);
            }
            Line::Started { partition, commit } => {
                let acknowledged = self.committed.get(partition).copied().unwrap_or(0);
                self.lost_at_start += u64::from(*commit < acknowledged);
                self.note_head(*partition, *commit);
            }
            Line::Unknown { partition, .. } => {
                self.refused.remove(partition);
            }
            Line::Unavailable { partition, commit, .. } => {
                self.refused.insert(*partition, *commit);
            }
            Line::Unread { .. } => {}
            Line::Lied { partition, commit, what } => {
                self.refused.remove(partition);
                self.note_lie(format!("partition {partition}, commit {commit}: {what}"));
            }
        }
    }

    /// A partition's head was read: what was surely not applied must not be there.
    pub(crate) fn note_head(&mut self, partition: u64, commit: u64) {
        if let Some(refused) = self.refused.remove(&partition)
            && commit >= refused
        {
            self.note_lie(format!(
                "partition {partition}, commit {refused}: surely not applied, and the head is at {commit}"
            ));
        }
    }

    fn note_lie(&mut self, what: String) {
        self.lies += 1;
        self.first_lie.get_or_insert(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_it_was_written() {
        let text = || "why not".to_owned();
        let (partition, commit) = (3, 17);
        for line in [
            Line::Started { partition, commit },
            Line::Committed { partition, commit },
            Line::Put { partition, commit },
            Line::Unknown { partition, commit },
            Line::Unavailable { partition, commit, reason: text() },
            Line::Unread { partition, commit, reason: text() },
            Line::Lied { partition, commit, what: text() },
        ] {
            assert_eq!(Line::from_text(&line.to_text()), Some(line));
        }
        assert_eq!(Line::from_text("C 3 1"), None);
    }

    #[test]
    fn a_refused_commit_that_is_there_is_a_lie() {
        let refused = Line::Unavailable { partition: 1, commit: 8, reason: String::new() };
        let mut ledger = Ledger::default();
        ledger.note(&refused);
        ledger.note_head(1, 7);
        // It was tried again, and the writer was killed.
        ledger.note_head(1, 8);
        assert_eq!(ledger.lies, 0);
        ledger.note(&refused);
        ledger.note(&Line::Started { partition: 1, commit: 8 });
        assert_eq!(ledger.lies, 1);
        assert!(ledger.first_lie.is_some());
    }
}
