//! A backup as a stream of bytes: all rows of a running store as of one point in time, for a copy elsewhere.
//!
//! ```text
//! "ABIDEBK1"  frame  frame  …        a frame: length of its content (4 bytes), content
//! content:    0  layout (4), incarnation (8), what the caller attached
//!             1, 2, 3  rows of a keyspace, each: length of key (4), of value (4), key, value
//!             9  number of rows (8), xxh3 of the contents of all frames before (8)
//! ```
//!
//! All numbers are little-endian. The secret of continuation tokens stays where it is, so tokens of the original are
//! invalid in the copy. A stream that is cut off anywhere, or changed, is refused as a whole. Who may read a stream is
//! not decided here, nor where a copy is put.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::backup::{StoreBackupError, check_space, move_into_place, staging_path};
use crate::engine::{Engine, StoredRows};
use crate::folder::StoreFolder;
use crate::options::EmbeddedOptions;

const MAGIC: [u8; 8] = *b"ABIDEBK1";
const LAYOUT: u32 = 1;
const HEADER: u8 = 0;
const END: u8 = 9;
/// A frame has about a mebibyte of rows, or one larger row.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Hands out the copy piece by piece, until it is complete or `on_piece` returns false.
pub(crate) fn export(
    engine: &Engine,
    attachment: &[u8],
    on_piece: &mut dyn FnMut(Vec<u8>) -> bool,
) -> Result<(), StoreBackupError> {
    let mut hand_out = |piece| match on_piece(piece) {
        true => Ok(()),
        false => Err(StoreBackupError::Copy { reason: "the copy was stopped".to_owned() }),
    };
    let mut digest = Xxh3::new();
    let mut header = vec![HEADER];
    header.extend(LAYOUT.to_le_bytes());
    header.extend(engine.incarnation().to_le_bytes());
    header.extend(attachment);
    digest.update(&header);
    let mut first = MAGIC.to_vec();
    first.extend(frame(&header)?);
    hand_out(first)?;
    let mut count = 0_u64;
    engine.read_slices(|keyspace, rows| {
        let content = encode_rows(keyspace, rows)?;
        digest.update(&content);
        count += rows.len() as u64;
        hand_out(frame(&content)?)
    })?;
    let mut end = vec![END];
    end.extend(count.to_le_bytes());
    end.extend(digest.digest().to_le_bytes());
    hand_out(frame(&end)?)
}

fn encode_rows(keyspace: u8, rows: &StoredRows) -> Result<Vec<u8>, StoreBackupError> {
    let mut content = vec![keyspace];
    for (key, value) in rows {
        content.extend(length(key.len())?);
        content.extend(length(value.len())?);
        content.extend_from_slice(key);
        content.extend_from_slice(value);
    }
    Ok(content)
}

fn frame(content: &[u8]) -> Result<Vec<u8>, StoreBackupError> {
    let mut frame = length(content.len())?.to_vec();
    frame.extend_from_slice(content);
    Ok(frame)
}

fn length(bytes: usize) -> Result<[u8; 4], StoreBackupError> {
    let fits = u32::try_from(bytes).ok().filter(|_| bytes <= FRAME_BYTES_MAX);
    let too_long = || StoreBackupError::Copy { reason: format!("a row has {bytes} bytes") };
    Ok(fits.ok_or_else(too_long)?.to_le_bytes())
}

/// A copy that is made of such a stream. Dropped before it is finished, it leaves nothing.
pub struct StoreImport {
    to: PathBuf,
    aside: PathBuf,
    options: EmbeddedOptions,
    /// The engine before the folder, which must stay locked until the engine is closed.
    engine: Option<Engine>,
    folder: Option<StoreFolder>,
    /// Bytes that are not a whole frame yet.
    received: Vec<u8>,
    digest: Xxh3,
    rows: u64,
    began: bool,
    /// The incarnation of the original, and what was attached.
    header: Option<(u64, Vec<u8>)>,
    ended: bool,
}

impl std::fmt::Debug for StoreImport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreImport").field("to", &self.to).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl StoreImport {
    /// Starts a copy in a folder that does not exist.
    pub fn start(to: &Path, options: EmbeddedOptions) -> Result<Self, StoreBackupError> {
        let aside = staging_path(to)?;
        let folder = StoreFolder::lock(&aside)?;
        let (engine, _) = folder.open_engine(&options)?;
        Ok(Self {
            to: to.to_owned(),
            aside,
            options,
            engine: Some(engine),
            folder: Some(folder),
            received: Vec::new(),
            digest: Xxh3::new(),
            rows: 0,
            began: false,
            header: None,
            ended: false,
        })
    }

    /// Takes the next bytes of the stream, in pieces of any size.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), StoreBackupError> {
        self.received.extend_from_slice(bytes);
        let mut received = std::mem::take(&mut self.received);
        let mut at = 0;
        if !self.began {
            let Some((magic, _)) = received.split_first_chunk::<8>() else {
                self.received = received;
                return Ok(());
            };
            if *magic != MAGIC {
                return Err(invalid("it is no copy of a store"));
            }
            self.began = true;
            at = MAGIC.len();
        }
        while let Some((length, rest)) = received.get(at..).and_then(<[u8]>::split_first_chunk::<4>) {
            let length = u32::from_le_bytes(*length) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(invalid("a part of it is too long"));
            }
            let Some(content) = rest.get(..length) else { break };
            self.on_frame(content)?;
            at += 4 + length;
        }
        received.drain(..at.min(received.len()));
        self.received = received;
        Ok(())
    }

    /// The stream has ended: gives the copy its name, if it is complete. Returns what the original attached.
    pub fn finish(mut self) -> Result<Vec<u8>, StoreBackupError> {
        let incomplete = || invalid("it ends before its end mark");
        if !self.ended || !self.received.is_empty() {
            return Err(incomplete());
        }
        let (incarnation, attachment) = self.header.take().ok_or_else(incomplete)?;
        let engine = self.engine.take().ok_or_else(incomplete)?;
        engine.finish_copy(incarnation, None)?;
        let folder = self.folder.take().ok_or_else(incomplete)?;
        move_into_place(folder, engine, &self.aside, &self.to)?;
        Ok(attachment)
    }

    fn on_frame(&mut self, content: &[u8]) -> Result<(), StoreBackupError> {
        let Some((kind, rest)) = content.split_first() else { return Err(invalid("a part of it is empty")) };
        if self.ended {
            return Err(invalid("something follows its end mark"));
        }
        match *kind {
            END => {
                let (count, rest) =
                    rest.split_first_chunk().ok_or_else(|| invalid("its end mark is broken"))?;
                if u64::from_le_bytes(*count) != self.rows || rest != self.digest.digest().to_le_bytes() {
                    return Err(invalid("its rows are not those that were sent"));
                }
                self.ended = true;
                return Ok(());
            }
            HEADER if self.header.is_none() => {
                let (layout, rest) =
                    rest.split_first_chunk().ok_or_else(|| invalid("its header is broken"))?;
                if u32::from_le_bytes(*layout) != LAYOUT {
                    return Err(invalid("a newer release made it; use that release"));
                }
                let (incarnation, attachment) =
                    rest.split_first_chunk().ok_or_else(|| invalid("its header is broken"))?;
                self.header = Some((u64::from_le_bytes(*incarnation), attachment.to_vec()));
            }
            keyspace if self.header.is_some() => self.write_rows(keyspace, rest)?,
            _ => return Err(invalid("it does not begin with its header")),
        }
        self.digest.update(content);
        Ok(())
    }

    fn write_rows(&mut self, keyspace: u8, content: &[u8]) -> Result<(), StoreBackupError> {
        let engine = self.engine.as_ref().ok_or_else(|| invalid("it has ended"))?;
        check_space(&self.aside, &self.options, content.len() as u64)?;
        let mut rows = Vec::new();
        let mut rest = content;
        while !rest.is_empty() {
            let (row, after) = split_row(rest).ok_or_else(|| invalid("a row of it is broken"))?;
            rows.push(row);
            rest = after;
        }
        self.rows += rows.len() as u64;
        engine.write_rows(keyspace, rows)
    }
}

type BorrowedRow<'b> = (&'b [u8], &'b [u8]);

fn split_row(bytes: &[u8]) -> Option<(BorrowedRow<'_>, &[u8])> {
    let (key_length, bytes) = bytes.split_first_chunk()?;
    let (value_length, bytes) = bytes.split_first_chunk()?;
    let (key, bytes) = bytes.split_at_checked(u32::from_le_bytes(*key_length) as usize)?;
    let (value, rest) = bytes.split_at_checked(u32::from_le_bytes(*value_length) as usize)?;
    Some(((key, value), rest))
}

fn invalid(reason: &str) -> StoreBackupError {
    StoreBackupError::Copy { reason: format!("the copy that was received is not complete: {reason}") }
}

impl Drop for StoreImport {
    fn drop(&mut self) {
        self.engine = None;
        if self.folder.take().is_some() {
            // What is left is removed by the next attempt.
            drop(std::fs::remove_dir_all(&self.aside));
        }
    }
}
