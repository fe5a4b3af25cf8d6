//! Failures: every code of the table arrives as itself, final ones are recorded and retryable ones are not.

use abide_dispatch::Code;

use super::Check;
use crate::bench::Bench;
use crate::unmet::Met;

/// The reason of failures that are asked for.
const ASKED_FOR: &str = "CONFORMANCE";

const RETRYABLE: &str =
    "arrives as itself, with its HTTP status; it is not recorded, and the next attempt runs";
const FINAL: &str = "arrives as itself, with its HTTP status; it is recorded and repeated";

const CODES: [(Code, &str); 16] = [
    (Code::Cancelled, "status-cancelled"),
    (Code::Unknown, "status-unknown"),
    (Code::InvalidArgument, "status-invalid-argument"),
    (Code::DeadlineExceeded, "status-deadline-exceeded"),
    (Code::NotFound, "status-not-found"),
    (Code::AlreadyExists, "status-already-exists"),
    (Code::PermissionDenied, "status-permission-denied"),
    (Code::ResourceExhausted, "status-resource-exhausted"),
    (Code::FailedPrecondition, "status-failed-precondition"),
    (Code::Aborted, "status-aborted"),
    (Code::OutOfRange, "status-out-of-range"),
    (Code::Unimplemented, "status-unimplemented"),
    (Code::Internal, "status-internal"),
    (Code::Unavailable, "status-unavailable"),
    (Code::DataLoss, "status-data-loss"),
    (Code::Unauthenticated, "status-unauthenticated"),
];

pub(super) fn all() -> Vec<Check> {
    let mut all = vec![
        Check::new(
            "failure-retryable",
            "a retryable failure is not recorded: attempts run until one succeeds, and that is recorded",
            |bench| Box::pin(retryable(bench)),
        ),
        Check::new(
            "failure-final",
            "a final failure is recorded: duplicates get it byte for byte, and run nothing",
            |bench| Box::pin(for_good(bench)),
        ),
    ];
    all.extend(CODES.into_iter().map(|(code, name)| {
        let rule = if code.is_retryable() { RETRYABLE } else { FINAL };
        Check::new(name, rule, move |bench| Box::pin(arrives(bench, code)))
    }));
    all
}

async fn retryable(bench: &Bench) -> Met {
    let work = bench.work();
    let delivery = work.fail(Code::Unavailable.name(), 2);
    for _ in 0..2 {
        bench.deliver(&delivery).await?.fails(Code::Unavailable, Some(ASKED_FOR))?;
    }
    let done = bench.deliver(&delivery).await?;
    done.is_run(3).map_err(|unmet| unmet.of("the third attempt"))?;
    bench.deliver(&delivery).await?.repeats(&done)?;
    bench.ran(&work.tag, 3).await
}

async fn for_good(bench: &Bench) -> Met {
    let work = bench.work();
    let delivery = work.fail(Code::FailedPrecondition.name(), 1);
    let first = bench.deliver(&delivery).await?;
    first.fails(Code::FailedPrecondition, Some(ASKED_FOR))?;
    for _ in 0..2 {
        bench.deliver(&delivery).await?.repeats(&first)?;
    }
    bench.ran(&work.tag, 1).await
}

async fn arrives(bench: &Bench, code: Code) -> Met {
    let work = bench.work();
    let delivery = work.fail(code.name(), 1);
    let first = bench.deliver(&delivery).await?;
    first.fails(code, Some(ASKED_FOR))?;
    let again = bench.deliver(&delivery).await?;
    if code.is_retryable() { again.is_run(2) } else { again.repeats(&first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_of_the_table_has_a_check_of_its_name() {
        let codes: Vec<Code> = CODES.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, Code::all().filter(|code| *code != Code::Ok).collect::<Vec<_>>());
        for (code, name) in CODES {
            assert_eq!(name, format!("status-{}", code.name().to_lowercase().replace('_', "-")));
        }
    }
}
