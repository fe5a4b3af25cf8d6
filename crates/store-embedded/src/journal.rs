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
//! Knows the engine's journal format (a batch is Start, items, End with the checksum of the items) and nothing of what is in it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// What is wrong with a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    pub file: PathBuf,
    pub at: usize,
    pub reason: &'static str,
}

/// What became of the journals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Settled {
    /// Bytes of a torn tail that were cut off.
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
    // The last journal that has batches: the engine may have begun another one after a failure, and written nothing into it.
    let mut last_written: Option<(&Path, Vec<u8>, Vec<BatchAt>)> = None;
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
            if behind.is_empty() {
                settled.torn_bytes += broken.length as u64;
                torn =
                    Some(damage(broken.at, "a batch is broken, and whole ones follow in the next journal"));
            } else {
                settled.lost_bytes += lost as u64;
                fs::copy(path, path.with_extension("damaged"))?;
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
        if found.broken.is_some() {
            rewrite(path, &bytes, &found.batches)?;
        } else if !found.batches.is_empty() {
            last_written = Some((path, bytes, found.batches));
        }
    }
    if let Some((path, bytes, batches)) = last_written.filter(|_| clean.is_none()) {
        rewrite(path, &bytes, &batches)?;
    }
    Ok(settled)
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BatchAt {
    start: usize,
    end: usize,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Broken {
    at: usize,
    length: usize,
}

struct Walk {
    batches: Vec<BatchAt>,
    /// Of the last whole batch, or of the journal before.
    last_sequence: Option<u64>,
    broken: Option<Broken>,
}

/// Whole batches from the beginning, up to the unwritten rest or the first break.
fn walk(bytes: &[u8], last_sequence: Option<u64>) -> Walk {
    let mut walk = Walk { batches: Vec::new(), last_sequence, broken: None };
    let mut at = 0;
    while let Some(batch) = batch_at(bytes, at).filter(|batch| follows(batch, walk.last_sequence)) {
        walk.last_sequence = Some(batch.sequence);
        at = batch.end;
        walk.batches.push(batch);
    }
    // The engine lengthens a new journal with zeros in advance; they are no break.
    let length = written(bytes.get(at..).unwrap_or_default());
    walk.broken = (length > 0).then_some(Broken { at, length });
    walk
}

/// How many bytes are left when trailing zeros are not counted. Block by block first: a new journal is zeros almost to its end.
fn written(bytes: &[u8]) -> usize {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    let blocks = bytes.chunks(ZEROS.len());
    let zero_blocks = blocks.rev().take_while(|block| ZEROS.starts_with(block)).map(<[u8]>::len);
    let rest = bytes.get(..bytes.len() - zero_blocks.sum::<usize>()).unwrap_or_default();
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Every whole batch at or behind a break, and how many bytes belong to none. A batch begins with a Start tag and vouches for itself by
/// its checksum, so every place is tried; but what lies inside a batch whose frame still holds is that batch's data, whatever it looks
/// like.
fn whole_batches_behind(bytes: &[u8], broken: usize) -> (Vec<BatchAt>, usize) {
    let end = written(bytes);
    let (mut found, mut lost, mut at) = (Vec::new(), 0, broken);
    while at < end {
        match frame_at(bytes, at) {
            Some((batch, true)) => {
                at = batch.end;
                found.push(batch);
            }
            Some((batch, false)) => {
                lost += batch.end - at;
                at = batch.end;
            }
            None => {
                at += 1;
                lost += 1;
            }
        }
    }
    (found, lost)
}

/// The checksum does not cover a batch's sequence number. Numbers only grow, and not by leaps.
fn follows(batch: &BatchAt, last: Option<u64>) -> bool {
    const LEAP_MAX: u64 = 1 << 40;
    last.is_none_or(|last| batch.sequence > last && batch.sequence - last < LEAP_MAX)
}

/// The whole batch that begins here, if one does.
fn batch_at(bytes: &[u8], start: usize) -> Option<BatchAt> {
    frame_at(bytes, start).filter(|(_, intact)| *intact).map(|(batch, _)| batch)
}

/// The frame of a batch that begins here, if one does, and whether its checksum holds.
fn frame_at(bytes: &[u8], start: usize) -> Option<(BatchAt, bool)> {
    const START: u8 = 1;
    const ITEM: u8 = 2;
    const END: u8 = 3;
    const CLEAR: u8 = 4;
    const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];

    let mut input = Input { bytes, at: start };
    if input.u8()? != START {
        return None;
    }
    let items = input.u32()?;
    let sequence = input.u64()?;
    let mut checksum = Xxh3::new();
    for _ in 0..items {
        let item = input.at;
        match input.u8()? {
            ITEM => {
                let _value_type = input.u8()?;
                let _compression = input.u8()?;
                let _keyspace = input.u64()?;
                let key_length = usize::from(input.u16()?);
                let _plain_length = input.u32()?;
                let value_length = usize::try_from(input.u32()?).ok()?;
                input.skip(key_length.checked_add(value_length)?)?;
            }
            CLEAR => input.skip(8)?,
            _ => return None,
        }
        checksum.update(bytes.get(item..input.at)?);
    }
    let (end, sum, trailer) = (input.u8()?, input.u64()?, input.array()?);
    let framed = end == END && trailer == TRAILER;
    framed.then_some((BatchAt { start, end: input.at, sequence }, sum == checksum.digest()))
}

struct Input<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(array)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }
}
