//! What the store knows of an instance, and what follows from it.

use abide_store::tables::instances::RunStatus;
use abide_workflow::InstanceId;

use super::slot::{Item, Known, Run, Slot, is_over};
use super::{Shard, back_off, later};
use crate::event::{Depth, Effect, Kept, LookedUp};
use crate::request::Refused;
use crate::run::StoredRun;

impl Shard {
    pub(super) fn on_looked_up(&mut self, id: &InstanceId, found: LookedUp) {
        let Some(mut slot) = self.slots.remove(id) else { return };
        match &slot.known {
            Known::Asking(_) => self.answer_looked_up(id, &mut slot, found),
            Known::LookingUp(depth) => {
                let depth = depth.clone();
                self.instance_looked_up(id, &mut slot, depth, found);
            }
            _ => {}
        }
        self.slots.insert(id.clone(), slot);
        self.serve(id);
    }

    fn instance_looked_up(&mut self, id: &InstanceId, slot: &mut Slot, depth: Depth, found: LookedUp) {
        slot.known = match found {
            LookedUp::Unavailable(_) => {
                let at = later(self.now.mono, back_off(3));
                self.again.push_back((at, id.clone()));
                Known::LookAgain(depth, at)
            }
            LookedUp::Row(row, kept) => {
                self.note_kept(id, slot, &depth, kept);
                Known::Row(row)
            }
            LookedUp::Run(None) => Known::Row(None),
            LookedUp::Run(Some(stored)) => self.loaded(*stored, slot),
            LookedUp::Unreadable(unreadable, kept) => {
                self.note_kept(id, slot, &depth, kept);
                Known::Unreadable {
                    row: unreadable.row.map(Box::new),
                    last_page: unreadable.last_page,
                    last_event: unreadable.last_event,
                    reason: unreadable.reason,
                }
            }
        };
        // A live run that cannot be read is set aside, and its row says so from now on.
        if let Known::Unreadable { row: Some(row), reason, .. } = &mut slot.known
            && row.status != RunStatus::Parked
            && !is_over(row.status)
        {
            self.commits.make_room(8, 64 * 1024);
            self.write_parked(id, row, reason);
            slot.written = self.commits.number();
        }
    }

    /// A run from the store. One that was set aside stays so until it is resumed.
    fn loaded(&mut self, stored: StoredRun, slot: &mut Slot) -> Known {
        let ended = is_over(stored.row.status) && !stored.instance.status().is_terminal();
        if ended || stored.row.status == RunStatus::Parked && !slot.resuming {
            let reason = stored.row.parked.clone().unwrap_or_default();
            let row = Some(Box::new(stored.row));
            return Known::Unreadable { row, last_page: stored.last_page, last_event: 0, reason };
        }
        slot.resuming = false;
        self.restore(slot);
        Known::Run(Box::new(Run::load(stored)))
    }

    /// What is kept under a client's key, for an instance of which enough is known.
    fn answer_looked_up(&mut self, id: &InstanceId, slot: &mut Slot, found: LookedUp) {
        if slot.child.is_some() || slot.routed.is_some() || !slot.asked() {
            return;
        }
        let Some(key) = slot.key_to_look_for() else { return };
        match found {
            LookedUp::Row(_, kept) | LookedUp::Unreadable(_, kept) => {
                self.note_kept(id, slot, &Depth::Row { repeat: Some(key) }, kept);
            }
            LookedUp::Run(_) | LookedUp::Unavailable(_) => {
                // Asked again after a while; until then the slot counts as being asked.
                self.again.push_back((later(self.now.mono, back_off(3)), id.clone()));
                slot.asking_again = Some((later(self.now.mono, back_off(3)), key));
                slot.ask();
            }
        }
    }

    /// The key that was looked for is not looked for again. If what is kept under it cannot be read, nobody can say whether the request that waits
    /// was done before: it is refused.
    fn note_kept(&mut self, id: &InstanceId, slot: &mut Slot, depth: &Depth, kept: Kept) {
        let Depth::Row { repeat: Some(key) } = depth else { return };
        match kept {
            Ok(answer) => {
                slot.looked_for = Some(*key);
                slot.answer = answer;
            }
            Err(reason) => {
                if slot.key_to_look_for() == Some(*key)
                    && let Some(Item::Asked(ticket, _)) = slot.items.pop_front()
                {
                    self.waiting = self.waiting.saturating_sub(1);
                    self.refuse(ticket, Refused::Damaged { instance_id: id.clone(), reason });
                }
            }
        }
    }

    /// Serves instances again that the store could not tell of.
    pub(super) fn serve_again(&mut self) {
        while self.again.front().is_some_and(|(at, _)| *at <= self.now.mono) {
            let Some((_, id)) = self.again.pop_front() else { return };
            if let Some(slot) = self.slots.get_mut(&id)
                && let Some((_, key)) = slot.asking_again.take()
            {
                self.effects.push(Effect::LookUp(id.clone(), Depth::Row { repeat: Some(key) }));
                continue;
            }
            self.serve(&id);
        }
    }
}
