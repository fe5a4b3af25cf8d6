//! `abide-receiver`: a receiver for tests and rigs. It listens on loopback, with HTTP and gRPC on one port, and keeps
//! records and handlers' rows in an embedded store.
//!
//! | variable | |
//! |---|---|
//! | `PORT` | port on 127.0.0.1; 0 picks a free port, which the first line of output names |
//! | `ABIDE_RECEIVER_DATA` | the data folder |
//! | `ABIDE_RECEIVER_SYNC` | `every-commit` (default), or `operating-system`, which may lose results in a power cut |
//! | `ABIDE_RECEIVER_LOG` | a file that gets one line per attempt or probe; without it nothing is logged |
//!
//! `GET /effects` lists all entries of `ledger.add`, one JSON object per line. SIGTERM and SIGINT shut down gracefully.

mod activities;
mod attempt_log;
mod ledger_endpoint;

use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use abide_receiver::{Receiver, ReceiverClock, ServeOptions, serve};
use abide_store_embedded::{EmbeddedOptions as StoreOptions, EmbeddedStore, SyncMode};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The configuration from environment variables.
struct EnvConfig {
    port: u16,
    data: PathBuf,
    sync: SyncMode,
    log: Option<PathBuf>,
}

fn main() -> ExitCode {
    let subscriber = tracing_subscriber::fmt().compact().with_writer(std::io::stderr).finish();
    // This cannot fail: the process sets no other subscriber.
    drop(tracing::subscriber::set_global_default(subscriber));
    match read_env().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("abide-receiver: {error}");
            ExitCode::from(2)
        }
    }
}

fn read_env() -> Result<EnvConfig, Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let port = variable("PORT").ok_or("PORT is required: the port to listen on, or 0")?;
    let data = variable("ABIDE_RECEIVER_DATA").ok_or("ABIDE_RECEIVER_DATA is required: the data folder")?;
    let sync = match variable("ABIDE_RECEIVER_SYNC").as_deref() {
        None | Some("every-commit") => SyncMode::EveryCommit,
        Some("operating-system") => SyncMode::OperatingSystem,
        Some(other) => {
            return Err(format!(
                "invalid ABIDE_RECEIVER_SYNC {other:?}: use every-commit or operating-system"
            )
            .into());
        }
    };
    let port = port.parse().map_err(|_| format!("invalid PORT {port:?}"))?;
    Ok(EnvConfig { port, data: data.into(), sync, log: variable("ABIDE_RECEIVER_LOG").map(PathBuf::from) })
}

fn run(config: EnvConfig) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve_until_stopped(config))
}

async fn serve_until_stopped(config: EnvConfig) -> Result<(), Box<dyn Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)).await?;
    let address = listener.local_addr()?;
    let options = StoreOptions { sync: config.sync, ..StoreOptions::default() };
    let store = Arc::new(EmbeddedStore::open(&config.data, options)?);
    let builder = Receiver::builder(store, ReceiverClock::system());
    let handler_rows = builder.handler_rows()?;
    let receiver = activities::register_all(builder, &handler_rows).open().await?;
    let mut router = receiver.router();
    if let Some(log) = &config.log {
        router = attempt_log::with_attempt_log(router, log)?;
    }
    let router = router.merge(ledger_endpoint::router(handler_rows));
    let retention = tokio::spawn({
        let receiver = receiver.clone();
        async move { receiver.drive_retention().await }
    });
    let mut out = std::io::stdout();
    writeln!(out, "abide-receiver listening on http://{address} (data: {})", config.data.display())?;
    out.flush()?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let options = ServeOptions::default();
    let shutdown_timeout = options.shutdown_timeout;
    serve(listener, router, options, stop).await;
    // Handlers whose clients disconnected may still finish and record their results. A call
    // whose handler does not finish in time can run again after the next start.
    drop(tokio::time::timeout(shutdown_timeout, receiver.drain()).await);
    retention.abort();
    Ok(())
}
