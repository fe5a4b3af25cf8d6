//! The handler of the activities, the same over every transport, and the log of its requests and runs.
//!
//! An effect is a row in the receiver's store, committed with the result. So the effects of each call can be counted
//! afterwards, whatever happened in between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use abide_dispatch::metadata::{DEADLINE, IDEMPOTENCY_KEY, RETRY_ATTEMPT};
use abide_dispatch::{Metadata, RpcCode, RpcStatus};
use abide_receiver::{Handler, HandlerFailure, HandlerInvocation, HandlerOutput, HandlerRows, HandlerWrite};
use abide_store::memory::MemoryStore;
use serde_json::json;
use tokio::sync::Semaphore;

/// An attempt or a probe that reached the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) probe: bool,
    /// The metadata keys of the request, with their values as bytes of the wire.
    pub(crate) keys: BTreeMap<String, Vec<u8>>,
}

impl ReceivedRequest {
    pub(crate) fn metadata(&self) -> Metadata {
        let pairs = self.keys.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        Metadata::decode(pairs).unwrap().unwrap()
    }

    pub(crate) fn idempotency_key(&self) -> &[u8] {
        &self.keys[IDEMPOTENCY_KEY]
    }

    pub(crate) fn attempt(&self) -> u32 {
        String::from_utf8(self.keys[RETRY_ATTEMPT].clone()).unwrap().parse().unwrap()
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.keys.contains_key(DEADLINE)
    }
}

/// The log of the activities, and the switches by which a test controls them.
#[derive(Debug)]
pub(crate) struct ActivityLog {
    pub(crate) requests: Mutex<Vec<ReceivedRequest>>,
    /// The metadata of every run of the handler.
    pub(crate) handled: Mutex<Vec<Metadata>>,
    /// Requests that have no response yet.
    pub(crate) open_exchanges: AtomicUsize,
    /// Has one permit for every waiting handler.
    pub(crate) waiting_handlers: Semaphore,
    /// Each permit lets one waiting handler continue.
    pub(crate) go: Semaphore,
    /// Once set, inputs with `untilMended` succeed.
    pub(crate) repaired: AtomicBool,
}

impl Default for ActivityLog {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            handled: Mutex::default(),
            open_exchanges: AtomicUsize::new(0),
            waiting_handlers: Semaphore::new(0),
            go: Semaphore::new(0),
            repaired: AtomicBool::new(false),
        }
    }
}

impl ActivityLog {
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn handled(&self) -> Vec<Metadata> {
        self.handled.lock().unwrap().clone()
    }

    /// Logs a request, and counts its exchange as open until the guard is dropped.
    pub(crate) fn begin_exchange(self: &Arc<Self>, request: ReceivedRequest) -> ExchangeGuard {
        self.requests.lock().unwrap().push(request);
        self.open_exchanges.fetch_add(1, Ordering::SeqCst);
        ExchangeGuard(Arc::clone(self))
    }
}

#[derive(Debug)]
pub(crate) struct ExchangeGuard(Arc<ActivityLog>);

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.0.open_exchanges.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CountingHandler {
    pub(crate) rows: HandlerRows<MemoryStore>,
    pub(crate) log: Arc<ActivityLog>,
}

const EFFECTS: &str = "effect/";

impl CountingHandler {
    /// How often each call had its effect, by execution id and idempotency key.
    pub(crate) async fn effect_counts(&self) -> BTreeMap<String, u64> {
        let rows = self.rows.page(EFFECTS.as_bytes(), None).await.unwrap();
        let name = |key: &[u8]| String::from_utf8(key[EFFECTS.len()..].to_vec()).unwrap();
        rows.iter().map(|row| (name(row.key.as_bytes()), count(&row.value))).collect()
    }

    async fn next_write(&self, metadata: &Metadata) -> (u64, HandlerWrite) {
        let key = format!("{EFFECTS}{} {}", metadata.execution_id, metadata.idempotency_key);
        match self.rows.read(key.as_bytes()).await.unwrap() {
            None => (1, HandlerWrite::create(key, 1_u64.to_be_bytes())),
            Some(row) => {
                let times = count(&row.value) + 1;
                (times, HandlerWrite::replace(key, row.version, times.to_be_bytes()))
            }
        }
    }
}

fn count(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_be_bytes)
}

impl Handler for CountingHandler {
    async fn handle(&self, invocation: HandlerInvocation) -> Result<HandlerOutput, HandlerFailure> {
        let HandlerInvocation { input, metadata, .. } = invocation;
        self.log.handled.lock().unwrap().push(metadata.clone());
        match input["do"].as_str().unwrap_or_default() {
            // Fails in the first `times` attempts, until it is repaired, or always.
            "fail" => {
                let times = input["times"].as_u64().unwrap_or(u64::MAX);
                let is_repaired =
                    input["untilMended"].is_boolean() && self.log.repaired.load(Ordering::SeqCst);
                if u64::from(metadata.retry_attempt) < times && !is_repaired {
                    let code = RpcCode::from_name(input["status"].as_str().unwrap()).unwrap();
                    let status = RpcStatus::new(code, "failed as requested");
                    return Err(match input["waitMs"].as_u64() {
                        Some(wait_ms) => status.with_retry_after_ms(wait_ms).into(),
                        None => status.into(),
                    });
                }
            }
            "wait" => {
                self.log.waiting_handlers.add_permits(1);
                self.log.go.acquire().await.unwrap().forget();
            }
            _ => {}
        }
        let (times, write) = self.next_write(&metadata).await;
        let output = if input["do"] == "text" {
            json!("no object")
        } else {
            json!({"step": input["step"], "times": times})
        };
        Ok(HandlerOutput::with_writes(output, vec![write]))
    }
}
