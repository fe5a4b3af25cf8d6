//! Runs one program as a process of its own: starts it, waits for the line with its address, signals it, and waits for
//! its end. A process that is dropped is killed, so that a test that fails leaves nothing behind.
//!
//! It knows no program: arguments, environment and configuration come from its users. Those that are not asynchronous
//! drive its futures with [`block_on`].

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .map_err(|error| io::Error::other(format!("{program} does not start: {error}")))?;
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Self { program, child, end, output })
    }

    /// Starts a program that prints its address when it is ready.
    pub fn spawn_server(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Self::spawn(command)
    }

    /// Like [`Self::spawn_server`]; its standard error is appended to the log.
    pub fn spawn_logged(mut command: Command, log: &Path) -> io::Result<Self> {
        let failed = |error| io::Error::other(format!("{}: {error}", log.display()));
        let log_file = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
        command.stderr(log_file);
        Self::spawn_server(command)
    }

    /// Waits for its address; `None` if the program ends before it prints one.
    pub async fn ready(&mut self) -> io::Result<Option<SocketAddr>> {
        let Some(line) = self.first_line().await? else { return Ok(None) };
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|address| address.parse().ok());
        let unreadable = || self.error(&format!("printed {line:?} instead of its address"));
        address.map(Some).ok_or_else(unreadable)
    }

    /// The line that the program prints when it is ready; `None` if it ends before.
    pub async fn first_line(&mut self) -> io::Result<Option<String>> {
        let late = self.error(&format!("was not ready within {READY_MAX:?}"));
        let mut line = Vec::new();
        let reading = async {
            let output = self.output.as_mut().ok_or_else(|| io::Error::other("the output is not piped"))?;
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
        };
        tokio::time::timeout(READY_MAX, reading).await.unwrap_or(Err(late))
    }

    /// Reads the next line of its output and blocks the thread until there is one; 0 at the end of the output.
    pub fn read_line(&mut self, line: &mut String) -> io::Result<usize> {
        self.output.as_mut().map_or(Ok(0), |output| output.read_line(line))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its process id, unless it is known to have ended.
    pub fn pid(&mut self) -> Option<Pid> {
        matches!(self.child.try_wait(), Ok(None)).then(|| Pid::from_child(&self.child))
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until it has ended.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        readable(&self.end).await?;
        self.child.wait()
    }

    pub fn send(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.end, signal)?)
    }

    /// Sends SIGKILL and returns how the process ended; it may have ended before.
    pub async fn kill(mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.wait().await
    }

    /// Sends a signal on which the program is to shut down gracefully. An error if it does not succeed within this time,
    /// or had ended by itself.
    pub async fn stop(mut self, signal: Signal, within: Duration) -> io::Result<()> {
        if let Some(status) = self.try_wait()? {
            return Err(self.error(&format!("ended by itself: {status}")));
        }
        self.send(signal)?;
        let late = self.error(&format!("had not stopped {within:?} after {signal:?}"));
        match tokio::time::timeout(within, self.wait()).await.unwrap_or(Err(late))? {
            status if status.success() => Ok(()),
            status => Err(self.error(&format!("ended with {status} after {signal:?}"))),
        }
    }

    fn error(&self, what: &str) -> io::Error {
        io::Error::other(format!("{} {what}", self.program))
    }
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
pub fn block_on<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Waits until a descriptor has data or its end, so that the next read of it does not block.
async fn readable(descriptor: impl AsFd) -> io::Result<()> {
    AsyncFd::with_interest(descriptor.as_fd(), Interest::READABLE)?.readable().await.map(drop)
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
        assert!(block_on(ended.stop(Signal::TERM, LONG)).unwrap_err().to_string().contains("by itself"));
        let mut other = ProgramProcess::spawn_server(shell("echo hello")).unwrap();
        assert!(block_on(other.ready()).unwrap_err().to_string().contains("\"hello\""));
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
        assert!(block_on(start().stop(Signal::INT, LONG)).unwrap_err().to_string().contains("status: 4"));
    }
}
