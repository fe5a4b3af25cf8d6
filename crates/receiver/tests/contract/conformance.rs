//! Everything that can be checked from outside: `abide_conform` checks the receiver over every wire, on a real socket.
//!
//! `rules` repeats none of it. A rule is there if it needs a look inside, or input that conform does not send.

use std::time::Duration;

use abide_conform::{CheckVerdict, ConformOptions, WireFormat, run};
use abide_ids::Timestamp;
use abide_receiver::{ServeOptions, conformance, serve};
use tokio::net::TcpListener;

use crate::fixture::{ContractFixture, NOW};

async fn expect_conformance(transport: WireFormat) {
    let fixture = ContractFixture::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, fixture.router, ServeOptions::default(), std::future::pending()));
    let options = ConformOptions {
        url: format!("http://{address}"),
        transport,
        activity: conformance::NAME.to_owned(),
        bearer_token: None,
        exchange_timeout: Duration::from_secs(10),
        total_timeout: Duration::from_secs(60),
        unique_prefix: "test".to_owned(),
        now: Timestamp(NOW),
    };
    let report = run(&options, |_| {}).await.unwrap();
    let broken: Vec<_> =
        report.checks.iter().filter(|report| report.verdict != CheckVerdict::Passed).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(report.is_conformant() && report.checks.len() >= 45, "{}", report.checks.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rest() {
    expect_conformance(WireFormat::Rest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf() {
    expect_conformance(WireFormat::Protobuf).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc() {
    expect_conformance(WireFormat::Grpc).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envelope() {
    expect_conformance(WireFormat::Envelope).await;
}
