//! The verdict of a rig: what it found, what it counted, and how both are printed. `scripts/prove` reads these lines.
//!
//! It knows no promise that could be broken: each rig names its own kinds of findings.

use std::collections::BTreeSet;
use std::fmt;

/// What a rig found, each once, sorted by kind.
#[derive(Clone, Debug)]
pub struct Findings<K>(BTreeSet<(K, String)>);

impl<K> Default for Findings<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord> Findings<K> {
    pub fn add(&mut self, kind: K, what: impl Into<String>) {
        self.0.insert((kind, what.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn count(&self, kind: &K) -> u64 {
        self.kinds().filter(|other| *other == kind).count() as u64
    }

    /// The kind of each finding.
    pub fn kinds(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(kind, _)| kind)
    }

    /// Prints their number and at most `most` of them.
    pub fn print(&self, most: usize) {
        print_figure("findings", self.len());
        for (_, what) in self.0.iter().take(most) {
            println!("    {what}");
        }
        if let Some(more @ 1..) = self.0.len().checked_sub(most) {
            println!("    and {more} more");
        }
    }

    /// An error if there are any, or if the rig tried nothing, for this reason.
    pub fn verdict(&self, nothing_tried: Option<&str>) -> Result<(), String> {
        match (self.len(), nothing_tried) {
            (0, Some(reason)) => Err(format!("{reason}, so nothing was tried")),
            (0, None) => Ok(()),
            (findings, _) => Err(format!("{findings} findings")),
        }
    }
}

impl<K: Ord> Extend<(K, String)> for Findings<K> {
    fn extend<I: IntoIterator<Item = (K, String)>>(&mut self, findings: I) {
        self.0.extend(findings);
    }
}

/// The verdict on a control, in which a fault is planted: it must have `found` something, or the rig proves nothing.
pub fn control_verdict(found: u64, but: &str) -> Result<(), String> {
    match found {
        0 => Err(format!("the control {but}, so the rig proves nothing")),
        _ => Ok(()),
    }
}

/// Prints one line of a rig's summary.
pub fn print_figure(name: &str, value: impl fmt::Display) {
    println!("{}", figure_line(name, &value));
}

fn figure_line(name: &str, value: &dyn fmt::Display) -> String {
    format!("  {name:<26}  {value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_form_that_scripts_read() {
        assert_eq!(figure_line("findings", &3), "  findings                    3");
        let long = figure_line("a name of more than twenty-six letters", &3);
        assert_eq!(long, "  a name of more than twenty-six letters  3");
    }

    #[test]
    fn a_rig_fails_with_findings_or_without_a_try_and_a_control_fails_without_findings() {
        let mut findings = Findings::default();
        assert!(findings.verdict(None).is_ok());
        assert_eq!(findings.verdict(Some("no calls")).unwrap_err(), "no calls, so nothing was tried");
        findings.add('b', "twice");
        findings.extend([('b', "twice".to_owned()), ('a', "once".to_owned())]);
        assert_eq!((findings.len(), findings.count(&'b'), findings.count(&'c')), (2, 1, 0));
        assert_eq!(findings.verdict(Some("no calls")).unwrap_err(), "2 findings");
        assert!(control_verdict(1, "found nothing").is_ok());
        let nothing = control_verdict(0, "found nothing").unwrap_err();
        assert_eq!(nothing, "the control found nothing, so the rig proves nothing");
    }
}
