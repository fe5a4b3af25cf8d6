//! The rigs on the whole server: `abide serve` in a process of its own is killed or loses its disk, again and again, under load.
//!
//! ```text
//!            starts, events, orders                calls of http.request
//!  clients ──────────────────────────► abide serve ─────────────────────► receiver
//!     │ what was acknowledged            ▲ killed                            │ what was delivered, what it did
//!     └──────────► ledger ───────────────┴──────────► verdict ◄──────────────┘
//! ```
//! Clients, ledger and receiver live in the rig's process, which nobody kills.

pub(crate) mod client;
mod definitions;
mod events;
pub(crate) mod kill;
mod ledger;
mod load;
pub(crate) mod power;
pub(crate) mod process;
mod receiver;
mod script;
pub(crate) mod sessions;
mod undisturbed;
mod verdict;
mod world;
