//! One call: what is asked, and of which type the answer is. Awaiting it asks.

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

use crate::address::Path;
use crate::client::Client;
use crate::error::ClientError;
use crate::retry::Repeat;
use crate::transport::{Answer, Outgoing};

/// The kind of body that most calls have.
const JSON: &str = "application/json";

/// A call that has not been made. Await it for the typed answer, or [`Call::raw`] for the JSON as it came.
#[must_use = "a call is made when it is awaited"]
pub struct Call<T> {
    client: Client,
    outgoing: Outgoing,
    repeat: Repeat,
    patience: Duration,
    /// Why the request could not be written; told when it is made.
    broken: Option<ClientError>,
    answer: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("outgoing", &self.outgoing)
            .field("repeat", &self.repeat)
            .finish_non_exhaustive()
    }
}

impl<T> Call<T> {
    pub(crate) fn new(client: &Client, method: Method, path: Path, repeat: Repeat) -> Self {
        let outgoing =
            Outgoing { method, path, body: Bytes::new(), content_type: None, idempotency_key: None };
        let (client, patience) = (client.clone(), Duration::ZERO);
        Self { client, outgoing, repeat, patience, broken: None, answer: PhantomData }
    }

    /// Reads something.
    pub(crate) fn get(client: &Client, path: Path) -> Self {
        Self::new(client, Method::GET, path, Repeat::Safe)
    }

    /// With a body that is written already.
    pub(crate) fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.outgoing.body = body.into();
        self.outgoing.content_type = Some(content_type);
        self
    }

    /// With a body of JSON.
    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        self.json_as(JSON, body)
    }

    /// With a body of a kind of JSON.
    pub(crate) fn json_as(mut self, content_type: &'static str, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body(content_type, body),
            Err(error) => {
                self.broken = Some(ClientError::Request { reason: error.to_string() });
                self
            }
        }
    }

    /// With a key by which a repeat is recognised: the caller's, or a new one. So it may be repeated.
    pub(crate) fn keyed(mut self, key: Option<&str>) -> Self {
        let key = key.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
        self.outgoing.idempotency_key = Some(key);
        self.repeat = Repeat::Safe;
        self
    }

    /// The server itself may take so long.
    pub(crate) fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Makes the call: the answer's data as it came, for those who pass it on.
    pub async fn raw(self) -> Result<Box<RawValue>, ClientError> {
        let client = self.client.clone();
        let answer = self.exchange().await?;
        client.data(&answer)
    }

    /// Makes the call: the whole answer, whatever it is.
    pub(crate) async fn exchange(self) -> Result<Answer, ClientError> {
        match self.broken {
            Some(broken) => Err(broken),
            None => self.client.exchange(&self.outgoing, self.repeat, self.patience).await,
        }
    }
}

impl<T: DeserializeOwned + 'static> IntoFuture for Call<T> {
    type Output = Result<T, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let client = self.client.clone();
            let answer = self.exchange().await?;
            let data = client.data(&answer)?;
            serde_json::from_str(data.get()).map_err(|error| client.unexpected(&answer, &error.to_string()))
        })
    }
}
