//! The simulated devices: each one connects, sends some readings, and reports that it is ready. Some are late.
//!
//! A device repeats an event under the same id until the server acknowledges it, and only then sends the next one.
//! After a restart it continues with the first event that was not acknowledged.

use std::sync::Arc;
use std::time::Duration;

use abide_client::{Client, ClientError, CloudEvent, EventRoute, RouteAction};
use serde_json::json;
use tokio::task::JoinSet;

use super::activities::device_number;
use super::fleet_ledger::FleetLedger;
use super::{WORKFLOW, WORKFLOW_ID};

const CONNECTED_EVENT: &str = "device.connected";
const READING_EVENT: &str = "device.reading";
const READY_EVENT: &str = "device.ready";
/// The name of the event that the workflow waits for.
const READY_EVENT_NAME: &str = "ExternalProcessComplete";
/// The type of the devices' entities.
pub(super) const ENTITY_TYPE: &str = "device";

#[derive(Debug)]
pub(super) struct Fleet {
    client: Client,
    ledger: Arc<FleetLedger>,
    concurrent_devices: usize,
    /// Devices that an earlier run of the demo left unfinished.
    unfinished: Vec<String>,
    next: u64,
}

/// Publishes the workflow and sets the event routes.
pub(super) async fn publish_example(client: &Client) -> Result<(), ClientError> {
    client.publish(WORKFLOW).await?;
    for (event_type, action, event_name) in [
        (CONNECTED_EVENT, RouteAction::Start, None),
        (READING_EVENT, RouteAction::Record, None),
        (READY_EVENT, RouteAction::Raise, Some(READY_EVENT_NAME)),
    ] {
        let route = EventRoute {
            event_type: String::new(),
            entity_type: ENTITY_TYPE.to_owned(),
            workflow: (action != RouteAction::Record).then(|| WORKFLOW_ID.to_owned()),
            version: None,
            action,
            event_name: event_name.map(str::to_owned),
        };
        client.put_event_route(event_type, &route).await?;
    }
    Ok(())
}

impl Fleet {
    pub(super) fn new(client: Client, ledger: Arc<FleetLedger>, concurrent_devices: usize) -> Self {
        let acknowledged = ledger.acknowledged_by_device();
        let next = acknowledged.keys().map(|device| device_number(device) + 1).max().unwrap_or(0);
        let is_unfinished =
            |(device, count): &(&String, &u64)| **count < Device::events(device_number(device));
        let unfinished =
            acknowledged.iter().filter(is_unfinished).map(|(device, _)| device.clone()).collect();
        Self { client, ledger, concurrent_devices, unfinished, next }
    }

    /// Sends events for ever, with `concurrent_devices` devices at the same time.
    pub(super) async fn run(mut self) {
        let mut devices = JoinSet::new();
        loop {
            while devices.len() < self.concurrent_devices {
                let name = self.unfinished.pop().unwrap_or_else(|| self.new_device());
                let device = Device { name, client: self.client.clone(), ledger: Arc::clone(&self.ledger) };
                devices.spawn(device.run());
            }
            devices.join_next().await;
        }
    }

    fn new_device(&mut self) -> String {
        let name = format!("dev-{:05}", self.next);
        self.next += 1;
        name
    }
}

struct Device {
    name: String,
    client: Client,
    ledger: Arc<FleetLedger>,
}

impl Device {
    /// The number of readings of a device. It differs between devices and is the same in every run of the demo.
    fn readings(number: u64) -> u64 {
        3 + number * 7 % 20
    }

    /// The number of all events of a device: connected, its readings, ready.
    fn events(number: u64) -> u64 {
        Self::readings(number) + 2
    }

    async fn run(self) {
        let number = device_number(&self.name);
        let readings = Self::readings(number);
        let pause = Duration::from_millis(80 + number * 37 % 240);
        for event in self.ledger.acknowledged_of(&self.name)..Self::events(number) {
            if event == 0 {
                self.send(CONNECTED_EVENT, event, json!({"model": "m1"})).await;
            } else if event <= readings {
                tokio::time::sleep(pause).await;
                self.send(READING_EVENT, event, json!({"celsius": 20 + (number + event) % 9})).await;
            } else {
                if number % 9 == 4 {
                    // A late device.
                    tokio::time::sleep(Duration::from_secs(8)).await;
                }
                self.send(READY_EVENT, event, json!({"readings": readings})).await;
            }
        }
    }

    async fn send(&self, kind: &str, number: u64, data: serde_json::Value) {
        let event = CloudEvent::new("/fleet", format!("{}/{number}", self.name), kind)
            .subject(self.name.clone())
            .data(data);
        loop {
            match self.client.send_events(std::slice::from_ref(&event)).await {
                Ok(_) => return self.ledger.record_acknowledged(&self.name),
                // The outcome is unknown, so the event is repeated under the same id.
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }
}
