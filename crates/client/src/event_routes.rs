//! `/api/routes`: lists, shows, sets and removes event routes.

use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::address::ApiPath;
use crate::client::Client;
use crate::pages::Pages;
use crate::request::ClientRequest;
use crate::retry::RetrySafety;

const ROUTES: &str = "/api/routes";

/// The handling of events of one type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRoute {
    /// The event type. It is part of the path, so requests do not repeat it in the body.
    #[serde(default, skip_serializing)]
    pub event_type: String,
    /// The type of the entity that records the events.
    pub entity_type: String,
    /// The definition whose runs the events start or reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// A version range for runs that are started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub action: RouteAction,
    /// The name the events are raised under. Without it, their type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_name: Option<String>,
}

/// The action on an event, in addition to recording it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RouteAction {
    /// The event is raised in the session's live run. Without one, a run is started.
    StartOrRaise,
    /// A run is started if the session has no live one.
    Start,
    /// The event is raised in the session's live run, if there is one.
    Raise,
    /// The event is only recorded.
    Record,
    /// An action that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Client {
    /// Lists event routes.
    pub fn event_routes(&self) -> Pages<EventRoute> {
        Pages::new(self, ApiPath::new(ROUTES))
    }

    /// Shows the route of an event type.
    pub fn event_route(&self, event_type: &str) -> ClientRequest<EventRoute> {
        ClientRequest::get(self, ApiPath::new(ROUTES).segment(event_type))
    }

    /// Sets the route of an event type.
    pub fn put_event_route(&self, event_type: &str, route: &EventRoute) -> ClientRequest<EventRoute> {
        ClientRequest::new(self, Method::PUT, ApiPath::new(ROUTES).segment(event_type), RetrySafety::Safe)
            .json(route)
    }

    /// Removes the route of an event type.
    pub fn delete_event_route(&self, event_type: &str) -> ClientRequest<serde_json::Value> {
        ClientRequest::new(
            self,
            Method::DELETE,
            ApiPath::new(ROUTES).segment(event_type),
            RetrySafety::Unsafe,
        )
    }
}
