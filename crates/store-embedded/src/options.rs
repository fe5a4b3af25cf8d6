//! The settings of an embedded store. It does not read them from a file or from the environment. Every default is the
//! safe choice; a weaker one must be set explicitly.

use abide_store::rows::Durability;

/// When a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncMode {
    /// When it is synced to disk: it survives a power cut.
    #[default]
    EveryCommit,
    /// When the operating system has it: it survives a crash of the process, but not a power cut. For tests, and for
    /// data that can be recreated.
    OperatingSystem,
}

impl SyncMode {
    /// The name in the configuration and in the readiness report.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmbeddedOptions {
    /// When a commit is acknowledged.
    pub sync: SyncMode,
    /// Bytes of disk blocks cached in memory.
    pub cache_bytes: u64,
    /// Bytes of new rows buffered in memory before they are written out as a sorted file. Private and public rows each
    /// have up to three such buffers. Fixed when the store is created.
    pub write_buffer_bytes: u64,
    /// Bytes of commits in the committer's queue; further callers wait until there is room.
    pub queue_bytes: usize,
    /// Bytes of disk space that commits leave free, so that the engine seldom meets a full disk in the middle of its
    /// own work.
    pub disk_reserve_bytes: u64,
    /// Opens a store whose journal is damaged by leaving out the damaged commits. The damaged file is kept beside the
    /// journal, as `.damaged`. Loses acknowledged commits, so it is never the default.
    pub salvage: bool,
}

impl Default for EmbeddedOptions {
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
