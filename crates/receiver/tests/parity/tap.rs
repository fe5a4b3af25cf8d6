//! Notes every request as it comes off the wire, before the receiver has looked at it.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_dispatch::wire::PROBE;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;

use crate::work::{Arrival, Book};

const CANONICAL: &str = "x-tpf-";

pub(crate) fn tapped(router: Router, book: &Arc<Book>) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::clone(book), note))
}

async fn note(State(book): State<Arc<Book>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let canonical = headers.iter().filter(|(name, _)| name.as_str().starts_with(CANONICAL));
    let keys: BTreeMap<String, Vec<u8>> =
        canonical.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    let probe = headers.contains_key(PROBE) || request.uri().path().ends_with("/Probe");
    let exchange = book.exchange(Arrival { probe, keys });
    let response = next.run(request).await;
    drop(exchange);
    response
}
