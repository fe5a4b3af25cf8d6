//! The parts that outlive a node process: its rows, and the receiver on its port, with its own rows and clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abide_dispatch::IdempotencyKey;
use abide_ids::Timestamp;
use abide_receiver::{Receiver, ReceiverClock, ServeOptions, serve};
use abide_runtime::placement::ShardCount;
use abide_store::memory::MemoryStore;
use abide_store::rows::{Partition, Row};
use abide_store::tables::calls::{self, CallRow, CallRowState};
use abide_store::tables::history_pages::HistoryPageRow;
use abide_store::tables::{TableId, decode};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::counting_handler::{ActivityLog, CountingHandler, ReceivedRequest};
use crate::request_log;
use crate::transport::{ParityTransport, STRICT, WORK};

/// Time limit of every wait in these tests.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct ParityFixture {
    pub(crate) over: ParityTransport,
    /// True if activities are declared with `probe`.
    pub(crate) probe: bool,
    /// Address of the receiver.
    pub(crate) address: SocketAddr,
    /// Rows of the node.
    pub(crate) rows: Arc<MemoryStore>,
    pub(crate) receiver_rows: Arc<MemoryStore>,
    work: CountingHandler,
    /// How far the receiver's clock is ahead of the node's, in milliseconds.
    ahead: Arc<AtomicI64>,
    outside: Runtime,
}

impl ParityFixture {
    pub(crate) fn new(over: ParityTransport) -> Self {
        Self::with_probe(over, false)
    }

    pub(crate) fn with_probe(over: ParityTransport, probe: bool) -> Self {
        let outside = runtime();
        let receiver_rows = Arc::new(MemoryStore::default());
        let ahead = Arc::new(AtomicI64::new(0));
        let log = Arc::new(ActivityLog::default());
        let rows = Receiver::builder(Arc::clone(&receiver_rows), clock(&ahead)).handler_rows().unwrap();
        let work = CountingHandler { rows, log };
        let address = outside.block_on(async {
            let router = receiver(&receiver_rows, &ahead, &work).await.router();
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = request_log::with_request_log(router, &work.log);
            tokio::spawn(serve(listener, router, ServeOptions::default(), std::future::pending()));
            address
        });
        let rows = Arc::new(MemoryStore::default());
        Self { over, probe, address, rows, receiver_rows, work, ahead, outside }
    }

    /// A receiver over the same rows, for a process that calls it without a wire.
    pub(crate) async fn receiver(&self) -> Receiver<MemoryStore> {
        receiver(&self.receiver_rows, &self.ahead, &self.work).await
    }

    pub(crate) fn activity_log(&self) -> &Arc<ActivityLog> {
        &self.work.log
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.activity_log().requests()
    }

    /// How often each call had its effect.
    pub(crate) fn effect_counts(&self) -> BTreeMap<String, u64> {
        self.outside.block_on(self.work.effect_counts())
    }

    /// Sets the receiver's clock this far ahead.
    pub(crate) fn set_ahead(&self, ahead: Duration) {
        self.ahead.store(i64::try_from(ahead.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Waits until one more handler is waiting.
    pub(crate) fn wait_for_waiting_handler(&self) {
        let waiting = async {
            tokio::time::timeout(TEST_TIMEOUT, self.activity_log().waiting_handlers.acquire()).await
        };
        self.outside.block_on(waiting).expect("an activity should run").unwrap().forget();
    }

    /// Waits until the condition holds; `what` describes it.
    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn() -> bool) {
        let (deadline, mut ticks) = self.outside.block_on(async {
            (tokio::time::Instant::now() + TEST_TIMEOUT, tokio::time::interval(Duration::from_millis(1)))
        });
        while !condition() {
            let checked_at = self.outside.block_on(ticks.tick());
            assert!(checked_at < deadline, "timed out waiting for {what}");
        }
    }

    /// Waits until the receiver has no open request.
    pub(crate) fn wait_until_idle(&self) {
        self.wait_until("the receiver to be idle", || {
            self.activity_log().open_exchanges.load(Ordering::SeqCst) == 0
        });
    }
}

/// The rows of open calls by idempotency key: state and attempt number.
pub(crate) fn call_records(rows: &MemoryStore) -> BTreeMap<IdempotencyKey, (CallRowState, u32)> {
    let page = rows.scan_now(&shard(), calls::all()).unwrap();
    let record = |row: &Row| {
        let call: CallRow = decode(&row.value).unwrap();
        (calls::read_key(&row.key).unwrap().1, (call.state, call.attempt))
    };
    page.rows.iter().map(record).collect()
}

/// The idempotency keys of settled calls.
pub(crate) fn settled_calls(rows: &MemoryStore) -> BTreeSet<String> {
    let page = rows.scan_now(&shard(), TableId::HistoryPage.scan()).unwrap();
    let calls = page.rows.iter().flat_map(|row| decode::<HistoryPageRow>(&row.value).unwrap().settled_calls);
    calls.map(|call| call.idempotency_key.to_string()).collect()
}

/// True if a call is recorded as sent.
pub(crate) fn is_recorded_as_sent(rows: &MemoryStore) -> bool {
    call_records(rows).into_values().any(|(state, _)| state == CallRowState::Sent)
}

/// These tests use one shard.
pub(crate) fn shards() -> ShardCount {
    ShardCount::new(1).unwrap()
}

fn shard() -> Partition {
    shards().shards().next().unwrap().partition().unwrap()
}

/// A runtime with its own threads. Its tasks end when it is dropped, as those of a process do.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The current time in milliseconds since 1970-01-01T00:00:00Z.
#[expect(
    clippy::disallowed_methods,
    reason = "the node reads the machine's clock, and the receiver's must agree"
)]
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn clock(ahead: &Arc<AtomicI64>) -> ReceiverClock {
    let ahead = Arc::clone(ahead);
    ReceiverClock::new(move || Timestamp(now() + ahead.load(Ordering::SeqCst)))
}

async fn receiver(
    rows: &Arc<MemoryStore>,
    ahead: &Arc<AtomicI64>,
    work: &CountingHandler,
) -> Receiver<MemoryStore> {
    let builder = Receiver::builder(Arc::clone(rows), clock(ahead));
    builder.handler(WORK, work.clone()).handler(STRICT, work.clone()).open().await.unwrap()
}
