//! kill -9 of the writer at random times, again and again, on the same two stores.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use abide_store::memory::SeededRng;
use abide_testkit::process::{ProgramProcess, block_on, signal_of};
use abide_testkit::verdict::control_verdict;
use rustix::process::Signal;

use crate::ledger::{StoreLedger, WriterLine};
use crate::store_check::{self, StoreCheckError, StoreCheckReport, check};

pub(crate) const PARTITIONS: u64 = 16;

/// One store of the rig and the ledger of its acknowledgements.
struct StoreUnderTest {
    folder: PathBuf,
    small_buffers: bool,
    acknowledge_early: bool,
    ledger: StoreLedger,
}

/// Kills `cycles` writers, alternating between a store with small buffers and one with large ones.
///
/// In the control, writers acknowledge too early, and the rig must find losses.
pub(crate) fn run(cycles: u32, folder: &Path, control: bool) -> Result<(), String> {
    let store = |name: &str, small_buffers| StoreUnderTest {
        folder: folder.join(name),
        small_buffers,
        acknowledge_early: control,
        ledger: StoreLedger::default(),
    };
    let mut small = store("small", true);
    let mut large = store("large", false);
    let mut total = StoreCheckReport::default();
    let outcome = kill_all(cycles, &mut small, &mut large, &mut total);
    total.add_ledger(&small.ledger);
    total.add_ledger(&large.ledger);
    total.report("kills", cycles);
    if control {
        return control_verdict(total.lost, "found nothing");
    }
    outcome.and_then(|()| total.verdict())
}

/// After every second kill of a store the next writer recovers it before the check does.
fn kill_all(
    cycles: u32,
    small: &mut StoreUnderTest,
    large: &mut StoreUnderTest,
    total: &mut StoreCheckReport,
) -> Result<(), String> {
    let mut dice = SeededRng::new(u64::from(cycles));
    for cycle in 0..cycles {
        let store = if cycle % 2 == 0 { &mut *small } else { &mut *large };
        let time = Duration::from_millis(30 + dice.below(250));
        let is_last = cycle + 2 >= cycles;
        kill_one(store, time, total).map_err(|error| format!("cycle {cycle}: {error}"))?;
        if cycle / 2 % 2 == 0 || is_last {
            check_one(store, total).map_err(|error| format!("cycle {cycle}: {error}"))?;
        }
    }
    Ok(())
}

fn kill_one(store: &mut StoreUnderTest, time: Duration, total: &mut StoreCheckReport) -> Result<(), String> {
    let partitions = PARTITIONS.to_string();
    let mut arguments = vec!["--partitions", &partitions];
    if store.acknowledge_early {
        arguments.push("--acknowledge-early");
    }
    let mut writer = Writer::start(&store.folder, &arguments, store.small_buffers)?;
    match writer.read_lines_for(PARTITIONS, time, &mut store.ledger) {
        Ok(()) => writer.kill(&mut store.ledger),
        Err(problem) => {
            println!("{}: {problem}", store.folder.display());
            total.failed_opens += 1;
            Ok(())
        }
    }
}

fn check_one(store: &mut StoreUnderTest, total: &mut StoreCheckReport) -> Result<(), StoreCheckError> {
    let options = store_check::options(store.small_buffers);
    match check(&store.folder, PARTITIONS, options, &mut store.ledger) {
        Ok(report) => {
            total.add(&report);
            Ok(())
        }
        Err(failed) => {
            total.failed_opens += u64::from(matches!(failed, StoreCheckError::Open(_)));
            Err(failed)
        }
    }
}

/// A writer process.
pub(crate) struct Writer {
    process: ProgramProcess,
    partial_line: String,
    /// True if its output has ended.
    has_ended: bool,
}

impl Writer {
    pub(crate) fn start(folder: &Path, arguments: &[&str], small_buffers: bool) -> Result<Self, String> {
        Self::start_under(None, folder, arguments, small_buffers)
    }

    /// Starts the writer, if wanted under another program such as strace.
    pub(crate) fn start_under(
        wrapper: Option<&[&str]>,
        folder: &Path,
        arguments: &[&str],
        small_buffers: bool,
    ) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = match wrapper {
            Some([wrapper, rest @ ..]) => {
                let mut command = Command::new(wrapper);
                command.args(rest).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.arg("write").arg("--folder").arg(folder).args(arguments);
        if small_buffers {
            command.arg("--small-buffers");
        }
        command.stdout(Stdio::piped());
        let process = ProgramProcess::spawn(command)?;
        Ok(Self { process, partial_line: String::new(), has_ended: false })
    }

    pub(crate) fn pid(&mut self) -> Option<rustix::process::Pid> {
        self.process.pid()
    }

    /// Records the lines of the writer until every partition has started, and then for `time`. An error if the writer
    /// ended before every partition had started.
    #[expect(clippy::disallowed_methods, reason = "a rig works in real time")]
    pub(crate) fn read_lines_for(
        &mut self,
        partitions: u64,
        time: Duration,
        ledger: &mut StoreLedger,
    ) -> Result<(), String> {
        let mut started: HashSet<u64> = HashSet::new();
        while (started.len() as u64) < partitions {
            let Some(line) = self.next_line() else {
                let status = block_on(self.process.wait())?;
                return Err(format!("the writer ended before every partition had started: {status}"));
            };
            if let WriterLine::Started { partition, .. } = line {
                started.insert(partition);
            }
            ledger.record(&line);
        }
        let until = Instant::now() + time;
        while Instant::now() < until {
            // If the writer has ended by itself, `kill` reports it.
            let Some(line) = self.next_line() else { break };
            ledger.record(&line);
        }
        Ok(())
    }

    /// The next line, or `None` when the writer has ended.
    pub(crate) fn next_line(&mut self) -> Option<WriterLine> {
        loop {
            self.partial_line.clear();
            match self.process.read_line(&mut self.partial_line) {
                Ok(0) | Err(_) => {
                    self.has_ended = true;
                    return None;
                }
                Ok(_) => {}
            }
            if let Some(line) = WriterLine::from_text(&self.partial_line) {
                return Some(line);
            }
        }
    }

    /// Kills the writer and records its remaining lines. An error if the writer had ended by itself.
    pub(crate) fn kill(mut self, ledger: &mut StoreLedger) -> Result<(), String> {
        let ended_before = self.has_ended;
        let status = self.end(ledger)?;
        if ended_before || signal_of(status) != Some(Signal::KILL) {
            return Err(format!("the writer ended by itself: {status}"));
        }
        Ok(())
    }

    /// Like [`Writer::kill`], for a writer that may have ended by itself, but not with an error.
    pub(crate) fn kill_if_running(mut self, ledger: &mut StoreLedger) -> Result<(), String> {
        let status = self.end(ledger)?;
        if !status.success() && signal_of(status) != Some(Signal::KILL) {
            return Err(format!("the writer failed: {status}"));
        }
        Ok(())
    }

    fn end(&mut self, ledger: &mut StoreLedger) -> Result<ExitStatus, String> {
        if !self.has_ended {
            self.process.send(Signal::KILL)?;
        }
        while let Some(line) = self.next_line() {
            ledger.record(&line);
        }
        block_on(self.process.wait())
    }
}
