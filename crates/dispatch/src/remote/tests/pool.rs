//! Connections are used again, let go when nobody needs them, and replaced when the other side let go.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::grpc::Obedient;
use super::parts::*;
use super::server::Server;
use crate::remote::{Remote, Wire};

#[tokio::test]
async fn one_call_after_the_other_uses_one_connection() {
    for wire in [Wire::Rest, Wire::Protobuf, Wire::Envelope] {
        let server = Server::always(200, "").await;
        let remote = remote(wire, server.address);
        for _ in 0..20 {
            deliver(&remote, json!(1)).await.unwrap();
        }
        assert_eq!(server.connections(), 1, "{wire:?}");
    }
    let server = Server::grpc(Obedient::default()).await;
    let remote = remote(Wire::Grpc, server.address);
    for _ in 0..20 {
        deliver(&remote, json!(1)).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_failure_that_was_read() {
    let server = Server::always(503, "later").await;
    let remote = remote(Wire::Rest, server.address);
    for _ in 0..5 {
        deliver(&remote, json!(1)).await.unwrap_err();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn activities_at_one_server_share_its_connections() {
    let server = Server::always(200, "").await;
    let (outbound, base, mut in_use) = (outbound(), http(server.address), Vec::new());
    for wire in [Wire::Rest, Wire::Protobuf, Wire::Envelope] {
        let remote = Remote::new(declared(wire, &base, json!({})), &outbound).unwrap();
        deliver(&remote, json!(1)).await.unwrap();
        in_use.push(remote);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn many_calls_at_once_share_few_connections_over_http2() {
    let server = Server::grpc(Obedient::default()).await;
    let remote = Arc::new(remote_with(Wire::Grpc, server.address, json!({"concurrency": 500})));
    let mut calls = JoinSet::new();
    for number in 0..500 {
        let remote = Arc::clone(&remote);
        calls.spawn(async move { assert_eq!(deliver(&remote, json!(number)).await, Ok(json!(number))) });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert!((1..=16).contains(&server.connections()), "{}", server.connections());
}

#[tokio::test]
async fn what_nobody_uses_is_closed() {
    for wire in [Wire::Rest, Wire::Grpc] {
        let server = Server::answering(|_| super::server::reply(404, &[], "")).await;
        let remote = remote(wire, server.address);
        deliver(&remote, json!(1)).await.unwrap_err();
        server.open(1).await;
        tokio::time::pause();
        server.open(0).await;
        tokio::time::resume();
        deliver(&remote, json!(1)).await.unwrap_err();
        assert_eq!(server.connections(), 2, "{wire:?}");
    }
}

#[tokio::test]
async fn no_connection_is_used_for_ever() {
    for wire in [Wire::Rest, Wire::Grpc] {
        let server = Server::answering(|_| super::server::reply(404, &[], "")).await;
        let remote = remote(wire, server.address);
        for _ in 0..20 {
            deliver(&remote, json!(1)).await.unwrap_err();
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(if wire == Wire::Rest { 3 } else { 30 })).await;
            tokio::time::resume();
        }
        let expected = if wire == Wire::Rest { 1 } else { 2 };
        assert_eq!(server.connections(), expected, "{wire:?}");
    }
}

/// Answers one request on each connection, says nothing of closing it, and closes it.
async fn curt() -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
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
async fn a_connection_that_the_other_side_closed_costs_nothing_but_a_new_one() {
    let (address, _serving) = curt().await;
    let remote = remote(Wire::Rest, address);
    for _ in 0..20 {
        assert_eq!(deliver(&remote, json!(1)).await, Ok(json!(1)));
    }
}

#[tokio::test]
async fn after_a_restart_of_the_server_the_next_call_gets_through() {
    let server = Server::grpc(Obedient::default()).await;
    let (address, remote) = (server.address, remote(Wire::Grpc, server.address));
    deliver(&remote, json!(1)).await.unwrap();
    server.stop().await;
    let again = Server::grpc_at(address, Obedient::default()).await;
    assert_eq!(deliver(&remote, json!(2)).await, Ok(json!(2)));
    assert_eq!(again.connections(), 1);
}

#[tokio::test]
async fn a_call_that_is_given_up_closes_its_connection_and_frees_its_place() {
    let silent = Server::silent().await;
    let remote = remote_with(Wire::Rest, silent.address, json!({"concurrency": 1}));
    for number in 1..=3 {
        let until_it_is_received = async {
            silent.received(number).await;
            remote.under_way()
        };
        tokio::select! {
            answer = deliver(&remote, json!(1)) => panic!("{answer:?}"),
            under_way = until_it_is_received => assert_eq!(under_way, 1),
        }
        assert_eq!(remote.under_way(), 0);
        silent.open(0).await;
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_over_http2_leaves_the_others_alone() {
    let server = Server::start(None, |received| {
        Box::pin(async move {
            let is_slow = received.header("x-tpf-correlation-id") == "slow";
            if is_slow { std::future::pending().await } else { super::server::reply(404, &[], "") }
        })
    })
    .await;
    let remote = remote(Wire::Grpc, server.address);
    let mut slow = call(Value::Null);
    slow.metadata.correlation_id = "slow".to_owned();
    tokio::select! {
        answer = remote.deliver(slow) => panic!("{answer:?}"),
        () = server.received(1) => {}
    }
    assert_eq!(told(&deliver(&remote, json!(1)).await), last("Http404"));
    assert_eq!(server.connections(), 1);
}
