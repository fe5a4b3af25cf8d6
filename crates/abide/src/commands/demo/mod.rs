//! `abide demo`: a server with the onboarding example, a simulated fleet of devices that send it events, and a live
//! view.
//!
//! Only the devices are simulated. The embedded store, the HTTP API, the sessions and the workflow with its
//! compensation are the real ones. The demo may be killed at any moment and started again with the same folder. The
//! ledger of the fleet then shows if anything was lost or duplicated.

mod activities;
mod comparison;
mod fleet;
mod fleet_ledger;
mod view;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use abide_client::Client;
use abide_server::{Config, ServerBuilder};

use self::activities::DemoActivities;
use self::fleet::Fleet;
use self::fleet_ledger::FleetLedger;
use super::exit;
use crate::errors::error_chain;
use crate::output::{errln, escape_control_chars};

/// The definition of the example, from its folder.
const WORKFLOW: &str = include_str!("../../../../../examples/device-onboarding/workflow.json");
const WORKFLOW_ID: &str = "device-onboarding-workflow";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The data folder; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "./abide-demo")]
    data: PathBuf,
    /// The address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7071")]
    listen: SocketAddr,
    /// The number of devices that send events at the same time
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    devices: u16,
    /// Stop after this many seconds; without it, on Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run_demo(args)),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(true) => exit::OK.into(),
        Ok(false) => exit::FAILED.into(),
        Err(error) => {
            errln!("abide demo: {}", escape_control_chars(&error));
            exit::USAGE_ERROR.into()
        }
    }
}

/// Runs the demo until it is stopped. Returns false if anything was lost or duplicated.
async fn run_demo(args: &Args) -> Result<bool, String> {
    let mut config = Config::default();
    config.server.listen = args.listen;
    config.store.data = args.data.join("store");
    let ledger = Arc::new(FleetLedger::open(&args.data.join("fleet")).map_err(|error| error_chain(&error))?);
    let activities = DemoActivities::new(Arc::clone(&ledger));
    let builder = activities.register(ServerBuilder::new(config));
    let server = builder.start().await.map_err(|error| error_chain(&error))?;
    server.ready().await;
    let url = format!("http://{}", server.address());
    let client = Client::new(&url).map_err(|error| error_chain(&error))?;
    fleet::publish_example(&client).await.map_err(|error| error_chain(&error))?;
    view::report_earlier_run(&client, &ledger).await?;

    let fleet = Fleet::new(client.clone(), Arc::clone(&ledger), usize::from(args.devices));
    let time_limit = async {
        match args.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = fleet.run() => {}
        () = view::watch(&client, &ledger, &url, &args.data) => {}
        () = time_limit => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    let is_consistent = view::report_result(&client, &ledger, &url).await;
    server.stop().await;
    is_consistent
}
