//! The egress guard: decides which URLs may be called, and which addresses may be connected to.
//!
//! ```text
//!  text ─► check_url ─► Target ─► admit: resolve once, check every address ─► addresses to connect to, and no others
//! ```
//! A name is resolved once and the connection goes to an address that was checked, so changing the address of a name in
//! between has no effect. Knows nothing about HTTP beyond what a URL says, and connects to nothing itself.

mod address_ranges;
mod allowlist;
mod guard;
mod resolve;
mod target;

pub use allowlist::{AllowEntry, AllowEntryError, Network};
pub use guard::{AdmitError, EgressGuard, EgressGuardConfig};
pub use resolve::{ResolveFuture, Resolver, SystemResolver};
pub use target::{DenyReason, Scheme, Target};
