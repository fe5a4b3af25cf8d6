//! Logs one line per request before processing it: execution id, idempotency key, attempt, and whether it is a probe.
//!
//! A line that was written survives a killed process, so a sender's records can be compared with the attempts that
//! really arrived. The log knows nothing of results.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use abide_dispatch::metadata::{EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT};
use abide_dispatch::wire::PROBE_HEADER;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};

/// The same routes, with every request logged.
pub(crate) fn with_attempt_log(router: Router, log: &Path) -> io::Result<Router> {
    let log = Arc::new(OpenOptions::new().create(true).append(true).open(log)?);
    Ok(router.layer(from_fn(move |request: Request, next: Next| {
        let written = write_line(&log, &request);
        async move {
            if let Err(error) = written {
                tracing::warn!(%error, "cannot write to the attempt log");
            }
            next.run(request).await
        }
    })))
}

/// All wires send the metadata as headers; an envelope only repeats them.
fn write_line(mut log: &File, request: &Request) -> io::Result<()> {
    let header = |name| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    let is_probe = !header(PROBE_HEADER).is_empty() || request.uri().path().ends_with("/Probe");
    let kind = if is_probe { "probe" } else { "delivery" };
    let execution = header(EXECUTION_ID);
    let key = header(IDEMPOTENCY_KEY);
    let attempt = header(RETRY_ATTEMPT);
    // One write per line, so that no line is torn.
    log.write_all(format!("{execution}\t{key}\t{attempt}\t{kind}\n").as_bytes())
}
