//! Reads responses up to a size limit, and classifies exchanges that are interrupted.
//!
//! An endless response is read up to the limit and no further. Knows nothing about the meaning of a status or a body.

use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};

use http_body_util::BodyExt;

use super::connect::error_chain;
use crate::egress_guard::Target;
use crate::transport::CallFailure;

/// The largest head of a response, in bytes.
pub(crate) const RESPONSE_HEAD_BYTES_MAX: u32 = 64 * 1024;

/// How long the body of a failure is waited for when its status is known already.
const BEGINNING_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// A response, read up to a limit.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// None if the body is larger than the limit.
    pub(crate) body: Option<Bytes>,
    pub(crate) trailers: HeaderMap,
}

/// Reads a response with a body of at most `bytes_max` bytes.
pub(crate) async fn read_response(
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<HttpResponse, hyper::Error> {
    let (head, mut incoming) = response.into_parts();
    let status = head.status;
    let headers = head.headers;
    let mut trailers = HeaderMap::new();
    let larger = |headers, trailers| Ok(HttpResponse { status, headers, body: None, trailers });
    if incoming.size_hint().lower() > bytes_max as u64 {
        return larger(headers, trailers);
    }
    let mut body = BodyBuffer::default();
    while let Some(frame) = incoming.frame().await {
        match frame?.into_data() {
            Ok(data) if body.len().saturating_add(data.len()) > bytes_max => {
                return larger(headers, trailers);
            }
            Ok(data) => body.push(data),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok(HttpResponse { status, headers, body: Some(body.into_bytes()), trailers })
}

/// The beginning of a body: what arrives of it in time and without an interruption.
pub(super) async fn read_beginning(incoming: &mut Incoming, bytes_max: usize) -> Vec<u8> {
    let mut beginning = Vec::new();
    let reading = async {
        while beginning.len() < bytes_max
            && let Some(Ok(frame)) = incoming.frame().await
        {
            // Trailers say nothing about a failure.
            if let Some(data) = frame.data_ref() {
                beginning.extend_from_slice(data);
            }
        }
    };
    // What has arrived by then is used.
    let _ = tokio::time::timeout(BEGINNING_READ_TIMEOUT, reading).await;
    beginning.truncate(bytes_max);
    beginning
}

/// The request was, or may have been, sent. A response that cannot be parsed, or whose head is too large, counts as
/// none.
pub(crate) fn connection_lost(target: &Target, error: &hyper::Error) -> CallFailure {
    let message = format!("the exchange with {target} was interrupted: {}", error_chain(error));
    CallFailure::retryable("ConnectionLost", message).with_outcome_unknown()
}

/// The response arrived but is too large; a repeated call would get the same response.
pub(crate) fn response_too_large(target: &Target, bytes_max: usize) -> CallFailure {
    CallFailure::permanent(
        "ResponseTooLarge",
        format!("the response of {target} is larger than {bytes_max} bytes"),
    )
}

/// Collects a body. Most bodies arrive in one piece, which is not copied.
#[derive(Default)]
struct BodyBuffer {
    first: Bytes,
    rest: Vec<u8>,
}

impl BodyBuffer {
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
        } else {
            self.rest.extend_from_slice(&data);
        }
    }

    fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { [&self.first[..], &self.rest].concat().into() }
    }
}
