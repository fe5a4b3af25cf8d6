//! `abide serve` as a process: starts it, waits until it is ready, kills it or shuts it down gracefully, and runs
//! `abide fsck` on its store. Other programs that print their address are started in the same way.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// How long a server may take to be ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to stop: its grace period is five seconds, and closing the store takes more.
const STOP_MAX: Duration = Duration::from_secs(15);

/// The folder, program and configuration of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerSetup {
    program: PathBuf,
    data: PathBuf,
    config: PathBuf,
    log: PathBuf,
    fault: Option<&'static str>,
}

impl ServerSetup {
    /// Writes the configuration next to the data. The default program is the `abide` next to this one.
    pub(crate) fn new(
        folder: &Path,
        data: PathBuf,
        program: Option<PathBuf>,
        without_sync: bool,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        fs::create_dir_all(folder).map_err(failed)?;
        let default_program = || std::env::current_exe().map(|own| own.with_file_name("abide"));
        let program = program.map_or_else(default_program, Ok).map_err(failed)?;
        let config = folder.join("abide.toml");
        let sync = if without_sync { "operating-system" } else { "every-commit" };
        let text = format!(
            "[store]\nsync = \"{sync}\"\n[runtime]\ndrainGrace = \"PT5S\"\n[http]\nallow = [\"127.0.0.1\"]\n"
        );
        fs::write(&config, text).map_err(failed)?;
        Ok(Self { program, data, config, log: folder.join("server.log"), fault: None })
    }

    /// The control: every server has this planted fault. Only a server built with the feature `faults` supports it.
    pub(crate) fn with_fault(self, fault: Option<&'static str>) -> Self {
        Self { fault, ..self }
    }

    /// Adds to the configuration.
    pub(crate) fn configure(&self, more: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.config.display());
        let mut config = OpenOptions::new().append(true).open(&self.config).map_err(failed)?;
        config.write_all(more.as_bytes()).map_err(failed)
    }

    /// Starts a server, which dies at the named point if one is given.
    pub(crate) fn start(&self, crash_at: Option<&str>) -> Result<ServerProcess, String> {
        let mut command = Command::new(&self.program);
        command.arg("serve").args(["--listen", "127.0.0.1:0"]);
        command.arg("--data").arg(&self.data).arg("--config").arg(&self.config);
        command.env("ABIDE_LOG", "warn").env_remove("ABIDE_LISTEN").env_remove("ABIDE_DATA");
        match crash_at {
            Some(point) => command.env("ABIDE_CRASH_AT", point),
            None => command.env_remove("ABIDE_CRASH_AT"),
        };
        match self.fault {
            Some(fault) => command.env("ABIDE_FAULT", fault),
            None => command.env_remove("ABIDE_FAULT"),
        };
        ServerProcess::spawn(command, &self.log)
    }

    /// Runs `abide fsck` on the store of a server that has ended.
    pub(crate) async fn fsck(&self) -> Result<FsckOutput, String> {
        let output = Command::new(&self.program).arg("fsck").arg("--data").arg(&self.data).output().await;
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut findings: Vec<String> = text.lines().map(str::to_owned).collect();
        match (output.status.code(), findings.pop()) {
            (Some(0 | 1), Some(summary)) => Ok(FsckOutput { findings, summary }),
            _ => {
                Err(format!("fsck ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
            }
        }
    }

    /// The last lines of the servers' log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

/// The output of fsck: one line for each finding, and a summary as the last line.
#[derive(Debug)]
pub(crate) struct FsckOutput {
    pub findings: Vec<String>,
    pub summary: String,
}

/// A server process, running or ended.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts a program that prints its address when it is ready. Its standard error goes to the log.
    pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Self, String> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| format!("{program}: {error}");
        let log = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
        command.stdout(Stdio::piped()).stderr(log).stdin(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// Waits for its address; `None` if the program ends before it is ready.
    pub(crate) async fn ready(&mut self) -> Result<Option<SocketAddr>, String> {
        let mut line = String::new();
        let read = tokio::time::timeout(READY_MAX, self.output.read_line(&mut line)).await;
        match read {
            Err(_) => Err(format!("the server was not ready within {READY_MAX:?}")),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(0)) => Ok(None),
            Ok(Ok(_)) => {
                let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
                let address = address.and_then(|address| address.parse().ok());
                address.map(Some).ok_or_else(|| format!("the server printed {line:?} instead of its address"))
            }
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn wait(&mut self) -> Result<ExitStatus, String> {
        self.child.wait().await.map_err(|error| error.to_string())
    }

    /// Sends SIGKILL and returns how the process ended; it may have ended before.
    pub(crate) async fn kill(mut self) -> Result<ExitStatus, String> {
        if self.child.id().is_some() {
            self.child.start_kill().map_err(|error| error.to_string())?;
        }
        self.wait().await
    }

    /// Sends SIGTERM and waits for a graceful shutdown.
    pub(crate) async fn stop(mut self) -> Result<(), String> {
        let process = self.process().ok_or("the server ended by itself")?;
        kill_process(process, Signal::TERM).map_err(|error| error.to_string())?;
        match tokio::time::timeout(STOP_MAX, self.wait()).await {
            Err(_) => Err(format!("the server had not stopped {STOP_MAX:?} after SIGTERM")),
            Ok(status) => match status? {
                status if status.success() => Ok(()),
                status => Err(format!("after SIGTERM the server ended with {status}")),
            },
        }
    }

    pub(crate) fn process(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }
}
