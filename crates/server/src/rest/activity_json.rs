//! The JSON of an activity: its declaration, the source of the declaration, and its live status.
//!
//! Shows references to secrets, never the secrets.

use abide_dispatch::ActivityDeclaration;
use abide_dispatch::remote::{CircuitState, RemoteActivity, RemoteDeclaration};
use abide_workflow::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::response::Text;

/// An activity that workflows can call.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Activity")]
#[serde(rename_all = "camelCase")]
pub(super) struct ActivityJson {
    pub(super) name: String,
    /// `server` for a built-in activity, `configuration` or `interface` (the API) for a declared one.
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
    /// `local` means in the server itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// The JSON schema of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    /// The JSON schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
    /// The activity that compensates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    compensation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_policy: Option<Value>,
    /// The maximum number of attempts in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_second: Option<f64>,
    /// True if the receiver can be probed for the outcome of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<bool>,
    /// How calls authenticate; secrets by reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<Value>,
    /// The version, if the activity was declared through the API.
    #[serde(flatten)]
    declared: Option<ActivityVersionJson>,
    /// True if this version removed the activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<bool>,
    /// Why it cannot be called with the present configuration of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
    /// The number of attempts in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    under_way: Option<usize>,
    /// The state of the target's circuit breaker: `closed` lets all attempts through, `open` none for a limited time,
    /// `halfOpen` a single trial attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    circuit: Option<&'static str>,
}

/// A version of an activity.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityVersion")]
#[serde(rename_all = "camelCase")]
pub(super) struct ActivityVersionJson {
    pub(super) version: u64,
    pub(super) declared_at_utc: Text<Timestamp>,
}

/// A removed activity, with the version that removed it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RemovedActivity")]
pub(super) struct RemovedActivityJson {
    pub(super) name: String,
    pub(super) version: u64,
}

impl ActivityJson {
    fn new(activity: &ActivityDeclaration, source: &'static str, transport: &'static str) -> Self {
        Self {
            name: activity.name.clone(),
            source,
            category: Some(activity.category.as_str()),
            transport: Some(transport),
            input: activity.input.clone(),
            output: activity.output.clone(),
            compensation: activity.compensation.clone(),
            attempt_timeout: activity.attempt_timeout.clone(),
            retry_policy: activity.retry_policy.clone(),
            ..Self::default()
        }
    }

    /// An activity that is built into the server.
    pub(super) fn built_in(activity: &ActivityDeclaration) -> Self {
        Self::new(activity, "server", "local")
    }

    /// A remote activity of the configuration; [`Self::with_version`] makes it one of the API.
    pub(super) fn remote(remote: &RemoteDeclaration) -> Self {
        let mut declaration = remote.to_json();
        let mut take = |field: &str| declaration.get_mut(field).map(Value::take);
        let auth = take("auth");
        let tls = take("tls");
        Self {
            endpoint: Some(remote.endpoint.clone()),
            concurrency: Some(remote.concurrency.get()),
            rate_per_second: remote.rate_per_second,
            probe: Some(remote.probe),
            auth,
            tls,
            ..Self::new(&remote.activity, "configuration", remote.transport.as_str())
        }
    }

    /// A version that removed its activity.
    pub(super) fn removed(name: &str) -> Self {
        Self { name: name.to_owned(), removed: Some(true), ..Self::default() }
    }

    /// An activity declared through the API whose declaration cannot be read.
    pub(super) fn unreadable(name: &str, reason: String) -> Self {
        Self { name: name.to_owned(), source: "interface", unusable: Some(reason), ..Self::default() }
    }

    /// Adds the version; the source becomes the API.
    pub(super) fn with_version(self, version: ActivityVersionJson) -> Self {
        Self { source: "interface", declared: Some(version), ..self }
    }

    pub(super) fn with_unusable_reason(self, reason: String) -> Self {
        Self { unusable: Some(reason), ..self }
    }

    /// Adds the attempts in flight and the state of the circuit breaker.
    pub(super) fn with_live_status(self, remote: &RemoteActivity) -> Self {
        let circuit = match remote.circuit() {
            CircuitState::Closed => "closed",
            CircuitState::Open => "open",
            CircuitState::HalfOpen => "halfOpen",
        };
        Self { under_way: Some(remote.in_flight()), circuit: Some(circuit), ..self }
    }
}
