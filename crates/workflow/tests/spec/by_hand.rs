//! A run driven turn by turn, for tests of details that a story does not show: commands, changed parts, messages out of
//! order.

use abide_workflow::{
    Instance, InstanceId, Limits, Message, Plan, RunNumber, RunOrigin, Timestamp, Turn, advance,
};
use serde_json::Value;

use crate::bench::case;

pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) instance: Instance,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
}

impl Run {
    pub(crate) fn of(start: &str, states: Value, input: Value) -> Self {
        let plan = case(start, states).plan();
        let mut origin = RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan);
        origin.input = input.into();
        Self {
            instance: Instance::pending(origin, Timestamp(0)),
            plan,
            limits: Limits::default(),
            now: Timestamp(0),
        }
    }

    pub(crate) fn turn(&mut self, inbox: &[Message]) -> Turn {
        advance(&self.plan, &mut self.instance, inbox, self.now, &self.limits).unwrap()
    }
}
