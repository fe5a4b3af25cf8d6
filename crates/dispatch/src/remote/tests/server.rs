//! An HTTP server that records its requests: HTTP/1.1 and HTTP/2, with and without TLS.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::wire::protobuf::v1::activities_server::{Activities, ActivitiesServer};

/// A request as it was received.
#[derive(Clone, Debug)]
pub(super) struct RecordedRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl RecordedRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

#[derive(Default)]
struct ServerLog {
    requests: Mutex<Vec<RecordedRequest>>,
    connections: AtomicUsize,
    open: watch::Sender<usize>,
    received: watch::Sender<usize>,
}

/// A server that stops, with all its connections, when it is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<ServerLog>,
    serving: JoinHandle<()>,
}

/// A response with this status, headers and body.
pub(super) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::new(body.into()).boxed_unsync()).unwrap()
}

/// A response that never ends: a piece of this many bytes, again and again after the pause.
pub(super) fn endless(status: u16, piece: usize, pause: Duration) -> Response<Body> {
    let pieces = Pieces { piece: Bytes::from(vec![b' '; piece]), pause, next: None };
    Response::builder().status(status).body(pieces.boxed_unsync()).unwrap()
}

struct Pieces {
    piece: Bytes,
    pause: Duration,
    next: Option<Pin<Box<Sleep>>>,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.pause.is_zero() {
            let pause = self.pause;
            let next = self.next.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            ready!(next.as_mut().poll(context));
            self.next = None;
        }
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }
}

impl Server {
    /// Answers every request with this status and body.
    pub(super) async fn always(status: u16, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self::answering(move |_| reply(status, &[], body.clone())).await
    }

    pub(super) async fn answering(
        answer: impl Fn(RecordedRequest) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        Self::start(None, move |received| {
            let response = answer(received);
            Box::pin(async { response })
        })
        .await
    }

    /// Never answers a request.
    pub(super) async fn silent() -> Self {
        Self::start(None, |_| Box::pin(pending())).await
    }

    pub(super) async fn start(
        tls: Option<ServerConfig>,
        answer: impl Fn(RecordedRequest) -> ResponseFuture + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        Self::listen(LOOPBACK, tls, move |seen, io| {
            let answer = Arc::clone(&answer);
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = Arc::clone(&answer);
                let seen = Arc::clone(&seen);
                async move {
                    let received = received(request).await;
                    seen.record(received.clone());
                    Ok::<_, Infallible>(answer(received).await)
                }
            });
            Box::pin(async move {
                let _ = Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
            })
        })
        .await
    }

    /// A gRPC server, built with the usual library.
    pub(super) async fn grpc(activities: impl Activities) -> Self {
        Self::grpc_at(LOOPBACK, activities).await
    }

    pub(super) async fn grpc_at(address: SocketAddr, activities: impl Activities) -> Self {
        let service = ActivitiesServer::new(activities);
        Self::listen(address, None, move |seen, io| {
            let service = hyper_util::service::TowerToHyperService::new(service.clone());
            Box::pin(async move {
                let recorded = service_fn(move |request: Request<Incoming>| {
                    seen.record(head(&request));
                    hyper::service::Service::call(&service, request)
                });
                let _ = Builder::new(TokioExecutor::new()).http2_only().serve_connection(io, recorded).await;
            })
        })
        .await
    }

    async fn listen(
        address: SocketAddr,
        tls: Option<ServerConfig>,
        serve: impl Fn(Arc<ServerLog>, Io) -> ServeFuture + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(ServerLog::default());
        let log = Arc::clone(&seen);
        let serve = Arc::new(serve);
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                log.connections.fetch_add(1, Ordering::SeqCst);
                let open = OpenConnection::new(&log);
                let seen = Arc::clone(&log);
                let serve = Arc::clone(&serve);
                let tls = tls.clone();
                connections.spawn(async move {
                    let _open = open;
                    let stream: BoxedStream = match tls {
                        None => Box::pin(stream),
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => Box::pin(stream),
                            // A client that rejects the certificate disconnects here.
                            Err(_) => return,
                        },
                    };
                    serve(seen, TokioIo::new(stream)).await;
                });
            }
        });
        Self { address, seen, serving }
    }

    /// Stops the server, with all its connections.
    pub(super) async fn stop(mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
        self.open(0).await;
    }

    /// The requests received so far.
    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// The number of connections accepted so far.
    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Waits until this many requests have been received.
    pub(super) async fn received(&self, count: usize) {
        self.seen.received.subscribe().wait_for(|received| *received >= count).await.unwrap();
    }

    /// Waits until this many connections are open.
    pub(super) async fn open(&self, count: usize) {
        self.seen.open.subscribe().wait_for(|open| *open == count).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ServerLog {
    fn record(&self, received: RecordedRequest) {
        self.requests.lock().unwrap().push(received);
        self.received.send_modify(|count| *count += 1);
    }
}

type BoxedStream = Pin<Box<dyn crate::http::IoStream>>;
type Io = TokioIo<BoxedStream>;
type ServeFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The loopback address with any free port.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A connection, as long as it is open.
struct OpenConnection(Arc<ServerLog>);

impl OpenConnection {
    fn new(seen: &Arc<ServerLog>) -> Self {
        seen.open.send_modify(|open| *open += 1);
        Self(Arc::clone(seen))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

fn head<B>(request: &Request<B>) -> RecordedRequest {
    RecordedRequest {
        method: request.method().to_string(),
        path: request.uri().path_and_query().unwrap().to_string(),
        version: request.version(),
        headers: request.headers().clone(),
        body: Bytes::new(),
    }
}

async fn received(request: Request<Incoming>) -> RecordedRequest {
    let head = head(&request);
    // A client may disconnect while it sends.
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    RecordedRequest { body: body.unwrap_or_default(), ..head }
}
