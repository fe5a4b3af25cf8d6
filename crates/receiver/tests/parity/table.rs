//! Plays every scenario over every transport, and shows what came of it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::over::Over;

/// One scenario: a function that panics with the reason if it fails.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) play: fn(Over),
    /// Why it cannot be played over a transport, if it cannot.
    pub(crate) excused: fn(Over) -> Option<&'static str>,
}

#[derive(Clone, Debug)]
enum Cell {
    Pass,
    Excused(&'static str),
    Failed(String),
}

pub(crate) struct Table {
    rows: Vec<(&'static str, Vec<Cell>)>,
}

/// Cells that are played at once: they wait more than they work.
const AT_ONCE: usize = 6;

impl Table {
    pub(crate) fn play(scenarios: &[Scenario]) -> Self {
        let all: Vec<(Scenario, Over)> =
            scenarios.iter().flat_map(|scenario| Over::ALL.map(|over| (*scenario, over))).collect();
        let (next, cells) = (AtomicUsize::new(0), Mutex::new(vec![Cell::Pass; all.len()]));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some((place, (scenario, over))) = {
                        let place = next.fetch_add(1, Ordering::SeqCst);
                        all.get(place).map(|one| (place, *one))
                    } {
                        let cell = played(scenario, over);
                        cells.lock().unwrap()[place] = cell;
                    }
                });
            }
        });
        let cells = cells.into_inner().unwrap();
        let rows = scenarios.iter().zip(cells.chunks(Over::ALL.len()));
        Self { rows: rows.map(|(scenario, cells)| (scenario.name, cells.to_vec())).collect() }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.rows.iter().flat_map(|(_, cells)| cells).all(|cell| !matches!(cell, Cell::Failed(_)))
    }
}

fn played(scenario: Scenario, over: Over) -> Cell {
    if let Some(reason) = (scenario.excused)(over) {
        return Cell::Excused(reason);
    }
    match catch_unwind(AssertUnwindSafe(|| (scenario.play)(over))) {
        Ok(()) => Cell::Pass,
        Err(panic) => Cell::Failed(said(&*panic)),
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAME: usize = 28;
        write!(f, "\n{:NAME$}", "")?;
        for over in Over::ALL {
            write!(f, " {:<8}", over.name())?;
        }
        let mut notes = Vec::new();
        for (name, cells) in &self.rows {
            write!(f, "\n{name:NAME$}")?;
            for (over, cell) in Over::ALL.into_iter().zip(cells) {
                let word = match cell {
                    Cell::Pass => "pass",
                    Cell::Excused(_) => "–",
                    Cell::Failed(_) => "FAILED",
                };
                write!(f, " {word:<8}")?;
                if let Cell::Excused(why) = cell {
                    notes.push(format!("– {name}, {}: {why}", over.name()));
                }
                if let Cell::Failed(why) = cell {
                    notes.push(format!("FAILED {name}, {}: {why}", over.name()));
                }
            }
        }
        writeln!(f)?;
        notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}
