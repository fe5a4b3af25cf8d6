//! The four processes of the rig: starts, kills and stops them, and knows the paths of their stores and logs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::ledger::{DispatchRig, now};
use super::receiver_wires::{RigProcess, configuration};
use crate::server::client::RigResponse;
use crate::server::process::{STOP_MAX, ServerSetup};
use abide_testkit::http_client::HttpRequest;
use abide_testkit::process::{ProgramProcess, last_lines, signal_of};
use rustix::process::Signal;

/// Ports for receivers: below the system's ephemeral ports, because a connection could take the port of a receiver that
/// is down.
const PORTS: std::ops::Range<u16> = 21_000..30_000;

const LOGGED_WORKER_PY: &str = include_str!("workers/logged_worker.py");
const LOGGED_WORKER_MJS: &str = include_str!("workers/logged-worker.mjs");

/// The programs that the rig starts.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The server, with `abide-receiver` next to it. Default: the `abide` next to this program.
    pub(crate) abide: Option<PathBuf>,
    /// The folder of the example workers, installed and compiled.
    pub(crate) workers: PathBuf,
    /// The control: a receiver without deduplication instead of `abide-receiver`.
    pub(crate) forget: bool,
}

pub(crate) struct ProcessFleet {
    folder: PathBuf,
    programs: Programs,
    pub(crate) setup: ServerSetup,
    ports: BTreeMap<RigProcess, u16>,
    running: BTreeMap<RigProcess, (ProgramProcess, Instant)>,
    pub(crate) kills: BTreeMap<RigProcess, u64>,
    pub(crate) while_starting: u64,
    /// The named point at which the server is to die, if any.
    crash_point: Option<String>,
    /// How often a server died at its point.
    pub(crate) at_points: u64,
    pub(crate) slowest_start: BTreeMap<RigProcess, Duration>,
}

impl ProcessFleet {
    pub(crate) fn new(folder: &Path, programs: Programs) -> Result<Self, String> {
        let setup = ServerSetup::new(folder, folder.join("data"), programs.abide.clone(), false)?;
        let mut ports = PORTS.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
        let ports: BTreeMap<RigProcess, u16> = RigProcess::RECEIVERS.into_iter().zip(&mut ports).collect();
        setup.configure(&configuration(&ports))?;
        let failed = |error: std::io::Error| error.to_string();
        for (name, text) in [("logged_worker.py", LOGGED_WORKER_PY), ("logged-worker.mjs", LOGGED_WORKER_MJS)]
        {
            fs::write(folder.join(name), text).map_err(failed)?;
        }
        let fleet = Self {
            folder: folder.to_owned(),
            programs,
            setup,
            ports,
            running: BTreeMap::new(),
            kills: BTreeMap::new(),
            while_starting: 0,
            crash_point: None,
            at_points: 0,
            slowest_start: BTreeMap::new(),
        };
        for who in RigProcess::RECEIVERS {
            fs::create_dir_all(fleet.store(who)).map_err(failed)?;
        }
        Ok(fleet)
    }

    /// The folder of a receiver's store.
    pub(crate) fn store(&self, who: RigProcess) -> PathBuf {
        self.folder.join(who.name())
    }

    /// The file in which a receiver logs its attempts.
    pub(crate) fn attempts_log(&self, who: RigProcess) -> PathBuf {
        self.folder.join(format!("{}.deliveries", who.name()))
    }

    fn spawn(&self, who: RigProcess) -> Result<ProgramProcess, String> {
        let folder = &self.folder;
        let workers = &self.programs.workers;
        let mut command = match who {
            RigProcess::Server => return self.setup.start(self.crash_point.as_deref()),
            RigProcess::Rust => self.receiver()?,
            RigProcess::Python => {
                let mut command = Command::new("python3");
                command.arg(folder.join("logged_worker.py")).env("WORKER", workers.join("python"));
                command
            }
            RigProcess::TypeScript => {
                let mut command = Command::new("node");
                command.arg("--import").arg(folder.join("logged-worker.mjs"));
                command.arg(workers.join("typescript/dist/src/worker.js"));
                command
            }
        };
        command.env("PORT", self.ports.get(&who).copied().unwrap_or_default().to_string()).env_remove("HOST");
        command.env("DB", self.store(who).join("worker.db")).env("DELIVERIES", self.attempts_log(who));
        ProgramProcess::spawn_logged(command, &self.log(who))
    }

    /// The Rust receiver, or the one without deduplication.
    fn receiver(&self) -> Result<Command, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = if self.programs.forget {
            let mut command = Command::new(own);
            command.arg("receive-and-forget");
            command
        } else {
            Command::new(self.programs.abide.as_ref().unwrap_or(&own).with_file_name("abide-receiver"))
        };
        command
            .env("ABIDE_RECEIVER_DATA", self.store(RigProcess::Rust))
            .env("ABIDE_RECEIVER_SYNC", "every-commit");
        command.env("ABIDE_RECEIVER_LOG", self.attempts_log(RigProcess::Rust));
        Ok(command)
    }

    fn log(&self, who: RigProcess) -> PathBuf {
        self.folder.join(format!("{}.log", who.name()))
    }

    /// Starts these processes and waits until they are ready. The server dies at the named point, if one is given.
    pub(crate) async fn start(
        &mut self,
        whom: &[RigProcess],
        point: Option<String>,
        rig: &DispatchRig,
    ) -> Result<(), String> {
        let begun = now();
        let mut started = Vec::new();
        if whom.contains(&RigProcess::Server) {
            self.crash_point = point;
        }
        for who in whom {
            started.push((*who, self.spawn(*who)?));
        }
        for (who, mut process) in started {
            let name = who.name();
            let mut address = process.ready().await.map_err(|error| format!("{name}: {error}"))?;
            if address.is_none() && who == RigProcess::Server && self.has_crash_point() {
                // It reached its point before it was ready.
                self.wait_for_signal(who, process).await?;
                self.at_points += 1;
                self.crash_point = None;
                process = self.spawn(who)?;
                address = process.ready().await?;
            }
            let Some(address) = address else {
                let status = process.wait().await?;
                return Err(format!("{name} does not start: {status}: {}", self.log_tail(who)));
            };
            let slowest = self.slowest_start.entry(who).or_default();
            *slowest = begun.elapsed().max(*slowest);
            self.running.insert(who, (process, now()));
            if who == RigProcess::Server {
                self.prepare_server(address, rig).await?;
            }
        }
        Ok(())
    }

    async fn prepare_server(&self, address: SocketAddr, rig: &DispatchRig) -> Result<(), String> {
        rig.set_up(Some(address));
        if self.crash_point.is_some() {
            // It may have died at its point already.
            return Ok(());
        }
        match rig.client().send(&HttpRequest::get("/readyz")).await {
            RigResponse::Received(200, _) => Ok(()),
            other => Err(format!("the server reported that it is ready, but /readyz returned {other:?}")),
        }
    }

    /// Starts these processes and kills them after this time, ready or not.
    pub(crate) async fn start_and_kill(
        &mut self,
        whom: &[RigProcess],
        after: Duration,
    ) -> Result<(), String> {
        self.crash_point = None;
        let mut started = Vec::new();
        for who in whom {
            started.push((*who, self.spawn(*who)?));
        }
        tokio::time::sleep(after).await;
        for (who, process) in started {
            self.while_starting += 1;
            self.wait_for_signal(who, process).await?;
        }
        Ok(())
    }

    /// Kills a process with SIGKILL.
    pub(crate) async fn kill(&mut self, who: RigProcess, rig: &DispatchRig) -> Result<(), String> {
        let Some((process, _)) = self.running.remove(&who) else { return Ok(()) };
        let ended = self.wait_for_signal(who, process).await;
        if who == RigProcess::Server {
            rig.set_up(None);
        }
        match ended? {
            Signal::KILL => *self.kills.entry(who).or_default() += 1,
            _ => self.at_points += 1,
        }
        Ok(())
    }

    /// Kills a process and returns the signal by which it ended: SIGKILL, or SIGABRT at its point.
    async fn wait_for_signal(&self, who: RigProcess, process: ProgramProcess) -> Result<Signal, String> {
        let status = process.kill().await?;
        match signal_of(status) {
            Some(Signal::KILL) => Ok(Signal::KILL),
            Some(Signal::ABORT) if who == RigProcess::Server && self.crash_point.is_some() => {
                Ok(Signal::ABORT)
            }
            _ => Err(format!("{} ended by itself: {status}: {}", who.name(), self.log_tail(who))),
        }
    }

    /// True if the server is to die at a point; it may have died already.
    pub(crate) fn has_crash_point(&self) -> bool {
        self.crash_point.is_some()
    }

    /// How long the process has been up.
    pub(crate) fn age(&self, who: RigProcess) -> Duration {
        self.running.get(&who).map(|(_, since)| since.elapsed()).unwrap_or_default()
    }

    /// Sends SIGTERM and waits for a graceful shutdown.
    pub(crate) async fn stop(&mut self, who: RigProcess, rig: &DispatchRig) -> Result<(), String> {
        let Some((process, _)) = self.running.remove(&who) else { return Ok(()) };
        if who == RigProcess::Server {
            rig.set_up(None);
        }
        process.stop(Signal::TERM, STOP_MAX).await.map_err(|problem| format!("{}: {problem}", who.name()))
    }

    fn log_tail(&self, who: RigProcess) -> String {
        if who == RigProcess::Server {
            return self.setup.log_tail();
        }
        last_lines(&self.log(who), 5).join(" | ")
    }
}
