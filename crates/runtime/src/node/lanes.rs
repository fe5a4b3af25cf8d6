//! The lanes into one shard: how many requests, and how many bytes of them, may be under way to it and in it.
//!
//! ```text
//!  starts, events, operations on entities ──> client lane: bounded; full: refused at once ──┐
//!  control operations, deletions ───────────> control lane: counted, never refused ─────────┼──> shard task
//!  results of calls, commits, reads ────────> no lane: never refused ───────────────────────┘
//! ```
//!
//! A request occupies its lane until the shard replies, so the bounds hold whatever keeps the shard from replying: a
//! store that does not respond, a long recovery, an ownership that is lost. They hold also if the client gives up
//! meanwhile, because the shard still has its request. The lanes know nothing of the queues inside the shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide_workflow::{Message, json};

use crate::entity::EntityOperation;
use crate::placement::ShardId;
use crate::request::{QueueLimit, RequestError, ShardRequest};

/// Both lanes into one shard.
#[derive(Debug)]
pub struct ShardLanes {
    shard: ShardId,
    requests_max: usize,
    bytes_max: usize,
    client_requests: AtomicUsize,
    client_bytes: AtomicUsize,
    control_requests: AtomicUsize,
}

/// The place of one request in its lane, until it is dropped.
#[derive(Debug)]
pub(super) struct LanePlace {
    lanes: Arc<ShardLanes>,
    /// Of the client lane; none in the control lane.
    bytes: Option<usize>,
}

/// What a request takes besides its JSON.
const REQUEST_BYTES: usize = 512;

impl ShardLanes {
    pub(super) fn new(shard: ShardId, requests_max: usize, bytes_max: usize) -> Self {
        Self {
            shard,
            requests_max,
            bytes_max,
            client_requests: AtomicUsize::new(0),
            client_bytes: AtomicUsize::new(0),
            control_requests: AtomicUsize::new(0),
        }
    }

    /// A place for a request, or the refusal. None for a request that waits for the end of a run: it waits long, and
    /// holds next to nothing.
    pub(super) fn enter(self: &Arc<Self>, request: &ShardRequest) -> Result<Option<LanePlace>, RequestError> {
        let bytes = client_bytes(request);
        if let Some(bytes) = bytes {
            self.take_room(1, bytes)?;
        }
        Ok(self.place(request, bytes))
    }

    /// A place for each request of a group, or the refusal of all of them. The group may be larger than the lane.
    pub(super) fn enter_group(
        self: &Arc<Self>,
        requests: &[ShardRequest],
    ) -> Result<Vec<Option<LanePlace>>, RequestError> {
        let sizes: Vec<_> = requests.iter().map(client_bytes).collect();
        let clients = sizes.iter().flatten();
        let bytes = clients.clone().fold(0, |sum: usize, bytes| sum.saturating_add(*bytes));
        self.take_room(clients.count(), bytes)?;
        Ok(requests.iter().zip(sizes).map(|(request, bytes)| self.place(request, bytes)).collect())
    }

    /// Counts requests in the client lane if there is room for one more, by count and by bytes. What is larger than the
    /// whole lane finds room while the lane is empty, because it would never find any else.
    fn take_room(&self, requests: usize, bytes: usize) -> Result<(), RequestError> {
        // Counted first, so that requests at the same time cannot all take the last room.
        let requests_before = self.client_requests.fetch_add(requests, Ordering::Relaxed);
        let bytes_before = self.client_bytes.fetch_add(bytes, Ordering::Relaxed);
        let limit = if requests_before >= self.requests_max {
            QueueLimit::Items
        } else if bytes_before > 0 && bytes_before.saturating_add(bytes) > self.bytes_max {
            QueueLimit::Bytes
        } else {
            return Ok(());
        };
        self.return_room(requests, bytes);
        Err(RequestError::Busy { shard: self.shard, limit })
    }

    fn return_room(&self, requests: usize, bytes: usize) {
        self.client_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.client_requests.fetch_sub(requests, Ordering::Relaxed);
    }

    /// The place of a request whose room is taken.
    fn place(self: &Arc<Self>, request: &ShardRequest, bytes: Option<usize>) -> Option<LanePlace> {
        let is_control = request.is_control();
        if is_control {
            self.control_requests.fetch_add(1, Ordering::Relaxed);
        }
        (is_control || bytes.is_some()).then(|| LanePlace { lanes: Arc::clone(self), bytes })
    }

    /// Requests of clients without a reply.
    pub fn client_requests(&self) -> usize {
        self.client_requests.load(Ordering::Relaxed)
    }

    /// Bytes of these requests.
    pub fn client_bytes(&self) -> usize {
        self.client_bytes.load(Ordering::Relaxed)
    }

    /// Control operations and deletions without a reply.
    pub fn control_requests(&self) -> usize {
        self.control_requests.load(Ordering::Relaxed)
    }
}

impl Drop for LanePlace {
    fn drop(&mut self) {
        match self.bytes {
            Some(bytes) => self.lanes.return_room(1, bytes),
            None => {
                self.lanes.control_requests.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// What a request takes of the client lane; none if it does not use that lane.
fn client_bytes(request: &ShardRequest) -> Option<usize> {
    let is_client = !matches!(request, ShardRequest::AwaitEnd { .. }) && !request.is_control();
    is_client.then(|| size_of(request))
}

/// About the bytes of the JSON in a request, and of what surrounds it.
fn size_of(request: &ShardRequest) -> usize {
    let json = match request {
        ShardRequest::Start(start) => {
            json::size(&start.input) + start.event.as_ref().map_or(0, |event| json::size(event))
        }
        ShardRequest::SendMessage { message: Message::EventRaised { payload, .. }, .. } => {
            json::size(payload)
        }
        ShardRequest::Operate(operate) => {
            // The text of the event, for the run of its session.
            let event = operate.session_event.as_ref().map_or(0, |event| event.event.len() as u64);
            event
                + match &operate.operation {
                    EntityOperation::RecordEvent { event } => json::size(event),
                    EntityOperation::Custom { input, .. } => json::size(input),
                    EntityOperation::Clear { .. } => 0,
                }
        }
        ShardRequest::Idempotent(_, request) => return size_of(request),
        _ => 0,
    };
    usize::try_from(json).unwrap_or(usize::MAX).saturating_add(REQUEST_BYTES)
}

#[cfg(test)]
mod tests {
    use abide_workflow::InstanceId;
    use serde_json::json;

    use super::*;
    use crate::placement::ShardCount;

    fn lanes(requests_max: usize, bytes_max: usize) -> Arc<ShardLanes> {
        let shard = ShardCount::new(1).unwrap().shards().next().unwrap();
        Arc::new(ShardLanes::new(shard, requests_max, bytes_max))
    }

    fn message(message: Message) -> ShardRequest {
        ShardRequest::SendMessage { instance_id: InstanceId::new("i").unwrap(), message }
    }

    fn event(bytes: usize) -> ShardRequest {
        message(Message::EventRaised { name: "go".to_owned(), payload: Arc::new(json!("x".repeat(bytes))) })
    }

    fn limit(entered: Result<Option<LanePlace>, RequestError>) -> QueueLimit {
        match entered.unwrap_err() {
            RequestError::Busy { limit, .. } => limit,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_full_client_lane_refuses_by_count_and_by_bytes_until_places_are_free_again() {
        let lanes = lanes(3, 100_000);
        let places: Vec<_> = (0..3).map(|_| lanes.enter(&event(10)).unwrap()).collect();
        assert_eq!(limit(lanes.enter(&event(10))), QueueLimit::Items);
        drop(places);
        assert_eq!((lanes.client_requests(), lanes.client_bytes()), (0, 0));
        let large = lanes.enter(&event(90_000)).unwrap();
        assert_eq!(limit(lanes.enter(&event(10_000))), QueueLimit::Bytes);
        let small = lanes.enter(&event(1_000)).unwrap();
        drop((large, small));
        assert_eq!((lanes.client_requests(), lanes.client_bytes()), (0, 0));
    }

    #[test]
    fn a_request_larger_than_the_lane_is_accepted_when_it_is_the_only_one() {
        let lanes = lanes(10, 1_000);
        let large = lanes.enter(&event(1_000_000)).unwrap();
        assert_eq!(limit(lanes.enter(&event(1))), QueueLimit::Bytes);
        drop(large);
        lanes.enter(&event(1)).unwrap();
    }

    #[test]
    fn a_group_enters_as_a_whole_or_not_at_all() {
        let lanes = lanes(10, 100_000);
        let group: Vec<_> = (0..100).map(|_| event(10)).collect();
        let places = lanes.enter_group(&group).unwrap();
        assert_eq!(lanes.client_requests(), 100, "it would never find room for all of it");
        assert!(lanes.enter_group(&group).is_err() && lanes.enter(&event(1)).is_err());
        assert_eq!(lanes.client_requests(), 100);
        drop(places);
        assert_eq!((lanes.client_requests(), lanes.client_bytes()), (0, 0));
    }

    #[test]
    fn control_operations_deletions_and_waits_for_an_end_are_never_refused() {
        let lanes = lanes(1, 1);
        let _full = lanes.enter(&event(1)).unwrap();
        let id = || InstanceId::new("i").unwrap();
        let reason = || "r".to_owned();
        let control = [
            message(Message::Suspend { reason: reason() }),
            message(Message::Resume { reason: reason() }),
            message(Message::Terminate { reason: reason() }),
            message(Message::TerminateTree { reason: reason() }),
            message(Message::Rewind { reason: reason() }),
            message(Message::RewindWithNewKeys { reason: reason() }),
            message(Message::RetryCompensation { reason: reason() }),
            ShardRequest::Purge { instance_id: id(), run_number: None },
        ];
        let places: Vec<_> = control.iter().map(|request| lanes.enter(request).unwrap()).collect();
        assert_eq!((lanes.control_requests(), lanes.client_requests()), (8, 1));
        drop(places);
        assert_eq!(lanes.control_requests(), 0);
        let awaited = ShardRequest::AwaitEnd { instance_id: id(), run_number: None };
        assert!(lanes.enter(&awaited).unwrap().is_none());
        let restart = ShardRequest::Restart { instance_id: id() };
        assert!(lanes.enter(&restart).is_err(), "it starts a run");
    }
}
