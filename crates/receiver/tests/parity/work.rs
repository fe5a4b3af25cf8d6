//! What the activities do, over every way the same, and what is noted of it.
//!
//! An effect is a row of the receiver's store, written with the answer: how often each piece of work had its effect can be counted
//! afterwards, whatever happened in between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use abide_dispatch::metadata::{DEADLINE, IDEMPOTENCY_KEY, RETRY_ATTEMPT};
use abide_dispatch::{Code, Metadata, Status};
use abide_receiver::{Done, Effect, Effects, Failed, Handler, Invocation};
use abide_store::memory::MemoryStore;
use serde_json::json;
use tokio::sync::Semaphore;

/// A delivery that reached the receiver, or a question about one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub(crate) probe: bool,
    /// The canonical keys that came with it, as bytes of the wire.
    pub(crate) keys: BTreeMap<String, Vec<u8>>,
}

impl Arrival {
    pub(crate) fn metadata(&self) -> Metadata {
        let pairs = self.keys.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        Metadata::decode(pairs).unwrap().unwrap()
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.keys[IDEMPOTENCY_KEY]
    }

    pub(crate) fn attempt(&self) -> u32 {
        String::from_utf8(self.keys[RETRY_ATTEMPT].clone()).unwrap().parse().unwrap()
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.keys.contains_key(DEADLINE)
    }
}

/// What is noted, and what the activities are told.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) arrivals: Mutex<Vec<Arrival>>,
    /// What every run of the handler was given.
    pub(crate) ran: Mutex<Vec<Metadata>>,
    /// Exchanges that have begun and not ended.
    pub(crate) exchanges: AtomicUsize,
    /// Has a permit for every run that waits.
    pub(crate) waiting: Semaphore,
    /// A permit lets a run that waits go on.
    pub(crate) go: Semaphore,
    /// What fails until it is mended does not fail any more.
    pub(crate) mended: AtomicBool,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            arrivals: Mutex::default(),
            ran: Mutex::default(),
            exchanges: AtomicUsize::new(0),
            waiting: Semaphore::new(0),
            go: Semaphore::new(0),
            mended: AtomicBool::new(false),
        }
    }
}

impl Book {
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    pub(crate) fn ran(&self) -> Vec<Metadata> {
        self.ran.lock().unwrap().clone()
    }

    /// Counts an exchange until this is dropped.
    pub(crate) fn exchange(self: &Arc<Self>, arrival: Arrival) -> Exchange {
        self.arrivals.lock().unwrap().push(arrival);
        self.exchanges.fetch_add(1, Ordering::SeqCst);
        Exchange(Arc::clone(self))
    }
}

#[derive(Debug)]
pub(crate) struct Exchange(Arc<Book>);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.exchanges.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) effects: Effects<MemoryStore>,
    pub(crate) book: Arc<Book>,
}

const EFFECTS: &str = "effect/";

impl Work {
    /// How often each piece of work had its effect, by execution id and key.
    pub(crate) async fn counted(&self) -> BTreeMap<String, u64> {
        let rows = self.effects.page(EFFECTS.as_bytes(), None).await.unwrap();
        let named = |key: &[u8]| String::from_utf8(key[EFFECTS.len()..].to_vec()).unwrap();
        rows.iter().map(|row| (named(row.key.as_bytes()), count(&row.value))).collect()
    }

    async fn effect(&self, metadata: &Metadata) -> (u64, Effect) {
        let key = format!("{EFFECTS}{} {}", metadata.execution_id, metadata.idempotency_key);
        match self.effects.read(key.as_bytes()).await.unwrap() {
            None => (1, Effect::create(key, 1_u64.to_be_bytes())),
            Some(row) => {
                let times = count(&row.value) + 1;
                (times, Effect::replace(key, row.version, times.to_be_bytes()))
            }
        }
    }
}

fn count(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_be_bytes)
}

impl Handler for Work {
    async fn handle(&self, invocation: Invocation) -> Result<Done, Failed> {
        let Invocation { input, metadata, .. } = invocation;
        self.book.ran.lock().unwrap().push(metadata.clone());
        match input["do"].as_str().unwrap_or_default() {
            // While there were so few deliveries before this one, or until it is mended, or always.
            "fail" => {
                let times = input["times"].as_u64().unwrap_or(u64::MAX);
                let mended = input["untilMended"].is_boolean() && self.book.mended.load(Ordering::SeqCst);
                if u64::from(metadata.retry_attempt) < times && !mended {
                    let code = Code::from_name(input["status"].as_str().unwrap()).unwrap();
                    let status = Status::new(code, "as asked");
                    return Err(match input["waitMs"].as_u64() {
                        Some(wait_ms) => status.with_retry_after_ms(wait_ms).into(),
                        None => status.into(),
                    });
                }
            }
            "wait" => {
                self.book.waiting.add_permits(1);
                self.book.go.acquire().await.unwrap().forget();
            }
            _ => {}
        }
        let (times, effect) = self.effect(&metadata).await;
        let output = if input["do"] == "text" {
            json!("no object")
        } else {
            json!({"step": input["step"], "times": times})
        };
        Ok(Done::with(output, vec![effect]))
    }
}
