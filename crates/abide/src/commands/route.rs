//! `abide route`: what events of a type are for.

use std::process::ExitCode;

use abide_client::{Action, Route};
use clap::ValueEnum;
use serde_json::Value;

use crate::problem::Sought;
use crate::remote::{Extent, Remote};
use crate::say::{say, visible};
use crate::table::Table;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List routes
    List {
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        remote: Remote,
    },
    /// Set the route of a type of event
    Put {
        /// The type of event
        #[arg(value_name = "EVENT_TYPE")]
        event_type: String,
        /// The type of the entity that holds the events
        #[arg(long, value_name = "TYPE")]
        entity_type: String,
        /// What is done besides recording them
        #[arg(long, value_enum, default_value_t = Doing::StartOrRaise)]
        action: Doing,
        /// The definition whose runs they start or reach
        #[arg(long, value_name = "WORKFLOW")]
        workflow: Option<String>,
        /// The range of its versions, such as ^1.2
        #[arg(long, value_name = "RANGE")]
        version: Option<String>,
        /// The name they are raised under; without it their type
        #[arg(long, value_name = "NAME")]
        event_name: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Remove the route of a type of event
    Delete {
        /// The type of event
        #[arg(value_name = "EVENT_TYPE")]
        event_type: String,
        #[command(flatten)]
        remote: Remote,
    },
}

/// What is done with an event besides recording it.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Doing {
    /// Raise it to the session's live run; without one, start a run
    #[value(name = "startOrRaise")]
    StartOrRaise,
    /// Start a run, if the session has no live one
    Start,
    /// Raise it to the session's live run, if there is one
    Raise,
    /// Nothing
    Record,
}

impl From<Doing> for Action {
    fn from(doing: Doing) -> Self {
        match doing {
            Doing::StartOrRaise => Self::StartOrRaise,
            Doing::Start => Self::Start,
            Doing::Raise => Self::Raise,
            Doing::Record => Self::Record,
        }
    }
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { extent, remote } => {
            remote.run(async |client| remote.list(client.routes(), extent, print).await)
        }
        Command::Put { event_type, entity_type, action, workflow, version, event_name, remote } => {
            let route = Route {
                event_type: event_type.clone(),
                entity_type: entity_type.clone(),
                workflow: workflow.clone(),
                version: version.clone(),
                action: (*action).into(),
                event_name: event_name.clone(),
            };
            remote.run_on(Sought::Workflow, async |client| {
                let told = |_: &Route| say!("{} is routed", visible(event_type));
                remote.answer(client.put_route(event_type, &route), told).await
            })
        }
        Command::Delete { event_type, remote } => remote.run_on(Sought::Route, async |client| {
            let told = |_: &Value| say!("{} is not routed any more", visible(event_type));
            remote.answer(client.delete_route(event_type), told).await
        }),
    }
}

fn print(routes: &[Route]) {
    let mut table = Table::new(["EVENT TYPE", "ENTITY TYPE", "ACTION", "WORKFLOW", "VERSION", "RAISED AS"]);
    for route in routes {
        let or_dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        table.row([
            (&route.event_type).into(),
            (&route.entity_type).into(),
            action(route.action).into(),
            or_dash(&route.workflow).into(),
            or_dash(&route.version).into(),
            or_dash(&route.event_name).into(),
        ]);
    }
    table.print("routes");
}

fn action(action: Action) -> &'static str {
    match action {
        Action::StartOrRaise => "startOrRaise",
        Action::Start => "start",
        Action::Raise => "raise",
        Action::Record => "record",
        Action::Unknown => "?",
    }
}
