//! The load of the rig: each client starts a flow, waits for its end and starts the next, until the load is closed.

use std::time::Duration;

use abide_store::memory::SeededRng;
use abide_testkit::http_client::HttpRequest;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::flows::FlowKind;
use super::ledger::{DispatchRig, DispatchViolation, FlowEntry};
use crate::server::client::{RigClient, RigResponse};

const CLIENTS: u64 = 48;
/// The longest pause of a client between two flows.
const REST_MS: u64 = 200;
/// How long it waits before it polls a flow again.
const POLL_MS: u64 = 250;
/// The longest duration of a slow call: shorter than the life of a server, or no server might get its result.
const SLOW_MS: u64 = 400;
/// The most failures of a call before it succeeds.
const TIMES_MAX: u64 = 3;

pub(crate) struct FlowLoad {
    closing: watch::Sender<bool>,
    clients: JoinSet<()>,
}

impl FlowLoad {
    pub(crate) fn start(rig: &DispatchRig) -> Self {
        let closing = watch::Sender::new(false);
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let mut flow_client =
                FlowClient { client: rig.client(), world: rig.clone(), dice: SeededRng::new(number) };
            let closed = closing.subscribe();
            clients.spawn(async move {
                let mut serial = 0_u64;
                while !*closed.borrow() {
                    serial += 1;
                    flow_client.flow(format!("f{number}-{serial}")).await;
                    flow_client.pause(REST_MS).await;
                }
            });
        }
        Self { closing, clients }
    }

    /// Lets every client wait for the end of its flow. False if some did not finish in time.
    pub(crate) async fn finish(mut self, within: Duration) -> bool {
        self.closing.send_replace(true);
        let all = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(within, all).await.is_ok()
    }
}

struct FlowClient {
    world: DispatchRig,
    client: RigClient,
    dice: SeededRng,
}

impl FlowClient {
    async fn pause(&mut self, ms_max: u64) {
        tokio::time::sleep(Duration::from_millis(self.dice.below(ms_max))).await;
    }

    async fn flow(&mut self, id: String) {
        let kind = match self.dice.below(40) {
            0 => FlowKind::Late,
            1..7 => FlowKind::Slow,
            7..13 => FlowKind::Flaky,
            13..19 => FlowKind::Items,
            19..26 => FlowKind::Branches,
            26..33 => FlowKind::Near,
            _ => FlowKind::Far,
        };
        let ms = 50 + self.dice.below(SLOW_MS - 50);
        let times = 1 + self.dice.below(TIMES_MAX);
        let flow =
            FlowEntry { id: id.clone(), kind, failures_first: times, acknowledged: false, ended: false };
        self.world.ledger().flows.insert(id.clone(), flow);
        if self.start(&id, kind, &kind.input(&id, ms, times)).await {
            self.wait_for_end(&id).await;
        }
    }

    /// Repeats the same request until it gets a response: its idempotency key makes it one start.
    async fn start(&mut self, id: &str, kind: FlowKind, input: &Value) -> bool {
        let body = json!({"workflow": kind.workflow(), "instanceId": id, "input": input});
        let request = HttpRequest::post("/api/instances", &body).header("idempotency-key", id);
        loop {
            match self.client.send(&request).await {
                RigResponse::Lost => {}
                RigResponse::Received(200 | 202, _) => {
                    if let Some(flow) = self.world.ledger().flows.get_mut(id) {
                        flow.acknowledged = true;
                    }
                    return true;
                }
                RigResponse::Received(status, response) => {
                    let what = format!("{id}: its start returned {status} {response}");
                    self.world.ledger().findings.add(DispatchViolation::Wrong, what);
                    return false;
                }
            }
        }
    }

    /// Polls a flow until it has ended or does not exist.
    async fn wait_for_end(&mut self, id: &str) {
        let path = format!("/api/instances/{id}");
        loop {
            tokio::time::sleep(Duration::from_millis(POLL_MS / 2)).await;
            self.pause(POLL_MS).await;
            match self.client.send(&HttpRequest::get(&path)).await {
                RigResponse::Lost => {}
                RigResponse::Received(200, response) if !has_ended(&response) => {}
                // Its outcome is checked at the end of the rig.
                RigResponse::Received(..) => break,
            }
        }
        if let Some(flow) = self.world.ledger().flows.get_mut(id) {
            flow.ended = true;
        }
    }
}

fn has_ended(response: &Value) -> bool {
    let status = response.pointer("/data/status").and_then(Value::as_str);
    matches!(status, Some("Completed" | "Failed" | "Terminated"))
}
