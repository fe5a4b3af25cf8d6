//! `abide demo`: a server with the onboarding example, a fleet of devices that send it events, and a view of what happens.
//!
//! Everything is real: the embedded store, the HTTP interface, the sessions, the workflow with its compensation. Only the devices are made up.
//! It may be killed at any moment and started again with the same folder: the ledger of the fleet then says whether anything was lost or doubled.

mod comparison;
mod fleet;
mod ledger;
mod view;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use abide_client::Client;
use abide_server::{Builder, Config};
use anstream::eprintln;

use self::fleet::Fleet;
use self::ledger::Ledger;
use self::work::Works;
use super::exit;
use crate::problem::with_sources;
use crate::say::visible;

/// The example's definition, as its folder has it.
const WORKFLOW: &str = include_str!("../../../../../examples/device-onboarding/workflow.json");
const WORKFLOW_ID: &str = "device-onboarding-workflow";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that everything is kept in; made if there is none
    #[arg(long, value_name = "DIR", default_value = "./abide-demo")]
    data: PathBuf,
    /// The address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7071")]
    listen: SocketAddr,
    /// Devices that are on their way at the same time
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    devices: u16,
    /// Stop by itself after so many seconds; without it, with Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let played = match runtime {
        Ok(runtime) => runtime.block_on(play(args)),
        Err(error) => Err(error.to_string()),
    };
    match played {
        Ok(true) => exit::OK.into(),
        Ok(false) => exit::NOT_OK.into(),
        Err(error) => {
            eprintln!("abide demo: {}", visible(&error));
            exit::UNUSABLE.into()
        }
    }
}

/// Plays until it is stopped. False if something was lost, or is there twice.
async fn play(args: &Args) -> Result<bool, String> {
    let mut config = Config::default();
    config.server.listen = args.listen;
    config.store.data = args.data.join("store");
    let ledger = Arc::new(Ledger::open(&args.data.join("fleet")).map_err(|error| with_sources(&error))?);
    let works = Works::new(Arc::clone(&ledger));
    let builder = works.register(Builder::new(config));
    let server = builder.start().await.map_err(|error| with_sources(&error))?;
    server.ready().await;
    let url = format!("http://{}", server.address());
    let client = Client::new(&url).map_err(|error| with_sources(&error))?;
    fleet::prepare(&client).await.map_err(|error| with_sources(&error))?;
    view::first_word(&client, &ledger).await?;

    let fleet = Fleet::new(client.clone(), Arc::clone(&ledger), usize::from(args.devices));
    let until = async {
        match args.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = fleet.run() => {}
        () = view::watch(&client, &ledger, &url, &args.data) => {}
        () = until => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    let verdict = view::last_word(&client, &ledger, &url).await;
    server.stop().await;
    verdict
}
