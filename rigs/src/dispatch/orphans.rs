//! Scans the open calls while the server is up: no call may stay `SENT` longer than its attempt and a reconciliation
//! take.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abide_testkit::http_client::HttpRequest;
use abide_workflow::Timestamp;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::ledger::{DispatchRig, DispatchViolation};
use super::receiver_wires::{ATTEMPT_MS, RECONCILE_MS};
use crate::server::client::{RigClient, RigResponse};

/// How often the open calls are scanned.
const SCAN_EVERY: Duration = Duration::from_millis(700);
/// The extra time that a busy server may take.
const SLACK_MS: u64 = 5_000;
/// How long a server must be up before its records are checked: by then it has reconciled those of the previous server.
const UP_MIN: Duration = Duration::from_secs(5);

/// Scans again and again until the task is aborted.
pub(crate) fn watch(rig: &DispatchRig) -> JoinHandle<()> {
    let rig = rig.clone();
    tokio::spawn(async move {
        let mut client = rig.client();
        loop {
            tokio::time::sleep(SCAN_EVERY).await;
            if rig.up_since().is_some_and(|since| since.elapsed() >= UP_MIN) {
                scan_open_calls(&rig, &mut client).await;
            }
        }
    })
}

async fn scan_open_calls(rig: &DispatchRig, client: &mut RigClient) {
    let Some(calls) = open_calls(client, "state=SENT&").await else { return };
    // The server may have been restarted during the scan.
    if rig.up_since().is_none_or(|since| since.elapsed() < UP_MIN) {
        return;
    }
    let latest = wall_clock_ms()
        .saturating_sub(i64::try_from(ATTEMPT_MS + RECONCILE_MS + SLACK_MS).unwrap_or_default());
    let mut ledger = rig.ledger();
    ledger.orphan_scans += 1;
    for call in calls {
        let sent = call.get("sentAtUtc").and_then(Value::as_str).and_then(|at| Timestamp::parse(at).ok());
        if sent.is_some_and(|sent| sent.0 < latest) {
            ledger.findings.add(DispatchViolation::Orphan, format!("the call is SENT for too long: {call}"));
        }
    }
}

/// The open calls, or `None` if the server was killed meanwhile.
pub(crate) async fn open_calls(client: &mut RigClient, filter: &str) -> Option<Vec<Value>> {
    let mut calls = Vec::new();
    let mut token = String::new();
    loop {
        let path = format!("/api/dispatches?{filter}limit=100{token}");
        let RigResponse::Received(200, response) = client.send(&HttpRequest::get(&path)).await else {
            return None;
        };
        let data = response.get("data")?;
        calls.extend(data.get("items")?.as_array()?.iter().cloned());
        match data.get("continuationToken").and_then(Value::as_str) {
            Some(next) => token = format!("&continuationToken={next}"),
            None => return Some(calls),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a rig works in real time, like the server it checks")]
fn wall_clock_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
