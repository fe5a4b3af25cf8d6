//! The ways to an activity.

use std::net::SocketAddr;

use abide_dispatch::remote::{RemoteDeclaration, Wire};
use abide_dispatch::{Category, Declaration};
use serde_json::{Value, json};

/// One way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// In process.
    Local,
    /// At another service.
    Remote(Wire),
}

/// The activity without schemas, and the one with.
pub(crate) const WORK: &str = "work";
pub(crate) const STRICT: &str = "strict";

impl Over {
    pub(crate) const ALL: [Self; 5] = [
        Self::Local,
        Self::Remote(Wire::Rest),
        Self::Remote(Wire::Grpc),
        Self::Remote(Wire::Protobuf),
        Self::Remote(Wire::Envelope),
    ];

    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "LOCAL",
            Self::Remote(Wire::Rest) => "REST",
            Self::Remote(Wire::Grpc) => "gRPC",
            Self::Remote(Wire::Protobuf) => "Protobuf",
            Self::Remote(Wire::Envelope) => "envelope",
        }
    }

    /// As records of calls have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote(wire) => wire.as_str(),
        }
    }

    /// Where an activity is at a receiver.
    pub(crate) fn endpoint(self, activity: &str, receiver: SocketAddr) -> Option<String> {
        match self {
            Self::Local => None,
            Self::Remote(Wire::Grpc) => Some(format!("http://{receiver}")),
            Self::Remote(_) => Some(format!("http://{receiver}/activities/{activity}")),
        }
    }
}

/// What definitions see of both activities, the same over every way.
pub(crate) fn declarations() -> [Declaration; 2] {
    let input = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let strict = Declaration::new(STRICT, Category::Other).input(input).output(json!({"type": "object"}));
    [Declaration::new(WORK, Category::Other), strict]
}

/// The same activity at another service.
pub(crate) fn remote(
    activity: &Declaration,
    wire: Wire,
    receiver: SocketAddr,
    probe: bool,
) -> RemoteDeclaration {
    let mut declared = json!({
        "name": activity.name, "category": activity.category.as_str(), "transport": wire.as_str(),
        "endpoint": Over::Remote(wire).endpoint(&activity.name, receiver), "probe": probe,
    });
    for (field, schema) in [("input", &activity.input), ("output", &activity.output)] {
        if let (Value::Object(fields), Some(schema)) = (&mut declared, schema) {
            fields.insert(field.to_owned(), schema.clone());
        }
    }
    RemoteDeclaration::read(&declared).unwrap()
}
