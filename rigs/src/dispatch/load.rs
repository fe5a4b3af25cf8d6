//! Clients at work: each starts a flow, sees it through to its end, and starts the next, until it is told to begin nothing new.

use std::time::Duration;

use abide_store::memory::Dice;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::flows::Kind;
use super::ledger::{Broken, Flow, World};
use crate::server::client::{Answer, Ask, Client};

const CLIENTS: u64 = 48;
/// The longest a client rests between two flows.
const REST_MS: u64 = 200;
/// How long it waits before it looks at a flow again.
const LOOK_MS: u64 = 250;
/// The longest that a slow call takes: less than a server lives, or a call might never be answered by any.
const SLOW_MS: u64 = 400;
/// How often a call fails at most before it succeeds.
const TIMES_MAX: u64 = 3;

pub(crate) struct Load {
    closing: watch::Sender<bool>,
    clients: JoinSet<()>,
}

impl Load {
    pub(crate) fn begin(world: &World) -> Self {
        let closing = watch::Sender::new(false);
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let mut one = One { client: world.client(), world: world.clone(), dice: Dice::new(number) };
            let closed = closing.subscribe();
            clients.spawn(async move {
                let mut serial = 0_u64;
                while !*closed.borrow() {
                    serial += 1;
                    one.flow(format!("f{number}-{serial}")).await;
                    one.pause(REST_MS).await;
                }
            });
        }
        Self { closing, clients }
    }

    /// Lets every client see its flow through. False if some could not in time.
    pub(crate) async fn end(mut self, within: Duration) -> bool {
        self.closing.send_replace(true);
        let all = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(within, all).await.is_ok()
    }
}

/// One client.
struct One {
    world: World,
    client: Client,
    dice: Dice,
}

impl One {
    async fn pause(&mut self, ms_max: u64) {
        tokio::time::sleep(Duration::from_millis(self.dice.below(ms_max))).await;
    }

    async fn flow(&mut self, id: String) {
        let kind = match self.dice.below(40) {
            0 => Kind::Late,
            1..7 => Kind::Slow,
            7..13 => Kind::Flaky,
            13..19 => Kind::Items,
            19..26 => Kind::Branches,
            26..33 => Kind::Near,
            _ => Kind::Far,
        };
        let (ms, times) = (50 + self.dice.below(SLOW_MS - 50), 1 + self.dice.below(TIMES_MAX));
        let flow = Flow { id: id.clone(), kind, times, acknowledged: false, ended: false };
        self.world.ledger().flows.insert(id.clone(), flow);
        if self.start(&id, kind, &kind.input(&id, ms, times)).await {
            self.see_through(&id).await;
        }
    }

    /// The same request until it is answered: its key makes it one start.
    async fn start(&mut self, id: &str, kind: Kind, input: &Value) -> bool {
        let body = json!({"workflow": kind.workflow(), "instanceId": id, "input": input});
        let ask = Ask { idempotency_key: Some(id), ..Ask::post("/api/instances", &body) };
        loop {
            match self.client.ask(ask).await {
                Answer::Lost => {}
                Answer::Told(200 | 202, _) => {
                    if let Some(flow) = self.world.ledger().flows.get_mut(id) {
                        flow.acknowledged = true;
                    }
                    return true;
                }
                Answer::Told(status, answer) => {
                    let what = format!("{id}: its start was answered {status} {answer}");
                    self.world.ledger().find(Broken::Wrong, what);
                    return false;
                }
            }
        }
    }

    /// Until it has ended, or is not there.
    async fn see_through(&mut self, id: &str) {
        let path = format!("/api/instances/{id}");
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS / 2)).await;
            self.pause(LOOK_MS).await;
            match self.client.ask(Ask::get(&path)).await {
                Answer::Lost => {}
                Answer::Told(200, answer) if !has_ended(&answer) => {}
                // What became of it is looked at in the end.
                Answer::Told(..) => break,
            }
        }
        if let Some(flow) = self.world.ledger().flows.get_mut(id) {
            flow.ended = true;
        }
    }
}

fn has_ended(answer: &Value) -> bool {
    let status = answer.pointer("/data/status").and_then(Value::as_str);
    matches!(status, Some("Completed" | "Failed" | "Terminated"))
}
