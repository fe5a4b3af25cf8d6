//! The commands that talk to a server, against a real server: text output, JSON output and exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod backups;
mod control;
mod dispatches;
mod doctor;
mod entities;
mod errors;
mod lists;
mod runs;
mod testbed;
mod versions;
mod workflows;
