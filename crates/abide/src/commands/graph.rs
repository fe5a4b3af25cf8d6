//! `abide graph`: a definition as Mermaid text, valid or not.

use std::path::PathBuf;
use std::process::ExitCode;

use abide_workflow::{Authored, graph};
use anstream::eprintln;

use super::exit;
use crate::say::say;
use crate::{files, findings};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The definition to draw
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let text = match files::read(&args.file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("abide: {error}");
            return exit::UNUSABLE.into();
        }
    };
    let authored = Authored::parse(&text);
    if let Some(definition) = authored.definition() {
        say!("{}", graph::mermaid(definition).trim_end());
        return exit::OK.into();
    }
    let name = args.file.display().to_string();
    if let Err(rejected) = authored.validate(None) {
        rejected.findings.iter().for_each(|finding| findings::print(&name, &text, finding));
    }
    exit::NOT_OK.into()
}
