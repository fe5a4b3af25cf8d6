//! The commands, a file each. What a command prints goes to standard output; why it could not, to standard error.

pub(crate) mod backup;
pub(crate) mod completions;
pub(crate) mod conform;
pub(crate) mod demo;
pub(crate) mod dispatches;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod entity;
pub(crate) mod fsck;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod list;
pub(crate) mod orders;
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
    /// It is as asked.
    pub(crate) const OK: u8 = 0;
    /// It was looked at and is not: findings of error severity, a failed run, a request that the server refused.
    pub(crate) const NOT_OK: u8 = 1;
    /// It could not be looked at: unreadable files, unusable arguments.
    pub(crate) const UNUSABLE: u8 = 2;
    /// The server could not be reached, or did not answer in time, or is none.
    pub(crate) const UNREACHABLE: u8 = 3;
    /// The run goes on: it has not ended within `--wait`.
    pub(crate) const GOES_ON: u8 = 4;
}
