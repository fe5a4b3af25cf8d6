//! Tests the binary as a process: both protocols on one port, killed and stopped while handlers run.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use abide_dispatch::wire::protobuf::v1::ProbeRequest;
use abide_dispatch::wire::protobuf::v1::activities_client::ActivitiesClient;
use abide_dispatch::wire::{grpc, protobuf};
use abide_dispatch::{Metadata, wire};
use abide_testkit::effect_ledger::EffectLedger;
use abide_testkit::http_client::{HttpConnection, HttpRequest, send_once};
use abide_testkit::process::{ProgramProcess, Signal};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

struct ReceiverProcess {
    process: ProgramProcess,
    address: SocketAddr,
}

fn post(activity: &str, key: &str, input: impl std::fmt::Display) -> HttpRequest {
    HttpRequest::post(&format!("/activities/{activity}"), input)
        .header("X-TPF-Execution-ID", "e/1")
        .header("X-Tpf-Idempotency-Key", key)
}

impl ReceiverProcess {
    async fn start(data: &TempDir) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_abide-receiver"));
        command.env("PORT", "0").env("ABIDE_RECEIVER_DATA", data.path());
        command.env("ABIDE_RECEIVER_LOG", data.path().join("attempts.log"));
        let mut process = ProgramProcess::spawn_server(command).unwrap();
        let address = process.ready().await.unwrap().unwrap();
        Self { process, address }
    }

    async fn exchange(&self, request: &HttpRequest) -> (u16, String) {
        let response = send_once(self.address, request).await.unwrap();
        (response.status, response.text())
    }

    async fn call(&self, activity: &str, key: &str, input: &Value) -> (u16, String) {
        self.exchange(&post(activity, key, input)).await
    }

    async fn probe(&self, activity: &str, key: &str) -> u16 {
        self.exchange(&post(activity, key, "{}").header("x-abide-probe", "1")).await.0
    }

    /// Probes until a handler runs this call.
    async fn wait_until_in_progress(&self, activity: &str, key: &str) {
        while self.probe(activity, key).await != 409 {}
    }

    /// Idempotency keys of all entries of the ledger.
    async fn entries(&self) -> EffectLedger<String> {
        let (status, body) = self.exchange(&HttpRequest::get("/effects")).await;
        assert_eq!(status, 200);
        let lines = body.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|entry| entry["idempotencyKey"].as_str().unwrap().to_owned()).collect()
    }

    async fn grpc(
        &self,
    ) -> ActivitiesClient<
        impl tonic::client::GrpcService<
            tonic::body::Body,
            Error: std::fmt::Debug + Into<Box<dyn std::error::Error + Send + Sync>>,
            ResponseBody = hyper::body::Incoming,
        >,
    > {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let service = tower::service_fn(move |request| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        });
        let origin = format!("http://{}", self.address).parse().unwrap();
        ActivitiesClient::with_origin(service, origin)
    }
}

fn metadata(key: &str) -> Metadata {
    let pairs = [("x-tpf-execution-id", &b"e/1"[..]), ("x-tpf-idempotency-key", key.as_bytes())];
    Metadata::decode(pairs).unwrap().unwrap()
}

#[tokio::test]
async fn http_and_grpc_are_one_receiver_on_one_port_and_the_case_of_headers_does_not_matter() {
    let data = TempDir::new().unwrap();
    let process = ReceiverProcess::start(&data).await;
    assert_eq!(
        process.call("ledger.add", "k", &json!({"n": 1})).await,
        (200, r#"{"added":true}"#.to_owned())
    );
    let mut client = process.grpc().await;
    for (key, entries) in [("k", 1), ("l", 2), ("l", 2)] {
        let mut request = tonic::Request::new(protobuf::invoke_request("ledger.add", &json!({"n": 1})));
        grpc::write_metadata(&metadata(key), request.metadata_mut()).unwrap();
        let output = protobuf::read_output(client.invoke(request).await.unwrap().into_inner());
        assert_eq!(output, Ok(json!({"added": true})));
        assert_eq!(process.entries().await.total(), entries);
    }
    assert_eq!(process.call("noop", "n", &json!(1)).await, (200, "null".to_owned()));
    assert_eq!(process.call("echo", "e", &json!([1])).await, (200, "[1]".to_owned()));
    let failed = process.call("fail", "f", &json!({"status": "NOT_FOUND", "reason": "GONE"})).await;
    assert_eq!(
        (failed.0, wire::json::read_failure(failed.1.as_bytes()).unwrap().reason.as_deref()),
        (404, Some("GONE"))
    );
}

/// The process is killed repeatedly while calls are open, and every call is retried until it succeeds.
#[tokio::test]
async fn a_receiver_killed_while_it_works_has_every_effect_once() {
    let data = TempDir::new().unwrap();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let mut left = keys.clone();
    let mut kills = 0;
    while !left.is_empty() {
        let process = ReceiverProcess::start(&data).await;
        let mut finished = 0;
        let mut remaining = Vec::new();
        for key in left {
            // Each process finishes some calls, gets one more, and is killed before it responds to that one.
            if finished == 6 && kills < 8 {
                remaining.push(key);
                continue;
            }
            assert_eq!(process.call("ledger.add", &key, &json!({})).await.0, 200);
            finished += 1;
        }
        if let Some(key) = remaining.first() {
            let mut connection = HttpConnection::open(process.address).await.unwrap();
            connection.write(&post("ledger.add", key, "{}")).await.unwrap();
        }
        process.process.kill().await.unwrap();
        kills += 1;
        left = remaining;
    }
    let process = ReceiverProcess::start(&data).await;
    for key in &keys {
        assert_eq!(process.call("ledger.add", key, &json!({})).await.0, 200);
    }
    let differences = process.entries().await.compare(keys);
    assert!(differences.is_empty(), "{differences:?}");
}

/// The claim of a dead process is void immediately: the next attempt does not wait ten minutes for it.
#[tokio::test]
async fn a_call_whose_process_was_killed_runs_again_after_the_next_start() {
    let data = TempDir::new().unwrap();
    let wait = json!({"op": "wait", "tag": "t", "ms": 30_000});
    let process = ReceiverProcess::start(&data).await;
    {
        let call = process.call("conformance", "k", &wait);
        tokio::select! {
            _ = call => panic!("the handler should wait for half a minute"),
            () = process.wait_until_in_progress("conformance", "k") => {}
        }
    }
    process.process.kill().await.unwrap();
    let process = ReceiverProcess::start(&data).await;
    let run = json!({"op": "run", "tag": "t"});
    assert_eq!(process.call("conformance", "k", &run).await, (200, r#"{"runs":1}"#.to_owned()));
}

#[tokio::test]
async fn a_receiver_that_is_stopped_finishes_open_calls() {
    let data = TempDir::new().unwrap();
    let mut process = ReceiverProcess::start(&data).await;
    let wait = json!({"op": "wait", "tag": "t", "ms": 700});
    let call = async {
        let (status, body) = process.call("conformance", "k", &wait).await;
        assert_eq!((status, body.as_str()), (200, r#"{"runs":1}"#));
    };
    let stop = async {
        process.wait_until_in_progress("conformance", "k").await;
        process.process.send(Signal::TERM).unwrap();
    };
    tokio::join!(call, stop);
    let ended = tokio::time::timeout(Duration::from_secs(20), process.process.wait()).await;
    assert!(ended.unwrap().unwrap().success());
}

/// Over every wire, and under each of the names that a sender may use for one activity.
#[tokio::test]
async fn every_request_is_logged() {
    let data = TempDir::new().unwrap();
    let process = ReceiverProcess::start(&data).await;
    assert_eq!(process.call("ledger.add.protobuf", "k", &json!({})).await.0, 200);
    assert_eq!(process.probe("ledger.add", "l").await, 404);
    let mut client = process.grpc().await;
    let third_retry = Metadata { retry_attempt: 3, ..metadata("k") };
    let mut request = tonic::Request::new(protobuf::invoke_request("ledger.add.grpc", &json!({})));
    grpc::write_metadata(&third_retry, request.metadata_mut()).unwrap();
    client.invoke(request).await.unwrap();
    let mut probe = tonic::Request::new(ProbeRequest { activity: "ledger.add.grpc".to_owned() });
    grpc::write_metadata(&metadata("k"), probe.metadata_mut()).unwrap();
    client.probe(probe).await.unwrap();
    let log = std::fs::read_to_string(data.path().join("attempts.log")).unwrap();
    assert_eq!(
        log, "e/1\tk\t\tdelivery\ne/1\tl\t\tprobe\ne/1\tk\t3\tdelivery\ne/1\tk\t0\tprobe\n",
        "an absent attempt number is logged as empty"
    );
}

#[test]
fn a_missing_variable_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_abide-receiver")).env_remove("PORT").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("PORT"));
}
