//! The control: a receiver without deduplication. Every attempt is new work, so a repeated call takes effect twice.
//!
//! It is the real receiver behind a layer that gives every attempt a new key. Over the envelope, whose metadata is in
//! the body, it deduplicates as usual.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_dispatch::RpcStatus;
use abide_dispatch::metadata::{EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT};
use abide_receiver::conformance::{self, ConformanceHandler};
use abide_receiver::{
    HandlerInvocation, HandlerOutput, HandlerWrite, Receiver, ReceiverClock, ServeOptions, serve,
};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::{Next, from_fn};
use serde_json::json;
use tokio::net::TcpListener;

/// Serves until it is killed or gets SIGTERM; has the settings of `abide-receiver`.
pub(crate) fn run() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(receive())
}

async fn receive() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let port: u16 = variable("PORT")?.parse().map_err(|_| "PORT is not a port")?;
    let data = PathBuf::from(variable("ABIDE_RECEIVER_DATA")?);
    let log = variable("ABIDE_RECEIVER_LOG")?;
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let log =
        std::fs::OpenOptions::new().create(true).append(true).open(log).map_err(|error| failed(&error))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| failed(&error))?;
    let store = EmbeddedStore::open(&data, EmbeddedOptions::default()).map_err(|error| failed(&error))?;
    let mut builder = Receiver::builder(Arc::new(store), ReceiverClock::system());
    let effects = builder.handler_rows().map_err(|error| failed(&error))?;
    for wire in ["", ".grpc", ".protobuf"] {
        builder = builder
            .handler(&format!("{}{wire}", conformance::NAME), ConformanceHandler::new(effects.clone()))
            .handler(&format!("ledger.add{wire}"), add);
    }
    let receiver = builder.open().await.map_err(|error| failed(&error))?;
    let log = Arc::new(log);
    let serial = Arc::new(AtomicU64::new(0));
    let router = receiver.router().layer(from_fn(move |mut request: Request, next: Next| {
        let text =
            |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_probe =
            request.headers().contains_key("x-abide-probe") || request.uri().path().ends_with("/Probe");
        let kind = if is_probe { "probe" } else { "delivery" };
        let execution = text(EXECUTION_ID);
        let key = text(IDEMPOTENCY_KEY);
        let attempt = text(RETRY_ATTEMPT);
        let line = format!("{execution}\t{key}\t{attempt}\t{kind}\n");
        // A failed write is ignored: the rig finds the missing line.
        drop((&*log).write_all(line.as_bytes()));
        let other = format!("{key}#{}-{}", std::process::id(), serial.fetch_add(1, Ordering::Relaxed));
        // An envelope whose metadata differs from the headers would be refused.
        let is_envelope = text("content-type") == abide_dispatch::wire::ENVELOPE;
        if let (false, Ok(other)) = (is_envelope, HeaderValue::try_from(other)) {
            request.headers_mut().insert(IDEMPOTENCY_KEY, other);
        }
        next.run(request)
    }));
    let address = listener.local_addr().map_err(|error| failed(&error))?;
    println!("listening on http://{address}");
    let stop = async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
        match &mut terminate {
            Some(terminate) => drop(terminate.recv().await),
            None => std::future::pending().await,
        }
    };
    serve(listener, router, ServeOptions::default(), stop).await;
    Ok(())
}

/// Writes an entry like `abide-receiver`, with the key that was sent.
async fn add(invocation: HandlerInvocation) -> Result<HandlerOutput, RpcStatus> {
    let metadata = &invocation.metadata;
    let sent = metadata.idempotency_key.split('#').next().unwrap_or_default();
    let entry = json!({
        "activity": invocation.activity,
        "executionId": metadata.execution_id,
        "idempotencyKey": sent,
        "recordedUnder": metadata.idempotency_key,
        "attempt": metadata.retry_attempt,
        "input": invocation.input,
    });
    let row = format!("ledger/{}", metadata.idempotency_key);
    Ok(HandlerOutput::with_writes(json!({"added": true}), vec![HandlerWrite::create(row, entry.to_string())]))
}
