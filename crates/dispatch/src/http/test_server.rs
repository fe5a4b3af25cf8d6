//! A server for tests: answers every request with the same bytes and records the requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A self-signed certificate for `service.test`, valid until 2120, that only tests use and trust.
pub(crate) fn certificate() -> CertificateDer<'static> {
    CertificateDer::from(include_bytes!("testdata/service.test.der").as_slice())
}

/// The reaction to a request once it has been read.
#[derive(Clone)]
pub(crate) enum CannedReply {
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Sends nothing and keeps the connection open.
    Silence,
    /// Closes the connection without a response.
    HangUp,
}

#[derive(Default)]
struct RequestLog {
    requests: Mutex<Vec<String>>,
    received: Notify,
    left: Notify,
}

/// A server on the loopback address; it stops when it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    seen: Arc<RequestLog>,
    serving: JoinHandle<()>,
}

impl TestServer {
    /// Serves without TLS.
    pub(crate) async fn start(reply: CannedReply) -> Self {
        Self::serve(reply, None).await
    }

    /// Serves over TLS, as `service.test`.
    pub(crate) async fn start_tls(reply: CannedReply) -> Self {
        let key = PrivatePkcs8KeyDer::from(include_bytes!("testdata/service.test.key.der").as_slice());
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![certificate()], PrivateKeyDer::Pkcs8(key)).unwrap();
        Self::serve(reply, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(reply: CannedReply, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(RequestLog::default());
        let log = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match &tls {
                    None => serve_request(stream, &reply, &log).await,
                    Some(tls) => {
                        // A client that rejects the certificate disconnects here.
                        let Ok(stream) = tls.accept(stream).await else { continue };
                        serve_request(stream, &reply, &log).await;
                    }
                }
            }
        });
        Self { address, seen, serving }
    }

    /// The requests received so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits for a request.
    pub(crate) async fn received(&self) {
        self.seen.received.notified().await;
    }

    /// Waits until a client disconnects from a silent server.
    pub(crate) async fn left(&self) {
        self.seen.left.notified().await;
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    reply: &CannedReply,
    seen: &RequestLog,
) {
    let mut request = Vec::new();
    while !is_whole(&request) {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    seen.requests.lock().unwrap().push(String::from_utf8(request).unwrap());
    seen.received.notify_one();
    match reply {
        // The client may have disconnected already.
        CannedReply::Bytes(bytes) => {
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
        CannedReply::Silence => {
            let _ = stream.read(&mut [0]).await;
            seen.left.notify_one();
        }
        CannedReply::HangUp => {}
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
