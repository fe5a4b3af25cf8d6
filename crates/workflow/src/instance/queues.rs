//! The queues of an instance: unconsumed events, messages held while suspended, and completed tasks that can be
//! compensated. It does not decide when an entry is consumed.
//!
//! All three are ordered by arrival. Each entry is a part of its own, so a turn does not rewrite the others.

use super::{BufferedEvent, CompensationRecord, Instance, PartKey};
use crate::ids::BranchId;
use crate::json::{self, Json};
use crate::message::Message;

impl Instance {
    pub(crate) fn buffer_event(&mut self, name: &str, payload: Json) {
        let arrival = self.next_arrival();
        let bytes = self.header.buffered_bytes.saturating_add(json::size(&payload));
        self.header_mut().buffered_bytes = bytes;
        let key = (name.to_lowercase(), arrival);
        self.changed.insert(PartKey::BufferedEvent(key.0.clone(), key.1));
        self.buffered_events.insert(key, BufferedEvent { payload });
    }

    /// The buffered events with this name, oldest first.
    pub(crate) fn buffered_events(&self, name: &str) -> impl Iterator<Item = (u64, &Json)> {
        let name = name.to_lowercase();
        let range = (name.clone(), 0)..=(name, u64::MAX);
        self.buffered_events.range(range).map(|((_, arrival), event)| (*arrival, &event.payload))
    }

    pub(crate) fn take_buffered_event(&mut self, name: &str, arrival: u64) -> Option<Json> {
        let key = (name.to_lowercase(), arrival);
        let event = self.buffered_events.remove(&key)?;
        let header = self.header_mut();
        header.buffered_bytes = header.buffered_bytes.saturating_sub(json::size(&event.payload));
        self.changed.insert(PartKey::BufferedEvent(key.0, key.1));
        Some(event.payload)
    }

    /// Names of the events that no branch has consumed, in lower case.
    pub fn unconsumed_events(&self) -> Vec<String> {
        let mut names: Vec<String> = self.buffered_events.keys().map(|(name, _)| name.clone()).collect();
        names.dedup();
        names
    }

    /// Number of buffered events and held messages.
    pub(crate) fn buffered_count(&self) -> usize {
        self.buffered_events.len() + self.held_messages.len()
    }

    pub(crate) fn hold_message(&mut self, message: Message) {
        let arrival = self.next_arrival();
        let bytes = self.header.buffered_bytes.saturating_add(message.payload_bytes());
        self.header_mut().buffered_bytes = bytes;
        self.held_messages.insert(arrival, message);
        self.changed.insert(PartKey::HeldMessage(arrival));
    }

    pub(crate) fn take_held_message(&mut self) -> Option<Message> {
        let (arrival, message) = self.held_messages.pop_first()?;
        let header = self.header_mut();
        header.buffered_bytes = header.buffered_bytes.saturating_sub(message.payload_bytes());
        self.changed.insert(PartKey::HeldMessage(arrival));
        Some(message)
    }

    pub(crate) fn has_held_messages(&self) -> bool {
        !self.held_messages.is_empty()
    }

    /// Records the compensation of a completed task. Never refused: the task's effect already exists.
    pub(crate) fn record_compensation(&mut self, record: CompensationRecord) {
        let arrival = self.next_arrival();
        let bytes = self.header.data_bytes.saturating_add(json::size(&record.input));
        self.header_mut().data_bytes = bytes;
        self.compensations.insert(arrival, record);
        self.changed.insert(PartKey::Compensation(arrival));
    }

    /// The recorded compensations of `branch` and its descendants, newest first.
    pub(crate) fn compensation_records(
        &self,
        branch: BranchId,
    ) -> impl Iterator<Item = (u64, &CompensationRecord)> {
        let of_branch = move |record: &&CompensationRecord| record.branches.contains(&branch);
        self.compensations
            .iter()
            .rev()
            .map(|(arrival, record)| (*arrival, record))
            .filter(move |(_, record)| of_branch(record))
    }

    pub(crate) fn compensation_record(&self, arrival: u64) -> Option<&CompensationRecord> {
        self.compensations.get(&arrival)
    }

    pub(crate) fn remove_compensation(&mut self, arrival: u64) {
        if let Some(record) = self.compensations.remove(&arrival) {
            let header = self.header_mut();
            header.data_bytes = header.data_bytes.saturating_sub(json::size(&record.input));
            self.changed.insert(PartKey::Compensation(arrival));
        }
    }
}
