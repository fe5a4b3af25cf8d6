//! What happens while nobody disturbs the server: definitions are published, clients finish, runs end and are checked, the server is
//! stopped in order, and what it leaves is proved.

use std::time::Duration;

use super::client::{Answer, Ask};
use super::definitions;
use super::ledger::Broken;
use super::load::Load;
use super::process::{Server, Setup};
use super::verdict;
use super::world::World;

/// How long clients may take to finish.
const FINISH_MAX: Duration = Duration::from_secs(60);
/// How long what follows a run's end may take: the end of its children.
const AFTERMATH: Duration = Duration::from_millis(300);

/// Starts a server and waits until it is ready.
pub(crate) async fn begin(world: &World, setup: &Setup) -> Result<Server, String> {
    let mut server = setup.start(None)?;
    let Some(address) = server.ready().await? else {
        let status = server.ended().await?;
        return Err(format!("the server does not start: {status}: {}", setup.last_words()));
    };
    world.set_up(Some(address));
    match world.client().ask(Ask::get("/readyz")).await {
        Answer::Told(200, _) => Ok(server),
        other => Err(format!("the server says that it is ready, and /readyz is answered by {other:?}")),
    }
}

/// Publishes what the clients run; again changes nothing.
pub(crate) async fn publish(world: &World) -> Result<(), String> {
    let mut client = world.client();
    for definition in definitions::all(world.receiver.address) {
        match client.ask(Ask::post("/api/workflows", &definition)).await {
            Answer::Told(200 | 201, _) => {}
            other => return Err(format!("a definition was answered by {other:?}")),
        }
    }
    Ok(())
}

/// Lets the clients finish and their runs end, and checks them.
pub(crate) async fn finish(world: &World, load: Load) {
    if !load.end(FINISH_MAX).await {
        let mut ledger = world.ledger();
        let open: Vec<String> =
            ledger.runs.values().filter(|run| !run.done).map(|run| run.id.clone()).collect();
        ledger.find(Broken::Wrong, format!("clients were not answered within {FINISH_MAX:?}: {open:?}"));
    }
    verdict::settle(world).await;
}

/// Stops the server and proves what it leaves: everything has ended, so nothing may live.
pub(crate) async fn close(world: &World, setup: &Setup, server: Server) -> Result<(), String> {
    tokio::time::sleep(AFTERMATH).await;
    world.set_up(None);
    if let Err(problem) = server.stop().await {
        world.ledger().find(Broken::Wrong, problem);
    }
    let proved = setup.fsck().await?;
    let mut ledger = world.ledger();
    // What did not end has been found already.
    let nobody_lives = proved.summary.contains("(0 live, 0 parked)");
    if !nobody_lives && ledger.findings.is_empty() {
        ledger.find(Broken::Wrong, format!("every run has ended, and fsck says {}", proved.summary));
    }
    for finding in proved.findings {
        ledger.find(Broken::Wrong, format!("fsck: {finding}"));
    }
    Ok(())
}
