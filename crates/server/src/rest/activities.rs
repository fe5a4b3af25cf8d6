//! `GET /api/activities`: what definitions may name in their tasks.

use abide_runtime::hands::Store;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::page::{self, LIMIT, PageJson, TOKEN};
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Operation};

const QUERY: [Field; 2] = [LIMIT, TOKEN];

pub(super) const LIST: Operation = Operation {
    id: "listActivities",
    tag: "Activities",
    about: "Lists the activities that definitions may name, by name.",
    query: &QUERY,
    answers: &[Answer::data::<PageJson<ActivityJson>>(200, "A page of activities.")],
    ..Operation::NONE
};

/// An activity.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Activity")]
#[serde(rename_all = "camelCase")]
struct ActivityJson {
    name: String,
    category: String,
    /// How it is called; `LOCAL` is in the server itself.
    transport: &'static str,
    /// What its input must be, a JSON schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
    /// What its result will be, a JSON schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    /// The activity that undoes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    compensation: Option<String>,
}

/// As validation reads them.
#[derive(Deserialize)]
struct Registered {
    activities: Vec<RegisteredActivity>,
}

#[derive(Deserialize)]
struct RegisteredActivity {
    name: String,
    category: String,
    input: Option<Value>,
    output: Option<Value>,
    compensation: Option<String>,
}

/// Lists activities.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [limit, from] = asked.parameters(&QUERY)?;
    let limit = LIMIT.count(limit.as_deref())?;
    let registered: Registered =
        serde_json::from_str(app.registry()).map_err(|error| ApiError::internal(&error))?;
    let mut activities = registered.activities;
    activities.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    activities.retain(|activity| from.as_deref().is_none_or(|from| activity.name.as_str() >= from));
    let continuation_token = page::cut(&mut activities, limit, |activity| activity.name.clone());
    let items = activities.into_iter().map(ActivityJson::of).collect();
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

impl ActivityJson {
    fn of(activity: RegisteredActivity) -> Self {
        let RegisteredActivity { name, category, input, output, compensation } = activity;
        Self { name, category, transport: "LOCAL", input_schema: input, output_schema: output, compensation }
    }
}
