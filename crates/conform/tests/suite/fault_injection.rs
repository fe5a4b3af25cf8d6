//! Faults that services have, injected between the wire and a correct receiver: requests are changed before it sees
//! them, or responses after it sent them.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use abide_dispatch::metadata::{DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT};
use abide_dispatch::wire::PROBE_HEADER;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The fault of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceiverFault {
    ForgetsDuplicates,
    WritesAnswersAnew,
    TakesAttemptsForWork,
    TakesInputsForWork,
    RunsDuplicatesAtOnce,
    IgnoresExecutions,
    IgnoresKeys,
    IgnoresDeadlines,
    RecordsDeadlines,
    DemandsDeadlines,
    LooksAtDeadlinesFirst,
    TakesTheFirstOfTwo,
    TakesWrongNumbers,
    TakesAnyText,
    InventsIdentities,
    RefusesWithoutAWord,
    TakesNamesByCase,
    NeverTheSameWithoutMetadata,
    AllTheSameWithoutMetadata,
    RecordsEverything,
    RecordsSuccessOnly,
    AnswersInternalForDataLoss,
    AnswersPlain500,
    AnswersEverythingWith200,
    CutsPayloads,
    RefusesBigBodies,
    BreaksOffBigBodies,
    TakesAnySize,
    AsksToTryTooBigAgain,
    RunsUnknownActivities,
    TakesAnyContentType,
    IgnoresProbes,
    ProbesForgetful,
    TakesAnyVersion,
    ForgetsContexts,
    BelievesContextsOnly,
    Hangs,
    HangsOnDuplicates,
    IsSomebodyElse,
}

/// Injects one fault, with the state that the fault needs.
pub(crate) struct FaultInjector {
    mistake: ReceiverFault,
    next_value: AtomicU64,
    seen: Mutex<HashSet<Vec<u8>>>,
    under_way: Mutex<HashSet<Vec<u8>>>,
    answers: Mutex<HashMap<Vec<u8>, (StatusCode, Bytes)>>,
}

impl FaultInjector {
    pub(crate) fn new(fault: ReceiverFault) -> Self {
        Self {
            mistake: fault,
            next_value: AtomicU64::new(0),
            seen: Mutex::default(),
            under_way: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    /// A value that is never returned again.
    fn unique_value(&self) -> HeaderValue {
        HeaderValue::from(self.next_value.fetch_add(1, Ordering::Relaxed))
    }
}

pub(crate) async fn inject(
    State(injector): State<Arc<FaultInjector>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    let Ok(mut body) = to_bytes(body, 8 * 1024 * 1024).await else { return truncated_response() };
    let headers = &mut head.headers;
    let text = String::from_utf8_lossy(&body).into_owned();
    let id = identity(headers);
    let is_duplicate = !id.is_empty() && !injector.seen.lock().unwrap().insert(id.clone());
    let has_metadata = headers.keys().any(|key| key.as_str().starts_with("x-tpf-"));
    let is_probe = headers.contains_key(PROBE_HEADER) || head.uri.path().ends_with("/Probe");
    let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|value| value == "application/grpc");
    match injector.mistake {
        ReceiverFault::ForgetsDuplicates => set(headers, IDEMPOTENCY_KEY, injector.unique_value()),
        ReceiverFault::TakesAttemptsForWork => extend(headers, IDEMPOTENCY_KEY, RETRY_ATTEMPT),
        ReceiverFault::TakesInputsForWork if has_metadata => {
            let mut digest = DefaultHasher::new();
            body.hash(&mut digest);
            headers.insert("x-digest", HeaderValue::from(digest.finish()));
            extend(headers, IDEMPOTENCY_KEY, "x-digest");
        }
        ReceiverFault::RunsDuplicatesAtOnce if is_probe => {}
        ReceiverFault::RunsDuplicatesAtOnce if !injector.under_way.lock().unwrap().insert(id.clone()) => {
            set(headers, IDEMPOTENCY_KEY, injector.unique_value());
        }
        ReceiverFault::IgnoresExecutions => set(headers, EXECUTION_ID, HeaderValue::from_static("one")),
        ReceiverFault::IgnoresKeys => set(headers, IDEMPOTENCY_KEY, HeaderValue::from_static("one")),
        ReceiverFault::IgnoresDeadlines => drop(headers.remove(DEADLINE)),
        ReceiverFault::DemandsDeadlines if has_metadata && !headers.contains_key(DEADLINE) => {
            headers.insert(DEADLINE, HeaderValue::from_static("1"));
        }
        ReceiverFault::LooksAtDeadlinesFirst
            if number(headers, DEADLINE).is_some_and(|at| at < crate::fixture::NOW.0) =>
        {
            headers.insert(IDEMPOTENCY_KEY, injector.unique_value());
        }
        ReceiverFault::TakesTheFirstOfTwo => first_of_two(headers),
        ReceiverFault::TakesWrongNumbers => {
            for key in [RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT] {
                if headers.contains_key(key) && number(headers, key).is_none() {
                    headers.remove(key);
                }
            }
        }
        ReceiverFault::TakesAnyText => {
            let is_invalid = |value: &HeaderValue| value.len() > 512 || value.to_str().is_err();
            let keys: Vec<_> =
                headers.iter().filter(|(_, value)| is_invalid(value)).map(|(key, _)| key.clone()).collect();
            for key in keys {
                headers.remove(key);
            }
        }
        ReceiverFault::InventsIdentities if has_metadata => {
            for key in [EXECUTION_ID, IDEMPOTENCY_KEY] {
                if headers.get(key).is_none_or(HeaderValue::is_empty) {
                    headers.insert(key, injector.unique_value());
                }
            }
        }
        ReceiverFault::NeverTheSameWithoutMetadata | ReceiverFault::AllTheSameWithoutMetadata
            if !has_metadata =>
        {
            let is_unique = injector.mistake == ReceiverFault::NeverTheSameWithoutMetadata;
            let key = if is_unique { injector.unique_value() } else { HeaderValue::from_static("one") };
            headers.insert(EXECUTION_ID, HeaderValue::from_static("unknown"));
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        ReceiverFault::RefusesBigBodies if body.len() > 100_000 => return status(413),
        ReceiverFault::BreaksOffBigBodies if body.len() > 3_750_000 => return truncated_response(),
        ReceiverFault::AsksToTryTooBigAgain if body.len() > 3_750_000 => return status(503),
        ReceiverFault::TakesAnySize if body.len() > 3_750_000 => {
            body = text.replace("  ", "").into();
        }
        ReceiverFault::RunsUnknownActivities if head.uri.path().ends_with("abide-conform.not-served") => {
            head.uri = "/activities/conformance".parse().unwrap();
        }
        ReceiverFault::TakesAnyContentType => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        ReceiverFault::IgnoresProbes => drop(headers.remove(PROBE_HEADER)),
        ReceiverFault::ProbesForgetful if is_probe => {
            headers.insert(EXECUTION_ID, HeaderValue::from_static("unknown"));
        }
        ReceiverFault::TakesAnyVersion if text.contains("tpf.envelope.v2") => {
            body = text.replace("tpf.envelope.v2", "tpf.envelope.v1").into();
        }
        ReceiverFault::BelievesContextsOnly => {
            let keys: Vec<_> =
                headers.keys().filter(|key| key.as_str().starts_with("x-tpf-")).cloned().collect();
            for key in keys {
                headers.remove(key);
            }
        }
        ReceiverFault::RecordsSuccessOnly if text.contains("\"fail\"") => {
            headers.insert(IDEMPOTENCY_KEY, injector.unique_value());
        }
        ReceiverFault::Hangs => std::future::pending().await,
        ReceiverFault::HangsOnDuplicates if is_duplicate => std::future::pending().await,
        ReceiverFault::IsSomebodyElse => return "welcome".into_response(),
        _ => {}
    }
    if injector.mistake == ReceiverFault::RecordsEverything
        && let Some((status, body)) = injector.answers.lock().unwrap().get(&id)
    {
        return (*status, body.clone()).into_response();
    }
    let is_late = number(headers, DEADLINE).is_some_and(|at| at < crate::fixture::NOW.0);
    if injector.mistake == ReceiverFault::RecordsDeadlines
        && let Some((status, body)) = injector.answers.lock().unwrap().get(&id)
    {
        return (*status, body.clone()).into_response();
    }
    headers.remove(CONTENT_LENGTH);
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    if !is_probe {
        injector.under_way.lock().unwrap().remove(&id);
    }
    if is_grpc {
        // Trailers of gRPC responses would be lost below.
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Ok(body) = to_bytes(body, 8 * 1024 * 1024).await else { return truncated_response() };
    let is_kept = match injector.mistake {
        ReceiverFault::RecordsEverything => !id.is_empty() && head.status != StatusCode::CONFLICT,
        ReceiverFault::RecordsDeadlines => is_late,
        _ => false,
    };
    if is_kept {
        injector.answers.lock().unwrap().insert(id, (head.status, body.clone()));
    }
    let text = String::from_utf8_lossy(&body).into_owned();
    let body: Bytes = match injector.mistake {
        ReceiverFault::WritesAnswersAnew if is_duplicate => text.replace(':', ": ").into(),
        ReceiverFault::RefusesWithoutAWord if text.contains("METADATA_MALFORMED") => "no".into(),
        ReceiverFault::AnswersInternalForDataLoss => text.replace("DATA_LOSS", "INTERNAL").into(),
        ReceiverFault::AnswersPlain500 if !head.status.is_success() => {
            head.status = StatusCode::INTERNAL_SERVER_ERROR;
            body
        }
        ReceiverFault::AnswersEverythingWith200 => {
            head.status = StatusCode::OK;
            body
        }
        ReceiverFault::CutsPayloads if body.len() > 100_000 => text.replace("xxxx", "x").into(),
        ReceiverFault::ForgetsContexts => text.replace("\"executionId\"", "\"execution\"").into(),
        _ => body,
    };
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(body))
}

fn identity(headers: &HeaderMap) -> Vec<u8> {
    let value = |key| headers.get(key).map(HeaderValue::as_bytes).unwrap_or_default();
    let execution = value(EXECUTION_ID);
    let key = value(IDEMPOTENCY_KEY);
    if execution.is_empty() || key.is_empty() { Vec::new() } else { [execution, key].join(&0) }
}

/// Replaces the value of a key that is present once, if the identity is complete.
fn set(headers: &mut HeaderMap, key: &'static str, value: HeaderValue) {
    if !identity(headers).is_empty() && headers.get_all(key).iter().count() == 1 {
        headers.insert(key, value);
    }
}

/// Appends the value of `by` to the value of `key`.
fn extend(headers: &mut HeaderMap, key: &'static str, by: &str) {
    let text =
        |key: &str| headers.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let value = HeaderValue::try_from(format!("{}-{}", text(key), text(by))).unwrap();
    set(headers, key, value);
}

fn number(headers: &HeaderMap, key: &str) -> Option<i64> {
    headers
        .get(key)?
        .to_str()
        .ok()
        .filter(|text| !text.starts_with('+'))?
        .parse()
        .ok()
        .filter(|number| *number >= 0)
}

fn first_of_two(headers: &mut HeaderMap) {
    let keys: Vec<_> = headers.keys().cloned().collect();
    for key in keys {
        if let Some(first) = headers.get(&key).cloned() {
            headers.insert(key, first);
        }
    }
}

fn status(status: u16) -> Response {
    StatusCode::from_u16(status).unwrap().into_response()
}

/// A response whose body breaks off.
fn truncated_response() -> Response {
    let broken = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("truncated")) });
    Response::new(Body::from_stream(broken))
}
