//! Checks and recovers the engine's journals before the engine is opened.
//!
//! On recovery the engine reads its journal up to the first bytes that it cannot read. It silently drops the rest if a
//! tag or trailer is broken, and refuses to open if a checksum is wrong. Neither distinguishes a torn tail, which was
//! never acknowledged, from damage in the middle, which is followed by acknowledged commits. This file does: a tail is
//! torn only if no complete batch follows the break, because every batch is synced before the next one begins.
//!
//! A journal that ends before the length that was recorded as synced, or that has other batches up to there, is damage
//! too, whatever its end looks like: it was emptied, overwritten or swapped with another one.
//!
//! It also writes the last journal to a fresh file. After a failed fsync the kernel may hold pages that it will never
//! write. A commit that is read back from them after a restart would be seen, acted upon, and lost in the next power
//! cut.
//!
//! It does not know the content of a batch; [`crate::journal_frames`] reads the frames.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::journal_frames::{BatchSpan, follows, intact_batches_after, scan_batches};
use crate::private_files::new_file;
use crate::synced_lengths::JournalLength;

/// Damage of a journal or another file of the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileDamage {
    pub file: PathBuf,
    pub at: usize,
    pub reason: Cow<'static, str>,
}

/// The bytes that were removed from a store's journals when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalRecovery {
    /// Bytes of a torn tail that were cut off; they were never acknowledged.
    pub torn_bytes: u64,
    /// Bytes of damaged batches that salvage left out.
    pub lost_bytes: u64,
}

pub(crate) enum JournalRecoveryError {
    Io(io::Error),
    Damaged(FileDamage),
}

impl From<io::Error> for JournalRecoveryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Recovers every journal in the engine's folder. `clean` is the [`extent`] recorded when the store was last closed
/// cleanly, `synced` what was recorded while it was open. Also returns the lengths of the recovered journals.
pub(crate) fn recover(
    folder: &Path,
    clean: Option<&JournalExtent>,
    synced: &[JournalLength],
    salvage: bool,
) -> Result<(JournalRecovery, Vec<JournalLength>), JournalRecoveryError> {
    let journals = journals(folder)?;
    check_no_journal_missing(folder, &journals, clean, synced, salvage)?;
    let mut lengths = Vec::with_capacity(journals.len());
    let mut recovery = JournalRecovery::default();
    let mut last_sequence = None;
    // Journals are rewritten only after all of them were checked: a store that is refused stays unchanged.
    let mut rewrites: Vec<JournalRewrite> = Vec::new();
    let mut torn: Option<FileDamage> = None;
    for (number, path) in &journals {
        let bytes = fs::read(path)?;
        let mut scan = scan_batches(&bytes, last_sequence);
        let damage = |at, reason: &'static str| FileDamage { file: path.clone(), at, reason: reason.into() };
        // An earlier journal seemed to have a torn tail, but this one has batches: it was no tail.
        if let Some(damage) = torn.take_if(|_| !scan.batches.is_empty() || scan.first_break.is_some())
            && !salvage
        {
            return Err(JournalRecoveryError::Damaged(damage));
        }
        if let Some(first_break) = scan.first_break {
            let (later, lost) = intact_batches_after(&bytes, first_break.at);
            if !later.is_empty() && !salvage {
                let reason = "a batch is broken or out of order, and intact batches follow";
                return Err(JournalRecoveryError::Damaged(damage(first_break.at, reason)));
            }
            if clean.is_some() && !salvage {
                let reason = "a batch is broken, although the store was shut down cleanly";
                return Err(JournalRecoveryError::Damaged(damage(first_break.at, reason)));
            }
            if later.is_empty() {
                recovery.torn_bytes += first_break.length as u64;
                let reason = "a batch is broken, and intact batches follow in the next journal";
                torn = Some(damage(first_break.at, reason));
            } else {
                recovery.lost_bytes += lost as u64;
                let salvaged = later.into_iter().filter(|batch| follows(batch, scan.last_sequence));
                scan.batches.extend(salvaged);
            }
        }
        let valid = scan.batches.last().map_or(0, |batch| batch.end);
        if let Some(expected) = clean.filter(|expected| *number == expected.journal)
            && valid < expected.bytes
            && !salvage
        {
            let reason = "the end is missing, although the store was shut down cleanly";
            return Err(JournalRecoveryError::Damaged(damage(valid, reason)));
        }
        let mut broken = scan.first_break.is_some();
        if let Some(expected) = synced.iter().find(|expected| expected.number == *number)
            && let Some((at, reason)) = contradiction(expected, &scan.batches)
        {
            if !salvage {
                return Err(JournalRecoveryError::Damaged(FileDamage { file: path.clone(), at, reason }));
            }
            // What looked like a torn tail was lost.
            if let Some(tail) = torn.take() {
                recovery.torn_bytes -= scan.first_break.map_or(0, |tail| tail.length as u64);
                debug_assert_eq!(tail.file, *path);
            }
            recovery.lost_bytes += expected.bytes.saturating_sub(valid as u64);
            broken = true;
        }
        last_sequence = scan.batches.last().map_or(last_sequence, |batch| Some(batch.sequence));
        let mut length = JournalLength::empty(*number);
        scan.batches.iter().for_each(|batch| length.extend(batch));
        lengths.push(length);
        if !scan.batches.is_empty() {
            // Only the last journal with batches can contain a failed group; the engine may have begun others after it.
            rewrites.retain(|earlier| earlier.broken);
        }
        if broken || clean.is_none() {
            rewrites.push(JournalRewrite { path, bytes, batches: scan.batches, broken });
        }
    }
    for journal in rewrites {
        if journal.broken && salvage {
            fs::copy(journal.path, journal.path.with_extension("damaged"))?;
        }
        rewrite(journal.path, &journal.bytes, &journal.batches)?;
    }
    Ok((recovery, lengths))
}

/// Where and how the batches of a journal contradict the record of what was synced, if they do.
fn contradiction(synced: &JournalLength, batches: &[BatchSpan]) -> Option<(usize, Cow<'static, str>)> {
    let mut length = JournalLength::empty(synced.number);
    let mut batches = batches.iter();
    while length.bytes < synced.bytes {
        match batches.next() {
            Some(batch) => length.extend(batch),
            None => {
                let reason = format!("it ends here, but it was synced up to byte {}", synced.bytes);
                return Some((usize::try_from(length.bytes).unwrap_or(usize::MAX), reason.into()));
            }
        }
    }
    (length != *synced).then_some((0, "its batches are not those that were synced in it".into()))
}

/// A journal to rewrite with these batches.
struct JournalRewrite<'j> {
    path: &'j Path,
    bytes: Vec<u8>,
    batches: Vec<BatchSpan>,
    broken: bool,
}

/// Checks that there is no gap: the engine deletes journals from the oldest on and never the last.
fn check_no_journal_missing(
    folder: &Path,
    journals: &[(u64, PathBuf)],
    clean: Option<&JournalExtent>,
    synced: &[JournalLength],
    salvage: bool,
) -> Result<(), JournalRecoveryError> {
    let missing = |number: u64| {
        let file = folder.join(format!("{number}.jnl"));
        JournalRecoveryError::Damaged(FileDamage { file, at: 0, reason: "the journal is missing".into() })
    };
    let Some((last, _)) = journals.last() else {
        return Err(missing(clean.map_or(0, |expected| expected.journal)));
    };
    if salvage {
        return Ok(());
    }
    if let Some(expected) = clean.filter(|expected| expected.journal != *last) {
        return Err(missing(expected.journal));
    }
    if let Some(expected) = synced.last().filter(|expected| expected.number > *last) {
        return Err(missing(expected.number));
    }
    let gap = journals.iter().zip(journals.iter().skip(1)).find(|((one, _), (next, _))| one + 1 != *next);
    gap.map_or(Ok(()), |((one, _), _)| Err(missing(one + 1)))
}

/// The number of the active journal, and the bytes that are written in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JournalExtent {
    pub journal: u64,
    pub bytes: usize,
}

impl JournalExtent {
    pub(crate) fn to_text(&self) -> String {
        format!("{} {}\n", self.journal, self.bytes)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (journal, bytes) = text.trim_end().split_once(' ')?;
        Some(Self { journal: journal.parse().ok()?, bytes: bytes.parse().ok()? })
    }
}

/// The present extent of the active journal, for [`recover`] to compare with at the next open.
pub(crate) fn extent(folder: &Path) -> io::Result<Option<JournalExtent>> {
    let Some((journal, path)) = journals(folder)?.pop() else { return Ok(None) };
    let bytes = fs::read(path)?;
    let end = scan_batches(&bytes, None).batches.last().map_or(0, |batch| batch.end);
    Ok(Some(JournalExtent { journal, bytes: end }))
}

/// The journals in the engine's folder, from the oldest to the newest.
pub(crate) fn journals(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        journals.extend(number.map(|number| (number, path)));
    }
    journals.sort();
    Ok(journals)
}

/// Replaces a journal by a fresh file with only these batches. The file is synced before it takes the old name.
fn rewrite(path: &Path, bytes: &[u8], batches: &[BatchSpan]) -> io::Result<()> {
    let fresh = path.with_extension("fresh");
    let mut file = new_file(&fresh)?;
    for batch in batches {
        file.write_all(bytes.get(batch.start..batch.end).unwrap_or_default())?;
    }
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
