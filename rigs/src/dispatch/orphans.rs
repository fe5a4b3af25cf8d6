//! Looks through the open calls while the server is up: a record that says "may have been sent" must be accounted for in time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abide_workflow::Timestamp;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::ledger::{Broken, World};
use super::lines::{ATTEMPT_MS, RECONCILE_MS};
use crate::server::client::{Answer, Ask, Client};

/// How often the open calls are looked through.
const LOOK_EVERY: Duration = Duration::from_millis(700);
/// What a busy server may take in addition.
const SLACK_MS: u64 = 5_000;
/// How long a server must be up before its records must be in order: by then it has looked at what the last one left.
const UP_MIN: Duration = Duration::from_secs(5);

/// Looks again and again, until it is aborted.
pub(crate) fn watch(world: &World) -> JoinHandle<()> {
    let world = world.clone();
    tokio::spawn(async move {
        let mut client = world.client();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if world.up_since().is_some_and(|since| since.elapsed() >= UP_MIN) {
                look(&world, &mut client).await;
            }
        }
    })
}

async fn look(world: &World, client: &mut Client) {
    let Some(calls) = open(client, "state=SENT&").await else { return };
    // The server may have been another by the end of the list.
    if world.up_since().is_none_or(|since| since.elapsed() < UP_MIN) {
        return;
    }
    let latest =
        wall_ms().saturating_sub(i64::try_from(ATTEMPT_MS + RECONCILE_MS + SLACK_MS).unwrap_or_default());
    let mut ledger = world.ledger();
    ledger.looks += 1;
    for call in calls {
        let sent = call.get("sentAtUtc").and_then(Value::as_str).and_then(|at| Timestamp::parse(at).ok());
        if sent.is_some_and(|sent| sent.0 < latest) {
            ledger.find(Broken::Orphan, format!("sent, and nobody knows any more: {call}"));
        }
    }
}

/// The calls that are open, or none if the server was killed meanwhile.
pub(crate) async fn open(client: &mut Client, filter: &str) -> Option<Vec<Value>> {
    let (mut calls, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/dispatches?{filter}limit=100{token}");
        let Answer::Told(200, answer) = client.ask(Ask::get(&path)).await else { return None };
        let data = answer.get("data")?;
        calls.extend(data.get("items")?.as_array()?.iter().cloned());
        match data.get("continuationToken").and_then(Value::as_str) {
            Some(next) => token = format!("&continuationToken={next}"),
            None => return Some(calls),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a rig lives in real time, as the server it looks at")]
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
