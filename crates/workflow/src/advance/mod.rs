//! One turn: inbox in; changed parts, history and commands out. Nothing here does I/O, reads a clock or draws a random
//! number.
//!
//! It is deterministic: the same plan, instance, messages, time and limits give the same turn. Work that needs no
//! message is done before the next message is consumed, in an order that does not depend on the limits. So limits
//! decide where turns end, never what happens.

mod child;
mod compensation;
mod compensation_retry;
mod end;
mod enter;
mod escalation;
mod fan_out;
mod inbox;
mod interpreter;
mod leave;
mod redrive;
mod retry;
mod task;
mod wait;

use crate::instance::{CorruptInstance, Instance, Status};
use crate::limits::Limits;
use crate::message::Message;
use crate::plan::Plan;
use crate::time::Timestamp;
use crate::turn::Turn;
use interpreter::Interpreter;
pub use retry::is_named_non_retryable;
pub(crate) use retry::nominal_delay;

/// Consumes a bounded prefix of the inbox, moves the instance as far as the limits allow, and returns the changes.
///
/// The instance is changed in place. If the turn cannot be committed, or this returns [`CorruptInstance`], drop the
/// instance and load it again: the state in memory is ahead of the durable one.
pub fn advance(
    plan: &Plan,
    instance: &mut Instance,
    inbox: &[Message],
    now: Timestamp,
    limits: &Limits,
) -> Result<Turn, CorruptInstance> {
    if instance.origin().plan_hash != plan.hash() {
        return Err(CorruptInstance::new(format!(
            "the run is pinned to plan {} but was given {} {} ({})",
            instance.origin().plan_hash,
            plan.id(),
            plan.version(),
            plan.hash()
        )));
    }
    let is_first = instance.status() == Status::Pending;
    let mut interpreter = Interpreter::new(plan, instance, now, limits);
    let mut consumed = 0;
    interpreter.begin_run()?;
    // A run that is ended before its first turn does nothing else: its tree must not outgrow the order to end it.
    if let Some(order) = inbox.first().filter(|message| is_first && message.terminates()) {
        interpreter.on_message(consumed, order)?;
        consumed += 1;
    }
    // Messages after a continueAsNew are for the next run.
    while interpreter.has_budget() && interpreter.next_run.is_none() {
        if interpreter.step()? {
            continue;
        }
        match inbox.get(consumed) {
            Some(message) if consumed < interpreter.messages_max() => {
                interpreter.on_message(consumed, message)?;
                consumed += 1;
            }
            _ => break,
        }
    }
    interpreter.finish(consumed)
}
