//! Connections are reused, closed when they are not needed, and replaced when the server closed them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::fixtures::*;
use super::grpc::ScriptedActivities;
use super::server::Server;
use crate::remote::{RemoteActivity, WireFormat};

#[tokio::test]
async fn one_call_after_the_other_uses_one_connection() {
    for wire in [WireFormat::Rest, WireFormat::Protobuf, WireFormat::Envelope] {
        let server = Server::always(200, "").await;
        let remote = remote(wire, server.address);
        for _ in 0..20 {
            run_attempt(&remote, json!(1)).await.unwrap();
        }
        assert_eq!(server.connections(), 1, "{wire:?}");
    }
    let server = Server::grpc(ScriptedActivities::default()).await;
    let remote = remote(WireFormat::Grpc, server.address);
    for _ in 0..20 {
        run_attempt(&remote, json!(1)).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_connection_is_reused_after_a_failure_whose_body_was_read() {
    let server = Server::always(503, "later").await;
    let remote = remote(WireFormat::Rest, server.address);
    for _ in 0..5 {
        run_attempt(&remote, json!(1)).await.unwrap_err();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn activities_at_one_server_share_its_connections() {
    let server = Server::always(200, "").await;
    let outbound = outbound();
    let base = http(server.address);
    let mut in_use = Vec::new();
    for wire in [WireFormat::Rest, WireFormat::Protobuf, WireFormat::Envelope] {
        let remote = RemoteActivity::new(declared(wire, &base, json!({})), &outbound).unwrap();
        run_attempt(&remote, json!(1)).await.unwrap();
        in_use.push(remote);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn many_calls_at_once_share_few_connections_over_http2() {
    let server = Server::grpc(ScriptedActivities::default()).await;
    let remote = Arc::new(remote_with(WireFormat::Grpc, server.address, json!({"concurrency": 500})));
    let mut calls = JoinSet::new();
    for number in 0..500 {
        let remote = Arc::clone(&remote);
        calls.spawn(async move { assert_eq!(run_attempt(&remote, json!(number)).await, Ok(json!(number))) });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert!((1..=16).contains(&server.connections()), "{}", server.connections());
}

#[tokio::test]
async fn unused_connections_are_closed() {
    for wire in [WireFormat::Rest, WireFormat::Grpc] {
        let server = Server::answering(|_| super::server::reply(404, &[], "")).await;
        let remote = remote(wire, server.address);
        run_attempt(&remote, json!(1)).await.unwrap_err();
        server.open(1).await;
        tokio::time::pause();
        server.open(0).await;
        tokio::time::resume();
        run_attempt(&remote, json!(1)).await.unwrap_err();
        assert_eq!(server.connections(), 2, "{wire:?}");
    }
}

#[tokio::test]
async fn no_connection_is_used_for_ever() {
    for wire in [WireFormat::Rest, WireFormat::Grpc] {
        let server = Server::answering(|_| super::server::reply(404, &[], "")).await;
        let remote = remote(wire, server.address);
        for _ in 0..20 {
            run_attempt(&remote, json!(1)).await.unwrap_err();
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(if wire == WireFormat::Rest { 3 } else { 30 })).await;
            tokio::time::resume();
        }
        let expected = if wire == WireFormat::Rest { 1 } else { 2 };
        assert_eq!(server.connections(), expected, "{wire:?}");
    }
}

/// Answers one request on each connection, and closes the connection without announcing it.
async fn hang_up_server() -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1").await;
        }
    });
    (address, serving)
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced_without_a_failure() {
    let (address, _serving) = hang_up_server().await;
    let remote = remote(WireFormat::Rest, address);
    for _ in 0..20 {
        assert_eq!(run_attempt(&remote, json!(1)).await, Ok(json!(1)));
    }
}

#[tokio::test]
async fn after_a_restart_of_the_server_the_next_call_gets_through() {
    let server = Server::grpc(ScriptedActivities::default()).await;
    let address = server.address;
    let remote = remote(WireFormat::Grpc, server.address);
    run_attempt(&remote, json!(1)).await.unwrap();
    server.stop().await;
    let again = Server::grpc_at(address, ScriptedActivities::default()).await;
    assert_eq!(run_attempt(&remote, json!(2)).await, Ok(json!(2)));
    assert_eq!(again.connections(), 1);
}

#[tokio::test]
async fn an_abandoned_call_closes_its_connection_and_frees_its_permit() {
    let silent = Server::silent().await;
    let remote = remote_with(WireFormat::Rest, silent.address, json!({"concurrency": 1}));
    for number in 1..=3 {
        let until_it_is_received = async {
            silent.received(number).await;
            remote.in_flight()
        };
        tokio::select! {
            result = run_attempt(&remote, json!(1)) => panic!("{result:?}"),
            in_flight = until_it_is_received => assert_eq!(in_flight, 1),
        }
        assert_eq!(remote.in_flight(), 0);
        silent.open(0).await;
    }
}

#[tokio::test]
async fn an_abandoned_call_over_http2_does_not_affect_the_others() {
    let server = Server::start(None, |received| {
        Box::pin(async move {
            let is_slow = received.header("x-tpf-correlation-id") == "slow";
            if is_slow { std::future::pending().await } else { super::server::reply(404, &[], "") }
        })
    })
    .await;
    let remote = remote(WireFormat::Grpc, server.address);
    let mut slow = call(Value::Null);
    slow.metadata.correlation_id = "slow".to_owned();
    tokio::select! {
        result = remote.run_attempt(slow) => panic!("{result:?}"),
        () = server.received(1) => {}
    }
    assert_eq!(failure_summary(&run_attempt(&remote, json!(1)).await), permanent("Http404"));
    assert_eq!(server.connections(), 1);
}
