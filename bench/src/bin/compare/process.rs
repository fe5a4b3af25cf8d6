//! The measured processes: started in a fresh folder, measured through /proc, killed by their id.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use abide_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};
use abide_testkit::process::{ProgramProcess, last_lines};
use tempfile::TempDir;

/// The kernel's unit for CPU time in /proc, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The loopback address with this port.
pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Sends one request on a new connection.
pub(crate) async fn ask(port: u16, request: &HttpRequest, within: Duration) -> io::Result<HttpResponse> {
    HttpClient::new(local(port), within).send(request).await
}

/// The folder and ports of a system: the folder is fresh, and the ports were free when they were chosen.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) api: u16,
    pub(crate) admin: u16,
    pub(crate) node: u16,
    pub(crate) service: u16,
}

impl Place {
    pub(crate) fn new() -> io::Result<Self> {
        // All four are bound at the same time, or the same port could be chosen twice.
        let listeners: Vec<TcpListener> =
            (0..4).map(|_| TcpListener::bind(local(0))).collect::<io::Result<_>>()?;
        let mut ports = Vec::new();
        for listener in &listeners {
            ports.push(listener.local_addr()?.port());
        }
        let [api, admin, node, service] =
            ports.try_into().map_err(|_| io::Error::other("four ports were requested"))?;
        Ok(Self { folder: tempfile::tempdir()?, api, admin, node, service })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The processes of a system. Dropping this kills them, because nothing needs their data, and removes their folder.
pub(crate) struct RunningSystem {
    /// Dropped before the place.
    children: Vec<ProgramProcess>,
    pub(crate) place: Place,
}

impl RunningSystem {
    /// Starts the programs in this order.
    pub(crate) fn start(place: Place, programs: Vec<Command>) -> io::Result<Self> {
        let mut running = Self { children: Vec::new(), place };
        for (number, mut program) in programs.into_iter().enumerate() {
            let log = File::create(running.log(number))?;
            // Restate leaves folders in the folder for temporary files.
            program.current_dir(running.place.folder()).env("TMPDIR", running.place.folder());
            program.stdin(Stdio::null());
            program.stdout(log.try_clone()?).stderr(log);
            running.children.push(ProgramProcess::spawn(program).map_err(io::Error::other)?);
        }
        Ok(running)
    }

    /// The end of the log of a process that has ended by itself, if any.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let mut ended = None;
        for (number, child) in self.children.iter_mut().enumerate() {
            if let Ok(Some(status)) = child.try_wait() {
                ended = Some((number, status));
            }
        }
        ended.map(|(number, status)| format!("a process ended: {status}\n{}", self.last_words(number)))
    }

    /// The last lines of a process's log.
    pub(crate) fn last_words(&self, number: usize) -> String {
        last_lines(&self.log(number), 20).iter().map(|line| format!("  {line}\n")).collect()
    }

    /// The resources that each process has used so far, including its children.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let parents = parents();
        self.children.iter().map(|child| Usage::of(&tree(child.id(), &parents))).collect()
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.place.folder().join(format!("process-{number}.log"))
    }
}

/// The resources used by a process and its children.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mib: f64,
    pub(crate) peak_mib: f64,
}

impl Usage {
    fn of(pids: &[u32]) -> Self {
        let mut usage = Self::default();
        for pid in pids {
            let ticks = stat(*pid).map(|fields| fields.iter().skip(11).take(2).sum::<u64>());
            usage.cpu_seconds += ticks.unwrap_or_default() as f64 / TICKS_PER_SECOND;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            usage.resident_mib += kib(&status, "VmRSS:") as f64 / 1024.0;
            usage.peak_mib += kib(&status, "VmHWM:") as f64 / 1024.0;
        }
        usage
    }
}

/// CPU time of the whole machine and of this process, which is the client.
pub(crate) struct Machine {
    pub(crate) busy_seconds: f64,
    /// The part of it that the host gave to other machines.
    pub(crate) stolen_seconds: f64,
    pub(crate) client_seconds: f64,
}

pub(crate) fn machine() -> Machine {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; the later fields are part of the first two.
    let fields = first.split_whitespace().skip(1).take(8).map(|field| field.parse().unwrap_or(0.0));
    let (mut busy, mut stolen): (f64, f64) = (0.0, 0.0);
    for (number, ticks) in fields.enumerate().filter(|(number, _)| !matches!(number, 3 | 4)) {
        busy += ticks;
        stolen = if number == 7 { ticks } else { stolen };
    }
    Machine {
        busy_seconds: busy / TICKS_PER_SECOND,
        stolen_seconds: stolen / TICKS_PER_SECOND,
        client_seconds: Usage::of(&[std::process::id()]).cpu_seconds,
    }
}

fn kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// The fields of /proc/PID/stat after the name, beginning with the state; a field that is not a number is 0.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect())
}

fn parents() -> BTreeMap<u32, u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, u32::try_from(*stat(pid)?.get(1)?).ok()?))).collect()
}

fn tree(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut all = vec![root];
    let mut seen = 0;
    while let Some(parent) = all.get(seen).copied() {
        all.extend(parents.iter().filter(|(_, its)| **its == parent).map(|(pid, _)| *pid));
        seen += 1;
    }
    all
}
