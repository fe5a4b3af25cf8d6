//! The example's activities, as Rust functions: they note their effect once per key, and some fail on purpose.

use std::sync::Arc;
use std::time::Duration;

use abide_server::{Builder, Category, Declaration, Failure, Invocation};
use serde_json::{Value, json};

use super::ledger::Ledger;

/// The activities.
#[derive(Clone, Debug)]
pub(super) struct Works {
    ledger: Arc<Ledger>,
}

/// Name and category of each activity, as the example's activities.json has them.
const ACTIVITIES: [(&str, Category); 8] = [
    ("CreateOnboardingRecord", Category::Database),
    ("RollbackOnboardingRecord", Category::Database),
    ("ProcessDeviceEvents", Category::Database),
    ("UndoDeviceProcessing", Category::Database),
    ("UpdateExternalSystem", Category::ExternalApi),
    ("RevertExternalSystemUpdate", Category::ExternalApi),
    ("CompleteOnboardingRecord", Category::Database),
    ("NotifyOnboardingFailure", Category::Messaging),
];
/// How long a piece of work takes.
const WORK: Duration = Duration::from_millis(40);

impl Works {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger }
    }

    /// Registers them.
    pub(super) fn register(&self, mut builder: Builder) -> Builder {
        for (name, category) in ACTIVITIES {
            let works = self.clone();
            let declaration = Declaration::new(name, category);
            builder = builder.activity(declaration, move |call| works.clone().work(name, call));
        }
        builder
    }

    async fn work(self, name: &'static str, call: Invocation) -> Result<Arc<Value>, Failure> {
        tokio::time::sleep(WORK).await;
        let input = &call.input;
        let text = |field: &str| input.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        // Every seventh device's systems refuse it for good; every fifth one's do not answer at first.
        let device = text("entityId");
        let number = number_of(&device);
        if name == "UpdateExternalSystem" && number % 7 == 3 {
            return Err(Failure::for_good("DeviceRefused", format!("the systems of {device} refuse it")));
        }
        if name == "UpdateExternalSystem" && number % 5 == 1 && call.metadata.retry_attempt == 0 {
            return Err(Failure::retryable("Unreachable", format!("the systems of {device} do not answer")));
        }
        self.ledger.effect(&call.metadata.idempotency_key);
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

/// The number in a device's name.
pub(super) fn number_of(device: &str) -> u64 {
    device.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
