//! `abide serve`: the server, until it is told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use abide_server::config::{Config, ConfigError, Overrides};
use abide_server::logging::{self, UnknownLevel};
use abide_server::{ServeError, Server};
use anstream::eprintln;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit;
use crate::problem::with_sources;
use crate::say::{say, visible};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that everything is kept in; made if there is none [default: ./abide-data]
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA")]
    data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR", env = "ABIDE_LISTEN")]
    listen: Option<SocketAddr>,
    /// The configuration file; docs/reference/abide.toml has every key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen on an address that others can reach, though nobody is asked who they are
    #[arg(long)]
    insecure: bool,
}

/// Why there is no server, or why it did not stop in order.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Logging(#[from] UnknownLevel),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("the operating system refused what a server needs")]
    System(#[from] std::io::Error),
}

pub(crate) fn run(args: Args) -> ExitCode {
    match serve(args) {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("abide: {}", with_sources(&error));
            exit::UNUSABLE.into()
        }
    }
}

fn serve(args: Args) -> Result<u8, Failed> {
    let Args { data, listen, config, insecure } = args;
    let config = Config::load(config.as_deref(), Overrides { listen, data, insecure })?;
    logging::begin()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(until_stopped(&config))?;
    // What is left of the server goes with the runtime; the store is closed in order when the last of it has gone.
    drop(runtime);
    Ok(code)
}

async fn until_stopped(config: &Config) -> Result<u8, Failed> {
    let mut stop = StopSignals::listen()?;
    let server = Server::start(config).await?;
    let stopped_early = tokio::select! {
        () = server.ready() => false,
        () = stop.next() => true,
    };
    if !stopped_early {
        let (address, data) = (server.address(), config.store.data.display().to_string());
        say!("abide listening on http://{address} (data: {})", visible(&data));
        stop.next().await;
    }
    eprintln!("abide: stopping; a second signal stops at once");
    tokio::select! {
        () = server.stop() => Ok(exit::OK),
        () = stop.next() => Ok(exit::NOT_OK),
    }
}

/// The signals that mean: stop.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
