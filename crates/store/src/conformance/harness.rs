//! Helpers of the checks: a result type for broken promises, and short functions for commits and reads.
//!
//! The promises themselves are not known here.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::BackendUnderTest;
use crate::rows::{
    Batch, CommitOutcome, CommitReceipt, Key, Partition, PrivateRows, Row, RowVersion, Scan, StoreError,
};

/// Why a check ended early.
#[derive(Debug)]
pub(super) enum CheckStop {
    Broken(String),
    NotApplicable(&'static str),
}

pub(super) type ConformanceResult<T = ()> = Result<T, CheckStop>;

impl From<StoreError> for CheckStop {
    fn from(error: StoreError) -> Self {
        Self::Broken(format!("a read failed: {error}"))
    }
}

impl From<crate::public::PublicQueryError> for CheckStop {
    fn from(error: crate::public::PublicQueryError) -> Self {
        Self::Broken(format!("a query failed: {error}"))
    }
}

impl From<crate::public::PublicPutError> for CheckStop {
    fn from(error: crate::public::PublicPutError) -> Self {
        Self::Broken(format!("a put failed: {error}"))
    }
}

pub(super) struct ConformanceCheck<S> {
    pub name: &'static str,
    #[expect(clippy::type_complexity, reason = "a boxed async function")]
    pub run: Box<dyn for<'s> Fn(&'s S) -> Pin<Box<dyn Future<Output = ConformanceResult> + 's>>>,
}

/// Lists the checks of one file: async functions that take the backend under test.
macro_rules! checks {
    ($($check:ident),+ $(,)?) => {
        pub(super) fn checks<S: $crate::conformance::BackendUnderTest>() -> Vec<$crate::conformance::harness::ConformanceCheck<S>> {
            vec![$($crate::conformance::harness::ConformanceCheck {
                name: stringify!($check),
                run: Box::new(|subject| Box::pin($check(subject))),
            }),+]
        }
    };
}

macro_rules! ensure {
    ($holds:expr, $($how:tt)+) => {
        if !$holds {
            return Err($crate::conformance::harness::CheckStop::Broken(format!($($how)+)));
        }
    };
}

pub(super) use {checks, ensure};

pub(super) fn partition(name: &str) -> Partition {
    // The names in checks are valid literals; an invalid one would fail every check at once.
    Partition::new(name).unwrap_or_else(|_| unreachable!("a literal"))
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text)
}

/// The key of the head in checks. Its value is a number that identifies the last commit.
pub(super) fn head() -> Key {
    key("head")
}

pub(super) fn fenced(expected_version: Option<&RowVersion>, number: u64) -> Batch {
    Batch::fenced(head(), expected_version.cloned(), number.to_be_bytes().to_vec())
}

pub(super) fn committed(outcome: CommitOutcome) -> ConformanceResult<CommitReceipt> {
    match outcome {
        CommitOutcome::Committed(receipt) => Ok(receipt),
        other => Err(CheckStop::Broken(format!("expected Committed, got {other:?}"))),
    }
}

/// Commits a first head and these rows to a partition, and returns the head's version.
pub(super) async fn with_rows<S: BackendUnderTest>(
    store: &S::Store,
    partition: &Partition,
    rows: &[(&str, &str)],
) -> ConformanceResult<RowVersion> {
    let mut batch = fenced(None, 1);
    for (name, value) in rows {
        batch = batch.put(key(name), value.as_bytes().to_vec());
    }
    head_of(&committed(store.commit(partition, batch).await)?)
}

pub(super) fn head_of(receipt: &CommitReceipt) -> ConformanceResult<RowVersion> {
    receipt
        .head_version
        .clone()
        .ok_or_else(|| CheckStop::Broken("a fenced commit returned no version of the head".to_owned()))
}

/// The value of a row, as text.
pub(super) async fn text<P: PrivateRows>(
    store: &P,
    partition: &Partition,
    name: &str,
) -> ConformanceResult<Option<String>> {
    let row = store.read(partition, &key(name)).await?;
    Ok(row.map(|row| String::from_utf8_lossy(&row.value).into_owned()))
}

/// Reads every row, page by page.
pub(super) async fn all_rows<P: PrivateRows>(
    store: &P,
    partition: &Partition,
    scan: Scan,
) -> ConformanceResult<Vec<Row>> {
    let mut rows = Vec::new();
    let mut next = Some(scan);
    while let Some(scan) = next {
        let page = store.scan(partition, scan).await?;
        ensure!(page.next.is_none() || !page.rows.is_empty(), "an empty page has a next one");
        rows.extend(page.rows);
        next = page.next;
    }
    Ok(rows)
}

/// Runs futures concurrently on the caller's task; returns the results in their order.
pub async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (future, result) in &mut running {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, result)| result).collect()
}
