//! The phases of a rig without kills: definitions are published, clients finish, runs end and are checked, the server
//! shuts down gracefully, and fsck checks its store.

use std::time::Duration;

use abide_testkit::http_client::HttpRequest;
use abide_testkit::process::ProgramProcess;
use rustix::process::Signal;

use super::client::RigResponse;
use super::definitions;
use super::ledger::BrokenPromise;
use super::load::ServerLoad;
use super::process::{STOP_MAX, ServerSetup};
use super::rig::ServerRig;
use super::verdict;

/// How long clients may take to finish.
const FINISH_MAX: Duration = Duration::from_secs(60);
/// How long the consequences of a run's end may take: the end of its children.
const AFTERMATH: Duration = Duration::from_millis(300);

/// Starts a server and waits until it is ready.
pub(crate) async fn begin(rig: &ServerRig, setup: &ServerSetup) -> Result<ProgramProcess, String> {
    let mut server = setup.start(None)?;
    let Some(address) = server.ready().await? else {
        let status = server.wait().await?;
        return Err(format!("the server does not start: {status}: {}", setup.log_tail()));
    };
    rig.set_up(Some(address));
    match rig.client().send(&HttpRequest::get("/readyz")).await {
        RigResponse::Received(200, _) => Ok(server),
        other => Err(format!("the server reported that it is ready, but /readyz returned {other:?}")),
    }
}

/// Publishes the definitions of the clients; a repeat changes nothing.
pub(crate) async fn publish(rig: &ServerRig) -> Result<(), String> {
    let mut client = rig.client();
    for definition in definitions::all(rig.receiver.address) {
        match client.send(&HttpRequest::post("/api/workflows", &definition)).await {
            RigResponse::Received(200 | 201, _) => {}
            other => return Err(format!("publishing a definition returned {other:?}")),
        }
    }
    Ok(())
}

/// Waits until the clients have finished and their runs have ended, and checks the runs.
pub(crate) async fn finish(rig: &ServerRig, load: ServerLoad) {
    if !load.finish(FINISH_MAX).await {
        let mut ledger = rig.ledger();
        let open: Vec<String> =
            ledger.runs.values().filter(|run| !run.done).map(|run| run.id.clone()).collect();
        ledger
            .findings
            .add(BrokenPromise::Wrong, format!("clients did not finish within {FINISH_MAX:?}: {open:?}"));
    }
    verdict::settle(rig).await;
}

/// Stops the server and runs fsck: every run has ended, so none may be live.
pub(crate) async fn close(
    rig: &ServerRig,
    setup: &ServerSetup,
    server: ProgramProcess,
) -> Result<(), String> {
    tokio::time::sleep(AFTERMATH).await;
    rig.set_up(None);
    if let Err(problem) = server.stop(Signal::TERM, STOP_MAX).await {
        rig.ledger().findings.add(BrokenPromise::Wrong, problem);
    }
    let fsck = setup.fsck().await?;
    let mut ledger = rig.ledger();
    // A run that did not end is a finding already.
    let none_live = fsck.summary.contains("(0 live, 0 parked)");
    if !none_live && ledger.findings.is_empty() {
        ledger
            .findings
            .add(BrokenPromise::Wrong, format!("every run has ended, but fsck reports {}", fsck.summary));
    }
    for finding in fsck.findings {
        ledger.findings.add(BrokenPromise::Wrong, format!("fsck: {finding}"));
    }
    Ok(())
}
