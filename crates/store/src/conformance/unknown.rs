//! Unknown outcomes: the head tells whether the commit was applied, and the store does not apply it later.

use super::BackendUnderTest;
use super::harness::{
    CheckStop, ConformanceResult, checks, committed, ensure, fenced, head, head_of, key, partition, text,
    with_rows,
};
use crate::rows::{CommitOutcome, PrivateRows};

checks!(
    the_head_tells_that_an_unknown_commit_was_applied,
    the_head_tells_that_an_unknown_commit_was_not_applied,
    an_unknown_commit_is_never_applied_later,
);

const CANNOT: CheckStop = CheckStop::NotApplicable("this backend cannot be made to return Unknown");

async fn the_head_tells_that_an_unknown_commit_was_applied<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let version = with_rows::<S>(&store, &p, &[]).await?;
    if !subject.make_unknown(&store, true) {
        return Err(CANNOT);
    }
    let batch = fenced(Some(&version), 2).put(key("a"), b"once".to_vec());
    let outcome = store.commit(&p, batch.clone()).await;
    ensure!(matches!(outcome, CommitOutcome::Unknown { .. }), "expected Unknown, got {outcome:?}");
    subject.after_unknown(&store).await;
    let Some(now) = store.read(&p, &head()).await? else {
        return Err(CheckStop::Broken("the head is gone".to_owned()));
    };
    ensure!(now.value == 2u64.to_be_bytes(), "an applied commit's number is not in the head");
    let again = store.commit(&p, batch).await;
    ensure!(again == CommitOutcome::Fenced, "repeating an applied commit gave {again:?}");
    ensure!(
        store.read(&p, &head()).await?.as_ref() == Some(&now),
        "repeating an applied commit changed the head"
    );
    committed(store.commit(&p, fenced(Some(&now.version), 3)).await)?;
    Ok(())
}

async fn the_head_tells_that_an_unknown_commit_was_not_applied<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let version = with_rows::<S>(&store, &p, &[]).await?;
    if !subject.make_unknown(&store, false) {
        return Err(CANNOT);
    }
    let batch = fenced(Some(&version), 2).put(key("a"), b"once".to_vec());
    let outcome = store.commit(&p, batch.clone()).await;
    ensure!(matches!(outcome, CommitOutcome::Unknown { .. }), "expected Unknown, got {outcome:?}");
    subject.after_unknown(&store).await;
    let row = store.read(&p, &head()).await?;
    ensure!(row.is_some_and(|row| row.version == version), "a commit that was not applied changed the head");
    ensure!(text(&store, &p, "a").await?.is_none(), "a commit that was not applied wrote a row");
    committed(store.commit(&p, batch).await)?;
    Ok(())
}

/// A backend that retries on its own after an unknown outcome would overwrite later commits.
async fn an_unknown_commit_is_never_applied_later<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    for applied in [true, false] {
        let store = subject.fresh().await;
        let p = partition("p");
        let version = with_rows::<S>(&store, &p, &[("a", "before")]).await?;
        if !subject.make_unknown(&store, applied) {
            return Err(CANNOT);
        }
        store.commit(&p, fenced(Some(&version), 2).put(key("a"), b"unknown".to_vec())).await;
        subject.after_unknown(&store).await;
        let now = store.read(&p, &head()).await?.map(|row| row.version);
        let later = fenced(now.as_ref(), 3).put(key("a"), b"after".to_vec());
        let mut version = head_of(&committed(store.commit(&p, later).await)?)?;
        for number in 4..8 {
            let read = text(&store, &p, "a").await?;
            ensure!(
                read.as_deref() == Some("after"),
                "a commit of unknown outcome was applied later: {read:?}"
            );
            version = head_of(&committed(store.commit(&p, fenced(Some(&version), number)).await)?)?;
        }
    }
    Ok(())
}
