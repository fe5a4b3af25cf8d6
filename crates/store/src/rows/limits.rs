//! What a backend says of itself: how much it takes, how far it goes before it acknowledges, whether it works.

/// What a backend can take. A value over what one stored cell holds is chunked inside the backend, never above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Rows in one commit, the head included.
    pub commit_rows_max: usize,
    /// Bytes in one commit: keys and values, the head's included.
    pub commit_bytes_max: usize,
    /// Bytes of one value.
    pub value_bytes_max: usize,
    /// Bytes of one key.
    pub key_bytes_max: usize,
}

impl Limits {
    /// What every backend takes, and what the runtime may count on: Azure's 100 entities and 4 MiB of request less the spelling
    /// of binary values in base64, keys of 512 UTF-16 units spelled in a 64-letter alphabet.
    pub const LEAST: Self = Self {
        commit_rows_max: 100,
        commit_bytes_max: 11 * 256 * 1024,
        value_bytes_max: 1024 * 1024,
        key_bytes_max: 384,
    };

    /// What the reference store takes when it plays Azure: the service's own numbers.
    pub const AZURE: Self = Self {
        commit_rows_max: 100,
        commit_bytes_max: 4 * 1024 * 1024,
        value_bytes_max: 1024 * 1024,
        key_bytes_max: 384,
    };

    /// What a backend takes that has no limits of its own: enough for any turn, little enough to bound memory.
    pub const LOCAL: Self = Self {
        commit_rows_max: 4_096,
        commit_bytes_max: 16 * 1024 * 1024,
        value_bytes_max: 4 * 1024 * 1024,
        key_bytes_max: 1_024,
    };

    /// Rows in one page of a scan; a scan that asks for more gets this many and where to go on.
    pub const SCAN_ROWS_MAX: usize = 1_000;

    /// Bytes in one page of a scan. The row that crosses this bound is the last of its page.
    pub const SCAN_BYTES_MAX: usize = 4 * 1024 * 1024;
}

/// What a row has survived once its commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Nothing: it is gone with the process.
    Memory,
    /// The death of the process, not of the machine: given to the operating system, not forced to the disk.
    Written,
    /// A power cut: forced to the disk, or to as many replicas as the service promises.
    Synced,
}

/// What a backend states of itself, for the runtime to plan by and for people to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// What fits.
    pub limits: Limits,
    /// What an acknowledged commit survives.
    pub durability: Durability,
    /// Whether other processes may use the same store at the same time. If not, leases guard against nobody.
    pub shared: bool,
}

/// Whether a backend can be used now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// Reads and commits are answered.
    Usable,
    /// Reads work, commits are refused for now and accepted again by themselves.
    ReadOnly {
        /// Why, in words for an operator.
        reason: String,
    },
    /// Nothing is answered until the store is opened again.
    Unusable {
        /// Why, in words for an operator.
        reason: String,
    },
}
