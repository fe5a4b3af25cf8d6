//! Many sessions at once, killed again and again: every event of every session is there, once and in order, and every run has ended.
//!
//! Each session's first event starts its run, its last one ends it, and those between are recorded. A sender repeats an event until it is
//! acknowledged, always under the same id, and only then sends the next one of the session.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use abide_runtime::entity::EntityId;
use abide_runtime::placement::ShardCount;
use abide_store::memory::Dice;
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{Answer, Ask, Client};
use super::process::{Server, Setup};

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub cycles: u32,
    pub sessions: u32,
    pub events: u32,
}

/// Senders at once; each has its share of the sessions.
const SENDERS: u32 = 128;
/// As a new store has it.
const SHARDS: u32 = 8;
/// How long everything may take after the last kill.
const FINISH_MAX: Duration = Duration::from_secs(300);
const WORKFLOW: &str = "session";

/// What senders found out.
#[derive(Debug, Default)]
struct Sent {
    latencies_us: Vec<u64>,
    repeated: u64,
    /// When the last event was acknowledged.
    last: Option<Instant>,
    findings: Vec<String>,
}

pub(crate) fn run(plan: Plan, folder: &Path, program: Option<PathBuf>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let setup = Setup::new(folder, folder.join("data"), program, false)?;
        spread(plan);
        let (up, address) = watch::channel(None);
        let server = begin(&setup, &up).await?;
        prepare(&mut Client::new(address.clone())).await?;
        let sent = Arc::new(Mutex::new(Sent::default()));
        let began = now();
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            senders.spawn(send_all(plan, sender, Client::new(address.clone()), Arc::clone(&sent)));
        }
        let (server, kills) = kill_all(plan.cycles, &setup, &up, server, &sent).await?;
        let finished = async { while senders.join_next().await.is_some() {} };
        if tokio::time::timeout(FINISH_MAX, finished).await.is_err() {
            return Err(format!("not everything was acknowledged within {FINISH_MAX:?}"));
        }
        check_all(plan, &mut Client::new(address.clone()), &sent).await;
        up.send_replace(None);
        server.stop().await?;
        let proved = setup.fsck().await?;
        let mut sent = std::mem::take(&mut *lock(&sent));
        let seconds = sent.last.unwrap_or(began).saturating_duration_since(began).as_secs_f64();
        sent.findings.extend(proved.findings.into_iter().map(|finding| format!("fsck: {finding}")));
        report(plan, kills, &mut sent, seconds, &proved.summary);
        match sent.findings.len() {
            0 => Ok(()),
            count => Err(format!("{count} findings")),
        }
    })
}

/// How evenly sessions lie on shards, for names of every kind.
fn spread(plan: Plan) {
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

async fn begin(setup: &Setup, up: &watch::Sender<Option<SocketAddr>>) -> Result<Server, String> {
    let mut server = setup.start(None)?;
    let Some(address) = server.ready().await? else {
        return Err(format!("the server does not start: {}", setup.last_words()));
    };
    up.send_replace(Some(address));
    Ok(server)
}

async fn prepare(client: &mut Client) -> Result<(), String> {
    let definition = json!({
        "$schema": "workflow-schema-v1.json", "id": WORKFLOW, "version": "1.0.0", "startAt": "Wait",
        "states": {
            "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "last", "timeout": "P1D", "next": "Done"},
            "Done": {"type": "succeed", "output": "$.input.entityId"},
        },
    });
    let mut asked = vec![(Method::POST, "/api/workflows".to_owned(), definition)];
    for (kind, action) in [("first", "start"), ("next", "record"), ("last", "raise")] {
        let workflow = (action != "record").then_some(WORKFLOW);
        let route = json!({"entityType": "device", "action": action, "workflow": workflow});
        asked.push((Method::PUT, format!("/api/routes/{kind}"), route));
    }
    for (method, path, body) in asked {
        let ask = Ask { method: &method, path: &path, body: Some(&body), idempotency_key: None };
        match client.ask(ask).await {
            Answer::Told(200 | 201, _) => {}
            other => return Err(format!("{path} was answered by {other:?}")),
        }
    }
    Ok(())
}

/// Kills until there were enough kills or everything is sent; leaves a server that runs.
async fn kill_all(
    cycles: u32,
    setup: &Setup,
    up: &watch::Sender<Option<SocketAddr>>,
    mut server: Server,
    sent: &Arc<Mutex<Sent>>,
) -> Result<(Server, u32), String> {
    let mut dice = Dice::new(u64::from(cycles));
    for kills in 0..cycles {
        tokio::time::sleep(Duration::from_millis(500 + dice.below(1_500))).await;
        // Every sender holds it until it is through.
        if Arc::strong_count(sent) == 1 {
            return Ok((server, kills));
        }
        up.send_replace(None);
        server.kill().await?;
        server = begin(setup, up).await?;
    }
    Ok((server, cycles))
}

/// Sends the events of a share of the sessions, round by round, so that all sessions are under way at once.
async fn send_all(plan: Plan, sender: u32, mut client: Client, sent: Arc<Mutex<Sent>>) {
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

async fn send(client: &mut Client, event: &Value, number: u32, sent: &Mutex<Sent>) {
    let mut tries = 0;
    loop {
        let began = now();
        let answer = client.ask(Ask::post("/api/events", event)).await;
        let mut sent = lock(sent);
        match answer {
            Answer::Lost => tries += 1,
            Answer::Told(202, told) => {
                let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                sent.latencies_us.push(took);
                sent.last = Some(now());
                let item = told.pointer("/data/items/0").cloned().unwrap_or_default();
                let (status, position) =
                    (item.get("status").cloned(), item.get("position").and_then(Value::as_u64));
                let duplicate = status == Some(json!("duplicate"));
                sent.repeated += u64::from(duplicate);
                if status != Some(json!("recorded")) && !(duplicate && tries > 0)
                    || position != Some(u64::from(number))
                {
                    sent.findings.push(format!("{event} was answered by {item}"));
                }
                return;
            }
            Answer::Told(status, told) => {
                sent.findings.push(format!("{event} was answered by {status}: {told}"));
                return;
            }
        }
    }
}

/// Every session has its events in order, and its run has ended.
async fn check_all(plan: Plan, client: &mut Client, sent: &Mutex<Sent>) {
    for number in 0..plan.sessions {
        let name = session(number);
        let mut found: Vec<Value> = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!("/api/entities/device/{name}/events?limit=100{token}");
            let Answer::Told(200, told) = client.ask(Ask::get(&path)).await else { break };
            let items = told.pointer("/data/items").and_then(Value::as_array).cloned().unwrap_or_default();
            found.extend(items.iter().map(|item| item.pointer("/event/data").cloned().unwrap_or_default()));
            match told.pointer("/data/continuationToken").and_then(Value::as_str) {
                Some(next) => token = format!("&continuationToken={next}"),
                None => break,
            }
        }
        let expected: Vec<Value> = (0..plan.events).map(Value::from).collect();
        if found != expected {
            lock(sent).findings.push(format!("{name} has {} events, or in another order", found.len()));
        }
        let path = format!("/api/instances/{name}~{WORKFLOW}");
        let run = client.ask(Ask::get(&path)).await;
        let Answer::Told(200, told) = run else {
            lock(sent).findings.push(format!("{path} is answered by {run:?}"));
            continue;
        };
        let is = |pointer: &str, value: &str| told.pointer(pointer).and_then(Value::as_str) == Some(value);
        if !is("/data/status", "Completed") || !is("/data/executionId", &format!("{name}~{WORKFLOW}/1")) {
            lock(sent).findings.push(format!("{path} is {told}"));
        }
    }
}

fn report(plan: Plan, kills: u32, sent: &mut Sent, seconds: f64, proved: &str) {
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
    println!("{} were repeated and known; fsck: {proved}; {} findings", sent.repeated, sent.findings.len());
    for finding in sent.findings.iter().take(20) {
        println!("  {finding}");
    }
}

fn lock(sent: &Mutex<Sent>) -> std::sync::MutexGuard<'_, Sent> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
fn now() -> Instant {
    Instant::now()
}
