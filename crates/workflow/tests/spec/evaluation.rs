//! The budget of evaluations: data that makes a path, a template or a condition costly is an error of its run, the same
//! wherever turns end.

use abide_workflow::evaluation::EvaluationLimits;
use abide_workflow::{Outcome, Status};
use serde_json::{Value, json};

use crate::bench::{Case, case, check, compile, story};
use crate::by_hand::Run;

fn with_small_budget(case: Case) -> Case {
    case.limits(|limits| limits.evaluation = EvaluationLimits { steps_max: 20_000, bytes_max: 200_000 })
}

fn caught_by(state: Value) -> Value {
    json!({
        "Costly": state,
        "Caught": {"type": "succeed", "output": ["$.error.code", "$.error.message", "$.error.state"]},
        "End": {"type": "succeed"},
    })
}

#[track_caller]
fn check_exceeds(rule: &str, mut state: Value, input: Value, message: &str) {
    state["onError"] = "Caught".into();
    state["next"] = "End".into();
    let case = with_small_budget(case("Costly", caught_by(state)).input(input));
    let caught = json!(["EvaluationLimitExceeded", message, "Costly"]);
    check(
        rule,
        &case,
        &["Costly", "EvaluationLimitExceeded -> Caught", "Caught", &format!("Completed {caught}")],
    );
}

#[test]
fn a_path_that_multiplies_data_exceeds_the_budget() {
    let path = format!("$.input.a{}..*", "[0,0]".repeat(8));
    let nested = (0..8).fold(json!(vec![0; 100]), |inner, _| json!([inner]));
    check_exceeds(
        "multiplied",
        json!({"type": "task", "activity": "A", "input": &path}),
        json!({"a": nested}),
        &format!("{path} needs more than 200000 bytes of memory on this data"),
    );
}

#[test]
fn a_descendant_path_on_deeply_nested_data_exceeds_the_budget() {
    let nested = (0..60).fold(json!("x".repeat(10_000)), |inner, _| json!({"serial": inner}));
    check_exceeds(
        "nested",
        json!({"type": "task", "activity": "A", "input": {"all": "$.input..serial"}}),
        nested,
        "$.input..serial needs more than 200000 bytes of memory on this data",
    );
}

#[test]
fn a_filter_that_compares_large_values_for_each_element_exceeds_the_budget() {
    let large: Vec<u32> = (0..1_000).collect();
    check_exceeds(
        "quadratic",
        json!({"type": "map", "items": "$.input.l[?$.input.p == $.input.q]", "iterator": {
            "startAt": "Done", "states": {"Done": {"type": "succeed"}}}}),
        json!({"p": large.clone(), "q": large.clone(), "l": large}),
        "$.input.l[?$.input.p == $.input.q] needs more than 20000 steps on this data",
    );
}

#[test]
fn a_time_at_a_costly_path_exceeds_the_budget() {
    check_exceeds(
        "time",
        json!({"type": "wait", "waitType": "timestamp", "timestamp": "$.input..*"}),
        json!({"all": vec![0; 30_000]}),
        "$.input..* needs more than 200000 bytes of memory on this data",
    );
}

#[test]
fn conditions_share_the_budget_of_their_state() {
    let choice = json!({"when": {"path": "$.input.text", "op": "matches", "valuePath": "$.input.glob"}, "next": "End"});
    let states = json!({
        "Choose": {"type": "choice", "choices": vec![choice; 100], "default": "End"},
        "End": {"type": "succeed"},
    });
    let input = json!({"text": "a".repeat(2_000), "glob": format!("{}b", "*a".repeat(100))});
    let case = with_small_budget(case("Choose", states).input(input));
    let playback = case.play(case.limits.turn, true);
    let Some(Outcome::Failed(failure)) = playback.outcome else { panic!("{:?}", playback.outcome) };
    assert_eq!(failure.code, "EvaluationLimitExceeded");
    assert_eq!(failure.message, "$.input.text needs more than 20000 steps on this data");
    assert_eq!(failure.state.as_deref(), Some("Choose"));
}

#[test]
fn a_branch_that_cannot_decide_about_an_event_fails_and_the_event_stays_for_another() {
    let wait = |when: Value| json!({"type": "wait", "waitType": "externalEvent", "eventName": "Go", "match": when, "onError": "Plain", "next": "End"});
    let states = json!({
        "Wait": wait(json!({"path": "$.event..*", "op": "contains", "value": "x"})),
        "Plain": wait(json!({"path": "$.event.n", "op": "eq", "value": 1})),
        "End": {"type": "succeed", "output": "$.event.n"},
    });
    let case =
        with_small_budget(case("Wait", states).event("PT1S", "Go", json!({"n": 1, "all": vec![0; 30_000]})));
    let story = story(&case.play(case.limits.turn, true));
    let failed = story.iter().position(|line| line == "EvaluationLimitExceeded -> Plain");
    assert!(failed.is_some(), "{story:?}");
    check("undecided", &case, &story.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(story.last().unwrap(), "Completed 1");
}

#[test]
fn writing_below_a_large_value_is_charged() {
    let states = json!({
        "A": {"type": "task", "activity": "A", "output": "$.state.a", "next": "B"},
        "B": {"type": "task", "activity": "B", "output": "$.state.a.b", "onError": "Caught", "next": "End"},
        "Caught": {"type": "succeed", "output": "$.error.message"},
        "End": {"type": "succeed"},
    });
    let case = with_small_budget(
        case("A", states)
            .mock("A", json!({"result": {"all": vec![0; 10_000]}}))
            .mock("B", json!({"result": 1})),
    );
    let story = story(&case.play(case.limits.turn, true));
    assert_eq!(
        story.last().unwrap(),
        "Completed \"$.state.a.b needs more than 200000 bytes of memory on this data\""
    );
}

#[test]
fn an_input_whose_check_exceeds_the_budget_starts_no_run_and_continues_none() {
    let kinds: Vec<Value> = (0..20).map(|kind| json!({"const": kind})).collect();
    let states = json!({
        "Again": {"type": "continueAsNew", "input": "$.input.next"},
    });
    let case = case("Again", states);
    let mut definition = case.definition.clone();
    definition["input"] = json!({"items": {"oneOf": kinds}});
    let plan = compile(&definition, None);
    let mismatches = plan.check_input(&json!(vec![19; 400_000])).unwrap_err();
    assert_eq!(mismatches.len(), 1);
    assert_eq!(mismatches[0].keyword, "evaluationLimit");
    let mut continued = with_small_budget(case.input(json!({"next": vec![19; 2_000]})));
    continued.definition = definition;
    let playback = continued.play(continued.limits.turn, true);
    let Some(Outcome::Failed(failure)) = playback.outcome else { panic!("{:?}", playback.outcome) };
    assert_eq!(failure.code, "EvaluationLimitExceeded");
    assert!(failure.message.starts_with("the check against the schema needs"), "{}", failure.message);
}

#[test]
fn a_turn_ends_after_the_step_that_reaches_its_evaluation_limit() {
    let branch = json!({"startAt": "Done", "states": {"Done": {"type": "succeed", "output": "$.input.l[?@ == 5000]"}}});
    let states = json!({
        "All": {"type": "parallel", "branches": vec![branch; 20], "next": "End"},
        "End": {"type": "succeed"},
    });
    let turns_with = |steps_max: u64| {
        let mut run = Run::of("All", states.clone(), json!({"l": (0..10_000).collect::<Vec<_>>()}));
        run.limits.turn.evaluation.steps_max = steps_max;
        let mut turns = 1;
        while run.turn(&[]).has_more_work {
            turns += 1;
        }
        assert_eq!(run.instance.status(), Status::Completed);
        turns
    };
    let (without, with) = (turns_with(u64::MAX), turns_with(100_000));
    assert!(with >= without + 5, "{with} turns, without the limit {without}");
}
