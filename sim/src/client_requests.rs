//! Carries the requests of clients to shards, and the replies back. The scripts and ledgers are in [`crate::clients`].

use std::sync::Arc;

use abide_ids::{Digest, KeyDigest};
use abide_runtime::{Event, RequestError, RequestId, ShardReply, ShardRequest, StartRequest};
use abide_store::tables::instances::RunStatus;
use abide_testkit::shard_driver::{ShardDriver, poll_ready};
use abide_workflow::{InstanceId, Message};

use crate::clients::{ClientStep, SimClient};
use crate::cluster::Cluster;
use crate::sim_event::{ShardAddress, SimEvent};
use crate::workload::{self, WorkloadKind};

/// How long a client waits for a reply.
const REQUEST_TIMEOUT_MS: u64 = 10_000;
/// Clients that start the same instance as another client at about the same time.
const RIVALS: usize = 6;

impl Cluster {
    pub(crate) fn add_clients(&mut self) {
        let mut begins = Vec::new();
        for number in 0..self.scenario.runs {
            let kind = WorkloadKind::ALL[number % WorkloadKind::ALL.len()];
            let id = format!("{}-{}", kind.workflow(), number);
            let begin = 3_000 + self.dice.below(self.scenario.storm_ms / 2);
            begins.push(begin);
            let client = SimClient::new(id, kind, number, &mut self.dice);
            self.add_client(client, begin);
        }
        for number in self.scenario.runs..self.scenario.runs + RIVALS {
            let of = usize::try_from(self.dice.below(self.scenario.runs as u64)).unwrap_or(0);
            let id = self.clients[of].id.clone();
            let kind = self.clients[of].kind;
            // A run that starts after its events were raised would wait for them forever.
            if kind.ends_unaided() {
                let rival = SimClient::rival(id, kind, number, &mut self.dice);
                let begin = begins[of] + self.dice.below(1_000);
                self.add_client(rival, begin);
            }
        }
    }

    fn add_client(&mut self, client: SimClient, begins_in_ms: u64) {
        self.clients.push(client);
        self.schedule_in(begins_in_ms, SimEvent::ClientStep(self.clients.len() - 1));
    }

    /// Sends the request of a client's next step.
    pub(crate) fn step_client(&mut self, number: usize) {
        let client = &self.clients[number];
        let Some(step) = client.next_step().filter(|_| client.pending_request.is_none()) else { return };
        let Ok(id) = InstanceId::new(client.id.clone()) else { return };
        let Some(request) = self.build_request(client, step, &id) else { return };
        self.last_request_id += 1;
        let request_id = self.last_request_id;
        self.clients[number].pending_request = Some(request_id);
        let shard = self.shards.shard_of_instance(&id).number() as usize;
        // The node that owns the shard, if there is one; otherwise any node, which refuses.
        let owns = |driver: &ShardDriver| driver.shard().is_owned();
        let owner = self.nodes.iter().position(|node| node.up && node.shards.get(shard).is_some_and(owns));
        let any = usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or(0);
        let node = owner.filter(|_| self.dice.below(10) > 0).unwrap_or(any);
        let ownership = self.nodes[node].ownerships.get(shard).copied().unwrap_or(0);
        let at = ShardAddress { node, incarnation: self.nodes[node].incarnation, shard, ownership };
        let wait = self.message_delay();
        self.trace_instance(id.as_str(), || {
            format!("client {number} sends {step:?} to node {node}, arriving in {wait} ms")
        });
        self.schedule_in(wait, SimEvent::Deliver(at, Event::RequestReceived(RequestId(request_id), request)));
        self.schedule_in(REQUEST_TIMEOUT_MS, SimEvent::ClientTimeout(number, request_id, at));
    }

    fn build_request(&self, client: &SimClient, step: ClientStep, id: &InstanceId) -> Option<ShardRequest> {
        let send = |message| ShardRequest::SendMessage { instance_id: id.clone(), message };
        let reason = "by a client".to_owned();
        let instance_id = id.clone();
        Some(match step {
            ClientStep::Start => ShardRequest::Start(Box::new(self.start(client, id, client.key)?)),
            ClientStep::StartUnkeyed => ShardRequest::Start(Box::new(self.start(client, id, None)?)),
            ClientStep::Raise(at) => send(Message::EventRaised {
                name: "go".to_owned(),
                payload: Arc::new(client.events[at].payload.clone()),
            }),
            ClientStep::Suspend => send(Message::Suspend { reason }),
            ClientStep::Resume => send(Message::Resume { reason }),
            ClientStep::Terminate => send(Message::Terminate { reason }),
            ClientStep::TerminateTree => send(Message::TerminateTree { reason }),
            ClientStep::Rewind => send(Message::Rewind { reason }),
            ClientStep::AwaitEnd => ShardRequest::AwaitEnd { instance_id, run_number: None },
            ClientStep::Restart => ShardRequest::Restart { instance_id },
            ClientStep::Purge => ShardRequest::Purge { instance_id, run_number: None },
        })
    }

    fn start(&self, client: &SimClient, id: &InstanceId, key: Option<KeyDigest>) -> Option<StartRequest> {
        Some(StartRequest {
            instance_id: id.clone(),
            plan: poll_ready(self.definitions.resolve(client.kind.workflow(), None)).ok()?,
            input: Arc::new(workload::input(client.kind, &client.id)),
            event: None,
            correlation_id: client.id.clone(),
            entity_id: None,
            entity_type: None,
            idempotency: key.map(|key| abide_runtime::RequestIdempotency::new(key, Digest([1; 32]))),
            await_end: None,
        })
    }

    /// A request has timed out: the client retries.
    pub(crate) fn on_client_timeout(&mut self, number: usize, request_id: u64, at: ShardAddress) {
        if self.clients[number].pending_request == Some(request_id) {
            let id = self.clients[number].id.clone();
            self.trace_instance(&id, || format!("client {number} got no reply"));
            self.clients[number].on_timeout();
            let wait = 500 + self.dice.below(3_000);
            self.schedule_in(wait, SimEvent::ClientStep(number));
            let wait = self.message_delay();
            self.schedule_in(wait, SimEvent::Deliver(at, Event::ClientsGone(vec![RequestId(request_id)])));
        }
    }

    pub(crate) fn on_client_reply(&mut self, request_id: RequestId, reply: &ShardReply) {
        let Some(number) =
            self.clients.iter().position(|client| client.pending_request == Some(request_id.0))
        else {
            return;
        };
        let client = &mut self.clients[number];
        self.violations.extend(self.model.contradiction_in_reply(
            &client.id,
            reply,
            !client.started_runs.is_empty(),
        ));
        self.counts.races +=
            u64::from(matches!(reply, ShardReply::Refused(RequestError::AlreadyRunning { .. })));
        let control = match (client.next_step(), reply) {
            (Some(ClientStep::Terminate | ClientStep::TerminateTree), ShardReply::Accepted) => Some(0),
            (Some(ClientStep::Rewind), ShardReply::Rewound(_)) => Some(1),
            (Some(ClientStep::Restart), ShardReply::Started(_)) => Some(2),
            (Some(ClientStep::Purge), ShardReply::Purged) => Some(3),
            _ => None,
        };
        if let Some(count) = control.and_then(|control| self.counts.controls.get_mut(control)) {
            *count += 1;
        }
        client.on_reply(reply);
        let id = client.id.clone();
        self.trace_instance(&id, || format!("client {number} gets the reply {reply:?}"));
        let wait = 200 + self.dice.below(20_000);
        self.schedule_in(wait, SimEvent::ClientStep(number));
    }

    /// An operator looks for parked runs: the notice of one may be lost with its node.
    pub(crate) fn add_operators(&mut self) {
        let is_parked = |run: &&(String, RunStatus)| run.1 == RunStatus::Parked;
        let live: Vec<_> = self.model.live().map(|(id, run)| (id.clone(), run.status)).collect();
        live.iter().filter(is_parked).for_each(|(id, _)| self.add_operator(id));
    }

    /// An operator resumes a parked run after a while, or terminates it if it is the cause of the deaths.
    pub(crate) fn add_operator(&mut self, id: &str) {
        let wait = 1_000 + self.dice.below(10_000);
        let is_cause = self.scenario.poisoned && id == workload::POISONED;
        let control = if is_cause { ClientStep::Terminate } else { ClientStep::Resume };
        self.add_client(SimClient::operator(id.to_owned(), control), wait);
    }

    /// A late request may have left a run that no client will end: it was started after its events had been raised, or
    /// suspended after it was resumed.
    pub(crate) fn add_cleanup_clients(&mut self) {
        let mut janitors = Vec::new();
        for (id, run) in self.model.live() {
            let mut clients = self.clients.iter().filter(|client| client.id == *id);
            let late = |client: &SimClient| {
                client.unconfirmed_starts > 0 || client.unconfirmed_controls.contains(&ClientStep::Suspend)
            };
            let Some(client) = clients.find(|client| late(client)) else { continue };
            let control = match run.status {
                RunStatus::Suspended => ClientStep::Resume,
                _ if client.kind == WorkloadKind::Tree => ClientStep::TerminateTree,
                _ if !client.kind.ends_unaided() => ClientStep::Terminate,
                _ => continue,
            };
            janitors.push(SimClient::janitor(id.clone(), client.kind, control));
        }
        for janitor in janitors {
            self.add_client(janitor, 0);
        }
    }
}
