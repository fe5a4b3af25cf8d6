//! The engine's journal format, read only: a batch is Start, items, and End with the checksum of the items.
//!
//! It finds intact batches and the first break, and writes nothing; [`crate::journal_recovery`] decides what a break
//! means.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchSpan {
    pub start: usize,
    pub end: usize,
    pub sequence: u64,
    /// Of its items.
    pub checksum: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalBreak {
    pub at: usize,
    pub length: usize,
}

pub(crate) struct JournalScan {
    pub batches: Vec<BatchSpan>,
    /// The sequence number of the last intact batch, or of the journal before.
    pub last_sequence: Option<u64>,
    pub first_break: Option<JournalBreak>,
}

/// Reads intact batches from the beginning, up to the unwritten rest or the first break.
pub(crate) fn scan_batches(bytes: &[u8], last_sequence: Option<u64>) -> JournalScan {
    let mut scan = JournalScan { batches: Vec::new(), last_sequence, first_break: None };
    let mut at = 0;
    while let Some(batch) = batch_at(bytes, at).filter(|batch| follows(batch, scan.last_sequence)) {
        scan.last_sequence = Some(batch.sequence);
        at = batch.end;
        scan.batches.push(batch);
    }
    // The engine preallocates a new journal with zeros; they are no break.
    let length = len_without_trailing_zeros(bytes.get(at..).unwrap_or_default());
    scan.first_break = (length > 0).then_some(JournalBreak { at, length });
    scan
}

/// What follows at a position of a journal that is being written.
pub(crate) enum NextBatch {
    Intact(BatchSpan),
    /// The bytes end before the batch does.
    Incomplete,
    /// No batch, or one that is broken or not written completely.
    Broken,
}

pub(crate) fn next_batch(bytes: &[u8], at: usize) -> NextBatch {
    let mut input = ByteReader { bytes, at, overrun: false };
    match read_frame(&mut input) {
        Some((batch, true)) => NextBatch::Intact(batch),
        None if input.overrun => NextBatch::Incomplete,
        _ => NextBatch::Broken,
    }
}

/// The digest of all batches up to this one, which ends at this byte of its journal.
pub(crate) fn extend_digest(digest: u64, batch: &BatchSpan, end: u64) -> u64 {
    let numbers = [batch.sequence.to_le_bytes(), batch.checksum.to_le_bytes(), end.to_le_bytes()];
    xxh3_64_with_seed(numbers.as_flattened(), digest)
}

/// The number of bytes without trailing zeros. Compares whole blocks first: a new journal consists almost only of
/// zeros.
fn len_without_trailing_zeros(bytes: &[u8]) -> usize {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    let blocks = bytes.chunks(ZEROS.len());
    let zero_blocks = blocks.rev().take_while(|block| ZEROS.starts_with(block)).map(<[u8]>::len);
    let rest = bytes.get(..bytes.len() - zero_blocks.sum::<usize>()).unwrap_or_default();
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Every intact batch at or after a break, and the number of bytes that belong to none. A batch begins with a Start tag
/// and proves itself by its checksum, so every position is tried. But bytes inside a batch whose frame is intact are
/// that batch's data, whatever they look like.
pub(crate) fn intact_batches_after(bytes: &[u8], break_at: usize) -> (Vec<BatchSpan>, usize) {
    let end = len_without_trailing_zeros(bytes);
    let mut intact = Vec::new();
    let mut lost = 0;
    let mut at = break_at;
    while at < end {
        match frame_at(bytes, at) {
            Some((batch, true)) => {
                at = batch.end;
                intact.push(batch);
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
    (intact, lost)
}

/// True if the batch may follow one with this sequence number. The checksum of a batch does not cover its sequence
/// number, but numbers only grow, and not by large leaps.
pub(crate) fn follows(batch: &BatchSpan, last: Option<u64>) -> bool {
    const LEAP_MAX: u64 = 1 << 40;
    last.is_none_or(|last| batch.sequence > last && batch.sequence - last < LEAP_MAX)
}

/// The intact batch that begins here, if there is one.
fn batch_at(bytes: &[u8], start: usize) -> Option<BatchSpan> {
    frame_at(bytes, start).filter(|(_, intact)| *intact).map(|(batch, _)| batch)
}

/// The frame of a batch that begins here, if there is one, and whether its checksum is right.
fn frame_at(bytes: &[u8], start: usize) -> Option<(BatchSpan, bool)> {
    read_frame(&mut ByteReader { bytes, at: start, overrun: false })
}

fn read_frame(input: &mut ByteReader<'_>) -> Option<(BatchSpan, bool)> {
    const START: u8 = 1;
    const ITEM: u8 = 2;
    const END: u8 = 3;
    const CLEAR: u8 = 4;
    const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];

    let start = input.at;
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
        checksum.update(input.bytes.get(item..input.at)?);
    }
    let end = input.u8()?;
    let sum = input.u64()?;
    let trailer = input.array()?;
    let framed = end == END && trailer == TRAILER;
    let checksum = checksum.digest();
    framed.then_some((BatchSpan { start, end: input.at, sequence, checksum }, sum == checksum))
}

struct ByteReader<'b> {
    bytes: &'b [u8],
    at: usize,
    /// True if more was asked for than there are bytes.
    overrun: bool,
}

impl ByteReader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk).copied();
        self.overrun |= array.is_none();
        self.at += N;
        array
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
        let at = self.at.checked_add(bytes).filter(|at| *at <= self.bytes.len());
        self.overrun |= at.is_none();
        self.at = at?;
        Some(())
    }
}
