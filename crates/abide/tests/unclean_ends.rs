//! A server whose stored work ends its process: it comes up again, without the one instance that is the cause.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use abide_testkit::http_client::{HttpClient, HttpRequest};
use abide_testkit::process::ProgramProcess;
use serde_json::{Value, json};

const RUNS: usize = 40;
/// How long after its readiness a server may take to work.
const WORKS_WITHIN: Duration = Duration::from_secs(2);

/// Starts a server, in which every turn of the poisoned instance ends the process. None if it ends before it listens.
async fn begin(data: &Path, poison: Option<&str>) -> Option<(ProgramProcess, SocketAddr)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.env_remove("ABIDE_LISTEN").env_remove("ABIDE_DATA").env_remove("ABIDE_POISON");
    command.envs(poison.map(|id| ("ABIDE_POISON", format!("abort:{id}"))));
    let mut server = ProgramProcess::spawn_logged(command, &data.with_extension("log")).unwrap();
    let address = server.ready().await.unwrap()?;
    Some((server, address))
}

/// The data of the response; none if the server has ended.
async fn ask(address: SocketAddr, request: &HttpRequest) -> Option<Value> {
    let response = HttpClient::new(address, Duration::from_secs(30)).send(request).await.ok()?;
    assert!(response.is_success(), "{}", response.text());
    Some(response.json().unwrap()["data"].take())
}

async fn status(address: SocketAddr, id: &str) -> Option<String> {
    let run = ask(address, &HttpRequest::get(&format!("/api/instances/{id}"))).await?;
    Some(run["status"].as_str().unwrap_or_default().to_owned())
}

/// Waits until all good runs are completed and one more has run, at most as long as a server may take. None if the
/// server ends.
async fn works(address: SocketAddr, number: usize) -> Option<()> {
    while HttpClient::new(address, WORKS_WITHIN).send(&HttpRequest::get("/readyz")).await.ok()?.status != 200
    {
    }
    let since = Instant::now();
    for run in 0..RUNS {
        while status(address, &format!("run-{run}")).await? != "Completed" {
            assert!(since.elapsed() < WORKS_WITHIN, "run-{run} is not completed");
        }
    }
    let start = json!({"workflow": "nap", "instanceId": format!("new-{number}"), "input": {"nap": "PT0S"}});
    let ended = ask(address, &HttpRequest::post("/api/instances?wait=PT30S", &start)).await?;
    assert_eq!(ended["status"], "Completed", "{ended}");
    assert!(since.elapsed() < WORKS_WITHIN, "it took {:?}", since.elapsed());
    Some(())
}

#[tokio::test]
async fn a_run_that_ends_the_process_is_parked_and_twenty_restarts_serve_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (server, address) = begin(&data, None).await.unwrap();
    let nap = json!({"type": "wait", "waitType": "duration", "duration": "$.input.nap", "next": "Echo"});
    let echo = json!({"type": "task", "activity": "core.echo", "input": {}, "next": "End"});
    let states = json!({"Nap": nap, "Echo": echo, "End": {"type": "succeed"}});
    let definition = json!({"$schema": "workflow-schema-v1.json", "id": "nap", "version": "1.0.0", "startAt": "Nap", "states": states});
    ask(address, &HttpRequest::post("/api/workflows", &definition)).await.unwrap();
    for id in (0..RUNS).map(|run| format!("run-{run}")).chain(["bad".to_owned()]) {
        let start = json!({"workflow": "nap", "instanceId": id, "input": {"nap": "PT1S"}});
        let started = ask(address, &HttpRequest::post("/api/instances", &start)).await.unwrap();
        assert_eq!(started["instanceId"], id, "{started}");
    }
    server.kill().await.unwrap();

    let mut deaths = 0;
    for number in 0..20 {
        let Some((server, address)) = begin(&data, Some("bad")).await else {
            deaths += 1;
            continue;
        };
        match works(address, number).await {
            Some(()) => assert_eq!(status(address, "bad").await.as_deref(), Some("Parked")),
            None => deaths += 1,
        }
        server.kill().await.unwrap();
    }
    assert!((2..=3).contains(&deaths), "it ended {deaths} times");
    let log = std::fs::read_to_string(data.with_extension("log")).unwrap();
    let parked = log.lines().filter(|line| line.contains("run parked")).count();
    assert_eq!(parked, 1, "only the cause is parked");
}
