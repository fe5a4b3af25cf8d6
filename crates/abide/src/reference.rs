//! Tests that docs/reference/cli.md, below its mark, is what the commands' own help texts say.
//!
//! `ABIDE_WRITE_REFERENCE=1 cargo test -p abide reference` regenerates that part.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};

const GENERATED_MARK: &str = "<!-- From here on written by a test from the commands themselves: see crates/abide/src/reference.rs -->\n";

fn render_page() -> String {
    let mut root = crate::Cli::command().term_width(100);
    root.build();
    let mut page = String::new();
    render_commands(&root, "abide", &mut page);
    page
}

fn render_commands(parent: &Command, name: &str, page: &mut String) {
    for command in parent.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("{name} {}", command.get_name());
        render_section(command, &name, page);
        render_commands(command, &name, page);
    }
}

fn render_section(command: &Command, name: &str, page: &mut String) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(page, "\n## `{name}`\n\n{about}.");
    let arguments: Vec<&Arg> = command.get_arguments().filter(|arg| arg.get_id() != "help").collect();
    if arguments.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n| argument | meaning |\n|---|---|");
    for argument in arguments {
        let _ = writeln!(page, "| `{}` | {} |", argument_label(argument), argument_text(argument));
    }
}

/// The argument as it is typed on the command line.
fn argument_label(argument: &Arg) -> String {
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let value = argument.get_value_names().filter(|_| takes).and_then(<[_]>::first).map(ToString::to_string);
    let value = value.unwrap_or_default();
    match argument.get_long() {
        None if matches!(argument.get_action(), ArgAction::Append) => format!("{value}…"),
        None => value,
        Some(long) => format!("--{long} {value}").trim_end().to_owned(),
    }
}

fn argument_text(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
    text.push('.');
    let values: Vec<String> =
        argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    if takes && !values.is_empty() {
        let _ = write!(text, " One of {}.", values.join(", "));
    }
    if argument.is_required_set() {
        text.push_str(" Required.");
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if takes && !defaults.is_empty() {
        let _ = write!(text, " Default {}.", defaults.join(", "));
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(text, " Environment: `{}`.", variable.to_string_lossy());
    }
    text
}

#[test]
fn the_reference_page_has_the_help_texts_of_all_commands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, actual) = text.split_once(GENERATED_MARK).unwrap();
    let expected = render_page();
    if std::env::var_os("ABIDE_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, format!("{before}{GENERATED_MARK}{expected}")).unwrap();
        return;
    }
    assert_eq!(actual, expected, "regenerate it: ABIDE_WRITE_REFERENCE=1 cargo test -p abide reference");
}

#[test]
fn the_command_definitions_are_consistent() {
    crate::Cli::command().debug_assert();
}

#[test]
fn every_command_and_argument_has_a_help_text() {
    fn check(command: &Command) {
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} of {}", argument.get_id(), command.get_name());
        }
        for subcommand in command.get_subcommands() {
            assert!(subcommand.get_about().is_some(), "{}", subcommand.get_name());
            check(subcommand);
        }
    }
    check(&crate::Cli::command());
}
