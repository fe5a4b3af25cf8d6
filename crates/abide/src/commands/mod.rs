//! The commands, one file each. Results go to standard output, errors to standard error.

pub(crate) mod backup;
pub(crate) mod completions;
pub(crate) mod conform;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod dispatches;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod entity;
pub(crate) mod fsck;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod list;
pub(crate) mod publish;
pub(crate) mod purge;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod stuck;
pub(crate) mod validate;
pub(crate) mod workflows;

/// Exit codes, the same for all commands.
pub(crate) mod exit {
    /// The result is as requested.
    pub(crate) const OK: u8 = 0;
    /// The command ran, but the result is negative: error findings, a failed run, a request that the server refused.
    pub(crate) const FAILED: u8 = 1;
    /// The command could not run: unreadable files, unusable arguments.
    pub(crate) const USAGE_ERROR: u8 = 2;
    /// The server could not be reached, did not respond in time, or is not an Abide server.
    pub(crate) const UNREACHABLE: u8 = 3;
    /// The run has not ended within `--wait`.
    pub(crate) const STILL_RUNNING: u8 = 4;
}
