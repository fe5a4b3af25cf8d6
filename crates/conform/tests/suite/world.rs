//! A receiver on loopback, as it is or with a mistake planted in front of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use abide_conform::{Setting, Wire};
use abide_receiver::conformance::{Conformance, NAME};
use abide_receiver::{Clock, Receiver, ServeOptions};
use abide_store::memory::MemoryStore;
use axum::Router;
use axum::middleware;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::planted::{self, Mistake};

pub(crate) const NOW: i64 = 1_800_000_000_000;

/// Starts one, and says where it is.
pub(crate) async fn serve(mistake: Mistake) -> String {
    let builder = Receiver::builder(Arc::new(MemoryStore::default()), Clock::new(|| NOW));
    let counting = Conformance::new(builder.effects().unwrap());
    let receiver = builder.handler(NAME, counting).open().await.unwrap();
    let planted = Arc::new(planted::Planted::new(mistake));
    let router = receiver.router();
    let router = if mistake == Mistake::None {
        router
    } else {
        Router::new().fallback_service(router).layer(middleware::from_fn_with_state(planted, planted::meddle))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(abide_receiver::serve(listener, router, ServeOptions::default(), std::future::pending()));
    let address = if mistake == Mistake::TakesNamesByCase { by_case(address).await } else { address };
    format!("http://{address}")
}

/// A way to a server for which header names In-Title-Case are other names.
async fn by_case(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(server).await.unwrap();
            let ((mut from, mut back), (mut answers, mut to)) = (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
            tokio::spawn(async move {
                let mut piece = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = from.read(&mut piece).await {
                    for at in 0..count {
                        if piece[at..].starts_with(b"X-Tpf-") {
                            piece[at..at + 6].copy_from_slice(b"X-Not-");
                        }
                    }
                    to.write_all(&piece[..count]).await.unwrap();
                }
            });
        }
    });
    address
}

pub(crate) fn setting(url: &str, transport: Wire) -> Setting {
    Setting {
        url: url.to_owned(),
        transport,
        activity: NAME.to_owned(),
        bearer: None,
        exchange_time_max: Duration::from_secs(10),
        whole_time_max: Duration::from_secs(60),
        unique: "test".to_owned(),
        now_epoch_ms: NOW,
    }
}
