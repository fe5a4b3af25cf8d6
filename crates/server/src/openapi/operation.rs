//! What one route takes and what it may answer.

use super::{Answer, Field};

/// The description of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Its name for generated clients; no two are the same.
    pub(crate) id: &'static str,
    /// The chapter it belongs to.
    pub(crate) tag: &'static str,
    /// One sentence.
    pub(crate) about: &'static str,
    /// The parts of its path, in order.
    pub(crate) path: &'static [Field],
    /// What the query may have; anything else is refused.
    pub(crate) query: &'static [Field],
    /// Headers it looks at, besides the one that all have.
    pub(crate) headers: &'static [Field],
    /// What it reads.
    pub(crate) body: Option<Body>,
    /// What it answers when it does as it was asked.
    pub(crate) answers: &'static [Answer],
    /// With which statuses it may refuse, besides those that every route may refuse with.
    pub(crate) refuses: &'static [u16],
}

/// A request's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) required: bool,
    pub(crate) about: &'static str,
    /// Its kinds: media type and shape.
    pub(crate) kinds: &'static [(&'static str, Shape)],
}

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// An object with these fields and no others.
    Fields(&'static [Field]),
    /// Any JSON at all.
    Any,
    /// As this JSON schema says.
    Schema(&'static str),
}

/// The media type of nearly everything.
pub(crate) const JSON: &str = "application/json";

impl Operation {
    /// An operation that takes nothing and answers nothing, to begin a description with.
    pub(crate) const NONE: Self = Self {
        id: "",
        tag: "",
        about: "",
        path: &[],
        query: &[],
        headers: &[],
        body: None,
        answers: &[],
        refuses: &[],
    };
}
