//! The declarations of a backend about itself: its limits, its durability and its health.
//!
//! Nothing is enforced here: [`super::Batch::check`] and the backends do that.

/// The limits of a backend. A value too large for one stored cell is chunked inside the backend, never above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreLimits {
    /// Rows in one commit, the head included.
    pub commit_rows_max: usize,
    /// Bytes in one commit: keys and values, the head's included.
    pub commit_bytes_max: usize,
    /// Bytes of one value.
    pub value_bytes_max: usize,
    /// Bytes of one key.
    pub key_bytes_max: usize,
}

impl StoreLimits {
    /// The limits that every backend meets and the runtime may rely on: Azure's 100 entities and its 4 MiB per request,
    /// less the overhead of binary values in base64; keys of 512 UTF-16 units, encoded in an alphabet of 64 letters.
    pub const GUARANTEED: Self = Self {
        commit_rows_max: 100,
        commit_bytes_max: 11 * 256 * 1024,
        value_bytes_max: 1024 * 1024,
        key_bytes_max: 384,
    };

    /// The limits of the reference store when it imitates Azure: the service's own numbers.
    pub const AZURE: Self = Self {
        commit_rows_max: 100,
        commit_bytes_max: 4 * 1024 * 1024,
        value_bytes_max: 1024 * 1024,
        key_bytes_max: 384,
    };

    /// The limits of a backend that has none of its own: enough for any turn, small enough to bound memory.
    pub const LOCAL: Self = Self {
        commit_rows_max: 4_096,
        commit_bytes_max: 16 * 1024 * 1024,
        value_bytes_max: 4 * 1024 * 1024,
        key_bytes_max: 1_024,
    };

    /// Rows in one page of a scan. A scan with a higher limit gets this many rows and the scan of the rest.
    pub const SCAN_ROWS_MAX: usize = 1_000;

    /// Bytes in one page of a scan. The row that crosses this limit is the last of its page.
    pub const SCAN_BYTES_MAX: usize = 4 * 1024 * 1024;
}

/// The failures that an acknowledged commit survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// None: the rows are lost when the process ends.
    Memory,
    /// A crash of the process, not of the machine: the commit was handed to the operating system, not synced to disk.
    Written,
    /// A power cut: the commit was synced to disk, or to as many replicas as the service promises.
    Synced,
}

/// The properties of a backend, for the runtime to plan with and for operators to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    pub limits: StoreLimits,
    pub durability: Durability,
    /// Other processes may use the same store at the same time. If not, leases have no other process to guard against.
    pub shared: bool,
}

/// The present state of a backend. Reasons are texts for an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreHealth {
    /// Reads and commits work.
    Usable,
    /// Reads work. Commits are rejected for now; the store accepts them again without intervention.
    ReadOnly { reason: String },
    /// Neither reads nor commits work until the store is reopened.
    Unusable { reason: String },
}
