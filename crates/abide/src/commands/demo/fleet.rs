//! Devices that are made up: each connects, sends readings for a while, and says when it is ready; some are late.
//!
//! A device sends an event until the server says that it has it, always under the same id, and only then the next one. After a restart it goes on
//! with the first event that was not acknowledged to it.

use std::sync::Arc;
use std::time::Duration;

use abide_client::{Action, Client, ClientError, CloudEvent, Route};
use serde_json::json;
use tokio::task::JoinSet;

use super::ledger::Ledger;
use super::work::number_of;
use super::{WORKFLOW, WORKFLOW_ID};

const CONNECTED: &str = "device.connected";
const READING: &str = "device.reading";
const READY: &str = "device.ready";
/// The name the workflow waits for.
const READY_NAME: &str = "ExternalProcessComplete";
/// The type of the devices' entities.
pub(super) const ENTITY: &str = "device";

/// The fleet.
#[derive(Debug)]
pub(super) struct Fleet {
    client: Client,
    ledger: Arc<Ledger>,
    at_once: usize,
    /// Devices that an earlier life left on their way.
    unfinished: Vec<String>,
    next: u64,
}

/// Publishes the workflow and says where events go.
pub(super) async fn prepare(client: &Client) -> Result<(), ClientError> {
    client.publish(WORKFLOW).await?;
    for (event_type, action, event_name) in [
        (CONNECTED, Action::Start, None),
        (READING, Action::Record, None),
        (READY, Action::Raise, Some(READY_NAME)),
    ] {
        let route = Route {
            event_type: String::new(),
            entity_type: ENTITY.to_owned(),
            workflow: (action != Action::Record).then(|| WORKFLOW_ID.to_owned()),
            version: None,
            action,
            event_name: event_name.map(str::to_owned),
        };
        client.put_route(event_type, &route).await?;
    }
    Ok(())
}

impl Fleet {
    pub(super) fn new(client: Client, ledger: Arc<Ledger>, at_once: usize) -> Self {
        let told = ledger.by_device();
        let next = told.keys().map(|device| number_of(device) + 1).max().unwrap_or(0);
        let is_unfinished = |(device, told): &(&String, &u64)| **told < Device::events(number_of(device));
        let unfinished = told.iter().filter(is_unfinished).map(|(device, _)| device.clone()).collect();
        Self { client, ledger, at_once, unfinished, next }
    }

    /// Sends for ever, so many devices at once.
    pub(super) async fn run(mut self) {
        let mut devices = JoinSet::new();
        loop {
            while devices.len() < self.at_once {
                let name = self.unfinished.pop().unwrap_or_else(|| self.new_device());
                let device = Device { name, client: self.client.clone(), ledger: Arc::clone(&self.ledger) };
                devices.spawn(device.live());
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
    ledger: Arc<Ledger>,
}

impl Device {
    /// Readings that a device sends: as different as devices are, and the same every time.
    fn readings(number: u64) -> u64 {
        3 + number * 7 % 20
    }

    /// All events of a device: that it is there, its readings, that it is ready.
    fn events(number: u64) -> u64 {
        Self::readings(number) + 2
    }

    async fn live(self) {
        let number = number_of(&self.name);
        let readings = Self::readings(number);
        let pause = Duration::from_millis(80 + number * 37 % 240);
        for event in self.ledger.told(&self.name)..Self::events(number) {
            if event == 0 {
                self.send(CONNECTED, event, json!({"model": "m1"})).await;
            } else if event <= readings {
                tokio::time::sleep(pause).await;
                self.send(READING, event, json!({"celsius": 20 + (number + event) % 9})).await;
            } else {
                if number % 9 == 4 {
                    // A late one.
                    tokio::time::sleep(Duration::from_secs(8)).await;
                }
                self.send(READY, event, json!({"readings": readings})).await;
            }
        }
    }

    async fn send(&self, kind: &str, number: u64, data: serde_json::Value) {
        let event = CloudEvent::new("/fleet", format!("{}/{number}", self.name), kind)
            .subject(self.name.clone())
            .data(data);
        loop {
            match self.client.send(std::slice::from_ref(&event)).await {
                Ok(_) => return self.ledger.acknowledged(&self.name),
                // Nobody knows whether the server has it: the same again, under the same id.
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }
}
