//! `/api/routes`: what events of a type are for.

use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::pages::Pages;
use crate::retry::Repeat;

const ROUTES: &str = "/api/routes";

/// What events of one type are for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The type of event; not sent, it is in the path.
    #[serde(default, skip_serializing)]
    pub event_type: String,
    /// The type of the entity that holds them.
    pub entity_type: String,
    /// The definition whose runs they start or reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The range of its versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What is done besides recording them.
    pub action: Action,
    /// The name they are raised under, if not their type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_name: Option<String>,
}

/// What is done with an event besides recording it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Raised to the session's live run; without one, a run is started.
    StartOrRaise,
    /// A run is started if the session has no live one.
    Start,
    /// Raised to the session's live run, if there is one.
    Raise,
    /// Nothing.
    Record,
    /// An action that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Client {
    /// Lists routes.
    pub fn routes(&self) -> Pages<Route> {
        Pages::new(self, Path::of(ROUTES))
    }

    /// Shows the route of a type of event.
    pub fn route(&self, event_type: &str) -> Call<Route> {
        Call::get(self, Path::of(ROUTES).segment(event_type))
    }

    /// Sets the route of a type of event.
    pub fn put_route(&self, event_type: &str, route: &Route) -> Call<Route> {
        Call::new(self, Method::PUT, Path::of(ROUTES).segment(event_type), Repeat::Safe).json(route)
    }

    /// Removes the route of a type of event.
    pub fn delete_route(&self, event_type: &str) -> Call<serde_json::Value> {
        Call::new(self, Method::DELETE, Path::of(ROUTES).segment(event_type), Repeat::Unsafe)
    }
}
