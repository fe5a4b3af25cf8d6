//! What checks are made of: a way to say that a promise is broken, and commits in few words.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::Subject;
use crate::rows::{
    Batch, CommitOutcome, Key, Partition, PrivateRows, Receipt, Row, Scan, StoreError, Version,
};

/// Why a check ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Broken(String),
    NotApplicable(&'static str),
}

pub(super) type Checked<T = ()> = Result<T, Stop>;

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Broken(format!("a read failed: {error}"))
    }
}

impl From<crate::public::QueryError> for Stop {
    fn from(error: crate::public::QueryError) -> Self {
        Self::Broken(format!("a query failed: {error}"))
    }
}

impl From<crate::public::PutError> for Stop {
    fn from(error: crate::public::PutError) -> Self {
        Self::Broken(format!("a put failed: {error}"))
    }
}

pub(super) struct Check<S> {
    pub name: &'static str,
    #[expect(clippy::type_complexity, reason = "a boxed async function")]
    pub play: Box<dyn for<'s> Fn(&'s S) -> Pin<Box<dyn Future<Output = Checked> + 's>>>,
}

/// The checks of one file: async functions from the subject to a verdict.
macro_rules! checks {
    ($($check:ident),+ $(,)?) => {
        pub(super) fn checks<S: $crate::conformance::Subject>() -> Vec<$crate::conformance::bench::Check<S>> {
            vec![$($crate::conformance::bench::Check {
                name: stringify!($check),
                play: Box::new(|subject| Box::pin($check(subject))),
            }),+]
        }
    };
}

macro_rules! ensure {
    ($holds:expr, $($how:tt)+) => {
        if !$holds {
            return Err($crate::conformance::bench::Stop::Broken(format!($($how)+)));
        }
    };
}

pub(super) use {checks, ensure};

pub(super) fn partition(name: &str) -> Partition {
    // Names in checks are literals that fit; another literal would fail every check at once.
    Partition::new(name).unwrap_or_else(|_| unreachable!("a literal"))
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text)
}

/// The head in checks: its value is a number, so that the last commit can be told.
pub(super) fn head() -> Key {
    key("head")
}

pub(super) fn fenced(expect: Option<&Version>, number: u64) -> Batch {
    Batch::fenced(head(), expect.cloned(), number.to_be_bytes().to_vec())
}

pub(super) fn committed(outcome: CommitOutcome) -> Checked<Receipt> {
    match outcome {
        CommitOutcome::Committed(receipt) => Ok(receipt),
        other => Err(Stop::Broken(format!("expected Committed, got {other:?}"))),
    }
}

/// A partition with a first head and these rows, and the head's version.
pub(super) async fn with_rows<S: Subject>(
    store: &S::Store,
    partition: &Partition,
    rows: &[(&str, &str)],
) -> Checked<Version> {
    let mut batch = fenced(None, 1);
    for (name, value) in rows {
        batch = batch.put(key(name), value.as_bytes().to_vec());
    }
    head_of(&committed(store.commit(partition, batch).await)?)
}

pub(super) fn head_of(receipt: &Receipt) -> Checked<Version> {
    receipt
        .head
        .clone()
        .ok_or_else(|| Stop::Broken("a fenced commit returned no version of the head".to_owned()))
}

/// The text in a row.
pub(super) async fn text<P: PrivateRows>(
    store: &P,
    partition: &Partition,
    name: &str,
) -> Checked<Option<String>> {
    let row = store.read(partition, &key(name)).await?;
    Ok(row.map(|row| String::from_utf8_lossy(&row.value).into_owned()))
}

/// Every row, page by page.
pub(super) async fn all_rows<P: PrivateRows>(
    store: &P,
    partition: &Partition,
    scan: Scan,
) -> Checked<Vec<Row>> {
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

/// Runs futures side by side on the caller's task; answers in their order.
pub async fn together<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (future, answer) in &mut running {
            if answer.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *answer = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, answer)| answer).collect()
}
