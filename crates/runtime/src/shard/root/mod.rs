//! The parts of the root: where units of work are merged, and where scanned pages go.

mod merge;
mod scans;
