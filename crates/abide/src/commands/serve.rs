//! `abide serve`: runs the server until a signal stops it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use abide_server::config::{Config, ConfigError, Overrides};
use abide_server::logging::{self, InvalidLogLevel};
use abide_server::{ServeError, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit;
use crate::errors::error_chain;
use crate::output::{errln, escape_control_chars, outln};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The data folder; created if it does not exist [default: ./abide-data]
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA")]
    data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR", env = "ABIDE_LISTEN")]
    listen: Option<SocketAddr>,
    /// The configuration file; docs/reference/abide.toml lists every key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Allow an address that other machines can reach, although there is no authentication
    #[arg(long)]
    insecure: bool,
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
enum ServeCommandError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Logging(#[from] InvalidLogLevel),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("operating system error")]
    System(#[from] std::io::Error),
}

pub(crate) fn run(args: Args) -> ExitCode {
    match serve(args) {
        Ok(code) => code.into(),
        Err(error) => {
            errln!("abide: {}", error_chain(&error));
            exit::USAGE_ERROR.into()
        }
    }
}

fn serve(args: Args) -> Result<u8, ServeCommandError> {
    let Args { data, listen, config, insecure } = args;
    let config = Config::load(config.as_deref(), Overrides { listen, data, insecure })?;
    logging::init()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(serve_until_stopped(&config))?;
    // The remaining tasks of the server end with the runtime. The store is closed gracefully when the last one has
    // ended.
    drop(runtime);
    Ok(code)
}

async fn serve_until_stopped(config: &Config) -> Result<u8, ServeCommandError> {
    let mut stop = StopSignals::listen()?;
    let server = Server::start(config).await?;
    let stopped_early = tokio::select! {
        () = server.ready() => false,
        () = stop.next() => true,
    };
    if !stopped_early {
        let address = server.address();
        let data = config.store.data.display().to_string();
        outln!("abide listening on http://{address} (data: {})", escape_control_chars(&data));
        stop.next().await;
    }
    errln!("abide: stopping; a second signal stops at once");
    tokio::select! {
        () = server.stop() => Ok(exit::OK),
        () = stop.next() => Ok(exit::FAILED),
    }
}

/// SIGTERM and SIGINT.
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
