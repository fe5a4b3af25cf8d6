//! A receiver on loopback behind a planted fault.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use abide_conform::{ConformOptions, WireFormat};
use abide_ids::Timestamp;
use abide_receiver::conformance::{ConformanceHandler, NAME};
use abide_receiver::{Receiver, ReceiverClock, ServeOptions};
use abide_store::memory::MemoryStore;
use axum::Router;
use axum::middleware;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fault_injection::{self, ReceiverFault};

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Starts a receiver with this fault, and returns its URL.
pub(crate) async fn serve_with_fault(fault: ReceiverFault) -> String {
    let builder = Receiver::builder(Arc::new(MemoryStore::default()), ReceiverClock::new(|| NOW));
    let counting = ConformanceHandler::new(builder.handler_rows().unwrap());
    let receiver = builder.handler(NAME, counting).open().await.unwrap();
    let injector = Arc::new(fault_injection::FaultInjector::new(fault));
    let router = receiver.router();
    let injected = middleware::from_fn_with_state(injector, fault_injection::inject);
    let router = Router::new().fallback_service(router).layer(injected);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(abide_receiver::serve(listener, router, ServeOptions::default(), std::future::pending()));
    let address =
        if fault == ReceiverFault::TakesNamesByCase { case_sensitive_proxy(address).await } else { address };
    format!("http://{address}")
}

/// A proxy that hides `X-Tpf-…` headers from the server, as if it compared header names with case.
async fn case_sensitive_proxy(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(server).await.unwrap();
            let ((mut requests, mut to_client), (mut responses, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut responses, &mut to_client).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = requests.read(&mut buffer).await {
                    for at in 0..count {
                        if buffer[at..].starts_with(b"X-Tpf-") {
                            buffer[at..at + 6].copy_from_slice(b"X-Not-");
                        }
                    }
                    to_server.write_all(&buffer[..count]).await.unwrap();
                }
            });
        }
    });
    address
}

pub(crate) fn options(url: &str, transport: WireFormat) -> ConformOptions {
    ConformOptions {
        url: url.to_owned(),
        transport,
        activity: NAME.to_owned(),
        bearer_token: None,
        exchange_timeout: Duration::from_secs(10),
        total_timeout: Duration::from_secs(60),
        unique_prefix: "test".to_owned(),
        now: NOW,
    }
}
