//! The description of the API as data, and the OpenAPI document built from it. Knows nothing about handlers.
//!
//! An [`OperationSpec`] is written beside its handler and is the third part of its route, so there is no route without
//! a description and no description without a route. Schemas of responses come from the serialised types. Limits of
//! request fields come from the same [`Field`] with which the handler checks them.

mod document;
mod field;
mod operation;
mod response;

pub(crate) use document::{DocumentedRoute, document};
pub(crate) use field::{Field, FieldKind};
pub(crate) use operation::{BodyShape, BodySpec, JSON, OperationSpec};
pub(crate) use response::ResponseSpec;
