//! Rules for metadata: it is read strictly and before anything else, and a call without any is identified by its input.

use abide_dispatch::RpcCode;
use abide_dispatch::metadata::{
    CORRELATION_ID, DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, PARENT_ITEM_ID, RETRY_ATTEMPT,
    VALUE_BYTES_MAX,
};
use abide_dispatch::status::reason;

use super::ContractCheck;
use crate::WireFormat;
use crate::harness::{Harness, TestWork};
use crate::response::ResponseOutcome;
use crate::test_request::{Deviation, SentMetadata, TestRequest};
use crate::violation::CheckResult;

type Pairs = Vec<(&'static str, Vec<u8>)>;

/// A kind of malformed metadata: each of `pairs` in turn is sent beside execution id and idempotency key.
struct MalformedCase {
    name: &'static str,
    rule: &'static str,
    pairs: fn() -> Vec<(&'static str, String)>,
}

const NUMBERS: [&str; 3] = [RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT];
const TEXTS: [&str; 2] = [CORRELATION_ID, PARENT_ITEM_ID];

/// Every combination of these keys and values.
fn pair_each(keys: &[&'static str], values: &[&str]) -> Vec<(&'static str, String)> {
    let with_each_value =
        |key: &&'static str| values.iter().map(|value| (*key, (*value).to_owned())).collect::<Vec<_>>();
    keys.iter().flat_map(with_each_value).collect()
}

const MALFORMED_CASES: [MalformedCase; 6] = [
    MalformedCase {
        name: "metadata-sign",
        rule: "a number with a sign is METADATA_MALFORMED, and nothing runs",
        pairs: || pair_each(&NUMBERS, &["-1", "+1"]),
    },
    MalformedCase {
        name: "metadata-digits",
        rule: "a number that is not only decimal digits is METADATA_MALFORMED, and nothing runs",
        pairs: || pair_each(&NUMBERS, &["0x10", "1.5", "1e3", "soon"]),
    },
    MalformedCase {
        name: "metadata-blank-inside",
        rule: "a number with a space inside is METADATA_MALFORMED, and nothing runs",
        pairs: || pair_each(&NUMBERS, &["1 000"]),
    },
    MalformedCase {
        name: "metadata-overflow",
        rule: "a number over its limit is METADATA_MALFORMED, and nothing runs",
        pairs: || {
            let mut all = vec![(RETRY_ATTEMPT, "4294967296".to_owned())];
            all.extend(pair_each(&[DEADLINE, DISPATCHED_AT], &["9223372036854775808"]));
            all.extend(pair_each(&NUMBERS, &["100000000000000000000000000"]));
            all
        },
    },
    MalformedCase {
        name: "metadata-too-long",
        rule: "a value of more than 512 bytes is METADATA_MALFORMED, and nothing runs",
        pairs: || pair_each(&TEXTS, &[&"x".repeat(VALUE_BYTES_MAX + 1)]),
    },
    MalformedCase {
        name: "metadata-not-ascii",
        rule: "a value with anything but printable ASCII is METADATA_MALFORMED, and nothing runs",
        pairs: || pair_each(&TEXTS, &["ä"]),
    },
];

pub(super) fn all(transport: WireFormat) -> Vec<ContractCheck> {
    let mut all: Vec<ContractCheck> = MALFORMED_CASES
        .into_iter()
        .map(|MalformedCase { name, rule, pairs }| {
            ContractCheck::new(name, rule, move |harness| Box::pin(malformed(harness, pairs())))
        })
        .collect();
    all.push(ContractCheck::new(
        "metadata-repeated",
        "a duplicated key is METADATA_MALFORMED, even with equal values, and nothing runs",
        |harness| Box::pin(repeated(harness)),
    ));
    all.push(ContractCheck::new(
        "metadata-missing",
        "metadata without execution id or idempotency key is METADATA_MALFORMED, and nothing runs",
        |harness| Box::pin(missing(harness)),
    ));
    all.push(ContractCheck::new(
        "metadata-largest",
        "the largest numbers and the longest values are accepted",
        |harness| Box::pin(largest(harness)),
    ));
    all.push(ContractCheck::new("metadata-blank", "a blank value counts as absent", |harness| {
        Box::pin(blank(harness))
    }));
    all.push(ContractCheck::new(
        "metadata-none",
        "without metadata, equal inputs are one call and different inputs are different calls",
        |harness| Box::pin(none(harness)),
    ));
    if matches!(transport, WireFormat::Rest | WireFormat::Protobuf) {
        all.push(ContractCheck::new(
            "header-case",
            "header names are compared without regard to case",
            |harness| Box::pin(header_case(harness)),
        ));
    }
    all
}

/// The two keys that are required.
fn required_pairs(work: &TestWork) -> Pairs {
    let metadata = &work.metadata;
    vec![
        (EXECUTION_ID, metadata.execution_id.clone().into_bytes()),
        (IDEMPOTENCY_KEY, metadata.idempotency_key.clone().into_bytes()),
    ]
}

async fn expect_malformed(harness: &Harness, work: &TestWork, pairs: Pairs, case: &str) -> CheckResult {
    let request = TestRequest { metadata: SentMetadata::RawPairs(pairs), ..work.run_request() };
    let response = harness.send(&request).await?;
    // An HTTP library may reject such bytes before the receiver sees them; that is a permanent failure as well.
    let is_rejected_by_library = case.contains("\"ä\"")
        && response.http_status == Some(400)
        && matches!(response.outcome, ResponseOutcome::Unrecognized(_));
    if !is_rejected_by_library {
        let rejected = response.expect_failure(RpcCode::InvalidArgument, Some(reason::METADATA_MALFORMED));
        rejected.map_err(|failure| failure.with_context(case))?;
    }
    harness.expect_runs(&work.tag, 0).await.map_err(|failure| failure.with_context(case))
}

async fn malformed(harness: &Harness, extra_pairs: Vec<(&'static str, String)>) -> CheckResult {
    for (key, value) in extra_pairs {
        let work = harness.new_work();
        let case = format!("{key} {}", quote(&value));
        let mut pairs = required_pairs(&work);
        pairs.push((key, value.into_bytes()));
        expect_malformed(harness, &work, pairs, &case).await?;
    }
    Ok(())
}

async fn repeated(harness: &Harness) -> CheckResult {
    for key in [EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT, DEADLINE] {
        for (first, second) in [("1", "1"), ("1", "2")] {
            let work = harness.new_work();
            let mut pairs = required_pairs(&work);
            pairs.retain(|(other, _)| *other != key);
            pairs.extend([(key, first.into()), (key, second.into())]);
            expect_malformed(harness, &work, pairs, &format!("{key} {first:?} and {second:?}")).await?;
        }
    }
    Ok(())
}

async fn missing(harness: &Harness) -> CheckResult {
    for required in [EXECUTION_ID, IDEMPOTENCY_KEY] {
        let work = harness.new_work();
        let mut pairs = required_pairs(&work);
        pairs.retain(|(key, _)| *key != required);
        expect_malformed(harness, &work, pairs.clone(), &format!("no {required}")).await?;
        pairs.push((required, b"  ".to_vec()));
        expect_malformed(harness, &work, pairs, &format!("a blank {required}")).await?;
    }
    let work = harness.new_work();
    let pairs = vec![(CORRELATION_ID, b"c-1".to_vec())];
    expect_malformed(harness, &work, pairs, &format!("{CORRELATION_ID} alone")).await
}

async fn largest(harness: &Harness) -> CheckResult {
    let long = "x".repeat(VALUE_BYTES_MAX);
    for (key, value) in [
        (RETRY_ATTEMPT, "4294967295"),
        (DEADLINE, "9223372036854775807"),
        (DISPATCHED_AT, "9223372036854775807"),
        (PARENT_ITEM_ID, &long),
    ] {
        expect_accepted(harness, key, value).await?;
    }
    Ok(())
}

async fn blank(harness: &Harness) -> CheckResult {
    for key in [CORRELATION_ID, RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT, PARENT_ITEM_ID] {
        // In a context a number cannot be blank: it would be a string, which is malformed.
        let is_number = NUMBERS.contains(&key);
        if !(harness.transport == WireFormat::Envelope && is_number) {
            expect_accepted(harness, key, "").await?;
        }
    }
    Ok(())
}

async fn expect_accepted(harness: &Harness, key: &'static str, value: &str) -> CheckResult {
    let work = harness.new_work();
    let mut pairs = required_pairs(&work);
    pairs.push((key, value.into()));
    let request = TestRequest { metadata: SentMetadata::RawPairs(pairs), ..work.run_request() };
    harness
        .send(&request)
        .await?
        .expect_run_count(1)
        .map_err(|failure| failure.with_context(format!("{key} {}", quote(value))))
}

async fn none(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let other = harness.new_work();
    let without_metadata =
        |work: &TestWork| TestRequest { metadata: SentMetadata::Absent, ..work.run_request() };
    let first = harness.send(&without_metadata(&work)).await?;
    first.expect_run_count(1)?;
    harness.send(&without_metadata(&work)).await?.expect_same_as(&first)?;
    if harness.transport == WireFormat::Envelope {
        let again =
            harness.send(&without_metadata(&work).with_deviation(Deviation::Pipeline("another"))).await?;
        again
            .expect_same_as(&first)
            .map_err(|failure| failure.with_context("the same input under another pipeline"))?;
    }
    harness.expect_runs(&work.tag, 1).await?;
    harness.send(&without_metadata(&other)).await?;
    harness.expect_runs(&other.tag, 1).await.map_err(|failure| failure.with_context("another input"))
}

async fn header_case(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let first = harness.send(&work.run_request()).await?;
    first.expect_run_count(1)?;
    harness.send(&work.run_request().with_deviation(Deviation::TitleCase)).await?.expect_same_as(&first)?;
    harness.expect_runs(&work.tag, 1).await
}

fn quote(value: &str) -> String {
    if value.len() <= 40 { format!("{value:?}") } else { format!("of {} bytes", value.len()) }
}
