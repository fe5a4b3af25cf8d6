//! The three HTTP wires: `POST /activities/{name}`, distinguished by content type.
//!
//! It reads bodies within their limits and encodes responses; the receiver decides the result.

use std::time::Duration;

use abide_dispatch::metadata::{Metadata, MetadataError};
use abide_dispatch::wire::{self, FailureContext, envelope, json, protobuf};
use abide_dispatch::{RpcStatus, status};
use abide_store::rows::PrivateRows;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};

use crate::receiver::{ActivityRequest, ActivityResponse, Receiver};
use crate::{grpc, refusals};

impl<S: PrivateRows + 'static> Receiver<S> {
    /// All wires: `POST /activities/{name}` for JSON, protobuf and envelopes, and the gRPC service.
    pub fn router(&self) -> Router {
        let http =
            Router::new().route("/activities/{name}", post(on_activity_request)).with_state(self.clone());
        http.route_service(grpc::PATH, grpc::service(self.clone()))
    }
}

/// The wire of a request, and so of its response.
#[derive(Clone, Debug)]
enum HttpWire {
    Rest,
    Protobuf,
    /// With the control block that the response repeats; filled in when the request is parsed.
    Envelope(envelope::EnvelopeControl),
}

async fn on_activity_request<S: PrivateRows + 'static>(
    State(receiver): State<Receiver<S>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut wire = match wire::media_type(content_type).as_str() {
        wire::JSON => HttpWire::Rest,
        wire::PROTOBUF => HttpWire::Protobuf,
        wire::ENVELOPE => HttpWire::Envelope(envelope::EnvelopeControl::default()),
        other => {
            let refusal = refusals::content_type_unsupported(other);
            return failure_response(
                &HttpWire::Rest,
                &refusal,
                415,
                FailureContext { execution_id: "", activity: &name },
            );
        }
    };
    let options = &receiver.0.options;
    let body = match read_body(
        body,
        options.body_bytes_max.min(wire::REQUEST_BYTES_MAX),
        options.body_timeout,
    )
    .await
    {
        Ok(body) => body,
        Err((refusal, http)) => {
            return failure_response(
                &wire,
                &refusal,
                http,
                FailureContext { execution_id: "", activity: &name },
            );
        }
    };
    let (is_probe, request) = match parse_request(&mut wire, &name, &headers, body) {
        Ok(request) => request,
        Err(refusal) => {
            let about = FailureContext { execution_id: "", activity: &name };
            return failure_response(&wire, &refusal, refusals::http_status(&refusal), about);
        }
    };
    let activity = request.activity.clone();
    let response = if is_probe { receiver.probe(request).await } else { receiver.invoke(request).await };
    let ActivityResponse { execution_id, result } = response;
    match result {
        Ok(output) => success_response(&wire, output),
        Err(status) => {
            let about = FailureContext { execution_id: &execution_id, activity: &activity };
            failure_response(&wire, &status, refusals::http_status(&status), about)
        }
    }
}

/// Parses a request, and returns whether it is a probe.
///
/// Malformed metadata is reported before a malformed body: the body of an unidentified call is not examined.
fn parse_request(
    wire: &mut HttpWire,
    name: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<(bool, ActivityRequest), RpcStatus> {
    let malformed = |malformed: MetadataError| refusals::metadata_malformed(&malformed);
    let unreadable = |unreadable: wire::WireDecodeError| refusals::body_malformed(&unreadable);
    let is_probe = is_probe(headers).map_err(malformed)?;
    let request = match wire {
        HttpWire::Rest => ActivityRequest {
            activity: name.to_owned(),
            metadata: Ok(metadata_from_headers(headers).map_err(malformed)?),
            input: Some(body),
        },
        HttpWire::Protobuf => {
            let metadata = Ok(metadata_from_headers(headers).map_err(malformed)?);
            let message = protobuf::read_request(body).map_err(unreadable)?;
            let input = Some(protobuf::payload_json(message.input).map_err(unreadable)?);
            // The message names the activity; the path is only a convention.
            let activity = if message.activity.is_empty() { name.to_owned() } else { message.activity };
            ActivityRequest { activity, metadata, input }
        }
        HttpWire::Envelope(control) => {
            let from_headers = metadata_from_headers(headers).map_err(malformed)?;
            let received = envelope::read_request(&body).map_err(unreadable)?;
            let metadata = received.metadata.map_err(malformed)?;
            // Headers may only repeat the context. If they differ, one of the two names the wrong call.
            if from_headers.is_some() && from_headers != metadata {
                return Err(malformed(MetadataError::Conflicting));
            }
            *control = received.control;
            ActivityRequest { activity: name.to_owned(), metadata: Ok(metadata), input: Some(received.input) }
        }
    };
    Ok((is_probe, request))
}

fn metadata_from_headers(headers: &HeaderMap) -> Result<Option<Metadata>, MetadataError> {
    Metadata::decode(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// The header must be absent or present once with the value `1`: an ambiguous request must not run.
fn is_probe(headers: &HeaderMap) -> Result<bool, MetadataError> {
    let mut values = headers.get_all(wire::PROBE_HEADER).iter();
    match (values.next().map(HeaderValue::as_bytes), values.next()) {
        (None, _) => Ok(false),
        (Some(b"1"), None) => Ok(true),
        _ => {
            let reason = format!("{} must be present once, with the value 1", wire::PROBE_HEADER);
            Err(MetadataError::Unreadable { reason })
        }
    }
}

/// Reads the whole body within the limits of size and time.
async fn read_body(body: Body, bytes_max: usize, timeout: Duration) -> Result<Bytes, (RpcStatus, u16)> {
    let collecting = Limited::new(body, bytes_max).collect();
    match tokio::time::timeout(timeout, collecting).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let too_large =
                wire::WireDecodeError::TooLarge { bytes: bytes_max.saturating_add(1), max: bytes_max };
            let refusal = refusals::body_malformed(&too_large);
            let http = refusals::http_status(&refusal);
            Err((refusal, http))
        }
        Ok(Err(_)) => Err((refusals::body_truncated(), 400)),
        Err(_) => Err((refusals::body_too_slow(), 408)),
    }
}

fn success_response(wire: &HttpWire, output: Bytes) -> Response<Body> {
    let (content_type, body) = match wire {
        HttpWire::Rest => (wire::JSON, output),
        HttpWire::Protobuf => (wire::PROTOBUF, protobuf::write(&protobuf::invoke_response(output)).into()),
        HttpWire::Envelope(control) => match envelope::write_response(control, &output) {
            Ok(body) => (wire::ENVELOPE, body.into()),
            Err(_) => {
                // Outputs are encoded by this program and stored byte for byte, so the record is damaged.
                let error =
                    crate::idempotency::RecordError::Damaged("a recorded output is not JSON".to_owned());
                let status = refusals::record_error(&error);
                return failure_response(
                    wire,
                    &status,
                    status.code.http_status(),
                    FailureContext { execution_id: "", activity: "" },
                );
            }
        },
    };
    response(200, content_type, body)
}

fn failure_response(
    wire: &HttpWire,
    status: &RpcStatus,
    http: u16,
    about: FailureContext<'_>,
) -> Response<Body> {
    let (content_type, body) = match wire {
        HttpWire::Rest | HttpWire::Envelope(_) => (wire::JSON, json::write_failure(status, http, about)),
        HttpWire::Protobuf => (wire::PROTOBUF, protobuf::write_failure(status, about)),
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
