//! Probes, which a receiver need not answer; but if it does, a probe tells what is known and runs nothing.

use abide_dispatch::Code;
use abide_dispatch::status::reason;
use futures_util::future::join;

use super::Check;
use crate::answer::{Answer, Said};
use crate::bench::{Bench, Work};
use crate::delivery::Oddity;
use crate::unmet::{Met, Unmet};

const WAIT_MS: u64 = 700;
/// How often it is asked about work that has not begun.
const ASKED_MAX: usize = 200;

pub(super) fn all() -> Vec<Check> {
    vec![
        Check::new(
            "probe-unknown",
            "optional: a probe of unknown work is NOT_FOUND, and runs nothing",
            |bench| Box::pin(unknown(bench)),
        ),
        Check::new("probe-finished", "optional: a probe of finished work is its recorded answer", |bench| {
            Box::pin(finished(bench))
        }),
        Check::new(
            "probe-in-progress",
            "optional: a probe of work in progress is ABORTED, IN_PROGRESS",
            |bench| Box::pin(in_progress(bench)),
        ),
    ]
}

async fn probe(bench: &Bench, work: &Work) -> Met<Answer> {
    bench.deliver(&work.run().with(Oddity::Probe)).await
}

/// Whether probes are answered at all: who does not know them runs the work, or says so.
async fn supported(bench: &Bench) -> Met {
    let work = bench.work();
    let answer = probe(bench, &work).await?;
    match &answer.said {
        Said::Output(_) => Err(skipped("probes are not supported: one was taken for a delivery")),
        Said::Failed(status) if status.code == Code::Unimplemented => {
            Err(skipped("probes are not supported"))
        }
        _ if matches!(answer.http, Some(400 | 405 | 501)) => {
            Err(skipped("probes are not supported: refused"))
        }
        _ => Ok(()),
    }
}

fn skipped(why: &str) -> Unmet {
    Unmet::Skipped(format!("{why}; leave `probe` out of the activity's declaration"))
}

async fn unknown(bench: &Bench) -> Met {
    supported(bench).await?;
    let work = bench.work();
    probe(bench, &work).await?.fails(Code::NotFound, None)?;
    bench.ran(&work.tag, 0).await
}

async fn finished(bench: &Bench) -> Met {
    supported(bench).await?;
    let work = bench.work();
    let first = bench.deliver(&work.run()).await?;
    probe(bench, &work).await?.repeats(&first)?;
    let work = bench.work();
    let delivery = work.fail(Code::FailedPrecondition.name(), 1);
    let first = bench.deliver(&delivery).await?;
    bench.deliver(&delivery.with(Oddity::Probe)).await?.repeats(&first)?;
    bench.ran(&work.tag, 1).await
}

async fn in_progress(bench: &Bench) -> Met {
    supported(bench).await?;
    let work = bench.work();
    let delivery = work.wait(WAIT_MS);
    let asking = async {
        let asked = delivery.clone().with(Oddity::Probe);
        for _ in 0..ASKED_MAX {
            let answer = bench.deliver(&asked).await?;
            // Not begun yet.
            if answer.code() != Some(Code::NotFound) {
                return answer.fails(Code::Aborted, Some(reason::IN_PROGRESS));
            }
        }
        Err(Unmet::broken("ABORTED while it runs", "NOT_FOUND all the time"))
    };
    let (done, asked) = join(bench.deliver(&delivery), asking).await;
    done?.is_run(1)?;
    asked
}
