//! Runs one program as a process of its own: starts it, waits for the line with its address, signals it, and waits for
//! its end. A process that is dropped is killed, so that a test that fails leaves nothing behind.
//!
//! It knows no program: arguments, environment and configuration come from its users. Those that are not asynchronous
//! drive its futures with [`block_on`].

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::retry_on_intr;
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

/// How long a program may take until it prints its address.
const READY_MAX: Duration = Duration::from_secs(60);

/// A process, running or ended.
#[derive(Debug)]
pub struct ProgramProcess {
    program: String,
    child: Child,
    /// Readable once the process has ended. A signal sent through it never reaches another process with a reused id.
    end: OwnedFd,
    output: Option<BufReader<ChildStdout>>,
}

impl ProgramProcess {
    /// Starts a program with input and outputs as the command says.
    pub fn spawn(mut command: Command) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error: io::Error| format!("{program} does not start: {error}");
        let mut child = command.spawn().map_err(failed)?;
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let end = end.map_err(|error| failed(error.into()))?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Self { program, child, end, output })
    }

    /// Starts a program that prints its address when it is ready.
    pub fn spawn_server(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Self::spawn(command)
    }

    /// Like [`Self::spawn_server`]; its standard error is appended to the log.
    pub fn spawn_logged(mut command: Command, log: &Path) -> Result<Self, String> {
        let log_file = OpenOptions::new().create(true).append(true).open(log);
        command.stderr(log_file.map_err(|error| format!("{}: {error}", log.display()))?);
        Self::spawn_server(command)
    }

    /// Waits for its address; `None` if the program ends before it prints one.
    pub async fn ready(&mut self) -> Result<Option<SocketAddr>, String> {
        let Some(line) = self.first_line().await? else { return Ok(None) };
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|address| address.parse().ok());
        let unreadable = || format!("{} printed {line:?} instead of its address", self.program);
        address.map(Some).ok_or_else(unreadable)
    }

    /// The line that the program prints when it is ready; `None` if it ends before.
    pub async fn first_line(&mut self) -> Result<Option<String>, String> {
        let Self { program, output: Some(output), .. } = self else { return Ok(None) };
        match tokio::time::timeout(READY_MAX, first_line_of(output)).await {
            Err(_) => Err(format!("{program} was not ready within {READY_MAX:?}")),
            Ok(line) => line.map_err(|error| format!("{program}: {error}")),
        }
    }

    /// Reads the next line of its output and blocks the thread until there is one; 0 at the end of the output.
    pub fn read_line(&mut self, line: &mut String) -> io::Result<usize> {
        self.output.as_mut().map_or(Ok(0), |output| output.read_line(line))
    }

    /// Its process id, also after it has ended.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its process id for signals, unless it has ended.
    pub fn pid(&mut self) -> Option<Pid> {
        matches!(self.child.try_wait(), Ok(None)).then(|| Pid::from_child(&self.child))
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| self.failed(&error))
    }

    /// Waits until it has ended.
    pub async fn wait(&mut self) -> Result<ExitStatus, String> {
        readable(&self.end).await.map_err(|error| self.failed(&error))?;
        self.child.wait().map_err(|error| self.failed(&error))
    }

    pub fn send(&self, signal: Signal) -> Result<(), String> {
        pidfd_send_signal(&self.end, signal).map_err(|error| self.failed(&error))
    }

    /// Sends SIGKILL and returns how the process ended; it may have ended before.
    pub async fn kill(mut self) -> Result<ExitStatus, String> {
        self.child.kill().map_err(|error| self.failed(&error))?;
        self.wait().await
    }

    /// Sends a signal on which the program is to shut down gracefully. An error if it does not succeed within this
    /// time, or had ended by itself.
    pub async fn stop(mut self, signal: Signal, within: Duration) -> Result<(), String> {
        let program = self.program.clone();
        if let Some(status) = self.try_wait()? {
            return Err(format!("{program} ended by itself: {status}"));
        }
        self.send(signal)?;
        match tokio::time::timeout(within, self.wait()).await {
            Err(_) => Err(format!("{program} had not stopped {within:?} after {signal:?}")),
            Ok(status) => match status? {
                status if status.success() => Ok(()),
                status => Err(format!("{program} ended with {status} after {signal:?}")),
            },
        }
    }

    fn failed(&self, error: &dyn fmt::Display) -> String {
        format!("{}: {error}", self.program)
    }
}

async fn first_line_of(output: &mut BufReader<ChildStdout>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        readable(output.get_ref()).await?;
        let bytes = output.fill_buf()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let used = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        line.extend(bytes.iter().take(used));
        output.consume(used);
    }
    Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
}

impl Drop for ProgramProcess {
    fn drop(&mut self) {
        // It has ended already, or must end now.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The signal by which a process ended, if any.
pub fn signal_of(status: ExitStatus) -> Option<Signal> {
    status.signal().and_then(Signal::from_named_raw)
}

/// The last lines of a log; none if it cannot be read.
pub fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(count)).map(|line| (*line).to_owned()).collect()
}

/// Runs a future to its end on this thread.
pub fn block_on<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

/// Waits until a descriptor has data or its end, so that the next read of it does not block. A thread waits, which ends
/// at the latest with the process.
async fn readable(descriptor: impl AsFd) -> io::Result<()> {
    let descriptor = descriptor.as_fd().try_clone_to_owned()?;
    let poll = move || {
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        retry_on_intr(|| rustix::event::poll(&mut polled, None))
    };
    tokio::task::spawn_blocking(poll).await.map_err(io::Error::other)??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn an_address_is_read_and_a_program_that_ends_before_has_none() {
        let mut server =
            ProgramProcess::spawn_server(shell("echo up on http://127.0.0.1:7 now; while :; do :; done"))
                .unwrap();
        assert_eq!(block_on(server.ready()).unwrap(), Some("127.0.0.1:7".parse().unwrap()));
        let mut ended = ProgramProcess::spawn_server(shell("exit 3")).unwrap();
        assert_eq!(block_on(ended.ready()).unwrap(), None);
        assert_eq!(block_on(ended.wait()).unwrap().code(), Some(3));
        assert!(block_on(ended.stop(Signal::TERM, LONG)).unwrap_err().contains("by itself"));
        let mut other = ProgramProcess::spawn_server(shell("echo hello")).unwrap();
        assert!(block_on(other.ready()).unwrap_err().contains("\"hello\""));
    }

    #[test]
    fn a_killed_process_reports_its_signal_and_one_that_stops_must_succeed() {
        let waiting = "trap 'exit 0' TERM; trap 'exit 4' INT; echo up; while :; do :; done";
        let start = || {
            let mut process = ProgramProcess::spawn_server(shell(waiting)).unwrap();
            assert_eq!(block_on(process.first_line()).unwrap().as_deref(), Some("up"));
            process
        };
        assert_eq!(signal_of(block_on(start().kill()).unwrap()), Some(Signal::KILL));
        block_on(start().stop(Signal::TERM, LONG)).unwrap();
        assert!(block_on(start().stop(Signal::INT, LONG)).unwrap_err().contains("status: 4"));
    }
}
