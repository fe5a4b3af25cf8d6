//! Logs every request as it arrives on the wire, before the receiver reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_dispatch::wire::PROBE_HEADER;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;

use crate::counting_handler::{ActivityLog, ReceivedRequest};

const CANONICAL: &str = "x-tpf-";

pub(crate) fn with_request_log(router: Router, log: &Arc<ActivityLog>) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::clone(log), log_request))
}

async fn log_request(State(log): State<Arc<ActivityLog>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let canonical = headers.iter().filter(|(name, _)| name.as_str().starts_with(CANONICAL));
    let keys: BTreeMap<String, Vec<u8>> =
        canonical.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    let probe = headers.contains_key(PROBE_HEADER) || request.uri().path().ends_with("/Probe");
    let exchange = log.begin_exchange(ReceivedRequest { probe, keys });
    let response = next.run(request).await;
    drop(exchange);
    response
}
