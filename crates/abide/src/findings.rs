//! Prints findings of validation for people: the message, the place in the file, the line itself and the hint.

use abide_workflow::{Code, Finding, Severity};
use anstyle::{AnsiColor, Style};

use crate::output::{escape_control_chars, outln};
use crate::source_location::SourceLocation;
use crate::styles::{BOLD, FAINT};

fn severity_style(severity: Severity) -> Style {
    let colour = match severity {
        Severity::Error => AnsiColor::Red,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Note => AnsiColor::Cyan,
    };
    colour.on_default().bold()
}

pub(crate) fn print(file: &str, text: &str, finding: &Finding) {
    let file = escape_control_chars(file);
    let style = severity_style(finding.severity());
    let severity = finding.severity();
    outln!(
        "{style}{severity}{style:#}{BOLD}[{}]: {}{BOLD:#}",
        finding.code,
        escape_control_chars(&finding.message)
    );
    let location = SourceLocation::of_finding(text, finding);
    let whole = finding.pointer.is_empty() && finding.position.is_none();
    let pointer =
        if whole { "the whole definition".to_owned() } else { escape_control_chars(&finding.pointer) };
    match &location {
        Some(location) => {
            outln!("  {FAINT}-->{FAINT:#} {file}:{}:{} {pointer}", location.line, location.column);
            // A secret must not be copied into logs.
            if !whole && finding.code != Code::LiteralSecret {
                outln!(
                    "  {FAINT}{:>4} |{FAINT:#} {}",
                    location.line,
                    escape_control_chars(&location.excerpt)
                );
            }
        }
        None => outln!("  {FAINT}-->{FAINT:#} {file} {pointer}"),
    }
    outln!("  {FAINT}hint:{FAINT:#} {}", escape_control_chars(&finding.hint));
    for consequence in &finding.consequences {
        outln!("  {FAINT}also:{FAINT:#} {}", escape_control_chars(consequence));
    }
    outln!("");
}

pub(crate) fn print_summary(file: &str, findings: &[Finding], valid: bool) {
    let file = escape_control_chars(file);
    let count = |severity| findings.iter().filter(|finding| finding.severity() == severity).count();
    let errors = count(Severity::Error);
    let warnings = count(Severity::Warning);
    let verdict = if valid { "valid" } else { "rejected" };
    let style = if valid { AnsiColor::Green } else { AnsiColor::Red }.on_default().bold();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    outln!("{file}: {style}{verdict}{style:#}, {}, {}", plural(errors, "error"), plural(warnings, "warning"));
}
