//! The file `SYNCED`: how far each journal was on the disk, and what was in it up to there.
//!
//! ```text
//! byte 0     slot 0 ┐ each: magic, layout, number of the record, journals; checksum in its last 8 bytes
//! byte 4096  slot 1 ┘ records are written alternately, so a write that is torn destroys only the older record
//! ```
//!
//! A record states a lower bound: what it names was on the disk before the record was written, and later writes only
//! append. It does not know how journals are read; [`crate::journal_follower`] measures them, and
//! [`crate::journal_recovery`] compares them with the record.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::folder::{read_if_exists, write_synced};
use crate::journal_frames::{BatchSpan, extend_digest};

/// A journal up to the end of one of its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalLength {
    /// The number in its name.
    pub number: u64,
    pub bytes: u64,
    /// The digest of all batches up to here: it tells apart two journals of the same length.
    pub digest: u64,
}

impl JournalLength {
    pub(crate) fn empty(number: u64) -> Self {
        Self { number, bytes: 0, digest: 0 }
    }

    /// Goes on to the end of the next batch.
    pub(crate) fn extend(&mut self, batch: &BatchSpan) {
        let length = (batch.end - batch.start) as u64;
        self.bytes += length;
        self.digest = extend_digest(self.digest, batch, self.bytes);
    }
}

const SLOT_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"ABIDESYN";
const LAYOUT: u64 = 1;
const CHECKSUM_AT: usize = SLOT_BYTES - 8;
/// Older journals are left out. The engine seldom keeps more than three.
const JOURNALS_MAX: usize = (CHECKSUM_AT - 32) / 24;

/// The record that was written last, and the file for the next ones.
#[derive(Debug)]
pub(crate) struct SyncedLengths {
    path: PathBuf,
    /// The number of the newest record. It counts the writes of this file.
    record: u64,
    pub journals: Vec<JournalLength>,
}

impl SyncedLengths {
    /// The newest intact record, or `None` if the file is missing or has none.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        let Some(bytes) = read_if_exists(path)? else { return Ok(None) };
        let newest = bytes.chunks(SLOT_BYTES).filter_map(decode).max_by_key(|(record, _)| *record);
        Ok(newest.map(|(record, journals)| Self { path: path.to_owned(), record, journals }))
    }

    /// Writes a new file, in place of a missing or unusable one.
    pub(crate) fn create(path: &Path, journals: &[JournalLength]) -> io::Result<Self> {
        let mut bytes = encode(0, journals);
        bytes.resize(2 * SLOT_BYTES, 0);
        write_synced(path, &bytes)?;
        Ok(Self { path: path.to_owned(), record: 0, journals: journals.to_owned() })
    }

    /// Writes a record over the older one and syncs it. The file was written in full when it was created, so this
    /// neither allocates disk space nor changes the file's length.
    pub(crate) fn write(&mut self, journals: &[JournalLength]) -> io::Result<()> {
        let record = self.record + 1;
        let slot = (record % 2) * SLOT_BYTES as u64;
        let file = File::options().write(true).open(&self.path)?;
        file.write_all_at(&encode(record, journals), slot)?;
        file.sync_data()?;
        self.record = record;
        self.journals = journals.to_owned();
        Ok(())
    }
}

fn encode(record: u64, journals: &[JournalLength]) -> Vec<u8> {
    let journals = journals.get(journals.len().saturating_sub(JOURNALS_MAX)..).unwrap_or_default();
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    slot.extend(MAGIC);
    slot.extend(LAYOUT.to_le_bytes());
    slot.extend(record.to_le_bytes());
    slot.extend((journals.len() as u64).to_le_bytes());
    for journal in journals {
        slot.extend(journal.number.to_le_bytes());
        slot.extend(journal.bytes.to_le_bytes());
        slot.extend(journal.digest.to_le_bytes());
    }
    slot.resize(CHECKSUM_AT, 0);
    slot.extend(xxh3_64(&slot).to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<(u64, Vec<JournalLength>)> {
    let (content, checksum) = slot.split_at_checked(CHECKSUM_AT)?;
    if checksum != xxh3_64(content).to_le_bytes() {
        return None;
    }
    let (magic, content) = content.split_first_chunk::<8>()?;
    let mut numbers = content.chunks_exact(8).map(|number| number.try_into().map(u64::from_le_bytes));
    let mut next = || numbers.next()?.ok();
    let (layout, record, count) = (next()?, next()?, next()?);
    if *magic != MAGIC || layout != LAYOUT {
        return None;
    }
    let journals =
        (0..count).map(|_| Some(JournalLength { number: next()?, bytes: next()?, digest: next()? }));
    Some((record, journals.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(count: u64) -> Vec<JournalLength> {
        (0..count).map(|number| JournalLength { number, bytes: number * 10, digest: !number }).collect()
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("SYNCED");
        (folder, path)
    }

    #[test]
    fn a_torn_write_loses_one_record_and_no_more() {
        let (_folder, path) = file();
        let mut synced = SyncedLengths::create(&path, &lengths(1)).unwrap();
        for count in 2..6 {
            let before = std::fs::read(&path).unwrap();
            synced.write(&lengths(count)).unwrap();
            let after = std::fs::read(&path).unwrap();
            assert_eq!(after.len(), 2 * SLOT_BYTES);
            // A write that is torn after any byte leaves the new beginning of the slot and its old rest.
            let slot = if before[..SLOT_BYTES] == after[..SLOT_BYTES] { SLOT_BYTES } else { 0 };
            for torn_at in (slot + 20..slot + SLOT_BYTES).step_by(29) {
                let mut torn = before.clone();
                torn[slot..torn_at].copy_from_slice(&after[slot..torn_at]);
                if torn == after {
                    continue;
                }
                std::fs::write(&path, torn).unwrap();
                let read = SyncedLengths::read(&path).unwrap().unwrap();
                assert_eq!(read.journals, lengths(count - 1), "torn at {torn_at}");
            }
            std::fs::write(&path, &after).unwrap();
            assert_eq!(SyncedLengths::read(&path).unwrap().unwrap().journals, lengths(count));
        }
    }

    #[test]
    fn a_file_without_an_intact_record_is_not_read() {
        let (_folder, path) = file();
        assert!(SyncedLengths::read(&path).unwrap().is_none(), "missing");
        SyncedLengths::create(&path, &lengths(3)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in (0..SLOT_BYTES).step_by(7) {
            let mut rotten = whole.clone();
            rotten[at] ^= 1 << (at % 8);
            std::fs::write(&path, rotten).unwrap();
            assert!(SyncedLengths::read(&path).unwrap().is_none(), "byte {at}");
        }
        std::fs::write(&path, &whole[..100]).unwrap();
        assert!(SyncedLengths::read(&path).unwrap().is_none(), "cut off");
    }

    #[test]
    fn the_newest_journals_are_kept_if_there_are_too_many() {
        let (_folder, path) = file();
        SyncedLengths::create(&path, &lengths(500)).unwrap();
        let read = SyncedLengths::read(&path).unwrap().unwrap().journals;
        assert_eq!(read, lengths(500)[500 - JOURNALS_MAX..]);
    }

    /// Stored bytes that every later release must read.
    #[test]
    fn the_layout_of_a_record_is_fixed() {
        let slot = encode(7, &[JournalLength { number: 2, bytes: 300, digest: 0x0102_0304_0506_0708 }]);
        let mut expected = b"ABIDESYN".to_vec();
        for number in [1_u64, 7, 1, 2, 300, 0x0102_0304_0506_0708] {
            expected.extend(number.to_le_bytes());
        }
        assert_eq!(&slot[..expected.len()], expected);
        assert!(slot[expected.len()..CHECKSUM_AT].iter().all(|byte| *byte == 0));
        assert_eq!(slot[CHECKSUM_AT..], xxh3_64(&slot[..CHECKSUM_AT]).to_le_bytes());
    }
}
