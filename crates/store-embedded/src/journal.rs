//! Checks and settles the engine's journal before the engine is opened.
//!
//! On recovery the engine reads its journal up to the first thing it cannot read. It drops the rest silently if that is a broken
//! tag or trailer, and refuses to open if it is a broken checksum. Neither tells a torn tail, which was never acknowledged and is
//! nobody's loss, from damage in the middle, behind which lie commits that were. This file does: a tail is torn only if no
//! complete batch lies behind the break, because every batch is synced before the next one is begun.
//!
//! It also writes the last journal into a fresh file. After a failed fsync the kernel may hold pages that it will never write; a commit
//! that is read back from them after a restart would be seen, acted upon, and lost in the next power cut.
//!
//! Knows nothing of what is in a batch; [`crate::frames`] reads them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::frames::{BatchAt, follows, walk, whole_batches_behind};

/// What is wrong with a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    pub file: PathBuf,
    pub at: usize,
    pub reason: &'static str,
}

/// What became of a store's journals when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    /// Bytes of a torn tail that were cut off: never acknowledged.
    pub torn_bytes: u64,
    /// Bytes of damaged batches that salvaging left out.
    pub lost_bytes: u64,
}

pub(crate) enum SettleError {
    Io(io::Error),
    Damaged(Damage),
}

impl From<io::Error> for SettleError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Settles every journal in the engine's folder. `clean` is what [`extent`] said when the store was last closed in order.
pub(crate) fn settle(folder: &Path, clean: Option<&Extent>, salvage: bool) -> Result<Settled, SettleError> {
    let journals = journals(folder)?;
    check_numbers(folder, &journals, clean, salvage)?;
    let mut settled = Settled::default();
    let mut last_sequence = None;
    // Written anew once all have been looked at: what is refused is left as it is.
    let mut rewrites: Vec<Rewrite> = Vec::new();
    let mut torn: Option<Damage> = None;
    for (number, path) in &journals {
        let bytes = fs::read(path)?;
        let mut found = walk(&bytes, last_sequence);
        let damage = |at, reason| Damage { file: path.clone(), at, reason };
        // A tail was torn in an earlier journal, and yet there are batches in this one: it was no tail.
        if let Some(damage) = torn.take_if(|_| !found.batches.is_empty() || found.broken.is_some())
            && !salvage
        {
            return Err(SettleError::Damaged(damage));
        }
        if let Some(broken) = found.broken {
            let (behind, lost) = whole_batches_behind(&bytes, broken.at);
            if !behind.is_empty() && !salvage {
                let reason = "a batch is broken or out of order, and whole ones lie behind it";
                return Err(SettleError::Damaged(damage(broken.at, reason)));
            }
            if clean.is_some() && !salvage {
                let reason = "a batch is broken, although the store was closed in order";
                return Err(SettleError::Damaged(damage(broken.at, reason)));
            }
            if behind.is_empty() {
                settled.torn_bytes += broken.length as u64;
                let reason = "a batch is broken, and whole ones follow in the next journal";
                torn = Some(damage(broken.at, reason));
            } else {
                settled.lost_bytes += lost as u64;
                let kept = behind.into_iter().filter(|batch| follows(batch, found.last_sequence));
                found.batches.extend(kept);
            }
        }
        let valid = found.batches.last().map_or(0, |batch| batch.end);
        if let Some(expected) = clean.filter(|expected| *number == expected.journal)
            && valid < expected.bytes
            && !salvage
        {
            let reason = "the end is missing, although the store was closed in order";
            return Err(SettleError::Damaged(damage(valid, reason)));
        }
        last_sequence = found.batches.last().map_or(last_sequence, |batch| Some(batch.sequence));
        let broken = found.broken.is_some();
        if !found.batches.is_empty() {
            // Only the last journal that has batches can hold a group that failed; the engine may have begun others after it.
            rewrites.retain(|earlier| earlier.broken);
        }
        if broken || clean.is_none() {
            rewrites.push(Rewrite { path, bytes, batches: found.batches, broken });
        }
    }
    for journal in rewrites {
        if journal.broken && salvage {
            fs::copy(journal.path, journal.path.with_extension("damaged"))?;
        }
        rewrite(journal.path, &journal.bytes, &journal.batches)?;
    }
    Ok(settled)
}

/// A journal that is to be written anew with these batches.
struct Rewrite<'j> {
    path: &'j Path,
    bytes: Vec<u8>,
    batches: Vec<BatchAt>,
    broken: bool,
}

/// The engine deletes journals from the oldest on and never the last: none may be missing in between.
fn check_numbers(
    folder: &Path,
    journals: &[(u64, PathBuf)],
    clean: Option<&Extent>,
    salvage: bool,
) -> Result<(), SettleError> {
    let missing = |number: u64| {
        let file = folder.join(format!("{number}.jnl"));
        SettleError::Damaged(Damage { file, at: 0, reason: "the journal is missing" })
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
    let gap = journals.iter().zip(journals.iter().skip(1)).find(|((one, _), (next, _))| one + 1 != *next);
    gap.map_or(Ok(()), |((one, _), _)| Err(missing(one + 1)))
}

/// Where the active journal ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub journal: u64,
    pub bytes: usize,
}

impl Extent {
    pub(crate) fn to_text(&self) -> String {
        format!("{} {}\n", self.journal, self.bytes)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (journal, bytes) = text.trim_end().split_once(' ')?;
        Some(Self { journal: journal.parse().ok()?, bytes: bytes.parse().ok()? })
    }
}

/// Where the active journal ends now, for [`settle`] to compare with at the next open.
pub(crate) fn extent(folder: &Path) -> io::Result<Option<Extent>> {
    let Some((journal, path)) = journals(folder)?.pop() else { return Ok(None) };
    let bytes = fs::read(path)?;
    let end = walk(&bytes, None).batches.last().map_or(0, |batch| batch.end);
    Ok(Some(Extent { journal, bytes: end }))
}

fn journals(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort();
    Ok(found)
}

/// Replaces a journal by a fresh file with these batches only, which is on the disk before it takes the old one's name.
fn rewrite(path: &Path, bytes: &[u8], batches: &[BatchAt]) -> io::Result<()> {
    let fresh = path.with_extension("fresh");
    let mut file = File::create(&fresh)?;
    for batch in batches {
        file.write_all(bytes.get(batch.start..batch.end).unwrap_or_default())?;
    }
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
