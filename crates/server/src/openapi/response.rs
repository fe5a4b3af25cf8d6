//! The description of a successful response: status, media type, and the schema of the type that is serialised.

use std::borrow::Cow;

use abide_workflow::{ExecutionId, PlanHash, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::JSON;
use crate::response::{SuccessEnvelope, Text};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseSpec {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Names and descriptions of its headers, besides those of all responses.
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

impl ResponseSpec {
    /// Data in the envelope.
    pub(crate) const fn enveloped<T: JsonSchema + 'static>(status: u16, about: &'static str) -> Self {
        Self { status, about, media_type: JSON, schema: enveloped_schema::<T>, headers: &[] }
    }

    /// JSON without the envelope, for clients that expect none.
    pub(crate) const fn plain<T: JsonSchema + 'static>(status: u16, about: &'static str) -> Self {
        Self { status, about, media_type: JSON, schema: plain_schema::<T>, headers: &[] }
    }

    /// A body that is not JSON.
    pub(crate) const fn text(status: u16, media_type: &'static str, about: &'static str) -> Self {
        Self { status, about, media_type, schema: plain_schema::<String>, headers: &[] }
    }

    pub(crate) const fn with_headers(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }
}

fn enveloped_schema<T: JsonSchema + 'static>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<SuccessEnvelope<'static, T>>()
}

fn plain_schema<T: JsonSchema + 'static>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// The schema of a type that is serialised as its display text.
trait TextSchema {
    fn text_schema() -> Schema {
        json_schema!({"type": "string"})
    }
}

impl<T: TextSchema> JsonSchema for Text<T> {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_schemas: &mut SchemaGenerator) -> Schema {
        T::text_schema()
    }
}

impl TextSchema for Timestamp {
    fn text_schema() -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl TextSchema for PlanHash {
    fn text_schema() -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
    }
}

impl TextSchema for ExecutionId {}
impl TextSchema for semver::Version {}
impl<T: TextSchema> TextSchema for &T {
    fn text_schema() -> Schema {
        T::text_schema()
    }
}
