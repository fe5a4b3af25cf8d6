//! Ids for the lines of a file that say none: the same for the same line whenever the file is read, and different within it.
//!
//! An id is a digest of the event's source, the line's text, and how many lines like it came before. What is mended in a file thus changes the
//! ids of the mended lines only.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// Different lines that are counted, in some 150 MB at most. A line that is first seen after them is told from lines like it by its number: it
/// is recognised as long as it stays where it is.
const COUNTED_MAX: usize = 4 * 1024 * 1024;

/// The ids of one file's lines.
pub(crate) struct LineIds {
    /// How often a line was there, by the beginning of its digest. Two lines that begin alike share a count, and have different ids still.
    seen: HashMap<u64, u64>,
    counted_max: usize,
}

impl LineIds {
    pub(crate) fn new() -> Self {
        Self { seen: HashMap::new(), counted_max: COUNTED_MAX }
    }

    /// The id of the next line without one. Blanks around a line, and how it ends, are not part of it.
    pub(crate) fn next(&mut self, source: &str, line: &str, number: u64) -> Uuid {
        let (source, line) = (source.as_bytes(), line.trim().as_bytes());
        let alike = digest(&[source, line]).first_chunk().copied().unwrap_or_default();
        let before = self.before(u64::from_be_bytes(alike), number);
        let id = digest(&[source, line, &before.to_be_bytes()]).first_chunk().copied().unwrap_or_default();
        Builder::from_custom_bytes(id).into_uuid()
    }

    fn before(&mut self, line: u64, number: u64) -> u64 {
        let has_room = self.seen.len() < self.counted_max;
        match self.seen.get_mut(&line) {
            Some(count) => {
                *count += 1;
                *count
            }
            None if has_room => {
                self.seen.insert(line, 0);
                0
            }
            None => number,
        }
    }
}

/// What is told apart is parts, not their sum: each goes in after its length.
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

    fn ids(lines: &[&str], counted_max: usize) -> Vec<Uuid> {
        let mut ids = LineIds { counted_max, ..LineIds::new() };
        lines.iter().zip(1..).map(|(line, number)| ids.next("s", line, number)).collect()
    }

    #[test]
    fn what_is_mended_changes_its_own_id_only() {
        let before = ids(&["a\n", "b\n", "a\n", "c"], COUNTED_MAX);
        let after = ids(&["a\r\n", "B\n", "new\n", " a\n", "c\n"], COUNTED_MAX);
        assert_eq!([before[0], before[2], before[3]], [after[0], after[3], after[4]]);
        assert_ne!(before[0], before[2], "the same line twice is two events");
        assert!(!before.contains(&after[1]) && !before.contains(&after[2]));
        assert_ne!(LineIds::new().next("t", "a", 1), before[0], "another source, another event");
    }

    #[test]
    fn ids_stay_what_they_were_in_earlier_versions() {
        let id = LineIds::new().next("abide-cli", "{\"data\": 1}", 1);
        assert_eq!(id.to_string(), "702f9e30-7167-8f5d-93cc-4a7108df832f");
    }

    #[test]
    fn lines_that_are_too_many_to_count_are_told_apart_by_their_numbers() {
        let lines = ["a", "b", "b", "a", "b"];
        let found = ids(&lines, 1);
        let different: std::collections::HashSet<_> = found.iter().collect();
        assert_eq!(different.len(), lines.len());
        assert_eq!(found, ids(&lines, 1));
        assert_eq!(found[3], ids(&lines, COUNTED_MAX)[3], "what was counted is counted on");
    }
}
