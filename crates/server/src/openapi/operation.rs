//! The description of one API route: its parameters, its body and its responses.

use super::{Field, ResponseSpec};

#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationSpec {
    /// The operation's name for generated clients; unique.
    pub(crate) id: &'static str,
    /// The chapter of the document.
    pub(crate) tag: &'static str,
    /// The summary, in one sentence.
    pub(crate) about: &'static str,
    /// The path parameters, in order.
    pub(crate) path: &'static [Field],
    /// The query parameters; any other parameter is rejected.
    pub(crate) query: &'static [Field],
    /// The headers it reads, besides the correlation id.
    pub(crate) headers: &'static [Field],
    pub(crate) body: Option<BodySpec>,
    /// The responses other than errors.
    pub(crate) responses: &'static [ResponseSpec],
    /// Its error statuses, besides those that every route may return.
    pub(crate) error_statuses: &'static [u16],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BodySpec {
    pub(crate) required: bool,
    pub(crate) about: &'static str,
    /// Media types with their shapes.
    pub(crate) content: &'static [(&'static str, BodyShape)],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyShape {
    /// An object with these fields and no others.
    Fields(&'static [Field]),
    /// Any JSON at all.
    Any,
    /// JSON that matches this schema.
    Schema(&'static str),
}

pub(crate) const JSON: &str = "application/json";

impl OperationSpec {
    /// The base of a description, for struct update syntax.
    pub(crate) const EMPTY: Self = Self {
        id: "",
        tag: "",
        about: "",
        path: &[],
        query: &[],
        headers: &[],
        body: None,
        responses: &[],
        error_statuses: &[],
    };
}
