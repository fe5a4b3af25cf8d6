//! Load on a server: a closed loop for some time, or one pass over so many numbers. Both know requests and verdicts,
//! but no system.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use abide_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};
use tokio::task::JoinSet;

use crate::process::local;

/// Longer than the `wait` in the requests.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
/// The pause between two polls, and after an error.
const PAUSE: Duration = Duration::from_millis(10);
/// The number of polls of one number before it counts as an error.
const POLLS_MAX: u32 = 6_000;

/// The verdict on a response.
pub(crate) enum ResponseVerdict {
    Done,
    /// The request is valid, but the work is not done yet.
    NotYet,
    Refused,
}

/// Makes the request of a number.
pub(crate) type Make = Arc<dyn Fn(u64) -> HttpRequest + Send + Sync>;
/// Judges a response.
pub(crate) type Judge = Arc<dyn Fn(&HttpResponse) -> ResponseVerdict + Send + Sync>;

/// The requests to a server, and how many are in flight.
#[derive(Clone)]
pub(crate) struct BenchLoad {
    pub(crate) port: u16,
    pub(crate) in_flight: usize,
    pub(crate) make: Make,
    pub(crate) judge: Judge,
}

/// The result of a load.
#[derive(Default)]
pub(crate) struct LoadTally {
    /// The latency of each request that was done, in microseconds.
    pub(crate) latencies_us: Vec<u64>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

impl LoadTally {
    fn error(&mut self, what: &io::Result<HttpResponse>) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| match what {
            Ok(response) => response.excerpt(),
            Err(error) => error.to_string(),
        });
    }

    /// The latency in milliseconds that this share of all requests did not exceed.
    pub(crate) fn percentile_ms(&mut self, share: f64) -> f64 {
        self.latencies_us.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
        let index = (self.latencies_us.len().saturating_sub(1) as f64 * share).round() as usize;
        self.latencies_us.get(index).copied().unwrap_or_default() as f64 / 1000.0
    }
}

/// A running closed loop: each client has one request in flight and sends the next one after the response.
pub(crate) struct ClosedLoop {
    /// Counts only between `begin` and `end`.
    tally: Arc<Mutex<Option<LoadTally>>>,
    lines: JoinSet<()>,
}

impl ClosedLoop {
    pub(crate) fn start(load: &BenchLoad) -> Self {
        let tally = Arc::new(Mutex::new(None));
        let next = Arc::new(AtomicU64::new(0));
        let mut lines = JoinSet::new();
        for _ in 0..load.in_flight {
            lines.spawn(one_line(load.clone(), Arc::clone(&next), Arc::clone(&tally)));
        }
        Self { tally, lines }
    }

    pub(crate) fn begin(&self) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = Some(LoadTally::default());
    }

    /// Stops without waiting for requests in flight: the server is killed afterwards.
    pub(crate) fn end(mut self) -> LoadTally {
        self.lines.abort_all();
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

async fn one_line(load: BenchLoad, next: Arc<AtomicU64>, tally: Arc<Mutex<Option<LoadTally>>>) {
    let mut client = HttpClient::new(local(load.port), RESPONSE_TIMEOUT);
    loop {
        let request = (load.make)(next.fetch_add(1, Ordering::Relaxed));
        let started = Instant::now();
        let response = client.send(&request).await;
        let latency_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let done =
            matches!(response.as_ref().map(|response| (load.judge)(response)), Ok(ResponseVerdict::Done));
        if let Some(tally) = tally.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            match done {
                true => tally.latencies_us.push(latency_us),
                false => tally.error(&response),
            }
        }
        if !done {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Sends the request of each number below `count` until it is done. Returns the seconds it took, and the errors.
pub(crate) async fn each(load: &BenchLoad, count: u64) -> (f64, LoadTally) {
    let tally = Arc::new(Mutex::new(LoadTally::default()));
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut lines = JoinSet::new();
    for _ in 0..load.in_flight {
        let load = load.clone();
        let next = Arc::clone(&next);
        let tally = Arc::clone(&tally);
        lines.spawn(async move {
            let mut client = HttpClient::new(local(load.port), RESPONSE_TIMEOUT);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                if let Err(response) = until_done(&load, &mut client, number).await {
                    tally.lock().unwrap_or_else(PoisonError::into_inner).error(&response);
                }
            }
        });
    }
    lines.join_all().await;
    let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    (started.elapsed().as_secs_f64(), tally)
}

async fn until_done(
    load: &BenchLoad,
    client: &mut HttpClient,
    number: u64,
) -> Result<(), io::Result<HttpResponse>> {
    let request = (load.make)(number);
    for _ in 0..POLLS_MAX {
        let response = client.send(&request).await;
        match response.as_ref().map(|response| (load.judge)(response)) {
            Ok(ResponseVerdict::Done) => return Ok(()),
            Ok(ResponseVerdict::NotYet) => tokio::time::sleep(PAUSE).await,
            Ok(ResponseVerdict::Refused) | Err(_) => return Err(response),
        }
    }
    Err(Err(io::Error::new(io::ErrorKind::TimedOut, "the work was never done")))
}
