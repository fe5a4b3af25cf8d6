//! What a rig has found, told at the end of its report.

use std::collections::BTreeSet;

/// Tells how many there are, and so many of them at most.
pub(crate) fn tell<K>(findings: &BTreeSet<(K, String)>, most: usize) {
    println!("  findings                    {}", findings.len());
    for (_, what) in findings.iter().take(most) {
        println!("    {what}");
    }
    if let Some(more @ 1..) = findings.len().checked_sub(most) {
        println!("    and {more} more");
    }
}
