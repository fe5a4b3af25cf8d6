//! `abide dispatches`: lists calls of activities, and shows one with its history and its attempts.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{AttemptView, CallHistoryEvent, CallView, CallViewFilter};
use anstyle::{AnsiColor, Style};

use crate::errors::{CliError, ResourceKind};
use crate::output::{escape_control_chars, outln};
use crate::render;
use crate::server_args::{LimitArgs, ServerArgs};
use crate::styles::{BOLD, FAINT};
use crate::table::{TextCell, TextTable};
use crate::time_format;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List calls: those of a run, all open ones, or settled ones from the newest run on
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        extent: LimitArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Show a call with its history and its attempts
    Show {
        /// The run, as shown in the list: an instance id, a slash and a run number
        #[arg(value_name = "RUN")]
        run: String,
        /// The call's idempotency key, as shown in the list
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        remote: ServerArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Only calls of this run, open and settled: an instance id for its current run, or with a slash and a run number
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only calls in this state: PENDING, SENT, FAILED_RETRYABLE, ACKED or FAILED_FINAL
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only calls of this activity
    #[arg(long, value_name = "NAME")]
    activity: Option<String>,
    /// Only calls created at least this long ago, such as 5m or PT5M
    #[arg(long, value_name = "DURATION", value_parser = time_format::parse_duration)]
    older_than: Option<Duration>,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { filter, extent, remote } => {
            let filter = CallViewFilter {
                execution_id: filter.run.clone(),
                state: filter.state.clone(),
                activity: filter.activity.clone(),
                older_than: filter.older_than,
            };
            remote.run(async |client| remote.print_list(client.calls(&filter), extent, print).await)
        }
        Command::Show { run, key, remote } => remote.run_for_resource(ResourceKind::Call, async |client| {
            let (id, number) = parse_run(run)?;
            remote.print_response(client.call(id, number, key), print_one).await
        }),
    }
}

/// Splits a run into its instance id and its run number.
fn parse_run(text: &str) -> Result<(&str, u32), CliError> {
    let run = text.split_once('/').and_then(|(id, number)| Some((id, number.parse().ok()?)));
    let invalid = || {
        format!("{text:?} is not a run such as order-7/1; `abide dispatches list` shows the runs of calls")
    };
    run.ok_or_else(|| CliError::Usage(invalid()))
}

fn print(calls: &[CallView]) {
    let mut table = TextTable::new(["RUN", "STEP", "ACTIVITY", "STATE", "ATTEMPT", "AGE", "KEY", "ERROR"]);
    for call in calls {
        table.push_row([
            (&call.execution_id).into(),
            (&call.step).into(),
            (&call.activity).into(),
            TextCell::styled(&call.state, state_style(&call.state)),
            TextCell::count(u64::from(call.attempt)),
            time_format::format_age(call.created_at_utc).into(),
            (&call.idempotency_key).into(),
            describe_trouble(call).into(),
        ]);
    }
    table.print("calls");
}

fn print_one(call: &CallView) {
    let field =
        |name: &str, value: &str| outln!("  {FAINT}{name:<15}{FAINT:#} {}", escape_control_chars(value));
    let style = state_style(&call.state);
    outln!(
        "{BOLD}{}{BOLD:#} {style}{}{style:#}",
        escape_control_chars(&call.activity),
        escape_control_chars(&call.state)
    );
    field("run", &call.execution_id);
    field("step", &call.step);
    field("key", &call.idempotency_key);
    field("attempt", &call.attempt.to_string());
    field("transport", &call.transport);
    for (name, value) in [
        ("target", &call.target),
        ("terminal reason", &call.terminal_reason),
        ("last error", &call.last_error),
        ("last status", &call.last_status),
    ] {
        if let Some(value) = value {
            field(name, value);
        }
    }
    if let Some(held) = &call.held {
        field("held", &render::describe_hold(held));
    }
    for (name, time) in [
        ("created", Some(call.created_at_utc)),
        ("sent", call.sent_at_utc),
        ("next attempt", call.next_attempt_at_utc),
        ("deadline", call.deadline_at_utc),
        ("settled", call.settled_at_utc),
    ] {
        if let Some(time) = time {
            field(name, &time_format::format_timestamp(time));
        }
    }
    outln!("");
    call.attempts.iter().for_each(|event| {
        outln!("  {}  {}", time_format::format_timestamp(event.timestamp), describe_history_event(event))
    });
    outln!("");
    call.deliveries.iter().for_each(|attempt| {
        outln!("  {}  {}", time_format::format_timestamp(attempt.sent_at_utc), describe_attempt(attempt))
    });
}

/// The last error, after what holds the call back.
fn describe_trouble(call: &CallView) -> String {
    let error = call.last_error.as_deref().unwrap_or_default();
    match &call.held {
        Some(held) => format!("{}: {error}", render::describe_hold(held)),
        None => error.to_owned(),
    }
}

/// An attempt on one line.
fn describe_attempt(attempt: &AttemptView) -> String {
    let outcome = match attempt.outcome.as_str() {
        "underWay" => "in flight",
        "notSent" => "not sent",
        other => other,
    };
    let ended =
        attempt.ended_at_utc.map(|at| format!(", {}", time_format::format_timestamp(at))).unwrap_or_default();
    format!("attempt {} {}{ended}", attempt.attempt, escape_control_chars(outcome))
}

/// A history event on one line.
fn describe_history_event(event: &CallHistoryEvent) -> String {
    let late = if event.late { " (late, not applied)" } else { "" };
    let text = match (event.event_type.as_str(), &event.error) {
        ("TaskScheduled", _) => "scheduled".to_owned(),
        ("TaskCompleted", _) => "completed".to_owned(),
        (_, Some(error)) => {
            let retry = event
                .retry_at_utc
                .map(|at| format!("; next attempt at {}", time_format::format_timestamp(at)));
            let attempt = event.attempt.unwrap_or_default();
            let retry = retry.unwrap_or_default();
            format!(
                "attempt {attempt} failed: {}: {}{retry}",
                escape_control_chars(&error.code),
                escape_control_chars(&error.message)
            )
        }
        (other, None) => escape_control_chars(other),
    };
    format!("{text}{late}")
}

/// The style of a call's state.
fn state_style(state: &str) -> Style {
    match state {
        "ACKED" => AnsiColor::Green.on_default(),
        "FAILED_FINAL" => AnsiColor::Red.on_default(),
        "FAILED_RETRYABLE" => AnsiColor::Yellow.on_default(),
        "PENDING" | "SENT" => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
    }
}
