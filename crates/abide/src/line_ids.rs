//! Generates ids for events of a file that have none. A line gets the same id whenever the file is read, and no two
//! lines of a file share one.
//!
//! An id is a digest of the event's source, the line's text, and the number of equal lines before it. Correcting lines
//! of a file therefore changes the ids of these lines only.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// The number of distinct lines that are counted; they need at most some 150 MB. Further lines are distinguished from
/// equal ones by their line numbers: such a line keeps its id as long as it stays in its place.
const DISTINCT_LINES_MAX: usize = 4 * 1024 * 1024;

/// The ids of the lines of one file.
pub(crate) struct LineIds {
    /// The number of repeats of each line, by the first bytes of its digest. Two lines whose digests begin alike share
    /// a count, but still have different ids.
    repeats: HashMap<u64, u64>,
    distinct_lines_max: usize,
}

impl LineIds {
    pub(crate) fn new() -> Self {
        Self { repeats: HashMap::new(), distinct_lines_max: DISTINCT_LINES_MAX }
    }

    /// The id of the next line without one. White space around a line, and its line end, do not count.
    pub(crate) fn next_id(&mut self, source: &str, line: &str, number: u64) -> Uuid {
        let source = source.as_bytes();
        let line = line.trim().as_bytes();
        let prefix = digest(&[source, line]).first_chunk().copied().unwrap_or_default();
        let earlier = self.count_earlier(u64::from_be_bytes(prefix), number);
        let id = digest(&[source, line, &earlier.to_be_bytes()]).first_chunk().copied().unwrap_or_default();
        Builder::from_custom_bytes(id).into_uuid()
    }

    fn count_earlier(&mut self, line: u64, number: u64) -> u64 {
        let has_room = self.repeats.len() < self.distinct_lines_max;
        match self.repeats.get_mut(&line) {
            Some(count) => {
                *count += 1;
                *count
            }
            None if has_room => {
                self.repeats.insert(line, 0);
                0
            }
            None => number,
        }
    }
}

/// A digest of separate parts: each is preceded by its length, so that moving a boundary changes the digest.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(lines: &[&str], distinct_lines_max: usize) -> Vec<Uuid> {
        let mut ids = LineIds { distinct_lines_max, ..LineIds::new() };
        lines.iter().zip(1..).map(|(line, number)| ids.next_id("s", line, number)).collect()
    }

    #[test]
    fn a_corrected_line_changes_only_its_own_id() {
        let before = ids(&["a\n", "b\n", "a\n", "c"], DISTINCT_LINES_MAX);
        let after = ids(&["a\r\n", "B\n", "new\n", " a\n", "c\n"], DISTINCT_LINES_MAX);
        assert_eq!([before[0], before[2], before[3]], [after[0], after[3], after[4]]);
        assert_ne!(before[0], before[2], "the same line twice is two events");
        assert!(!before.contains(&after[1]) && !before.contains(&after[2]));
        assert_ne!(LineIds::new().next_id("t", "a", 1), before[0], "another source, another event");
    }

    #[test]
    fn ids_stay_what_they_were_in_earlier_versions() {
        let id = LineIds::new().next_id("abide-cli", "{\"data\": 1}", 1);
        assert_eq!(id.to_string(), "702f9e30-7167-8f5d-93cc-4a7108df832f");
    }

    #[test]
    fn lines_beyond_the_limit_are_distinguished_by_their_numbers() {
        let lines = ["a", "b", "b", "a", "b"];
        let limited = ids(&lines, 1);
        let distinct: std::collections::HashSet<_> = limited.iter().collect();
        assert_eq!(distinct.len(), lines.len());
        assert_eq!(limited, ids(&lines, 1));
        assert_eq!(limited[3], ids(&lines, DISTINCT_LINES_MAX)[3], "a counted line is still counted");
    }
}
