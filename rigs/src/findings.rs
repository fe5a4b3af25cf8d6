//! Prints the findings at the end of a rig's report.

use std::collections::BTreeSet;

/// Prints the number of findings and at most `most` of them.
pub(crate) fn print_findings<K>(findings: &BTreeSet<(K, String)>, most: usize) {
    println!("  findings                    {}", findings.len());
    for (_, what) in findings.iter().take(most) {
        println!("    {what}");
    }
    if let Some(more @ 1..) = findings.len().checked_sub(most) {
        println!("    and {more} more");
    }
}
