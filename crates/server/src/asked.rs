//! One request, before anybody knows what it means: correlation id, parameters, and a body that is bounded, timed and of the right kind.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use abide_runtime::hands::Store;
use abide_workflow::{InstanceId, Timestamp, json};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::Value;
use url::form_urlencoded;

use crate::app::App;
use crate::bodies::Share;
use crate::correlation::CorrelationId;
use crate::envelope;
use crate::error::ApiError;
use crate::openapi::Field;
use crate::rest;

/// Bytes of a path and its query.
const URI_BYTES_MAX: usize = 8 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Why a body of another kind is refused.
const NOT_JSON: &str = "the content type must be application/json, in UTF-8";

/// A request.
#[derive(Debug)]
pub(crate) struct Asked {
    correlation: CorrelationId,
    parts: Parts,
    body: Body,
    /// What the body takes of the room for bodies, until the request is answered.
    share: Share,
}

impl<S: Store> FromRequest<App<S>> for Asked {
    type Rejection = Infallible;

    async fn from_request(request: Request, app: &App<S>) -> Result<Self, Infallible> {
        let (parts, body) = request.into_parts();
        Ok(Self { correlation: CorrelationId::of(&parts.headers), parts, body, share: app.body_share() })
    }
}

impl Asked {
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

    /// Whether a body may follow.
    pub(crate) fn has_body(&self) -> bool {
        !self.body.is_end_stream()
    }

    /// The response to it: what the handler made, or why it made none.
    pub(crate) fn answer(&self, answer: Result<Response, ApiError>, now: Timestamp) -> Response {
        answer.unwrap_or_else(|error| envelope::failed(&error, &self.correlation, now))
    }

    /// A response with data.
    pub(crate) fn succeed<T: Serialize>(&self, status: StatusCode, now: Timestamp, data: &T) -> Response {
        envelope::succeeded(status, &self.correlation, now, data)
    }

    /// A part of the path, percent-decoded.
    pub(crate) async fn param(&mut self, name: &str) -> Result<String, ApiError> {
        let params = RawPathParams::from_request_parts(&mut self.parts, &()).await;
        let params = params.map_err(|_| ApiError::invalid("", "the path is not UTF-8"))?;
        let found = params.iter().find(|(param, _)| *param == name);
        found.map(|(_, value)| value.to_owned()).ok_or_else(|| ApiError::internal(&format!("no {{{name}}}")))
    }

    /// The instance the path names.
    pub(crate) async fn instance_id(&mut self) -> Result<InstanceId, ApiError> {
        let id = self.param("id").await?;
        InstanceId::new(id).map_err(|error| ApiError::invalid("instanceId", error.to_string()))
    }

    /// The query's parameters, in this order. A parameter that nobody knows is refused: it would be ignored without a word.
    pub(crate) fn query<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<Cow<'_, str>>; N], ApiError> {
        let mut values = [const { None }; N];
        let Some(query) = self.parts.uri.query() else { return Ok(values) };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = names.iter().position(|known| *known == name);
            match place.and_then(|place| values.get_mut(place)) {
                Some(empty @ None) => *empty = Some(value),
                Some(Some(_)) => return Err(ApiError::invalid(name, "the parameter is there twice")),
                None => return Err(ApiError::invalid(name, "there is no such parameter")),
            }
        }
        Ok(values)
    }

    /// The query's parameters, in this order, each checked as far as it is documented.
    pub(crate) fn parameters<const N: usize>(
        &self,
        fields: &[Field; N],
    ) -> Result<[Option<Cow<'_, str>>; N], ApiError> {
        let values = self.query(fields.each_ref().map(|field| field.name))?;
        for (field, value) in fields.iter().zip(&values) {
            value.as_deref().map_or(Ok(()), |value| field.check(value))?;
        }
        Ok(values)
    }

    /// A part of the path, checked as far as it is documented.
    pub(crate) async fn part(&mut self, field: &Field) -> Result<String, ApiError> {
        let text = self.param(field.name).await?;
        field.check(&text)?;
        Ok(text)
    }

    /// What holds of every request, whatever it is about.
    pub(crate) fn check<S: Store>(&self, app: &App<S>) -> Result<(), ApiError> {
        app.callers().check(&self.parts)?;
        let uri = &self.parts.uri;
        if !rest::OF_SERVER.contains(&uri.path()) && !app.admits() {
            return Err(ApiError::rate_limited(
                "there are more requests than server.requestsPerSecond allows",
            ));
        }
        let bytes = uri.path().len() + uri.query().map_or(0, |query| query.len() + 1);
        if bytes > URI_BYTES_MAX {
            let message = format!("the URI has {bytes} bytes; the limit is {URI_BYTES_MAX}");
            return Err(ApiError::refused(StatusCode::URI_TOO_LONG, message));
        }
        let headers = self.headers().len();
        if headers > HEADERS_MAX {
            let message = format!("there are {headers} headers; the limit is {HEADERS_MAX}");
            return Err(ApiError::refused(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
        }
        Ok(())
    }

    /// The body's bytes. They are taken: a second call gets none.
    pub(crate) async fn bytes(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        self.check_kind()?;
        let bytes = self.within_time(bytes_max).await?;
        if !bytes.is_empty() && !self.headers().contains_key(CONTENT_TYPE) {
            return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, NOT_JSON));
        }
        Ok(bytes)
    }

    /// The body's bytes, of whatever kind they are.
    pub(crate) async fn raw_bytes(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        self.check_encoding()?;
        self.within_time(bytes_max).await
    }

    async fn within_time(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        let told = self.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if told.is_some_and(|told: u64| told > bytes_max as u64) {
            return Err(too_large(bytes_max));
        }
        let bytes = tokio::time::timeout(BODY_TIME_MAX, self.collect(bytes_max)).await;
        let late = |_| ApiError::refused(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
        bytes.map_err(late)?
    }

    /// All that comes, copied: pieces of what the socket had would keep more alive than they are.
    async fn collect(&mut self, bytes_max: usize) -> Result<Bytes, ApiError> {
        let mut body = std::mem::take(&mut self.body);
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ApiError::invalid("", "the body broke off"))?;
            // Trailers are not looked at.
            let Ok(piece) = frame.into_data() else { continue };
            if bytes.len() + piece.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            if !self.share.grow(piece.len()) {
                return Err(ApiError::rate_limited("too many large bodies are being sent; try again later"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.into())
    }

    /// The body as JSON, or none if it is empty.
    pub(crate) async fn json(&mut self, bytes_max: usize) -> Result<Option<Value>, ApiError> {
        let bytes = self.bytes(bytes_max).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        Ok(Some(json::parse(text(&bytes)?)?))
    }

    /// A body of another kind is not guessed at: what one reader takes for JSON another takes for a form.
    fn check_kind(&self) -> Result<(), ApiError> {
        let headers = self.headers();
        let kinds = headers.get_all(CONTENT_TYPE);
        if !kinds.iter().all(|kind| is_json(kind.as_bytes())) {
            return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, NOT_JSON));
        }
        self.check_encoding()
    }

    fn check_encoding(&self) -> Result<(), ApiError> {
        let encoding = self.headers().get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let message = "a body must not be compressed";
            return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        Ok(())
    }
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {bytes_max} bytes"))
}

/// The text of a body.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(bytes).map_err(|_| ApiError::invalid("", "the body is not UTF-8"))
}

fn is_json(content_type: &[u8]) -> bool {
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
            assert!(is_json(json.as_bytes()), "{json}");
        }
        for other in [
            "",
            "text/plain",
            "application/jsonp",
            "application/json; charset=utf-16",
            "text/json",
            "application/json; x=y",
        ] {
            assert!(!is_json(other.as_bytes()), "{other}");
        }
    }
}
