//! One HTTP request as every handler receives it: correlation id, parameters, and a body of bounded size, bounded
//! reading time and checked content type.
//!
//! Knows nothing about the meaning of a request. Every response goes through [`ApiRequest::finish`], which says that
//! the connection closes if the server has not read the whole body.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use abide_store::Store;
use abide_workflow::{InstanceId, Timestamp, json};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::Value;
use url::form_urlencoded;

use crate::app::App;
use crate::byte_budget::ByteReservation;
use crate::correlation::CorrelationId;
use crate::error::ApiError;
use crate::openapi::Field;
use crate::response;
use crate::rest;

/// Of a path with its query.
const URI_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
/// How long a body may take to arrive.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The error message for any other content type.
const NOT_JSON: &str = "the content type must be application/json, in UTF-8";

#[derive(Debug)]
pub(crate) struct ApiRequest {
    correlation: CorrelationId,
    parts: Parts,
    body: Body,
    /// Some of the body has not arrived, or not been read.
    body_unread: bool,
    /// The body's part of the body budget, held until the handler has made its response.
    body_reservation: ByteReservation,
}

impl<S: Store> FromRequest<App<S>> for ApiRequest {
    type Rejection = Infallible;

    /// Only takes the request apart: it reads no body and checks nothing, so that even a refused request has a
    /// correlation id. Both APIs call [`ApiRequest::check_admission`] next.
    async fn from_request(request: Request, app: &App<S>) -> Result<Self, Infallible> {
        let (parts, body) = request.into_parts();
        Ok(Self {
            correlation: CorrelationId::from_headers(&parts.headers),
            parts,
            body_unread: !body.is_end_stream(),
            body,
            body_reservation: app.reserve_body(),
        })
    }
}

impl ApiRequest {
    pub(crate) fn correlation(&self) -> &CorrelationId {
        &self.correlation
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    pub(crate) fn method(&self) -> &Method {
        &self.parts.method
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.parts.uri
    }

    /// True for health checks and metrics, which are served even when the server accepts nothing else.
    pub(crate) fn is_health_check(&self) -> bool {
        rest::HEALTH_PATHS.contains(&self.parts.uri.path())
    }

    /// True if the request may have a body. Durable Functions asks before it reads JSON: its clients send empty bodies
    /// of any content type, which [`Self::json_body`] would reject.
    pub(crate) fn has_body(&self) -> bool {
        !self.body.is_end_stream()
    }

    /// The handler's response, or the response for its error.
    pub(crate) fn respond(&self, result: Result<Response, ApiError>, now: Timestamp) -> Response {
        self.finish(result.unwrap_or_else(|error| response::error_response(&error, &self.correlation, now)))
    }

    /// The last step of every response. A client whose body was not read to its end must know that its connection ends
    /// here: otherwise it sends its next request on it, and cannot tell whether that request took effect.
    pub(crate) fn finish(&self, mut response: Response) -> Response {
        if self.body_unread {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    pub(crate) fn data_response<T: Serialize>(
        &self,
        status: StatusCode,
        now: Timestamp,
        data: &T,
    ) -> Response {
        response::success_response(status, &self.correlation, now, data)
    }

    /// A path parameter, percent-decoded. A name that the route does not have is a mistake of the handler.
    pub(crate) async fn path_param(&mut self, name: &str) -> Result<String, ApiError> {
        let params = RawPathParams::from_request_parts(&mut self.parts, &()).await;
        let params = params.map_err(|_| ApiError::invalid("", "the path is not UTF-8"))?;
        let found = params.iter().find(|(param, _)| *param == name);
        found
            .map(|(_, value)| value.to_owned())
            .ok_or_else(|| ApiError::internal(&format!("the path has no {{{name}}}")))
    }

    /// The instance id in the path.
    pub(crate) async fn instance_id(&mut self) -> Result<InstanceId, ApiError> {
        let id = self.path_param("id").await?;
        InstanceId::new(id).map_err(|error| ApiError::invalid("instanceId", error.to_string()))
    }

    /// The values of the named query parameters, in this order. An unknown parameter is an error, because it would
    /// otherwise be ignored silently.
    pub(crate) fn raw_query<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<Cow<'_, str>>; N], ApiError> {
        let mut values = [const { None }; N];
        let Some(query) = self.parts.uri.query() else { return Ok(values) };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let index = names.iter().position(|known| *known == name);
            match index.and_then(|index| values.get_mut(index)) {
                Some(empty @ None) => *empty = Some(value),
                Some(Some(_)) => return Err(ApiError::invalid(name, "duplicate parameter")),
                None => return Err(ApiError::invalid(name, "unknown parameter")),
            }
        }
        Ok(values)
    }

    /// The values of these query parameters, in this order, each checked as far as the kind of its documented field
    /// allows ([`Field::check`]): the caller must check a pattern itself.
    pub(crate) fn checked_query<const N: usize>(
        &self,
        fields: &[Field; N],
    ) -> Result<[Option<Cow<'_, str>>; N], ApiError> {
        let values = self.raw_query(fields.each_ref().map(|field| field.name))?;
        for (field, value) in fields.iter().zip(&values) {
            value.as_deref().map_or(Ok(()), |value| field.check(value))?;
        }
        Ok(values)
    }

    /// A path parameter, checked as far as the kind of its documented field allows ([`Field::check`]): the caller must
    /// check a pattern itself.
    pub(crate) async fn checked_path_param(&mut self, field: &Field) -> Result<String, ApiError> {
        let text = self.path_param(field.name).await?;
        field.check(&text)?;
        Ok(text)
    }

    /// The checks that apply to every request: framing, origin, rate limit, and the size of URI and headers. Both APIs
    /// make them before their handler, while the body is still unread. A request that is admitted counts against the
    /// rate limit.
    pub(crate) fn check_admission<S: Store>(&self, app: &App<S>) -> Result<(), ApiError> {
        self.check_framing()?;
        app.origin_policy().check(&self.parts)?;
        let uri = &self.parts.uri;
        if !self.is_health_check() && !app.try_admit_request() {
            app.load().count_over_rate();
            return Err(ApiError::rate_limited(
                "the rate limit server.requestsPerSecond is exceeded; try again later",
            ));
        }
        let bytes = uri.path().len() + uri.query().map_or(0, |query| query.len() + 1);
        if bytes > URI_BYTES_MAX {
            let message = format!("the URI has {bytes} bytes; the limit is {URI_BYTES_MAX}");
            return Err(ApiError::rejected(StatusCode::URI_TOO_LONG, message));
        }
        let headers = self.headers().len();
        if headers > HEADERS_MAX {
            let message = format!("the request has {headers} headers; the limit is {HEADERS_MAX}");
            return Err(ApiError::rejected(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
        }
        Ok(())
    }

    /// The body must be framed by its length, or by `chunked` alone. Any other coding would reach the handler as it was
    /// sent, still encoded, and a proxy that frames it differently sees other requests in it.
    fn check_framing(&self) -> Result<(), ApiError> {
        let mut codings = self.headers().get_all(TRANSFER_ENCODING).iter();
        let only_chunked = match (codings.next(), codings.next()) {
            (None, _) => true,
            (Some(only), None) => only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
            (Some(_), Some(_)) => false,
        };
        if only_chunked {
            return Ok(());
        }
        Err(ApiError::invalid("Transfer-Encoding", "the only supported transfer coding is chunked, once"))
    }

    /// The bytes of a body declared as JSON, not parsed yet: findings of a definition have positions in its text. They
    /// are moved out: a second call returns none.
    pub(crate) async fn json_bytes(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        self.check_content_type()?;
        let bytes = self.read_body(bytes_max).await?;
        if !bytes.is_empty() && !self.headers().contains_key(CONTENT_TYPE) {
            return Err(ApiError::rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, NOT_JSON));
        }
        Ok(bytes)
    }

    /// The body's bytes, of any content type: CloudEvents have many.
    pub(crate) async fn raw_bytes(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        self.check_encoding()?;
        self.read_body(bytes_max).await
    }

    async fn read_body(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        let content_length =
            self.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if content_length.is_some_and(|length: u64| length > bytes_max as u64) {
            return Err(too_large(bytes_max));
        }
        let bytes = tokio::time::timeout(BODY_READ_TIMEOUT, self.collect_body(bytes_max)).await;
        let late = |_| ApiError::rejected(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
        bytes.map_err(late)?
    }

    /// The body, copied into one buffer: keeping the frames would keep the larger read buffers of the socket alive.
    async fn collect_body(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        let mut body = std::mem::take(&mut self.body);
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ApiError::invalid("", "the body was cut off"))?;
            // Trailers are ignored.
            let Ok(piece) = frame.into_data() else { continue };
            if bytes.len() + piece.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            if !self.body_reservation.try_grow_to(bytes.len() + piece.len()) {
                self.body_reservation.count_refusal();
                return Err(ApiError::rate_limited("too many large bodies are being sent; try again later"));
            }
            bytes.extend_from_slice(&piece);
        }
        self.body_unread = false;
        Ok(bytes.into())
    }

    /// The body as JSON, or none if it is empty.
    pub(crate) async fn json_body(&mut self, bytes_max: usize) -> Result<Option<Value>, ApiError> {
        let bytes = self.json_bytes(bytes_max).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        Ok(Some(json::parse(utf8_text(&bytes)?)?))
    }

    /// Never guesses the content type: one reader's JSON is another reader's form.
    fn check_content_type(&self) -> Result<(), ApiError> {
        let headers = self.headers();
        let kinds = headers.get_all(CONTENT_TYPE);
        if !kinds.iter().all(|kind| is_json_content_type(kind.as_bytes())) {
            return Err(ApiError::rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, NOT_JSON));
        }
        self.check_encoding()
    }

    fn check_encoding(&self) -> Result<(), ApiError> {
        let encoding = self.headers().get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let message = "the body must not be compressed";
            return Err(ApiError::rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        Ok(())
    }
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::rejected(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {bytes_max} bytes"))
}

pub(crate) fn utf8_text(bytes: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(bytes).map_err(|_| ApiError::invalid("", "the body is not UTF-8"))
}

fn is_json_content_type(content_type: &[u8]) -> bool {
    let mut parts = content_type.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(b"application/json"));
    let utf_8 = |parameter: &[u8]| {
        let charset = parameter.to_ascii_lowercase();
        matches!(charset.as_slice(), b"" | b"charset=utf-8" | b"charset=\"utf-8\"")
    };
    json && parts.all(utf_8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_in_utf_8_is_json() {
        for json in ["application/json", "Application/JSON; charset=UTF-8", "application/json;"] {
            assert!(is_json_content_type(json.as_bytes()), "{json}");
        }
        for other in [
            "",
            "text/plain",
            "application/jsonp",
            "application/json; charset=utf-16",
            "text/json",
            "application/json; x=y",
        ] {
            assert!(!is_json_content_type(other.as_bytes()), "{other}");
        }
    }
}
