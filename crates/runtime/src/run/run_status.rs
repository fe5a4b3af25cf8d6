//! The status of a run in its row. The interpreter's statuses are mapped to it here, and nowhere else.

use abide_store::tables::instances::RunStatus;
use abide_workflow::Status;

/// The status of a run as its row stores it.
pub(crate) fn row_status(status: Status) -> RunStatus {
    match status {
        Status::Pending => RunStatus::Pending,
        Status::Running => RunStatus::Running,
        Status::Suspended => RunStatus::Suspended,
        Status::Completed | Status::ContinuedAsNew => RunStatus::Completed,
        Status::Failed | Status::Canceled => RunStatus::Failed,
        Status::Terminated => RunStatus::Terminated,
    }
}

/// Returns whether a run with this status has ended, so that the instance can start another one. A parked run has not.
pub(crate) fn is_terminal(status: RunStatus) -> bool {
    use RunStatus::{Completed, Failed, Parked, Pending, Purged, Running, Suspended, Terminated};
    match status {
        Completed | Failed | Terminated | Purged => true,
        Pending | Running | Suspended | Parked => false,
    }
}
