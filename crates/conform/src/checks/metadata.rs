//! How metadata is read: strictly, before anything else happens; and what work without any is known by.

use abide_dispatch::Code;
use abide_dispatch::metadata::{
    CORRELATION_ID, DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, PARENT_ITEM_ID, RETRY_ATTEMPT,
    VALUE_BYTES_MAX,
};
use abide_dispatch::status::reason;

use super::Check;
use crate::Wire;
use crate::answer::Said;
use crate::bench::{Bench, Work};
use crate::delivery::{Delivery, Oddity, Told};
use crate::unmet::Met;

type Pairs = Vec<(&'static str, Vec<u8>)>;

/// A kind of malformed metadata: a name, the rule, and what is told beside execution id and key.
struct Kind {
    name: &'static str,
    rule: &'static str,
    more: fn() -> Vec<(&'static str, String)>,
}

const NUMBERS: [&str; 3] = [RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT];
const TEXTS: [&str; 2] = [CORRELATION_ID, PARENT_ITEM_ID];

/// The same value under each of these keys, one at a time.
fn each(keys: &[&'static str], values: &[&str]) -> Vec<(&'static str, String)> {
    let of = |key: &&'static str| values.iter().map(|value| (*key, (*value).to_owned())).collect::<Vec<_>>();
    keys.iter().flat_map(of).collect()
}

const KINDS: [Kind; 6] = [
    Kind {
        name: "metadata-sign",
        rule: "a number with a sign is METADATA_MALFORMED, and nothing runs",
        more: || each(&NUMBERS, &["-1", "+1"]),
    },
    Kind {
        name: "metadata-digits",
        rule: "a number in other than decimal digits is METADATA_MALFORMED, and nothing runs",
        more: || each(&NUMBERS, &["0x10", "1.5", "1e3", "soon"]),
    },
    Kind {
        name: "metadata-blank-inside",
        rule: "a number with a blank inside is METADATA_MALFORMED, and nothing runs",
        more: || each(&NUMBERS, &["1 000"]),
    },
    Kind {
        name: "metadata-overflow",
        rule: "a number over its limit is METADATA_MALFORMED, and nothing runs",
        more: || {
            let mut all = vec![(RETRY_ATTEMPT, "4294967296".to_owned())];
            all.extend(each(&[DEADLINE, DISPATCHED_AT], &["9223372036854775808"]));
            all.extend(each(&NUMBERS, &["100000000000000000000000000"]));
            all
        },
    },
    Kind {
        name: "metadata-too-long",
        rule: "a value of more than 512 bytes is METADATA_MALFORMED, and nothing runs",
        more: || each(&TEXTS, &[&"x".repeat(VALUE_BYTES_MAX + 1)]),
    },
    Kind {
        name: "metadata-not-ascii",
        rule: "a value with other than printable ASCII is METADATA_MALFORMED, and nothing runs",
        more: || each(&TEXTS, &["ä"]),
    },
];

pub(super) fn all(transport: Wire) -> Vec<Check> {
    let mut all: Vec<Check> = KINDS
        .into_iter()
        .map(|Kind { name, rule, more }| {
            Check::new(name, rule, move |bench| Box::pin(malformed(bench, more())))
        })
        .collect();
    all.push(Check::new(
        "metadata-repeated",
        "a key that is there twice is METADATA_MALFORMED, also if both say the same, and nothing runs",
        |bench| Box::pin(repeated(bench)),
    ));
    all.push(Check::new(
        "metadata-missing",
        "any key without execution id or idempotency key is METADATA_MALFORMED, and nothing runs",
        |bench| Box::pin(missing(bench)),
    ));
    all.push(Check::new(
        "metadata-largest",
        "the largest numbers and the longest values are taken",
        |bench| Box::pin(largest(bench)),
    ));
    all.push(Check::new("metadata-blank", "a blank value is an absent one", |bench| Box::pin(blank(bench))));
    all.push(Check::new(
        "metadata-none",
        "without any metadata equal inputs are one piece of work, and others are not",
        |bench| Box::pin(none(bench)),
    ));
    if matches!(transport, Wire::Rest | Wire::Protobuf) {
        all.push(Check::new("header-case", "the names of headers are compared without case", |bench| {
            Box::pin(header_case(bench))
        }));
    }
    all
}

/// The least there can be.
fn least(work: &Work) -> Pairs {
    let metadata = &work.metadata;
    vec![
        (EXECUTION_ID, metadata.execution_id.clone().into_bytes()),
        (IDEMPOTENCY_KEY, metadata.idempotency_key.clone().into_bytes()),
    ]
}

async fn refused(bench: &Bench, work: &Work, pairs: Pairs, what: &str) -> Met {
    let delivery = Delivery { metadata: Told::Pairs(pairs), ..work.run() };
    let answer = bench.deliver(&delivery).await?;
    // A library for HTTP may refuse such bytes before anybody sees them, and that is final as well.
    let by_library =
        what.contains("\"ä\"") && answer.http == Some(400) && matches!(answer.said, Said::Unclear(_));
    if !by_library {
        let refusal = answer.fails(Code::InvalidArgument, Some(reason::METADATA_MALFORMED));
        refusal.map_err(|unmet| unmet.of(what))?;
    }
    bench.ran(&work.tag, 0).await.map_err(|unmet| unmet.of(what))
}

async fn malformed(bench: &Bench, more: Vec<(&'static str, String)>) -> Met {
    for (key, value) in more {
        let work = bench.work();
        let what = format!("{key} {}", shown(&value));
        let mut pairs = least(&work);
        pairs.push((key, value.into_bytes()));
        refused(bench, &work, pairs, &what).await?;
    }
    Ok(())
}

async fn repeated(bench: &Bench) -> Met {
    for key in [EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT, DEADLINE] {
        for (first, second) in [("1", "1"), ("1", "2")] {
            let work = bench.work();
            let mut pairs = least(&work);
            pairs.retain(|(other, _)| *other != key);
            pairs.extend([(key, first.into()), (key, second.into())]);
            refused(bench, &work, pairs, &format!("{key} {first:?} and {second:?}")).await?;
        }
    }
    Ok(())
}

async fn missing(bench: &Bench) -> Met {
    for required in [EXECUTION_ID, IDEMPOTENCY_KEY] {
        let work = bench.work();
        let mut pairs = least(&work);
        pairs.retain(|(key, _)| *key != required);
        refused(bench, &work, pairs.clone(), &format!("no {required}")).await?;
        pairs.push((required, b"  ".to_vec()));
        refused(bench, &work, pairs, &format!("a blank {required}")).await?;
    }
    let work = bench.work();
    let pairs = vec![(CORRELATION_ID, b"c-1".to_vec())];
    refused(bench, &work, pairs, &format!("{CORRELATION_ID} alone")).await
}

async fn largest(bench: &Bench) -> Met {
    let long = "x".repeat(VALUE_BYTES_MAX);
    for (key, value) in [
        (RETRY_ATTEMPT, "4294967295"),
        (DEADLINE, "9223372036854775807"),
        (DISPATCHED_AT, "9223372036854775807"),
        (PARENT_ITEM_ID, &long),
    ] {
        taken(bench, key, value).await?;
    }
    Ok(())
}

async fn blank(bench: &Bench) -> Met {
    for key in [CORRELATION_ID, RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT, PARENT_ITEM_ID] {
        // A context has texts where there is no number.
        let is_number = NUMBERS.contains(&key);
        if !(bench.transport == Wire::Envelope && is_number) {
            taken(bench, key, "").await?;
        }
    }
    Ok(())
}

async fn taken(bench: &Bench, key: &'static str, value: &str) -> Met {
    let work = bench.work();
    let mut pairs = least(&work);
    pairs.push((key, value.into()));
    let delivery = Delivery { metadata: Told::Pairs(pairs), ..work.run() };
    bench.deliver(&delivery).await?.is_run(1).map_err(|unmet| unmet.of(format!("{key} {}", shown(value))))
}

async fn none(bench: &Bench) -> Met {
    let (work, other) = (bench.work(), bench.work());
    let nobodys = |work: &Work| Delivery { metadata: Told::Nothing, ..work.run() };
    let first = bench.deliver(&nobodys(&work)).await?;
    first.is_run(1)?;
    bench.deliver(&nobodys(&work)).await?.repeats(&first)?;
    if bench.transport == Wire::Envelope {
        let again = bench.deliver(&nobodys(&work).with(Oddity::Pipeline("another"))).await?;
        again.repeats(&first).map_err(|unmet| unmet.of("the same input under another pipeline"))?;
    }
    bench.ran(&work.tag, 1).await?;
    bench.deliver(&nobodys(&other)).await?;
    bench.ran(&other.tag, 1).await.map_err(|unmet| unmet.of("another input"))
}

async fn header_case(bench: &Bench) -> Met {
    let work = bench.work();
    let first = bench.deliver(&work.run()).await?;
    first.is_run(1)?;
    bench.deliver(&work.run().with(Oddity::TitleCase)).await?.repeats(&first)?;
    bench.ran(&work.tag, 1).await
}

fn shown(value: &str) -> String {
    if value.len() <= 40 { format!("{value:?}") } else { format!("of {} bytes", value.len()) }
}
