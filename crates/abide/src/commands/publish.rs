//! `abide publish`: definitions to the server, with the place of every mistake in the file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abide_client::{Client, ClientError, Detail, Published};
use anstyle::{AnsiColor, Style};

use super::exit;
use crate::excerpt::Located;
use crate::files;
use crate::problem::{Problem, Sought};
use crate::remote::Remote;
use crate::say::{say, visible};
use crate::styles::FAINT;

const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Definitions to publish
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| {
        let mut code = exit::OK;
        // One that is refused does not keep the others from being published.
        for path in &args.files {
            code = code.max(publish(args, client, path).await?);
        }
        Ok(code)
    })
}

async fn publish(args: &Args, client: &Client, path: &Path) -> Result<u8, Problem> {
    let text = files::read(path)?;
    let name = visible(&path.display().to_string());
    let raw = match client.publish(text.as_str()).raw().await {
        Ok(raw) => raw,
        Err(ClientError::Refused(refusal)) if !args.remote.json && !refusal.details.is_empty() => {
            refusal.details.iter().for_each(|detail| tell(&name, &text, detail));
            say!("{name}: {BAD}refused{BAD:#}, {}", visible(&refusal.message));
            return Ok(exit::NOT_OK);
        }
        Err(error @ ClientError::Refused(_)) => {
            return Ok(Problem::from(error).tell(Sought::Unnamed, args.remote.json));
        }
        Err(error) => return Err(error.into()),
    };
    if args.remote.json {
        say!("{raw}");
    } else if let Ok(Published { id, version, hash }) = serde_json::from_str(raw.get()) {
        let hash: String = hash.chars().take(12).collect();
        say!("{name}: {GOOD}published{GOOD:#} {} {version} {FAINT}({hash}){FAINT:#}", visible(&id));
    }
    Ok(exit::OK)
}

/// One mistake, as `abide validate` shows it.
fn tell(file: &str, text: &str, detail: &Detail) {
    say!("{BAD}error{BAD:#}[{}]: {}", detail.code, visible(&detail.message));
    match Located::find(text, &detail.target) {
        Some(place) => {
            say!("  {FAINT}-->{FAINT:#} {file}:{}:{} {}", place.line, place.column, visible(&detail.target));
        }
        None => say!("  {FAINT}-->{FAINT:#} {file} {}", visible(&detail.target)),
    }
    if let Some(hint) = &detail.hint {
        say!("  {FAINT}do:{FAINT:#} {}", visible(hint));
    }
    say!("");
}
