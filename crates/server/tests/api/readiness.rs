//! What is told when the store cannot be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_server::Config;
use abide_store::memory::MemoryStore;
use abide_store::notice::Tick;
use abide_store::public::{
    Page, PublicKey, PublicRow, PublicTables, PublicWrite, PutError, Query, QueryError, TableSchema,
};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Health, Key, Partition, PrivateRows, Row, Scan, ScanPage, StoreError,
};
use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tokio::sync::watch;

use crate::world::{World, echo, failed};

/// The reference store behind two switches.
#[derive(Debug)]
struct Switched {
    store: MemoryStore,
    broken: Arc<AtomicBool>,
    /// The next commit panics.
    panics: Arc<AtomicBool>,
    /// Commits are not answered as long as this is true.
    hangs: watch::Receiver<bool>,
}

impl Switched {
    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    fn refuse(&self) -> Result<(), StoreError> {
        if self.is_broken() {
            Err(StoreError::Unavailable { reason: "switched off".to_owned() })
        } else {
            Ok(())
        }
    }
}

fn switched(hangs: watch::Receiver<bool>) -> Switched {
    Switched { store: MemoryStore::default(), broken: Arc::default(), panics: Arc::default(), hangs }
}

impl PrivateRows for Switched {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn health(&self) -> Health {
        if self.is_broken() {
            return Health::Unusable { reason: "switched off".to_owned() };
        }
        self.store.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        self.refuse()?;
        self.store.read(partition, key).await
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        self.refuse()?;
        self.store.scan(partition, scan).await
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "as asked");
        let mut hangs = self.hangs.clone();
        drop(hangs.wait_for(|hangs| !hangs).await);
        match self.refuse() {
            Ok(()) => self.store.commit(partition, batch).await,
            Err(error) => CommitOutcome::Unavailable { reason: error.to_string() },
        }
    }

    async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        self.store.changed(partition, seen).await
    }
}

impl PublicTables for Switched {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PutError> {
        self.store.put(table, writes).await
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.store.get(table, key).await
    }

    async fn query(&self, table: &'static TableSchema, query: &Query) -> Result<Page, QueryError> {
        self.store.query(table, query).await
    }
}

#[tokio::test]
async fn a_server_whose_store_is_unusable_lives_and_is_not_ready() {
    let broken = Arc::new(AtomicBool::new(false));
    let (_switch, hangs) = watch::channel(false);
    let store = Switched { broken: Arc::clone(&broken), ..switched(hangs) };
    let (world, app) = World::on(store);
    app.ready().await;
    assert_eq!(world.get("/readyz").await.data(), json!({"health": "ready"}));
    world.publish("w", &echo()).await;

    broken.store(true, Ordering::SeqCst);
    let unready = world.get("/readyz").await;
    assert_eq!(unready.error(), failed(503, "SERVICE_UNAVAILABLE", ""));
    assert_eq!(unready.headers["retry-after"], "1");
    assert_eq!(unready.json()["error"]["message"], "switched off");
    assert_eq!(world.get("/healthz").await.status, 200);
    assert!(world.get("/metrics").await.text.contains("abide_store_usable 0\n"));
    for path in ["/api/instances/i", "/api/instances/i/history", "/api/workflows/w"] {
        let refused = world.get(path).await;
        assert_eq!(refused.error(), failed(503, "SERVICE_UNAVAILABLE", ""), "{path}");
        assert_eq!(refused.headers["retry-after"], "1");
    }

    broken.store(false, Ordering::SeqCst);
    app.ready().await;
    assert_eq!(world.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_not_waited_for_and_what_was_asked_for_is_done_once() {
    let (switch, hangs) = watch::channel(false);
    let store = switched(hangs);
    let mut config = Config::default();
    config.server.answer_timeout = abide_workflow::Duration(50);
    let (world, app) = World::configured(store, &config);
    app.ready().await;
    world.publish_waiting("w").await;
    switch.send_replace(true);
    let start = async || {
        let request = Request::post("/api/instances").header("idempotency-key", "k");
        world.send(request.body(Body::from("{\"workflow\":\"w\"}")).unwrap()).await
    };
    for path in ["/api/instances", "/api/instances?wait=PT30S"] {
        let unanswered = world.post(path, &json!({"workflow": "w"})).await;
        assert_eq!(unanswered.error(), failed(503, "SERVICE_UNAVAILABLE", ""), "{path}");
        assert_eq!(unanswered.json()["error"]["details"][0]["code"], "OUTCOME_UNKNOWN");
        assert_eq!(unanswered.headers["retry-after"], "1");
    }
    assert_eq!(start().await.status, 503);
    assert_eq!(start().await.status, 503);
    assert_eq!(world.get("/healthz").await.status, 200);

    switch.send_replace(false);
    let begun = loop {
        let answer = start().await;
        if answer.status == 202 {
            break answer.data();
        }
    };
    assert!(begun["executionId"].as_str().unwrap().ends_with("/1"), "{begun}");
}

#[tokio::test]
async fn a_shard_whose_task_panicked_is_claimed_again() {
    let panics = Arc::new(AtomicBool::new(false));
    let (_switch, hangs) = watch::channel(false);
    let (world, app) = World::on(Switched { panics: Arc::clone(&panics), ..switched(hangs) });
    app.ready().await;
    world.publish_waiting("w").await;
    panics.store(true, Ordering::SeqCst);
    let start = json!({"workflow": "w", "instanceId": "i"});
    assert_eq!(world.post("/api/instances", &start).await.status, 503);
    assert!(!panics.load(Ordering::SeqCst), "it has panicked");
    app.ready().await;
    assert_eq!(world.post("/api/instances", &start).await.status, 202);
}

#[tokio::test]
async fn forgetting_and_signals_are_not_waited_for_when_the_store_does_not_answer() {
    let (switch, hangs) = watch::channel(false);
    let mut config = Config::default();
    config.server.answer_timeout = abide_workflow::Duration(50);
    let (world, app) = World::configured(switched(hangs), &config);
    app.ready().await;
    world.publish("w", &echo()).await;
    world.post("/api/instances?wait=PT30S", &json!({"workflow": "w"})).await;
    let purge = async |dry_run: bool| {
        world.post("/api/instances/purge", &json!({"workflow": "w", "dryRun": dry_run})).await
    };
    while purge(true).await.data()["matched"] != 1 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    switch.send_replace(true);
    let in_time = std::time::Duration::from_secs(30);
    let purged = tokio::time::timeout(in_time, purge(false)).await.unwrap();
    assert_eq!(purged.error(), failed(503, "SERVICE_UNAVAILABLE", ""));
    let signal = "/runtime/webhooks/durabletask/entities/device/d?op=RecordEvent";
    let signalled = tokio::time::timeout(in_time, world.post(signal, &json!(1))).await.unwrap();
    assert_eq!(signalled.status, 503);
}
