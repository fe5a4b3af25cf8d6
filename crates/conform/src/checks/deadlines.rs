//! Deadlines: what is too late does not run, and what was done in time keeps its answer.

use abide_dispatch::status::reason;
use abide_dispatch::{Code, Metadata};

use super::Check;
use crate::bench::{Bench, Work};
use crate::unmet::Met;

pub(super) fn all() -> Vec<Check> {
    vec![
        Check::new(
            "deadline-expired",
            "after its deadline work is DEADLINE_EXCEEDED, DEADLINE_EXPIRED, and does not run",
            |bench| Box::pin(expired(bench)),
        ),
        Check::new(
            "deadline-not-recorded",
            "a deadline that has passed is not recorded: a later one runs",
            |bench| Box::pin(not_recorded(bench)),
        ),
        Check::new("deadline-absent", "work without a deadline runs", |bench| Box::pin(absent(bench))),
        Check::new(
            "deadline-ahead",
            "work before its deadline runs, also before the latest there is",
            |bench| Box::pin(ahead(bench)),
        ),
        Check::new("deadline-finished", "finished work keeps its answer after its deadline", |bench| {
            Box::pin(finished(bench))
        }),
    ]
}

fn until(work: &Work, deadline: i64) -> Work {
    work.with(Metadata { deadline_epoch_ms: Some(deadline), ..work.metadata.clone() })
}

async fn expired(bench: &Bench) -> Met {
    for deadline in [bench.long_ago(), 0] {
        let work = bench.work();
        let answer = bench.deliver(&until(&work, deadline).run()).await?;
        answer.fails(Code::DeadlineExceeded, Some(reason::DEADLINE_EXPIRED))?;
        bench.ran(&work.tag, 0).await?;
    }
    Ok(())
}

async fn not_recorded(bench: &Bench) -> Met {
    let work = bench.work();
    bench.deliver(&until(&work, bench.long_ago()).run()).await?;
    let answer = bench.deliver(&until(&work, bench.far_ahead()).run()).await?;
    answer.is_run(1).map_err(|unmet| unmet.of("the same work with a deadline ahead"))
}

async fn absent(bench: &Bench) -> Met {
    let work = bench.work();
    let endless = work.with(Metadata { deadline_epoch_ms: None, ..work.metadata.clone() });
    bench.deliver(&endless.run()).await?.is_run(1)
}

async fn ahead(bench: &Bench) -> Met {
    for (what, deadline) in [("an hour ahead", bench.far_ahead()), ("the latest moment", i64::MAX)] {
        let work = bench.work();
        // It takes a moment, so that timers that cannot wait that long are found out.
        let delivery = until(&work, deadline).wait(20);
        bench.deliver(&delivery).await?.is_run(1).map_err(|unmet| unmet.of(what))?;
    }
    Ok(())
}

async fn finished(bench: &Bench) -> Met {
    let work = bench.work();
    let first = bench.deliver(&until(&work, bench.far_ahead()).run()).await?;
    first.is_run(1)?;
    bench.deliver(&until(&work, bench.long_ago()).run()).await?.repeats(&first)?;
    bench.ran(&work.tag, 1).await
}
