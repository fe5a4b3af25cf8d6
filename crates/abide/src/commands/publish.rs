//! `abide publish`: publishes definitions, and shows the place in the file of every finding.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abide_client::{Client, ClientError, ErrorDetail, PublishedVersion};
use anstyle::{AnsiColor, Style};

use super::exit;
use crate::errors::{CliError, ResourceKind};
use crate::files;
use crate::output::{escape_control_chars, outln};
use crate::server_args::ServerArgs;
use crate::source_location::SourceLocation;
use crate::styles::FAINT;

const SUCCESS_STYLE: Style = AnsiColor::Green.on_default().bold();
const ERROR_STYLE: Style = AnsiColor::Red.on_default().bold();

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Definitions to publish
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| {
        let mut code = exit::OK;
        // A rejected definition does not prevent the others from being published.
        for path in &args.files {
            code = code.max(publish(args, client, path).await?);
        }
        Ok(code)
    })
}

async fn publish(args: &Args, client: &Client, path: &Path) -> Result<u8, CliError> {
    let text = files::read(path)?;
    let name = escape_control_chars(&path.display().to_string());
    let raw = match client.publish(text.as_str()).raw().await {
        Ok(raw) => raw,
        Err(ClientError::Refused(response)) if !args.remote.json && !response.details.is_empty() => {
            response.details.iter().for_each(|detail| print_detail(&name, &text, detail));
            outln!(
                "{name}: {ERROR_STYLE}rejected{ERROR_STYLE:#}, {}",
                escape_control_chars(&response.message)
            );
            return Ok(exit::FAILED);
        }
        Err(error @ ClientError::Refused(_)) => {
            return Ok(CliError::from(error).report(ResourceKind::Other, args.remote.json));
        }
        Err(error) => return Err(error.into()),
    };
    if args.remote.json {
        outln!("{raw}");
    } else if let Ok(PublishedVersion { id, version, hash }) = serde_json::from_str(raw.get()) {
        let hash: String = hash.chars().take(12).collect();
        outln!(
            "{name}: {SUCCESS_STYLE}published{SUCCESS_STYLE:#} {} {version} {FAINT}({hash}){FAINT:#}",
            escape_control_chars(&id)
        );
    }
    Ok(exit::OK)
}

/// Prints one finding in the form of `abide validate`.
fn print_detail(file: &str, text: &str, detail: &ErrorDetail) {
    outln!("{ERROR_STYLE}error{ERROR_STYLE:#}[{}]: {}", detail.code, escape_control_chars(&detail.message));
    match SourceLocation::of_pointer(text, &detail.target) {
        Some(location) => {
            outln!(
                "  {FAINT}-->{FAINT:#} {file}:{}:{} {}",
                location.line,
                location.column,
                escape_control_chars(&detail.target)
            );
        }
        None => outln!("  {FAINT}-->{FAINT:#} {file} {}", escape_control_chars(&detail.target)),
    }
    if let Some(hint) = &detail.hint {
        outln!("  {FAINT}hint:{FAINT:#} {}", escape_control_chars(hint));
    }
    outln!("");
}
