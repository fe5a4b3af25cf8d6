//! What the demo shows: drawn over itself on a terminal, a line every few seconds elsewhere; and the comparison at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::time::Duration;

use abide_client::{Client, ClientError, InstanceFilter};

use super::WORKFLOW_ID;
use super::comparison::{Comparison, Counted};
use super::fleet::ENTITY;
use super::ledger::{Ledger, Sums};
use crate::say::say;

/// How often a terminal is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// Instances that are shown.
const SHOWN: usize = 12;

/// Says what came of an earlier life, before the fleet goes on: what it sends again could stand in for what is lost.
pub(super) async fn first_word(client: &Client, ledger: &Ledger) -> Result<(), String> {
    if ledger.sums().acknowledged > 0 {
        say!("found the work of an earlier life: {}", compared(client, ledger).await?.sentence());
    }
    Ok(())
}

/// Shows what happens, until it is dropped.
pub(super) async fn watch(client: &Client, ledger: &Ledger, url: &str, data: &Path) {
    let terminal = std::io::stdout().is_terminal();
    let every = if terminal { DRAW_EVERY } else { LINE_EVERY };
    let mut before = ledger.sums();
    say!("abide demo on {url} (data: {}), process {}", data.display(), std::process::id());
    say!("{}", to_try(url));
    loop {
        tokio::time::sleep(every).await;
        let now = ledger.sums();
        let seconds = every.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = now.acknowledged.saturating_sub(before.acknowledged) as f64 / seconds;
        before = now;
        let counts = counts(client).await;
        if !terminal {
            say!("{}", line(now, rate, &counts));
            continue;
        }
        let newest = newest(client).await.unwrap_or_default();
        draw(&screen(now, rate, &counts, &newest, url));
    }
}

fn line(sums: Sums, rate: f64, counts: &BTreeMap<String, u64>) -> String {
    let mut line =
        format!("{} devices, {} events acknowledged ({rate:.0}/s)", sums.devices, sums.acknowledged);
    for (status, count) in counts.iter().filter(|(_, count)| **count > 0) {
        // Writing to memory does not fail.
        let _ = write!(line, ", {count} {status}");
    }
    let _ =
        write!(line, "; {} effects, {} deliveries repeated and not done twice", sums.effects, sums.repeated);
    line
}

fn screen(sums: Sums, rate: f64, counts: &BTreeMap<String, u64>, newest: &[String], url: &str) -> String {
    let mut screen = String::from("\u{1b}[H\u{1b}[J\u{1b}[1mAbide demo: device onboarding\u{1b}[0m\n\n");
    let _ = writeln!(screen, "{}\n", line(sums, rate, counts));
    for instance in newest {
        let _ = writeln!(screen, "  {instance}");
    }
    let _ = writeln!(screen, "\n{}", to_try(url));
    screen
}

fn to_try(url: &str) -> String {
    let process = format!("kill -9 {}", std::process::id());
    let device = format!("abide show dev-00003~{WORKFLOW_ID}");
    format!(
        "Try, in another terminal, after: export ABIDE_URL={url}\n\
         \x20 {:<52} what is under way\n\
         \x20 {device:<52} one device that fails, with its path and what was undone\n\
         \x20 {:<52} what the server has recorded of a device\n\
         \x20 {process:<52} then start the demo again: nothing is lost\n\
         Ctrl-C ends it in order.",
        "abide list", "abide entity events device dev-00003",
    )
}

fn draw(screen: &str) {
    let mut out = anstream::stdout().lock();
    // A terminal that has gone away needs no picture.
    drop(out.write_all(screen.as_bytes()).and_then(|()| out.flush()));
}

async fn counts(client: &Client) -> BTreeMap<String, u64> {
    client.stats().await.map(|stats| stats.instances.by_status).unwrap_or_default()
}

async fn newest(client: &Client) -> Result<Vec<String>, ClientError> {
    let shown = client.instances(&InstanceFilter::default()).take(SHOWN).await?;
    Ok(shown.iter().map(|run| format!("{:<44} {}", run.instance_id, run.status)).collect())
}

/// The fleet's memory beside the server's.
async fn compared(client: &Client, ledger: &Ledger) -> Result<Comparison, String> {
    let mut comparison = Comparison::default();
    for (device, told_before) in ledger.by_device() {
        let recorded = match client.entity(ENTITY, &device).await {
            Ok(entity) => entity.next_position,
            Err(error) if error.is_not_found() => 0,
            Err(error) => return Err(format!("{device} cannot be compared: {error}")),
        };
        comparison.add(Counted { told_before, recorded, told_after: ledger.told(&device) });
    }
    Ok(comparison)
}

/// Says at the end whether anything was lost, or is there twice. False if so.
pub(super) async fn last_word(client: &Client, ledger: &Ledger, url: &str) -> Result<bool, String> {
    let comparison = compared(client, ledger).await?;
    let sums = ledger.sums();
    say!("\n{}", comparison.sentence());
    say!("{}; start the demo again to go on, or `abide list --url {url}` while it runs", effects(sums));
    Ok(comparison.is_whole() && sums.doubled == 0)
}

fn effects(sums: Sums) -> String {
    match sums {
        Sums { effects, doubled: 0, .. } => format!("{effects} effects were done, each once"),
        Sums { effects, doubled, .. } => format!("{effects} effects were done, and {doubled} of them again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_not_said_to_be_done_once_if_they_were_done_again() {
        let sums = Sums { effects: 3, ..Sums::default() };
        assert_eq!(effects(sums), "3 effects were done, each once");
        assert_eq!(effects(Sums { doubled: 1, ..sums }), "3 effects were done, and 1 of them again");
    }
}
