//! The client: the server's address, the timeout and the retries. The methods of each API resource are in that
//! resource's file.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::address::ServerAddress;
use crate::error::{ClientError, ErrorCode, ErrorDetail, ErrorResponse};
use crate::retry::{RetrySafety, retry_delay};
use crate::transport::{ResponseStream, ServerRequest, ServerResponse, Transport};

/// The address a server listens on by default.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// How long a response may take, all retries together.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// How often a request is retried where that is safe.
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
        let transport = Arc::new(Transport::new(ServerAddress::parse(base_url)?));
        Ok(Self { transport, timeout: TIMEOUT_DEFAULT, retries: RETRIES_DEFAULT })
    }

    /// Sets how long a response may take, all retries together. A wait that a request asks of the server is added.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how often a request is retried where that is safe.
    #[must_use]
    pub fn with_retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Host and port of the server.
    pub fn server(&self) -> &str {
        self.transport.server()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request once and returns the body of its response as a stream.
    pub(crate) async fn open_stream(
        &self,
        server_request: &ServerRequest,
    ) -> Result<ResponseStream, ClientError> {
        let within = self.timeout;
        let timed_out = |_| ClientError::Timeout { server: self.server().to_owned(), within };
        let opened = timeout_at(Instant::now() + within, self.transport.exchange_streamed(server_request));
        let opened = opened.await.map_err(timed_out)??;
        opened.map_err(|response| self.error_from_response(&response))
    }

    /// Sends a request until it succeeds, as far as retries are safe, allowed and in time. `server_wait` is how long
    /// the server itself may hold the request.
    pub(crate) async fn exchange(
        &self,
        server_request: &ServerRequest,
        retry_safety: RetrySafety,
        server_wait: Duration,
    ) -> Result<ServerResponse, ClientError> {
        let within = self.timeout.saturating_add(server_wait);
        let deadline = Instant::now() + within;
        let mut failures = 0;
        loop {
            let timed_out = || ClientError::Timeout { server: self.server().to_owned(), within };
            let attempt = timeout_at(deadline, self.transport.exchange(server_request)).await;
            let (error, retry_after) = match attempt.map_err(|_| timed_out())? {
                Ok(response) if (200..300).contains(&response.status) => return Ok(response),
                Ok(response) => (self.error_from_response(&response), retry_after(&response.headers)),
                Err(error) => (error, None),
            };
            failures += 1;
            match retry_delay(&error, retry_safety, failures, retry_after) {
                Some(delay) if failures <= self.retries && Instant::now() + delay < deadline => {
                    tokio::time::sleep(delay).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// The error that a response without a success status describes.
    fn error_from_response(&self, response: &ServerResponse) -> ClientError {
        match serde_json::from_slice(&response.body) {
            Ok(ResponseEnvelope { correlation_id, error: Some(error), .. }) => {
                let ErrorJson { code, message, target, details } = error;
                let status = response.status;
                ClientError::Refused(Box::new(ErrorResponse {
                    status,
                    code,
                    message,
                    target,
                    details,
                    correlation_id,
                }))
            }
            _ => self.unexpected_response(response, "not a response of the Abide API"),
        }
    }

    /// The unparsed data of a successful response.
    pub(crate) fn data(&self, response: &ServerResponse) -> Result<Box<RawValue>, ClientError> {
        let envelope: ResponseEnvelope = serde_json::from_slice(&response.body)
            .map_err(|error| self.unexpected_response(response, &error.to_string()))?;
        envelope.data.ok_or_else(|| self.unexpected_response(response, "it has no data"))
    }

    pub(crate) fn unexpected_response(&self, response: &ServerResponse, reason: &str) -> ClientError {
        let server = self.server().to_owned();
        let reason = reason.to_owned();
        ClientError::UnexpectedResponse { server, status: response.status, reason }
    }
}

/// The JSON object around every response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseEnvelope {
    #[serde(default)]
    correlation_id: String,
    data: Option<Box<RawValue>>,
    error: Option<ErrorJson>,
}

#[derive(Deserialize)]
struct ErrorJson {
    code: ErrorCode,
    message: String,
    target: Option<String>,
    #[serde(default)]
    details: Vec<ErrorDetail>,
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}
