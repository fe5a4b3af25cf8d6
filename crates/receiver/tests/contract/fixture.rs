//! A receiver in memory, with a clock that the test sets and a handler that the input controls.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_dispatch::{Metadata, RpcCode, RpcStatus};
use abide_ids::Timestamp;
use abide_receiver::conformance::{self, ConformanceHandler};
use abide_receiver::{
    Handler, HandlerFailure, HandlerInvocation, HandlerOutput, HandlerRows, HandlerWrite, Receiver,
    ReceiverClock, ReceiverOptions,
};
use abide_store::memory::BackendProfile;
use abide_store::rows::{Partition, Scan};
use axum::Router;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::slow_store::SlowStore;
use crate::wires::{TestCall, TestResponse, Wire};

pub(crate) const NOW: i64 = 1_700_000_000_000;

#[derive(Clone)]
pub(crate) struct ContractFixture {
    pub(crate) store: Arc<SlowStore>,
    pub(crate) clock: Arc<AtomicI64>,
    pub(crate) handler: ScriptedHandler,
    pub(crate) receiver: Receiver<SlowStore>,
    pub(crate) router: Router,
}

/// A handler whose behaviour the input selects, and the state it shares with the test.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedHandler {
    store: Arc<SlowStore>,
    rows: HandlerRows<SlowStore>,
    runs: Arc<AtomicUsize>,
    /// Has one permit for every waiting handler.
    pub(crate) waiting: Arc<Semaphore>,
    /// Each permit lets one waiting handler continue.
    pub(crate) go: Arc<Semaphore>,
    pub(crate) seen_metadata: Arc<Mutex<Vec<Metadata>>>,
}

impl ContractFixture {
    pub(crate) async fn new() -> Self {
        Self::with(SlowStore::new(BackendProfile::PLAIN), ReceiverOptions::default()).await
    }

    pub(crate) async fn with(store: SlowStore, options: ReceiverOptions) -> Self {
        let store = Arc::new(store);
        let clock = Arc::new(AtomicI64::new(NOW));
        let rows = Receiver::builder(Arc::clone(&store), ReceiverClock::new(|| Timestamp(0)))
            .handler_rows()
            .unwrap();
        let handler = ScriptedHandler {
            store: Arc::clone(&store),
            rows,
            runs: Arc::default(),
            waiting: Arc::new(Semaphore::new(0)),
            go: Arc::new(Semaphore::new(0)),
            seen_metadata: Arc::default(),
        };
        let receiver = open(&store, &clock, &handler, options).await;
        Self { store, clock, handler, router: receiver.router(), receiver }
    }

    /// Another incarnation over the same rows. Handlers of the old one keep running.
    pub(crate) async fn restarted(&self) -> Self {
        let receiver = open(&self.store, &self.clock, &self.handler, ReceiverOptions::default()).await;
        Self { router: receiver.router(), receiver, ..self.clone() }
    }

    pub(crate) async fn send(&self, wire: Wire, call: &TestCall) -> TestResponse {
        call.send_over(wire, &self.router).await
    }

    pub(crate) fn spawn_send(&self, wire: Wire, call: &TestCall) -> tokio::task::JoinHandle<TestResponse> {
        let router = self.router.clone();
        let call = call.clone();
        tokio::spawn(async move { call.send_over(wire, &router).await })
    }

    /// Resolves when one more handler is waiting.
    pub(crate) async fn wait_for_waiting_handler(&self) {
        // The test's time is paused: it advances as soon as all tasks are idle.
        let waiting = tokio::time::timeout(Duration::from_secs(60), self.handler.waiting.acquire()).await;
        waiting.expect("a handler should run").unwrap().forget();
    }

    pub(crate) fn runs(&self) -> usize {
        self.handler.runs.load(Ordering::SeqCst)
    }

    pub(crate) fn advance_clock(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    /// Number of records and expiry rows.
    pub(crate) fn rows(&self) -> usize {
        let page = self.store.scan_now(&Partition::new("receiver").unwrap(), Scan::all()).unwrap();
        page.rows.iter().filter(|row| matches!(row.key.as_bytes().first(), Some(2 | 3))).count()
    }

    /// Number of rows that `add` and the like have written.
    pub(crate) async fn effects(&self) -> usize {
        self.entries().await.unwrap()
    }

    /// Like [`Self::effects`], but `None` if the store fails.
    pub(crate) async fn entries(&self) -> Option<usize> {
        Some(self.handler.rows.page(b"add/", None).await.ok()?.len())
    }
}

async fn open(
    store: &Arc<SlowStore>,
    clock: &Arc<AtomicI64>,
    handler: &ScriptedHandler,
    options: ReceiverOptions,
) -> Receiver<SlowStore> {
    let now = Arc::clone(clock);
    let clock = ReceiverClock::new(move || Timestamp(now.load(Ordering::SeqCst)));
    // A store with injected faults may fail at first.
    for _ in 0..100 {
        let builder = Receiver::builder(Arc::clone(store), clock.clone()).options(options.clone());
        let rows = builder.handler_rows().unwrap();
        let opened = builder
            .handler("work", handler.clone())
            .handler("other", handler.clone())
            .handler(conformance::NAME, ConformanceHandler::new(rows))
            .open();
        if let Ok(receiver) = opened.await {
            return receiver;
        }
    }
    panic!("the receiver could not be opened in 100 tries");
}

impl Handler for ScriptedHandler {
    async fn handle(&self, invocation: HandlerInvocation) -> Result<HandlerOutput, HandlerFailure> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen_metadata.lock().unwrap().push(invocation.metadata.clone());
        let input = &invocation.input;
        match input["do"].as_str().unwrap_or_default() {
            "fail" => {
                let code = RpcCode::from_name(input["status"].as_str().unwrap()).unwrap();
                Err(RpcStatus::new(code, format!("run {run}"))
                    .with_reason("ASKED")
                    .with_domain("tests")
                    .into())
            }
            "wait" => {
                self.waiting.add_permits(1);
                self.go.acquire().await.unwrap().forget();
                Ok(json!({"ran": run}).into())
            }
            "hang" => std::future::pending().await,
            "panic" => panic!("planted panic"),
            "big" => {
                let chars = usize::try_from(input["chars"].as_u64().unwrap()).unwrap();
                let write = HandlerWrite::create(format!("add/big/{run}"), b"".as_slice());
                Ok(HandlerOutput::with_writes("x".repeat(chars).into(), vec![write]))
            }
            "deep" => Ok((0..100).fold(json!(1), |inner, _| json!([inner])).into()),
            "add" => {
                if let Some(applied) = input["unknown"].as_bool().filter(|_| run == 1) {
                    self.store.make_next_commit_unknown(applied);
                }
                let key = format!("add/{run}/{}", invocation.metadata.idempotency_key);
                let bytes = input["bytes"].as_u64().unwrap_or(1);
                let value = vec![0; usize::try_from(bytes).unwrap()];
                Ok(HandlerOutput::with_writes(json!({"ran": run}), vec![HandlerWrite::create(key, value)]))
            }
            // Always the same row: only the first write succeeds.
            "clash" => Ok(HandlerOutput::with_writes(
                json!({"ran": run}),
                vec![HandlerWrite::create("add/clash", b"".as_slice())],
            )),
            _ => Ok(json!({"ran": run, "z": 1, "a": 2}).into()),
        }
    }
}

pub(crate) fn metadata(key: &str) -> Metadata {
    Metadata {
        correlation_id: "order-7".to_owned(),
        execution_id: "device-7/1".to_owned(),
        idempotency_key: key.to_owned(),
        retry_attempt: 0,
        deadline: None,
        dispatched_at: Timestamp(NOW - 10),
        parent_item_id: None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is used")]
pub(crate) fn work(key: &str, input: Value) -> TestCall {
    TestCall::new("work", &metadata(key), &input)
}
