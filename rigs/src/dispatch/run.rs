//! One run of the rig: starts all processes, runs the kill cycles, waits until every flow has ended, and compares the
//! accounts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use abide_testkit::http_client::HttpRequest;
use abide_testkit::verdict::{control_verdict, print_figure};

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
use crate::server::client::RigResponse;

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
        if is_control {
            return control_verdict(
                ledger.findings.count(&DispatchViolation::Doubled),
                "had no duplicate effect",
            );
        }
        ledger.findings.verdict((figures.repeated_attempts == 0).then_some("no call was attempted twice"))
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
        match client.send(&HttpRequest::post("/api/workflows", &definition)).await {
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
            .findings
            .add(DispatchViolation::Lost, format!("not ended {FINISH_MAX:?} after the last kill: {open:?}"));
    }
    watching.abort();
    snapshots.finish().await;
    for call in orphans::open_calls(&mut client, "").await.ok_or("the server did not list the open calls")? {
        rig.ledger()
            .findings
            .add(DispatchViolation::Orphan, format!("every flow has ended, but a call is open: {call}"));
    }
    // Without scans and snapshots, missing findings prove nothing.
    if cycles >= CYCLES_MIN {
        let mut ledger = rig.ledger();
        if ledger.orphan_scans == 0 || ledger.snapshots == 0 {
            let scans = ledger.orphan_scans;
            let snapshots = ledger.snapshots;
            let what = format!("there were {scans} scans for orphans and {snapshots} snapshots");
            ledger.findings.add(DispatchViolation::Wrong, what);
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
            rig.ledger().findings.add(DispatchViolation::Wrong, problem);
        }
    }
    let fsck = fleet.setup.fsck().await?;
    if !fsck.summary.contains("(0 live, 0 parked)") {
        let what = format!("every flow has ended, but fsck reports {}", fsck.summary);
        rig.ledger().findings.add(DispatchViolation::Wrong, what);
    }
    for finding in fsck.findings {
        rig.ledger().findings.add(DispatchViolation::Wrong, format!("fsck: {finding}"));
    }
    let mut accounts = BTreeMap::new();
    for who in RigProcess::RECEIVERS {
        let (received, unreadable) = attempts::read(&fleet.attempts_log(who))?;
        for line in unreadable {
            rig.ledger()
                .findings
                .add(DispatchViolation::Wrong, format!("{} logged an unreadable line: {line:?}", who.name()));
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
        print_figure(who.name(), format_args!("{} (slowest start {:.3} s)", of(who), slowest.as_secs_f64()));
    }
    print_figure("server, at named points", fleet.at_points);
    print_figure("during startup", fleet.while_starting);
    let ledger = rig.ledger();
    print_figure("flows acknowledged", ledger.acknowledged().count());
    print_figure("stores read after a kill", ledger.snapshots);
    print_figure("scans for orphans", ledger.orphan_scans);
}

fn report_figures(figures: &DispatchFigures, rig: &DispatchRig, findings_max: usize) {
    print_figure("calls", figures.calls);
    print_figure("attempts", figures.attempts);
    print_figure("of which number > 0", figures.repeated_attempts);
    print_figure("probes", figures.probes);
    print_figure("ledger entries", figures.effects);
    print_figure("answered from the record", figures.from_record);
    let ledger = rig.ledger();
    print_figure("took effect twice", ledger.findings.count(&DispatchViolation::Doubled));
    ledger.findings.print(findings_max);
}
