//! Tests how long results are kept, and that no record stays forever.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use abide_dispatch::{Metadata, RpcCode, RpcStatus};
use abide_ids::Timestamp;
use abide_receiver::{
    ActivityRequest, ActivityResponse, HandlerInvocation, HandlerWrite, Receiver, ReceiverClock,
    ReceiverOptions, SweepSummary,
};
use abide_store::memory::{BackendProfile, MemoryStore};
use abide_store::rows::{Partition, Scan};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const DAY: i64 = 24 * 3_600 * 1_000;

struct RetentionFixture {
    store: Arc<MemoryStore>,
    clock: Arc<AtomicI64>,
    ran: Arc<AtomicUsize>,
    waiting: Arc<Semaphore>,
    go: Arc<Semaphore>,
    receiver: Receiver<MemoryStore>,
}

impl RetentionFixture {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(BackendProfile::AZURE));
        let clock = Arc::new(AtomicI64::new(DAY));
        let (ran, waiting, go) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let receiver = open(&store, &clock, &ran, &waiting, &go).await;
        Self { store, clock, ran, waiting, go, receiver }
    }

    async fn restart(&mut self) {
        self.receiver = open(&self.store, &self.clock, &self.ran, &self.waiting, &self.go).await;
    }

    async fn call(&self, key: &str, input: &Value, deadline: Option<i64>) -> ActivityResponse {
        self.receiver.invoke(request(key, input, deadline)).await
    }

    fn advance_clock(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sweeps until nothing is left to do, and returns the number of deleted records.
    async fn sweep_all(&self) -> usize {
        let mut deleted = 0;
        for _ in 0..1_000 {
            let SweepSummary { deleted: count, more } = self.receiver.sweep().await.unwrap();
            deleted += count;
            if !more {
                return deleted;
            }
        }
        panic!("the sweep never ends");
    }

    /// Number of records and expiry rows.
    fn rows(&self) -> usize {
        let page = self.store.scan_now(&Partition::new("receiver").unwrap(), Scan::all()).unwrap();
        page.rows.iter().filter(|row| matches!(row.key.as_bytes().first(), Some(2 | 3))).count()
    }
}

fn request(key: &str, input: &Value, deadline_epoch_ms: Option<i64>) -> ActivityRequest {
    let metadata = Metadata {
        correlation_id: "c".to_owned(),
        execution_id: "e/1".to_owned(),
        idempotency_key: key.to_owned(),
        retry_attempt: 0,
        deadline: deadline_epoch_ms.map(Timestamp),
        dispatched_at: Timestamp(0),
        parent_item_id: None,
    };
    let input = Some(input.to_string().into());
    ActivityRequest { activity: "work".to_owned(), metadata: Ok(Some(metadata)), input }
}

async fn open(
    store: &Arc<MemoryStore>,
    clock: &Arc<AtomicI64>,
    ran: &Arc<AtomicUsize>,
    waiting: &Arc<Semaphore>,
    go: &Arc<Semaphore>,
) -> Receiver<MemoryStore> {
    let clock = Arc::clone(clock);
    let ran = Arc::clone(ran);
    let waiting = Arc::clone(waiting);
    let go = Arc::clone(go);
    let work = move |invocation: HandlerInvocation| {
        let ran = Arc::clone(&ran);
        let waiting = Arc::clone(&waiting);
        let go = Arc::clone(&go);
        async move {
            let run = ran.fetch_add(1, Ordering::SeqCst);
            match invocation.input.as_str() {
                Some("wait") => {
                    waiting.add_permits(1);
                    go.acquire().await.unwrap().forget();
                }
                Some("fail") => return Err(RpcStatus::new(RpcCode::Unavailable, "no")),
                _ => {}
            }
            let write = HandlerWrite::create(format!("{run}"), b"".as_slice());
            Ok(abide_receiver::HandlerOutput::with_writes(json!(run), vec![write]))
        }
    };
    let options = ReceiverOptions { handler_timeout: Duration::from_secs(60), ..ReceiverOptions::default() };
    let clock = ReceiverClock::new(move || Timestamp(clock.load(Ordering::SeqCst)));
    Receiver::builder(Arc::clone(store), clock).options(options).handler("work", work).open().await.unwrap()
}

#[tokio::test]
async fn a_result_is_kept_for_the_retention_and_then_the_call_is_new() {
    let fixture = RetentionFixture::new().await;
    let first = fixture.call("k", &json!(1), None).await;
    fixture.advance_clock(7 * DAY);
    assert_eq!(fixture.sweep_all().await, 0, "the handler timeout is added to the retention");
    assert_eq!(fixture.call("k", &json!(1), None).await, first);
    fixture.advance_clock(60_000);
    assert_eq!((fixture.sweep_all().await, fixture.rows()), (1, 0));
    assert_ne!(fixture.call("k", &json!(1), None).await, first);
    assert_eq!(fixture.rows(), 2);
}

/// The expiry row is written when the call is claimed; the retention counts from its end.
#[tokio::test(start_paused = true)]
async fn the_result_of_a_slow_call_is_kept_as_long_as_any_other() {
    let fixture = RetentionFixture::new().await;
    let receiver = fixture.receiver.clone();
    let slow =
        tokio::spawn(async move { receiver.invoke(request("k", &json!("wait"), Some(4 * DAY))).await });
    fixture.waiting.acquire().await.unwrap().forget();
    fixture.advance_clock(2 * DAY);
    fixture.go.add_permits(1);
    let first = slow.await.unwrap();
    fixture.advance_clock(5 * DAY + 60_000);
    assert_eq!(fixture.sweep_all().await, 0, "finished five days ago");
    assert_eq!(fixture.call("k", &json!(1), None).await, first);
    fixture.advance_clock(2 * DAY);
    assert_eq!((fixture.sweep_all().await, fixture.rows()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_held_claim_is_never_swept_and_a_stale_one_is() {
    let mut fixture = RetentionFixture::new().await;
    let receiver = fixture.receiver.clone();
    let held =
        tokio::spawn(async move { receiver.invoke(request("k", &json!("wait"), Some(30 * DAY))).await });
    fixture.waiting.acquire().await.unwrap().forget();
    fixture.advance_clock(20 * DAY);
    assert_eq!((fixture.sweep_all().await, fixture.rows()), (0, 2));
    fixture.restart().await;
    assert_eq!((fixture.sweep_all().await, fixture.rows()), (1, 0));
    fixture.go.add_permits(1);
    let failure = held.await.unwrap().result.unwrap_err();
    assert_eq!(failure.reason.as_deref(), Some("CLAIM_LOST"));
}

#[tokio::test]
async fn a_failed_attempt_leaves_no_row_behind() {
    let mut fixture = RetentionFixture::new().await;
    for _ in 0..3 {
        assert!(fixture.call("k", &json!("fail"), None).await.result.is_err());
        assert_eq!(fixture.rows(), 0);
    }
    // Nor does an attempt that took over the claim of a dead process in the same millisecond.
    let receiver = fixture.receiver.clone();
    let left_behind = tokio::spawn(async move { receiver.invoke(request("k", &json!("wait"), None)).await });
    fixture.waiting.acquire().await.unwrap().forget();
    fixture.restart().await;
    for _ in 0..3 {
        let failure = fixture.call("k", &json!("fail"), None).await.result.unwrap_err();
        assert_eq!(failure.code, RpcCode::Unavailable);
        assert_eq!(fixture.rows(), 0);
    }
    assert!(fixture.call("k", &json!(1), None).await.result.is_ok());
    left_behind.abort();
}

/// One sweep deletes at most what one commit takes: here a hundred rows, as on Azure.
#[tokio::test]
async fn many_old_results_are_deleted_a_bounded_number_at_a_time() {
    let fixture = RetentionFixture::new().await;
    for n in 0..120 {
        assert!(fixture.call(&format!("k{n}"), &json!(n), None).await.result.is_ok());
    }
    fixture.advance_clock(8 * DAY);
    assert_eq!(fixture.receiver.sweep().await.unwrap(), SweepSummary { deleted: 50, more: true });
    assert_eq!(fixture.receiver.sweep().await.unwrap(), SweepSummary { deleted: 50, more: true });
    assert_eq!(fixture.receiver.sweep().await.unwrap(), SweepSummary { deleted: 20, more: true });
    assert_eq!(fixture.receiver.sweep().await.unwrap(), SweepSummary::default());
    assert_eq!(fixture.rows(), 0);
}

#[tokio::test(start_paused = true)]
async fn drive_retention_keeps_sweeping() {
    let fixture = RetentionFixture::new().await;
    let receiver = fixture.receiver.clone();
    let retention = tokio::spawn(async move { receiver.drive_retention().await });
    assert!(fixture.call("k", &json!(1), None).await.result.is_ok());
    fixture.advance_clock(8 * DAY);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(fixture.rows(), 0);
    retention.abort();
}
