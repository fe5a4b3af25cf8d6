//! `abide doctor`: checks the data folder and the server, and prints every finding with advice. The checks themselves
//! are in [`crate::doctor`].

use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::AnsiColor;
use serde_json::json;

use super::exit;
use crate::doctor::{CheckStatus, DoctorFinding, folder, server};
use crate::output::{escape_control_chars, outln};
use crate::server_args::ServerArgs;
use crate::styles::FAINT;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The data folder of the server
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| {
        // Without retries, so that problems show at once.
        let client = client.clone().with_retries(0);
        let (reachability, server_findings) = server::check_server(&client).await;
        let mut findings = folder::check_folder(&args.data, reachability);
        findings.extend(server_findings);
        findings
            .iter()
            .for_each(|finding| if args.remote.json { print_json(finding) } else { print_text(finding) });
        let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
        let errors = count(CheckStatus::Error);
        let warnings = count(CheckStatus::Warning);
        if !args.remote.json {
            outln!("");
            outln!("errors: {errors}, warnings: {warnings}, ok: {}", count(CheckStatus::Ok));
        }
        Ok(if errors == 0 { exit::OK } else { exit::FAILED })
    })
}

fn print_json(finding: &DoctorFinding) {
    let DoctorFinding { check, verdict, message, advice } = finding;
    outln!("{}", json!({"check": check, "verdict": verdict.as_str(), "found": message, "do": advice}));
}

fn print_text(finding: &DoctorFinding) {
    let (symbol, style) = match finding.verdict {
        CheckStatus::Ok => ("✓", AnsiColor::Green.on_default()),
        CheckStatus::Warning => ("!", AnsiColor::Yellow.on_default().bold()),
        CheckStatus::Error => ("✗", AnsiColor::Red.on_default().bold()),
    };
    outln!("{style}{symbol}{style:#} {:<12} {}", finding.check, escape_control_chars(&finding.message));
    if let Some(advice) = &finding.advice {
        outln!("  {FAINT}{:<12} hint: {}{FAINT:#}", "", escape_control_chars(advice));
    }
}
