//! A line for every delivery, written before anything else is done with it: execution id, idempotency key, attempt, and whether it is a probe.
//!
//! What the operating system has taken survives a killed process, so a sender's records can be held against what really came.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use abide_dispatch::metadata::{EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT};
use abide_dispatch::wire::PROBE;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};

/// The same routes, whose requests are written down.
pub(crate) fn logged(router: Router, log: &Path) -> io::Result<Router> {
    let log = Arc::new(OpenOptions::new().create(true).append(true).open(log)?);
    Ok(router.layer(from_fn(move |request: Request, next: Next| {
        let written = write(&log, &request);
        async move {
            if let Err(error) = written {
                tracing::warn!(%error, "a delivery was not written down");
            }
            next.run(request).await
        }
    })))
}

/// All wires send the metadata as headers; an envelope only repeats them.
fn write(mut log: &File, request: &Request) -> io::Result<()> {
    let header = |name| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    let is_probe = !header(PROBE).is_empty() || request.uri().path().ends_with("/Probe");
    let kind = if is_probe { "probe" } else { "delivery" };
    let (execution, key, attempt) = (header(EXECUTION_ID), header(IDEMPOTENCY_KEY), header(RETRY_ATTEMPT));
    // One write, so that no line is torn.
    log.write_all(format!("{execution}\t{key}\t{attempt}\t{kind}\n").as_bytes())
}
