//! One request to the server together with the type of its response. Nothing is sent before the request is awaited.
//! Retries and deadlines are the job of [`Client`].

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::address::ApiPath;
use crate::client::Client;
use crate::error::ClientError;
use crate::retry::RetrySafety;
use crate::transport::{ServerRequest, ServerResponse};

/// The content type of most request bodies.
const JSON_CONTENT_TYPE: &str = "application/json";

/// A request that has not been sent yet. Await it for the typed response, or [`ClientRequest::raw`] for the unparsed
/// JSON.
#[must_use = "a request is sent when it is awaited"]
pub struct ClientRequest<T> {
    client: Client,
    server_request: ServerRequest,
    retry_safety: RetrySafety,
    server_wait: Duration,
    /// Why the request could not be built. Returned when the request is awaited.
    build_error: Option<ClientError>,
    response_type: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for ClientRequest<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientRequest")
            .field("server_request", &self.server_request)
            .field("retry_safety", &self.retry_safety)
            .finish_non_exhaustive()
    }
}

impl<T> ClientRequest<T> {
    pub(crate) fn new(client: &Client, method: Method, path: ApiPath, retry_safety: RetrySafety) -> Self {
        let server_request =
            ServerRequest { method, path, body: Bytes::new(), content_type: None, idempotency_key: None };
        let client = client.clone();
        let server_wait = Duration::ZERO;
        Self {
            client,
            server_request,
            retry_safety,
            server_wait,
            build_error: None,
            response_type: PhantomData,
        }
    }

    /// A GET request, which is safe to retry.
    pub(crate) fn get(client: &Client, path: ApiPath) -> Self {
        Self::new(client, Method::GET, path, RetrySafety::Safe)
    }

    /// Sets a body that is already serialised.
    pub(crate) fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.server_request.body = body.into();
        self.server_request.content_type = Some(content_type);
        self
    }

    /// Sets a JSON body.
    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        self.json_as(JSON_CONTENT_TYPE, body)
    }

    /// Sets a JSON body with its own content type.
    pub(crate) fn json_as(mut self, content_type: &'static str, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body(content_type, body),
            Err(error) => {
                self.build_error = Some(ClientError::InvalidRequest { reason: error.to_string() });
                self
            }
        }
    }

    /// Adds an idempotency key: the caller's, or a new one. The request is then safe to retry.
    pub(crate) fn idempotency_key(mut self, key: Option<&str>) -> Self {
        let key = key.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
        self.server_request.idempotency_key = Some(key);
        self.retry_safety = RetrySafety::Safe;
        self
    }

    /// How long the server may hold the request before it responds. It is added to the client's timeout.
    pub(crate) fn server_wait(self, server_wait: Duration) -> Self {
        Self { server_wait, ..self }
    }

    /// Sends the request and returns the response data unparsed, for callers that pass it on.
    pub async fn raw(self) -> Result<Box<RawValue>, ClientError> {
        let client = self.client.clone();
        let response = self.exchange().await?;
        client.data(&response)
    }

    /// Sends the request and returns the whole successful response.
    pub(crate) async fn exchange(self) -> Result<ServerResponse, ClientError> {
        match self.build_error {
            Some(error) => Err(error),
            None => self.client.exchange(&self.server_request, self.retry_safety, self.server_wait).await,
        }
    }
}

impl<T: DeserializeOwned + 'static> IntoFuture for ClientRequest<T> {
    type Output = Result<T, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let client = self.client.clone();
            let response = self.exchange().await?;
            let data = client.data(&response)?;
            serde_json::from_str(data.get())
                .map_err(|error| client.unexpected_response(&response, &error.to_string()))
        })
    }
}
