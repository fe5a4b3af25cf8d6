//! Whoever waits for a partition hears of its changes, also of those between two waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::Subject;
use super::bench::{Checked, checks, committed, ensure, fenced, head_of, partition, together, with_rows};
use crate::notice::Tick;
use crate::rows::PrivateRows;

checks!(
    the_first_wait_answers_at_once,
    a_commit_wakes_every_waiter,
    a_change_between_two_waits_is_not_missed,
);

async fn the_first_wait_answers_at_once<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
    let tick = store.changed(&p, Tick::START).await;
    ensure!(tick != Tick::START, "the first wait gave no tick to go on from");
    Ok(())
}

async fn a_commit_wakes_every_waiter<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
    let version = with_rows::<S>(&store, &p, &[]).await?;
    let tick = store.changed(&p, Tick::START).await;
    let waiters = together((0..3).map(|_| store.changed(&p, tick)).collect());
    let mut waiters = pin!(waiters);
    // A backend that polls may answer for nothing; one that does not is waiting here.
    let early = poll_fn(|context| match waiters.as_mut().poll(context) {
        Poll::Ready(ticks) => Poll::Ready(Some(ticks)),
        Poll::Pending => Poll::Ready(None),
    })
    .await;
    committed(store.commit(&p, fenced(Some(&version), 2)).await)?;
    if early.is_none() {
        let ticks = waiters.await;
        ensure!(ticks.iter().all(|heard| *heard != tick), "a waiter woke without a new tick");
    }
    Ok(())
}

async fn a_change_between_two_waits_is_not_missed<S: Subject>(subject: &S) -> Checked {
    let (store, p) = (subject.fresh().await, partition("p"));
    let mut version = with_rows::<S>(&store, &p, &[]).await?;
    let mut tick = store.changed(&p, Tick::START).await;
    for number in 2..10 {
        version = head_of(&committed(store.commit(&p, fenced(Some(&version), number)).await)?)?;
        let heard = store.changed(&p, tick).await;
        ensure!(heard != tick, "the tick stayed after commit {number}");
        tick = heard;
    }
    Ok(())
}
