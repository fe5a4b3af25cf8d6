//! Notifications: a waiter of a partition is woken by its changes, also by those between two waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::BackendUnderTest;
use super::harness::{
    ConformanceResult, checks, committed, ensure, fenced, head_of, join_all, partition, with_rows,
};
use crate::change_notify::ChangeTick;
use crate::rows::PrivateRows;

checks!(
    the_first_wait_returns_at_once,
    a_commit_wakes_every_waiter,
    a_change_between_two_waits_is_not_missed,
);

async fn the_first_wait_returns_at_once<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let tick = store.wait_for_change(&p, ChangeTick::START).await;
    ensure!(tick != ChangeTick::START, "the first wait gave no tick to go on from");
    Ok(())
}

async fn a_commit_wakes_every_waiter<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let version = with_rows::<S>(&store, &p, &[]).await?;
    let tick = store.wait_for_change(&p, ChangeTick::START).await;
    let waiters = join_all((0..3).map(|_| store.wait_for_change(&p, tick)).collect());
    let mut waiters = pin!(waiters);
    // A backend that polls may return without a change; all others wait here.
    let early = poll_fn(|context| match waiters.as_mut().poll(context) {
        Poll::Ready(ticks) => Poll::Ready(Some(ticks)),
        Poll::Pending => Poll::Ready(None),
    })
    .await;
    committed(store.commit(&p, fenced(Some(&version), 2)).await)?;
    if early.is_none() {
        let ticks = waiters.await;
        ensure!(ticks.iter().all(|new| *new != tick), "a waiter woke without a new tick");
    }
    Ok(())
}

async fn a_change_between_two_waits_is_not_missed<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let mut version = with_rows::<S>(&store, &p, &[]).await?;
    let mut tick = store.wait_for_change(&p, ChangeTick::START).await;
    for number in 2..10 {
        version = head_of(&committed(store.commit(&p, fenced(Some(&version), number)).await)?)?;
        let new = store.wait_for_change(&p, tick).await;
        ensure!(new != tick, "commit {number} did not change the tick");
        tick = new;
    }
    Ok(())
}
