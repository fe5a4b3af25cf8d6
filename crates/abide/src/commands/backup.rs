//! `abide backup` and `abide restore`: copy a data folder that no server uses, and put a copy back. Neither overwrites
//! anything.

use std::path::PathBuf;
use std::process::ExitCode;

use abide_server::backup::{self, BackupError};
use anstream::eprintln;
use serde_json::json;

use super::exit;
use crate::errors::error_chain;
use crate::output::{escape_control_chars, outln};
use crate::progress::Progress;
use crate::table::group_digits;

#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    /// The folder for the copy; it must not exist
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// The data folder of the server; the server must be stopped
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// The copy to restore; it is only read
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// The data folder to create; it must not exist
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn backup(args: &BackupArgs) -> ExitCode {
    let mut progress = Progress::start("bytes", None);
    let mut bytes = 0;
    let on_copied = |more| {
        bytes += more;
        progress.add(more);
    };
    let copied = backup::backup(&args.data, &args.to, on_copied);
    drop(progress);
    if let Err(error) = copied {
        return report_error(&error);
    }
    let folder = args.to.display().to_string();
    if args.json {
        outln!("{}", json!({"folder": folder, "bytes": bytes}));
    } else {
        outln!(
            "backed up to {}, {} bytes of rows; `abide restore {0}` restores it",
            escape_control_chars(&folder),
            group_digits(bytes)
        );
    }
    exit::OK.into()
}

pub(crate) fn restore(args: &RestoreArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("abide: {error}");
            return exit::USAGE_ERROR.into();
        }
    };
    let mut progress = Progress::start("bytes", Some(backup::folder_size(&args.from)));
    let restored = runtime.block_on(backup::restore(&args.from, &args.data, |more| progress.add(more)));
    drop(progress);
    let report = match restored {
        Ok(report) => report,
        Err(error) => return report_error(&error),
    };
    let folder = args.data.display().to_string();
    let findings = report.findings.len();
    if args.json {
        let counts = json!({"folder": folder, "instances": report.instances, "live": report.live, "findings": findings});
        outln!("{counts}");
    } else {
        let instances = report.instances;
        let live = report.live;
        outln!(
            "restored to {}: {instances} instances ({live} live), {findings} findings",
            escape_control_chars(&folder)
        );
        if findings > 0 {
            outln!("`abide fsck --data {}` lists them", escape_control_chars(&folder));
        }
    }
    if findings == 0 { exit::OK.into() } else { exit::FAILED.into() }
}

fn report_error(error: &BackupError) -> ExitCode {
    eprintln!("abide: {}", escape_control_chars(&error_chain(error)));
    let hint = match error {
        BackupError::Exists { .. } => Some("choose another folder, or move the existing one away"),
        BackupError::Open(abide_server::StoreOpenError::InUse { .. }) | BackupError::InUse { .. } => {
            Some("stop the server first: a folder in use cannot be copied")
        }
        BackupError::Layout(_) => Some("give a folder that `abide serve` or `abide backup` created"),
        _ => None,
    };
    if let Some(hint) = hint {
        eprintln!("  hint: {hint}");
    }
    exit::USAGE_ERROR.into()
}
