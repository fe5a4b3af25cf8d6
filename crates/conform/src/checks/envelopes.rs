//! What only envelopes have: a version, a context that is the metadata, headers that may repeat it, and answers in envelopes.

use abide_dispatch::status::reason;
use abide_dispatch::wire::envelope;
use abide_dispatch::{Code, Metadata};
use serde_json::Value;

use super::Check;
use crate::bench::Bench;
use crate::delivery::{Delivery, Oddity, Told};
use crate::unmet::{Met, Unmet};

pub(super) fn all() -> Vec<Check> {
    vec![
        Check::new(
            "envelope-version",
            "an envelope of another version is INVALID_ARGUMENT, PROTOCOL_UNSUPPORTED, and runs nothing",
            |bench| Box::pin(version(bench)),
        ),
        Check::new("envelope-context", "the context is the metadata: headers may be left out", |bench| {
            Box::pin(context(bench))
        }),
        Check::new(
            "envelope-answer",
            "an answer is an envelope of the same version with the same context",
            |bench| Box::pin(answer(bench)),
        ),
        Check::new(
            "envelope-disagreeing",
            "headers that say something else than the context are METADATA_MALFORMED, and nothing runs",
            |bench| Box::pin(disagreeing(bench)),
        ),
        Check::new(
            "envelope-types",
            "in a context numbers are JSON numbers and texts are texts, else METADATA_MALFORMED",
            |bench| Box::pin(types(bench)),
        ),
    ]
}

async fn version(bench: &Bench) -> Met {
    for other in ["tpf.envelope.v2", ""] {
        let work = bench.work();
        let answer = bench.deliver(&work.run().with(Oddity::Version(other))).await?;
        let refused = answer.fails(Code::InvalidArgument, Some(reason::PROTOCOL_UNSUPPORTED));
        refused.map_err(|unmet| unmet.of(format!("{other:?}")))?;
        bench.ran(&work.tag, 0).await?;
    }
    Ok(())
}

async fn context(bench: &Bench) -> Met {
    let work = bench.work();
    let alone = Delivery { metadata: Told::Context(work.metadata.clone()), ..work.run() };
    let first = bench.deliver(&alone).await?;
    first.is_run(1)?;
    bench.deliver(&work.run()).await?.repeats(&first).map_err(|unmet| unmet.of("the same with headers"))?;
    bench.ran(&work.tag, 1).await
}

async fn answer(bench: &Bench) -> Met {
    let work = bench.work();
    for attempt in [0, 1] {
        let metadata = Metadata { retry_attempt: attempt, ..work.metadata.clone() };
        let answer = bench.deliver(&work.with(metadata).run()).await?;
        answer.is_run(1)?;
        let found: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let of = |pointer: &str| found.pointer(pointer).cloned().unwrap_or_default();
        if of("/protocolVersion") != envelope::VERSION {
            return Err(Unmet::broken(format!("version {}", envelope::VERSION), of("/protocolVersion")));
        }
        for (pointer, sent) in [
            ("/control/context/executionId", Value::from(work.metadata.execution_id.as_str())),
            ("/control/context/idempotencyKey", Value::from(work.metadata.idempotency_key.as_str())),
            ("/control/context/retryAttempt", Value::from(attempt)),
        ] {
            if of(pointer) != sent {
                return Err(Unmet::broken(format!("{pointer} {sent}"), of(pointer)));
            }
        }
    }
    Ok(())
}

async fn disagreeing(bench: &Bench) -> Met {
    let work = bench.work();
    let metadata = &work.metadata;
    let others = [
        ("the key", Metadata { idempotency_key: "another".to_owned(), ..metadata.clone() }),
        ("the execution id", Metadata { execution_id: "another/1".to_owned(), ..metadata.clone() }),
        ("the attempt", Metadata { retry_attempt: 7, ..metadata.clone() }),
        ("the deadline", Metadata { deadline_epoch_ms: None, ..metadata.clone() }),
    ];
    for (what, headers) in others {
        let told = Told::Disagreeing(metadata.clone(), headers);
        let answer = bench.deliver(&Delivery { metadata: told, ..work.run() }).await?;
        let refused = answer.fails(Code::InvalidArgument, Some(reason::METADATA_MALFORMED));
        refused.map_err(|unmet| unmet.of(what))?;
    }
    bench.ran(&work.tag, 0).await
}

async fn types(bench: &Bench) -> Met {
    for (name, text) in [
        ("retryAttempt", "\"1\""),
        ("retryAttempt", "true"),
        ("deadlineEpochMs", "\"9000000000000\""),
        ("executionId", "7"),
        ("idempotencyKey", "7"),
        ("idempotencyKey", "[\"a\"]"),
    ] {
        let work = bench.work();
        let told = Told::Fields(vec![(name, text)], work.metadata.clone());
        let answer = bench.deliver(&Delivery { metadata: told, ..work.run() }).await?;
        let refused = answer.fails(Code::InvalidArgument, Some(reason::METADATA_MALFORMED));
        refused.map_err(|unmet| unmet.of(format!("{name} {text}")))?;
        bench.ran(&work.tag, 0).await?;
    }
    Ok(())
}
