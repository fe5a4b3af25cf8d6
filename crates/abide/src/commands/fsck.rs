//! `abide fsck`: proves the data folder of a server that is not running.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abide_server::{CheckError, OpenError, check};
use anstream::eprintln;

use super::exit;
use crate::problem::with_sources;
use crate::say::{say, visible};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that the server keeps everything in
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("abide: {error}");
            return exit::UNUSABLE.into();
        }
    };
    let report = match runtime.block_on(check(&args.data)) {
        Ok(report) => report,
        Err(error) => return failed(&args.data, &error),
    };
    for finding in &report.findings {
        let instance = finding.instance_id.as_deref().unwrap_or("-");
        say!("{} {}: {}", finding.shard, visible(instance), visible(&finding.what));
    }
    let findings = report.findings.len();
    say!(
        "{} instances ({} live, {} parked), {} rows: {findings} findings",
        report.instances,
        report.live,
        report.parked,
        report.rows
    );
    if findings == 0 { exit::OK.into() } else { exit::NOT_OK.into() }
}

fn failed(data: &Path, error: &CheckError) -> ExitCode {
    let told = with_sources(error);
    let told = match error {
        // They name the folder, or the file in it.
        CheckError::Store(_) | CheckError::Layout(_) => told,
        _ => format!("{}: {told}", data.display()),
    };
    eprintln!("abide: {}", visible(&told));
    let hint = match error {
        CheckError::Store(OpenError::InUse { .. }) => {
            Some("stop the server first: abide checks folders that nobody uses")
        }
        CheckError::Layout(_) => Some("is it the folder that `abide serve` or `abide backup` made?"),
        _ => None,
    };
    if let Some(hint) = hint {
        eprintln!("  do: {hint}");
    }
    exit::UNUSABLE.into()
}
