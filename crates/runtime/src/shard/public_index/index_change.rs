//! A change of the public index, as units of work carry it: the write, and the marker that makes it survive a crash.
//!
//! Only data: [`public_index`](crate::shard::public_index) applies it.

use abide_ids::{RunId, Sequence};
use abide_store::public::{PublicWrite, TableSchema};
use abide_store::rows::Key;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::outbox::{self, PUBLIC_INDEX_TARGET};
use abide_store::tables::public_instances;

/// Identifies a marker among the outbox rows: by the id of its run, or by a sequence number for a dead letter. The
/// shard counts both with one sequence, so they never collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::shard) struct MarkerId(pub(in crate::shard) Sequence);

impl MarkerId {
    pub(in crate::shard) fn of_run(run_id: RunId) -> Self {
        Self(Sequence(run_id.0))
    }

    pub(in crate::shard) fn of_dead_letter(number: Sequence) -> Self {
        Self(number)
    }

    /// The marker with this number in the key of its row.
    pub(in crate::shard) fn from_row(number: Sequence) -> Self {
        Self(number)
    }

    /// The run that the marker is for, if its content says that it is for one.
    pub(in crate::shard) fn run_id(self) -> RunId {
        RunId(self.0.0)
    }

    pub(in crate::shard) fn row_key(self) -> Key {
        outbox::key(PUBLIC_INDEX_TARGET, self.0)
    }
}

/// A write to a public table.
#[derive(Clone, Debug)]
pub(in crate::shard) struct IndexWrite {
    pub(in crate::shard) table: &'static TableSchema,
    pub(in crate::shard) write: PublicWrite,
    pub(in crate::shard) revision: u64,
    /// The run, if this is its last state. Its retention starts when the row is written.
    pub(in crate::shard) ended: Option<EndedRun>,
}

impl IndexWrite {
    pub(in crate::shard) fn of_run(write: PublicWrite, revision: u64, ended: Option<EndedRun>) -> Self {
        Self { table: &public_instances::SCHEMA, write, revision, ended }
    }
}

/// A change of the public index in a unit of work.
#[derive(Debug)]
pub(in crate::shard) struct IndexChange {
    pub(in crate::shard) marker: MarkerId,
    /// The row of the marker, if one is needed.
    pub(in crate::shard) marker_row: Vec<u8>,
    pub(in crate::shard) marker_needed: MarkerNeeded,
    pub(in crate::shard) item: IndexWrite,
}

/// Whether a change writes its marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum MarkerNeeded {
    Always,
    /// Any marker of the run will do.
    UnlessPresent,
    /// A run that is being removed is not removed again, and the whole change is dropped.
    UnlessRemoved,
    /// The marker was recovered.
    Never,
}
