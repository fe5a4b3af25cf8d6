//! Records acknowledged events and effects of activities, one line each, in files beside the store. A restarted demo
//! compares them with the server and continues.
//!
//! The ledger belongs to the devices: it never reads the server's store. A line is written with one write. If a kill
//! cuts a line off, opening the file ends that line, so nothing is ever appended to it.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct FleetLedger {
    inner: Mutex<LedgerState>,
}

#[derive(Debug)]
struct LedgerState {
    acknowledged: File,
    effects: File,
    /// The number of acknowledged events by device.
    acknowledged_by_device: BTreeMap<String, u64>,
    effect_keys: HashSet<String>,
    duplicate_effects: u64,
    suppressed_repeats: u64,
}

/// The totals for the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LedgerTotals {
    pub(super) devices: u64,
    pub(super) acknowledged: u64,
    pub(super) effects: u64,
    /// Effects that were recorded more than once.
    pub(super) duplicate_effects: u64,
    /// Repeated attempts whose effect existed already and was not applied again.
    pub(super) suppressed_repeats: u64,
}

impl FleetLedger {
    /// Opens the ledger in a folder and reads the lines of earlier runs.
    pub(super) fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file =
            |name: &str| OpenOptions::new().create(true).append(true).read(true).open(folder.join(name));
        let mut acknowledged = file("acknowledged.log")?;
        let mut effects = file("effects.log")?;
        let mut acknowledged_by_device = BTreeMap::new();
        replay_lines(&mut acknowledged, |device| {
            *acknowledged_by_device.entry(device.to_owned()).or_insert(0) += 1
        })?;
        let mut effect_keys = HashSet::new();
        let mut duplicate_effects = 0;
        replay_lines(&mut effects, |key| {
            duplicate_effects += u64::from(!effect_keys.insert(key.to_owned()))
        })?;
        let inner = LedgerState {
            acknowledged,
            effects,
            acknowledged_by_device,
            effect_keys,
            duplicate_effects,
            suppressed_repeats: 0,
        };
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// Records that the server has acknowledged an event of the device.
    pub(super) fn record_acknowledged(&self, device: &str) {
        let mut inner = self.lock();
        // The file serves only the comparison after a kill. The demo continues if it cannot be written.
        drop(append_line(&mut inner.acknowledged, device));
        *inner.acknowledged_by_device.entry(device.to_owned()).or_insert(0) += 1;
    }

    /// Records an effect unless its key was recorded before. Returns true if the effect is new.
    pub(super) fn record_effect(&self, idempotency_key: &str) -> bool {
        let mut inner = self.lock();
        if !inner.effect_keys.insert(idempotency_key.to_owned()) {
            inner.suppressed_repeats += 1;
            return false;
        }
        drop(append_line(&mut inner.effects, idempotency_key));
        true
    }

    pub(super) fn acknowledged_by_device(&self) -> BTreeMap<String, u64> {
        self.lock().acknowledged_by_device.clone()
    }

    /// The number of acknowledged events of a device.
    pub(super) fn acknowledged_of(&self, device: &str) -> u64 {
        self.lock().acknowledged_by_device.get(device).copied().unwrap_or(0)
    }

    pub(super) fn totals(&self) -> LedgerTotals {
        let inner = self.lock();
        LedgerTotals {
            devices: inner.acknowledged_by_device.len() as u64,
            acknowledged: inner.acknowledged_by_device.values().sum(),
            effects: inner.effect_keys.len() as u64,
            duplicate_effects: inner.duplicate_effects,
            suppressed_repeats: inner.suppressed_repeats,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of every complete line.
const LINE_END_MARK: &str = " ok";

/// Appends one line with one write, so that a kill cannot come between its parts.
fn append_line(file: &mut impl Write, entry: &str) -> std::io::Result<()> {
    file.write_all(format!("{entry}{LINE_END_MARK}\n").as_bytes())
}

/// Passes every complete line to `on_entry`, and ends the last line if it was cut off.
fn replay_lines(file: &mut File, mut on_entry: impl FnMut(&str)) -> std::io::Result<()> {
    let mut reader = BufReader::new(&mut *file);
    let mut line = Vec::new();
    let mut is_ended = true;
    while reader.read_until(b'\n', &mut line)? > 0 {
        is_ended = line.ends_with(b"\n");
        // A line that lacks only its newline counts now, as it will after it has been ended. Any other line that was
        // cut off is ignored: its content is unknown, and the device sends the event again.
        if let Some(entry) = String::from_utf8_lossy(&line).trim_end_matches('\n').strip_suffix(LINE_END_MARK)
        {
            on_entry(entry);
        }
        line.clear();
    }
    if is_ended { Ok(()) } else { file.write_all(b"\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_reads_complete_lines_and_ignores_one_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = FleetLedger::open(folder.path()).unwrap();
        ledger.record_acknowledged("dev-1");
        ledger.record_acknowledged("dev-1");
        assert!(ledger.record_effect("key-1") && !ledger.record_effect("key-1"));
        drop(ledger);
        let mut file = OpenOptions::new().append(true).open(folder.path().join("acknowledged.log")).unwrap();
        write!(file, "dev-1 o").unwrap();
        let ledger = FleetLedger::open(folder.path()).unwrap();
        assert_eq!(ledger.acknowledged_by_device(), BTreeMap::from([("dev-1".to_owned(), 2)]));
        assert!(!ledger.record_effect("key-1"));
        assert_eq!(
            ledger.totals(),
            LedgerTotals {
                devices: 1,
                acknowledged: 2,
                effects: 1,
                duplicate_effects: 0,
                suppressed_repeats: 1
            }
        );
    }

    #[test]
    fn nothing_is_appended_to_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let cut_off = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        cut_off("acknowledged.log", "dev-1 ok\ndev-1");
        cut_off("effects.log", "key-1 ok\nkey-2 o");
        for run in 1..=3 {
            let ledger = FleetLedger::open(folder.path()).unwrap();
            assert_eq!(ledger.acknowledged_by_device(), BTreeMap::from([("dev-1".to_owned(), run)]));
            ledger.record_acknowledged("dev-1");
            assert_eq!(ledger.record_effect("key-2"), run == 1);
            assert_eq!(ledger.totals().effects, 2);
        }
        let written = std::fs::read_to_string(folder.path().join("effects.log")).unwrap();
        assert_eq!(written, "key-1 ok\nkey-2 o\nkey-2 ok\n");
    }

    #[test]
    fn a_line_that_lacks_only_its_newline_counts_in_every_run() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("acknowledged.log"), "dev-1 ok").unwrap();
        for _ in 0..2 {
            assert_eq!(FleetLedger::open(folder.path()).unwrap().acknowledged_of("dev-1"), 1);
        }
    }

    #[test]
    fn an_effect_that_was_recorded_twice_is_a_duplicate() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("effects.log"), "key-1 ok\nkey-2 ok\nkey-1 ok\n").unwrap();
        let totals = FleetLedger::open(folder.path()).unwrap().totals();
        assert_eq!((totals.effects, totals.duplicate_effects), (2, 1));
    }

    #[test]
    fn a_line_is_one_write() {
        struct Writes(Vec<Vec<u8>>);
        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut writes = Writes(Vec::new());
        append_line(&mut writes, "dev-1").unwrap();
        assert_eq!(writes.0, [b"dev-1 ok\n"]);
    }
}
