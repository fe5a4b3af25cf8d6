//! How an embedded store is run. Every default is the safe one; what is weaker has to be named.

use abide_store::rows::Durability;

/// When a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncMode {
    /// When it is forced to the disk: it survives a power cut.
    #[default]
    EveryCommit,
    /// When the operating system has it: it survives the death of the process and is lost in a power cut. For tests and for data
    /// that can be made again.
    OperatingSystem,
}

impl SyncMode {
    /// The name that configuration uses, and that readiness shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::EveryCommit => "every-commit",
            Self::OperatingSystem => "operating-system",
        }
    }

    pub(crate) fn durability(self) -> Durability {
        match self {
            Self::EveryCommit => Durability::Synced,
            Self::OperatingSystem => Durability::Written,
        }
    }
}

/// Settings of an embedded store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// When a commit is acknowledged.
    pub sync: SyncMode,
    /// Bytes of disk blocks kept in memory.
    pub cache_bytes: u64,
    /// Bytes of new rows kept in memory before they are written out as a sorted file. Private and public rows each have up to three
    /// such buffers. Fixed when the store is made.
    pub write_buffer_bytes: u64,
    /// Bytes of commits that may wait for the committer; more wait outside.
    pub queue_bytes: usize,
    /// Bytes of disk space that commits leave free, so that the engine seldom meets a full disk in the middle of its own work.
    pub disk_reserve_bytes: u64,
    /// Open a store whose journal is damaged by leaving out the damaged commits; the damaged file is kept beside it, as `.damaged`.
    /// Loses what was acknowledged; never by default.
    pub salvage: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sync: SyncMode::EveryCommit,
            cache_bytes: 64 * 1024 * 1024,
            write_buffer_bytes: 32 * 1024 * 1024,
            queue_bytes: 64 * 1024 * 1024,
            disk_reserve_bytes: 256 * 1024 * 1024,
            salvage: false,
        }
    }
}
