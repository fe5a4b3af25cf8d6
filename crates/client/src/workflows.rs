//! `/api/workflows`: publishing definitions, and which versions there are.

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::pages::Pages;
use crate::retry::Repeat;

const WORKFLOWS: &str = "/api/workflows";

/// A definition that is published.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Published {
    /// The definition.
    pub id: String,
    /// Its version.
    pub version: String,
    /// The hash of its content.
    pub hash: String,
}

/// A definition as lists show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// The definition.
    pub id: String,
    /// The version a run has unless it asks for another.
    pub default_version: Option<String>,
}

/// A version of a definition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The version.
    pub version: String,
    /// The hash of its content.
    pub hash: String,
    /// Whether a run has it unless it asks for another.
    pub default: bool,
    /// Whether no new run can have it.
    pub retired: bool,
    /// Runs of it that have not ended.
    pub live: u64,
    /// When it was published.
    pub published_at_utc: Timestamp,
}

/// What validation has to say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Validation {
    /// Whether it could be published.
    pub valid: bool,
    /// What was found.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// One finding of validation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// What kind.
    pub code: String,
    /// `error`, `warning` or `note`.
    pub severity: String,
    /// A JSON pointer into the definition.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl Client {
    /// Publishes a definition, given as its JSON text. Publishing it again changes nothing.
    pub fn publish(&self, definition: impl Into<String>) -> Call<Published> {
        let call = Call::new(self, Method::POST, Path::of(WORKFLOWS), Repeat::Safe);
        call.body("application/json", definition.into())
    }

    /// Says what publishing a definition would say, and publishes nothing.
    pub fn validate(&self, definition: impl Into<String>) -> Call<Validation> {
        let call = Call::new(self, Method::POST, Path::of("/api/workflows/validate"), Repeat::Safe);
        call.body("application/json", definition.into())
    }

    /// Lists definitions.
    pub fn workflows(&self) -> Pages<Workflow> {
        Pages::new(self, Path::of(WORKFLOWS))
    }

    /// Shows a definition, in its default version or in this one.
    pub fn workflow(&self, id: &str, version: Option<&str>) -> Call<serde_json::Value> {
        Call::get(self, workflow(id).query("version", version))
    }

    /// Lists the versions of a definition, newest first.
    pub fn versions(&self, id: &str) -> Pages<Version> {
        Pages::new(self, workflow(id).segment("versions"))
    }

    /// Makes a version the one that runs have unless they ask for another.
    pub fn set_default_version(&self, id: &str, version: &str) -> Call<serde_json::Value> {
        let call = Call::new(self, Method::PUT, workflow(id).segment("default"), Repeat::Safe);
        call.json(&json!({"version": version}))
    }

    /// Takes a version out of use. Refused while it is the default or runs of it are live.
    pub fn retire(&self, id: &str, version: &str) -> Call<serde_json::Value> {
        let path = workflow(id).segment("versions").segment(version).segment("retire");
        Call::new(self, Method::POST, path, Repeat::Safe)
    }
}

fn workflow(id: &str) -> Path {
    Path::of(WORKFLOWS).segment(id)
}
