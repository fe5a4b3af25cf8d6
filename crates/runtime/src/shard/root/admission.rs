//! Admits the requests of clients: queues them for their instance or entity, defers them during recovery, or refuses
//! them.
//!
//! It does not look into a request, except to tell operations on entities apart.

use crate::request::{QueueLimit, RequestError, RequestId, ShardRequest};
use crate::shard::Shard;
use crate::shard::ownership::OwnershipPhase;
use crate::shard::work_item::WorkItem;

impl Shard {
    /// Accepts all requests of a group in their order, or none of them. If only some were refused for lack of room,
    /// their retries would arrive after later requests of the group. There is always room for control operations and
    /// deletions.
    pub(in crate::shard) fn on_requests(&mut self, requests: Vec<(RequestId, ShardRequest)>) {
        let queued_max = self.ctx.config.queued_max;
        let is_control = requests.iter().all(|(_, request)| request.is_control());
        let refusal = match &self.ctx.phase {
            OwnershipPhase::Working(_)
                if is_control
                    || self.queued_items() < queued_max && self.instances.ready_runs.len() < queued_max =>
            {
                return requests
                    .into_iter()
                    .for_each(|(request_id, request)| self.enqueue_request(request_id, request));
            }
            // Recovery does not take long, so the requests wait for it.
            OwnershipPhase::Recovering(_) if is_control || self.deferred_count() < queued_max => {
                return self.deferred_requests.push_back(requests);
            }
            OwnershipPhase::Working(_) | OwnershipPhase::Recovering(_) => {
                RequestError::Busy { shard: self.ctx.id, limit: QueueLimit::Items }
            }
            OwnershipPhase::Draining(_) => RequestError::Draining,
            _ => RequestError::NotReady,
        };
        for (request_id, _) in requests {
            self.ctx.refuse(request_id, refusal.clone());
        }
    }

    /// Requests that wait for the end of recovery; every group counts by its requests.
    fn deferred_count(&self) -> usize {
        self.deferred_requests.iter().map(Vec::len).sum()
    }

    fn enqueue_request(&mut self, request_id: RequestId, request: ShardRequest) {
        if let ShardRequest::Operate(operation) = request {
            if let Some(entity) = self.entities.on_operation(&mut self.ctx, request_id, operation) {
                self.process_entity(&entity);
            }
            return;
        }
        let Some(id) = request.instance_id().cloned() else { return };
        self.enqueue(&id, WorkItem::Request(request_id, request));
    }
}
