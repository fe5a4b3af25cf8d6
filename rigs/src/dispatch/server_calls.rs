//! Reads from the server, at the end, how every flow ended and the record of each of its calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_testkit::http_client::HttpRequest;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::attempts::WorkId;
use super::ledger::{DispatchRig, DispatchViolation, FlowEntry};
use super::orphans;
use crate::server::client::{RigClient, RigResponse};

/// How many flows are read at the same time.
const READERS: usize = 8;

/// The server's account of all flows.
#[derive(Default, Debug)]
pub(crate) struct ServerCalls {
    /// The number of the last attempt of each call.
    pub calls: BTreeMap<WorkId, u32>,
    /// The results in the output of each completed flow, in the order of its calls.
    pub call_results: BTreeMap<String, Vec<Value>>,
}

/// Reads every acknowledged flow. The server is not killed meanwhile.
pub(crate) async fn read(rig: &DispatchRig) -> ServerCalls {
    let flows: Vec<FlowEntry> = rig.ledger().acknowledged().cloned().collect();
    let flows = Arc::new(Mutex::new(flows));
    let journal = Arc::new(Mutex::new(ServerCalls::default()));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let rig = rig.clone();
        let flows = Arc::clone(&flows);
        let journal = Arc::clone(&journal);
        readers.spawn(async move {
            let mut client = rig.client();
            loop {
                let Some(flow) = flows.lock().await.pop() else { return };
                if let Err((broken, problem)) = read_flow(&mut client, &flow, &journal).await {
                    rig.ledger().findings.add(broken, format!("{}: {problem}", flow.id));
                }
            }
        });
    }
    while readers.join_next().await.is_some() {}
    std::mem::take(&mut *journal.lock().await)
}

async fn read_flow(
    client: &mut RigClient,
    flow: &FlowEntry,
    journal: &Mutex<ServerCalls>,
) -> Result<(), (DispatchViolation, String)> {
    let id = &flow.id;
    let instance = get(client, &format!("/api/instances/{id}"))
        .await
        .map_err(|error| (DispatchViolation::Lost, error))?;
    let status = instance.get("status").and_then(Value::as_str).unwrap_or_default();
    let planned = flow.calls();
    let calls = orphans::open_calls(client, &format!("executionId={id}%2F1&")).await;
    let calls =
        calls.ok_or_else(|| (DispatchViolation::Wrong, "the server did not list its calls".to_owned()))?;
    let mut records = Vec::new();
    for call in &calls {
        let key = call.get("idempotencyKey").and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = format!("/api/dispatches/{id}/1/{key}");
        let record = get(client, &path).await.map_err(|error| (DispatchViolation::Wrong, error))?;
        records.push((key, record));
    }
    let mut journal = journal.lock().await;
    for (key, record) in &records {
        let attempt =
            record.get("attempt").and_then(Value::as_u64).and_then(|attempt| attempt.try_into().ok());
        journal.calls.insert((format!("{id}/1"), key.clone()), attempt.unwrap_or_default());
    }
    if status != "Completed" {
        let error = instance.get("error").cloned().unwrap_or_default();
        return Err((DispatchViolation::Lost, format!("it was acknowledged, but is {status}: {error}")));
    }
    let output = instance.get("output").unwrap_or(&Value::Null);
    journal.call_results.insert(id.clone(), flow.kind.call_results(output));
    if let Some((_, open)) =
        records.iter().find(|(_, record)| record.get("state") != Some(&Value::from("ACKED")))
    {
        return Err((DispatchViolation::Orphan, format!("it has completed, but has the open call {open}")));
    }
    if records.len() != planned.len() {
        let has = records.len();
        let makes = planned.len();
        return Err((
            DispatchViolation::Wrong,
            format!("it makes {makes} calls, but the server has records of {has}"),
        ));
    }
    Ok(())
}

async fn get(client: &mut RigClient, path: &str) -> Result<Value, String> {
    match client.send(&HttpRequest::get(path)).await {
        RigResponse::Received(200, mut response) => {
            Ok(response.get_mut("data").map(Value::take).unwrap_or_default())
        }
        other => Err(format!("GET {path} returned {other:?}")),
    }
}
