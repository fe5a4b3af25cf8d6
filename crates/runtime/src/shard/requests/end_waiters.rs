//! The requests that wait for the end of a run.
//!
//! They wait in memory only: a client whose shard is lost asks again. What the reply says is not known here.

use std::collections::HashMap;

use abide_workflow::InstanceId;

use crate::request::RequestId;

/// The waiting requests, by instance.
#[derive(Debug, Default)]
pub(in crate::shard) struct EndWaiters(HashMap<InstanceId, Vec<RequestId>>);

impl EndWaiters {
    pub(in crate::shard) fn add(&mut self, id: InstanceId, request_id: RequestId) {
        self.0.entry(id).or_default().push(request_id);
    }

    pub(in crate::shard) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the requests that wait for this instance.
    pub(in crate::shard) fn take(&mut self, id: &InstanceId) -> Vec<RequestId> {
        self.0.remove(id).unwrap_or_default()
    }

    /// Forgets clients that no longer wait for their reply.
    pub(in crate::shard) fn forget(&mut self, gone: &[RequestId]) {
        self.0.retain(|_, request_ids| {
            request_ids.retain(|request_id| !gone.contains(request_id));
            !request_ids.is_empty()
        });
    }
}
