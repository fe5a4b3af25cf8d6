//! Findings as people read them: the place, the line itself, what is wrong and what to do.

use abide_workflow::{Finding, Severity};
use anstream::println;
use anstyle::{AnsiColor, Style};

use crate::excerpt::Located;

const BOLD: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

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
    println!("{style}{severity}{style:#}{BOLD}[{}]: {}{BOLD:#}", finding.code, finding.message);
    let located = Located::find(text, &finding.pointer);
    let pointer = if finding.pointer.is_empty() { "the whole definition" } else { &finding.pointer };
    match &located {
        Some(place) => {
            println!("  {FAINT}-->{FAINT:#} {file}:{}:{} {pointer}", place.line, place.column);
            if !finding.pointer.is_empty() {
                println!("  {FAINT}{:>4} |{FAINT:#} {}", place.line, place.excerpt);
            }
        }
        None => println!("  {FAINT}-->{FAINT:#} {file} {pointer}"),
    }
    println!("  {FAINT}do:{FAINT:#} {}", finding.hint);
    for consequence in &finding.consequences {
        println!("  {FAINT}and:{FAINT:#} {consequence}");
    }
    println!();
}

pub(crate) fn summarise(file: &str, findings: &[Finding]) {
    let count = |severity| findings.iter().filter(|finding| finding.severity() == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let verdict = if errors > 0 { "refused" } else { "valid" };
    let style = if errors > 0 { AnsiColor::Red } else { AnsiColor::Green }.on_default().bold();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    println!(
        "{file}: {style}{verdict}{style:#}, {}, {}",
        plural(errors, "error"),
        plural(warnings, "warning")
    );
}
