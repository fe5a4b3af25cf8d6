//! The figures of runs: their names, median and spread over runs, as tables for people and JSON for machines. It does
//! not know how figures are measured.

use serde_json::{Map, Value, json};

/// The measured figures, in the order of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Figure {
    WorkflowsPerSecond,
    StepsPerSecond,
    P50Ms,
    P99Ms,
    StartSeconds,
    FinishSeconds,
    WaitingGrownMib,
    CpuMs,
    CpuServerMs,
    StepServerUs,
    StepServiceUs,
    CallsPerStep,
    PeakMib,
    PeakServerMib,
    ReadySeconds,
    SyncsPerSecond,
    SyncsPerWorkflow,
    CommitsPerSecond,
    CommitsPerWorkflow,
    RowsPerWorkflow,
    CallsRunning,
    CallsWaiting,
    OthersPercent,
    StolenPercent,
    Errors,
}

impl Figure {
    const ALL: [Self; 25] = [
        Self::WorkflowsPerSecond,
        Self::StepsPerSecond,
        Self::P50Ms,
        Self::P99Ms,
        Self::StartSeconds,
        Self::FinishSeconds,
        Self::WaitingGrownMib,
        Self::CpuMs,
        Self::CpuServerMs,
        Self::StepServerUs,
        Self::StepServiceUs,
        Self::CallsPerStep,
        Self::PeakMib,
        Self::PeakServerMib,
        Self::ReadySeconds,
        Self::SyncsPerSecond,
        Self::SyncsPerWorkflow,
        Self::CommitsPerSecond,
        Self::CommitsPerWorkflow,
        Self::RowsPerWorkflow,
        Self::CallsRunning,
        Self::CallsWaiting,
        Self::OthersPercent,
        Self::StolenPercent,
        Self::Errors,
    ];

    /// The name in JSON, the name in tables, and the number of decimals in tables.
    fn names(self) -> (&'static str, &'static str, usize) {
        match self {
            Self::WorkflowsPerSecond => ("workflowsPerSecond", "workflows/s", 0),
            Self::StepsPerSecond => ("stepsPerSecond", "steps/s", 0),
            Self::P50Ms => ("p50Ms", "p50 ms", 2),
            Self::P99Ms => ("p99Ms", "p99 ms", 2),
            Self::StartSeconds => ("startSeconds", "start all, s", 2),
            Self::FinishSeconds => ("finishSeconds", "raise all until all have ended, s", 2),
            Self::WaitingGrownMib => ("waitingGrownMib", "RSS growth while waiting, MiB", 0),
            Self::CpuMs => ("cpuMsPerWorkflow", "CPU ms per workflow", 3),
            Self::CpuServerMs => ("cpuMsPerWorkflowServer", "  of which the server", 3),
            Self::StepServerUs => ("cpuUsPerStepServer", "CPU µs per step, server", 1),
            Self::StepServiceUs => ("cpuUsPerStepService", "CPU µs per step, called process", 1),
            Self::CallsPerStep => ("roundTripsPerStep", "round trips per step", 3),
            Self::PeakMib => ("peakRssMib", "peak RSS, MiB", 0),
            Self::PeakServerMib => ("peakRssMibServer", "  of which the server", 0),
            Self::ReadySeconds => ("readySeconds", "from process start to the first workflow, s", 2),
            Self::SyncsPerSecond => ("fdatasyncPerSecond", "fdatasync/s (separate run, strace)", 0),
            Self::SyncsPerWorkflow => ("fdatasyncPerWorkflow", "fdatasync per workflow (same run)", 3),
            Self::CommitsPerSecond => ("commitsPerSecond", "commits/s", 0),
            Self::CommitsPerWorkflow => ("commitsPerWorkflow", "commits per workflow", 2),
            Self::RowsPerWorkflow => ("rowsPerWorkflow", "rows per workflow", 2),
            Self::CallsRunning => ("callsRunning", "calls in flight at the end", 0),
            Self::CallsWaiting => ("callsWaiting", "calls waiting at the end", 0),
            Self::OthersPercent => ("othersPercent", "CPU used by other processes, % of a core", 0),
            Self::StolenPercent => ("stolenPercent", "CPU stolen by the host, % of a core", 1),
            Self::Errors => ("errors", "errors", 0),
        }
    }
}

#[derive(Default)]
pub(crate) struct Figures(Vec<(Figure, f64)>);

impl Figures {
    pub(crate) fn set(&mut self, figure: Figure, value: f64) {
        self.0.push((figure, value));
    }
}

/// All runs of one workload on one system.
#[derive(Default)]
pub(crate) struct Runs(Vec<Figures>);

/// A figure over all runs.
struct Spread {
    median: f64,
    lowest: f64,
    highest: f64,
    runs: Vec<f64>,
}

impl Runs {
    pub(crate) fn push(&mut self, figures: Figures) {
        self.0.push(figures);
    }

    /// The median of a figure.
    pub(crate) fn median(&self, figure: Figure) -> Option<f64> {
        self.spread(figure).map(|spread| spread.median)
    }

    fn spread(&self, figure: Figure) -> Option<Spread> {
        let all = self.0.iter().flat_map(|run| &run.0).filter(|(its, _)| *its == figure);
        let runs: Vec<f64> = all.map(|(_, value)| *value).collect();
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let lowest = *sorted.first()?;
        let highest = *sorted.last()?;
        let low = sorted.get((sorted.len() - 1) / 2)?;
        let high = sorted.get(sorted.len() / 2)?;
        Some(Spread { median: f64::midpoint(*low, *high), lowest, highest, runs })
    }

    /// Every measured figure: its median, its spread, and the runs in order.
    pub(crate) fn json(&self) -> Value {
        let mut all = Map::new();
        for figure in Figure::ALL {
            if let Some(Spread { median, lowest, highest, runs }) = self.spread(figure) {
                let value = json!({"median": median, "min": lowest, "max": highest, "runs": runs});
                all.insert(figure.names().0.to_owned(), value);
            }
        }
        Value::Object(all)
    }
}

/// A table with a row for each figure and a column for each system: the median, and in brackets the lowest and the
/// highest run.
pub(crate) fn table(columns: &[(&str, &Runs)]) -> String {
    let mut rows = vec![vec![String::new()]];
    for (label, _) in columns {
        rows.iter_mut().for_each(|row| row.push((*label).to_owned()));
    }
    for figure in Figure::ALL {
        let cells: Vec<Option<Spread>> = columns.iter().map(|(_, runs)| runs.spread(figure)).collect();
        if cells.iter().any(Option::is_some) {
            let (_, name, digits) = figure.names();
            let mut row = vec![name.to_owned()];
            row.extend(
                cells.iter().map(|cell| cell.as_ref().map_or("–".to_owned(), |cell| cell.text(digits))),
            );
            rows.push(row);
        }
    }
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

impl Spread {
    fn text(&self, digits: usize) -> String {
        let Self { median, lowest, highest, runs } = self;
        match runs.len() {
            1 => format!("{median:.digits$}"),
            _ => format!("{median:.digits$} ({lowest:.digits$}–{highest:.digits$})"),
        }
    }
}
