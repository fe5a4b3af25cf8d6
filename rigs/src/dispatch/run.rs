//! One run of the rig: everything is started, killed for as many cycles as are asked for, let come to its end, and held against each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::cycles;
use super::deliveries;
use super::fleet::Fleet;
pub(crate) use super::fleet::Programs;
use super::flows;
use super::journal;
use super::ledger::{Broken, World, now};
use super::lines::Who;
use super::load::Load;
use super::orphans;
use super::snapshots::Snapshots;
use super::stores;
use super::verdict::{Account, Figures, compare};
use crate::findings;
use crate::server::client::{Answer, Ask};

/// Cycles within which somebody has looked for orphans and read the store of a killed receiver.
const LOOKING_MIN: u32 = 20;
/// How long everything may take to come to its end once nobody is killed any more.
const FINISH_MAX: Duration = Duration::from_secs(120);
/// Findings that are told in full.
const FINDINGS_MAX: usize = 100;
/// Findings of the control that are told.
const CONTROL_FINDINGS: usize = 5;

pub(crate) fn run(cycles: u32, folder: &Path, programs: Programs) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let world = World::default();
        let is_control = programs.forget;
        let mut fleet = Fleet::new(folder, programs)?;
        let mut snapshots = Snapshots::new(folder, &world);
        let begun = now();
        let outcome = whole(cycles, &mut fleet, &world, &mut snapshots).await;
        report(&fleet, &world, cycles, begun.elapsed(), is_control);
        if let Ok(figures) = &outcome {
            report_figures(figures, &world, if is_control { CONTROL_FINDINGS } else { FINDINGS_MAX });
        }
        let figures = outcome?;
        let ledger = world.ledger();
        match (is_control, ledger.findings.len()) {
            (true, _) if ledger.count(Broken::Doubled) == 0 => {
                Err("the control doubled nothing, so the rig proves nothing".to_owned())
            }
            (true, _) => Ok(()),
            (false, 0) if figures.redeliveries == 0 => {
                Err("nothing was delivered twice, so nothing was tried".to_owned())
            }
            (false, 0) => Ok(()),
            (false, findings) => Err(format!("{findings} findings")),
        }
    })
}

async fn whole(
    cycles: u32,
    fleet: &mut Fleet,
    world: &World,
    snapshots: &mut Snapshots,
) -> Result<Figures, String> {
    fleet.start(&Who::ALL, None, world).await?;
    let mut client = world.client();
    for definition in flows::definitions() {
        match client.ask(Ask::post("/api/workflows", &definition)).await {
            Answer::Told(200 | 201, _) => {}
            other => return Err(format!("a definition was answered by {other:?}")),
        }
    }
    let load = Load::begin(world);
    let watching = orphans::watch(world);
    let killed = cycles::run(cycles, fleet, world, snapshots).await;
    // Whoever was killed last is up again, unless it could not be.
    killed?;
    if !load.end(FINISH_MAX).await {
        let mut ledger = world.ledger();
        let open: Vec<String> =
            ledger.flows.values().filter(|flow| !flow.ended).map(|flow| flow.id.clone()).collect();
        ledger.find(Broken::Lost, format!("undisturbed for {FINISH_MAX:?}, these have not ended: {open:?}"));
    }
    watching.abort();
    snapshots.finish().await;
    for call in orphans::open(&mut client, "").await.ok_or("the open calls were not told")? {
        world.ledger().find(Broken::Orphan, format!("every flow has ended, and a call is open: {call}"));
    }
    // Who never looked has found nothing either.
    if cycles >= LOOKING_MIN {
        let mut ledger = world.ledger();
        if ledger.looks == 0 || ledger.snapshots == 0 {
            let (looks, snapshots) = (ledger.looks, ledger.snapshots);
            let what = format!("orphans were looked for {looks} times, stores read {snapshots} times");
            ledger.find(Broken::Wrong, what);
        }
    }
    let journal = journal::read(world).await;
    let accounts = close(fleet, world).await?;
    let mut ledger = world.ledger();
    Ok(compare(&mut ledger, &journal, &accounts))
}

/// Stops everybody in order, proves what the server leaves, and reads what the receivers leave.
async fn close(fleet: &mut Fleet, world: &World) -> Result<BTreeMap<Who, Account>, String> {
    for who in Who::ALL {
        if let Err(problem) = fleet.stop(who, world).await {
            world.ledger().find(Broken::Wrong, problem);
        }
    }
    let proved = fleet.setup.fsck().await?;
    if !proved.summary.contains("(0 live, 0 parked)") {
        let what = format!("every flow has ended, and fsck says {}", proved.summary);
        world.ledger().find(Broken::Wrong, what);
    }
    for finding in proved.findings {
        world.ledger().find(Broken::Wrong, format!("fsck: {finding}"));
    }
    let mut accounts = BTreeMap::new();
    for who in Who::RECEIVERS {
        let (came, unreadable) = deliveries::read(&fleet.deliveries(who))?;
        for line in unreadable {
            world.ledger().find(Broken::Wrong, format!("{} wrote down {line:?}", who.name()));
        }
        accounts.insert(who, Account { came, done: stores::read(who, &fleet.store(who)).await? });
    }
    Ok(accounts)
}

fn report(fleet: &Fleet, world: &World, cycles: u32, time: Duration, is_control: bool) {
    let of = |who| fleet.kills.get(&who).copied().unwrap_or_default();
    let kills: u64 = Who::ALL.into_iter().map(of).sum();
    println!(
        "{cycles} cycles in {:.0} s, {} kills{}",
        time.as_secs_f64(),
        kills + fleet.while_starting + fleet.at_points,
        if is_control { ", a receiver that forgets (the control)" } else { "" }
    );
    for who in Who::ALL {
        let slowest = fleet.slowest_start.get(&who).copied().unwrap_or_default();
        println!("  {:<26}  {} (slowest start {:.3} s)", who.name(), of(who), slowest.as_secs_f64());
    }
    println!("  server, at named points     {}", fleet.at_points);
    println!("  while starting              {}", fleet.while_starting);
    let ledger = world.ledger();
    println!("  flows acknowledged          {}", ledger.acknowledged().count());
    println!("  stores read after a kill    {}", ledger.snapshots);
    println!("  looks for orphans           {}", ledger.looks);
}

fn report_figures(figures: &Figures, world: &World, findings_max: usize) {
    println!("  calls                       {}", figures.calls);
    println!("  deliveries                  {}", figures.deliveries);
    println!("  of which attempt > 0        {}", figures.redeliveries);
    println!("  probes                      {}", figures.probes);
    println!("  ledger entries              {}", figures.effects);
    println!("  answered from the record    {}", figures.from_record);
    let ledger = world.ledger();
    println!("  took effect twice           {}", ledger.count(Broken::Doubled));
    findings::tell(&ledger.findings, findings_max);
}
