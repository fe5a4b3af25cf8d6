//! One run of the rig: starts all processes, runs the kill cycles, waits until every flow has ended, and compares the
//! accounts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::attempts;
use super::fleet::ProcessFleet;
pub(crate) use super::fleet::Programs;
use super::flows;
use super::kill_cycles;
use super::ledger::{DispatchRig, DispatchViolation, now};
use super::load::FlowLoad;
use super::orphans;
use super::receiver_stores;
use super::receiver_wires::RigProcess;
use super::server_calls;
use super::snapshots::Snapshots;
use super::verdict::{DispatchFigures, ReceiverAccount, compare};
use crate::findings;
use crate::server::client::{RigRequest, RigResponse};

/// Within so many cycles there must have been a scan for orphans and a snapshot of a killed receiver.
const CYCLES_MIN: u32 = 20;
/// How long all flows may take to end after the last kill.
const FINISH_MAX: Duration = Duration::from_secs(120);
/// How many findings are printed.
const FINDINGS_MAX: usize = 100;
/// How many findings of the control are printed.
const CONTROL_FINDINGS: usize = 5;

pub(crate) fn run(cycles: u32, folder: &Path, programs: Programs) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let rig = DispatchRig::default();
        let is_control = programs.forget;
        let mut fleet = ProcessFleet::new(folder, programs)?;
        let mut snapshots = Snapshots::new(folder, &rig);
        let begun = now();
        let outcome = run_all(cycles, &mut fleet, &rig, &mut snapshots).await;
        report(&fleet, &rig, cycles, begun.elapsed(), is_control);
        if let Ok(figures) = &outcome {
            report_figures(figures, &rig, if is_control { CONTROL_FINDINGS } else { FINDINGS_MAX });
        }
        let figures = outcome?;
        let ledger = rig.ledger();
        match (is_control, ledger.findings.len()) {
            (true, _) if ledger.count(DispatchViolation::Doubled) == 0 => {
                Err("the control had no duplicate effect, so the rig proves nothing".to_owned())
            }
            (true, _) => Ok(()),
            (false, 0) if figures.repeated_attempts == 0 => {
                Err("no call was attempted twice, so nothing was tried".to_owned())
            }
            (false, 0) => Ok(()),
            (false, findings) => Err(format!("{findings} findings")),
        }
    })
}

async fn run_all(
    cycles: u32,
    fleet: &mut ProcessFleet,
    rig: &DispatchRig,
    snapshots: &mut Snapshots,
) -> Result<DispatchFigures, String> {
    fleet.start(&RigProcess::ALL, None, rig).await?;
    let mut client = rig.client();
    for definition in flows::definitions() {
        match client.send(RigRequest::post("/api/workflows", &definition)).await {
            RigResponse::Received(200 | 201, _) => {}
            other => return Err(format!("publishing a definition returned {other:?}")),
        }
    }
    let load = FlowLoad::start(rig);
    let watching = orphans::watch(rig);
    let killed = kill_cycles::run(cycles, fleet, rig, snapshots).await;
    // Every process is up again, unless one could not start.
    killed?;
    if !load.finish(FINISH_MAX).await {
        let mut ledger = rig.ledger();
        let open: Vec<String> =
            ledger.flows.values().filter(|flow| !flow.ended).map(|flow| flow.id.clone()).collect();
        ledger
            .find(DispatchViolation::Lost, format!("not ended {FINISH_MAX:?} after the last kill: {open:?}"));
    }
    watching.abort();
    snapshots.finish().await;
    for call in orphans::open_calls(&mut client, "").await.ok_or("the server did not list the open calls")? {
        rig.ledger()
            .find(DispatchViolation::Orphan, format!("every flow has ended, but a call is open: {call}"));
    }
    // Without scans and snapshots, missing findings prove nothing.
    if cycles >= CYCLES_MIN {
        let mut ledger = rig.ledger();
        if ledger.orphan_scans == 0 || ledger.snapshots == 0 {
            let scans = ledger.orphan_scans;
            let snapshots = ledger.snapshots;
            let what = format!("there were {scans} scans for orphans and {snapshots} snapshots");
            ledger.find(DispatchViolation::Wrong, what);
        }
    }
    let journal = server_calls::read(rig).await;
    let accounts = close(fleet, rig).await?;
    let mut ledger = rig.ledger();
    Ok(compare(&mut ledger, &journal, &accounts))
}

/// Shuts all processes down gracefully, runs fsck on the server's store, and reads the receivers' stores and logs.
async fn close(
    fleet: &mut ProcessFleet,
    rig: &DispatchRig,
) -> Result<BTreeMap<RigProcess, ReceiverAccount>, String> {
    for who in RigProcess::ALL {
        if let Err(problem) = fleet.stop(who, rig).await {
            rig.ledger().find(DispatchViolation::Wrong, problem);
        }
    }
    let fsck = fleet.setup.fsck().await?;
    if !fsck.summary.contains("(0 live, 0 parked)") {
        let what = format!("every flow has ended, but fsck reports {}", fsck.summary);
        rig.ledger().find(DispatchViolation::Wrong, what);
    }
    for finding in fsck.findings {
        rig.ledger().find(DispatchViolation::Wrong, format!("fsck: {finding}"));
    }
    let mut accounts = BTreeMap::new();
    for who in RigProcess::RECEIVERS {
        let (received, unreadable) = attempts::read(&fleet.attempts_log(who))?;
        for line in unreadable {
            rig.ledger().find(
                DispatchViolation::Wrong,
                format!("{} logged an unreadable line: {line:?}", who.name()),
            );
        }
        accounts.insert(
            who,
            ReceiverAccount {
                attempts: received,
                done: receiver_stores::read(who, &fleet.store(who)).await?,
            },
        );
    }
    Ok(accounts)
}

fn report(fleet: &ProcessFleet, rig: &DispatchRig, cycles: u32, time: Duration, is_control: bool) {
    let of = |who| fleet.kills.get(&who).copied().unwrap_or_default();
    let kills: u64 = RigProcess::ALL.into_iter().map(of).sum();
    println!(
        "{cycles} cycles in {:.0} s, {} kills{}",
        time.as_secs_f64(),
        kills + fleet.while_starting + fleet.at_points,
        if is_control { ", a receiver without deduplication (the control)" } else { "" }
    );
    for who in RigProcess::ALL {
        let slowest = fleet.slowest_start.get(&who).copied().unwrap_or_default();
        println!("  {:<26}  {} (slowest start {:.3} s)", who.name(), of(who), slowest.as_secs_f64());
    }
    println!("  server, at named points     {}", fleet.at_points);
    println!("  during startup              {}", fleet.while_starting);
    let ledger = rig.ledger();
    println!("  flows acknowledged          {}", ledger.acknowledged().count());
    println!("  stores read after a kill    {}", ledger.snapshots);
    println!("  scans for orphans           {}", ledger.orphan_scans);
}

fn report_figures(figures: &DispatchFigures, rig: &DispatchRig, findings_max: usize) {
    println!("  calls                       {}", figures.calls);
    println!("  attempts                    {}", figures.attempts);
    println!("  of which number > 0         {}", figures.repeated_attempts);
    println!("  probes                      {}", figures.probes);
    println!("  ledger entries              {}", figures.effects);
    println!("  answered from the record    {}", figures.from_record);
    let ledger = rig.ledger();
    println!("  took effect twice           {}", ledger.count(DispatchViolation::Doubled));
    findings::print_findings(&ledger.findings, findings_max);
}
