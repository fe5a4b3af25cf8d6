//! One turn: inbox in, changed parts, history and commands out. Deterministic: the same plan, instance, messages, time and
//! limits give the same turn.
//!
//! Work that needs no message is done before the next message is looked at, in an order that does not depend on the limits, so
//! limits decide how turns are cut, never what happens. Nothing here does I/O, reads a clock or draws a random number.

mod child;
mod end;
mod enter;
mod escalate;
mod fan_out;
mod inbox;
mod leave;
mod pass;
mod retry;
mod task;
mod undo;
mod wait;

use crate::instance::{Corrupt, Instance};
use crate::limits::Limits;
use crate::message::Message;
use crate::plan::Plan;
use crate::time::Timestamp;
use crate::turn::Turn;
use pass::Pass;
pub(crate) use retry::nominal_delay;

/// Takes a bounded prefix of the inbox, moves the instance as far as it goes within the limits, and says what changed.
///
/// The instance is changed in place. If the turn cannot be committed, or this answers [`Corrupt`], drop the instance and load it
/// again: what is in memory is ahead of what is durable.
pub fn advance(
    plan: &Plan,
    instance: &mut Instance,
    inbox: &[Message],
    now: Timestamp,
    limits: &Limits,
) -> Result<Turn, Corrupt> {
    if instance.origin().plan_hash != plan.hash() {
        return Err(Corrupt::new(format!(
            "the run is pinned to {} but was given {} {} ({})",
            instance.origin().plan_hash,
            plan.id(),
            plan.version(),
            plan.hash()
        )));
    }
    let mut pass = Pass::new(plan, instance, now, limits);
    let mut consumed = 0;
    pass.begin()?;
    // What comes after a continueAsNew is for the next run.
    while pass.has_room() && pass.next_run.is_none() {
        if pass.step()? {
            continue;
        }
        match inbox.get(consumed) {
            Some(message) if consumed < pass.messages_max() => {
                pass.take(consumed, message)?;
                consumed += 1;
            }
            _ => break,
        }
    }
    pass.finish(consumed)
}
