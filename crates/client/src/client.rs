//! The client: where the server is, how long an answer may take, how often a call is repeated. Methods are in the files of their resources.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::error::{ClientError, Code, Detail, Refusal};
use crate::retry::{Repeat, pause_after};
use crate::transport::{Answer, Outgoing, Transport};

/// Where a server listens unless it is told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// How long an answer may take, all repeats together.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// How often a call is repeated, where that is safe.
const RETRIES_DEFAULT: u32 = 3;

/// A client of one server. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
    timeout: Duration,
    retries: u32,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.transport.server();
        f.debug_struct("Client")
            .field("server", &server)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at this URL, such as [`DEFAULT_URL`]. Nothing is sent.
    pub fn new(base_url: &str) -> Result<Self, ClientError> {
        let transport = Arc::new(Transport::new(Address::parse(base_url)?));
        Ok(Self { transport, timeout: TIMEOUT_DEFAULT, retries: RETRIES_DEFAULT })
    }

    /// The same, waiting so long for an answer. What a call asks the server to wait for comes on top.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same, repeating a call so often where that is safe.
    #[must_use]
    pub fn with_retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Where the server is: host and port.
    pub fn server(&self) -> &str {
        self.transport.server()
    }

    /// A successful answer, repeated for until there is one, as far as that is safe. `patience` is what the server itself may take.
    pub(crate) async fn exchange(
        &self,
        outgoing: &Outgoing,
        repeat: Repeat,
        patience: Duration,
    ) -> Result<Answer, ClientError> {
        let within = self.timeout.saturating_add(patience);
        let deadline = Instant::now() + within;
        let mut failures = 0;
        loop {
            let timed_out = || ClientError::Timeout { server: self.server().to_owned(), within };
            let attempt = timeout_at(deadline, self.transport.exchange(outgoing)).await;
            let (error, retry_after) = match attempt.map_err(|_| timed_out())? {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(answer),
                Ok(answer) => (self.refused(&answer), retry_after(&answer.headers)),
                Err(error) => (error, None),
            };
            failures += 1;
            match pause_after(&error, repeat, failures, retry_after) {
                Some(pause) if failures <= self.retries && Instant::now() + pause < deadline => {
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// What an answer that is none says.
    fn refused(&self, answer: &Answer) -> ClientError {
        match serde_json::from_slice(&answer.body) {
            Ok(Envelope { correlation_id, error: Some(error), .. }) => {
                let ErrorJson { code, message, target, details } = error;
                let status = answer.status;
                ClientError::Refused(Box::new(Refusal {
                    status,
                    code,
                    message,
                    target,
                    details,
                    correlation_id,
                }))
            }
            _ => self.unexpected(answer, "it is not an answer of this interface"),
        }
    }

    /// The data of a successful answer, as it came.
    pub(crate) fn data(&self, answer: &Answer) -> Result<Box<RawValue>, ClientError> {
        let envelope: Envelope = serde_json::from_slice(&answer.body)
            .map_err(|error| self.unexpected(answer, &error.to_string()))?;
        envelope.data.ok_or_else(|| self.unexpected(answer, "it has no data"))
    }

    pub(crate) fn unexpected(&self, answer: &Answer, reason: &str) -> ClientError {
        let (server, reason) = (self.server().to_owned(), reason.to_owned());
        ClientError::Unexpected { server, status: answer.status, reason }
    }
}

/// What is around every answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    #[serde(default)]
    correlation_id: String,
    data: Option<Box<RawValue>>,
    error: Option<ErrorJson>,
}

#[derive(Deserialize)]
struct ErrorJson {
    code: Code,
    message: String,
    target: Option<String>,
    #[serde(default)]
    details: Vec<Detail>,
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}
