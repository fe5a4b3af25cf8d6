//! The activities of the example as Rust functions. They record their effect once per idempotency key, and some fail on
//! purpose.

use std::sync::Arc;
use std::time::Duration;

use abide_server::{ActivityCategory, ActivityDeclaration, CallFailure, LocalInvocation, ServerBuilder};
use serde_json::{Value, json};

use super::fleet_ledger::FleetLedger;

#[derive(Clone, Debug)]
pub(super) struct DemoActivities {
    ledger: Arc<FleetLedger>,
}

/// Name and category of each activity, as in the example's activities.json.
const ACTIVITIES: [(&str, ActivityCategory); 8] = [
    ("CreateOnboardingRecord", ActivityCategory::Database),
    ("RollbackOnboardingRecord", ActivityCategory::Database),
    ("ProcessDeviceEvents", ActivityCategory::Database),
    ("UndoDeviceProcessing", ActivityCategory::Database),
    ("UpdateExternalSystem", ActivityCategory::ExternalApi),
    ("RevertExternalSystemUpdate", ActivityCategory::ExternalApi),
    ("CompleteOnboardingRecord", ActivityCategory::Database),
    ("NotifyOnboardingFailure", ActivityCategory::Messaging),
];
/// How long an activity takes.
const WORK_DURATION: Duration = Duration::from_millis(40);

impl DemoActivities {
    pub(super) fn new(ledger: Arc<FleetLedger>) -> Self {
        Self { ledger }
    }

    pub(super) fn register(&self, mut builder: ServerBuilder) -> ServerBuilder {
        for (name, category) in ACTIVITIES {
            let activities = self.clone();
            let declaration = ActivityDeclaration::new(name, category);
            builder = builder.activity(declaration, move |call| activities.clone().run_activity(name, call));
        }
        builder
    }

    async fn run_activity(
        self,
        name: &'static str,
        call: LocalInvocation,
    ) -> Result<Arc<Value>, CallFailure> {
        tokio::time::sleep(WORK_DURATION).await;
        let input = &call.input;
        let text = |field: &str| input.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        // The systems of every seventh device refuse it permanently. Those of every fifth do not respond at first.
        let device = text("entityId");
        let number = device_number(&device);
        if name == "UpdateExternalSystem" && number % 7 == 3 {
            return Err(CallFailure::permanent(
                "DeviceRefused",
                format!("the systems of {device} refuse it"),
            ));
        }
        if name == "UpdateExternalSystem" && number % 5 == 1 && call.metadata.retry_attempt == 0 {
            return Err(CallFailure::retryable(
                "Unreachable",
                format!("the systems of {device} do not answer"),
            ));
        }
        self.ledger.record_effect(&call.metadata.idempotency_key);
        Ok(Arc::new(match name {
            "CreateOnboardingRecord" => json!(format!("record-{device}")),
            "ProcessDeviceEvents" => {
                let events = input.get("events").and_then(Value::as_array).map_or(0, Vec::len);
                json!({"batchId": format!("batch-{}", text("recordId")), "processed": events})
            }
            "UpdateExternalSystem" => json!(format!("ext-{device}")),
            _ => Value::Null,
        }))
    }
}

/// The number at the end of a device's name.
pub(super) fn device_number(device: &str) -> u64 {
    device.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
