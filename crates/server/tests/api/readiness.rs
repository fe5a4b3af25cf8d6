//! Responses while the store cannot be used or does not respond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_runtime::placement::ShardCount;
use abide_server::Config;
use abide_store::change_notify::ChangeTick;
use abide_store::memory::MemoryStore;
use abide_store::public::{
    PublicKey, PublicPage, PublicPutError, PublicQuery, PublicQueryError, PublicRow, PublicTables,
    PublicWrite, TableSchema,
};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Key, Partition, PrivateRows, Row, Scan, ScanPage, StoreError,
    StoreHealth,
};
use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tokio::sync::watch;

use crate::test_api::{TestApi, echo, failed};

/// The reference store with faults that a test can switch on.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    store: MemoryStore,
    broken: Arc<AtomicBool>,
    /// The next commit panics.
    panics: Arc<AtomicBool>,
    /// Commits hang as long as this is true.
    hangs: watch::Receiver<bool>,
}

impl FaultyStore {
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

pub(crate) fn faulty_store(hangs: watch::Receiver<bool>) -> FaultyStore {
    FaultyStore { store: MemoryStore::default(), broken: Arc::default(), panics: Arc::default(), hangs }
}

impl PrivateRows for FaultyStore {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn health(&self) -> StoreHealth {
        if self.is_broken() {
            return StoreHealth::Unusable { reason: "switched off".to_owned() };
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
        assert!(!self.panics.swap(false, Ordering::SeqCst), "injected panic");
        let mut hangs = self.hangs.clone();
        drop(hangs.wait_for(|hangs| !hangs).await);
        match self.refuse() {
            Ok(()) => self.store.commit(partition, batch).await,
            Err(error) => CommitOutcome::Unavailable { reason: error.to_string() },
        }
    }

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        self.store.wait_for_change(partition, seen).await
    }
}

impl PublicTables for FaultyStore {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PublicPutError> {
        self.store.put(table, writes).await
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.store.get(table, key).await
    }

    async fn get_first(
        &self,
        table: &'static TableSchema,
        prefix: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.store.get_first(table, prefix).await
    }

    async fn query(
        &self,
        table: &'static TableSchema,
        query: &PublicQuery,
    ) -> Result<PublicPage, PublicQueryError> {
        self.store.query(table, query).await
    }
}

#[tokio::test]
async fn a_server_with_an_unusable_store_is_alive_but_not_ready() {
    let broken = Arc::new(AtomicBool::new(false));
    let (_switch, hangs) = watch::channel(false);
    let store = FaultyStore { broken: Arc::clone(&broken), ..faulty_store(hangs) };
    let (api, app) = TestApi::on_store(store);
    app.ready().await;
    assert_eq!(api.get("/readyz").await.data(), json!({"health": "ready"}));
    api.publish("w", &echo()).await;

    broken.store(true, Ordering::SeqCst);
    let unready = api.get("/readyz").await;
    assert_eq!(unready.error(), failed(503, "SERVICE_UNAVAILABLE", ""));
    assert_eq!(unready.headers["retry-after"], "1");
    assert_eq!(unready.json()["error"]["message"], "switched off");
    assert_eq!(api.get("/healthz").await.status, 200);
    assert!(api.get("/metrics").await.text.contains("abide_store_usable 0\n"));
    for path in ["/api/instances/i", "/api/instances/i/history", "/api/workflows/w"] {
        let rejected = api.get(path).await;
        assert_eq!(rejected.error(), failed(503, "SERVICE_UNAVAILABLE", ""), "{path}");
        assert_eq!(rejected.headers["retry-after"], "1");
    }

    broken.store(false, Ordering::SeqCst);
    app.ready().await;
    assert_eq!(api.get("/readyz").await.status, 200);
}

/// A shard whose head cannot be read is never ready. The other shards are, and readiness says which is not and why.
#[tokio::test]
async fn a_server_that_cannot_become_ready_says_why() {
    let store = MemoryStore::default();
    let config = Config::default();
    let shards = ShardCount::new(config.store.shards).unwrap();
    let third = shards.shards().nth(3).unwrap().partition().unwrap();
    let head = Batch::fenced(abide_store::tables::heads::key(), None, b"no head".to_vec());
    assert!(matches!(store.commit(&third, head).await, CommitOutcome::Committed(_)));
    let (api, _app) = TestApi::on_store_with_config(store, &config);
    let others = format!("{0} of {1} shards are ready", config.store.shards - 1, config.store.shards);
    let message = loop {
        let unready = api.get("/readyz").await;
        assert_eq!(unready.error(), failed(503, "SERVICE_UNAVAILABLE", ""));
        let message = unready.json()["error"]["message"].as_str().unwrap().to_owned();
        if message.starts_with(&others) {
            break message;
        }
        tokio::task::yield_now().await;
    };
    assert!(message.contains("; shard 3 stopped: "), "{message}");
}

#[tokio::test]
async fn requests_time_out_when_the_store_hangs_and_take_effect_once() {
    let (switch, hangs) = watch::channel(false);
    let store = faulty_store(hangs);
    let mut config = Config::default();
    config.server.reply_timeout = abide_workflow::Duration(50);
    let (api, app) = TestApi::on_store_with_config(store, &config);
    app.ready().await;
    api.publish_waiting("w").await;
    switch.send_replace(true);
    let start = async || {
        let request = Request::post("/api/instances").header("idempotency-key", "k");
        api.send(request.body(Body::from("{\"workflow\":\"w\"}")).unwrap()).await
    };
    for path in ["/api/instances", "/api/instances?wait=PT30S"] {
        let unanswered = api.post(path, &json!({"workflow": "w"})).await;
        assert_eq!(unanswered.error(), failed(503, "SERVICE_UNAVAILABLE", ""), "{path}");
        assert_eq!(unanswered.json()["error"]["details"][0]["code"], "OUTCOME_UNKNOWN");
        assert_eq!(unanswered.headers["retry-after"], "1");
    }
    assert_eq!(start().await.status, 503);
    assert_eq!(start().await.status, 503);
    assert_eq!(api.get("/healthz").await.status, 200);

    switch.send_replace(false);
    let begun = loop {
        let response = start().await;
        if response.status == 202 {
            break response.data();
        }
    };
    assert!(begun["executionId"].as_str().unwrap().ends_with("/1"), "{begun}");
}

#[tokio::test]
async fn ownership_of_a_shard_is_acquired_again_after_its_task_panicked() {
    let panics = Arc::new(AtomicBool::new(false));
    let (_switch, hangs) = watch::channel(false);
    let (api, app) = TestApi::on_store(FaultyStore { panics: Arc::clone(&panics), ..faulty_store(hangs) });
    app.ready().await;
    api.publish_waiting("w").await;
    panics.store(true, Ordering::SeqCst);
    let start = json!({"workflow": "w", "instanceId": "i"});
    assert_eq!(api.post("/api/instances", &start).await.status, 503);
    assert!(!panics.load(Ordering::SeqCst), "it has panicked");
    app.ready().await;
    assert_eq!(api.post("/api/instances", &start).await.status, 202);
}

#[tokio::test]
async fn purges_and_signals_time_out_when_the_store_hangs() {
    let (switch, hangs) = watch::channel(false);
    let mut config = Config::default();
    config.server.reply_timeout = abide_workflow::Duration(50);
    let (api, app) = TestApi::on_store_with_config(faulty_store(hangs), &config);
    app.ready().await;
    api.publish("w", &echo()).await;
    api.post("/api/instances?wait=PT30S", &json!({"workflow": "w"})).await;
    let purge = async |dry_run: bool| {
        api.post("/api/instances/purge", &json!({"workflow": "w", "dryRun": dry_run})).await
    };
    while purge(true).await.data()["matched"] != 1 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    switch.send_replace(true);
    let in_time = std::time::Duration::from_secs(30);
    let purged = tokio::time::timeout(in_time, purge(false)).await.unwrap();
    assert_eq!(purged.error(), failed(503, "SERVICE_UNAVAILABLE", ""));
    let signal = "/runtime/webhooks/durabletask/entities/device/d?op=RecordEvent";
    let signalled = tokio::time::timeout(in_time, api.post(signal, &json!(1))).await.unwrap();
    assert_eq!(signalled.status, 503);
}
