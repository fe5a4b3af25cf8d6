//! The world outside: takes calls over HTTP, does each piece of work once, and is not always easy to deal with.
//!
//! Some calls are answered late, some with 503 and some not at all, each only the first time its work is delivered, and each after the
//! work was done.

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

/// One delivery as it came.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub key: String,
    pub execution: String,
    pub attempt: u32,
    pub body: Value,
}

/// One piece of work, as its idempotency key names it.
#[derive(Debug)]
pub(crate) struct Work {
    pub execution: String,
    pub body: Value,
    pub attempts: Vec<u32>,
    /// What its effect is answered with, always.
    pub answer: Value,
}

/// Everything that was delivered.
#[derive(Default, Debug)]
pub(crate) struct Book {
    pub work: HashMap<String, Work>,
    /// Whose effect, and which of the run's → the keys it came with.
    pub effects: HashMap<(String, u64), Vec<String>>,
    pub deliveries: u64,
    /// Deliveries that were told not to be the first.
    pub redeliveries: u64,
    pub findings: Vec<String>,
}

impl Book {
    /// Notes a delivery and does its work if it is new. The answer, and whether it is the first time.
    fn take(&mut self, delivery: Delivery) -> (Value, bool) {
        let Delivery { key, execution, attempt, body } = delivery;
        self.deliveries += 1;
        self.redeliveries += u64::from(attempt > 0);
        if let Some(work) = self.work.get_mut(&key) {
            if work.execution != execution || work.body != body {
                let (first, body_first) = (&work.execution, &work.body);
                self.findings
                    .push(format!("key {key} was {first} {body_first}, and came with {execution} {body}"));
            }
            if work.attempts.contains(&attempt) {
                self.findings.push(format!(
                    "key {key} of {execution} came with attempt {attempt} twice: {:?}",
                    work.attempts
                ));
            }
            work.attempts.push(attempt);
            return (work.answer.clone(), false);
        }
        let id = body.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let n = body.get("n").and_then(Value::as_u64).unwrap_or_default();
        if body.get("execution").and_then(Value::as_str) != Some(execution.as_str()) {
            self.findings.push(format!("key {key} came as {execution}, and its body says {body}"));
        }
        let answer = json!({"id": id, "n": n, "effect": self.work.len()});
        self.effects.entry((id, n)).or_default().push(key.clone());
        let work = Work { execution, body, attempts: vec![attempt], answer: answer.clone() };
        self.work.insert(key, work);
        (answer, true)
    }
}

/// Listens for calls.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    book: Arc<Mutex<Book>>,
}

impl Receiver {
    pub(crate) async fn start() -> Result<Self, String> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let receiver = Self { address, book: Arc::default() };
        let serving = receiver.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let receiver = serving.clone();
                let service = service_fn(move |request| receiver.clone().serve(request));
                // A caller that was killed breaks off, and that is no news.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(receiver)
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that did not arrive whole is no delivery. An error closes the connection without an answer.
    async fn serve(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Unanswered> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Unanswered)?.to_bytes();
        let Some(delivery) = delivery(&head.headers, &body) else {
            let text = String::from_utf8_lossy(&body);
            self.book().findings.push(format!("a delivery without its headers: {:?} {text}", head.headers));
            return Ok(answer(StatusCode::BAD_REQUEST, &Value::Null));
        };
        let mood = Mood::of(&delivery.key);
        let (told, first) = self.book().take(delivery);
        match mood {
            Mood::Busy if first => Ok(answer(StatusCode::SERVICE_UNAVAILABLE, &Value::Null)),
            Mood::Silent if first => Err(Unanswered),
            Mood::Slow(pause) => {
                tokio::time::sleep(pause).await;
                Ok(answer(StatusCode::OK, &told))
            }
            _ => Ok(answer(StatusCode::OK, &told)),
        }
    }
}

/// How a piece of work is answered.
enum Mood {
    Quick,
    Slow(Duration),
    Busy,
    Silent,
}

impl Mood {
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
struct Unanswered;

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the receiver does not answer")
    }
}

impl std::error::Error for Unanswered {}

fn delivery(headers: &HeaderMap, body: &[u8]) -> Option<Delivery> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Some(Delivery {
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

    fn delivery(key: &str, execution: &str, n: u64, attempt: u32) -> Delivery {
        let body = json!({"id": "a", "execution": execution, "n": n});
        Delivery { key: key.to_owned(), execution: execution.to_owned(), attempt, body }
    }

    #[test]
    fn work_is_done_once_and_answered_alike() {
        let mut book = Book::default();
        let (first, is_first) = book.take(delivery("k", "a/1", 1, 0));
        let (again, is_again) = book.take(delivery("k", "a/1", 1, 1));
        assert_eq!((first, is_first, is_again), (again, true, false));
        assert_eq!((book.deliveries, book.redeliveries, book.work.len()), (2, 1, 1));
        assert!(book.findings.is_empty());
    }

    #[test]
    fn a_number_used_twice_and_a_key_used_for_something_else_are_found() {
        let mut book = Book::default();
        book.take(delivery("k", "a/1", 1, 0));
        book.take(delivery("k", "a/1", 1, 0));
        assert_eq!(book.findings.len(), 1);
        book.take(delivery("k", "a/2", 1, 2));
        book.take(delivery("k", "a/1", 2, 3));
        assert_eq!(book.findings.len(), 3);
    }
}
