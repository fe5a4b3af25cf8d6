//! The rules by topic. Each is checked over the wire it is given, and knows nothing else of that wire.

pub(crate) mod claims;
pub(crate) mod commits;
pub(crate) mod deadlines;
pub(crate) mod failures;
pub(crate) mod identity;
pub(crate) mod input;
pub(crate) mod probes;
