//! What the server says of every flow in the end: how it ended, and each of its calls as the journal has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::deliveries::Work;
use super::ledger::{Broken, Flow, World};
use super::orphans;
use crate::server::client::{Answer, Ask, Client};

/// Flows that are looked at at the same time.
const READERS: usize = 8;

/// All that the server says.
#[derive(Default, Debug)]
pub(crate) struct Journal {
    /// What became of each call: the number of its last delivery.
    pub calls: BTreeMap<Work, u32>,
    /// The answers in the output of each flow that completed, in the order of its calls.
    pub answers: BTreeMap<String, Vec<Value>>,
}

/// Asks for every acknowledged flow. Nobody disturbs the server meanwhile.
pub(crate) async fn read(world: &World) -> Journal {
    let flows: Vec<Flow> = world.ledger().acknowledged().cloned().collect();
    let (flows, journal) = (Arc::new(Mutex::new(flows)), Arc::new(Mutex::new(Journal::default())));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let (world, flows, journal) = (world.clone(), Arc::clone(&flows), Arc::clone(&journal));
        readers.spawn(async move {
            let mut client = world.client();
            loop {
                let Some(flow) = flows.lock().await.pop() else { return };
                if let Err((broken, problem)) = read_flow(&mut client, &flow, &journal).await {
                    world.ledger().find(broken, format!("{}: {problem}", flow.id));
                }
            }
        });
    }
    while readers.join_next().await.is_some() {}
    std::mem::take(&mut *journal.lock().await)
}

async fn read_flow(
    client: &mut Client,
    flow: &Flow,
    journal: &Mutex<Journal>,
) -> Result<(), (Broken, String)> {
    let id = &flow.id;
    let instance =
        get(client, &format!("/api/instances/{id}")).await.map_err(|error| (Broken::Lost, error))?;
    let status = instance.get("status").and_then(Value::as_str).unwrap_or_default();
    let planned = flow.calls();
    let calls = orphans::open(client, &format!("executionId={id}%2F1&")).await;
    let calls = calls.ok_or_else(|| (Broken::Wrong, "its calls were not told".to_owned()))?;
    let mut told = Vec::new();
    for call in &calls {
        let key = call.get("idempotencyKey").and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = format!("/api/dispatches/{id}/1/{key}");
        let shown = get(client, &path).await.map_err(|error| (Broken::Wrong, error))?;
        told.push((key, shown));
    }
    let mut journal = journal.lock().await;
    for (key, shown) in &told {
        let attempt =
            shown.get("attempt").and_then(Value::as_u64).and_then(|attempt| attempt.try_into().ok());
        journal.calls.insert((format!("{id}/1"), key.clone()), attempt.unwrap_or_default());
    }
    if status != "Completed" {
        let error = instance.get("error").cloned().unwrap_or_default();
        return Err((Broken::Lost, format!("it was acknowledged and is {status}: {error}")));
    }
    let output = instance.get("output").unwrap_or(&Value::Null);
    journal.answers.insert(id.clone(), flow.kind.answers(output));
    if let Some((_, open)) = told.iter().find(|(_, shown)| shown.get("state") != Some(&Value::from("ACKED")))
    {
        return Err((Broken::Orphan, format!("it has completed, and its journal has {open}")));
    }
    if told.len() != planned.len() {
        let (has, makes) = (told.len(), planned.len());
        return Err((Broken::Wrong, format!("it makes {makes} calls, and its journal has {has}")));
    }
    Ok(())
}

async fn get(client: &mut Client, path: &str) -> Result<Value, String> {
    match client.ask(Ask::get(path)).await {
        Answer::Told(200, mut answer) => Ok(answer.get_mut("data").map(Value::take).unwrap_or_default()),
        other => Err(format!("GET {path} was answered by {other:?}")),
    }
}
