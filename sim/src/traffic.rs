//! What clients ask, on its way to a shard, and what they are answered.

use std::sync::Arc;

use abide_runtime::{Event, Refused, Reply, Request, Shard, Start, Ticket};
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Message};

use crate::clients::{Client, Step};
use crate::cluster::{Cluster, ready};
use crate::happening::{At, Happening};
use crate::workload::{self, Kind};

/// How long a client waits for an answer.
const PATIENCE_MS: u64 = 10_000;
/// Clients that start what another one starts at about the same time.
const RIVALS: usize = 6;

impl Cluster {
    pub(crate) fn add_clients(&mut self) {
        let mut begins = Vec::new();
        for number in 0..self.scenario.runs {
            let kind = Kind::ALL[number % Kind::ALL.len()];
            let id = format!("{}-{}", kind.workflow(), number);
            let begin = 3_000 + self.dice.below(self.scenario.storm_ms / 2);
            begins.push(begin);
            let client = Client::new(id, kind, number, &mut self.dice);
            self.add_client(client, begin);
        }
        for number in self.scenario.runs..self.scenario.runs + RIVALS {
            let of = usize::try_from(self.dice.below(self.scenario.runs as u64)).unwrap_or(0);
            let (id, kind) = (self.clients[of].id.clone(), self.clients[of].kind);
            // A run that comes too late for its events would wait for them for ever.
            if kind.ends_alone() {
                let rival = Client::rival(id, kind, number, &mut self.dice);
                let begin = begins[of] + self.dice.below(1_000);
                self.add_client(rival, begin);
            }
        }
    }

    fn add_client(&mut self, client: Client, begins_in_ms: u64) {
        self.clients.push(client);
        self.later(begins_in_ms, Happening::Act(self.clients.len() - 1));
    }

    /// A client does its next step.
    pub(crate) fn act(&mut self, number: usize) {
        let client = &self.clients[number];
        let Some(step) = client.next().filter(|_| client.asked.is_none()) else { return };
        let Ok(id) = InstanceId::new(client.id.clone()) else { return };
        let Some(request) = self.request(client, step, &id) else { return };
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.clients[number].asked = Some(ticket);
        let shard = self.shards.shard_of_instance(&id).number() as usize;
        // The node that owns the shard, if there is one; else any, which says no.
        let owner =
            self.nodes.iter().position(|node| node.up && node.shards.get(shard).is_some_and(Shard::is_owned));
        let any = usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or(0);
        let node = owner.filter(|_| self.dice.below(10) > 0).unwrap_or(any);
        let claim = self.nodes[node].claims.get(shard).copied().unwrap_or(0);
        let at = At { node, incarnation: self.nodes[node].incarnation, shard, claim };
        let wait = self.delay();
        self.tell(id.as_str(), || format!("client {number} asks node {node} for {step:?}, in {wait} ms"));
        self.later(wait, Happening::Deliver(at, Event::Asked(Ticket(ticket), request)));
        self.later(PATIENCE_MS, Happening::GiveUp(number, ticket, at));
    }

    fn request(&self, client: &Client, step: Step, id: &InstanceId) -> Option<Request> {
        let order = |message| Request::Deliver { instance_id: id.clone(), message };
        let reason = "by a client".to_owned();
        let instance_id = id.clone();
        Some(match step {
            Step::Start => Request::Start(Box::new(self.start(client, id, client.key)?)),
            Step::StartAnew => Request::Start(Box::new(self.start(client, id, None)?)),
            Step::Raise(at) => order(Message::EventRaised {
                name: "go".to_owned(),
                payload: Arc::new(client.events[at].payload.clone()),
            }),
            Step::Suspend => order(Message::Suspend { reason }),
            Step::Resume => order(Message::Resume { reason }),
            Step::Terminate => order(Message::Terminate { reason }),
            Step::Rewind => order(Message::Rewind { reason }),
            Step::AwaitEnd => Request::AwaitEnd { instance_id, run: None },
            Step::Restart => Request::Restart { instance_id },
            Step::Purge => Request::Purge { instance_id, run: None },
        })
    }

    fn start(&self, client: &Client, id: &InstanceId, key: Option<[u8; 32]>) -> Option<Start> {
        Some(Start {
            instance_id: id.clone(),
            plan: ready(self.definitions.pick(client.kind.workflow(), None)).ok()?,
            input: Arc::new(workload::input(client.kind, &client.id)),
            event: None,
            correlation_id: client.id.clone(),
            entity_id: None,
            repeat: key.map(|key| abide_runtime::Repeat::new(key, [1; 32])),
            await_end: None,
        })
    }

    /// A client has waited long enough, and asks again.
    pub(crate) fn give_up(&mut self, number: usize, ticket: u64, at: At) {
        if self.clients[number].asked == Some(ticket) {
            let id = self.clients[number].id.clone();
            self.tell(&id, || format!("client {number} was not answered"));
            self.clients[number].not_answered();
            let wait = 500 + self.dice.below(3_000);
            self.later(wait, Happening::Act(number));
            let wait = self.delay();
            self.later(wait, Happening::Deliver(at, Event::Gone(vec![Ticket(ticket)])));
        }
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: &Reply) {
        let Some(number) = self.clients.iter().position(|client| client.asked == Some(ticket.0)) else {
            return;
        };
        let client = &mut self.clients[number];
        self.seen.extend(self.truth.contradicts(&client.id, reply, !client.begun.is_empty()));
        self.counts.races += u64::from(matches!(reply, Reply::Refused(Refused::Live { .. })));
        let order = match (client.next(), reply) {
            (Some(Step::Terminate), Reply::Accepted) => Some(0),
            (Some(Step::Rewind), Reply::Accepted) => Some(1),
            (Some(Step::Restart), Reply::Started(_)) => Some(2),
            (Some(Step::Purge), Reply::Purged) => Some(3),
            _ => None,
        };
        if let Some(count) = order.and_then(|order| self.counts.orders.get_mut(order)) {
            *count += 1;
        }
        client.answered(reply);
        let id = client.id.clone();
        self.tell(&id, || format!("client {number} is answered {reply:?}"));
        let wait = 200 + self.dice.below(20_000);
        self.later(wait, Happening::Act(number));
    }

    /// A request that came late may have left a run that nobody will end: started when its events had been raised, or suspended after it was
    /// resumed.
    pub(crate) fn clear_up(&mut self) {
        let mut orders = Vec::new();
        for (id, run) in self.truth.live() {
            let mut clients = self.clients.iter().filter(|client| client.id == *id);
            let late = |client: &Client| client.begins_unsure > 0 || client.unsure.contains(&Step::Suspend);
            let Some(client) = clients.find(|client| late(client)) else { continue };
            let order = match run.status {
                RunStatus::Suspended => Step::Resume,
                _ if !client.kind.ends_alone() => Step::Terminate,
                _ => continue,
            };
            orders.push(Client::janitor(id.clone(), client.kind, order));
        }
        for janitor in orders {
            self.add_client(janitor, 0);
        }
    }
}
