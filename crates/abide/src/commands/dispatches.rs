//! `abide dispatches`: every call of an activity, where it stands, and what became of each delivery.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{Dispatch, DispatchAttempt, DispatchDelivery, DispatchFilter};
use anstyle::{AnsiColor, Style};

use crate::problem::{Problem, Sought};
use crate::remote::{Extent, Remote};
use crate::say::{say, visible};
use crate::styles::{BOLD, FAINT};
use crate::table::{Cell, Table};
use crate::times;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List calls: of a run, all that are open, or settled ones from the newest run on
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show a call with each delivery that its history tells of
    Show {
        /// The run, as the list has it: an instance, a slash and the number of the run
        #[arg(value_name = "RUN")]
        run: String,
        /// The call's idempotency key, as the list has it
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Only of this run, open or settled: an instance for its current one, or with a slash and the number of a run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only in this state: PENDING, SENT, FAILED_RETRYABLE, ACKED or FAILED_FINAL
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only of this activity
    #[arg(long, value_name = "NAME")]
    activity: Option<String>,
    /// Only those that were promised at least so long ago, such as 5m or PT5M
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    older_than: Option<Duration>,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { filter, extent, remote } => {
            let filter = DispatchFilter {
                execution_id: filter.run.clone(),
                state: filter.state.clone(),
                activity: filter.activity.clone(),
                older_than: filter.older_than,
            };
            remote.run(async |client| remote.list(client.dispatches(&filter), extent, print).await)
        }
        Command::Show { run, key, remote } => remote.run_on(Sought::Dispatch, async |client| {
            let (id, number) = read_run(run)?;
            remote.answer(client.dispatch(id, number, key), print_one).await
        }),
    }
}

/// An instance and the number of a run.
fn read_run(text: &str) -> Result<(&str, u32), Problem> {
    let run = text.split_once('/').and_then(|(id, number)| Some((id, number.parse().ok()?)));
    let wrong = || format!("{text:?} is not a run such as order-7/1, as `abide dispatches list` has them");
    run.ok_or_else(|| Problem::Usage(wrong()))
}

fn print(calls: &[Dispatch]) {
    let mut table = Table::new(["RUN", "STEP", "ACTIVITY", "STATE", "ATTEMPT", "AGE", "KEY", "ERROR"]);
    for call in calls {
        table.row([
            (&call.execution_id).into(),
            (&call.step).into(),
            (&call.activity).into(),
            Cell::styled(&call.state, style(&call.state)),
            Cell::count(u64::from(call.attempt)),
            times::ago(call.created_at_utc).into(),
            (&call.idempotency_key).into(),
            call.last_error.as_deref().unwrap_or_default().into(),
        ]);
    }
    table.print("calls");
}

fn print_one(call: &Dispatch) {
    let field = |name: &str, value: &str| say!("  {FAINT}{name:<14}{FAINT:#} {}", visible(value));
    let style = style(&call.state);
    say!("{BOLD}{}{BOLD:#} {style}{}{style:#}", visible(&call.activity), visible(&call.state));
    field("run", &call.execution_id);
    field("step", &call.step);
    field("key", &call.idempotency_key);
    field("attempt", &call.attempt.to_string());
    field("sent by", &call.transport);
    for (name, value) in [
        ("target", &call.target),
        ("given up", &call.terminal_reason),
        ("last error", &call.last_error),
        ("last status", &call.last_status),
    ] {
        if let Some(value) = value {
            field(name, value);
        }
    }
    for (name, moment) in [
        ("promised", Some(call.created_at_utc)),
        ("last sent", call.sent_at_utc),
        ("sent again", call.next_attempt_at_utc),
        ("given up at", call.deadline_at_utc),
        ("settled", call.settled_at_utc),
    ] {
        if let Some(moment) = moment {
            field(name, &times::stamp(moment));
        }
    }
    say!("");
    call.attempts.iter().for_each(|told| say!("  {}  {}", times::stamp(told.timestamp), in_words(told)));
    say!("");
    call.deliveries
        .iter()
        .for_each(|delivery| say!("  {}  {}", times::stamp(delivery.sent_at_utc), told(delivery)));
}

/// A delivery, in one line.
fn told(delivery: &DispatchDelivery) -> String {
    let outcome = match delivery.outcome.as_str() {
        "underWay" => "is out",
        "notSent" => "never left",
        "orphaned" => "was lost with its sender",
        other => other,
    };
    let ended = delivery.ended_at_utc.map(|at| format!(", {}", times::stamp(at))).unwrap_or_default();
    format!("delivery {} {}{ended}", delivery.attempt, visible(outcome))
}

/// What happened, in one line.
fn in_words(told: &DispatchAttempt) -> String {
    let late = if told.late { ", when nobody waited for it any more" } else { "" };
    let what = match (told.event_type.as_str(), &told.error) {
        ("TaskScheduled", _) => "asked for".to_owned(),
        ("TaskCompleted", _) => "answered".to_owned(),
        (_, Some(error)) => {
            let again = told.retry_at_utc.map(|at| format!("; again at {}", times::stamp(at)));
            let (attempt, again) = (told.attempt.unwrap_or_default(), again.unwrap_or_default());
            format!("attempt {attempt} failed: {}: {}{again}", visible(&error.code), visible(&error.message))
        }
        (other, None) => visible(other),
    };
    format!("{what}{late}")
}

/// How a call's state looks.
fn style(state: &str) -> Style {
    match state {
        "ACKED" => AnsiColor::Green.on_default(),
        "FAILED_FINAL" => AnsiColor::Red.on_default(),
        "FAILED_RETRYABLE" => AnsiColor::Yellow.on_default(),
        "PENDING" | "SENT" => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
    }
}
