//! Which identity a call has that a rewind makes again: that of the earlier call if it may have run, else a new one.
//!
//! The run is stored and loaded again after every turn, so nothing here depends on memory.

use std::collections::BTreeMap;

use abide_workflow::command::{CommandKind, StartActivity};
use abide_workflow::history::{Fact, KeyChoice, KeyReason, RedrivenStep};
use abide_workflow::{
    CommandId, Failure, Instance, InstanceId, Limits, Message, PartKey, Plan, RunNumber, RunOrigin, Status,
    Timestamp, advance,
};
use serde_json::{Value, json};

use crate::bench::case;

pub(crate) struct StoredRun {
    plan: Plan,
    parts: BTreeMap<PartKey, Vec<u8>>,
    now: i64,
    /// Calls that have no result yet.
    pub(crate) open: Vec<(CommandId, StartActivity)>,
    rewound: Vec<RedrivenStep>,
    pub(crate) status: Status,
}

impl StoredRun {
    pub(crate) fn start(start: &str, states: Value, input: Value) -> Self {
        let plan = case(start, states).plan();
        let mut origin = RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan);
        origin.input = input.into();
        let mut instance = Instance::pending(origin, Timestamp(0));
        let parts = instance.take_changes().unwrap();
        let parts = parts.into_iter().filter_map(|part| Some((part.key, part.value?))).collect();
        let mut run =
            Self { plan, parts, now: 0, open: Vec::new(), rewound: Vec::new(), status: Status::Pending };
        run.send(&[]);
        run
    }

    /// Sends messages, and runs turns until the run waits; a second passes before.
    pub(crate) fn send(&mut self, messages: &[Message]) {
        self.now += 1_000;
        let mut inbox = messages;
        loop {
            let parts = self.parts.iter().map(|(key, bytes)| (key.clone(), bytes.as_slice()));
            let mut instance = Instance::load(parts).unwrap();
            let turn =
                advance(&self.plan, &mut instance, inbox, Timestamp(self.now), &Limits::default()).unwrap();
            assert_eq!(turn.refusals, []);
            for part in turn.changes {
                match part.value {
                    Some(bytes) => self.parts.insert(part.key, bytes),
                    None => self.parts.remove(&part.key),
                };
            }
            for command in turn.commands {
                match command.kind {
                    CommandKind::StartActivity(call) => self.open.push((command.id, call)),
                    CommandKind::CancelActivity { call } => self.open.retain(|(id, _)| *id != call),
                    _ => {}
                }
            }
            for event in turn.history {
                if let Fact::ExecutionRewound { steps, .. } = event.fact {
                    self.rewound = steps;
                }
            }
            self.status = turn.status;
            inbox = inbox.get(turn.consumed..).unwrap_or_default();
            if inbox.is_empty() && !turn.has_more_work {
                return;
            }
        }
    }

    fn take(&mut self, activity: &str) -> (CommandId, StartActivity) {
        let at = self.open.iter().position(|(_, call)| call.activity == activity);
        self.open.remove(at.unwrap_or_else(|| panic!("{activity} is not called: {:?}", self.open)))
    }

    pub(crate) fn answer(&mut self, activity: &str) -> StartActivity {
        let (command, call) = self.take(activity);
        self.send(&[Message::ActivityCompleted { command, result: json!(1).into() }]);
        call
    }

    /// The call fails for good; its receiver said so.
    pub(crate) fn refuse(&mut self, activity: &str) -> StartActivity {
        let (command, call) = self.take(activity);
        let failure = Failure::permanent("Declined", "");
        self.send(&[Message::ActivityFailed { command, attempt: 0, failure }]);
        call
    }

    /// The call fails for good; its receiver said nothing.
    pub(crate) fn lose(&mut self, activity: &str) -> StartActivity {
        let (command, call) = self.take(activity);
        let failure = Failure::permanent("AttemptTimeout", "");
        self.send(&[Message::ActivityFailed { command, attempt: 1, failure }.unanswered()]);
        call
    }

    pub(crate) fn rewind(&mut self) {
        assert_eq!(self.status, Status::Failed);
        self.send(&[Message::Rewind { reason: String::new() }]);
    }

    /// The run as it is stored.
    pub(crate) fn load(&self) -> Instance {
        Instance::load(self.parts.iter().map(|(key, bytes)| (key.clone(), bytes.as_slice()))).unwrap()
    }

    fn remembered(&self) -> usize {
        self.parts.keys().filter(|key| matches!(key, PartKey::UnansweredCall(_))).count()
    }

    fn reasons(&self) -> Vec<(&str, &[u32], KeyChoice, KeyReason)> {
        self.rewound.iter().map(|step| (step.step.as_str(), &step.items[..], step.key, step.reason)).collect()
    }
}

fn task(activity: &str, next: &str) -> Value {
    json!({"type": "task", "activity": activity, "next": next})
}

fn charge() -> StoredRun {
    let input = json!({"at": "$.system.currentTime", "id": "$.system.newId"});
    let state = json!({"type": "task", "activity": "charge", "input": input, "next": "Done"});
    StoredRun::start("Charge", json!({"Charge": state, "Done": {"type": "succeed"}}), json!({}))
}

#[test]
fn a_call_of_unknown_outcome_is_made_again_as_the_same_work_with_the_same_input() {
    let mut run = charge();
    let first = run.lose("charge");
    assert!(!first.may_have_run);
    run.rewind();
    assert_eq!(run.reasons(), [("Charge", &[][..], KeyChoice::Same, KeyReason::OutcomeUnknown)]);
    // It may be lost as often as it likes.
    let second = run.lose("charge");
    assert_eq!((&second.step, &second.input, second.may_have_run), (&first.step, &first.input, true));
    run.rewind();
    let third = run.answer("charge");
    assert_eq!((&third.step, &third.input), (&first.step, &first.input));
    assert_eq!((run.status, run.remembered()), (Status::Completed, 0));
}

#[test]
fn a_call_that_was_answered_with_a_failure_is_made_again_as_new_work() {
    let mut run = charge();
    let first = run.lose("charge");
    run.rewind();
    let second = run.refuse("charge");
    assert_eq!(second.step, first.step);
    run.rewind();
    assert_eq!(run.reasons(), [("Charge", &[][..], KeyChoice::New, KeyReason::OutcomeKnown)]);
    let third = run.answer("charge");
    assert_ne!(third.step, first.step);
    assert!(!third.may_have_run && third.input != first.input);
}

#[test]
fn a_rewind_with_new_keys_makes_every_call_again_as_new_work() {
    let states = json!({
        "Both": {"type": "parallel", "next": "Done", "branches": [
            {"startAt": "A", "states": {"A": task("a", "Ok"), "Ok": {"type": "succeed"}}},
            {"startAt": "B", "states": {"B": task("b", "Ok"), "Ok": {"type": "succeed"}}}]},
        "Done": {"type": "succeed"}});
    let mut run = StoredRun::start("Both", states, json!({}));
    let b = run.open[1].1.step.clone();
    let a = run.lose("a").step;
    assert_eq!(run.open, [], "the call of the other branch was cancelled");
    run.send(&[Message::RewindWithNewKeys { reason: String::new() }]);
    let requested = |step, item| (step, item, KeyChoice::New, KeyReason::Requested);
    let steps = [requested("Both/branches/0/A", &[0][..]), requested("Both/branches/1/B", &[1][..])];
    assert_eq!(run.reasons(), steps);
    let (a_again, b_again) = (run.lose("a"), b);
    assert_ne!(a_again.step, a);
    // The wish does not outlive its rewind.
    run.rewind();
    assert_eq!(run.answer("a").step, a_again.step);
    assert_ne!(run.answer("b").step, b_again);
    assert_eq!(run.status, Status::Completed);
}

#[test]
fn a_call_of_unknown_outcome_keeps_its_identity_if_its_error_led_to_a_fail_state() {
    let states = json!({
        "Charge": {"type": "task", "activity": "charge", "onError": "Tell", "next": "Done"},
        "Tell": task("tell", "Failed"), "Failed": {"type": "fail"}, "Done": {"type": "succeed"}});
    let mut run = StoredRun::start("Charge", states, json!({}));
    let first = run.lose("charge").step;
    let told = run.answer("tell").step;
    run.rewind();
    assert_eq!(run.refuse("charge").step, first);
    assert_ne!(run.answer("tell").step, told, "a state that is entered after a rewind is new work");
    run.rewind();
    assert_ne!(run.answer("charge").step, first);
}

#[test]
fn a_call_that_was_in_progress_when_another_failed_keeps_its_identity() {
    let item = json!({"startAt": "Do", "states": {"Do": task("do", "Ok"), "Ok": {"type": "succeed"}}});
    let states = json!({
        "Each": {"type": "map", "items": "$.input", "next": "Done", "iterator": item},
        "Done": {"type": "succeed"}});
    let mut run = StoredRun::start("Each", states, json!([1, 2, 3]));
    let answered = run.answer("do").step;
    let interrupted = run.open[1].1.step.clone();
    let failed = run.lose("do").step;
    run.rewind();
    let path = "Each/iterator/Do";
    assert_eq!(
        run.reasons(),
        [
            (path, &[1][..], KeyChoice::Same, KeyReason::OutcomeUnknown),
            (path, &[2][..], KeyChoice::Same, KeyReason::Interrupted)
        ]
    );
    let mut again = [run.answer("do"), run.answer("do")];
    again.sort_by_key(|call| call.step.fan_outs[0].index);
    assert_eq!([&again[0].step, &again[1].step], [&failed, &interrupted]);
    assert!(again.iter().all(|call| call.may_have_run) && !again.iter().any(|call| call.step == answered));
    assert_eq!((run.status, run.remembered()), (Status::Completed, 0));
}

#[test]
fn calls_of_unknown_outcome_keep_their_identity_when_their_map_starts_again() {
    let item = json!({"startAt": "Do", "states": {"Do": task("do", "Ok"), "Ok": {"type": "succeed"}}});
    let states = json!({
        "Each": {"type": "map", "items": "$.input", "onError": "Failed", "next": "Done", "iterator": item},
        "Failed": {"type": "fail"}, "Done": {"type": "succeed"}});
    let mut run = StoredRun::start("Each", states, json!([1, 2, 3]));
    let answered = run.answer("do").step;
    let interrupted = run.open[1].1.step.clone();
    let failed = run.lose("do").step;
    run.rewind();
    assert_eq!(run.reasons(), [("Each", &[][..], KeyChoice::New, KeyReason::BranchesStartAgain)]);
    assert_eq!(run.open.len(), 3, "each branch calls once");
    let mut again: Vec<StartActivity> = (0..3).map(|_| run.answer("do")).collect();
    again.sort_by_key(|call| call.step.fan_outs[0].index);
    assert_ne!(again[0].step, answered, "its result went with the map; the work is done again");
    assert_eq!([&again[1].step, &again[2].step], [&failed, &interrupted]);
    assert_eq!((run.status, run.remembered()), (Status::Completed, 0));
}

#[test]
fn a_loop_of_timeouts_does_not_fill_the_store() {
    let mut state = task("do", "Done");
    state["timeout"] = json!("PT1M");
    state["timeoutNext"] = json!("Pause");
    let states = json!({
        "Do": state,
        "Pause": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "Do"},
        "Done": {"type": "succeed"}});
    let mut run = StoredRun::start("Do", states, json!({}));
    for _ in 0..20 {
        let (command, _) = run.take("do");
        let failure = Failure::permanent("Timeout", "");
        run.send(&[Message::ActivityFailed { command, attempt: 0, failure }.unanswered()]);
        run.send(&[Message::EventRaised { name: "Go".to_owned(), payload: json!(1).into() }]);
    }
    assert_eq!(run.remembered(), 1);
}
