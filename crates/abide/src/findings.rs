//! Findings as people read them: the place, the line itself, what is wrong and what to do.

use abide_workflow::{Code, Finding, Severity};
use anstyle::{AnsiColor, Style};

use crate::excerpt::Located;
use crate::say::{say, visible};
use crate::styles::{BOLD, FAINT};

fn colour(severity: Severity) -> Style {
    let colour = match severity {
        Severity::Error => AnsiColor::Red,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Note => AnsiColor::Cyan,
    };
    colour.on_default().bold()
}

pub(crate) fn print(file: &str, text: &str, finding: &Finding) {
    let style = colour(finding.severity());
    let severity = finding.severity();
    say!("{style}{severity}{style:#}{BOLD}[{}]: {}{BOLD:#}", finding.code, visible(&finding.message));
    let located = Located::of(text, finding);
    let whole = finding.pointer.is_empty() && finding.position.is_none();
    let pointer = if whole { "the whole definition".to_owned() } else { visible(&finding.pointer) };
    match &located {
        Some(place) => {
            say!("  {FAINT}-->{FAINT:#} {file}:{}:{} {pointer}", place.line, place.column);
            // A secret is not repeated into logs.
            if !whole && finding.code != Code::LiteralSecret {
                say!("  {FAINT}{:>4} |{FAINT:#} {}", place.line, visible(&place.excerpt));
            }
        }
        None => say!("  {FAINT}-->{FAINT:#} {file} {pointer}"),
    }
    say!("  {FAINT}do:{FAINT:#} {}", visible(&finding.hint));
    for consequence in &finding.consequences {
        say!("  {FAINT}and:{FAINT:#} {}", visible(consequence));
    }
    say!("");
}

pub(crate) fn summarise(file: &str, findings: &[Finding], valid: bool) {
    let count = |severity| findings.iter().filter(|finding| finding.severity() == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let verdict = if valid { "valid" } else { "refused" };
    let style = if valid { AnsiColor::Green } else { AnsiColor::Red }.on_default().bold();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    say!("{file}: {style}{verdict}{style:#}, {}, {}", plural(errors, "error"), plural(warnings, "warning"));
}
