//! The one table from what can go wrong to what a caller is told: HTTP status, code, message, place.
//!
//! What only an operator should read (why something stored is damaged) goes to the log and not into the answer.

mod catalogue;

use abide_runtime::Refused;
use abide_runtime::definitions::DefinitionError;
use abide_runtime::entity::{EntityReadError, OperationError};
use abide_runtime::node::{ShowError, Unanswered};
use abide_runtime::routes::RouteError;
use abide_store::public::PutError;
use abide_store::rows::StoreError;
use abide_workflow::json::JsonError;
use abide_workflow::schema::Mismatch;
use abide_workflow::{Finding, Refusal};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

/// The codes of the interface. Clients match on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErrorCode")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Code {
    ValidationError,
    AuthorizationFailed,
    ResourceNotFound,
    Conflict,
    RateLimited,
    InternalError,
    ServiceUnavailable,
}

/// One place of several that are wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErrorDetail")]
pub(crate) struct Detail {
    pub(crate) code: String,
    pub(crate) message: String,
    /// A JSON pointer into what was sent, or the name of a header; empty if it is the whole.
    pub(crate) target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

/// Why a request has no data as its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: Code,
    message: String,
    target: Option<String>,
    details: Vec<Detail>,
    logged: Option<String>,
}

/// Why something was not done.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorJson<'a> {
    code: Code,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "<[Detail]>::is_empty")]
    details: &'a [Detail],
}

/// The header that makes a request recognisable.
const KEY: &str = "Idempotency-Key";
/// When to try again what was refused for now.
const RETRY_AFTER_SECONDS: u16 = 1;

impl ApiError {
    fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), target: None, details: Vec::new(), logged: None }
    }

    /// The request itself is wrong, at this place.
    pub(crate) fn invalid(target: impl Into<String>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, Code::ValidationError, message);
        Self { target: Some(target.into()).filter(|target| !target.is_empty()), ..error }
    }

    /// The request is refused before it is understood: its size, its kind, its method.
    pub(crate) fn refused(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, Code::ValidationError, message)
    }

    /// Whoever asks may not.
    pub(crate) fn foreign(target: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, Code::AuthorizationFailed, message).at(target)
    }

    /// Nobody can tell what came of it. Clients tell it from what was surely not done by the detail's code.
    pub(crate) fn outcome_unknown(message: impl Into<String>) -> Self {
        let hint = "ask again; with the same Idempotency-Key it is not done twice";
        Self::unavailable(message).with_detail("OUTCOME_UNKNOWN", "it may have been done or not", hint)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::ResourceNotFound, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::ServiceUnavailable, message)
    }

    /// Something is wrong on this side. The caller is given a way to find it in the log.
    pub(crate) fn internal(detail: &impl ToString) -> Self {
        let message = "the server could not do it; its log says why, under this correlation id";
        let error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::InternalError, message);
        Self { logged: Some(detail.to_string()), ..error }
    }

    /// An input that does not fit its schema. Pointers lead into the input; the caller sent it inside a body, below `within`.
    pub(crate) fn mismatched(within: &str, mismatches: Vec<Mismatch>) -> Self {
        let detail = |mismatch: Mismatch| Detail {
            code: mismatch.keyword,
            message: mismatch.message,
            target: format!("{within}{}", mismatch.pointer),
            hint: None,
        };
        let details: Vec<Detail> = mismatches.into_iter().map(detail).collect();
        let first = details.first().map_or(within, |detail| detail.target.as_str());
        let error = Self::invalid(first, "the input does not fit the definition");
        Self { details, ..error }
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Code::Conflict, message)
    }

    pub(crate) fn rate_limited(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, message)
    }

    /// The same error, with a code of its own for clients to match on.
    fn with_detail(self, code: &str, message: &str, hint: &str) -> Self {
        let target = self.target.clone().unwrap_or_default();
        let detail = Detail {
            code: code.to_owned(),
            message: message.to_owned(),
            target,
            hint: Some(hint.to_owned()),
        };
        Self { details: vec![detail], ..self }
    }

    /// The same error, with something to add.
    #[must_use]
    pub(crate) fn with_note(self, note: &str) -> Self {
        Self { message: format!("{}; {note}", self.message), ..self }
    }

    /// The same error, at this place of the request.
    #[must_use]
    pub(crate) fn at(self, target: &str) -> Self {
        Self { target: Some(target.to_owned()), ..self }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The message and, if there are several places, what is wrong at the first.
    pub(crate) fn in_words(&self) -> String {
        match self.details.first() {
            Some(first) => format!("{}: {} {}", self.message, first.target, first.message),
            None => self.message.clone(),
        }
    }

    /// What the log has to say of it.
    pub(crate) fn logged(&self) -> Option<&str> {
        self.logged.as_deref()
    }

    /// After how many seconds the same request may succeed.
    pub(crate) fn retry_after_seconds(&self) -> Option<u16> {
        matches!(self.code, Code::RateLimited | Code::ServiceUnavailable).then_some(RETRY_AFTER_SECONDS)
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

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::NotFound { .. } => Self::not_found(message),
            Refused::Live { .. } | Refused::Parked { .. } | Refused::NotCurrent { .. } => {
                Self::conflict(message)
            }
            Refused::KeyReused => Self::conflict(message).at(KEY).with_detail(
                "IDEMPOTENCY_KEY_REUSED",
                "the key belongs to another request",
                "use a key of its own for each request",
            ),
            Refused::KeyExpired { .. } => Self::conflict(message).at(KEY).with_detail(
                "IDEMPOTENCY_KEY_EXPIRED",
                "what the key was answered is not kept any more; what it began is",
                "look at the instance; a new key begins another",
            ),
            Refused::Message(refusal) => refusal.into(),
            Refused::Damaged { .. } | Refused::EntityDamaged { .. } => Self::internal(&message),
            Refused::EntityFull { .. } => Self::conflict(message),
            Refused::Operation(OperationError::Refused { .. }) => Self::conflict(message),
            Refused::Operation(OperationError::Panicked { .. }) => Self::internal(&message),
            Refused::Operation(_) => Self::invalid("", message),
            Refused::TooLarge { .. } => Self::refused(StatusCode::PAYLOAD_TOO_LARGE, message),
            Refused::Busy => Self::rate_limited(message),
            Refused::NotReady | Refused::Draining => Self::unavailable(message),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::RunEnded { .. }
            | Refusal::NotFailed { .. }
            | Refusal::AlreadyCompensated
            | Refusal::NothingToRewind
            | Refusal::NotSuspended { .. } => Self::conflict(message),
            Refusal::BufferFull { .. } => Self::rate_limited(message),
            Refusal::PayloadTooLarge { .. } => Self::refused(StatusCode::PAYLOAD_TOO_LARGE, message),
            Refusal::PayloadTooDeep { .. } | Refusal::EventName { .. } => Self::invalid("", message),
        }
    }
}

impl From<Unanswered> for ApiError {
    fn from(unanswered: Unanswered) -> Self {
        Self::outcome_unknown(unanswered.to_string())
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

impl From<ShowError> for ApiError {
    fn from(error: ShowError) -> Self {
        match error {
            ShowError::Unreadable(_) => Self::internal(&error),
            ShowError::Store(error) => error.into(),
        }
    }
}

impl From<DefinitionError> for ApiError {
    fn from(error: DefinitionError) -> Self {
        let message = error.to_string();
        match error {
            DefinitionError::Rejected { findings } => Self {
                details: findings.into_iter().map(Detail::from).collect(),
                ..Self::invalid("", message)
            },
            DefinitionError::OtherContent { .. }
            | DefinitionError::Retired { .. }
            | DefinitionError::IsDefault { .. } => Self::conflict(message),
            DefinitionError::Unknown { .. } => Self::not_found(message),
            DefinitionError::Busy { .. } => Self::unavailable(message),
            DefinitionError::Registry(_) | DefinitionError::Table(_) => Self::internal(&message),
            DefinitionError::Store(error) => error.into(),
        }
    }
}

impl From<RouteError> for ApiError {
    fn from(error: RouteError) -> Self {
        let message = error.to_string();
        match error {
            RouteError::Busy => Self::unavailable(message),
            RouteError::TooMany => Self::conflict(message),
            RouteError::Table(_) => Self::internal(&message),
            RouteError::Store(error) => error.into(),
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

impl From<PutError> for ApiError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Store(error) => error.into(),
            other => Self::internal(&other),
        }
    }
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> Self {
        Self::invalid("", format!("the body is not JSON as it is taken here: {error}"))
    }
}

impl From<Finding> for Detail {
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
