//! Plays every scenario over every transport, and prints the results as a table.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::transport::ParityTransport;

/// One scenario: a function that panics with the reason if it fails.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) play: fn(ParityTransport),
    /// Why the scenario cannot be played over a transport; `None` if it can.
    pub(crate) skip_reason: fn(ParityTransport) -> Option<&'static str>,
}

#[derive(Clone, Debug)]
enum ScenarioResult {
    Pass,
    Excused(&'static str),
    Failed(String),
}

pub(crate) struct ScenarioTable {
    rows: Vec<(&'static str, Vec<ScenarioResult>)>,
}

/// Number of scenarios that are played concurrently: they wait more than they work.
const AT_ONCE: usize = 6;

impl ScenarioTable {
    pub(crate) fn play(scenarios: &[Scenario]) -> Self {
        let all: Vec<(Scenario, ParityTransport)> = scenarios
            .iter()
            .flat_map(|scenario| ParityTransport::ALL.map(|over| (*scenario, over)))
            .collect();
        let next = AtomicUsize::new(0);
        let cells = Mutex::new(vec![ScenarioResult::Pass; all.len()]);
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some((index, (scenario, over))) = {
                        let index = next.fetch_add(1, Ordering::SeqCst);
                        all.get(index).map(|one| (index, *one))
                    } {
                        let cell = play_one(scenario, over);
                        cells.lock().unwrap()[index] = cell;
                    }
                });
            }
        });
        let cells = cells.into_inner().unwrap();
        let rows = scenarios.iter().zip(cells.chunks(ParityTransport::ALL.len()));
        Self { rows: rows.map(|(scenario, cells)| (scenario.name, cells.to_vec())).collect() }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.rows.iter().flat_map(|(_, cells)| cells).all(|cell| !matches!(cell, ScenarioResult::Failed(_)))
    }
}

fn play_one(scenario: Scenario, over: ParityTransport) -> ScenarioResult {
    if let Some(reason) = (scenario.skip_reason)(over) {
        return ScenarioResult::Excused(reason);
    }
    match catch_unwind(AssertUnwindSafe(|| (scenario.play)(over))) {
        Ok(()) => ScenarioResult::Pass,
        Err(panic) => ScenarioResult::Failed(panic_message(&*panic)),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no panic message").to_owned()
}

impl fmt::Display for ScenarioTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAME: usize = 28;
        write!(f, "\n{:NAME$}", "")?;
        for over in ParityTransport::ALL {
            write!(f, " {:<8}", over.name())?;
        }
        let mut notes = Vec::new();
        for (name, cells) in &self.rows {
            write!(f, "\n{name:NAME$}")?;
            for (over, cell) in ParityTransport::ALL.into_iter().zip(cells) {
                let word = match cell {
                    ScenarioResult::Pass => "pass",
                    ScenarioResult::Excused(_) => "–",
                    ScenarioResult::Failed(_) => "FAILED",
                };
                write!(f, " {word:<8}")?;
                if let ScenarioResult::Excused(reason) = cell {
                    notes.push(format!("– {name}, {}: {reason}", over.name()));
                }
                if let ScenarioResult::Failed(reason) = cell {
                    notes.push(format!("FAILED {name}, {}: {reason}", over.name()));
                }
            }
        }
        writeln!(f)?;
        notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}
