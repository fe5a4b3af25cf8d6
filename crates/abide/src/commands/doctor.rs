//! `abide doctor`: looks at the data folder and at the server, and says what to do about what it finds.

use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::AnsiColor;
use serde_json::json;

use super::exit;
use crate::checkup::{Finding, Verdict, folder, server};
use crate::remote::Remote;
use crate::say::{say, visible};
use crate::styles::FAINT;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that the server keeps everything in
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| {
        // What is wrong is to be seen at once, not after repeats.
        let client = client.clone().with_retries(0);
        let (seen, found) = server::examine(&client).await;
        let mut findings = folder::examine(&args.data, seen);
        findings.extend(found);
        findings.iter().for_each(|finding| if args.remote.json { machine(finding) } else { people(finding) });
        let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
        let (bad, doubtful) = (count(Verdict::Bad), count(Verdict::Doubtful));
        if !args.remote.json {
            say!("");
            say!("{bad} to mend, {doubtful} to look at, {} fine", count(Verdict::Fine));
        }
        Ok(if bad == 0 { exit::OK } else { exit::NOT_OK })
    })
}

fn machine(finding: &Finding) {
    let Finding { check, verdict, found, advice } = finding;
    say!("{}", json!({"check": check, "verdict": verdict.word(), "found": found, "do": advice}));
}

fn people(finding: &Finding) {
    let (sign, style) = match finding.verdict {
        Verdict::Fine => ("✓", AnsiColor::Green.on_default()),
        Verdict::Doubtful => ("!", AnsiColor::Yellow.on_default().bold()),
        Verdict::Bad => ("✗", AnsiColor::Red.on_default().bold()),
    };
    say!("{style}{sign}{style:#} {:<12} {}", finding.check, visible(&finding.found));
    if let Some(advice) = &finding.advice {
        say!("  {FAINT}{:<12} do: {}{FAINT:#}", "", visible(advice));
    }
}
