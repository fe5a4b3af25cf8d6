//! `abide graph`: prints a definition as Mermaid text, even if it is not valid.

use std::path::PathBuf;
use std::process::ExitCode;

use abide_workflow::{ParsedDefinition, graph};

use super::exit;
use crate::output::{errln, escape_lines, outln};
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
            errln!("abide: {error}");
            return exit::USAGE_ERROR.into();
        }
    };
    let parsed = ParsedDefinition::parse(&text);
    if let Some(definition) = parsed.definition() {
        outln!("{}", escape_lines(graph::mermaid(definition).trim_end()));
        return exit::OK.into();
    }
    let name = args.file.display().to_string();
    if let Err(rejected) = parsed.validate(None) {
        rejected.findings.iter().for_each(|finding| findings::print(&name, &text, finding));
    }
    exit::FAILED.into()
}
