//! Lets a large response out only while all large responses together are within the response budget, so that thousands
//! of clients that read slowly, or not at all, cannot exhaust the memory of the server.
//!
//! A response without room is dropped. Its request then waits for room with nothing in its hands, and is handled again:
//! that is right only for requests that change nothing. Knows no route, and no form of errors.

use std::future::Future;

use abide_store::Store;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt;

use crate::api_request::ApiRequest;
use crate::app::App;
use crate::byte_budget::{ByteReservation, FREE_BYTES};
use crate::error::ApiError;

/// The room of one response.
#[derive(Debug, Default)]
pub(crate) struct ResponseShare {
    /// The room that the request has waited for.
    reservation: Option<ByteReservation>,
}

/// The bytes of a response, and its room, which is free again when the operating system has taken all of them.
struct ReservedBytes {
    bytes: Bytes,
    _reservation: ByteReservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// False for the small responses that need no share, which are nearly all, and for health checks and metrics.
pub(crate) fn needs_share(request: &ApiRequest, response: &Response) -> bool {
    // A stream has no known size; it bounds itself.
    let size = response.body().size_hint().exact();
    size.is_some_and(|bytes| bytes > FREE_BYTES as u64) && !request.is_health_check()
}

impl ResponseShare {
    /// Returns the response if there is room for it. Otherwise drops it, waits for room, and returns none: the request
    /// must be handled again. Fails if there is no room in time, or if the request may have changed something, which
    /// `is_safe` denies.
    pub(crate) async fn admit<S: Store>(
        &mut self,
        app: &App<S>,
        is_safe: bool,
        response: Response,
    ) -> Result<Option<Response>, ApiError> {
        let size = response.body().size_hint().exact().unwrap_or_default();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let had_waited = self.reservation.is_some();
        let mut reservation = self.reservation.take().unwrap_or_else(|| app.response_budget().reserve());
        if reservation.try_grow_to(size) {
            return attach(response, reservation).await.map(Some);
        }
        let took_effect = response.status().is_success() && !is_safe;
        drop(response);
        let refusal = if took_effect {
            ApiError::outcome_unknown("too many large responses are under way for this one")
        } else {
            ApiError::rate_limited("too many large responses are under way; try again later")
        };
        // A response that keeps growing is not worth another wait. A request that is not safe is never handled again:
        // it may change something then, and its body has been read already.
        let has_come = is_safe && !had_waited && in_time(app, reservation.grow_to(size)).await;
        if !has_come {
            reservation.count_refusal();
            return Err(refusal);
        }
        self.reservation = Some(reservation);
        Ok(None)
    }
}

/// True if the room came within the time that a request may wait for a reply.
async fn in_time<S: Store>(app: &App<S>, room: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(app.limits().reply_timeout, room).await.is_ok()
}

/// The reservation goes with the bytes, not with the body: the body is gone when the connection has queued the bytes,
/// which may be long before the client takes them.
async fn attach(response: Response, reservation: ByteReservation) -> Result<Response, ApiError> {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|error| ApiError::internal(&error))?.to_bytes();
    let bytes = Bytes::from_owner(ReservedBytes { bytes, _reservation: reservation });
    Ok(Response::from_parts(parts, Body::from(bytes)))
}
