//! Reads the engine's journals while it writes them, from where the last reading ended, to know how long they are.
//!
//! It sees what was written, not what is on the disk; [`crate::length_recorder`] knows when that is the same. Journals
//! that the engine has deleted are forgotten.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::journal_frames::{NextBatch, next_batch};
use crate::journal_recovery::journals;
use crate::synced_lengths::JournalLength;

#[derive(Debug)]
pub(crate) struct JournalFollower {
    /// The engine's folder.
    folder: PathBuf,
    lengths: Vec<JournalLength>,
    /// The newest journal that was read. It can be read to its end even when the engine has deleted it.
    newest: Option<(u64, File)>,
    buffer: Vec<u8>,
}

/// Most readings are shorter. The buffer grows for a longer batch, up to several times the longest group.
const BUFFER_BYTES: usize = 256 * 1024;
const BUFFER_BYTES_MAX: usize = 128 * 1024 * 1024;

impl JournalFollower {
    /// Starts where the journals were read to.
    pub(crate) fn new(folder: &Path, lengths: Vec<JournalLength>) -> Self {
        Self { folder: folder.to_owned(), lengths, newest: None, buffer: Vec::new() }
    }

    /// Reads on to the last intact batch.
    pub(crate) fn follow(&mut self) -> io::Result<()> {
        let listed = journals(&self.folder)?;
        let followed = self.lengths.last().map_or(0, |length| length.number);
        for (number, path) in &listed {
            if *number < followed {
                continue;
            }
            if self.newest.as_ref().is_none_or(|(newest, _)| newest < number) {
                self.newest = Some((*number, File::open(path)?));
            }
            if self.lengths.last().is_none_or(|length| length.number < *number) {
                self.lengths.push(JournalLength::empty(*number));
            }
            self.read_on()?;
        }
        self.lengths.retain(|length| listed.iter().any(|(number, _)| *number == length.number));
        Ok(())
    }

    pub(crate) fn lengths(&self) -> &[JournalLength] {
        &self.lengths
    }

    /// Syncs the journal that is being written. The engine has synced the earlier ones.
    pub(crate) fn sync_newest(&self) -> io::Result<()> {
        self.newest.as_ref().map_or(Ok(()), |(_, file)| file.sync_data())
    }

    fn read_on(&mut self) -> io::Result<()> {
        let (Some((_, file)), Some(length)) = (&self.newest, self.lengths.last_mut()) else { return Ok(()) };
        self.buffer.resize(BUFFER_BYTES, 0);
        loop {
            let available = read_at_most(file, &mut self.buffer, length.bytes)?;
            let bytes = self.buffer.get(..available).unwrap_or_default();
            let mut read = 0;
            let rest = loop {
                match next_batch(bytes, read) {
                    NextBatch::Intact(batch) => {
                        length.extend(&batch);
                        read = batch.end;
                    }
                    rest => break rest,
                }
            };
            let filled = available == self.buffer.len();
            match rest {
                NextBatch::Incomplete if filled && read > 0 => {}
                NextBatch::Incomplete if filled && self.buffer.len() < BUFFER_BYTES_MAX => {
                    self.buffer.resize(self.buffer.len() * 4, 0);
                }
                _ => {
                    self.buffer.truncate(BUFFER_BYTES);
                    self.buffer.shrink_to_fit();
                    return Ok(());
                }
            }
        }
    }
}

/// Fills the buffer from this position of the file, as far as there are bytes.
fn read_at_most(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
