//! Measures the pure workflow core: turns, fan-out, validation. Run with `scripts/bench`.

#![expect(clippy::expect_used, reason = "a workload that does not run is a bug in the benchmark")]

use abide_bench::{compile, long, map, parallel, pending, three_tasks};
use abide_workflow::command::CommandKind;
use abide_workflow::{
    CommandId, Instance, Limits, Message, ParsedDefinition, Plan, Timestamp, Turn, advance,
};
use divan::{Bencher, black_box};
use serde_json::json;

fn main() {
    divan::main();
}

fn turn(plan: &Plan, instance: &mut Instance, inbox: &[Message], limits: &Limits) -> Turn {
    advance(plan, instance, inbox, Timestamp(0), limits).expect("the workload runs")
}

fn completed(command: u64) -> [Message; 1] {
    [Message::ActivityCompleted {
        command: CommandId(command),
        result: json!({"ok": true, "id": "r-1"}).into(),
    }]
}

/// The middle turn of three sequential tasks: one result in, the next call out.
#[divan::bench]
fn one_turn_of_three_tasks(bencher: Bencher) {
    let plan = compile(&three_tasks());
    let limits = Limits::default();
    let mut started = pending(&plan, json!({"id": "dev-1"}));
    turn(&plan, &mut started, &[], &limits);
    let inbox = completed(1);
    bencher
        .with_inputs(|| started.clone())
        .bench_values(|mut instance| black_box(turn(&plan, &mut instance, &inbox, &limits)));
}

/// All four turns, from pending to completed.
#[divan::bench]
fn whole_run_of_three_tasks(bencher: Bencher) {
    let plan = compile(&three_tasks());
    let limits = Limits::default();
    let inboxes: Vec<_> = (1..=3).map(completed).collect();
    bencher.with_inputs(|| pending(&plan, json!({"id": "dev-1"}))).bench_values(|mut instance| {
        turn(&plan, &mut instance, &[], &limits);
        for inbox in &inboxes {
            black_box(turn(&plan, &mut instance, inbox, &limits));
        }
    });
}

#[divan::bench]
fn start_of_a_parallel_with_100_branches(bencher: Bencher) {
    let plan = compile(&parallel(100));
    let limits = Limits::default();
    bencher
        .with_inputs(|| pending(&plan, json!({"id": "dev-1"})))
        .bench_values(|mut instance| black_box(turn(&plan, &mut instance, &[], &limits)));
}

/// A map from start to end, one result per turn: the cost per item should not depend on the number of items.
#[divan::bench(args = [100, 1000], sample_count = 10)]
fn whole_map_one_result_per_turn(bencher: Bencher, items: usize) {
    let plan = compile(&map());
    let limits = Limits::default();
    bencher
        .counter(divan::counter::ItemsCount::new(items))
        .with_inputs(|| pending(&plan, json!({"items": vec![1; items]})))
        .bench_values(|mut instance| {
            let mut commands = Vec::new();
            loop {
                let turn = turn(&plan, &mut instance, &[], &limits);
                commands.extend(turn.commands);
                if !turn.has_more_work {
                    break;
                }
            }
            for command in
                commands.iter().filter(|command| matches!(command.kind, CommandKind::StartActivity(_)))
            {
                let mut result = turn(&plan, &mut instance, &completed(command.id.0), &limits);
                while result.has_more_work {
                    result = turn(&plan, &mut instance, &[], &limits);
                }
            }
        });
}

#[divan::bench(args = [100, 300, 1000], sample_count = 30)]
fn parse_validate_and_compile(bencher: Bencher, states: usize) {
    let text = long(states).to_string();
    bencher.counter(divan::counter::ItemsCount::new(states)).bench(|| {
        black_box(ParsedDefinition::parse(&text).validate(None).expect("the workload is valid").compile())
    });
}

/// Loads a stored instance from its bytes.
#[divan::bench]
fn load_after_two_of_three_tasks(bencher: Bencher) {
    let plan = compile(&three_tasks());
    let limits = Limits::default();
    let mut instance = pending(&plan, json!({"id": "dev-1"}));
    let mut parts = std::collections::BTreeMap::new();
    for inbox in [&[][..], &completed(1), &completed(2)] {
        for change in turn(&plan, &mut instance, inbox, &limits).changes {
            parts.insert(change.key, change.value.unwrap_or_default());
        }
    }
    bencher.bench(|| {
        black_box(Instance::load(parts.iter().map(|(key, bytes)| (key.clone(), bytes.as_slice()))))
    });
}
