//! Entities of a shard: operations in the order they came, one entity at a time, each with its effect once.
//!
//! Memory may be ahead of the store, as with runs: an operation is answered when its rows are durable. Whether an operation came before
//! is looked up for each when it arrives, so that a queue of them does not wait for one look-up after the other; what was done since then
//! is remembered here until every look-up would find it. What an operation does to the rows is in [`super::operations`].

use std::collections::{HashMap, VecDeque};

use abide_store::tables::dedupe::Answer as KeptAnswer;
use abide_store::tables::entities::Entity as EntityRow;
use abide_workflow::json::Json;

use super::{Shard, back_off, later};
use crate::entity::{EntityId, Operate};
use crate::event::{Effect, FoundEntity};
use crate::lease::Monotonic;
use crate::request::{Refused, Ticket};

/// The entities that something is or was wanted of.
#[derive(Debug, Default)]
pub(super) struct Entities {
    slots: HashMap<EntityId, EntitySlot>,
    /// Entities that nothing waits for, the oldest first. One that has moved since is in here again.
    idle: VecDeque<EntityId>,
    /// Entities that had no room.
    ready: VecDeque<EntityId>,
    /// Look-ups that the store could not answer, and when to ask again.
    again: VecDeque<(Monotonic, EntityId, u64)>,
    pub(super) expiring: Option<super::operations::Expiring>,
}

#[derive(Debug)]
pub(super) struct EntitySlot {
    pub(super) known: KnownEntity,
    /// The state of its kind, read from the row when it was first needed.
    pub(super) state: Option<Json>,
    items: VecDeque<WaitingOperation>,
    numbered: u64,
    /// A look-up was made anew for one of the items: later ones may know less of the store than it does.
    looked_anew: bool,
    /// Answers that a look-up made before they were durable does not find, and the gatherings that have them.
    recent: HashMap<[u8; 32], KeptAnswer>,
    recent_order: VecDeque<(u64, [u8; 32])>,
    /// The gathering that has its newest rows.
    pub(super) written: u64,
}

#[derive(Debug)]
pub(super) enum KnownEntity {
    /// It is being looked up.
    Nothing,
    /// Its row, or that it has none yet.
    Row(Option<EntityRow>),
    /// It is there and cannot be read.
    Damaged(String),
}

#[derive(Debug)]
pub(super) struct WaitingOperation {
    number: u64,
    pub(super) ticket: Ticket,
    pub(super) operate: Box<Operate>,
    /// Whether it is known if it came before.
    looked: bool,
    kept: Option<KeptAnswer>,
    /// How far the store was when it was asked.
    durable: u64,
}

/// Entities kept in memory that nothing waits for.
const IDLE_MAX: usize = 4_096;

impl EntitySlot {
    fn new() -> Self {
        Self {
            known: KnownEntity::Nothing,
            state: None,
            items: VecDeque::new(),
            numbered: 0,
            looked_anew: false,
            recent: HashMap::new(),
            recent_order: VecDeque::new(),
            written: 0,
        }
    }

    /// The answer to an earlier copy of the operation.
    pub(super) fn kept(&mut self, item: &WaitingOperation) -> Option<KeptAnswer> {
        while let Some((written, key)) = self.recent_order.front()
            && *written <= item.durable
            && !self.looked_anew
        {
            self.recent.remove(key);
            self.recent_order.pop_front();
        }
        let key = item.operate.repeat.as_ref()?.key;
        self.recent.get(&key).or(item.kept.as_ref()).cloned()
    }

    pub(super) fn keep(&mut self, key: [u8; 32], answer: KeptAnswer, written: u64) {
        self.recent.insert(key, answer);
        self.recent_order.push_back((written, key));
    }
}

impl Shard {
    /// An operation that was asked for.
    pub(super) fn on_operate(&mut self, ticket: Ticket, operate: Box<Operate>) {
        let entity = operate.entity.clone();
        let durable = self.commits.durable;
        let slot = self.entities.slots.entry(entity.clone()).or_insert_with(EntitySlot::new);
        slot.numbered += 1;
        let number = slot.numbered;
        let looked = operate.repeat.is_none() && !matches!(slot.known, KnownEntity::Nothing);
        let repeat = operate.repeat.map(|repeat| (operate.scope, repeat.key));
        slot.items.push_back(WaitingOperation { number, ticket, operate, looked, kept: None, durable });
        self.waiting += 1;
        if !looked {
            return self.effects.push(Effect::LookUpEntity { entity, number, repeat });
        }
        self.serve_entity(&entity);
    }

    pub(super) fn on_entity_looked_up(&mut self, entity: &EntityId, number: u64, found: FoundEntity) {
        let Some(slot) = self.entities.slots.get_mut(entity) else { return };
        let Some(item) = slot.items.iter_mut().find(|item| item.number == number && !item.looked) else {
            return;
        };
        let known = match found {
            FoundEntity::Unavailable(_) => {
                let at = later(self.now.mono, back_off(3));
                return self.entities.again.push_back((at, entity.clone(), number));
            }
            FoundEntity::Found(row, kept) => {
                item.kept = kept;
                KnownEntity::Row(row)
            }
            FoundEntity::Damaged(reason) => KnownEntity::Damaged(reason),
        };
        item.looked = true;
        // What memory knows is newer than what the store knew, damage aside, which memory may not have met.
        if matches!(slot.known, KnownEntity::Nothing) || matches!(known, KnownEntity::Damaged(_)) {
            slot.known = known;
        }
        self.serve_entity(entity);
    }

    /// Does what waits for an entity, as far as it can be done.
    fn serve_entity(&mut self, entity: &EntityId) {
        let Some(mut slot) = self.entities.slots.remove(entity) else { return };
        while slot.items.front().is_some_and(|item| item.looked) {
            if !self.commits.has_room() {
                self.entities.ready.push_back(entity.clone());
                break;
            }
            let Some(item) = slot.items.pop_front() else { break };
            self.waiting = self.waiting.saturating_sub(1);
            self.operate(&mut slot, &item);
        }
        if slot.items.is_empty() {
            slot.looked_anew = false;
            self.entities.idle.push_back(entity.clone());
        }
        self.entities.slots.insert(entity.clone(), slot);
    }

    /// Serves entities that had no room before, as far as there is room now.
    pub(super) fn serve_ready_entities(&mut self) {
        for _ in 0..self.entities.ready.len() {
            if !self.commits.has_room() {
                return;
            }
            let Some(entity) = self.entities.ready.pop_front() else { return };
            self.serve_entity(&entity);
        }
    }

    /// Asks again what the store could not answer.
    pub(super) fn look_up_entities_again(&mut self) {
        while self.entities.again.front().is_some_and(|(at, ..)| *at <= self.now.mono) {
            let Some((_, entity, number)) = self.entities.again.pop_front() else { return };
            let durable = self.commits.durable;
            let Some(slot) = self.entities.slots.get_mut(&entity) else { continue };
            let item = slot.items.iter_mut().find(|item| item.number == number);
            let Some(item) = item.filter(|item| !item.looked) else { continue };
            slot.looked_anew = true;
            item.durable = durable;
            let repeat = item.operate.repeat.map(|repeat| (item.operate.scope, repeat.key));
            self.effects.push(Effect::LookUpEntity { entity, number, repeat });
        }
    }

    pub(super) fn entities_wake(&self) -> Option<Monotonic> {
        self.entities.again.front().map(|(at, ..)| *at)
    }

    /// Whether an entity waits for room.
    pub(super) fn entities_are_ready(&self) -> bool {
        !self.entities.ready.is_empty()
    }

    /// Forgets the oldest entities that nothing waits for, when there are many.
    pub(super) fn drop_idle_entities(&mut self) {
        for _ in 0..self.entities.idle.len().saturating_sub(IDLE_MAX) {
            let Some(entity) = self.entities.idle.pop_front() else { return };
            let Some(slot) = self.entities.slots.get(&entity) else { continue };
            if !slot.items.is_empty() {
                continue;
            }
            if slot.written <= self.commits.durable {
                self.entities.slots.remove(&entity);
            } else {
                self.entities.idle.push_back(entity);
            }
        }
    }

    pub(super) fn clear_entities(&mut self) {
        self.entities = Entities::default();
    }

    pub(super) fn refuse_operation(&mut self, slot: &EntitySlot, ticket: Ticket, why: Refused) {
        let reply = Effect::Reply(ticket, crate::request::Reply::Refused(why));
        // What is said of an entity must not be undone by a crash.
        if let Some(after) = self.commits.when_durable(slot.written, super::commits::After::Effect(reply)) {
            self.follow(after);
        }
    }
}
