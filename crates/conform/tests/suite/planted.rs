//! Mistakes that services make, planted between the wire and a receiver that makes none: requests are changed before it sees them, or
//! answers after it gave them.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use abide_dispatch::metadata::{DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT};
use abide_dispatch::wire::PROBE;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mistake {
    None,
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

/// A mistake, and what it remembers.
pub(crate) struct Planted {
    mistake: Mistake,
    drawn: AtomicU64,
    seen: Mutex<HashSet<Vec<u8>>>,
    under_way: Mutex<HashSet<Vec<u8>>>,
    answers: Mutex<HashMap<Vec<u8>, (StatusCode, Bytes)>>,
}

impl Planted {
    pub(crate) fn new(mistake: Mistake) -> Self {
        Self {
            mistake,
            drawn: AtomicU64::new(0),
            seen: Mutex::default(),
            under_way: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    /// A value that no other call has.
    fn draw(&self) -> HeaderValue {
        HeaderValue::from(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}

pub(crate) async fn meddle(State(planted): State<Arc<Planted>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let Ok(mut body) = to_bytes(body, 8 * 1024 * 1024).await else { return gone() };
    let headers = &mut head.headers;
    let text = String::from_utf8_lossy(&body).into_owned();
    let id = identity(headers);
    let is_again = !id.is_empty() && !planted.seen.lock().unwrap().insert(id.clone());
    let has_metadata = headers.keys().any(|key| key.as_str().starts_with("x-tpf-"));
    let is_probe = headers.contains_key(PROBE) || head.uri.path().ends_with("/Probe");
    let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|value| value == "application/grpc");
    match planted.mistake {
        Mistake::ForgetsDuplicates => set(headers, IDEMPOTENCY_KEY, planted.draw()),
        Mistake::TakesAttemptsForWork => extend(headers, IDEMPOTENCY_KEY, RETRY_ATTEMPT),
        Mistake::TakesInputsForWork if has_metadata => {
            let mut digest = DefaultHasher::new();
            body.hash(&mut digest);
            headers.insert("x-digest", HeaderValue::from(digest.finish()));
            extend(headers, IDEMPOTENCY_KEY, "x-digest");
        }
        Mistake::RunsDuplicatesAtOnce if is_probe => {}
        Mistake::RunsDuplicatesAtOnce if !planted.under_way.lock().unwrap().insert(id.clone()) => {
            set(headers, IDEMPOTENCY_KEY, planted.draw());
        }
        Mistake::IgnoresExecutions => set(headers, EXECUTION_ID, HeaderValue::from_static("one")),
        Mistake::IgnoresKeys => set(headers, IDEMPOTENCY_KEY, HeaderValue::from_static("one")),
        Mistake::IgnoresDeadlines => drop(headers.remove(DEADLINE)),
        Mistake::DemandsDeadlines if has_metadata && !headers.contains_key(DEADLINE) => {
            headers.insert(DEADLINE, HeaderValue::from_static("1"));
        }
        Mistake::LooksAtDeadlinesFirst
            if number(headers, DEADLINE).is_some_and(|at| at < crate::world::NOW) =>
        {
            headers.insert(IDEMPOTENCY_KEY, planted.draw());
        }
        Mistake::TakesTheFirstOfTwo => first_of_two(headers),
        Mistake::TakesWrongNumbers => {
            for key in [RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT] {
                if headers.contains_key(key) && number(headers, key).is_none() {
                    headers.remove(key);
                }
            }
        }
        Mistake::TakesAnyText => {
            let odd = |value: &HeaderValue| value.len() > 512 || value.to_str().is_err();
            let keys: Vec<_> =
                headers.iter().filter(|(_, value)| odd(value)).map(|(key, _)| key.clone()).collect();
            for key in keys {
                headers.remove(key);
            }
        }
        Mistake::InventsIdentities if has_metadata => {
            for key in [EXECUTION_ID, IDEMPOTENCY_KEY] {
                if headers.get(key).is_none_or(HeaderValue::is_empty) {
                    headers.insert(key, planted.draw());
                }
            }
        }
        Mistake::NeverTheSameWithoutMetadata | Mistake::AllTheSameWithoutMetadata if !has_metadata => {
            let own = planted.mistake == Mistake::NeverTheSameWithoutMetadata;
            let key = if own { planted.draw() } else { HeaderValue::from_static("one") };
            headers.insert(EXECUTION_ID, HeaderValue::from_static("nobody"));
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        Mistake::RefusesBigBodies if body.len() > 100_000 => return status(413),
        Mistake::BreaksOffBigBodies if body.len() > 1_100_000 => return gone(),
        Mistake::AsksToTryTooBigAgain if body.len() > 1_100_000 => return status(503),
        Mistake::TakesAnySize if body.len() > 1_100_000 => {
            body = text.replace("  ", "").into();
        }
        Mistake::RunsUnknownActivities if head.uri.path().ends_with("nobody-serves-this") => {
            head.uri = "/activities/conformance".parse().unwrap();
        }
        Mistake::TakesAnyContentType => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Mistake::IgnoresProbes => drop(headers.remove(PROBE)),
        Mistake::ProbesForgetful if is_probe => {
            headers.insert(EXECUTION_ID, HeaderValue::from_static("nobody"));
        }
        Mistake::TakesAnyVersion if text.contains("tpf.envelope.v2") => {
            body = text.replace("tpf.envelope.v2", "tpf.envelope.v1").into();
        }
        Mistake::BelievesContextsOnly => {
            let keys: Vec<_> =
                headers.keys().filter(|key| key.as_str().starts_with("x-tpf-")).cloned().collect();
            for key in keys {
                headers.remove(key);
            }
        }
        Mistake::RecordsSuccessOnly if text.contains("\"fail\"") => {
            headers.insert(IDEMPOTENCY_KEY, planted.draw());
        }
        Mistake::Hangs => std::future::pending().await,
        Mistake::HangsOnDuplicates if is_again => std::future::pending().await,
        Mistake::IsSomebodyElse => return "welcome".into_response(),
        _ => {}
    }
    if planted.mistake == Mistake::RecordsEverything
        && let Some((status, body)) = planted.answers.lock().unwrap().get(&id)
    {
        return (*status, body.clone()).into_response();
    }
    let is_late = number(headers, DEADLINE).is_some_and(|at| at < crate::world::NOW);
    if planted.mistake == Mistake::RecordsDeadlines
        && let Some((status, body)) = planted.answers.lock().unwrap().get(&id)
    {
        return (*status, body.clone()).into_response();
    }
    headers.remove(CONTENT_LENGTH);
    let answered = next.run(Request::from_parts(head, Body::from(body))).await;
    if !is_probe {
        planted.under_way.lock().unwrap().remove(&id);
    }
    if is_grpc {
        // Answers have trailers, which stay as they are.
        return answered;
    }
    let (mut head, body) = answered.into_parts();
    let Ok(body) = to_bytes(body, 8 * 1024 * 1024).await else { return gone() };
    let keeps = match planted.mistake {
        Mistake::RecordsEverything => !id.is_empty() && head.status != StatusCode::CONFLICT,
        Mistake::RecordsDeadlines => is_late,
        _ => false,
    };
    if keeps {
        planted.answers.lock().unwrap().insert(id, (head.status, body.clone()));
    }
    let text = String::from_utf8_lossy(&body).into_owned();
    let body: Bytes = match planted.mistake {
        Mistake::WritesAnswersAnew if is_again => text.replace(':', ": ").into(),
        Mistake::RefusesWithoutAWord if text.contains("METADATA_MALFORMED") => "no".into(),
        Mistake::AnswersInternalForDataLoss => text.replace("DATA_LOSS", "INTERNAL").into(),
        Mistake::AnswersPlain500 if !head.status.is_success() => {
            head.status = StatusCode::INTERNAL_SERVER_ERROR;
            body
        }
        Mistake::AnswersEverythingWith200 => {
            head.status = StatusCode::OK;
            body
        }
        Mistake::CutsPayloads if body.len() > 100_000 => text.replace("xxxx", "x").into(),
        Mistake::ForgetsContexts => text.replace("\"executionId\"", "\"execution\"").into(),
        _ => body,
    };
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(body))
}

fn identity(headers: &HeaderMap) -> Vec<u8> {
    let of = |key| headers.get(key).map(HeaderValue::as_bytes).unwrap_or_default();
    let (execution, key) = (of(EXECUTION_ID), of(IDEMPOTENCY_KEY));
    if execution.is_empty() || key.is_empty() { Vec::new() } else { [execution, key].join(&0) }
}

/// A value in place of one that is there, where there is nothing wrong with it.
fn set(headers: &mut HeaderMap, key: &'static str, value: HeaderValue) {
    if !identity(headers).is_empty() && headers.get_all(key).iter().count() == 1 {
        headers.insert(key, value);
    }
}

/// One value made part of another.
fn extend(headers: &mut HeaderMap, key: &'static str, by: &str) {
    let of =
        |key: &str| headers.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let value = HeaderValue::try_from(format!("{}-{}", of(key), of(by))).unwrap();
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

/// An answer that breaks off.
fn gone() -> Response {
    let broken = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("gone")) });
    Response::new(Body::from_stream(broken))
}
