//! A receiver in memory, with a clock that is set by hand and a handler that does as it is told.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_dispatch::{Code, Metadata, Status};
use abide_receiver::conformance::{self, Conformance};
use abide_receiver::{Clock, Done, Effect, Effects, Failed, Handler, Invocation, Options, Receiver};
use abide_store::memory::Personality;
use abide_store::rows::{Partition, Scan};
use axum::Router;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::store::SlowStore;
use crate::wires::{Sent, Told, Wire};

pub(crate) const NOW: i64 = 1_700_000_000_000;

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<SlowStore>,
    pub(crate) clock: Arc<AtomicI64>,
    pub(crate) does: Does,
    pub(crate) receiver: Receiver<SlowStore>,
    pub(crate) router: Router,
}

/// What the handler shares with its test.
#[derive(Clone, Debug)]
pub(crate) struct Does {
    store: Arc<SlowStore>,
    effects: Effects<SlowStore>,
    /// How often it ran.
    ran: Arc<AtomicUsize>,
    /// Has a permit for every run that is waiting.
    pub(crate) waiting: Arc<Semaphore>,
    /// A permit lets a waiting run go on.
    pub(crate) go: Arc<Semaphore>,
    pub(crate) seen: Arc<Mutex<Vec<Metadata>>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(SlowStore::new(Personality::PLAIN), Options::default()).await
    }

    pub(crate) async fn with(store: SlowStore, options: Options) -> Self {
        let store = Arc::new(store);
        let clock = Arc::new(AtomicI64::new(NOW));
        let effects = Receiver::builder(Arc::clone(&store), Clock::new(|| 0)).effects().unwrap();
        let does = Does {
            store: Arc::clone(&store),
            effects,
            ran: Arc::default(),
            waiting: Arc::new(Semaphore::new(0)),
            go: Arc::new(Semaphore::new(0)),
            seen: Arc::default(),
        };
        let receiver = open(&store, &clock, &does, options).await;
        Self { store, clock, does, router: receiver.router(), receiver }
    }

    /// Another incarnation over the same rows; what the old one has begun goes on.
    pub(crate) async fn restarted(&self) -> Self {
        let receiver = open(&self.store, &self.clock, &self.does, Options::default()).await;
        Self { router: receiver.router(), receiver, ..self.clone() }
    }

    pub(crate) async fn send(&self, wire: Wire, sent: &Sent) -> Told {
        sent.over(wire, &self.router).await
    }

    /// Sends in the background.
    pub(crate) fn sending(&self, wire: Wire, sent: &Sent) -> tokio::task::JoinHandle<Told> {
        let (router, sent) = (self.router.clone(), sent.clone());
        tokio::spawn(async move { sent.over(wire, &router).await })
    }

    /// Resolves when one more run is waiting.
    pub(crate) async fn one_waits(&self) {
        // Time is paused: it passes at once when nobody has anything else to do.
        let waits = tokio::time::timeout(Duration::from_secs(60), self.does.waiting.acquire()).await;
        waits.expect("a handler runs").unwrap().forget();
    }

    /// How often a handler ran.
    pub(crate) fn ran(&self) -> usize {
        self.does.ran.load(Ordering::SeqCst)
    }

    pub(crate) fn pass(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    /// Rows of claims, answers and their expiries.
    pub(crate) fn rows(&self) -> usize {
        let page = self.store.scan_now(&Partition::new("receiver").unwrap(), Scan::all()).unwrap();
        page.rows.iter().filter(|row| matches!(row.key.as_bytes().first(), Some(2 | 3))).count()
    }

    /// Entries that `add` has left.
    pub(crate) async fn effects(&self) -> usize {
        self.entries().await.unwrap()
    }

    /// The same, if the store says.
    pub(crate) async fn entries(&self) -> Option<usize> {
        Some(self.does.effects.page(b"add/", None).await.ok()?.len())
    }
}

async fn open(
    store: &Arc<SlowStore>,
    clock: &Arc<AtomicI64>,
    does: &Does,
    options: Options,
) -> Receiver<SlowStore> {
    let now = Arc::clone(clock);
    let clock = Clock::new(move || now.load(Ordering::SeqCst));
    // A store with dice refuses now and then.
    for _ in 0..100 {
        let builder = Receiver::builder(Arc::clone(store), clock.clone()).options(options.clone());
        let effects = builder.effects().unwrap();
        let opened = builder
            .handler("work", does.clone())
            .handler("other", does.clone())
            .handler(conformance::NAME, Conformance::new(effects))
            .open();
        if let Ok(receiver) = opened.await {
            return receiver;
        }
    }
    panic!("the store never opens");
}

impl Handler for Does {
    async fn handle(&self, invocation: Invocation) -> Result<Done, Failed> {
        let ran = self.ran.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.lock().unwrap().push(invocation.metadata.clone());
        let input = &invocation.input;
        match input["do"].as_str().unwrap_or_default() {
            "fail" => {
                let code = Code::from_name(input["status"].as_str().unwrap()).unwrap();
                Err(Status::new(code, format!("run {ran}")).with_reason("ASKED").with_domain("tests").into())
            }
            "wait" => {
                self.waiting.add_permits(1);
                self.go.acquire().await.unwrap().forget();
                Ok(json!({"ran": ran}).into())
            }
            "hang" => std::future::pending().await,
            "panic" => panic!("as asked"),
            "big" => {
                let chars = usize::try_from(input["chars"].as_u64().unwrap()).unwrap();
                let effect = Effect::create(format!("add/big/{ran}"), b"".as_slice());
                Ok(Done::with("x".repeat(chars).into(), vec![effect]))
            }
            "deep" => Ok((0..100).fold(json!(1), |inner, _| json!([inner])).into()),
            "add" => {
                if let Some(applied) = input["unknown"].as_bool().filter(|_| ran == 1) {
                    self.store.make_next_commit_unknown(applied);
                }
                let key = format!("add/{ran}/{}", invocation.metadata.idempotency_key);
                let bytes = input["bytes"].as_u64().unwrap_or(1);
                let value = vec![0; usize::try_from(bytes).unwrap()];
                Ok(Done::with(json!({"ran": ran}), vec![Effect::create(key, value)]))
            }
            // Twice the same row: the first one wins.
            "clash" => Ok(Done::with(json!({"ran": ran}), vec![Effect::create("add/clash", b"".as_slice())])),
            _ => Ok(json!({"ran": ran, "z": 1, "a": 2}).into()),
        }
    }
}

pub(crate) fn metadata(key: &str) -> Metadata {
    Metadata {
        correlation_id: "order-7".to_owned(),
        execution_id: "device-7/1".to_owned(),
        idempotency_key: key.to_owned(),
        retry_attempt: 0,
        deadline_epoch_ms: None,
        dispatched_at_epoch_ms: NOW - 10,
        parent_item_id: None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is used")]
pub(crate) fn work(key: &str, input: Value) -> Sent {
    Sent::new("work", &metadata(key), &input)
}
