//! Load on a server: a closed loop for a while, and one pass over so many numbers. Both know requests and verdicts, no system.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::http::{Answer, Line, Request, local};

/// Longer than the servers are asked to wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);
/// Between two looks at something that is not there yet, and after an error.
const PAUSE: Duration = Duration::from_millis(10);
/// Looks at one number before it counts as an error.
const LOOKS_MAX: u32 = 6_000;

/// What an answer says about the work asked for.
pub(crate) enum Verdict {
    Done,
    /// It was understood, and the work is not done yet.
    NotYet,
    Refused,
}

/// Makes the request of a number.
pub(crate) type Make = Arc<dyn Fn(u64) -> Request + Send + Sync>;
/// Judges an answer.
pub(crate) type Judge = Arc<dyn Fn(&Answer) -> Verdict + Send + Sync>;

/// What is asked of which server, by how many at once.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) port: u16,
    pub(crate) in_flight: usize,
    pub(crate) make: Make,
    pub(crate) judge: Judge,
}

/// What a load did.
#[derive(Default)]
pub(crate) struct Tally {
    /// Each time from the request to its answer, in microseconds. Done ones only.
    pub(crate) latencies_us: Vec<u64>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

impl Tally {
    fn error(&mut self, what: &io::Result<Answer>) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| match what {
            Ok(answer) => answer.excerpt(),
            Err(error) => error.to_string(),
        });
    }

    /// In milliseconds: the latency that this share of all requests did not exceed.
    pub(crate) fn percentile_ms(&mut self, share: f64) -> f64 {
        self.latencies_us.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
        let index = (self.latencies_us.len().saturating_sub(1) as f64 * share).round() as usize;
        self.latencies_us.get(index).copied().unwrap_or_default() as f64 / 1000.0
    }
}

/// A closed loop under way: as many requests as it has lines are in flight, and each answer is followed by the next request.
pub(crate) struct ClosedLoop {
    /// Counts only between `begin` and `end`.
    tally: Arc<Mutex<Option<Tally>>>,
    lines: JoinSet<()>,
}

impl ClosedLoop {
    pub(crate) fn start(load: &Load) -> Self {
        let (tally, next) = (Arc::new(Mutex::new(None)), Arc::new(AtomicU64::new(0)));
        let mut lines = JoinSet::new();
        for _ in 0..load.in_flight {
            lines.spawn(one_line(load.clone(), Arc::clone(&next), Arc::clone(&tally)));
        }
        Self { tally, lines }
    }

    pub(crate) fn begin(&self) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = Some(Tally::default());
    }

    /// Stops, and leaves what is in flight alone: the server is thrown away afterwards.
    pub(crate) fn end(mut self) -> Tally {
        self.lines.abort_all();
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

async fn one_line(load: Load, next: Arc<AtomicU64>, tally: Arc<Mutex<Option<Tally>>>) {
    let mut line = Line::new(local(load.port), ANSWER_WITHIN);
    loop {
        let request = (load.make)(next.fetch_add(1, Ordering::Relaxed));
        let started = Instant::now();
        let answer = line.send(&request).await;
        let latency_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let done = matches!(answer.as_ref().map(|answer| (load.judge)(answer)), Ok(Verdict::Done));
        if let Some(tally) = tally.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            match done {
                true => tally.latencies_us.push(latency_us),
                false => tally.error(&answer),
            }
        }
        if !done {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Asks for each number below `count` until it is done. Says how many seconds that took, and what went wrong.
pub(crate) async fn each(load: &Load, count: u64) -> (f64, Tally) {
    let (tally, next) = (Arc::new(Mutex::new(Tally::default())), Arc::new(AtomicU64::new(0)));
    let started = Instant::now();
    let mut lines = JoinSet::new();
    for _ in 0..load.in_flight {
        let (load, next, tally) = (load.clone(), Arc::clone(&next), Arc::clone(&tally));
        lines.spawn(async move {
            let mut line = Line::new(local(load.port), ANSWER_WITHIN);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                if let Err(answer) = until_done(&load, &mut line, number).await {
                    tally.lock().unwrap_or_else(PoisonError::into_inner).error(&answer);
                }
            }
        });
    }
    lines.join_all().await;
    let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    (started.elapsed().as_secs_f64(), tally)
}

async fn until_done(load: &Load, line: &mut Line, number: u64) -> Result<(), io::Result<Answer>> {
    let request = (load.make)(number);
    for _ in 0..LOOKS_MAX {
        let answer = line.send(&request).await;
        match answer.as_ref().map(|answer| (load.judge)(answer)) {
            Ok(Verdict::Done) => return Ok(()),
            Ok(Verdict::NotYet) => tokio::time::sleep(PAUSE).await,
            Ok(Verdict::Refused) | Err(_) => return Err(answer),
        }
    }
    Err(Err(io::Error::new(io::ErrorKind::TimedOut, "never done")))
}
