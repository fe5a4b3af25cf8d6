//! The interface of a measured system: its programs, its preparations and its requests. It measures nothing.

use std::fmt;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_testkit::http_client::{HttpRequest, HttpResponse};
use clap::ValueEnum;

use crate::load::ResponseVerdict;
use crate::process::{self, Place, RunningSystem};
use crate::trace;

/// Branches of the parallel workload.
pub(crate) const BRANCHES: usize = 100;
/// The number of the first request: no load reaches it.
const FIRST: u64 = u64::MAX;
/// How long a system may take from the start of its processes to the end of the first workflow.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The timeout of one request in that time. A server that is not ready may accept a request and never respond.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// The number of keys over which events are spread.
pub(crate) const KEYS: u64 = 200;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Three tasks, one after the other: start and wait.
    W1,
    /// Events for keyed state, each recorded under its key and acknowledged.
    W2,
    /// Many instances that each wait for an event; then all events are raised.
    W3,
    /// A hundred branches at once with one task each: start and wait.
    W4,
}

impl Workload {
    /// The number of tasks of one run.
    pub(crate) fn steps(self) -> usize {
        match self {
            Self::W1 => 3,
            Self::W4 => BRANCHES,
            Self::W2 | Self::W3 => 0,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::W1 => "W1 three sequential tasks, start and wait",
            Self::W2 => "W2 events over 200 keys, recorded in order and acknowledged",
            Self::W3 => "W3 waiting instances, started, then all raised",
            Self::W4 => "W4 parallel of 100 branches, start and wait",
        })
    }
}

/// A measured system. All requests go to its `api` port, except the preparations.
pub(crate) trait System: Send + Sync {
    /// The name in JSON.
    fn key(&self) -> &'static str;
    /// The name in tables, with everything that a reader needs for a fair comparison.
    fn label(&self) -> &str;
    /// True if it is measured with this workload.
    fn supports(&self, _: Workload) -> bool {
        true
    }
    /// The programs to run: the server first, then the separate process that it calls, if any.
    fn programs(&self, place: &Place) -> io::Result<Vec<Command>>;
    /// Ports and requests that set a workload up; they are repeated until they succeed.
    fn preparations(&self, place: &Place, workload: Workload) -> Vec<(u16, HttpRequest)>;
    /// W1, W2 and W4: the response comes when the run has ended or the event is recorded.
    fn start_and_wait(&self, workload: Workload, number: u64) -> HttpRequest;
    /// W3: the response comes when the start is durable.
    fn start_waiting(&self, number: u64) -> HttpRequest;
    /// W3: raises the event that the instance waits for.
    fn raise(&self, number: u64) -> HttpRequest;
    /// W3: reads how the instance ended.
    fn outcome(&self, number: u64) -> HttpRequest;
    /// Judges the response to `start_and_wait` or `outcome`: done if the run has completed.
    fn judge(&self, response: &HttpResponse) -> ResponseVerdict;
    /// Reads the server's counters of commits and rows, if it has them.
    fn counters(&self) -> Option<HttpRequest> {
        None
    }
    /// Reads the separate process's counter of calls, if it has one.
    fn calls(&self) -> Option<HttpRequest> {
        None
    }
}

/// Judges any success as done.
pub(crate) fn accepted(response: &HttpResponse) -> ResponseVerdict {
    if response.is_success() { ResponseVerdict::Done } else { ResponseVerdict::Refused }
}

/// Starts a system, and returns the seconds until it was ready. Ready means: for W1 and W4 the first workflow has
/// ended, for W2 the first event is recorded, for W3 the first workflow has started.
pub(crate) async fn start(
    system: &Arc<dyn System>,
    workload: Workload,
    traced: bool,
) -> io::Result<(RunningSystem, f64)> {
    let place = Place::new()?;
    let mut programs = system.programs(&place)?;
    if traced && let Some(server) = programs.first_mut() {
        *server = trace::traced(server, place.folder());
    }
    let started = Instant::now();
    let mut running = RunningSystem::start(place, programs)?;
    for (port, request) in system.preparations(&running.place, workload) {
        until_accepted(&mut running, started, port, &request, &accepted).await?;
    }
    let port = running.place.api;
    match workload {
        Workload::W3 => {
            until_accepted(&mut running, started, port, &system.start_waiting(FIRST), &accepted).await?;
        }
        _ => {
            let judge = |response: &HttpResponse| system.judge(response);
            let request = system.start_and_wait(workload, FIRST);
            until_accepted(&mut running, started, port, &request, &judge).await?;
        }
    }
    Ok((running, started.elapsed().as_secs_f64()))
}

async fn until_accepted(
    running: &mut RunningSystem,
    started: Instant,
    port: u16,
    request: &HttpRequest,
    judge: &(dyn Fn(&HttpResponse) -> ResponseVerdict + Sync),
) -> io::Result<()> {
    loop {
        let response = process::ask(port, request, ATTEMPT_WITHIN).await;
        if matches!(response.as_ref().map(judge), Ok(ResponseVerdict::Done)) {
            return Ok(());
        }
        if let Some(ended) = running.ended() {
            return Err(io::Error::other(ended));
        }
        if started.elapsed() > READY_WITHIN {
            let last = response.map_or_else(|error| error.to_string(), |response| response.excerpt());
            return Err(io::Error::other(format!("not ready: {last}\n{}", running.last_words(0))));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
