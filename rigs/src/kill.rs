//! kill -9: the writer dies at a random moment, again and again, on the same store.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use abide_store::memory::Dice;

use crate::check::{Found, check};
use crate::ledger::{Ledger, Line};

pub(crate) const PARTITIONS: u64 = 16;

/// Kills `cycles` writers. Every second time the next writer recovers the store itself, before it is checked.
pub(crate) fn run(cycles: u32, folder: &Path) -> Result<(), String> {
    let mut ledger = Ledger::default();
    let mut dice = Dice::new(u64::from(cycles));
    let mut total = Found::default();
    for cycle in 0..cycles {
        let mut writer =
            Writer::start(folder, &["--partitions", &PARTITIONS.to_string()], dice.below(2) == 0)?;
        writer.listen(Duration::from_millis(30 + dice.below(250)), &mut ledger);
        writer.kill(&mut ledger)?;
        if cycle % 2 == 0 || cycle + 1 == cycles {
            let found =
                check(folder, PARTITIONS, &mut ledger).map_err(|error| format!("cycle {cycle}: {error}"))?;
            total.add(&found);
        }
    }
    total.report("kills", cycles, &ledger);
    total.verdict(&ledger)
}

impl Found {
    pub(crate) fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.unacknowledged += other.unacknowledged;
        self.wrong_rows += other.wrong_rows;
        self.opened_in = self.opened_in.max(other.opened_in);
    }

    pub(crate) fn report(&self, what: &str, cycles: u32, ledger: &Ledger) {
        println!("{cycles} {what}, {} acknowledgements", ledger.acknowledged);
        println!("  acknowledged and lost       {}", self.lost + ledger.lost_at_start);
        println!("  rows that nothing explains  {}", self.wrong_rows);
        println!("  failed opens                0");
        println!(
            "  unacknowledged and there    {} (on their way when the writer ended)",
            self.unacknowledged
        );
        println!("  slowest open                {:.3} s", self.opened_in.as_secs_f64());
    }

    pub(crate) fn verdict(&self, ledger: &Ledger) -> Result<(), String> {
        let lost = self.lost + ledger.lost_at_start;
        if lost + self.wrong_rows > 0 {
            return Err(format!("{lost} acknowledged commits were lost, {} rows are wrong", self.wrong_rows));
        }
        if ledger.acknowledged == 0 {
            return Err("nothing was acknowledged, so nothing was tried".to_owned());
        }
        Ok(())
    }
}

/// A writer in a process of its own.
pub(crate) struct Writer {
    child: Child,
    output: BufReader<ChildStdout>,
    half_line: String,
}

impl Writer {
    pub(crate) fn start(folder: &Path, arguments: &[&str], small_buffers: bool) -> Result<Self, String> {
        Self::start_under(None, folder, arguments, small_buffers)
    }

    /// Starts the writer, perhaps under another program such as strace.
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
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let output = child.stdout.take().ok_or("the writer has no output")?;
        Ok(Self { child, output: BufReader::new(output), half_line: String::new() })
    }

    pub(crate) fn process(&self) -> Option<rustix::process::Pid> {
        i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
    }

    /// Notes what the writer says, for a while from its first word on.
    #[expect(clippy::disallowed_methods, reason = "a rig works in real time")]
    pub(crate) fn listen(&mut self, time: Duration, ledger: &mut Ledger) {
        if let Some(line) = self.line() {
            ledger.note(&line);
        }
        let until = Instant::now() + time;
        while Instant::now() < until {
            let Some(line) = self.line() else { return };
            ledger.note(&line);
        }
    }

    /// The next line, or `None` when the writer has ended.
    pub(crate) fn line(&mut self) -> Option<Line> {
        loop {
            self.half_line.clear();
            match self.output.read_line(&mut self.half_line) {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            if let Some(line) = Line::from_text(&self.half_line) {
                return Some(line);
            }
        }
    }

    /// Kills the writer and notes what it had said before.
    pub(crate) fn kill(mut self, ledger: &mut Ledger) -> Result<(), String> {
        self.child.kill().map_err(|error| error.to_string())?;
        self.finish(ledger)
    }

    /// Notes the rest of what the writer says until it ends.
    pub(crate) fn finish(mut self, ledger: &mut Ledger) -> Result<(), String> {
        while let Some(line) = self.line() {
            ledger.note(&line);
        }
        self.child.wait().map(drop).map_err(|error| error.to_string())
    }
}
