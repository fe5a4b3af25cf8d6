//! The rigs for the whole server: `abide serve` runs in its own process under load and is killed or loses power, again
//! and again.
//!
//! ```text
//!           starts, events, controls              calls of http.request
//!  clients ──────────────────────────► abide serve ─────────────────────► receiver
//!     │ acknowledgements                 ▲ killed                            │ attempts and effects
//!     └──────────► ledger ───────────────┴──────────► verdict ◄──────────────┘
//! ```
//! Clients, ledger and receiver are in the rig's process, which is never killed.

pub(crate) mod client;
mod definitions;
mod events;
pub(crate) mod kill;
mod ledger;
mod load;
pub(crate) mod power;
pub(crate) mod process;
mod receiver;
mod rig;
mod script;
pub(crate) mod sessions;
mod undisturbed;
mod verdict;
