//! What is measured: a system says how it is started, what it is told first, and which request asks for what. It measures nothing.

use std::fmt;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::http::{self, Answer, Request};
use crate::load::Verdict;
use crate::process::{Place, Running};
use crate::trace;

/// Branches of the parallel workload.
pub(crate) const BRANCHES: usize = 100;
/// A number that no load reaches, for the first request of all.
const FIRST: u64 = u64::MAX;
/// From the start of the processes to the first answer of a workflow.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// One attempt at it. A server that is not ready may take a request and keep it.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Keys that events are spread over.
pub(crate) const KEYS: u64 = 200;

/// The workloads.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Three tasks, one after the other: start and wait.
    W1,
    /// Events for keyed state, each recorded under its key and answered.
    W2,
    /// Many instances that wait for an event each; then all are raised.
    W3,
    /// A hundred branches at once, a task in each: start and wait.
    W4,
}

impl Workload {
    /// Tasks of one run.
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
            Self::W2 => "W2 events over 200 keys, recorded in order and answered",
            Self::W3 => "W3 waiting instances, started, then all raised",
            Self::W4 => "W4 parallel of 100 branches, start and wait",
        })
    }
}

/// Requests to a system. All go to its `api` port, apart from the preparations.
pub(crate) trait System: Send + Sync {
    /// In the JSON.
    fn key(&self) -> &'static str;
    /// In the tables: with everything a reader must know to compare fairly.
    fn label(&self) -> &str;
    /// Whether it is measured under this workload.
    fn takes(&self, _: Workload) -> bool {
        true
    }
    /// What runs: the server first, then what it calls, if that is a process of its own.
    fn programs(&self, place: &Place) -> io::Result<Vec<Command>>;
    /// Ports and requests that make a workload known; repeated until they succeed.
    fn preparations(&self, place: &Place, workload: Workload) -> Vec<(u16, Request)>;
    /// W1, W2 and W4: answered when the run has ended, or the event is recorded.
    fn start_and_wait(&self, workload: Workload, number: u64) -> Request;
    /// W3: answered when the start is durable.
    fn start_waiting(&self, number: u64) -> Request;
    /// W3: the event that the instance waits for.
    fn raise(&self, number: u64) -> Request;
    /// W3: how the instance ended.
    fn outcome(&self, number: u64) -> Request;
    /// Of the answer to `start_and_wait` or `outcome`: has the run ended well?
    fn judge(&self, answer: &Answer) -> Verdict;
    /// Where the server counts its commits and their rows, if it does.
    fn counters(&self) -> Option<Request> {
        None
    }
    /// Where the process that the server calls counts the calls, if it does.
    fn calls(&self) -> Option<Request> {
        None
    }
}

/// Any success will do.
pub(crate) fn accepted(answer: &Answer) -> Verdict {
    if answer.is_success() { Verdict::Done } else { Verdict::Refused }
}

/// A system that answers, and how long that took from nothing: for W1 and W4 the first workflow has ended, for W2 the first event is recorded, for W3 it has begun.
pub(crate) async fn start(
    system: &Arc<dyn System>,
    workload: Workload,
    traced: bool,
) -> io::Result<(Running, f64)> {
    let place = Place::new()?;
    let mut programs = system.programs(&place)?;
    if traced && let Some(server) = programs.first_mut() {
        *server = trace::traced(server, place.folder());
    }
    let started = Instant::now();
    let mut running = Running::start(place, programs)?;
    for (port, request) in system.preparations(&running.place, workload) {
        until_accepted(&mut running, started, port, &request, &accepted).await?;
    }
    let port = running.place.api;
    match workload {
        Workload::W3 => {
            until_accepted(&mut running, started, port, &system.start_waiting(FIRST), &accepted).await?;
        }
        _ => {
            let judge = |answer: &Answer| system.judge(answer);
            let request = system.start_and_wait(workload, FIRST);
            until_accepted(&mut running, started, port, &request, &judge).await?;
        }
    }
    Ok((running, started.elapsed().as_secs_f64()))
}

async fn until_accepted(
    running: &mut Running,
    started: Instant,
    port: u16,
    request: &Request,
    judge: &(dyn Fn(&Answer) -> Verdict + Sync),
) -> io::Result<()> {
    loop {
        let answer = http::once(port, request, ATTEMPT_WITHIN).await;
        if matches!(answer.as_ref().map(judge), Ok(Verdict::Done)) {
            return Ok(());
        }
        if let Some(ended) = running.ended() {
            return Err(io::Error::other(ended));
        }
        if started.elapsed() > READY_WITHIN {
            let said = answer.map_or_else(|error| error.to_string(), |answer| answer.excerpt());
            return Err(io::Error::other(format!("not ready: {said}\n{}", running.last_words(0))));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
