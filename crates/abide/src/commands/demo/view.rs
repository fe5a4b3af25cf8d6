//! The output of the demo: a screen that is redrawn on a terminal, a line every few seconds elsewhere, and the
//! comparison at the start and at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::time::Duration;

use abide_client::{Client, ClientError, InstanceFilter};

use super::WORKFLOW_ID;
use super::comparison::{DeviceCounts, FleetComparison};
use super::fleet::ENTITY_TYPE;
use super::fleet_ledger::{FleetLedger, LedgerTotals};
use crate::output::{escape_control_chars, outln};

/// The time between two redraws of a terminal.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// The time between two lines if standard output is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// The number of instances on the screen.
const INSTANCES_SHOWN: usize = 12;

/// Reports the state that an earlier run of the demo left. This must happen before the fleet sends again, because a
/// repeated event could replace a lost one.
pub(super) async fn report_earlier_run(client: &Client, ledger: &FleetLedger) -> Result<(), String> {
    if ledger.totals().acknowledged > 0 {
        outln!("found the data of an earlier run: {}", compare_with_server(client, ledger).await?.summary());
    }
    Ok(())
}

/// Shows the progress of the demo until the future is dropped.
pub(super) async fn watch(client: &Client, ledger: &FleetLedger, url: &str, data: &Path) {
    let terminal = std::io::stdout().is_terminal();
    let every = if terminal { DRAW_EVERY } else { LINE_EVERY };
    let mut before = ledger.totals();
    outln!("abide demo on {url} (data: {}), process {}", data.display(), std::process::id());
    outln!("{}", usage_hints(url));
    loop {
        tokio::time::sleep(every).await;
        let now = ledger.totals();
        let seconds = every.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = now.acknowledged.saturating_sub(before.acknowledged) as f64 / seconds;
        before = now;
        let counts = status_counts(client).await;
        if !terminal {
            outln!("{}", status_line(now, rate, &counts));
            continue;
        }
        let newest = newest_runs(client).await.unwrap_or_default();
        draw(&render_screen(now, rate, &counts, &newest, url));
    }
}

fn status_line(totals: LedgerTotals, rate: f64, counts: &BTreeMap<String, u64>) -> String {
    let mut line =
        format!("{} devices, {} events acknowledged ({rate:.0}/s)", totals.devices, totals.acknowledged);
    for (status, count) in counts.iter().filter(|(_, count)| **count > 0) {
        // Writing to a `String` cannot fail.
        let _ = write!(line, ", {count} {status}");
    }
    let _ = write!(
        line,
        "; {} effects, {} repeated attempts deduplicated",
        totals.effects, totals.suppressed_repeats
    );
    line
}

fn render_screen(
    totals: LedgerTotals,
    rate: f64,
    counts: &BTreeMap<String, u64>,
    newest: &[String],
    url: &str,
) -> String {
    let mut screen = String::from("\u{1b}[H\u{1b}[J\u{1b}[1mAbide demo: device onboarding\u{1b}[0m\n\n");
    let _ = writeln!(screen, "{}\n", status_line(totals, rate, counts));
    for instance in newest {
        let _ = writeln!(screen, "  {instance}");
    }
    let _ = writeln!(screen, "\n{}", usage_hints(url));
    screen
}

fn usage_hints(url: &str) -> String {
    let process = format!("kill -9 {}", std::process::id());
    let device = format!("abide show dev-00003~{WORKFLOW_ID}");
    format!(
        "Try, in another terminal, after: export ABIDE_URL={url}\n\
         \x20 {:<52} the newest runs\n\
         \x20 {device:<52} one device that fails, with its path and its compensation\n\
         \x20 {:<52} the events that the server has recorded for a device\n\
         \x20 {process:<52} then start the demo again: nothing is lost\n\
         Ctrl-C stops the demo gracefully.",
        "abide list", "abide entity events device dev-00003",
    )
}

fn draw(screen: &str) {
    let mut out = anstream::stdout().lock();
    // If the terminal has gone away, there is nothing to draw on.
    drop(out.write_all(screen.as_bytes()).and_then(|()| out.flush()));
}

async fn status_counts(client: &Client) -> BTreeMap<String, u64> {
    client.stats().await.map(|stats| stats.instances.by_status).unwrap_or_default()
}

async fn newest_runs(client: &Client) -> Result<Vec<String>, ClientError> {
    let runs = client.instances(&InstanceFilter::default()).take(INSTANCES_SHOWN).await?;
    Ok(runs
        .iter()
        .map(|run| format!("{:<44} {}", escape_control_chars(&run.instance_id), run.status))
        .collect())
}

/// Compares the ledger of the fleet with the events that the server has recorded.
async fn compare_with_server(client: &Client, ledger: &FleetLedger) -> Result<FleetComparison, String> {
    let mut comparison = FleetComparison::default();
    for (device, acknowledged_before) in ledger.acknowledged_by_device() {
        let recorded = match client.entity(ENTITY_TYPE, &device).await {
            Ok(entity) => entity.next_position,
            Err(error) if error.is_not_found() => 0,
            Err(error) => return Err(format!("cannot compare {device} with the server: {error}")),
        };
        comparison.add(DeviceCounts {
            acknowledged_before,
            recorded,
            acknowledged_after: ledger.acknowledged_of(&device),
        });
    }
    Ok(comparison)
}

/// Reports the final comparison. Returns false if anything was lost or duplicated.
pub(super) async fn report_result(client: &Client, ledger: &FleetLedger, url: &str) -> Result<bool, String> {
    let comparison = compare_with_server(client, ledger).await?;
    let totals = ledger.totals();
    outln!("\n{}", comparison.summary());
    outln!(
        "{}; start the demo again to continue, or `abide list --url {url}` while it runs",
        describe_effects(totals)
    );
    Ok(comparison.is_consistent() && totals.duplicate_effects == 0)
}

fn describe_effects(totals: LedgerTotals) -> String {
    match totals {
        LedgerTotals { effects, duplicate_effects: 0, .. } => {
            format!("{effects} effects were applied, each once")
        }
        LedgerTotals { effects, duplicate_effects, .. } => {
            format!("{effects} effects were applied, and {duplicate_effects} of them again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_effects_are_reported() {
        let totals = LedgerTotals { effects: 3, ..LedgerTotals::default() };
        assert_eq!(describe_effects(totals), "3 effects were applied, each once");
        assert_eq!(
            describe_effects(LedgerTotals { duplicate_effects: 1, ..totals }),
            "3 effects were applied, and 1 of them again"
        );
    }
}
