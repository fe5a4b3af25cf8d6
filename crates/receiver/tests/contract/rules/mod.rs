//! The rules, by what they are about. Each takes a wire and knows nothing else of it.

pub(crate) mod claims;
pub(crate) mod commits;
pub(crate) mod deadlines;
pub(crate) mod failures;
pub(crate) mod identity;
pub(crate) mod input;
pub(crate) mod probes;
