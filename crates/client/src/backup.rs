//! A copy of the server's store while the server works.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use tokio::time::timeout;

use crate::address::ApiPath;
use crate::client::Client;
use crate::error::ClientError;
use crate::transport::{ResponseStream, ServerRequest};

/// A copy that is being received.
#[derive(Debug)]
pub struct BackupStream {
    stream: ResponseStream,
    server: String,
    /// How long the server may send nothing.
    within: Duration,
}

impl Client {
    /// Asks the server for a copy of its store. It is not retried, and only each wait for more bytes has a limit.
    pub async fn backup(&self) -> Result<BackupStream, ClientError> {
        let request = ServerRequest {
            method: Method::GET,
            path: ApiPath::new("/api/backup"),
            body: Bytes::new(),
            content_type: None,
            idempotency_key: None,
        };
        let stream = self.open_stream(&request).await?;
        Ok(BackupStream { stream, server: self.server().to_owned(), within: self.timeout() })
    }
}

impl BackupStream {
    /// The next bytes of the copy, or `None` at its end. Only the receiver of the copy can tell whether it is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let late = |_| ClientError::Timeout { server: self.server.clone(), within: self.within };
        timeout(self.within, self.stream.next()).await.map_err(late)?
    }
}
