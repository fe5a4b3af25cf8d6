//! The guard on outgoing calls: which URLs may be called, and which addresses may be connected to.
//!
//! ```text
//!  text ─► check_url ─► Target ─► admit: resolve once, check every address ─► addresses to connect to, and no others
//! ```
//! A name is resolved once and the connection goes to an address that was checked, so a name that changes its address in between gains
//! nothing. Knows nothing of HTTP beyond what a URL says, and connects to nothing itself.

mod admit;
mod allow;
mod ranges;
mod resolve;
mod target;

pub use admit::{AdmitError, Guard, GuardConfig};
pub use allow::{Allowed, AllowedError, Network};
pub use resolve::{Resolver, Resolving, SystemResolver};
pub use target::{Denied, Scheme, Target};
