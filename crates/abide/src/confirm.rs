//! Asks the user to confirm a step that cannot be undone.

use std::io::{BufRead, IsTerminal, Write};

use crate::errors::CliError;
use crate::output::escape_control_chars;

/// Asks the user, unless `yes` is set. Without a terminal there is no confirmation.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(CliError::Usage(format!(
            "{question} Standard input is not a terminal: pass --yes to confirm"
        )));
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{} [y/N] ", escape_control_chars(question))?;
    err.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::Declined),
    }
}
