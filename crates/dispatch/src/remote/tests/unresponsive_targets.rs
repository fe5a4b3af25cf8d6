//! Targets that are slow, dead or hostile: every attempt ends in time, is classified correctly, and does not affect
//! others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::fixtures::*;
use super::server::{Server, endless};
use crate::remote::{CircuitState, RemoteActivity, RemoteRegistry, WireFormat};
use crate::transport::CallFailure;

/// A port that accepts no connections and whose backlog is full: a client that connects gets no response.
async fn blackhole() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let backlog =
        vec![TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    (address, listener, backlog)
}

/// The input for servers that read the whole request.
const WHOLE: &str = "that is all";

/// Reads until the whole request has arrived, in any wire format.
async fn read_whole(stream: &mut TcpStream) {
    let mut sent = Vec::new();
    while !sent.windows(WHOLE.len()).any(|part| part == WHOLE.as_bytes()) {
        if stream.read_buf(&mut sent).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

/// Reads a request on each connection, writes `beginning`, and then `again` repeatedly, as long as the client reads.
async fn drip_server(beginning: &'static [u8], again: &'static [u8]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                read_whole(&mut stream).await;
                let mut open = stream.write_all(beginning).await.is_ok();
                while open && !again.is_empty() {
                    open = stream.write_all(again).await.is_ok();
                }
                // A reset rather than a regular close.
                let _ = stream.set_zero_linger();
            });
        }
    });
    (address, serving)
}

/// The result of an attempt and its duration in seconds. A paused clock advances whenever all tasks wait.
async fn timed(remote: &RemoteActivity) -> (Result<Value, CallFailure>, u64) {
    let begun = Instant::now();
    let result = run_attempt(remote, json!(WHOLE)).await;
    (result, begun.elapsed().as_secs())
}

#[tokio::test]
async fn a_blackholed_port_costs_the_connect_timeout_and_nothing_is_sent() {
    let (address, _listener, _backlog) = blackhole().await;
    tokio::time::pause();
    for wire in WireFormat::ALL {
        let (timed_result, seconds) = timed(&remote(wire, address)).await;
        assert_eq!((failure_summary(&timed_result), seconds), (unsent("ConnectFailed"), 5), "{wire:?}");
        let mut short = call(json!(1));
        short.attempt_timeout_ms = 2_000;
        let begun = Instant::now();
        let answer = result(remote(wire, address).run_attempt(short).await);
        assert_eq!(
            failure_summary(&answer),
            unsent("AttemptTimeout"),
            "{wire:?}: connecting is part of the attempt"
        );
        assert_eq!(begun.elapsed().as_secs(), 2, "{wire:?}");
    }
}

#[tokio::test]
async fn a_closed_port_fails_at_once_and_nothing_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for wire in WireFormat::ALL {
        let answer = run_attempt(&remote(wire, address), json!(1)).await;
        assert_eq!(failure_summary(&answer), unsent("ConnectFailed"), "{wire:?}");
        let failure = answer.unwrap_err();
        assert_eq!((failure.target, failure.status), (Some(http(address)), None));
    }
}

#[tokio::test]
async fn a_body_of_one_byte_a_second_ends_at_the_attempt_timeout() {
    for wire in WireFormat::ALL {
        for status in [200, 500] {
            let server = Server::start(None, move |_| {
                Box::pin(async move { endless(status, 1, Duration::from_secs(1)) })
            })
            .await;
            let remote = remote(wire, server.address);
            let pause_clock_once_sent = async {
                server.received(1).await;
                tokio::time::pause();
            };
            let ((timed_result, seconds), ()) = tokio::join!(timed(&remote), pause_clock_once_sent);
            assert_eq!(
                (failure_summary(&timed_result), seconds),
                (unknown("AttemptTimeout"), 8),
                "{wire:?} {status}"
            );
            tokio::time::resume();
        }
    }
}

#[tokio::test]
async fn an_endless_body_is_read_up_to_the_limit() {
    for wire in WireFormat::ALL {
        for (status, expected) in
            [(200, permanent("ResponseTooLarge")), (503, unknown("Http503")), (404, permanent("Http404"))]
        {
            let server = Server::start(None, move |_| {
                Box::pin(async move { endless(status, 16 * 1024, Duration::ZERO) })
            })
            .await;
            let remote = remote(wire, server.address);
            assert_eq!(failure_summary(&run_attempt(&remote, json!(1)).await), expected, "{wire:?} {status}");
        }
    }
}

#[tokio::test]
async fn an_endless_head_is_no_response() {
    let (address, serving) = drip_server(b"HTTP/1.1 200 OK\r\n", b"x-more: and more of it\r\n").await;
    for wire in [WireFormat::Rest, WireFormat::Protobuf, WireFormat::Envelope] {
        let answer = run_attempt(&remote(wire, address), json!(WHOLE)).await;
        assert_eq!(failure_summary(&answer), unknown("ConnectionLost"), "{wire:?}");
    }
    serving.abort();
    // One field that never ends.
    let (address, _serving) = drip_server(b"HTTP/1.1 200 OK\r\nx-more: ", b"and more of it, ").await;
    let answer = run_attempt(&remote(WireFormat::Rest, address), json!(WHOLE)).await;
    assert_eq!(failure_summary(&answer), unknown("ConnectionLost"));
}

#[tokio::test]
async fn an_endless_head_is_no_response_over_http2_either() {
    // Settings; then the head of stream 1, whose end never comes: one field after the other in frames of their own.
    let beginning = b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\0\0\0\0\x01\x88";
    let again = b"\0\0\x08\x09\0\0\0\0\x01\x00\x02xy\x03abc";
    let (address, _serving) = drip_server(beginning, again).await;
    let answer = run_attempt(&remote(WireFormat::Grpc, address), json!(WHOLE)).await;
    assert_eq!(failure_summary(&answer), unknown("ConnectionLost"));
}

#[tokio::test]
async fn a_reset_after_the_request_has_an_unknown_outcome() {
    for (beginning, what) in [
        (b"".as_slice(), "at once"),
        (b"HTTP/1.1 200", "in the head"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", "in the body"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort", "between pieces"),
        (b"rubbish\r\n\r\n", "and no HTTP"),
    ] {
        let (address, _serving) = drip_server(beginning, b"").await;
        for wire in WireFormat::ALL {
            let answer = run_attempt(&remote(wire, address), json!(WHOLE)).await;
            assert_eq!(failure_summary(&answer), unknown("ConnectionLost"), "{wire:?} {what}");
        }
    }
}

#[tokio::test]
async fn a_reset_before_the_request_is_never_taken_for_a_response() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = stream.set_zero_linger();
        }
    });
    for wire in WireFormat::ALL {
        let answer = run_attempt(&remote(wire, address), json!(1)).await;
        let (code, retryable, outcome_unknown) = failure_summary(&answer);
        // The code depends on which side was faster; either is correct.
        assert!(retryable, "{wire:?}: {answer:?}");
        assert_eq!(code == "ConnectionLost", outcome_unknown, "{wire:?}: {answer:?}");
    }
}

#[tokio::test]
async fn endless_interim_responses_do_not_prolong_the_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sent, received) = tokio::sync::oneshot::channel();
    let _serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_whole(&mut stream).await;
        sent.send(()).unwrap();
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let pause_clock_once_sent = async {
        received.await.unwrap();
        tokio::time::pause();
    };
    let remote = remote(WireFormat::Rest, address);
    let ((timed_result, seconds), ()) = tokio::join!(timed(&remote), pause_clock_once_sent);
    assert_eq!((failure_summary(&timed_result), seconds), (unknown("AttemptTimeout"), 8));
}

#[tokio::test]
async fn a_silent_target_takes_its_own_permits_and_no_others() {
    let silent = Server::silent().await;
    let able = Server::always(200, "1").await;
    let registry = RemoteRegistry::new(outbound());
    for (name, server) in [("stuck", &silent), ("able", &able)] {
        let mut declared = declared(WireFormat::Rest, &http(server.address), json!({"concurrency": 4}));
        declared.activity.name = name.to_owned();
        registry.put(declared).unwrap();
    }
    let stuck = registry.get("stuck").unwrap();
    let able = registry.get("able").unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let stuck = Arc::clone(&stuck);
        waiting.spawn(async move { run_attempt(&stuck, json!(1)).await });
    }
    silent.received(4).await;
    for _ in 0..100 {
        assert_eq!(run_attempt(&able, json!(1)).await, Ok(json!(1)));
    }
    assert_eq!((silent.requests().len(), stuck.in_flight()), (4, 4));
    tokio::time::pause();
    let mut ended: Vec<String> = Vec::new();
    while let Some(answer) = waiting.join_next().await {
        let answer = answer.unwrap();
        assert!(matches!(
            failure_summary(&answer),
            ("AttemptTimeout", true, true)
                | ("DeadlineExceeded", false, false)
                | ("CircuitOpen", true, false)
        ));
        ended.push(failure_summary(&answer).0.to_owned());
    }
    // Waiting calls fail when they get a permit, or when their time is up.
    assert!(ended.iter().filter(|code| *code == "AttemptTimeout").count() >= 4, "{ended:?}");
}

#[tokio::test]
async fn after_ten_failures_in_a_row_no_activity_calls_the_target() {
    let server = Server::always(500, "").await;
    let outbound = outbound();
    let base = http(server.address);
    let [one, other] = [WireFormat::Rest, WireFormat::Protobuf]
        .map(|wire| RemoteActivity::new(declared(wire, &base, json!({})), &outbound).unwrap());
    for _ in 0..5 {
        assert_eq!(failure_summary(&run_attempt(&one, json!(1)).await), unknown("Http500"));
        assert_eq!(failure_summary(&run_attempt(&other, json!(1)).await), unknown("Http500"));
    }
    assert_eq!((one.circuit(), other.circuit()), (CircuitState::Open, CircuitState::Open));
    for remote in [&one, &other] {
        let answer = run_attempt(remote, json!(1)).await;
        assert_eq!(failure_summary(&answer), unsent("CircuitOpen"));
        assert!(answer.unwrap_err().retry_after_ms.is_some_and(|wait| wait <= 1_000));
    }
    assert_eq!(server.requests().len(), 10);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::resume();
    assert_eq!(failure_summary(&run_attempt(&one, json!(1)).await), unknown("Http500"), "the trial");
    assert_eq!(failure_summary(&run_attempt(&other, json!(1)).await), unsent("CircuitOpen"));
    assert_eq!(server.requests().len(), 11);
}

#[tokio::test]
async fn a_target_that_answers_keeps_its_circuit_closed_whatever_it_answers() {
    for (status, body) in [
        (404, ""),
        (429, ""),
        (409, r#"{"error": {"status": "ABORTED"}}"#),
        (500, r#"{"error": {"status": "DATA_LOSS"}}"#),
        (501, r#"{"error": {"status": "UNIMPLEMENTED"}}"#),
        (200, "<html>"),
    ] {
        let server = Server::always(status, body).await;
        let remote = remote(WireFormat::Rest, server.address);
        for _ in 0..15 {
            run_attempt(&remote, json!(1)).await.unwrap_err();
        }
        assert_eq!(
            (remote.circuit(), server.requests().len()),
            (CircuitState::Closed, 15),
            "{status} {body}"
        );
    }
}

#[tokio::test]
async fn a_target_with_endless_responses_opens_its_circuit() {
    let server = Server::start(None, |_| Box::pin(async { endless(200, 256 * 1024, Duration::ZERO) })).await;
    let remote = remote(WireFormat::Rest, server.address);
    for _ in 0..10 {
        assert_eq!(failure_summary(&run_attempt(&remote, json!(1)).await), permanent("ResponseTooLarge"));
    }
    assert_eq!(failure_summary(&run_attempt(&remote, json!(1)).await), unsent("CircuitOpen"));
    assert_eq!(server.requests().len(), 10);
}

#[tokio::test]
async fn dead_targets_open_their_circuit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let (resetting, _serving) = drip_server(b"", b"").await;
    let (blackholed, _listener, _backlog) = blackhole().await;
    for wire in WireFormat::ALL {
        for (address, what) in [(closed, "closed"), (resetting, "resetting"), (blackholed, "blackholed")] {
            let remote = remote(wire, address);
            if what == "blackholed" {
                tokio::time::pause();
            }
            for _ in 0..10 {
                assert_eq!(remote.circuit(), CircuitState::Closed, "{what}");
                run_attempt(&remote, json!(WHOLE)).await.unwrap_err();
            }
            assert_eq!(
                failure_summary(&run_attempt(&remote, json!(WHOLE)).await),
                unsent("CircuitOpen"),
                "{wire:?} {what}"
            );
        }
        tokio::time::resume();
    }
}
