//! The interface described: what each route takes and answers, as data, and the OpenAPI document made of it.
//!
//! An [`Operation`] stands beside its handler and is the third part of its route, so there is no route without one and no description
//! without a route. Schemas of answers come from the types that are written; limits of what clients give come from the same [`Field`] that
//! the handler checks them by. Knows nothing of handlers.

mod answer;
mod document;
mod field;
mod operation;

pub(crate) use answer::Answer;
pub(crate) use document::{Described, document};
pub(crate) use field::{Field, Kind};
pub(crate) use operation::{Body, JSON, Operation, Shape};
