//! How a server is started: the program, its folder, configuration and faults; and `abide fsck` on its store.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use abide_testkit::process::{ProgramProcess, last_lines};

/// How long a server may take to stop: its grace period is five seconds, and closing the store takes more.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(15);

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
        // The rigs kill several times a minute, whatever the server does just then. Careful recovery would take the
        // instances at hand for the cause and set them aside; it has a test of its own.
        let runtime = "drainGrace = \"PT5S\"\ncarefulAfterUncleanEnds = 1000000";
        let text =
            format!("[store]\nsync = \"{sync}\"\n[runtime]\n{runtime}\n[http]\nallow = [\"127.0.0.1\"]\n");
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
    pub(crate) fn start(&self, crash_at: Option<&str>) -> Result<ProgramProcess, String> {
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
        ProgramProcess::spawn_logged(command, &self.log)
    }

    /// Runs `abide fsck` on the store of a server that has ended.
    pub(crate) async fn fsck(&self) -> Result<FsckOutput, String> {
        let mut fsck = tokio::process::Command::new(&self.program);
        let output = fsck.arg("fsck").arg("--data").arg(&self.data).output().await;
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
        last_lines(&self.log, 5).join(" | ")
    }
}

/// The output of fsck: one line for each finding, and a summary as the last line.
#[derive(Debug)]
pub(crate) struct FsckOutput {
    pub findings: Vec<String>,
    pub summary: String,
}
