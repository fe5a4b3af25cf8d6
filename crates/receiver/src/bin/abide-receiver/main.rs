//! `abide-receiver`: a receiver for tests and rigs, on loopback, HTTP and gRPC on one port, records and effects in an embedded store.
//!
//! | variable | |
//! |---|---|
//! | `PORT` | where to listen on 127.0.0.1; 0 takes any, and the first line says which |
//! | `ABIDE_RECEIVER_DATA` | the folder that everything is kept in |
//! | `ABIDE_RECEIVER_SYNC` | `every-commit`, or `operating-system`, which a power cut makes lose answers |
//! | `ABIDE_RECEIVER_LOG` | a file that gets a line for every delivery that came; none without it |
//!
//! `GET /effects` has every effect that `ledger.add` ever had, one JSON object a line. SIGTERM stops in order.

mod activities;
mod deliveries;
mod effects;

use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use abide_receiver::{Clock, Receiver, ServeOptions, serve};
use abide_store_embedded::{EmbeddedStore, Options as StoreOptions, SyncMode};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How it is run.
struct Setting {
    port: u16,
    data: PathBuf,
    sync: SyncMode,
    log: Option<PathBuf>,
}

fn main() -> ExitCode {
    let subscriber = tracing_subscriber::fmt().compact().with_writer(std::io::stderr).finish();
    // There is no other subscriber in this process.
    drop(tracing::subscriber::set_global_default(subscriber));
    match setting().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("abide-receiver: {error}");
            ExitCode::from(2)
        }
    }
}

fn setting() -> Result<Setting, Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let port = variable("PORT").ok_or("PORT must say where to listen")?;
    let data = variable("ABIDE_RECEIVER_DATA").ok_or("ABIDE_RECEIVER_DATA must name a folder")?;
    let sync = match variable("ABIDE_RECEIVER_SYNC").as_deref() {
        None | Some("every-commit") => SyncMode::EveryCommit,
        Some("operating-system") => SyncMode::OperatingSystem,
        Some(other) => return Err(format!("ABIDE_RECEIVER_SYNC is {other:?}").into()),
    };
    let port = port.parse().map_err(|_| format!("PORT is {port:?}"))?;
    Ok(Setting { port, data: data.into(), sync, log: variable("ABIDE_RECEIVER_LOG").map(PathBuf::from) })
}

fn run(setting: Setting) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(until_stopped(setting))
}

async fn until_stopped(setting: Setting) -> Result<(), Box<dyn Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, setting.port)).await?;
    let address = listener.local_addr()?;
    let options = StoreOptions { sync: setting.sync, ..StoreOptions::default() };
    let store = Arc::new(EmbeddedStore::open(&setting.data, options)?);
    let builder = Receiver::builder(store, Clock::system());
    let effects = builder.effects()?;
    let receiver = activities::all(builder, &effects).open().await?;
    let mut router = receiver.router();
    if let Some(log) = &setting.log {
        router = deliveries::logged(router, log)?;
    }
    let router = router.merge(effects::router(effects));
    let sweeping = tokio::spawn({
        let receiver = receiver.clone();
        async move { receiver.keep_swept().await }
    });
    let mut out = std::io::stdout();
    writeln!(out, "abide-receiver listening on http://{address} (data: {})", setting.data.display())?;
    out.flush()?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let options = ServeOptions::default();
    let grace = options.grace;
    serve(listener, router, options, stop).await;
    // What callers have stopped waiting for is recorded all the same, if it ends in time; if not, the next start runs it again.
    drop(tokio::time::timeout(grace, receiver.drain()).await);
    sweeping.abort();
    Ok(())
}
