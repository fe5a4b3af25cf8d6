//! What one client does for one run: starts it, raises its events, ends it; and asks again when an answer was lost.

use std::time::Duration;

use abide_store::memory::Dice;
use serde_json::{Value, json};

use super::client::{Answer, Ask, Client};
use super::definitions::{EVENT_NAMES, Kind, LOOP_EVENT};
use super::ledger::{Broken, Event, Run};
use super::world::World;

pub(crate) struct Script {
    world: World,
    client: Client,
    dice: Dice,
}

/// How an event or an order was answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Accepted,
    /// The run has ended.
    Ended,
    Lost,
    /// It was refused for a reason that is a finding.
    Refused,
}

impl Script {
    pub(crate) fn new(world: World, dice: Dice) -> Self {
        let client = world.client();
        Self { world, client, dice }
    }

    /// One run, from its start to the last that its client has to do for it.
    pub(crate) async fn run(&mut self, id: &str) {
        let which = usize::try_from(self.dice.below(Kind::ALL.len() as u64)).unwrap_or_default();
        let kind = Kind::ALL.get(which).copied().unwrap_or(Kind::Steps);
        let run = Run::new(id.to_owned(), kind, self.dice.below(2) == 0);
        self.world.ledger().runs.insert(id.to_owned(), run.clone());
        if self.start(&run).await {
            match kind {
                Kind::Events => self.raise_each(id).await,
                Kind::Loop => self.raise_until_last(id).await,
                Kind::Patient => self.terminate(id).await,
                _ => {}
            }
            if run.keyed && self.dice.below(4) == 0 {
                // The same request once more, whatever has become of the run: it is told what it was told.
                self.start(&run).await;
            }
        }
        if let Some(run) = self.world.ledger().runs.get_mut(id) {
            run.done = true;
        }
    }

    /// A moment, so that runs live through kills.
    pub(crate) async fn pause(&mut self, millis_max: u64) {
        tokio::time::sleep(Duration::from_millis(self.dice.below(millis_max))).await;
    }

    /// Starts a run. With a key the same request is sent again until it is answered; without one it is looked for first.
    async fn start(&mut self, run: &Run) -> bool {
        let Run { id, kind, keyed, .. } = run;
        let body = json!({"workflow": kind.workflow(), "instanceId": id, "input": kind.input(id)});
        let waits = matches!(kind, Kind::Steps | Kind::Map) && self.dice.below(4) == 0;
        let path = if waits { "/api/instances?wait=PT1S" } else { "/api/instances" };
        let (show, key) = (format!("/api/instances/{id}"), format!("key-{id}"));
        let ask = Ask { idempotency_key: keyed.then_some(key.as_str()), ..Ask::post(path, &body) };
        loop {
            if let Some(run) = self.world.ledger().runs.get_mut(id) {
                run.sends += 1;
            }
            match self.client.ask(ask).await {
                Answer::Told(status @ (200 | 202), answer) => {
                    self.note_start(id, status, &answer);
                    return true;
                }
                Answer::Told(status, answer) => {
                    let sends = self.world.ledger().runs.get(id).map_or(0, |run| run.sends);
                    if status == 409 && !keyed && sends > 1 {
                        // An earlier copy got through after all.
                        self.world.ledger().started(id, None);
                        return true;
                    }
                    let what = format!("{id}: start {sends} was answered {status} {answer}");
                    // There was a definition before.
                    let broken = if status == 404 { Broken::Lost } else { Broken::Wrong };
                    self.world.ledger().find(broken, what);
                    return false;
                }
                Answer::Lost if *keyed => {}
                Answer::Lost => {
                    if self.is_there(&show).await {
                        self.world.ledger().started(id, None);
                        return true;
                    }
                }
            }
        }
    }

    fn note_start(&self, id: &str, status: u16, answer: &Value) {
        let data = answer.get("data").cloned().unwrap_or_default();
        let execution = data.get("executionId").and_then(Value::as_str);
        let mut ledger = self.world.ledger();
        ledger.started(id, execution);
        if status == 200
            && let Some(run) = ledger.runs.get_mut(id)
        {
            run.told_end = Some(data);
        }
    }

    async fn is_there(&mut self, path: &str) -> bool {
        loop {
            match self.client.ask(Ask::get(path)).await {
                Answer::Told(404, _) => return false,
                Answer::Told(200, _) => return true,
                Answer::Told(status, answer) => {
                    let what = format!("GET {path} was answered {status} {answer}");
                    self.world.ledger().find(Broken::Wrong, what);
                    return false;
                }
                Answer::Lost => {}
            }
        }
    }

    /// Each event under a name of its own, again until it is acknowledged: a second copy finds nobody who waits for it.
    async fn raise_each(&mut self, id: &str) {
        for (number, name) in EVENT_NAMES.into_iter().enumerate() {
            self.pause(150).await;
            self.add_event(id, json!({"for": id, "number": number}));
            loop {
                match self.raise(id, name, number).await {
                    Told::Lost => {}
                    Told::Accepted | Told::Ended => break,
                    Told::Refused => return,
                }
            }
        }
    }

    /// Some events under one name, and a last one. One whose answer was lost is sent again or not.
    async fn raise_until_last(&mut self, id: &str) {
        let events = usize::try_from(2 + self.dice.below(4)).unwrap_or_default();
        for number in 0..=events {
            self.pause(100).await;
            let is_last = number == events;
            self.add_event(id, json!({"for": id, "number": number, "last": is_last}));
            loop {
                match self.raise(id, LOOP_EVENT, number).await {
                    Told::Lost if is_last || self.dice.below(2) == 0 => {}
                    Told::Accepted | Told::Lost => break,
                    Told::Ended if is_last => break,
                    Told::Ended => {
                        let what = format!("{id}: it had ended before event {number}, which is not the last");
                        self.world.ledger().find(Broken::Wrong, what);
                        return;
                    }
                    Told::Refused => return,
                }
            }
        }
    }

    fn add_event(&self, id: &str, payload: Value) {
        if let Some(run) = self.world.ledger().runs.get_mut(id) {
            run.events.push(Event { payload, sends: 0, acknowledged: false });
        }
    }

    async fn raise(&mut self, id: &str, name: &str, number: usize) -> Told {
        let event = self.world.ledger().runs.get_mut(id).and_then(|run| {
            let event = run.events.get_mut(number)?;
            event.sends += 1;
            Some(event.clone())
        });
        let Some(event) = event else { return Told::Refused };
        let path = format!("/api/instances/{id}/events/{name}");
        let told = self.order(id, &path, &event.payload, event.sends).await;
        if told == Told::Accepted {
            self.world.ledger().raised(id, number);
        }
        told
    }

    async fn terminate(&mut self, id: &str) {
        self.pause(400).await;
        let path = format!("/api/instances/{id}/terminate");
        let mut sends = 1;
        let told = loop {
            match self.order(id, &path, &json!({"reason": "enough"}), sends).await {
                Told::Lost => sends += 1,
                told => break told,
            }
        };
        let mut ledger = self.world.ledger();
        ledger.terminations += u64::from(told == Told::Accepted);
        if let Some(run) = ledger.runs.get_mut(id) {
            run.terminated = true;
        }
    }

    /// An event or an order for a run that was acknowledged.
    async fn order(&mut self, id: &str, path: &str, body: &Value, sends: u32) -> Told {
        match self.client.ask(Ask::post(path, body)).await {
            Answer::Lost => Told::Lost,
            Answer::Told(202, _) => Told::Accepted,
            // Only a copy that got through can have ended it.
            Answer::Told(409, _) if sends > 1 => Told::Ended,
            Answer::Told(status, answer) => {
                let broken = if status == 404 { Broken::Lost } else { Broken::Wrong };
                let what = format!("{id}: POST {path} was answered {status} {answer}");
                self.world.ledger().find(broken, what);
                Told::Refused
            }
        }
    }
}
