//! The three wires over HTTP: `POST /activities/{name}`, told apart by content type.
//!
//! Reads bodies within their limits and spells answers; what is answered is for the receiver to say.

use std::time::Duration;

use abide_dispatch::metadata::{MalformedMetadata, Metadata};
use abide_dispatch::wire::{self, About, envelope, json, protobuf};
use abide_dispatch::{Status, status};
use abide_store::rows::PrivateRows;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};

use crate::receiver::{Receiver, Reply, Request};
use crate::{grpc, refusals};

impl<S: PrivateRows + 'static> Receiver<S> {
    /// All wires: `POST /activities/{name}` for JSON, protobuf and envelopes, and the gRPC service.
    pub fn router(&self) -> Router {
        let http = Router::new().route("/activities/{name}", post(take)).with_state(self.clone());
        http.route_service(grpc::PATH, grpc::service(self.clone()))
    }
}

/// How a request is spelled, and so its answer.
#[derive(Clone, Debug)]
enum Wire {
    Rest,
    Protobuf,
    /// With what an answer repeats, once that is known.
    Envelope(envelope::Control),
}

async fn take<S: PrivateRows + 'static>(
    State(receiver): State<Receiver<S>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut wire = match wire::media_type(content_type).as_str() {
        wire::JSON => Wire::Rest,
        wire::PROTOBUF => Wire::Protobuf,
        wire::ENVELOPE => Wire::Envelope(envelope::Control::default()),
        other => {
            let refused = refusals::content_type_unsupported(other);
            return failure(&Wire::Rest, &refused, 415, About { execution_id: "", activity: &name });
        }
    };
    let options = &receiver.0.options;
    let body = match read(body, options.body_bytes_max.min(wire::BODY_BYTES_MAX), options.body_timeout).await
    {
        Ok(body) => body,
        Err((refused, http)) => {
            return failure(&wire, &refused, http, About { execution_id: "", activity: &name });
        }
    };
    let (is_probe, request) = match request(&mut wire, &name, &headers, body) {
        Ok(request) => request,
        Err(refused) => {
            let about = About { execution_id: "", activity: &name };
            return failure(&wire, &refused, refusals::http(&refused), about);
        }
    };
    let activity = request.activity.clone();
    let reply = if is_probe { receiver.probe(request).await } else { receiver.invoke(request).await };
    let Reply { execution_id, answer } = reply;
    match answer {
        Ok(output) => success(&wire, output),
        Err(status) => {
            let about = About { execution_id: &execution_id, activity: &activity };
            failure(&wire, &status, refusals::http(&status), about)
        }
    }
}

/// The call of a body, and whether it is only a probe.
///
/// Whatever is wrong with the metadata is told first: a body of nobody's is not looked into.
fn request(wire: &mut Wire, name: &str, headers: &HeaderMap, body: Bytes) -> Result<(bool, Request), Status> {
    let malformed = |malformed: MalformedMetadata| refusals::metadata_malformed(&malformed);
    let unreadable = |unreadable: wire::Unreadable| refusals::body_malformed(&unreadable);
    let is_probe = is_probe(headers).map_err(malformed)?;
    let request = match wire {
        Wire::Rest => Request {
            activity: name.to_owned(),
            metadata: Ok(of_headers(headers).map_err(malformed)?),
            input: Some(body),
        },
        Wire::Protobuf => {
            let metadata = Ok(of_headers(headers).map_err(malformed)?);
            let message = protobuf::read_request(body).map_err(unreadable)?;
            let input = Some(protobuf::json_of(message.input).map_err(unreadable)?);
            // The message names the activity; its place is only a convention.
            let activity = if message.activity.is_empty() { name.to_owned() } else { message.activity };
            Request { activity, metadata, input }
        }
        Wire::Envelope(control) => {
            let told = of_headers(headers).map_err(malformed)?;
            let received = envelope::read_request(&body).map_err(unreadable)?;
            let metadata = received.metadata.map_err(malformed)?;
            // Headers only repeat the context. If they do not, one of the two is the wrong work.
            if told.is_some() && told != metadata {
                return Err(malformed(MalformedMetadata::Disagreeing));
            }
            *control = received.control;
            Request { activity: name.to_owned(), metadata: Ok(metadata), input: Some(received.input) }
        }
    };
    Ok((is_probe, request))
}

fn of_headers(headers: &HeaderMap) -> Result<Option<Metadata>, MalformedMetadata> {
    Metadata::decode(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// One `1`, or nothing at all: what is unclear must not run.
fn is_probe(headers: &HeaderMap) -> Result<bool, MalformedMetadata> {
    let mut values = headers.get_all(wire::PROBE).iter();
    match (values.next().map(HeaderValue::as_bytes), values.next()) {
        (None, _) => Ok(false),
        (Some(b"1"), None) => Ok(true),
        _ => {
            let reason = format!("{} must be 1, once", wire::PROBE);
            Err(MalformedMetadata::Unreadable { reason })
        }
    }
}

/// The whole body, within its limits.
async fn read(body: Body, bytes_max: usize, time_max: Duration) -> Result<Bytes, (Status, u16)> {
    let collecting = Limited::new(body, bytes_max).collect();
    match tokio::time::timeout(time_max, collecting).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let too_large = wire::Unreadable::TooLarge { bytes: bytes_max.saturating_add(1), max: bytes_max };
            let refused = refusals::body_malformed(&too_large);
            let http = refusals::http(&refused);
            Err((refused, http))
        }
        Ok(Err(_)) => Err((refusals::body_broken(), 400)),
        Err(_) => Err((refusals::body_too_slow(), 408)),
    }
}

fn success(wire: &Wire, output: Bytes) -> Response<Body> {
    let (content_type, body) = match wire {
        Wire::Rest => (wire::JSON, output),
        Wire::Protobuf => (wire::PROTOBUF, protobuf::write(&protobuf::answer(output)).into()),
        Wire::Envelope(control) => match envelope::write_response(control, &output) {
            Ok(body) => (wire::ENVELOPE, body.into()),
            Err(_) => {
                // Outputs are written by this program and kept byte for byte, so this is damage.
                let trouble = crate::records::Trouble::Damaged("an output is not JSON".to_owned());
                let status = refusals::trouble(&trouble);
                return failure(wire, &status, status.code.http(), About { execution_id: "", activity: "" });
            }
        },
    };
    response(200, content_type, body)
}

fn failure(wire: &Wire, status: &Status, http: u16, about: About<'_>) -> Response<Body> {
    let (content_type, body) = match wire {
        Wire::Rest | Wire::Envelope(_) => (wire::JSON, json::write_failure(status, http, about)),
        Wire::Protobuf => (wire::PROTOBUF, protobuf::write_failure(status, about)),
    };
    let mut response = response(http, content_type, body.into());
    if let Some(wait_ms) = status.retry_after_ms.filter(|_| status::http::is_retryable(http)) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait_ms.div_ceil(1_000)));
    }
    response
}

fn response(http: u16, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
