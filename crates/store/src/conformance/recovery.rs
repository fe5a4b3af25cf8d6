//! Recovery: a reopened store has the rows, versions and fence that it had when it was closed.

use super::BackendUnderTest;
use super::harness::{
    CheckStop, ConformanceResult, all_rows, checks, committed, ensure, fenced, head_of, key, partition,
    with_rows,
};
use super::queries::{LEDGER, entry, names};
use crate::public::{PublicQuery, PublicTables, PublicWrite};
use crate::rows::{Batch, CommitOutcome, PrivateRows, RowVersion, Scan};

checks!(rows_and_versions_survive, the_fence_survives, no_version_is_reused, public_rows_and_pages_survive,);

const GONE: CheckStop = CheckStop::NotApplicable("its rows do not survive a close");

async fn rows_and_versions_survive<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let mut version = with_rows::<S>(&store, &p, &[("stays", "1"), ("goes", "1"), ("changes", "1")]).await?;
    let batch = fenced(Some(&version), 2).delete(key("goes")).put(key("changes"), b"2".to_vec());
    version = head_of(&committed(store.commit(&p, batch).await)?)?;
    let before = all_rows(&store, &p, Scan::all()).await?;
    let Some(store) = subject.reopen(store).await else { return Err(GONE) };
    let after = all_rows(&store, &p, Scan::all()).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    let head = store.read(&p, &super::harness::head()).await?.map(|row| row.version);
    ensure!(head.as_ref() == Some(&version), "the head is at another version");
    Ok(())
}

async fn the_fence_survives<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let p = partition("p");
    let old = with_rows::<S>(&store, &p, &[]).await?;
    let current = head_of(&committed(store.commit(&p, fenced(Some(&old), 2)).await)?)?;
    let Some(store) = subject.reopen(store).await else { return Err(GONE) };
    for stale in [Some(&old), None] {
        let outcome = store.commit(&p, fenced(stale, 3)).await;
        ensure!(outcome == CommitOutcome::Fenced, "a stale owner got {outcome:?} after a restart");
    }
    committed(store.commit(&p, fenced(Some(&current), 3)).await)?;
    Ok(())
}

async fn no_version_is_reused<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let mut store = subject.fresh().await;
    let p = partition("p");
    let mut versions: Vec<RowVersion> = Vec::new();
    for _ in 0..4 {
        for _ in 0..3 {
            let receipt = committed(store.commit(&p, Batch::checked().create(key("a"), vec![])).await)?;
            for version in receipt.row_versions.into_iter().flatten() {
                ensure!(!versions.contains(&version), "a version was reused after a restart");
                versions.push(version.clone());
                committed(store.commit(&p, Batch::checked().delete_if_at(key("a"), version)).await)?;
            }
        }
        store = match subject.reopen(store).await {
            Some(store) => store,
            None => return Err(GONE),
        };
    }
    Ok(())
}

async fn public_rows_and_pages_survive<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    let rows =
        (0..20).map(|number| PublicWrite::Put(entry(&format!("row {number:02}"), number, "hmac", "Pending")));
    store.put(&LEDGER, rows.collect()).await?;
    let query = PublicQuery::default().filter("Engine", "hmac").limit(8);
    let first = store.query(&LEDGER, &query).await?;
    let Some(store) = subject.reopen(store).await else { return Err(GONE) };
    let second = store.query(&LEDGER, &query.clone().continue_from(first.continuation)).await?;
    let seen: Vec<String> = names(&first.rows).into_iter().chain(names(&second.rows)).collect();
    let expected: Vec<String> = (4..20).rev().map(|number| format!("row {number:02}")).collect();
    ensure!(seen == expected, "two pages with a restart between them show {seen:?}");
    Ok(())
}
