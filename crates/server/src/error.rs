//! The table that maps failures to the client's error: HTTP status, code, message and target. Only failed queries of
//! public tables are mapped elsewhere, in `rest/page.rs`. Durable Functions starts from these errors too.
//!
//! Details for operators only, such as why stored data is damaged, go to the log and never into a response.

mod activity_catalogue;

use abide_runtime::RequestError;
use abide_runtime::definitions::DefinitionError;
use abide_runtime::entity::{EntityReadError, OperationError};
use abide_runtime::event_routes::EventRouteError;
use abide_runtime::node::{RunReadError, ShardLost};
use abide_store::public::PublicPutError;
use abide_store::rows::StoreError;
use abide_workflow::json::JsonError;
use abide_workflow::schema::Mismatch;
use abide_workflow::{Finding, MessageRefusal};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

/// The error codes of the API. Clients match on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErrorCode")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ApiErrorCode {
    ValidationError,
    AuthorizationFailed,
    ResourceNotFound,
    Conflict,
    RateLimited,
    InternalError,
    ServiceUnavailable,
}

/// One of several errors in a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErrorDetail")]
pub(crate) struct ApiErrorDetail {
    pub(crate) code: String,
    pub(crate) message: String,
    /// A JSON pointer into the request body, or the name of a header; empty for the request as a whole.
    pub(crate) target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: ApiErrorCode,
    message: String,
    target: Option<String>,
    details: Vec<ApiErrorDetail>,
    log_detail: Option<String>,
}

/// Why a request failed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorJson<'a> {
    code: ApiErrorCode,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "<[ApiErrorDetail]>::is_empty")]
    details: &'a [ApiErrorDetail],
}

const IDEMPOTENCY_KEY_HEADER: &str = "Idempotency-Key";
/// The `Retry-After` of transient errors.
const RETRY_AFTER_SECONDS: u16 = 1;

impl ApiError {
    fn new(status: StatusCode, code: ApiErrorCode, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), target: None, details: Vec::new(), log_detail: None }
    }

    /// The request itself is invalid, at `target`: a JSON pointer into the body, or the name of a parameter or header.
    /// Empty means the request as a whole.
    pub(crate) fn invalid(target: impl Into<String>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, ApiErrorCode::ValidationError, message);
        Self { target: Some(target.into()).filter(|target| !target.is_empty()), ..error }
    }

    /// The request is rejected with a status of its own, because of its size, content type, method or host, or because
    /// its body arrives too slowly.
    pub(crate) fn rejected(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, ApiErrorCode::ValidationError, message)
    }

    /// The client may not do this.
    pub(crate) fn forbidden(target: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ApiErrorCode::AuthorizationFailed, message).with_target(target)
    }

    /// The request may or may not have taken effect. By the detail's code, clients can distinguish this from a request
    /// that certainly had no effect.
    pub(crate) fn outcome_unknown(message: impl Into<String>) -> Self {
        let hint = "try again; with the same Idempotency-Key it takes effect only once";
        Self::unavailable(message).with_detail(
            "OUTCOME_UNKNOWN",
            "the request may or may not have taken effect",
            hint,
        )
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, ApiErrorCode::ResourceNotFound, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::ServiceUnavailable, message)
    }

    /// The server failed. The response only points to the log; `detail` is logged.
    pub(crate) fn internal(detail: &impl ToString) -> Self {
        let message = "internal error; the server's log has the reason, under this correlation id";
        let error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, ApiErrorCode::InternalError, message);
        Self { log_detail: Some(detail.to_string()), ..error }
    }

    /// An input that does not match the definition's input schema. The mismatches point into the input; `within` is put
    /// before them, as in the body of a start in the `rest` API.
    pub(crate) fn schema_mismatch(within: &str, mismatches: Vec<Mismatch>) -> Self {
        let detail = |mismatch: Mismatch| ApiErrorDetail {
            code: mismatch.keyword,
            message: mismatch.message,
            target: format!("{within}{}", mismatch.pointer),
            hint: None,
        };
        let details: Vec<ApiErrorDetail> = mismatches.into_iter().map(detail).collect();
        let first = details.first().map_or(within, |detail| detail.target.as_str());
        let error = Self::invalid(first, "the input does not match the definition's input schema");
        Self { details, ..error }
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, ApiErrorCode::Conflict, message)
    }

    pub(crate) fn rate_limited(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, ApiErrorCode::RateLimited, message)
    }

    /// Sets the only detail, with a code of its own for clients to match on. It gets the target the error has now.
    fn with_detail(self, code: &str, message: &str, hint: &str) -> Self {
        let target = self.target.clone().unwrap_or_default();
        let detail = ApiErrorDetail {
            code: code.to_owned(),
            message: message.to_owned(),
            target,
            hint: Some(hint.to_owned()),
        };
        Self { details: vec![detail], ..self }
    }

    /// Appends a note to the message, such as how much of a batch of events took effect.
    #[must_use]
    pub(crate) fn with_note(self, note: &str) -> Self {
        Self { message: format!("{}; {note}", self.message), ..self }
    }

    /// Sets the part of the request that the error is about.
    #[must_use]
    pub(crate) fn with_target(self, target: &str) -> Self {
        Self { target: Some(target.to_owned()), ..self }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The message and, if there are details, the first of them, for error responses of Durable Functions, which have
    /// no details.
    pub(crate) fn full_message(&self) -> String {
        match self.details.first() {
            Some(first) => format!("{}: {} {}", self.message, first.target, first.message),
            None => self.message.clone(),
        }
    }

    /// The detail that is logged and not sent to the client.
    pub(crate) fn log_detail(&self) -> Option<&str> {
        self.log_detail.as_deref()
    }

    /// The number of seconds after which the same request may succeed; none if the error is not transient.
    pub(crate) fn retry_after_seconds(&self) -> Option<u16> {
        matches!(self.code, ApiErrorCode::RateLimited | ApiErrorCode::ServiceUnavailable)
            .then_some(RETRY_AFTER_SECONDS)
    }

    pub(crate) fn to_json(&self) -> ErrorJson<'_> {
        ErrorJson {
            code: self.code,
            message: &self.message,
            target: self.target.as_deref(),
            details: &self.details,
        }
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let message = error.to_string();
        match error {
            RequestError::NotFound { .. } => Self::not_found(message),
            RequestError::AlreadyRunning { .. }
            | RequestError::Parked { .. }
            | RequestError::NotCurrent { .. } => Self::conflict(message),
            RequestError::KeyReused => {
                Self::conflict(message).with_target(IDEMPOTENCY_KEY_HEADER).with_detail(
                    "IDEMPOTENCY_KEY_REUSED",
                    "the key belongs to another request",
                    "use a separate key for each request",
                )
            }
            RequestError::KeyExpired { .. } => {
                Self::conflict(message).with_target(IDEMPOTENCY_KEY_HEADER).with_detail(
                    "IDEMPOTENCY_KEY_EXPIRED",
                    "the stored reply of this key has expired; the instance it started still exists",
                    "query the instance; a new key starts another one",
                )
            }
            RequestError::Message(refusal) => refusal.into(),
            RequestError::Damaged { .. } | RequestError::EntityDamaged { .. } => Self::internal(&message),
            RequestError::EntityFull { .. } => Self::conflict(message),
            RequestError::Operation(OperationError::Refused { .. }) => Self::conflict(message),
            RequestError::Operation(OperationError::Panicked { .. }) => Self::internal(&message),
            RequestError::Operation(_) => Self::invalid("", message),
            RequestError::TooLarge { .. } => Self::rejected(StatusCode::PAYLOAD_TOO_LARGE, message),
            RequestError::Busy { .. } => Self::rate_limited(message),
            RequestError::NotReady | RequestError::Draining => Self::unavailable(message),
        }
    }
}

impl From<MessageRefusal> for ApiError {
    fn from(refusal: MessageRefusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            MessageRefusal::RunEnded { .. }
            | MessageRefusal::NotFailed { .. }
            | MessageRefusal::AlreadyCompensated
            | MessageRefusal::NothingToRewind
            | MessageRefusal::NoFailedCompensation
            | MessageRefusal::NotEnded { .. }
            | MessageRefusal::RetryingCompensation
            | MessageRefusal::NotSuspended { .. } => Self::conflict(message),
            MessageRefusal::BufferFull { .. } => Self::rate_limited(message),
            MessageRefusal::PayloadTooLarge { .. } => Self::rejected(StatusCode::PAYLOAD_TOO_LARGE, message),
            MessageRefusal::PayloadTooDeep { .. } | MessageRefusal::InvalidEventName { .. } => {
                Self::invalid("", message)
            }
        }
    }
}

impl From<ShardLost> for ApiError {
    fn from(error: ShardLost) -> Self {
        Self::outcome_unknown(error.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => Self::unavailable(error.to_string()),
            StoreError::Corrupt { .. } => Self::internal(&error),
        }
    }
}

impl From<RunReadError> for ApiError {
    fn from(error: RunReadError) -> Self {
        match error {
            RunReadError::Unreadable(_) => Self::internal(&error),
            RunReadError::Store(error) => error.into(),
        }
    }
}

impl From<DefinitionError> for ApiError {
    fn from(error: DefinitionError) -> Self {
        let message = error.to_string();
        match error {
            DefinitionError::Rejected { findings } => Self {
                details: findings.into_iter().map(ApiErrorDetail::from).collect(),
                ..Self::invalid("", message)
            },
            DefinitionError::ContentMismatch { .. }
            | DefinitionError::Retired { .. }
            | DefinitionError::IsDefault { .. } => Self::conflict(message),
            DefinitionError::NotFound { .. } => Self::not_found(message),
            DefinitionError::Busy { .. } => Self::unavailable(message),
            DefinitionError::Registry(_) | DefinitionError::Table(_) => Self::internal(&message),
            DefinitionError::Store(error) => error.into(),
        }
    }
}

impl From<EventRouteError> for ApiError {
    fn from(error: EventRouteError) -> Self {
        let message = error.to_string();
        match error {
            EventRouteError::Busy => Self::unavailable(message),
            EventRouteError::TooMany => Self::conflict(message),
            EventRouteError::Table(_) => Self::internal(&message),
            EventRouteError::Store(error) => error.into(),
        }
    }
}

impl From<EntityReadError> for ApiError {
    fn from(error: EntityReadError) -> Self {
        match error {
            EntityReadError::Damaged(_) => Self::internal(&error),
            EntityReadError::Store(error) => error.into(),
        }
    }
}

impl From<PublicPutError> for ApiError {
    fn from(error: PublicPutError) -> Self {
        match error {
            PublicPutError::Store(error) => error.into(),
            other => Self::internal(&other),
        }
    }
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> Self {
        Self::invalid("", format!("invalid JSON in the body: {error}"))
    }
}

impl From<Finding> for ApiErrorDetail {
    fn from(finding: Finding) -> Self {
        let message = match finding.position {
            Some((line, column)) => format!("line {line}, column {column}: {}", finding.message),
            None => finding.message,
        };
        Self { code: finding.code.to_string(), message, target: finding.pointer, hint: Some(finding.hint) }
    }
}

#[cfg(test)]
mod tests;
