//! `abide backup` and `abide restore`: copies of a data folder that no server uses.

use std::path::PathBuf;
use std::process::ExitCode;

use abide_server::backup::{self, BackupError};
use anstream::eprintln;
use serde_json::json;

use super::exit;
use crate::problem::with_sources;
use crate::progress::Progress;
use crate::say::{say, visible};
use crate::table::grouped;

#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    /// Where to put the copy; nothing may be there
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// The folder that the server keeps everything in; the server must be stopped
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
    /// Print JSON for machines
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// The copy to put back; it is only read
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Where the server will look for it; nothing may be there
    #[arg(long, value_name = "DIR", env = "ABIDE_DATA", default_value = "./abide-data")]
    data: PathBuf,
    /// Print JSON for machines
    #[arg(long)]
    json: bool,
}

pub(crate) fn backup(args: &BackupArgs) -> ExitCode {
    let mut progress = Progress::begin("bytes", None);
    let mut bytes = 0;
    let copied = |more| {
        bytes += more;
        progress.add(more);
    };
    let made = backup::backup(&args.data, &args.to, copied);
    drop(progress);
    if let Err(error) = made {
        return failed(&error);
    }
    let folder = args.to.display().to_string();
    if args.json {
        say!("{}", json!({"folder": folder, "bytes": bytes}));
    } else {
        say!(
            "backed up to {}, {} bytes of rows; `abide restore {0}` puts it back",
            visible(&folder),
            grouped(bytes)
        );
    }
    exit::OK.into()
}

pub(crate) fn restore(args: &RestoreArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("abide: {error}");
            return exit::UNUSABLE.into();
        }
    };
    let mut progress = Progress::begin("bytes", Some(backup::size(&args.from)));
    let restored = runtime.block_on(backup::restore(&args.from, &args.data, |more| progress.add(more)));
    drop(progress);
    let report = match restored {
        Ok(report) => report,
        Err(error) => return failed(&error),
    };
    let (folder, findings) = (args.data.display().to_string(), report.findings.len());
    if args.json {
        let counts = json!({"folder": folder, "instances": report.instances, "live": report.live, "findings": findings});
        say!("{counts}");
    } else {
        let (instances, live) = (report.instances, report.live);
        say!("restored to {}: {instances} instances ({live} live), {findings} findings", visible(&folder));
        if findings > 0 {
            say!("`abide fsck --data {}` lists them", visible(&folder));
        }
    }
    if findings == 0 { exit::OK.into() } else { exit::NOT_OK.into() }
}

fn failed(error: &BackupError) -> ExitCode {
    eprintln!("abide: {}", visible(&with_sources(error)));
    let hint = match error {
        BackupError::Exists { .. } => Some("choose another folder, or move what is there out of the way"),
        BackupError::Open(abide_server::OpenError::InUse { .. }) | BackupError::InUse { .. } => {
            Some("stop the server first: abide copies folders that nobody uses")
        }
        BackupError::Layout(_) => Some("is it the folder that `abide serve` or `abide backup` made?"),
        _ => None,
    };
    if let Some(hint) = hint {
        eprintln!("  do: {hint}");
    }
    exit::UNUSABLE.into()
}
