//! What a process does for its shards, and the points it comes to over it.

use abide_runtime::{Effect, Event, Notice, Stopped};
use abide_store::rows::CommitOutcome;

use super::points::Point;
use super::process::{Happening, Process, STORE_US};
use crate::cluster::ready;

impl Process<'_> {
    /// Begins what a shard wants. True if the process ended over it.
    pub(super) fn begin(&mut self, shard: usize, effect: Effect) -> bool {
        let point = match &effect {
            Effect::Commit(..) => Some(Point::BeforeCommit),
            Effect::Post(..) => Some(Point::BeforePost),
            Effect::DropArrivals(_) => Some(Point::BeforeDrop),
            Effect::Feed(..) => Some(Point::BeforeFeed),
            Effect::Reply(..) => Some(Point::BeforeReply),
            Effect::Call(..) => Some(Point::BeforeCall),
            _ => None,
        };
        if point.is_some_and(|point| self.dies_at(point)) {
            return true;
        }
        match effect {
            Effect::Reply(ticket, reply) => self.reply(ticket, &reply),
            Effect::Call(id, call) => self.deliver(shard, id, &call),
            Effect::CancelCall(id) => self.cancel(&id),
            Effect::Tell(Notice::Parked { instance_id, reason }) => {
                self.wrong.push(format!("{instance_id} was parked: {reason}"));
            }
            Effect::Tell(Notice::Unreadable { reason }) => self.wrong.push(reason),
            Effect::Tell(_) => {}
            Effect::Stopped(why) => self.wrong.push(match why {
                Stopped::Broken(reason) => format!("a shard broke: {reason}"),
                Stopped::Lost | Stopped::Drained => format!("a shard stopped: {why:?}"),
            }),
            other => self.later(STORE_US, Happening::Execute(shard, other)),
        }
        false
    }

    /// Something reaches the store.
    pub(super) fn execute(&mut self, shard: usize, effect: Effect) {
        let id = self.stage.shard(shard);
        let batch = if let Effect::Commit(_, batch) = &effect { Some(batch.clone()) } else { None };
        let target = if let Effect::Post(target, _) = &effect { Some(*target) } else { None };
        let event = match ready(self.stage.hands.carry_out(id, effect)) {
            Ok(event) => event,
            Err(effect) => return self.wrong.push(format!("nobody carries out {effect:?}")),
        };
        match (&event, &batch) {
            (Event::CommitAnswered(_, CommitOutcome::Committed(_)), Some(batch)) => {
                self.stage.note_commit(id, batch);
            }
            // Nobody else writes here, and nothing of an earlier life is on its way.
            (Event::CommitAnswered(_, outcome), _) => {
                self.wrong.push(format!("a commit was answered with {outcome:?}"));
            }
            _ => {}
        }
        let point = match &event {
            Event::CommitAnswered(..) => Some(Point::AfterCommit),
            Event::Posted(..) => Some(Point::AfterPost),
            Event::ArrivalsDropped(_) => Some(Point::AfterDrop),
            Event::Fed(_) => Some(Point::AfterFeed),
            _ => None,
        };
        if point.is_some_and(|point| self.dies_at(point)) {
            return;
        }
        self.later(STORE_US, Happening::Hear(shard, event));
        if let Some(target) = target {
            self.later(STORE_US, Happening::Hear(target.number() as usize, Event::ArrivalsHinted));
        }
    }
}
