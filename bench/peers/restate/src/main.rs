//! The service that Restate calls when it is compared with Abide: the same workloads, written with its Rust SDK.
//!
//! `abide-bench-restate ADDRESS` serves them at that address until it is killed. Like `core.echo`, steps return their
//! input. Nothing is measured here; the `compare` program of the benchmarks measures both systems.
//!
//! | workload | handler |
//! |---|---|
//! | W1 | `Tasks/three`: three sequential `ctx.run` in a plain service, because a keyed workflow costs Restate more |
//! | W2 | `Log/{key}/append`: one entry of the object's state per event, and a counter |
//! | W3 | `Waiting/{key}/run`: waits for a promise; `Waiting/{key}/raise` resolves it |
//! | W4 | `Tasks/fan`: the requested number of concurrent `ctx.run` |

use std::env;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};

/// Input and output of a step.
#[derive(Clone, Serialize, Deserialize)]
struct Work {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Box<Work>>,
}

impl Work {
    fn after(&self, before: &Self) -> Self {
        Self { id: self.id.clone(), before: Some(Box::new(before.clone())) }
    }
}

/// The number of concurrent steps, and the input of each.
#[derive(Serialize, Deserialize)]
struct Fan {
    id: String,
    branches: usize,
}

struct Tasks;

#[restate_sdk::service]
impl Tasks {
    #[handler]
    async fn three(&self, ctx: Context<'_>, input: Json<Work>) -> Result<Json<Work>, HandlerError> {
        let input = input.into_inner();
        let a = echo(&ctx, "A", input.clone()).await?;
        echo(&ctx, "B", input.after(&a)).await?;
        Ok(Json(echo(&ctx, "C", input.after(&a)).await?))
    }

    #[handler]
    async fn fan(&self, ctx: Context<'_>, input: Json<Fan>) -> Result<Json<Vec<Work>>, HandlerError> {
        let Fan { id, branches } = input.into_inner();
        let work = Work { id, before: None };
        let steps = (0..branches).map(|_| echo(&ctx, "Do", work.clone())).collect();
        Ok(Json(all(steps).await?))
    }
}

struct Log;

#[restate_sdk::object]
impl Log {
    #[handler]
    async fn append(&self, ctx: ObjectContext<'_>, event: Json<String>) -> Result<Json<u64>, HandlerError> {
        let position = ctx.get::<u64>("next").await?.unwrap_or(0);
        ctx.set(&format!("event-{position}"), event.into_inner());
        ctx.set("next", position + 1);
        Ok(Json(position))
    }
}

struct Waiting;

#[restate_sdk::workflow]
impl Waiting {
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>, _input: Json<Work>) -> Result<Json<Work>, HandlerError> {
        Ok(ctx.promise::<Json<Work>>("go").await?)
    }

    #[handler]
    async fn raise(&self, ctx: SharedWorkflowContext<'_>, payload: Json<Work>) -> Result<(), HandlerError> {
        ctx.resolve_promise::<Json<Work>>("go", payload);
        Ok(())
    }
}

async fn echo(ctx: &Context<'_>, name: &str, work: Work) -> Result<Work, TerminalError> {
    let answer = ctx.run(|| async { Ok(Json(work)) }).name(name).await?;
    Ok(answer.into_inner())
}

/// Waits for all of these. The SDK has no combinator for `ctx.run`, and its steps share one reader that keeps one waker.
/// All of them are therefore polled with the handler's own waker, whichever of them is ready.
async fn all<T, E, F: Future<Output = Result<T, E>>>(steps: Vec<F>) -> Result<Vec<T>, E> {
    let mut steps: Vec<Pin<Box<F>>> = steps.into_iter().map(Box::pin).collect();
    let mut answers = Vec::with_capacity(steps.len());
    poll_fn(|cx| {
        let mut index = 0;
        while let Some(step) = steps.get_mut(index) {
            match step.as_mut().poll(cx) {
                Poll::Ready(Ok(answer)) => {
                    answers.push(answer);
                    drop(steps.remove(index));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => index += 1,
            }
        }
        if steps.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await?;
    Ok(answers)
}

fn main() -> ExitCode {
    let Some(address) = env::args().nth(1).and_then(|address| address.parse::<SocketAddr>().ok()) else {
        eprintln!("usage: abide-bench-restate ADDRESS");
        return ExitCode::FAILURE;
    };
    // A waiting run releases its slot on the server immediately. With the default of one minute, the first thousand waiting
    // runs of each partition keep all slots, and raising events for the rest has to wait. Ten thousand runs then take two
    // minutes instead of seconds.
    let at_once = ServiceOptions::new().inactivity_timeout(Duration::ZERO);
    let waiting = Waiting.into_service_definition().options(at_once);
    let endpoint = Endpoint::builder().bind(Tasks).bind(Log).bind(waiting).build();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(HttpServer::new(endpoint).listen_and_serve(address)),
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
