//! What a route answers when it does as it was asked: status, media type, and the schema of the very type that is written.

use std::borrow::Cow;

use abide_workflow::{ExecutionId, PlanHash, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::JSON;
use crate::envelope::{Succeeded, Text};

/// An answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) media: &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Headers it has besides those that all answers have, and what they say.
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

impl Answer {
    /// Data in the envelope.
    pub(crate) const fn data<T: JsonSchema + 'static>(status: u16, about: &'static str) -> Self {
        Self { status, about, media: JSON, schema: enveloped::<T>, headers: &[] }
    }

    /// JSON without the envelope, for clients that expect it so.
    pub(crate) const fn bare<T: JsonSchema + 'static>(status: u16, about: &'static str) -> Self {
        Self { status, about, media: JSON, schema: bare::<T>, headers: &[] }
    }

    /// Something that is not JSON.
    pub(crate) const fn text(status: u16, media: &'static str, about: &'static str) -> Self {
        Self { status, about, media, schema: bare::<String>, headers: &[] }
    }

    /// The same answer, with these headers.
    pub(crate) const fn with(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }
}

fn enveloped<T: JsonSchema + 'static>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<Succeeded<'static, T>>()
}

fn bare<T: JsonSchema + 'static>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// What the text of a type looks like, where it is written as its text.
trait Spelled {
    fn spelled() -> Schema {
        json_schema!({"type": "string"})
    }
}

impl<T: Spelled> JsonSchema for Text<T> {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_schemas: &mut SchemaGenerator) -> Schema {
        T::spelled()
    }
}

impl Spelled for Timestamp {
    fn spelled() -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl Spelled for PlanHash {
    fn spelled() -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
    }
}

impl Spelled for ExecutionId {}
impl Spelled for semver::Version {}
impl<T: Spelled> Spelled for &T {
    fn spelled() -> Schema {
        T::spelled()
    }
}
