//! `abide fsck`: checks every row in the data folder of a stopped server. It repairs nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abide_server::{CheckError, StoreOpenError, check_data_folder};

use super::exit;
use crate::errors::error_chain;
use crate::output::{errln, escape_control_chars, outln};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The data folder of the server; the server must be stopped
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            errln!("abide: {error}");
            return exit::USAGE_ERROR.into();
        }
    };
    let report = match runtime.block_on(check_data_folder(&args.data)) {
        Ok(report) => report,
        Err(error) => return report_error(&args.data, &error),
    };
    for finding in &report.findings {
        let instance = finding.instance_id.as_deref().unwrap_or("-");
        outln!(
            "{} {}: {}",
            finding.shard,
            escape_control_chars(instance),
            escape_control_chars(&finding.problem)
        );
    }
    let findings = report.findings.len();
    outln!(
        "{} instances ({} live, {} parked), {} rows: {findings} findings",
        report.instances,
        report.live,
        report.parked,
        report.rows
    );
    if findings == 0 { exit::OK.into() } else { exit::FAILED.into() }
}

fn report_error(data: &Path, error: &CheckError) -> ExitCode {
    let message = error_chain(error);
    let message = match error {
        // These name the folder, or the file in it.
        CheckError::Store(_) | CheckError::Layout(_) => message,
        _ => format!("{}: {message}", data.display()),
    };
    errln!("abide: {}", escape_control_chars(&message));
    let hint = match error {
        CheckError::Store(StoreOpenError::InUse { .. }) => {
            Some("stop the server first: a folder in use cannot be checked")
        }
        CheckError::Layout(_) => Some("give a folder that `abide serve` or `abide backup` created"),
        _ => None,
    };
    if let Some(hint) = hint {
        errln!("  hint: {hint}");
    }
    exit::USAGE_ERROR.into()
}
