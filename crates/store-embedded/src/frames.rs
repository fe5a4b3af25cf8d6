//! The engine's journal format, read only: a batch is Start, items, End with the checksum of the items.
//!
//! Says where whole batches are and where that stops being so; what it means is for [`crate::journal`] to say.

use xxhash_rust::xxh3::Xxh3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchAt {
    pub start: usize,
    pub end: usize,
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub at: usize,
    pub length: usize,
}

pub(crate) struct Walk {
    pub batches: Vec<BatchAt>,
    /// Of the last whole batch, or of the journal before.
    pub last_sequence: Option<u64>,
    pub broken: Option<Broken>,
}

/// Whole batches from the beginning, up to the unwritten rest or the first break.
pub(crate) fn walk(bytes: &[u8], last_sequence: Option<u64>) -> Walk {
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
pub(crate) fn whole_batches_behind(bytes: &[u8], broken: usize) -> (Vec<BatchAt>, usize) {
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
pub(crate) fn follows(batch: &BatchAt, last: Option<u64>) -> bool {
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
