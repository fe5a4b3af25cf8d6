//! The receiver of the rigs: takes calls over HTTP and does the work of each idempotency key once.
//!
//! Some calls get a late response, some a 503 and some none. A 503 or a missing response happens only at the first
//! attempt of a key, after the work was done.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// One attempt as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct AttemptRequest {
    pub key: String,
    pub execution: String,
    pub attempt: u32,
    pub body: Value,
}

/// The work of one idempotency key.
#[derive(Debug)]
pub(crate) struct ReceivedWork {
    pub execution: String,
    pub body: Value,
    pub attempts: Vec<u32>,
    /// The result; the same for every attempt.
    pub answer: Value,
}

/// All attempts that arrived.
#[derive(Default, Debug)]
pub(crate) struct ReceiverLog {
    pub work: HashMap<String, ReceivedWork>,
    /// Run and number of the effect → the keys of its attempts.
    pub effects: HashMap<(String, u64), Vec<String>>,
    pub attempts: u64,
    /// Attempts with a number > 0.
    pub repeated_attempts: u64,
    pub findings: Vec<String>,
}

impl ReceiverLog {
    /// Records an attempt and does its work if the key is new. Returns the result, and whether the key was new.
    fn on_attempt(&mut self, request: AttemptRequest) -> (Value, bool) {
        let AttemptRequest { key, execution, attempt, body } = request;
        self.attempts += 1;
        self.repeated_attempts += u64::from(attempt > 0);
        if let Some(work) = self.work.get_mut(&key) {
            if work.execution != execution || work.body != body {
                let first = &work.execution;
                let body_first = &work.body;
                self.findings.push(format!(
                    "key {key} was used for {first} {body_first} and then for {execution} {body}"
                ));
            }
            if work.attempts.contains(&attempt) {
                self.findings.push(format!(
                    "key {key} of {execution} got attempt {attempt} twice: {:?}",
                    work.attempts
                ));
            }
            work.attempts.push(attempt);
            return (work.answer.clone(), false);
        }
        let id = body.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let n = body.get("n").and_then(Value::as_u64).unwrap_or_default();
        if body.get("execution").and_then(Value::as_str) != Some(execution.as_str()) {
            self.findings.push(format!("key {key} has execution {execution}, but its body says {body}"));
        }
        let answer = json!({"id": id, "n": n, "effect": self.work.len()});
        self.effects.entry((id, n)).or_default().push(key.clone());
        let work = ReceivedWork { execution, body, attempts: vec![attempt], answer: answer.clone() };
        self.work.insert(key, work);
        (answer, true)
    }
}

/// Listens for calls.
#[derive(Clone, Debug)]
pub(crate) struct RigReceiver {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<ReceiverLog>>,
}

impl RigReceiver {
    pub(crate) async fn start() -> Result<Self, String> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let receiver = Self { address, log: Arc::default() };
        let serving = receiver.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let receiver = serving.clone();
                let service = service_fn(move |request| receiver.clone().serve(request));
                // A killed caller closes the connection; that is expected.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(receiver)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, ReceiverLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that did not arrive completely is no attempt. An error closes the connection without a response.
    async fn serve(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, NoResponse> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| NoResponse)?.to_bytes();
        let Some(attempt) = delivery(&head.headers, &body) else {
            let text = String::from_utf8_lossy(&body);
            self.log().findings.push(format!("an attempt without its headers: {:?} {text}", head.headers));
            return Ok(answer(StatusCode::BAD_REQUEST, &Value::Null));
        };
        let behaviour = ReceiverBehaviour::of(&attempt.key);
        let (result, first) = self.log().on_attempt(attempt);
        match behaviour {
            ReceiverBehaviour::Busy if first => Ok(answer(StatusCode::SERVICE_UNAVAILABLE, &Value::Null)),
            ReceiverBehaviour::Silent if first => Err(NoResponse),
            ReceiverBehaviour::Slow(pause) => {
                tokio::time::sleep(pause).await;
                Ok(answer(StatusCode::OK, &result))
            }
            _ => Ok(answer(StatusCode::OK, &result)),
        }
    }
}

/// How the receiver responds.
enum ReceiverBehaviour {
    Quick,
    Slow(Duration),
    Busy,
    Silent,
}

impl ReceiverBehaviour {
    fn of(key: &str) -> Self {
        let byte = key.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or_default();
        match byte % 32 {
            0 => Self::Busy,
            1 => Self::Silent,
            2..=12 => Self::Slow(Duration::from_millis(u64::from(byte) / 2)),
            _ => Self::Quick,
        }
    }
}

#[derive(Debug)]
struct NoResponse;

impl std::fmt::Display for NoResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the receiver does not respond")
    }
}

impl std::error::Error for NoResponse {}

fn delivery(headers: &HeaderMap, body: &[u8]) -> Option<AttemptRequest> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Some(AttemptRequest {
        key: text("x-tpf-idempotency-key")?.to_owned(),
        execution: text("x-tpf-execution-id")?.to_owned(),
        attempt: text("x-tpf-retry-attempt")?.parse().ok()?,
        body: serde_json::from_slice(body).ok()?,
    })
}

fn answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(key: &str, execution: &str, n: u64, attempt: u32) -> AttemptRequest {
        let body = json!({"id": "a", "execution": execution, "n": n});
        AttemptRequest { key: key.to_owned(), execution: execution.to_owned(), attempt, body }
    }

    #[test]
    fn work_is_done_once_and_every_attempt_gets_the_same_result() {
        let mut log = ReceiverLog::default();
        let (first, is_first) = log.on_attempt(delivery("k", "a/1", 1, 0));
        let (again, is_again) = log.on_attempt(delivery("k", "a/1", 1, 1));
        assert_eq!((first, is_first, is_again), (again, true, false));
        assert_eq!((log.attempts, log.repeated_attempts, log.work.len()), (2, 1, 1));
        assert!(log.findings.is_empty());
    }

    #[test]
    fn a_reused_attempt_number_and_a_reused_key_are_found() {
        let mut log = ReceiverLog::default();
        log.on_attempt(delivery("k", "a/1", 1, 0));
        log.on_attempt(delivery("k", "a/1", 1, 0));
        assert_eq!(log.findings.len(), 1);
        log.on_attempt(delivery("k", "a/2", 1, 2));
        log.on_attempt(delivery("k", "a/1", 2, 3));
        assert_eq!(log.findings.len(), 3);
    }
}
