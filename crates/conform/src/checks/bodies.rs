//! Bodies: how large and how deep they may be, and what becomes of those that are not what they should be.

use abide_dispatch::Code;
use abide_dispatch::status::reason;
use abide_dispatch::wire::{JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Check;
use crate::Wire;
use crate::answer::Said;
use crate::bench::{Bench, Work};
use crate::delivery::{Content, Delivery, Oddity};
use crate::unmet::{Met, Unmet};

/// What any receiver takes and gives back.
const BIG_BYTES: usize = 256 * 1024;
/// More than any receiver takes, whatever is around it.
const TOO_BIG_BYTES: usize = PAYLOAD_BYTES_MAX + 128 * 1024;
/// What nobody serves.
const NOBODYS: &str = "abide-conform.nobody-serves-this";

pub(super) fn all(transport: Wire) -> Vec<Check> {
    let mut all = vec![
        Check::new("big-payload", "256 KiB go both ways unharmed, to a duplicate as well", |bench| {
            Box::pin(big(bench))
        }),
        Check::new("largest-input", "an input of 1 MiB is taken", |bench| Box::pin(largest(bench))),
        Check::new("too-big", "a larger body is refused for good, OUT_OF_RANGE, and runs nothing", |bench| {
            Box::pin(too_big(bench))
        }),
        Check::new(
            "nesting",
            "JSON is taken 64 deep; deeper it is INVALID_ARGUMENT, and nothing runs",
            |bench| Box::pin(nesting(bench)),
        ),
        Check::new("body-malformed", "a body that cannot be read is INVALID_ARGUMENT", |bench| {
            Box::pin(malformed(bench))
        }),
        Check::new(
            "input-unknown",
            "an input that the activity does not know is INVALID_ARGUMENT",
            |bench| Box::pin(unknown_input(bench)),
        ),
        Check::new("activity-unknown", "an activity that is not served is NOT_FOUND", |bench| {
            Box::pin(unknown_activity(bench))
        }),
    ];
    if transport != Wire::Grpc {
        all.push(Check::new(
            "content-type",
            "a content type that no wire has is 415, and nothing runs",
            |bench| Box::pin(content_type(bench)),
        ));
    }
    all
}

async fn big(bench: &Bench) -> Met {
    let work = bench.work();
    let value = Value::from("x".repeat(BIG_BYTES));
    let first = bench.deliver(&work.echo(&value)).await?;
    first.is(&json!({"value": value}))?;
    bench.deliver(&work.echo(&value)).await?.repeats(&first)
}

/// A run whose input is so many bytes long, by blanks that mean nothing.
fn padded(work: &Work, bytes: usize) -> Delivery {
    let text = json!({"op": "run", "tag": work.tag}).to_string();
    let blanks = " ".repeat(bytes.saturating_sub(text.len()));
    let text = format!("{}{blanks}}}", text.strip_suffix('}').unwrap_or(&text));
    work.run().with_content(Content::Text(text.into()))
}

async fn largest(bench: &Bench) -> Met {
    bench.deliver(&padded(&bench.work(), PAYLOAD_BYTES_MAX)).await?.is_run(1)
}

async fn too_big(bench: &Bench) -> Met {
    let work = bench.work();
    let answer = bench.deliver(&padded(&work, TOO_BIG_BYTES)).await?;
    // Over gRPC it is the library that refuses, in its own words.
    let reason = Some(reason::BODY_TOO_LARGE).filter(|_| bench.transport != Wire::Grpc);
    answer.fails_as(Code::OutOfRange, reason, 413)?;
    bench.ran(&work.tag, 0).await
}

async fn nesting(bench: &Bench) -> Met {
    // The input itself is the outermost.
    let nested = |depth: usize| {
        let text = format!("{}{}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        Content::Text(format!(r#"{{"op":"echo","value":{text}}}"#).into())
    };
    let fine = bench.work().run().with_content(nested(JSON_DEPTH_MAX));
    let fine = bench.deliver(&fine).await?;
    if !matches!(fine.said, Said::Output(_)) {
        return Err(Unmet::broken(format!("{JSON_DEPTH_MAX} deep: the same back"), fine));
    }
    let deep = bench.deliver(&bench.work().run().with_content(nested(JSON_DEPTH_MAX + 1))).await?;
    let refused = deep.fails(Code::InvalidArgument, Some(reason::BODY_MALFORMED));
    refused.map_err(|unmet| unmet.of(format!("{} deep", JSON_DEPTH_MAX + 1)))
}

async fn malformed(bench: &Bench) -> Met {
    let text = |text: &'static str| Content::Text(Bytes::from_static(text.as_bytes()));
    let mut wrong = vec![
        ("no JSON", text("{\"op\":")),
        ("JSON and more", text("{} {}")),
        ("not UTF-8", Content::Text(Bytes::from_static(b"\"\xff\""))),
    ];
    if bench.transport != Wire::Grpc {
        wrong.push(("something else", Content::Body(Bytes::from_static(b"\xff\xff not a body"))));
    }
    for (what, content) in wrong {
        let answer = bench.deliver(&bench.work().run().with_content(content)).await?;
        let refused = answer.fails(Code::InvalidArgument, Some(reason::BODY_MALFORMED));
        refused.map_err(|unmet| unmet.of(what))?;
    }
    Ok(())
}

async fn unknown_input(bench: &Bench) -> Met {
    for input in [json!({"op": "dance"}), json!({"op": "run"}), json!({}), json!(null), json!("run")] {
        let what = input.to_string();
        let answer = bench.deliver(&bench.work().run().with_content(Content::Input(input))).await?;
        answer.fails(Code::InvalidArgument, None).map_err(|unmet| unmet.of(what))?;
    }
    Ok(())
}

async fn unknown_activity(bench: &Bench) -> Met {
    let answer = bench.deliver(&bench.work().run().with(Oddity::Activity(NOBODYS))).await?;
    // Whoever finds the way to activities may say so in words of his own.
    if answer.http == Some(404) && matches!(answer.said, Said::Unclear(_)) {
        return Ok(());
    }
    answer.fails(Code::NotFound, Some(reason::ACTIVITY_UNKNOWN))
}

async fn content_type(bench: &Bench) -> Met {
    for other in ["text/plain", "application/octet-stream"] {
        let work = bench.work();
        let answer = bench.deliver(&work.run().with(Oddity::ContentType(other))).await?;
        if answer.http != Some(415) {
            return Err(Unmet::broken(format!("{other}: 415"), answer));
        }
        bench.ran(&work.tag, 0).await.map_err(|unmet| unmet.of(other))?;
    }
    Ok(())
}
