//! The script of one client for one run: starts it, raises its events, terminates it, and retries when a response was
//! lost.

use std::time::Duration;

use abide_store::memory::SeededRng;
use abide_testkit::http_client::HttpRequest;
use serde_json::{Value, json};

use super::client::{RigClient, RigResponse};
use super::definitions::{EVENT_NAMES, LOOP_EVENT, RunKind};
use super::ledger::{BrokenPromise, EventEntry, RunEntry};
use super::rig::ServerRig;

pub(crate) struct ClientScript {
    world: ServerRig,
    client: RigClient,
    dice: SeededRng,
}

/// The outcome of an event or a control operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ControlOutcome {
    Accepted,
    /// The run has ended.
    Ended,
    Lost,
    /// Refused; the refusal is a finding.
    Refused,
}

impl ClientScript {
    pub(crate) fn new(world: ServerRig, dice: SeededRng) -> Self {
        let client = world.client();
        Self { world, client, dice }
    }

    /// Plays the script for one run, from its start to the last request.
    pub(crate) async fn run(&mut self, id: &str) {
        let which = usize::try_from(self.dice.below(RunKind::ALL.len() as u64)).unwrap_or_default();
        let kind = RunKind::ALL.get(which).copied().unwrap_or(RunKind::Steps);
        let run = RunEntry::new(id.to_owned(), kind, self.dice.below(2) == 0);
        self.world.ledger().runs.insert(id.to_owned(), run.clone());
        if self.start(&run).await {
            match kind {
                RunKind::Events => self.raise_each(id).await,
                RunKind::Loop => self.raise_until_last(id).await,
                RunKind::NeverEnding => self.terminate(id).await,
                _ => {}
            }
            if run.keyed && self.dice.below(4) == 0 {
                // Repeats the start, whatever the state of the run: the response must be the stored one.
                self.start(&run).await;
            }
        }
        if let Some(run) = self.world.ledger().runs.get_mut(id) {
            run.done = true;
        }
    }

    /// Waits a random time, so that runs are live during kills.
    pub(crate) async fn pause(&mut self, millis_max: u64) {
        tokio::time::sleep(Duration::from_millis(self.dice.below(millis_max))).await;
    }

    /// Starts a run. With a key the same request is repeated until it gets a response; without one the client first
    /// checks whether the run exists.
    async fn start(&mut self, run: &RunEntry) -> bool {
        let RunEntry { id, kind, keyed, .. } = run;
        let body = json!({"workflow": kind.workflow(), "instanceId": id, "input": kind.input(id)});
        let waits = matches!(kind, RunKind::Steps | RunKind::Map) && self.dice.below(4) == 0;
        let path = if waits { "/api/instances?wait=PT1S" } else { "/api/instances" };
        let show = format!("/api/instances/{id}");
        let key = format!("key-{id}");
        let request = HttpRequest::post(path, &body);
        let request = if *keyed { request.header("idempotency-key", &key) } else { request };
        loop {
            if let Some(run) = self.world.ledger().runs.get_mut(id) {
                run.sends += 1;
            }
            match self.client.send(&request).await {
                RigResponse::Received(status @ (200 | 202), body) => {
                    self.record_start(id, status, &body);
                    return true;
                }
                RigResponse::Received(status, response) => {
                    let sends = self.world.ledger().runs.get(id).map_or(0, |run| run.sends);
                    if status == 409 && !keyed && sends > 1 {
                        // An earlier copy of the request was executed.
                        self.world.ledger().on_started(id, None);
                        return true;
                    }
                    let what = format!("{id}: start {sends} returned {status} {response}");
                    // The definition was published before, so a 404 is a loss.
                    let broken = if status == 404 { BrokenPromise::Lost } else { BrokenPromise::Wrong };
                    self.world.ledger().findings.add(broken, what);
                    return false;
                }
                RigResponse::Lost if *keyed => {}
                RigResponse::Lost => {
                    if self.is_there(&show).await {
                        self.world.ledger().on_started(id, None);
                        return true;
                    }
                }
            }
        }
    }

    fn record_start(&self, id: &str, status: u16, response: &Value) {
        let data = response.get("data").cloned().unwrap_or_default();
        let execution = data.get("executionId").and_then(Value::as_str);
        let mut ledger = self.world.ledger();
        ledger.on_started(id, execution);
        if status == 200
            && let Some(run) = ledger.runs.get_mut(id)
        {
            run.reported_end = Some(data);
        }
    }

    async fn is_there(&mut self, path: &str) -> bool {
        loop {
            match self.client.send(&HttpRequest::get(path)).await {
                RigResponse::Received(404, _) => return false,
                RigResponse::Received(200, _) => return true,
                RigResponse::Received(status, response) => {
                    let what = format!("GET {path} returned {status} {response}");
                    self.world.ledger().findings.add(BrokenPromise::Wrong, what);
                    return false;
                }
                RigResponse::Lost => {}
            }
        }
    }

    /// Raises each event under a different name and repeats it until it is acknowledged: no wait takes a second copy.
    async fn raise_each(&mut self, id: &str) {
        for (number, name) in EVENT_NAMES.into_iter().enumerate() {
            self.pause(150).await;
            self.add_event(id, json!({"for": id, "number": number}));
            loop {
                match self.raise(id, name, number).await {
                    ControlOutcome::Lost => {}
                    ControlOutcome::Accepted | ControlOutcome::Ended => break,
                    ControlOutcome::Refused => return,
                }
            }
        }
    }

    /// Raises some events under one name, and a last one. An event whose response was lost is repeated or not.
    async fn raise_until_last(&mut self, id: &str) {
        let events = usize::try_from(2 + self.dice.below(4)).unwrap_or_default();
        for number in 0..=events {
            self.pause(100).await;
            let is_last = number == events;
            self.add_event(id, json!({"for": id, "number": number, "last": is_last}));
            loop {
                match self.raise(id, LOOP_EVENT, number).await {
                    ControlOutcome::Lost if is_last || self.dice.below(2) == 0 => {}
                    ControlOutcome::Accepted | ControlOutcome::Lost => break,
                    ControlOutcome::Ended if is_last => break,
                    ControlOutcome::Ended => {
                        let what = format!("{id}: it had ended before event {number}, which is not the last");
                        self.world.ledger().findings.add(BrokenPromise::Wrong, what);
                        return;
                    }
                    ControlOutcome::Refused => return,
                }
            }
        }
    }

    fn add_event(&self, id: &str, payload: Value) {
        if let Some(run) = self.world.ledger().runs.get_mut(id) {
            run.events.push(EventEntry { payload, sends: 0, acknowledged: false });
        }
    }

    async fn raise(&mut self, id: &str, name: &str, number: usize) -> ControlOutcome {
        let event = self.world.ledger().runs.get_mut(id).and_then(|run| {
            let event = run.events.get_mut(number)?;
            event.sends += 1;
            Some(event.clone())
        });
        let Some(event) = event else { return ControlOutcome::Refused };
        let path = format!("/api/instances/{id}/events/{name}");
        let outcome = self.send_control(id, &path, &event.payload, event.sends).await;
        if outcome == ControlOutcome::Accepted {
            self.world.ledger().on_raised(id, number);
        }
        outcome
    }

    async fn terminate(&mut self, id: &str) {
        self.pause(400).await;
        let path = format!("/api/instances/{id}/terminate");
        let mut sends = 1;
        let outcome = loop {
            match self.send_control(id, &path, &json!({"reason": "enough"}), sends).await {
                ControlOutcome::Lost => sends += 1,
                outcome => break outcome,
            }
        };
        let mut ledger = self.world.ledger();
        ledger.terminations += u64::from(outcome == ControlOutcome::Accepted);
        if let Some(run) = ledger.runs.get_mut(id) {
            run.terminated = true;
        }
    }

    /// Sends an event or a control operation to a run whose start was acknowledged.
    async fn send_control(&mut self, id: &str, path: &str, body: &Value, sends: u32) -> ControlOutcome {
        match self.client.send(&HttpRequest::post(path, body)).await {
            RigResponse::Lost => ControlOutcome::Lost,
            RigResponse::Received(202, _) => ControlOutcome::Accepted,
            // Only an earlier copy of the request can have ended it.
            RigResponse::Received(409, _) if sends > 1 => ControlOutcome::Ended,
            RigResponse::Received(status, response) => {
                let broken = if status == 404 { BrokenPromise::Lost } else { BrokenPromise::Wrong };
                let what = format!("{id}: POST {path} returned {status} {response}");
                self.world.ledger().findings.add(broken, what);
                ControlOutcome::Refused
            }
        }
    }
}
