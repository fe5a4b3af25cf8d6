//! Reads a response as far as it is wanted, and says what it means if it breaks off.
//!
//! Whatever a server sends without end is read up to a limit and no further.

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};

use http_body_util::BodyExt;

use super::connect::chain;
use crate::guard::Target;
use crate::transport::Failure;

/// Bytes of a response's head.
pub(crate) const RESPONSE_HEAD_BYTES_MAX: u32 = 64 * 1024;

/// A response.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// None if there is more than was asked for.
    pub(crate) body: Option<Bytes>,
    pub(crate) trailers: HeaderMap,
}

/// Reads a response with a body of at most so many bytes.
pub(crate) async fn read(response: Response<Incoming>, bytes_max: usize) -> Result<Exchanged, hyper::Error> {
    let (head, mut incoming) = response.into_parts();
    let (status, headers) = (head.status, head.headers);
    let mut trailers = HeaderMap::new();
    let larger = |headers, trailers| Ok(Exchanged { status, headers, body: None, trailers });
    if incoming.size_hint().lower() > bytes_max as u64 {
        return larger(headers, trailers);
    }
    let mut body = Pieces::default();
    while let Some(frame) = incoming.frame().await {
        match frame?.into_data() {
            Ok(data) if body.len().saturating_add(data.len()) > bytes_max => {
                return larger(headers, trailers);
            }
            Ok(data) => body.push(data),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok(Exchanged { status, headers, body: Some(body.whole()), trailers })
}

/// Something was, or may have been, sent. An answer that cannot be read, or whose head is too large, is no answer.
pub(crate) fn lost(target: &Target, error: &hyper::Error) -> Failure {
    let message = format!("the exchange with {target} broke off: {}", chain(error));
    Failure::retryable("ConnectionLost", message).with_outcome_unknown()
}

/// The answer is there and cannot be taken; a duplicate would be answered with the same.
pub(crate) fn too_large(target: &Target, bytes_max: usize) -> Failure {
    Failure::for_good(
        "ResponseTooLarge",
        format!("the response of {target} is larger than {bytes_max} bytes"),
    )
}

/// A body as it comes in. Most come in one piece, which is not copied.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    rest: Vec<u8>,
}

impl Pieces {
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

    fn whole(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { [&self.first[..], &self.rest].concat().into() }
    }
}
