//! `abide route`: lists, sets and removes event routes.

use std::process::ExitCode;

use abide_client::{EventRoute, RouteAction};
use clap::ValueEnum;
use serde_json::Value;

use crate::errors::ResourceKind;
use crate::output::{escape_control_chars, outln};
use crate::server_args::{LimitArgs, ServerArgs};
use crate::table::TextTable;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List event routes
    List {
        #[command(flatten)]
        extent: LimitArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Set the route of an event type
    Put {
        /// The event type
        #[arg(value_name = "EVENT_TYPE")]
        event_type: String,
        /// The type of the entity that records the events
        #[arg(long, value_name = "TYPE")]
        entity_type: String,
        /// The action on an event, in addition to recording it
        #[arg(long, value_enum, default_value_t = ActionArg::StartOrRaise)]
        action: ActionArg,
        /// The definition whose runs the events start or reach
        #[arg(long, value_name = "WORKFLOW")]
        workflow: Option<String>,
        /// A version range for runs that are started, such as ^1.2; without it the default version
        #[arg(long, value_name = "RANGE")]
        version: Option<String>,
        /// The name the events are raised under; without it their type
        #[arg(long, value_name = "NAME")]
        event_name: Option<String>,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Remove the route of an event type
    Delete {
        /// The event type
        #[arg(value_name = "EVENT_TYPE")]
        event_type: String,
        #[command(flatten)]
        remote: ServerArgs,
    },
}

/// The action on an event, in addition to recording it.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ActionArg {
    /// Raise the event in the session's live run; without one, start a run
    #[value(name = "startOrRaise")]
    StartOrRaise,
    /// Start a run if the session has no live one
    Start,
    /// Raise the event in the session's live run, if there is one
    Raise,
    /// Only record the event
    Record,
}

impl From<ActionArg> for RouteAction {
    fn from(action: ActionArg) -> Self {
        match action {
            ActionArg::StartOrRaise => Self::StartOrRaise,
            ActionArg::Start => Self::Start,
            ActionArg::Raise => Self::Raise,
            ActionArg::Record => Self::Record,
        }
    }
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { extent, remote } => {
            remote.run(async |client| remote.print_list(client.event_routes(), extent, print).await)
        }
        Command::Put { event_type, entity_type, action, workflow, version, event_name, remote } => {
            let route = EventRoute {
                event_type: event_type.clone(),
                entity_type: entity_type.clone(),
                workflow: workflow.clone(),
                version: version.clone(),
                action: (*action).into(),
                event_name: event_name.clone(),
            };
            remote.run_for_resource(ResourceKind::Workflow, async |client| {
                let print = |_: &EventRoute| outln!("set the route of {}", escape_control_chars(event_type));
                remote.print_response(client.put_event_route(event_type, &route), print).await
            })
        }
        Command::Delete { event_type, remote } => {
            remote.run_for_resource(ResourceKind::EventRoute, async |client| {
                let print = |_: &Value| outln!("removed the route of {}", escape_control_chars(event_type));
                remote.print_response(client.delete_event_route(event_type), print).await
            })
        }
    }
}

fn print(routes: &[EventRoute]) {
    let mut table =
        TextTable::new(["EVENT TYPE", "ENTITY TYPE", "ACTION", "WORKFLOW", "VERSION", "RAISED AS"]);
    for route in routes {
        let or_dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        table.push_row([
            (&route.event_type).into(),
            (&route.entity_type).into(),
            action_name(route.action).into(),
            or_dash(&route.workflow).into(),
            or_dash(&route.version).into(),
            or_dash(&route.event_name).into(),
        ]);
    }
    table.print("routes");
}

fn action_name(action: RouteAction) -> &'static str {
    match action {
        RouteAction::StartOrRaise => "startOrRaise",
        RouteAction::Start => "start",
        RouteAction::Raise => "raise",
        RouteAction::Record => "record",
        RouteAction::Unknown => "?",
    }
}
