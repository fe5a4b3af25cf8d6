//! What is one piece of work and what is another: execution id, activity and idempotency key, and nothing else.

use abide_dispatch::status::reason;
use abide_dispatch::{Code, Metadata};
use futures_util::future::join_all;
use serde_json::json;

use super::Check;
use crate::answer::Said;
use crate::bench::Bench;
use crate::unmet::{Met, Unmet};

/// Duplicates that are there at once, and how long the one that runs takes meanwhile.
const AT_ONCE: usize = 16;
const AT_ONCE_WAIT_MS: u64 = 700;

pub(super) fn all() -> Vec<Check> {
    vec![
        Check::new("serves", "the activity runs, counts and answers", |bench| Box::pin(serves(bench))),
        Check::new(
            "duplicate",
            "a duplicate is answered with the recorded answer, byte for byte, and runs nothing",
            |bench| Box::pin(duplicate(bench)),
        ),
        Check::new(
            "duplicate-attempt",
            "another attempt number, dispatch time, correlation id or deadline makes no other work",
            |bench| Box::pin(duplicate_attempt(bench)),
        ),
        Check::new(
            "duplicate-input",
            "what comes with a duplicate is not looked at: another input gets the recorded answer",
            |bench| Box::pin(duplicate_input(bench)),
        ),
        Check::new(
            "duplicate-at-once",
            "of 16 duplicates at once one runs; the others are ABORTED, IN_PROGRESS, or get its answer",
            |bench| Box::pin(duplicates_at_once(bench)),
        ),
        Check::new("other-execution", "the same key under another execution id is new work", |bench| {
            Box::pin(other_execution(bench))
        }),
        Check::new("other-key", "another key under the same execution id is new work", |bench| {
            Box::pin(other_key(bench))
        }),
    ]
}

async fn serves(bench: &Bench) -> Met {
    let work = bench.work();
    bench.deliver(&work.run()).await?.is_run(1).map_err(|unmet| unmet.of("op run"))?;
    bench.ran(&work.tag, 1).await.map_err(|unmet| unmet.of("op count"))?;
    let value = json!([null, true, 1, "ä", {"a": []}]);
    let echoed = bench.deliver(&bench.work().echo(&value)).await?;
    echoed.is(&json!({"value": value})).map_err(|unmet| unmet.of("op echo"))
}

async fn duplicate(bench: &Bench) -> Met {
    let work = bench.work();
    let first = bench.deliver(&work.run()).await?;
    first.is_run(1)?;
    for _ in 0..2 {
        bench.deliver(&work.run()).await?.repeats(&first)?;
    }
    bench.ran(&work.tag, 1).await
}

async fn duplicate_attempt(bench: &Bench) -> Met {
    let work = bench.work();
    let first = bench.deliver(&work.run()).await?;
    first.is_run(1)?;
    let metadata = &work.metadata;
    let later = metadata.dispatched_at_epoch_ms.saturating_add(1_000);
    let others = [
        ("retry attempt 1", Metadata { retry_attempt: 1, ..metadata.clone() }),
        ("the highest retry attempt", Metadata { retry_attempt: u32::MAX, ..metadata.clone() }),
        ("a later dispatch time", Metadata { dispatched_at_epoch_ms: later, ..metadata.clone() }),
        ("another correlation id", Metadata { correlation_id: "another".to_owned(), ..metadata.clone() }),
        ("no deadline", Metadata { deadline_epoch_ms: None, ..metadata.clone() }),
        ("a parent item", Metadata { parent_item_id: Some("item-7".to_owned()), ..metadata.clone() }),
    ];
    for (what, metadata) in others {
        let again = bench.deliver(&work.with(metadata).run()).await?;
        again.repeats(&first).map_err(|unmet| unmet.of(what))?;
    }
    bench.ran(&work.tag, 1).await
}

async fn duplicate_input(bench: &Bench) -> Met {
    let (work, other) = (bench.work(), bench.work());
    let first = bench.deliver(&work.run()).await?;
    first.is_run(1)?;
    let again = bench.deliver(&other.with(work.metadata.clone()).run()).await?;
    again.repeats(&first)?;
    bench.ran(&other.tag, 0).await
}

async fn duplicates_at_once(bench: &Bench) -> Met {
    let work = bench.work();
    let delivery = work.wait(AT_ONCE_WAIT_MS);
    let answers = join_all((0..AT_ONCE).map(|_| bench.deliver(&delivery))).await;
    let mut done = 0;
    for answer in answers {
        let answer = answer?;
        if let Said::Output(_) = answer.said {
            answer.is_run(1)?;
            done += 1;
        } else {
            let busy = answer.fails(Code::Aborted, Some(reason::IN_PROGRESS));
            busy.map_err(|unmet| unmet.of("the answer of the one that runs, or"))?;
        }
    }
    if done == 0 {
        return Err(Unmet::broken("one that runs", "all were told that another one does"));
    }
    bench.ran(&work.tag, 1).await?;
    bench.deliver(&delivery).await?.is_run(1).map_err(|unmet| unmet.of("one more, afterwards"))
}

async fn other_execution(bench: &Bench) -> Met {
    let work = bench.work();
    bench.deliver(&work.run()).await?.is_run(1)?;
    let execution_id = format!("{}-2", work.metadata.execution_id);
    let other = work.with(Metadata { execution_id, ..work.metadata.clone() });
    bench.deliver(&other.run()).await?.is_run(2)?;
    bench.ran(&work.tag, 2).await
}

async fn other_key(bench: &Bench) -> Met {
    let work = bench.work();
    bench.deliver(&work.run()).await?.is_run(1)?;
    let idempotency_key = format!("{}-2", work.metadata.idempotency_key);
    let other = work.with(Metadata { idempotency_key, ..work.metadata.clone() });
    bench.deliver(&other.run()).await?.is_run(2)?;
    bench.ran(&work.tag, 2).await
}
