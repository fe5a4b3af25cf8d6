//! `abide completions`: prints the completion script of a shell.

use std::process::ExitCode;

use clap_complete::Shell;

use super::exit;
use crate::output::outln;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to complete commands in
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "abide", &mut script);
    outln!("{}", String::from_utf8_lossy(&script).trim_end());
    exit::OK.into()
}
