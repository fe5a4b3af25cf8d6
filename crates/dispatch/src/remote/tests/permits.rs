//! Node permits that all calls share: held by calls that are about to be sent, and not by calls that wait for the
//! limits of their target or activity.

use std::sync::Arc;
use std::time::Duration;

use abide_ids::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::fixtures::*;
use super::server::{Server, reply};
use crate::ActivityRouter;
use crate::local::LocalActivities;
use crate::remote::{RemoteRegistry, WireFormat};
use crate::transport::{ActivityTransport, CallAttempt, CallFailure, PermitSource};

#[derive(Clone)]
struct TestPermits(Arc<Semaphore>);

impl PermitSource for TestPermits {
    type Permit = OwnedSemaphorePermit;

    async fn acquire(&self) -> Result<Self::Permit, CallFailure> {
        Ok(Arc::clone(&self.0).acquire_owned().await.unwrap())
    }
}

fn node_permits(count: usize) -> TestPermits {
    TestPermits(Arc::new(Semaphore::new(count)))
}

fn call_of(activity: &str) -> CallAttempt {
    CallAttempt { activity: activity.to_owned(), ..call(json!(1)) }
}

async fn router(stuck: &Server, able: &Server) -> Arc<ActivityRouter> {
    let two = json!({"concurrency": 2});
    router_with([("stuck", stuck, two.clone()), ("able", able, two)])
}

fn router_with<const N: usize>(all: [(&str, &Server, Value); N]) -> Arc<ActivityRouter> {
    let registry = RemoteRegistry::new(outbound());
    for (name, server, more) in all {
        let mut declared = declared(WireFormat::Rest, &http(server.address), more);
        declared.activity.name = name.to_owned();
        registry.put(declared).unwrap();
    }
    Arc::new(ActivityRouter::new(LocalActivities::default(), Arc::new(registry)))
}

#[tokio::test]
async fn calls_that_wait_for_their_target_take_no_permits_from_others() {
    let silent = Server::silent().await;
    let able = Server::always(200, "1").await;
    let router = router(&silent, &able).await;
    let permits = node_permits(3);
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let router = Arc::clone(&router);
        let permits = permits.clone();
        waiting.spawn(async move { router.run_attempt_with_permit(call_of("stuck"), &permits).await });
    }
    silent.received(2).await;
    for _ in 0..10 {
        assert_eq!(result(router.run_attempt_with_permit(call_of("able"), &permits).await), Ok(json!(1)));
    }
    assert!(waiting.try_join_next().is_none(), "no waiting call failed");
    assert_eq!(permits.0.available_permits(), 1, "two are in progress, and eighteen wait");
    waiting.shutdown().await;
    assert_eq!(permits.0.available_permits(), 3);
}

#[tokio::test]
async fn calls_that_wait_for_their_rate_limit_take_no_permits_from_others() {
    let server = Server::always(200, "1").await;
    let router =
        router_with([("paced", &server, json!({"ratePerSecond": 0.1})), ("free", &server, json!({}))]);
    let permits = node_permits(2);
    let mut paced = JoinSet::new();
    for _ in 0..20 {
        let router = Arc::clone(&router);
        let permits = permits.clone();
        let mut call = call_of("paced");
        call.metadata.deadline = None;
        paced.spawn(async move { router.run_attempt_with_permit(call, &permits).await });
    }
    assert_eq!(result(paced.join_next().await.unwrap().unwrap()), Ok(json!(1)), "the first starts at once");
    // There is one thread: by now all the others have got as far as they can for the next ten seconds.
    for _ in 0..10 {
        assert_eq!(permits.0.available_permits(), 2, "a sleeping call holds no permit");
        let free = router.run_attempt_with_permit(call_of("free"), &permits);
        let free = tokio::time::timeout(Duration::from_secs(5), free).await;
        assert_eq!(result(free.expect("the unlimited activity is held up")), Ok(json!(1)));
    }
    assert!(paced.try_join_next().is_none(), "no waiting call failed");
}

#[tokio::test]
async fn the_declared_rate_is_the_rate_of_attempts() {
    let server = Server::always(200, "1").await;
    let paced = remote_with(WireFormat::Rest, server.address, json!({"ratePerSecond": 0.002}));
    assert_eq!(run_attempt(&paced, json!(1)).await, Ok(json!(1)));
    let second = run_attempt(&paced, json!(1)).await;
    assert_eq!(failure_summary(&second), unsent("TargetBusy"), "it could start only after its deadline");
    let wait_ms = second.unwrap_err().retry_after_ms.unwrap();
    assert!((400_000..=500_000).contains(&wait_ms), "one every 500 seconds: {wait_ms}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn waiting_for_a_permit_counts_for_the_deadline_but_not_for_the_attempt() {
    let silent = Server::silent().await;
    let able = Server::always(200, "1").await;
    let router = router(&silent, &able).await;
    let permits = node_permits(1);
    tokio::time::pause();
    for (deadline_epoch_ms, ended_ms) in [(None, 8_000), (Some(12_000), 2_000)] {
        let held = permits.acquire().await.unwrap();
        let mut call = CallAttempt { attempt_timeout_ms: 8_000, ..call_of("stuck") };
        call.metadata.dispatched_at = Timestamp(0);
        call.metadata.deadline = deadline_epoch_ms.map(Timestamp);
        let router = Arc::clone(&router);
        let permits = permits.clone();
        let calling =
            tokio::spawn(async move { result(router.run_attempt_with_permit(call, &permits).await) });
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(held);
        let begun = tokio::time::Instant::now();
        assert_eq!(failure_summary(&calling.await.unwrap()).0, "AttemptTimeout");
        assert_eq!(begun.elapsed().as_millis() / 10, ended_ms / 10, "{deadline_epoch_ms:?}");
    }
}

#[tokio::test]
async fn a_burst_is_worked_off_without_using_up_attempts() {
    let slow = Server::start(None, |_| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            reply(200, &[], "1")
        })
    });
    let slow = slow.await;
    let able = Server::always(200, "1").await;
    let router = router(&slow, &able).await;
    tokio::time::pause();
    let mut calling = JoinSet::new();
    for _ in 0..8 {
        let router = Arc::clone(&router);
        let mut call = CallAttempt { attempt_timeout_ms: 8_000, ..call_of("stuck") };
        call.metadata.deadline = None;
        calling.spawn(async move { result(router.run_attempt(call).await) });
    }
    while let Some(result) = calling.join_next().await {
        assert_eq!(result.unwrap(), Ok(json!(1)), "the last of them waited for fifteen seconds");
    }
}

#[tokio::test]
async fn a_call_that_waits_until_its_deadline_is_not_sent() {
    let silent = Server::silent().await;
    let able = Server::always(200, "1").await;
    let router = router(&silent, &able).await;
    let mut occupying = JoinSet::new();
    for _ in 0..2 {
        let router = Arc::clone(&router);
        occupying.spawn(async move { router.run_attempt(call_of("stuck")).await });
    }
    silent.received(2).await;
    let with_deadline = |activity: &str, waited| {
        let mut call =
            CallAttempt { elapsed_since_dispatch: Duration::from_millis(waited), ..call_of(activity) };
        call.metadata.dispatched_at = Timestamp(0);
        call.metadata.deadline = Some(Timestamp(3_000));
        call
    };
    let permits = node_permits(1);
    let held = permits.acquire().await.unwrap();
    let behind = tokio::spawn({
        let router = Arc::clone(&router);
        let permits = permits.clone();
        let call = with_deadline("able", 0);
        async move { result(router.run_attempt_with_permit(call, &permits).await) }
    });
    tokio::time::pause();
    let queued = router.run_attempt(with_deadline("stuck", 0)).await;
    drop(held);
    for ended in [
        result(queued),
        behind.await.unwrap(),
        result(router.run_attempt(with_deadline("able", 3_000)).await),
    ] {
        let failure = ended.as_ref().unwrap_err();
        assert_eq!((failure_summary(&ended), failure.not_sent), (permanent("DeadlineExceeded"), true));
    }
    assert_eq!((silent.requests().len(), able.requests().len()), (2, 0));
}
