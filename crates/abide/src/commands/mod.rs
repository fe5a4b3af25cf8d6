//! The commands, a file each. What a command prints goes to standard output; why it could not, to standard error.

pub(crate) mod fsck;
pub(crate) mod graph;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod validate;

/// Exit codes, the same for all commands.
pub(crate) mod exit {
    /// It is as asked.
    pub(crate) const OK: u8 = 0;
    /// It was looked at and is not: findings of error severity, a failed run.
    pub(crate) const NOT_OK: u8 = 1;
    /// It could not be looked at: unreadable files, unusable arguments.
    pub(crate) const UNUSABLE: u8 = 2;
}
