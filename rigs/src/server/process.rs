//! `abide serve` as a process: started, ready, killed, stopped in order; and `abide fsck` on what it leaves. Other programs that say where
//! they listen are started likewise.

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
/// How long one may take to stop: its grace is five seconds, and closing the store takes some more.
const STOP_MAX: Duration = Duration::from_secs(15);

/// Where a server works, and how it is started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    program: PathBuf,
    data: PathBuf,
    config: PathBuf,
    log: PathBuf,
}

impl Setup {
    /// Writes the configuration beside the data. Without a program it is the `abide` beside this one.
    pub(crate) fn new(
        folder: &Path,
        data: PathBuf,
        program: Option<PathBuf>,
        without_sync: bool,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        fs::create_dir_all(folder).map_err(failed)?;
        let beside = || std::env::current_exe().map(|own| own.with_file_name("abide"));
        let program = program.map_or_else(beside, Ok).map_err(failed)?;
        let config = folder.join("abide.toml");
        let sync = if without_sync { "operating-system" } else { "every-commit" };
        let text = format!(
            "[store]\nsync = \"{sync}\"\n[runtime]\ndrainGrace = \"PT5S\"\n[http]\nallow = [\"127.0.0.1\"]\n"
        );
        fs::write(&config, text).map_err(failed)?;
        Ok(Self { program, data, config, log: folder.join("server.log") })
    }

    /// Adds to the configuration.
    pub(crate) fn configure(&self, more: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.config.display());
        let mut config = OpenOptions::new().append(true).open(&self.config).map_err(failed)?;
        config.write_all(more.as_bytes()).map_err(failed)
    }

    /// Starts a server, which may die at a named point.
    pub(crate) fn start(&self, crash_at: Option<&str>) -> Result<Server, String> {
        let mut command = Command::new(&self.program);
        command.arg("serve").args(["--listen", "127.0.0.1:0"]);
        command.arg("--data").arg(&self.data).arg("--config").arg(&self.config);
        command.env("ABIDE_LOG", "warn").env_remove("ABIDE_LISTEN").env_remove("ABIDE_DATA");
        match crash_at {
            Some(point) => command.env("ABIDE_CRASH_AT", point),
            None => command.env_remove("ABIDE_CRASH_AT"),
        };
        Server::spawn(command, &self.log)
    }

    /// What `abide fsck` says of a store that nobody uses.
    pub(crate) async fn fsck(&self) -> Result<Proved, String> {
        let output = Command::new(&self.program).arg("fsck").arg("--data").arg(&self.data).output().await;
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut findings: Vec<String> = text.lines().map(str::to_owned).collect();
        match (output.status.code(), findings.pop()) {
            (Some(0 | 1), Some(summary)) => Ok(Proved { findings, summary }),
            _ => {
                Err(format!("fsck ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
            }
        }
    }

    /// The end of what servers said.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

/// What fsck says: a line for each finding, and a last one that counts what there is.
#[derive(Debug)]
pub(crate) struct Proved {
    pub findings: Vec<String>,
    pub summary: String,
}

/// A server that runs, or has ended and nobody has looked.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a program that says where it listens when it is ready. What it complains about goes to the log.
    pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Self, String> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| format!("{program}: {error}");
        let log = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
        command.stdout(Stdio::piped()).stderr(log).stdin(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// Its address once it says that it is ready; `None` if it ends before.
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
                address.map(Some).ok_or_else(|| format!("the server said {line:?}"))
            }
        }
    }

    /// Resolves when it has ended.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus, String> {
        self.child.wait().await.map_err(|error| error.to_string())
    }

    /// SIGKILL. Says how it ended, which may have been before.
    pub(crate) async fn kill(mut self) -> Result<ExitStatus, String> {
        if self.child.id().is_some() {
            self.child.start_kill().map_err(|error| error.to_string())?;
        }
        self.ended().await
    }

    /// SIGTERM, and the end that must follow.
    pub(crate) async fn stop(mut self) -> Result<(), String> {
        let process = self.process().ok_or("the server ended by itself")?;
        kill_process(process, Signal::TERM).map_err(|error| error.to_string())?;
        match tokio::time::timeout(STOP_MAX, self.ended()).await {
            Err(_) => Err(format!("the server had not stopped {STOP_MAX:?} after it was told to")),
            Ok(status) => match status? {
                status if status.success() => Ok(()),
                status => Err(format!("told to stop, the server ended with {status}")),
            },
        }
    }

    pub(crate) fn process(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }
}
