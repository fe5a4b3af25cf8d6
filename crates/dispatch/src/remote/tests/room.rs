//! Room that all calls share: taken by those who are about to leave, and by nobody who waits for a place before its target
//! or for the turn of its pace.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::parts::*;
use super::server::{Server, reply};
use crate::local::Activities;
use crate::remote::{Directory, Everywhere, Wire};
use crate::transport::{Call, Failure, Room, Transport};

#[derive(Clone)]
struct Slots(Arc<Semaphore>);

impl Room for Slots {
    type Held = OwnedSemaphorePermit;

    async fn take(&self) -> Result<Self::Held, Failure> {
        Ok(Arc::clone(&self.0).acquire_owned().await.unwrap())
    }
}

fn slots(count: usize) -> Slots {
    Slots(Arc::new(Semaphore::new(count)))
}

fn call_of(activity: &str) -> Call {
    Call { activity: activity.to_owned(), ..call(json!(1)) }
}

async fn everywhere(stuck: &Server, able: &Server) -> Arc<Everywhere> {
    let two = json!({"concurrency": 2});
    everywhere_with([("stuck", stuck, two.clone()), ("able", able, two)])
}

fn everywhere_with<const N: usize>(all: [(&str, &Server, Value); N]) -> Arc<Everywhere> {
    let directory = Directory::new(outbound());
    for (name, server, more) in all {
        let mut declared = declared(Wire::Rest, &http(server.address), more);
        declared.activity.name = name.to_owned();
        directory.put(declared).unwrap();
    }
    Arc::new(Everywhere::new(Activities::default(), Arc::new(directory)))
}

#[tokio::test]
async fn calls_that_wait_for_their_target_take_no_room_from_others() {
    let (silent, able) = (Server::silent().await, Server::always(200, "1").await);
    let (everywhere, slots) = (everywhere(&silent, &able).await, slots(3));
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let (everywhere, slots) = (Arc::clone(&everywhere), slots.clone());
        waiting.spawn(async move { everywhere.deliver_in(call_of("stuck"), &slots).await });
    }
    silent.received(2).await;
    for _ in 0..10 {
        assert_eq!(result(everywhere.deliver_in(call_of("able"), &slots).await), Ok(json!(1)));
    }
    assert!(waiting.try_join_next().is_none(), "and nobody had to give up for that");
    assert_eq!(slots.0.available_permits(), 1, "two are under way, and eighteen wait");
    waiting.shutdown().await;
    assert_eq!(slots.0.available_permits(), 3);
}

#[tokio::test]
async fn calls_that_wait_for_their_pace_take_no_room_from_others() {
    let server = Server::always(200, "1").await;
    let everywhere =
        everywhere_with([("paced", &server, json!({"ratePerSecond": 0.1})), ("free", &server, json!({}))]);
    let slots = slots(2);
    let mut paced = JoinSet::new();
    for _ in 0..20 {
        let (everywhere, slots) = (Arc::clone(&everywhere), slots.clone());
        let mut call = call_of("paced");
        call.metadata.deadline_epoch_ms = None;
        paced.spawn(async move { everywhere.deliver_in(call, &slots).await });
    }
    assert_eq!(result(paced.join_next().await.unwrap().unwrap()), Ok(json!(1)), "the first has its turn");
    // One thread: by now all the others have got as far as they can for the next ten seconds.
    for _ in 0..10 {
        assert_eq!(slots.0.available_permits(), 2, "whoever sleeps holds nothing");
        let free = everywhere.deliver_in(call_of("free"), &slots);
        let free = tokio::time::timeout(Duration::from_secs(5), free).await;
        assert_eq!(result(free.expect("the free one is held up")), Ok(json!(1)));
    }
    assert!(paced.try_join_next().is_none(), "and nobody had to give up for that");
}

#[tokio::test]
async fn the_rate_that_is_declared_is_the_rate_of_deliveries() {
    let server = Server::always(200, "1").await;
    let paced = remote_with(Wire::Rest, server.address, json!({"ratePerSecond": 0.002}));
    assert_eq!(deliver(&paced, json!(1)).await, Ok(json!(1)));
    let second = deliver(&paced, json!(1)).await;
    assert_eq!(told(&second), unsent("TargetBusy"), "its turn comes after its deadline");
    let wait_ms = second.unwrap_err().retry_after_ms.unwrap();
    assert!((400_000..=500_000).contains(&wait_ms), "one every 500 seconds: {wait_ms}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn waiting_for_room_is_no_part_of_the_attempt_but_of_the_deadline() {
    let (silent, able) = (Server::silent().await, Server::always(200, "1").await);
    let (everywhere, slots) = (everywhere(&silent, &able).await, slots(1));
    tokio::time::pause();
    for (deadline_epoch_ms, ended_ms) in [(None, 8_000), (Some(12_000), 2_000)] {
        let held = slots.take().await.unwrap();
        let mut call = Call { attempt_timeout_ms: 8_000, ..call_of("stuck") };
        call.metadata.dispatched_at_epoch_ms = 0;
        call.metadata.deadline_epoch_ms = deadline_epoch_ms;
        let (everywhere, slots) = (Arc::clone(&everywhere), slots.clone());
        let calling = tokio::spawn(async move { result(everywhere.deliver_in(call, &slots).await) });
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(held);
        let begun = tokio::time::Instant::now();
        assert_eq!(told(&calling.await.unwrap()).0, "AttemptTimeout");
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
    let (slow, able) = (slow.await, Server::always(200, "1").await);
    let everywhere = everywhere(&slow, &able).await;
    tokio::time::pause();
    let mut calling = JoinSet::new();
    for _ in 0..8 {
        let everywhere = Arc::clone(&everywhere);
        let mut call = Call { attempt_timeout_ms: 8_000, ..call_of("stuck") };
        call.metadata.deadline_epoch_ms = None;
        calling.spawn(async move { result(everywhere.deliver(call).await) });
    }
    while let Some(answer) = calling.join_next().await {
        assert_eq!(answer.unwrap(), Ok(json!(1)), "the last of them waited for fifteen seconds");
    }
}

#[tokio::test]
async fn what_waited_until_its_deadline_is_not_sent() {
    let (silent, able) = (Server::silent().await, Server::always(200, "1").await);
    let everywhere = everywhere(&silent, &able).await;
    let mut places = JoinSet::new();
    for _ in 0..2 {
        let everywhere = Arc::clone(&everywhere);
        places.spawn(async move { everywhere.deliver(call_of("stuck")).await });
    }
    silent.received(2).await;
    let with_deadline = |activity: &str, waited| {
        let mut call = Call { waited: Duration::from_millis(waited), ..call_of(activity) };
        call.metadata.dispatched_at_epoch_ms = 0;
        call.metadata.deadline_epoch_ms = Some(3_000);
        call
    };
    let slots = slots(1);
    let held = slots.take().await.unwrap();
    let behind = tokio::spawn({
        let (everywhere, slots, call) = (Arc::clone(&everywhere), slots.clone(), with_deadline("able", 0));
        async move { result(everywhere.deliver_in(call, &slots).await) }
    });
    tokio::time::pause();
    let line = everywhere.deliver(with_deadline("stuck", 0)).await;
    drop(held);
    for answer in
        [result(line), behind.await.unwrap(), result(everywhere.deliver(with_deadline("able", 3_000)).await)]
    {
        let failure = answer.as_ref().unwrap_err();
        assert_eq!((told(&answer), failure.not_sent), (last("DeadlineExceeded"), true));
    }
    assert_eq!((silent.requests().len(), able.requests().len()), (2, 0));
}
