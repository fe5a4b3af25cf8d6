//! Asking before something that cannot be taken back.

use std::io::{BufRead, IsTerminal, Write};

use crate::problem::Problem;

/// Asks, unless `yes` was said already. Nobody to ask is not a yes.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), Problem> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Problem::Usage(format!("{question} Nobody can be asked here: say --yes if it is meant")));
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Problem::Declined),
    }
}
