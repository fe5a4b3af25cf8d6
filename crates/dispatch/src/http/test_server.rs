//! A server for tests: answers every request with the same bytes and keeps what it was sent.

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

/// For `service.test` until 2120, signed by itself. Nobody else uses or believes it.
pub(crate) fn certificate() -> CertificateDer<'static> {
    CertificateDer::from(include_bytes!("testdata/service.test.der").as_slice())
}

/// What a connection is answered with once its request has been read.
#[derive(Clone)]
pub(crate) enum Reply {
    /// These bytes, and the end.
    Bytes(Vec<u8>),
    /// Nothing, and the connection stays open.
    Silence,
    /// Nothing, and the end.
    HangUp,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<String>>,
    received: Notify,
    left: Notify,
}

/// A server on the loopback address; it ends when it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
}

impl TestServer {
    /// Serves in the clear.
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::serve(reply, None).await
    }

    /// Serves over TLS, as `service.test`.
    pub(crate) async fn start_tls(reply: Reply) -> Self {
        let key = PrivatePkcs8KeyDer::from(include_bytes!("testdata/service.test.key.der").as_slice());
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![certificate()], PrivateKeyDer::Pkcs8(key)).unwrap();
        Self::serve(reply, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(reply: Reply, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let kept = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match &tls {
                    None => answer(stream, &reply, &kept).await,
                    Some(tls) => {
                        // A client that does not believe the certificate leaves here.
                        let Ok(stream) = tls.accept(stream).await else { continue };
                        answer(stream, &reply, &kept).await;
                    }
                }
            }
        });
        Self { address, seen, serving }
    }

    /// What it has been sent so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits for a request.
    pub(crate) async fn received(&self) {
        self.seen.received.notified().await;
    }

    /// Waits for a client to leave a server that is silent.
    pub(crate) async fn left(&self) {
        self.seen.left.notified().await;
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, reply: &Reply, seen: &Seen) {
    let mut request = Vec::new();
    while !is_whole(&request) {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    seen.requests.lock().unwrap().push(String::from_utf8(request).unwrap());
    seen.received.notify_one();
    match reply {
        // A client that has seen enough may be gone already.
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Silence => {
            let _ = stream.read(&mut [0]).await;
            seen.left.notify_one();
        }
        Reply::HangUp => {}
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
