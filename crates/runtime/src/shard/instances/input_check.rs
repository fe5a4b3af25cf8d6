//! Checks the input of a run that a message starts against the schema of its definition. The server checks the inputs
//! of starts before the shard sees them.
//!
//! What becomes of a message whose input does not match is the caller's business.

use abide_workflow::{InstanceId, Plan};
use serde_json::Value;

use crate::panics;
use crate::shard::context::Context;

/// Returns the reason why the input does not fit. A check that panics is such a reason too: the message cannot start
/// its run, and the shard goes on.
#[cfg_attr(not(feature = "faults"), expect(unused_variables, reason = "only test builds plant faults"))]
pub(in crate::shard) fn check_input(
    ctx: &Context,
    id: &InstanceId,
    plan: &Plan,
    input: &Value,
) -> Result<(), String> {
    #[cfg(feature = "faults")]
    crate::fault_injection::begin_work(&ctx.config, id);
    let checked = panics::catch(|| {
        #[cfg(feature = "faults")]
        crate::fault_injection::begin_evaluation(&ctx.config, id);
        plan.check_input(input)
    });
    match checked {
        Ok(Ok(())) => Ok(()),
        Ok(Err(mismatches)) => Err(mismatches.first().map(ToString::to_string).unwrap_or_default()),
        Err(message) => Err(format!("the check of the input panicked: {message}")),
    }
}
