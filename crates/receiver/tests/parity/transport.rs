//! The transports over which an activity can be called.

use std::net::SocketAddr;

use abide_dispatch::remote::{RemoteDeclaration, WireFormat};
use abide_dispatch::{ActivityCategory, ActivityDeclaration};
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParityTransport {
    Local,
    Remote(WireFormat),
}

/// The activity without schemas.
pub(crate) const WORK: &str = "work";
/// The activity with schemas.
pub(crate) const STRICT: &str = "strict";

impl ParityTransport {
    pub(crate) const ALL: [Self; 5] = [
        Self::Local,
        Self::Remote(WireFormat::Rest),
        Self::Remote(WireFormat::Grpc),
        Self::Remote(WireFormat::Protobuf),
        Self::Remote(WireFormat::Envelope),
    ];

    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "LOCAL",
            Self::Remote(WireFormat::Rest) => "REST",
            Self::Remote(WireFormat::Grpc) => "gRPC",
            Self::Remote(WireFormat::Protobuf) => "Protobuf",
            Self::Remote(WireFormat::Envelope) => "envelope",
        }
    }

    /// The name in call records.
    pub(crate) fn recorded_name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote(wire) => wire.as_str(),
        }
    }

    /// The endpoint of an activity at a receiver.
    pub(crate) fn endpoint(self, activity: &str, receiver: SocketAddr) -> Option<String> {
        match self {
            Self::Local => None,
            Self::Remote(WireFormat::Grpc) => Some(format!("http://{receiver}")),
            Self::Remote(_) => Some(format!("http://{receiver}/activities/{activity}")),
        }
    }
}

/// The declarations of both activities, the same over every transport.
pub(crate) fn declarations() -> [ActivityDeclaration; 2] {
    let input = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let strict = ActivityDeclaration::new(STRICT, ActivityCategory::Other)
        .input(input)
        .output(json!({"type": "object"}));
    [ActivityDeclaration::new(WORK, ActivityCategory::Other), strict]
}

/// The declaration of the activity at a remote service.
pub(crate) fn remote(
    activity: &ActivityDeclaration,
    wire: WireFormat,
    receiver: SocketAddr,
    probe: bool,
) -> RemoteDeclaration {
    let mut declaration = json!({
        "name": activity.name, "category": activity.category.as_str(), "transport": wire.as_str(),
        "endpoint": ParityTransport::Remote(wire).endpoint(&activity.name, receiver), "probe": probe,
    });
    for (field, schema) in [("input", &activity.input), ("output", &activity.output)] {
        if let (Value::Object(fields), Some(schema)) = (&mut declaration, schema) {
            fields.insert(field.to_owned(), schema.clone());
        }
    }
    RemoteDeclaration::read(&declaration).unwrap()
}
