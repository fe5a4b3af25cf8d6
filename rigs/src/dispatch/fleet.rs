//! The four processes: how each is started, killed and stopped, and what it leaves behind.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::ledger::{World, now};
use super::lines::{Who, configuration};
use crate::server::client::{Answer, Ask};
use crate::server::process::{Server, Setup};

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
/// Where receivers listen: below what the system gives to connections, one of which might take the port of a receiver that is down.
const PORTS: std::ops::Range<u16> = 21_000..30_000;

const LOGGED_WORKER_PY: &str = include_str!("workers/logged_worker.py");
const LOGGED_WORKER_MJS: &str = include_str!("workers/logged-worker.mjs");

/// What is started.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The server; the `abide` beside this program without it. `abide-receiver` is beside it.
    pub(crate) abide: Option<PathBuf>,
    /// The folder of the example workers, installed and compiled.
    pub(crate) workers: PathBuf,
    /// The control: a receiver that forgets what it has done, in the place of `abide-receiver`.
    pub(crate) forget: bool,
}

pub(crate) struct Fleet {
    folder: PathBuf,
    programs: Programs,
    pub(crate) setup: Setup,
    ports: BTreeMap<Who, u16>,
    running: BTreeMap<Who, (Server, Instant)>,
    pub(crate) kills: BTreeMap<Who, u64>,
    pub(crate) while_starting: u64,
    /// The point at which the server is to die, if there is one.
    point: Option<String>,
    /// How often it did.
    pub(crate) at_points: u64,
    pub(crate) slowest_start: BTreeMap<Who, Duration>,
}

impl Fleet {
    pub(crate) fn new(folder: &Path, programs: Programs) -> Result<Self, String> {
        let setup = Setup::new(folder, folder.join("data"), programs.abide.clone(), false)?;
        let mut ports = PORTS.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
        let ports: BTreeMap<Who, u16> = Who::RECEIVERS.into_iter().zip(&mut ports).collect();
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
            point: None,
            at_points: 0,
            slowest_start: BTreeMap::new(),
        };
        for who in Who::RECEIVERS {
            fs::create_dir_all(fleet.store(who)).map_err(failed)?;
        }
        Ok(fleet)
    }

    /// Where a receiver keeps what it has done.
    pub(crate) fn store(&self, who: Who) -> PathBuf {
        self.folder.join(who.name())
    }

    /// Where a receiver writes down what came.
    pub(crate) fn deliveries(&self, who: Who) -> PathBuf {
        self.folder.join(format!("{}.deliveries", who.name()))
    }

    fn spawn(&self, who: Who) -> Result<Server, String> {
        let (folder, workers) = (&self.folder, &self.programs.workers);
        let mut command = match who {
            Who::Server => return self.setup.start(self.point.as_deref()),
            Who::Rust => self.receiver()?,
            Who::Python => {
                let mut command = Command::new("python3");
                command.arg(folder.join("logged_worker.py")).env("WORKER", workers.join("python"));
                command
            }
            Who::TypeScript => {
                let mut command = Command::new("node");
                command.arg("--import").arg(folder.join("logged-worker.mjs"));
                command.arg(workers.join("typescript/dist/src/worker.js"));
                command
            }
        };
        command.env("PORT", self.ports.get(&who).copied().unwrap_or_default().to_string()).env_remove("HOST");
        command.env("DB", self.store(who).join("worker.db")).env("DELIVERIES", self.deliveries(who));
        Server::spawn(command, &self.log(who))
    }

    /// The receiver in Rust, or the one that forgets in its place.
    fn receiver(&self) -> Result<Command, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = if self.programs.forget {
            let mut command = Command::new(own);
            command.arg("receive-and-forget");
            command
        } else {
            Command::new(self.programs.abide.as_ref().unwrap_or(&own).with_file_name("abide-receiver"))
        };
        command.env("ABIDE_RECEIVER_DATA", self.store(Who::Rust)).env("ABIDE_RECEIVER_SYNC", "every-commit");
        command.env("ABIDE_RECEIVER_LOG", self.deliveries(Who::Rust));
        Ok(command)
    }

    fn log(&self, who: Who) -> PathBuf {
        self.folder.join(format!("{}.log", who.name()))
    }

    /// Starts these and waits until they are ready. The server may be told to die at a named point.
    pub(crate) async fn start(
        &mut self,
        whom: &[Who],
        point: Option<String>,
        world: &World,
    ) -> Result<(), String> {
        let begun = now();
        let mut started = Vec::new();
        if whom.contains(&Who::Server) {
            self.point = point;
        }
        for who in whom {
            started.push((*who, self.spawn(*who)?));
        }
        for (who, mut process) in started {
            let name = who.name();
            let mut address = process.ready().await.map_err(|error| format!("{name}: {error}"))?;
            if address.is_none() && who == Who::Server && self.is_doomed() {
                // It came to its point before it was ready.
                self.killed(who, process).await?;
                self.at_points += 1;
                self.point = None;
                process = self.spawn(who)?;
                address = process.ready().await?;
            }
            let Some(address) = address else {
                let status = process.ended().await?;
                return Err(format!("{name} does not start: {status}: {}", self.last_words(who)));
            };
            let slowest = self.slowest_start.entry(who).or_default();
            *slowest = begun.elapsed().max(*slowest);
            self.running.insert(who, (process, now()));
            if who == Who::Server {
                self.tell(address, world).await?;
            }
        }
        Ok(())
    }

    async fn tell(&self, address: SocketAddr, world: &World) -> Result<(), String> {
        world.set_up(Some(address));
        if self.point.is_some() {
            // It may be gone already.
            return Ok(());
        }
        match world.client().ask(Ask::get("/readyz")).await {
            Answer::Told(200, _) => Ok(()),
            other => Err(format!("the server says that it is ready, and /readyz is answered by {other:?}")),
        }
    }

    /// Starts these and kills them so long afterwards, ready or not.
    pub(crate) async fn start_in_vain(&mut self, whom: &[Who], after: Duration) -> Result<(), String> {
        self.point = None;
        let mut started = Vec::new();
        for who in whom {
            started.push((*who, self.spawn(*who)?));
        }
        tokio::time::sleep(after).await;
        for (who, process) in started {
            self.while_starting += 1;
            self.killed(who, process).await?;
        }
        Ok(())
    }

    /// SIGKILL.
    pub(crate) async fn kill(&mut self, who: Who, world: &World) -> Result<(), String> {
        let Some((process, _)) = self.running.remove(&who) else { return Ok(()) };
        let ended = self.killed(who, process).await;
        if who == Who::Server {
            world.set_up(None);
        }
        match ended? {
            SIGKILL => *self.kills.entry(who).or_default() += 1,
            _ => self.at_points += 1,
        }
        Ok(())
    }

    /// The signal by which a process ended: that of its kill, or of its point.
    async fn killed(&self, who: Who, process: Server) -> Result<i32, String> {
        let status = process.kill().await?;
        match status.signal() {
            Some(SIGKILL) => Ok(SIGKILL),
            Some(SIGABRT) if who == Who::Server && self.point.is_some() => Ok(SIGABRT),
            _ => Err(format!("{} ended by itself: {status}: {}", who.name(), self.last_words(who))),
        }
    }

    /// Whether the server is to die at a point, and perhaps has.
    pub(crate) fn is_doomed(&self) -> bool {
        self.point.is_some()
    }

    /// How long it has been up.
    pub(crate) fn age(&self, who: Who) -> Duration {
        self.running.get(&who).map(|(_, since)| since.elapsed()).unwrap_or_default()
    }

    /// SIGTERM, and the end that must follow.
    pub(crate) async fn stop(&mut self, who: Who, world: &World) -> Result<(), String> {
        let Some((process, _)) = self.running.remove(&who) else { return Ok(()) };
        if who == Who::Server {
            world.set_up(None);
        }
        process.stop().await.map_err(|problem| format!("{}: {problem}", who.name()))
    }

    fn last_words(&self, who: Who) -> String {
        if who == Who::Server {
            return self.setup.last_words();
        }
        let text = fs::read_to_string(self.log(who)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}
