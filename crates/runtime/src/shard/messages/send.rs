//! Sends run messages: into the inbox of this shard, or through the outbox to another one.
//!
//! Nothing is sent before the unit is durable. How the outbox delivers is in
//! [`outbox`](crate::shard::messages::outbox).

use abide_store::tables::encode;
use abide_store::tables::inbox::{self, InboxRow};
use abide_store::tables::outbox::{self, OutboxRow};
use abide_workflow::InstanceId;

use crate::run_message::{self, AddressedMessage, RunMessage};
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::WorkItem;

/// Sends a message to an instance of any shard: into the inbox of this shard, or through the outbox. It becomes durable
/// with the unit.
pub(in crate::shard) fn send_run_message(work: &mut UnitOfWork<'_>, id: InstanceId, message: RunMessage) {
    let target = work.ctx.config.shard_count.shard_of_instance(&id);
    if target == work.ctx.id {
        return put_in_inbox(work, id, message);
    }
    let number = work.ctx.next_sequence();
    let bytes = run_message::encode(&AddressedMessage { instance_id: id, message });
    let outgoing = OutboxRow { created_at: work.ctx.now.wall, message: bytes.clone() };
    work.create(outbox::key(&target.to_string(), number), encode(&outgoing));
    work.mark_urgent();
    work.add(Step::SendMessage { target, number, bytes });
}

/// Puts a message for an instance of this shard into the inbox. The turn that consumes it deletes the row; if that
/// happens in the same batch, the row is never written.
pub(in crate::shard) fn put_in_inbox(work: &mut UnitOfWork<'_>, id: InstanceId, message: RunMessage) {
    let sequence = work.ctx.next_sequence();
    let row = InboxRow {
        instance_id: id.as_str().to_owned(),
        received_at: work.ctx.now.wall,
        message: run_message::encode(&message),
    };
    work.create(inbox::key(sequence), encode(&row));
    work.mark_urgent();
    work.add(Step::QueueMessage(id, Box::new(WorkItem::RunMessage { sequence, message })));
}
