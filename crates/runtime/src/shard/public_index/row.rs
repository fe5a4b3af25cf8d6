//! Converts an instance row into its public row. Knows neither markers nor revisions.

use abide_store::tables::instances::{InstanceRow, RunStatus};
use abide_store::tables::public_instances::PublicInstanceRow;
use abide_workflow::InstanceId;

/// The most bytes of an error message in a public row.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The public row of a run with this status. The reason why a run is parked stands in for its error.
pub(super) fn public_instance(
    id: &InstanceId,
    row: &InstanceRow,
    status: &str,
    error: Option<String>,
) -> PublicInstanceRow {
    let parked = row.park_reason.as_ref().map(|reason| error_text("Parked", reason, None));
    PublicInstanceRow {
        run_number: row.run_number,
        instance_id: id.as_str().to_owned(),
        execution_id: format!("{id}/{}", row.run_number),
        workflow: row.definition_id.clone(),
        version: row.version.clone(),
        status: status.to_owned(),
        correlation_id: row.correlation_id.clone(),
        entity_id: row.entity_id.clone(),
        created_at: row.created_at,
        updated_at: row.updated_at,
        error: parked.or(error),
    }
}

/// A failure, as the public row shows it.
pub(in crate::shard) fn error_text(code: &str, message: &str, state: Option<&str>) -> String {
    let message = match message.get(..message.floor_char_boundary(MESSAGE_BYTES_MAX)) {
        Some(cut) if cut.len() < message.len() => format!("{cut}…"),
        _ => message.to_owned(),
    };
    let mut error = serde_json::json!({"code": code, "message": message});
    if let (Some(state), Some(error)) = (state, error.as_object_mut()) {
        error.insert("state".to_owned(), state.into());
    }
    error.to_string()
}

pub(in crate::shard) fn status_text(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Pending => "Pending",
        RunStatus::Running => "Running",
        RunStatus::Suspended => "Suspended",
        RunStatus::Completed => "Completed",
        RunStatus::Failed => "Failed",
        RunStatus::Terminated => "Terminated",
        RunStatus::Parked => "Parked",
        RunStatus::Purged => "Purged",
    }
}
