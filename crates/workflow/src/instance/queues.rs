//! What waits in an instance: events nobody has taken, messages held while suspended, completed tasks that can be undone.
//!
//! All three are ordered by arrival and each entry is a part of its own, so that many of them cost a turn nothing.

use super::{BufferedEvent, Instance, PartKey, UndoRecord};
use crate::ids::BranchId;
use crate::json::{self, Json};
use crate::message::Message;

impl Instance {
    pub(crate) fn buffer_event(&mut self, name: &str, payload: Json) {
        let arrival = self.next_arrival();
        let bytes = self.header.buffered_bytes.saturating_add(json::size(&payload));
        self.header_mut().buffered_bytes = bytes;
        let key = (name.to_lowercase(), arrival);
        self.changed.insert(PartKey::Buffered(key.0.clone(), key.1));
        self.buffered.insert(key, BufferedEvent { payload });
    }

    /// The buffered events of one name, oldest first.
    pub(crate) fn buffered_events(&self, name: &str) -> impl Iterator<Item = (u64, &Json)> {
        let name = name.to_lowercase();
        let range = (name.clone(), 0)..=(name, u64::MAX);
        self.buffered.range(range).map(|((_, arrival), event)| (*arrival, &event.payload))
    }

    pub(crate) fn take_buffered(&mut self, name: &str, arrival: u64) -> Option<Json> {
        let key = (name.to_lowercase(), arrival);
        let event = self.buffered.remove(&key)?;
        let header = self.header_mut();
        header.buffered_bytes = header.buffered_bytes.saturating_sub(json::size(&event.payload));
        self.changed.insert(PartKey::Buffered(key.0, key.1));
        Some(event.payload)
    }

    /// Names of the events nobody has taken, in lower case.
    pub fn untaken_events(&self) -> Vec<String> {
        let mut names: Vec<String> = self.buffered.keys().map(|(name, _)| name.clone()).collect();
        names.dedup();
        names
    }

    /// Events and held messages that wait in the instance.
    pub(crate) fn buffered_count(&self) -> usize {
        self.buffered.len() + self.held.len()
    }

    pub(crate) fn hold(&mut self, message: Message) {
        let arrival = self.next_arrival();
        let bytes = self.header.buffered_bytes.saturating_add(message.payload_bytes());
        self.header_mut().buffered_bytes = bytes;
        self.held.insert(arrival, message);
        self.changed.insert(PartKey::Held(arrival));
    }

    pub(crate) fn take_held(&mut self) -> Option<Message> {
        let (arrival, message) = self.held.pop_first()?;
        let header = self.header_mut();
        header.buffered_bytes = header.buffered_bytes.saturating_sub(message.payload_bytes());
        self.changed.insert(PartKey::Held(arrival));
        Some(message)
    }

    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Records what undoes a completed task. Never refused: the task's effect is out there already.
    pub(crate) fn record_undo(&mut self, record: UndoRecord) {
        let arrival = self.next_arrival();
        let bytes = self.header.data_bytes.saturating_add(json::size(&record.input));
        self.header_mut().data_bytes = bytes;
        self.undo.insert(arrival, record);
        self.changed.insert(PartKey::Undo(arrival));
    }

    /// What `branch` and its descendants can undo, newest first.
    pub(crate) fn undo_records(&self, branch: BranchId) -> impl Iterator<Item = (u64, &UndoRecord)> {
        let mine = move |record: &&UndoRecord| record.branches.contains(&branch);
        self.undo
            .iter()
            .rev()
            .map(|(arrival, record)| (*arrival, record))
            .filter(move |(_, record)| mine(record))
    }

    pub(crate) fn undo_record(&self, arrival: u64) -> Option<&UndoRecord> {
        self.undo.get(&arrival)
    }

    pub(crate) fn remove_undo(&mut self, arrival: u64) {
        if let Some(record) = self.undo.remove(&arrival) {
            let header = self.header_mut();
            header.data_bytes = header.data_bytes.saturating_sub(json::size(&record.input));
            self.changed.insert(PartKey::Undo(arrival));
        }
    }
}
