//! An activity as clients see it: what is declared of it, who says so, and how it is doing.
//!
//! References to secrets are shown, never what they lead to.

use abide_dispatch::Declaration;
use abide_dispatch::remote::{Circuit, Remote, RemoteDeclaration};
use abide_workflow::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::envelope::Text;

/// An activity.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Activity")]
#[serde(rename_all = "camelCase")]
pub(super) struct ActivityJson {
    pub(super) name: String,
    /// `server` if it is a part of the server, `configuration` or `interface` if it was declared there.
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
    /// `local` is in the server itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// What its input must be, a JSON schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    /// What its result will be, a JSON schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
    /// The activity that undoes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    compensation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_policy: Option<Value>,
    /// Deliveries under way at once, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_second: Option<f64>,
    /// Whether it can be asked what became of a delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<bool>,
    /// How calls show who they come from; secrets by reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<Value>,
    /// Which version, and since when, if it was declared by this interface.
    #[serde(flatten)]
    declared: Option<VersionJson>,
    /// Whether the version took the activity away.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<bool>,
    /// Why it cannot be called as the server is configured now.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
    /// Deliveries under way now.
    #[serde(skip_serializing_if = "Option::is_none")]
    under_way: Option<usize>,
    /// Whether its target is asked: `closed` by everybody, `open` by nobody for a while, `halfOpen` by one delivery to see.
    #[serde(skip_serializing_if = "Option::is_none")]
    circuit: Option<&'static str>,
}

/// A version of an activity.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityVersion")]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionJson {
    pub(super) version: u64,
    pub(super) declared_at_utc: Text<Timestamp>,
}

/// An activity that was taken away, and the version that says so.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RemovedActivity")]
pub(super) struct RemovedJson {
    pub(super) name: String,
    pub(super) version: u64,
}

impl ActivityJson {
    fn of(activity: &Declaration, source: &'static str, transport: &'static str) -> Self {
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

    /// One that is a part of the server.
    pub(super) fn of_server(activity: &Declaration) -> Self {
        Self::of(activity, "server", "local")
    }

    /// One that another service runs; by the configuration, unless it is [declared](Self::declared).
    pub(super) fn of_remote(remote: &RemoteDeclaration) -> Self {
        let mut written = remote.to_json();
        let mut take = |field: &str| written.get_mut(field).map(Value::take);
        let (auth, tls) = (take("auth"), take("tls"));
        Self {
            endpoint: Some(remote.endpoint.clone()),
            concurrency: Some(remote.concurrency.get()),
            rate_per_second: remote.rate_per_second,
            probe: Some(remote.probe),
            auth,
            tls,
            ..Self::of(&remote.activity, "configuration", remote.transport.as_str())
        }
    }

    /// One of which a version says that it is gone.
    pub(super) fn removed(name: &str) -> Self {
        Self { name: name.to_owned(), removed: Some(true), ..Self::default() }
    }

    /// One that was declared by this interface in a way that nobody can read.
    pub(super) fn unreadable(name: &str, reason: String) -> Self {
        Self { name: name.to_owned(), source: "interface", unusable: Some(reason), ..Self::default() }
    }

    /// With the version of it.
    pub(super) fn declared(self, version: VersionJson) -> Self {
        Self { source: "interface", declared: Some(version), ..self }
    }

    /// With why it cannot be called.
    pub(super) fn unusable(self, reason: String) -> Self {
        Self { unusable: Some(reason), ..self }
    }

    /// With how it is doing.
    pub(super) fn in_force(self, remote: &Remote) -> Self {
        let circuit = match remote.circuit() {
            Circuit::Closed => "closed",
            Circuit::Open => "open",
            Circuit::HalfOpen => "halfOpen",
        };
        Self { under_way: Some(remote.under_way()), circuit: Some(circuit), ..self }
    }
}
