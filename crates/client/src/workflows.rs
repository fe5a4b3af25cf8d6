//! `/api/workflows`: publishes, validates and lists definitions and their versions.

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::address::ApiPath;
use crate::client::Client;
use crate::pages::Pages;
use crate::request::ClientRequest;
use crate::retry::RetrySafety;

const WORKFLOWS: &str = "/api/workflows";

/// A published version of a definition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublishedVersion {
    /// The id of the definition.
    pub id: String,
    pub version: String,
    /// The hash of its content.
    pub hash: String,
}

/// A definition as lists show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    pub id: String,
    /// The version of runs that do not request another one.
    pub default_version: Option<String>,
}

/// A version of a definition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowVersion {
    pub version: String,
    /// The hash of its content.
    pub hash: String,
    /// True if runs have this version unless they request another one.
    pub default: bool,
    /// True if no new run can have this version.
    pub retired: bool,
    /// Runs of it that have not ended.
    pub live: u64,
    pub published_at_utc: Timestamp,
}

/// The result of validating a definition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Validation {
    /// True if the definition can be published.
    pub valid: bool,
    #[serde(default)]
    pub findings: Vec<ValidationFinding>,
}

/// One finding of validation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ValidationFinding {
    /// The stable code of the rule.
    pub code: String,
    /// `error`, `warning` or `note`.
    pub severity: String,
    /// A JSON pointer into the definition.
    pub pointer: String,
    pub message: String,
    /// How to fix it.
    pub hint: String,
}

impl Client {
    /// Publishes a definition, given as its JSON text. Publishing it again changes nothing.
    pub fn publish(&self, definition: impl Into<String>) -> ClientRequest<PublishedVersion> {
        let request = ClientRequest::new(self, Method::POST, ApiPath::new(WORKFLOWS), RetrySafety::Safe);
        request.body("application/json", definition.into())
    }

    /// Returns the findings of publishing a definition without publishing it.
    pub fn validate(&self, definition: impl Into<String>) -> ClientRequest<Validation> {
        let request = ClientRequest::new(
            self,
            Method::POST,
            ApiPath::new("/api/workflows/validate"),
            RetrySafety::Safe,
        );
        request.body("application/json", definition.into())
    }

    /// Lists the published definitions, page by page.
    pub fn workflows(&self) -> Pages<Workflow> {
        Pages::new(self, ApiPath::new(WORKFLOWS))
    }

    /// Shows a definition, in its default version or in this one.
    pub fn workflow(&self, id: &str, version: Option<&str>) -> ClientRequest<serde_json::Value> {
        ClientRequest::get(self, workflow_path(id).query("version", version))
    }

    /// Lists the versions of a definition, newest first.
    pub fn workflow_versions(&self, id: &str) -> Pages<WorkflowVersion> {
        Pages::new(self, workflow_path(id).segment("versions"))
    }

    /// Sets the version of runs that do not request another one.
    pub fn set_default_version(&self, id: &str, version: &str) -> ClientRequest<serde_json::Value> {
        let request =
            ClientRequest::new(self, Method::PUT, workflow_path(id).segment("default"), RetrySafety::Safe);
        request.json(&json!({"version": version}))
    }

    /// Retires a version. The server refuses this while the version is the default or runs of it are live.
    pub fn retire_version(&self, id: &str, version: &str) -> ClientRequest<serde_json::Value> {
        let path = workflow_path(id).segment("versions").segment(version).segment("retire");
        ClientRequest::new(self, Method::POST, path, RetrySafety::Safe)
    }
}

fn workflow_path(id: &str) -> ApiPath {
    ApiPath::new(WORKFLOWS).segment(id)
}
