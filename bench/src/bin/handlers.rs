//! `handlers ADDRESS`: serves Abide's activities in a separate process for benchmarks, like Restate's handlers.
//!
//! Every activity returns its input, over each of the four wires, on one port with two threads. It stores nothing, so
//! it does not deduplicate and ignores metadata: only the round trip is measured. `GET /counts` returns the number of
//! calls and connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::{env, io};

use abide_dispatch::wire::protobuf::v1::activities_server::{Activities, ActivitiesServer};
use abide_dispatch::wire::protobuf::v1::{InvokeRequest, InvokeResponse, ProbeRequest};
use abide_dispatch::wire::{
    ENVELOPE, JSON, PROTOBUF, REQUEST_BYTES_MAX, WireDecodeError, envelope, protobuf,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::codegen::Service;

/// Concurrent streams on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_024;

static CALLS: AtomicU64 = AtomicU64::new(0);
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static GRPC: LazyLock<ActivitiesServer<Echo>> = LazyLock::new(|| ActivitiesServer::new(Echo));

fn main() -> ExitCode {
    let Some(address) = env::args().nth(1).and_then(|address| address.parse::<SocketAddr>().ok()) else {
        eprintln!("usage: handlers ADDRESS");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let served = runtime.and_then(|runtime| runtime.block_on(serve(address)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("handlers: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    let builder = Arc::new(builder);
    loop {
        let (stream, _) = listener.accept().await?;
        CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(connection(stream, Arc::clone(&builder)));
    }
}

async fn connection(stream: TcpStream, builder: Arc<auto::Builder<TokioExecutor>>) {
    // A caller that closes the connection is no error.
    drop(stream.set_nodelay(true));
    drop(builder.serve_connection(TokioIo::new(stream), service_fn(respond)).await);
}

async fn respond(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if request.method() == hyper::Method::GET {
        let calls = CALLS.load(Ordering::Relaxed);
        let connections = CONNECTIONS.load(Ordering::Relaxed);
        let counts = serde_json::json!({"calls": calls, "connections": connections});
        return Ok(full_response(StatusCode::OK, JSON, counts.to_string().into()));
    }
    CALLS.fetch_add(1, Ordering::Relaxed);
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if content_type.starts_with(b"application/grpc") {
        return GRPC.clone().call(request).await;
    }
    let echo = if content_type == PROTOBUF.as_bytes() {
        echo_protobuf
    } else if content_type == ENVELOPE.as_bytes() {
        echo_envelope
    } else {
        echo_json
    };
    let Ok(body) = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await else {
        return Ok(full_response(StatusCode::PAYLOAD_TOO_LARGE, JSON, Bytes::new()));
    };
    Ok(match echo(&body.to_bytes()) {
        Ok((content_type, body)) => full_response(StatusCode::OK, content_type, body),
        Err(_) => full_response(StatusCode::BAD_REQUEST, JSON, Bytes::new()),
    })
}

type Echoed = Result<(&'static str, Bytes), WireDecodeError>;

fn echo_json(body: &Bytes) -> Echoed {
    Ok((JSON, body.clone()))
}

fn echo_protobuf(body: &Bytes) -> Echoed {
    let input = protobuf::payload_json(protobuf::read_request(body.clone())?.input)?;
    Ok((PROTOBUF, protobuf::write(&protobuf::invoke_response(input)).into()))
}

fn echo_envelope(body: &Bytes) -> Echoed {
    let received = envelope::read_request(body)?;
    Ok((ENVELOPE, envelope::write_response(&received.control, &received.input)?.into()))
}

fn full_response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

struct Echo;

#[tonic::async_trait]
impl Activities for Echo {
    async fn invoke(
        &self,
        request: tonic::Request<InvokeRequest>,
    ) -> Result<tonic::Response<InvokeResponse>, tonic::Status> {
        Ok(tonic::Response::new(InvokeResponse { output: request.into_inner().input }))
    }

    async fn probe(
        &self,
        _: tonic::Request<ProbeRequest>,
    ) -> Result<tonic::Response<InvokeResponse>, tonic::Status> {
        Err(tonic::Status::unimplemented("this server stores nothing"))
    }
}
