//! Pages: the pages of a query neither lose nor repeat a row while others are written, and only the store's own tokens
//! continue them.

use abide_ids::Timestamp;

use super::BackendUnderTest;
use super::harness::{ConformanceResult, checks, ensure};
use super::queries::{LEDGER, OTHER, entry, names};
use crate::memory::SeededRng;
use crate::public::{PublicQuery, PublicQueryError, PublicTables, PublicWrite};

checks!(
    pages_join_to_the_whole,
    pages_lose_and_repeat_no_row_while_rows_are_written,
    rare_rows_are_found_through_short_pages,
    a_forged_token_is_rejected,
    a_token_of_another_query_is_rejected,
);

async fn fill<S: BackendUnderTest>(store: &S::Store, from: i64, count: i64) -> ConformanceResult {
    let rows =
        (from..from + count).map(|at| PublicWrite::Put(entry(&format!("{at:06}"), at, "hmac", "Pending")));
    Ok(store.put(&LEDGER, rows.collect()).await?)
}

async fn pages_join_to_the_whole<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    fill::<S>(&store, 0, 100).await?;
    let expected: Vec<String> = (0..100).rev().map(|at| format!("{at:06}")).collect();
    for limit in [1, 3, 50, 99, 100, 101] {
        let mut query = PublicQuery::default().filter("Status", "Pending").limit(limit);
        let mut seen = Vec::new();
        loop {
            let page = store.query(&LEDGER, &query).await?;
            ensure!(page.rows.len() <= limit, "a page of {limit} has {} rows", page.rows.len());
            seen.extend(names(&page.rows));
            if page.continuation.is_none() {
                break;
            }
            query = query.continue_from(page.continuation);
        }
        ensure!(seen == expected, "pages of {limit} miss or repeat rows");
    }
    Ok(())
}

/// Between every two pages, newer and older rows are written and rows are deleted.
async fn pages_lose_and_repeat_no_row_while_rows_are_written<S: BackendUnderTest>(
    subject: &S,
) -> ConformanceResult {
    for oldest_first in [false, true] {
        let store = subject.fresh().await;
        fill::<S>(&store, 1_000, 200).await?;
        let mut query =
            PublicQuery { oldest_first, ..PublicQuery::default().filter("Engine", "hmac").limit(9) };
        let mut seen = Vec::new();
        let mut round = 0;
        loop {
            let page = store.query(&LEDGER, &query).await?;
            seen.extend(names(&page.rows));
            if page.continuation.is_none() {
                break;
            }
            query = query.continue_from(page.continuation);
            fill::<S>(&store, 2_000 + 3 * round, 3).await?;
            fill::<S>(&store, 3 * round, 3).await?;
            let gone = entry(&format!("{:06}", 3 * round), 3 * round, "hmac", "Pending").key;
            store.put(&LEDGER, vec![PublicWrite::Delete { key: gone, revision: 1 }]).await?;
            round += 1;
            ensure!(round < 1_000, "pages never end");
        }
        let mut stayed: Vec<String> = seen.iter().filter(|name| name.starts_with("001")).cloned().collect();
        if !oldest_first {
            stayed.reverse();
        }
        let expected: Vec<String> = (1_000..1_200).map(|at| format!("{at:06}")).collect();
        ensure!(stayed == expected, "of the rows that stayed, the pages have {stayed:?}");
        let mut distinct = seen.clone();
        distinct.sort();
        distinct.dedup();
        ensure!(distinct.len() == seen.len(), "a row was seen twice");
    }
    Ok(())
}

/// A second filter, which the index does not cover, matches few of many rows: pages may be short, but no row is
/// missing.
async fn rare_rows_are_found_through_short_pages<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    for from in 0..5 {
        fill::<S>(&store, from * 1_000, 1_000).await?;
    }
    let rare: Vec<_> = [3, 2_500, 4_999]
        .iter()
        .map(|at| {
            let mut row = entry(&format!("rare {at:06}"), *at, "hmac", "Pending");
            row.columns.insert("Note".to_owned(), crate::public::CellValue::Text("rare".to_owned()));
            PublicWrite::Put(row)
        })
        .collect();
    store.put(&LEDGER, rare).await?;
    let mut query = PublicQuery::default().filter("Engine", "hmac").filter("Note", "rare").limit(2);
    let mut seen = Vec::new();
    for _ in 0..100 {
        let page = store.query(&LEDGER, &query).await?;
        seen.extend(names(&page.rows));
        if page.continuation.is_none() {
            break;
        }
        query = query.continue_from(page.continuation);
    }
    ensure!(seen == ["rare 004999", "rare 002500", "rare 000003"], "three rare rows were found as {seen:?}");
    Ok(())
}

async fn a_forged_token_is_rejected<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    fill::<S>(&store, 0, 20).await?;
    let query = PublicQuery::default().limit(5);
    let Some(token) = store.query(&LEDGER, &query).await?.continuation else {
        return Err(super::harness::CheckStop::Broken("a page of 5 of 20 rows has no token".to_owned()));
    };
    let mut rng = SeededRng::new(7);
    let alphabet = b"ABCxyz019-_";
    for round in 0..200 {
        let mut forged = token.clone().into_bytes();
        let at = usize::try_from(rng.below(forged.len() as u64)).unwrap_or(0);
        let letter = usize::try_from(rng.below(alphabet.len() as u64)).unwrap_or(0);
        match (round % 4, forged.get_mut(at), alphabet.get(letter)) {
            (0, ..) => forged.truncate(at),
            (1, ..) => forged.extend_from_slice(b"AA"),
            (_, Some(byte), Some(letter)) if byte != letter => *byte = *letter,
            _ => continue,
        }
        let forged = String::from_utf8_lossy(&forged).into_owned();
        let result = store.query(&LEDGER, &query.clone().continue_from(Some(forged.clone()))).await;
        ensure!(result == Err(PublicQueryError::InvalidContinuation), "forged token {forged:?} was accepted");
    }
    for nonsense in ["", "null", "%00", "ünicode", "AAAA", &"A".repeat(10_000)] {
        let result = store.query(&LEDGER, &query.clone().continue_from(Some(nonsense.to_owned()))).await;
        ensure!(result == Err(PublicQueryError::InvalidContinuation), "token {nonsense:.20?} was accepted");
    }
    Ok(())
}

async fn a_token_of_another_query_is_rejected<S: BackendUnderTest>(subject: &S) -> ConformanceResult {
    let store = subject.fresh().await;
    fill::<S>(&store, 0, 20).await?;
    let query = PublicQuery::default().filter("Engine", "hmac").limit(5);
    let token = store.query(&LEDGER, &query).await?.continuation;
    let others = [
        PublicQuery::default().limit(5),
        PublicQuery::default().filter("Engine", "tls").limit(5),
        PublicQuery::default().filter("Status", "hmac").limit(5),
        query.clone().filter("Status", "Pending"),
        PublicQuery { from: Some(Timestamp(0)), ..query.clone() },
        PublicQuery { until: Some(Timestamp(99)), ..query.clone() },
        PublicQuery { oldest_first: true, ..query.clone() },
    ];
    for other in others {
        let result = store.query(&LEDGER, &other.clone().continue_from(token.clone())).await;
        ensure!(result == Err(PublicQueryError::InvalidContinuation), "the token was accepted for {other:?}");
    }
    let other_table = store.query(&OTHER, &query.clone().continue_from(token.clone())).await;
    ensure!(
        other_table == Err(PublicQueryError::InvalidContinuation),
        "the token was accepted for another table"
    );
    let resized = store.query(&LEDGER, &query.limit(2).continue_from(token)).await?;
    ensure!(
        names(&resized.rows) == ["000014", "000013"],
        "with a smaller page size, the next page has {:?}",
        names(&resized.rows)
    );
    Ok(())
}
