//! What outlives a process of the node: its rows, and the receiver behind its port with rows and a clock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abide_dispatch::IdempotencyKey;
use abide_receiver::{Clock, Receiver, ServeOptions, serve};
use abide_runtime::placement::ShardCount;
use abide_store::memory::MemoryStore;
use abide_store::rows::{Partition, Row};
use abide_store::tables::dispatches::{self, Dispatch, DispatchState};
use abide_store::tables::pages::Page;
use abide_store::tables::{Table, decode};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::over::{Over, STRICT, WORK};
use crate::tap;
use crate::work::{Arrival, Book, Work};

/// How long anything may take to come about.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) over: Over,
    /// Whether activities are declared to answer probes.
    pub(crate) probe: bool,
    /// Where the receiver listens.
    pub(crate) address: SocketAddr,
    /// The node's rows.
    pub(crate) rows: Arc<MemoryStore>,
    /// The receiver's rows.
    pub(crate) received: Arc<MemoryStore>,
    work: Work,
    /// How far the receiver's clock is ahead, in milliseconds.
    ahead: Arc<AtomicI64>,
    outside: Runtime,
}

impl World {
    pub(crate) fn new(over: Over) -> Self {
        Self::with_probe(over, false)
    }

    pub(crate) fn with_probe(over: Over, probe: bool) -> Self {
        let outside = runtime();
        let received = Arc::new(MemoryStore::default());
        let (ahead, book) = (Arc::new(AtomicI64::new(0)), Arc::new(Book::default()));
        let effects = Receiver::builder(Arc::clone(&received), clock(&ahead)).effects().unwrap();
        let work = Work { effects, book };
        let address = outside.block_on(async {
            let router = receiver(&received, &ahead, &work).await.router();
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = tap::tapped(router, &work.book);
            tokio::spawn(serve(listener, router, ServeOptions::default(), std::future::pending()));
            address
        });
        let rows = Arc::new(MemoryStore::default());
        Self { over, probe, address, rows, received, work, ahead, outside }
    }

    /// The receiver, as a process has it that calls it without a wire.
    pub(crate) async fn receiver(&self) -> Receiver<MemoryStore> {
        receiver(&self.received, &self.ahead, &self.work).await
    }

    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.work.book
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.book().arrivals()
    }

    /// How often each piece of work had its effect.
    pub(crate) fn effects(&self) -> BTreeMap<String, u64> {
        self.outside.block_on(self.work.counted())
    }

    /// Sets the receiver's clock this far ahead.
    pub(crate) fn set_ahead(&self, ahead: Duration) {
        self.ahead.store(i64::try_from(ahead.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Waits until one more run of an activity waits.
    pub(crate) fn one_waits(&self) {
        let waits = async { tokio::time::timeout(SOON, self.book().waiting.acquire()).await };
        self.outside.block_on(waits).expect("an activity runs").unwrap().forget();
    }

    /// Waits until this is so.
    pub(crate) fn until(&self, what: &str, so: impl Fn() -> bool) {
        let (soon, mut look) = self.outside.block_on(async {
            (tokio::time::Instant::now() + SOON, tokio::time::interval(Duration::from_millis(1)))
        });
        while !so() {
            let looked = self.outside.block_on(look.tick());
            assert!(looked < soon, "in vain for {what}");
        }
    }

    /// Waits until the receiver has nothing to do.
    pub(crate) fn until_quiet(&self) {
        self.until("the receiver's rest", || self.book().exchanges.load(Ordering::SeqCst) == 0);
    }
}

/// The records of calls, by key: where each stands, and after how many possible deliveries less one.
pub(crate) fn recorded(rows: &MemoryStore) -> BTreeMap<[u8; 32], (DispatchState, u32)> {
    let page = rows.scan_now(&shard(), dispatches::all()).unwrap();
    let record = |row: &Row| {
        let dispatch: Dispatch = decode(&row.value).unwrap();
        (dispatches::read_key(&row.key).unwrap().1, (dispatch.state, dispatch.attempt))
    };
    page.rows.iter().map(record).collect()
}

/// The keys of calls whose end is recorded.
pub(crate) fn settled(rows: &MemoryStore) -> BTreeSet<String> {
    let page = rows.scan_now(&shard(), Table::Page.scan()).unwrap();
    let calls = page.rows.iter().flat_map(|row| decode::<Page>(&row.value).unwrap().settled);
    calls.map(|call| IdempotencyKey(call.idempotency_key).to_string()).collect()
}

/// Whether a call is recorded that may be under way.
pub(crate) fn is_recorded_as_sent(rows: &MemoryStore) -> bool {
    recorded(rows).into_values().any(|(state, _)| state == DispatchState::Sent)
}

/// The one shard there is.
pub(crate) fn shards() -> ShardCount {
    ShardCount::new(1).unwrap()
}

fn shard() -> Partition {
    shards().shards().next().unwrap().partition().unwrap()
}

/// Threads of its own: what runs in it ends when it is dropped, as it does with a process.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Now, in milliseconds of UTC since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the node reads the machine's clock, and the receiver's must agree"
)]
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn clock(ahead: &Arc<AtomicI64>) -> Clock {
    let ahead = Arc::clone(ahead);
    Clock::new(move || now() + ahead.load(Ordering::SeqCst))
}

async fn receiver(rows: &Arc<MemoryStore>, ahead: &Arc<AtomicI64>, work: &Work) -> Receiver<MemoryStore> {
    let builder = Receiver::builder(Arc::clone(rows), clock(ahead));
    builder.handler(WORK, work.clone()).handler(STRICT, work.clone()).open().await.unwrap()
}
