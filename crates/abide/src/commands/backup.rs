//! `abide backup` and `abide restore`: copy a data folder that no server uses, or the store of a running server, and
//! put a copy back. Neither overwrites anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abide_client::{Client, ClientError};
use abide_server::backup::{self, BackupError, BackupReceiver};
use serde_json::json;

use super::exit;
use crate::errors::{CliError, ResourceKind, error_chain};
use crate::output::{errln, escape_control_chars, outln};
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
    /// The address of a running server to copy instead; the copy is made on this machine
    #[arg(long, value_name = "URL")]
    url: Option<String>,
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
    let copied = match &args.url {
        None => backup::backup(&args.data, &args.to, on_copied).map_err(BackupCommandError::Copy),
        Some(url) => receive(url, &args.to, on_copied),
    };
    drop(progress);
    match copied {
        Ok(()) => {}
        Err(BackupCommandError::Copy(error)) => return report_error(&error),
        Err(BackupCommandError::Server(error)) => return error.report(ResourceKind::Other, args.json).into(),
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

/// Why no backup was made.
enum BackupCommandError {
    Copy(BackupError),
    Server(CliError),
}

impl From<BackupError> for BackupCommandError {
    fn from(error: BackupError) -> Self {
        Self::Copy(error)
    }
}

impl From<ClientError> for BackupCommandError {
    fn from(error: ClientError) -> Self {
        Self::Server(error.into())
    }
}

impl From<std::io::Error> for BackupCommandError {
    fn from(error: std::io::Error) -> Self {
        Self::Server(error.into())
    }
}

/// Receives the copy that a running server sends.
fn receive(url: &str, to: &Path, mut copied: impl FnMut(u64)) -> Result<(), BackupCommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(url)?;
    runtime.block_on(async {
        let mut receiver = BackupReceiver::start(to)?;
        let mut stream = client.backup().await?;
        while let Some(bytes) = stream.next().await? {
            receiver.receive(&bytes)?;
            copied(bytes.len() as u64);
        }
        Ok(receiver.finish()?)
    })
}

pub(crate) fn restore(args: &RestoreArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            errln!("abide: {error}");
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
    errln!("abide: {}", escape_control_chars(&error_chain(error)));
    let hint = match error {
        BackupError::Exists { .. } => Some("choose another folder, or move the existing one away"),
        BackupError::Open(abide_server::StoreOpenError::InUse { .. }) | BackupError::InUse { .. } => {
            Some("stop the server first, or copy it while it runs with `abide backup DIR --url URL`")
        }
        BackupError::Layout(_) => Some("give a folder that `abide serve` or `abide backup` created"),
        _ => None,
    };
    if let Some(hint) = hint {
        errln!("  hint: {hint}");
    }
    exit::USAGE_ERROR.into()
}
