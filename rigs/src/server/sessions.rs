//! Many sessions at once on a server that is killed again and again: every event of every session must be stored, once
//! and in order, and every run must have ended.
//!
//! The first event of a session starts its run, the last one ends it, and those between are recorded. A sender repeats
//! an event under the same id until it is acknowledged, and only then sends the session's next event.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use abide_runtime::entity::EntityId;
use abide_runtime::placement::ShardCount;
use abide_store::memory::SeededRng;
use abide_testkit::http_client::HttpRequest;
use abide_testkit::process::ProgramProcess;
use abide_testkit::verdict::control_verdict;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{RigClient, RigResponse};
use super::process::{STOP_MAX, ServerSetup};

/// The size of a run of this rig.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionsPlan {
    pub cycles: u32,
    pub sessions: u32,
    pub events: u32,
    pub control: bool,
}

/// The fault that the control plants: the row of an instance is not written when its run ends.
const CONTROL_FAULT: &str = "InstanceRowNotWritten";

/// The number of senders; each has its share of the sessions.
const SENDERS: u32 = 128;
/// The shard count of a new store.
const SHARDS: u32 = 8;
/// How long the senders may take after the last kill.
const FINISH_MAX: Duration = Duration::from_secs(300);
const WORKFLOW: &str = "session";

/// The results of all senders.
#[derive(Debug, Default)]
struct SenderReport {
    latencies_us: Vec<u64>,
    repeated: u64,
    /// When the last event was acknowledged.
    last: Option<Instant>,
    findings: Vec<String>,
}

pub(crate) fn run(plan: SessionsPlan, folder: &Path, program: Option<PathBuf>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let setup = ServerSetup::new(folder, folder.join("data"), program, false)?
            .with_fault(plan.control.then_some(CONTROL_FAULT));
        spread(plan);
        let (up, address) = watch::channel(None);
        let server = begin(&setup, &up).await?;
        prepare(&mut RigClient::new(address.clone())).await?;
        let sent = Arc::new(Mutex::new(SenderReport::default()));
        let began = now();
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            senders.spawn(send_all(plan, sender, RigClient::new(address.clone()), Arc::clone(&sent)));
        }
        let (server, kills) = kill_all(plan.cycles, &setup, &up, server, &sent).await?;
        let finished = async { while senders.join_next().await.is_some() {} };
        if tokio::time::timeout(FINISH_MAX, finished).await.is_err() {
            return Err(format!("some events were not acknowledged within {FINISH_MAX:?}"));
        }
        check_all(plan, &mut RigClient::new(address.clone()), &sent).await;
        up.send_replace(None);
        server.stop(Signal::TERM, STOP_MAX).await?;
        let fsck = setup.fsck().await?;
        let mut sent = std::mem::take(&mut *lock(&sent));
        let seconds = sent.last.unwrap_or(began).saturating_duration_since(began).as_secs_f64();
        sent.findings.extend(fsck.findings.into_iter().map(|finding| format!("fsck: {finding}")));
        report(plan, kills, &mut sent, seconds, &fsck.summary);
        if plan.control {
            return control_verdict(sent.findings.len() as u64, "found nothing");
        }
        match sent.findings.len() {
            0 => Ok(()),
            count => Err(format!("{count} findings")),
        }
    })
}

/// Prints how evenly sessions are spread over the shards, for different kinds of names.
fn spread(plan: SessionsPlan) {
    let Some(shards) = ShardCount::new(SHARDS) else { return };
    for (what, name) in [
        ("one prefix", session as fn(u32) -> String),
        ("numbers", |number| number.to_string()),
        ("one long prefix", |number| format!("contoso/westeurope/line-7/press-{number:06}")),
    ] {
        let mut counts = vec![0u32; SHARDS as usize];
        for number in 0..plan.sessions {
            let Ok(entity) = EntityId::new("device", name(number)) else { continue };
            let shard = shards.shard_of(&entity.placement_key()).number() as usize;
            if let Some(count) = counts.get_mut(shard) {
                *count += 1;
            }
        }
        let max = f64::from(counts.iter().copied().max().unwrap_or(0));
        let mean = f64::from(plan.sessions) / f64::from(SHARDS);
        println!("{what:<18} {} sessions on {SHARDS} shards, max/mean {:.2}", plan.sessions, max / mean);
    }
}

fn session(number: u32) -> String {
    format!("device-{number:05}")
}

async fn begin(
    setup: &ServerSetup,
    up: &watch::Sender<Option<SocketAddr>>,
) -> Result<ProgramProcess, String> {
    let mut server = setup.start(None)?;
    let Some(address) = server.ready().await? else {
        return Err(format!("the server does not start: {}", setup.log_tail()));
    };
    up.send_replace(Some(address));
    Ok(server)
}

async fn prepare(client: &mut RigClient) -> Result<(), String> {
    let definition = json!({
        "$schema": "workflow-schema-v1.json", "id": WORKFLOW, "version": "1.0.0", "startAt": "Wait",
        "states": {
            "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "last", "timeout": "P1D", "next": "Done"},
            "Done": {"type": "succeed", "output": "$.input.entityId"},
        },
    });
    let mut requests = vec![("the definition", HttpRequest::post("/api/workflows", definition))];
    for (kind, action) in [("first", "start"), ("next", "record"), ("last", "raise")] {
        let workflow = (action != "record").then_some(WORKFLOW);
        let route = json!({"entityType": "device", "action": action, "workflow": workflow});
        requests.push((kind, HttpRequest::put(&format!("/api/routes/{kind}"), route)));
    }
    for (what, request) in requests {
        match client.send(&request).await {
            RigResponse::Received(200 | 201, _) => {}
            other => return Err(format!("{what} returned {other:?}")),
        }
    }
    Ok(())
}

/// Kills until there were enough kills or all events are sent; leaves a running server.
async fn kill_all(
    cycles: u32,
    setup: &ServerSetup,
    up: &watch::Sender<Option<SocketAddr>>,
    mut server: ProgramProcess,
    sent: &Arc<Mutex<SenderReport>>,
) -> Result<(ProgramProcess, u32), String> {
    let mut dice = SeededRng::new(u64::from(cycles));
    for kills in 0..cycles {
        tokio::time::sleep(Duration::from_millis(500 + dice.below(1_500))).await;
        // Every sender holds a reference until it has finished.
        if Arc::strong_count(sent) == 1 {
            return Ok((server, kills));
        }
        up.send_replace(None);
        server.kill().await?;
        server = begin(setup, up).await?;
    }
    Ok((server, cycles))
}

/// Sends the events of a sender's sessions, round by round, so that all sessions are live at once.
async fn send_all(plan: SessionsPlan, sender: u32, mut client: RigClient, sent: Arc<Mutex<SenderReport>>) {
    for number in 0..plan.events {
        let kind = match number {
            0 => "first",
            last if last + 1 == plan.events => "last",
            _ => "next",
        };
        for session_number in (0..plan.sessions).filter(|session| session % SENDERS == sender) {
            let name = session(session_number);
            let event = json!({
                "specversion": "1.0", "source": "/rig", "id": format!("{name}/{number}"), "type": kind,
                "subject": name, "data": number,
            });
            send(&mut client, &event, number, &sent).await;
        }
    }
}

async fn send(client: &mut RigClient, event: &Value, number: u32, sent: &Mutex<SenderReport>) {
    let request = HttpRequest::post("/api/events", event);
    let mut tries = 0;
    loop {
        let began = now();
        let response = client.send(&request).await;
        let mut sent = lock(sent);
        match response {
            RigResponse::Lost => tries += 1,
            RigResponse::Received(202, body) => {
                let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                sent.latencies_us.push(took);
                sent.last = Some(now());
                let item = body.pointer("/data/items/0").cloned().unwrap_or_default();
                let (status, position) =
                    (item.get("status").cloned(), item.get("position").and_then(Value::as_u64));
                let duplicate = status == Some(json!("duplicate"));
                sent.repeated += u64::from(duplicate);
                if status != Some(json!("recorded")) && !(duplicate && tries > 0)
                    || position != Some(u64::from(number))
                {
                    sent.findings.push(format!("{event} was answered with {item}"));
                }
                return;
            }
            RigResponse::Received(status, body) => {
                sent.findings.push(format!("{event} was answered with {status}: {body}"));
                return;
            }
        }
    }
}

/// Checks that every session has its events in order, and that its run has completed.
async fn check_all(plan: SessionsPlan, client: &mut RigClient, sent: &Mutex<SenderReport>) {
    for number in 0..plan.sessions {
        let name = session(number);
        let mut events: Vec<Value> = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!("/api/entities/device/{name}/events?limit=100{token}");
            let RigResponse::Received(200, body) = client.send(&HttpRequest::get(&path)).await else { break };
            let items = body.pointer("/data/items").and_then(Value::as_array).cloned().unwrap_or_default();
            events.extend(items.iter().map(|item| item.pointer("/event/data").cloned().unwrap_or_default()));
            match body.pointer("/data/continuationToken").and_then(Value::as_str) {
                Some(next) => token = format!("&continuationToken={next}"),
                None => break,
            }
        }
        let expected: Vec<Value> = (0..plan.events).map(Value::from).collect();
        if events != expected {
            lock(sent).findings.push(format!("{name} has {} events, or they are out of order", events.len()));
        }
        let path = format!("/api/instances/{name}~{WORKFLOW}");
        let run = client.send(&HttpRequest::get(&path)).await;
        let RigResponse::Received(200, body) = run else {
            lock(sent).findings.push(format!("GET {path} returned {run:?}"));
            continue;
        };
        let is = |pointer: &str, value: &str| body.pointer(pointer).and_then(Value::as_str) == Some(value);
        if !is("/data/status", "Completed") || !is("/data/executionId", &format!("{name}~{WORKFLOW}/1")) {
            lock(sent).findings.push(format!("GET {path} returned {body}"));
        }
    }
}

fn report(plan: SessionsPlan, kills: u32, sent: &mut SenderReport, seconds: f64, fsck: &str) {
    sent.latencies_us.sort_unstable();
    let at = |share: usize| {
        let place = sent.latencies_us.len().saturating_sub(1) * share / 1_000;
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let ms = sent.latencies_us.get(place).copied().unwrap_or(0) as f64 / 1_000.0;
        ms
    };
    let events = sent.latencies_us.len();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let rate = events as f64 / seconds;
    println!(
        "{} sessions, {events} events acknowledged in {seconds:.1} s with {kills} kills: {rate:.0}/s, p50 {:.1} ms, p99 {:.1} ms",
        plan.sessions,
        at(500),
        at(990)
    );
    println!("{} repeats were recognised; fsck: {fsck}; {} findings", sent.repeated, sent.findings.len());
    for finding in sent.findings.iter().take(20) {
        println!("  {finding}");
    }
}

fn lock(sent: &Mutex<SenderReport>) -> std::sync::MutexGuard<'_, SenderReport> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
fn now() -> Instant {
    Instant::now()
}
