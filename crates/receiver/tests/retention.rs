//! How long answers are kept, and that nothing stays for ever.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use abide_dispatch::{Code, Metadata, Status};
use abide_receiver::{Clock, Effect, Invocation, Options, Receiver, Reply, Request, Swept};
use abide_store::memory::{MemoryStore, Personality};
use abide_store::rows::{Partition, Scan};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const DAY: i64 = 24 * 3_600 * 1_000;

struct World {
    store: Arc<MemoryStore>,
    clock: Arc<AtomicI64>,
    ran: Arc<AtomicUsize>,
    waiting: Arc<Semaphore>,
    go: Arc<Semaphore>,
    receiver: Receiver<MemoryStore>,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Personality::AZURE));
        let clock = Arc::new(AtomicI64::new(DAY));
        let (ran, waiting, go) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let receiver = open(&store, &clock, &ran, &waiting, &go).await;
        Self { store, clock, ran, waiting, go, receiver }
    }

    async fn restart(&mut self) {
        self.receiver = open(&self.store, &self.clock, &self.ran, &self.waiting, &self.go).await;
    }

    async fn call(&self, key: &str, input: &Value, deadline: Option<i64>) -> Reply {
        self.receiver.invoke(request(key, input, deadline)).await
    }

    fn pass(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sweeps as long as there is something to do.
    async fn swept(&self) -> usize {
        let mut deleted = 0;
        for _ in 0..1_000 {
            let Swept { deleted: more, more: again } = self.receiver.sweep().await.unwrap();
            deleted += more;
            if !again {
                return deleted;
            }
        }
        panic!("there is always more");
    }

    /// Rows besides the incarnation and those of handlers.
    fn rows(&self) -> usize {
        let page = self.store.scan_now(&Partition::new("receiver").unwrap(), Scan::all()).unwrap();
        page.rows.iter().filter(|row| matches!(row.key.as_bytes().first(), Some(2 | 3))).count()
    }
}

fn request(key: &str, input: &Value, deadline_epoch_ms: Option<i64>) -> Request {
    let metadata = Metadata {
        correlation_id: "c".to_owned(),
        execution_id: "e/1".to_owned(),
        idempotency_key: key.to_owned(),
        retry_attempt: 0,
        deadline_epoch_ms,
        dispatched_at_epoch_ms: 0,
        parent_item_id: None,
    };
    let input = Some(input.to_string().into());
    Request { activity: "work".to_owned(), metadata: Ok(Some(metadata)), input }
}

async fn open(
    store: &Arc<MemoryStore>,
    clock: &Arc<AtomicI64>,
    ran: &Arc<AtomicUsize>,
    waiting: &Arc<Semaphore>,
    go: &Arc<Semaphore>,
) -> Receiver<MemoryStore> {
    let (clock, ran, waiting, go) = (Arc::clone(clock), Arc::clone(ran), Arc::clone(waiting), Arc::clone(go));
    let work = move |invocation: Invocation| {
        let (ran, waiting, go) = (Arc::clone(&ran), Arc::clone(&waiting), Arc::clone(&go));
        async move {
            let run = ran.fetch_add(1, Ordering::SeqCst);
            match invocation.input.as_str() {
                Some("wait") => {
                    waiting.add_permits(1);
                    go.acquire().await.unwrap().forget();
                }
                Some("fail") => return Err(Status::new(Code::Unavailable, "no")),
                _ => {}
            }
            let effect = Effect::create(format!("{run}"), b"".as_slice());
            Ok(abide_receiver::Done::with(json!(run), vec![effect]))
        }
    };
    let options = Options { handler_timeout: Duration::from_secs(60), ..Options::default() };
    let clock = Clock::new(move || clock.load(Ordering::SeqCst));
    Receiver::builder(Arc::clone(store), clock).options(options).handler("work", work).open().await.unwrap()
}

#[tokio::test]
async fn an_answer_is_kept_for_its_retention_and_then_the_work_is_new() {
    let world = World::new().await;
    let first = world.call("k", &json!(1), None).await;
    world.pass(7 * DAY);
    assert_eq!(world.swept().await, 0, "it may just have been asked for");
    assert_eq!(world.call("k", &json!(1), None).await, first);
    world.pass(60_000);
    assert_eq!((world.swept().await, world.rows()), (1, 0));
    assert_ne!(world.call("k", &json!(1), None).await, first);
    assert_eq!(world.rows(), 2);
}

/// The expiry was set when the work began; the retention counts from its end.
#[tokio::test(start_paused = true)]
async fn work_that_took_long_is_kept_as_long_as_any_other() {
    let world = World::new().await;
    let receiver = world.receiver.clone();
    let slow =
        tokio::spawn(async move { receiver.invoke(request("k", &json!("wait"), Some(4 * DAY))).await });
    world.waiting.acquire().await.unwrap().forget();
    world.pass(2 * DAY);
    world.go.add_permits(1);
    let first = slow.await.unwrap();
    world.pass(5 * DAY + 60_000);
    assert_eq!(world.swept().await, 0, "finished five days ago");
    assert_eq!(world.call("k", &json!(1), None).await, first);
    world.pass(2 * DAY);
    assert_eq!((world.swept().await, world.rows()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_held_is_never_swept_and_one_that_was_left_behind_is() {
    let mut world = World::new().await;
    let receiver = world.receiver.clone();
    let held =
        tokio::spawn(async move { receiver.invoke(request("k", &json!("wait"), Some(30 * DAY))).await });
    world.waiting.acquire().await.unwrap().forget();
    world.pass(20 * DAY);
    assert_eq!((world.swept().await, world.rows()), (0, 2));
    world.restart().await;
    assert_eq!((world.swept().await, world.rows()), (1, 0));
    world.go.add_permits(1);
    let told = held.await.unwrap().answer.unwrap_err();
    assert_eq!(told.reason.as_deref(), Some("CLAIM_LOST"));
}

#[tokio::test]
async fn a_failed_attempt_leaves_no_row_behind() {
    let mut world = World::new().await;
    for _ in 0..3 {
        assert!(world.call("k", &json!("fail"), None).await.answer.is_err());
        assert_eq!(world.rows(), 0);
    }
    // Nor does one that took over the claim of a dead process, in the same millisecond.
    let receiver = world.receiver.clone();
    let left = tokio::spawn(async move { receiver.invoke(request("k", &json!("wait"), None)).await });
    world.waiting.acquire().await.unwrap().forget();
    world.restart().await;
    for _ in 0..3 {
        let told = world.call("k", &json!("fail"), None).await.answer.unwrap_err();
        assert_eq!(told.code, Code::Unavailable);
        assert_eq!(world.rows(), 0);
    }
    assert!(world.call("k", &json!(1), None).await.answer.is_ok());
    left.abort();
}

/// Sweeping is bounded by what one commit takes: here a hundred rows, as on Azure.
#[tokio::test]
async fn many_old_answers_go_a_bounded_number_at_a_time() {
    let world = World::new().await;
    for n in 0..120 {
        assert!(world.call(&format!("k{n}"), &json!(n), None).await.answer.is_ok());
    }
    world.pass(8 * DAY);
    assert_eq!(world.receiver.sweep().await.unwrap(), Swept { deleted: 50, more: true });
    assert_eq!(world.receiver.sweep().await.unwrap(), Swept { deleted: 50, more: true });
    assert_eq!(world.receiver.sweep().await.unwrap(), Swept { deleted: 20, more: true });
    assert_eq!(world.receiver.sweep().await.unwrap(), Swept::default());
    assert_eq!(world.rows(), 0);
}

#[tokio::test(start_paused = true)]
async fn sweeping_goes_on_by_itself() {
    let world = World::new().await;
    let receiver = world.receiver.clone();
    let sweeping = tokio::spawn(async move { receiver.keep_swept().await });
    assert!(world.call("k", &json!(1), None).await.answer.is_ok());
    world.pass(8 * DAY);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.rows(), 0);
    sweeping.abort();
}
