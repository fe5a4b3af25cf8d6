//! Pages of one question neither lose nor repeat a row while others are written, and only a store's own tokens continue them.

use super::Subject;
use super::bench::{Checked, checks, ensure};
use super::queries::{LEDGER, OTHER, entry, names};
use crate::memory::Dice;
use crate::public::{PublicTables, PublicWrite, Query, QueryError};

checks!(
    pages_join_to_the_whole,
    rows_written_meanwhile_lose_and_repeat_nothing,
    rare_rows_are_found_through_short_pages,
    a_forged_token_is_refused,
    a_token_of_another_question_is_refused,
);

async fn fill<S: Subject>(store: &S::Store, from: i64, count: i64) -> Checked {
    let rows =
        (from..from + count).map(|at| PublicWrite::Put(entry(&format!("{at:06}"), at, "hmac", "Pending")));
    Ok(store.put(&LEDGER, rows.collect()).await?)
}

async fn pages_join_to_the_whole<S: Subject>(subject: &S) -> Checked {
    let store = subject.fresh().await;
    fill::<S>(&store, 0, 100).await?;
    let expected: Vec<String> = (0..100).rev().map(|at| format!("{at:06}")).collect();
    for limit in [1, 3, 50, 99, 100, 101] {
        let mut query = Query::default().equal("Status", "Pending").limit(limit);
        let mut seen = Vec::new();
        loop {
            let page = store.query(&LEDGER, &query).await?;
            ensure!(page.rows.len() <= limit, "a page of {limit} has {} rows", page.rows.len());
            seen.extend(names(&page.rows));
            if page.continuation.is_none() {
                break;
            }
            query = query.after(page.continuation);
        }
        ensure!(seen == expected, "pages of {limit} miss or repeat rows");
    }
    Ok(())
}

/// Newer rows come, older rows come, rows go, between every two pages.
async fn rows_written_meanwhile_lose_and_repeat_nothing<S: Subject>(subject: &S) -> Checked {
    for oldest_first in [false, true] {
        let store = subject.fresh().await;
        fill::<S>(&store, 1_000, 200).await?;
        let mut query = Query { oldest_first, ..Query::default().equal("Engine", "hmac").limit(9) };
        let (mut seen, mut round) = (Vec::new(), 0);
        loop {
            let page = store.query(&LEDGER, &query).await?;
            seen.extend(names(&page.rows));
            if page.continuation.is_none() {
                break;
            }
            query = query.after(page.continuation);
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
        ensure!(stayed == expected, "rows that were there all the time were seen as {stayed:?}");
        let mut once = seen.clone();
        once.sort();
        once.dedup();
        ensure!(once.len() == seen.len(), "a row was seen twice");
    }
    Ok(())
}

/// A filter beside the index's own, with few matches among many rows: pages may be short, the answer is whole.
async fn rare_rows_are_found_through_short_pages<S: Subject>(subject: &S) -> Checked {
    let store = subject.fresh().await;
    for from in 0..5 {
        fill::<S>(&store, from * 1_000, 1_000).await?;
    }
    let rare: Vec<_> = [3, 2_500, 4_999]
        .iter()
        .map(|at| {
            let mut row = entry(&format!("rare {at:06}"), *at, "hmac", "Pending");
            row.columns.insert("Note".to_owned(), crate::public::Value::Text("rare".to_owned()));
            PublicWrite::Put(row)
        })
        .collect();
    store.put(&LEDGER, rare).await?;
    let mut query = Query::default().equal("Engine", "hmac").equal("Note", "rare").limit(2);
    let mut seen = Vec::new();
    for _ in 0..100 {
        let page = store.query(&LEDGER, &query).await?;
        seen.extend(names(&page.rows));
        if page.continuation.is_none() {
            break;
        }
        query = query.after(page.continuation);
    }
    ensure!(seen == ["rare 004999", "rare 002500", "rare 000003"], "three rare rows were found as {seen:?}");
    Ok(())
}

async fn a_forged_token_is_refused<S: Subject>(subject: &S) -> Checked {
    let store = subject.fresh().await;
    fill::<S>(&store, 0, 20).await?;
    let query = Query::default().limit(5);
    let Some(token) = store.query(&LEDGER, &query).await?.continuation else {
        return Err(super::bench::Stop::Broken("a page of 5 of 20 rows has no token".to_owned()));
    };
    let mut dice = Dice::new(7);
    let alphabet = b"ABCxyz019-_";
    for round in 0..200 {
        let mut forged = token.clone().into_bytes();
        let at = usize::try_from(dice.below(forged.len() as u64)).unwrap_or(0);
        let letter = usize::try_from(dice.below(alphabet.len() as u64)).unwrap_or(0);
        match (round % 4, forged.get_mut(at), alphabet.get(letter)) {
            (0, ..) => forged.truncate(at),
            (1, ..) => forged.extend_from_slice(b"AA"),
            (_, Some(byte), Some(letter)) if byte != letter => *byte = *letter,
            _ => continue,
        }
        let forged = String::from_utf8_lossy(&forged).into_owned();
        let answer = store.query(&LEDGER, &query.clone().after(Some(forged.clone()))).await;
        ensure!(answer == Err(QueryError::Continuation), "forged token {forged:?} was accepted");
    }
    for nonsense in ["", "null", "%00", "ünicode", "AAAA", &"A".repeat(10_000)] {
        let answer = store.query(&LEDGER, &query.clone().after(Some(nonsense.to_owned()))).await;
        ensure!(answer == Err(QueryError::Continuation), "token {nonsense:.20?} was accepted");
    }
    Ok(())
}

async fn a_token_of_another_question_is_refused<S: Subject>(subject: &S) -> Checked {
    let store = subject.fresh().await;
    fill::<S>(&store, 0, 20).await?;
    let query = Query::default().equal("Engine", "hmac").limit(5);
    let token = store.query(&LEDGER, &query).await?.continuation;
    let others = [
        Query::default().limit(5),
        Query::default().equal("Engine", "tls").limit(5),
        Query::default().equal("Status", "hmac").limit(5),
        query.clone().equal("Status", "Pending"),
        Query { from: Some(0), ..query.clone() },
        Query { until: Some(99), ..query.clone() },
        Query { oldest_first: true, ..query.clone() },
    ];
    for other in others {
        let answer = store.query(&LEDGER, &other.clone().after(token.clone())).await;
        ensure!(answer == Err(QueryError::Continuation), "the token was accepted for {other:?}");
    }
    let elsewhere = store.query(&OTHER, &query.clone().after(token.clone())).await;
    ensure!(elsewhere == Err(QueryError::Continuation), "the token was accepted for another table");
    let resized = store.query(&LEDGER, &query.limit(2).after(token)).await?;
    ensure!(
        names(&resized.rows) == ["000014", "000013"],
        "smaller pages half way show {:?}",
        names(&resized.rows)
    );
    Ok(())
}
