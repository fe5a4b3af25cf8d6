//! The rig for dispatch: the server and three receivers, each in its own process, are killed again and again while the
//! server calls the receivers.
//!
//! ```text
//!            starts                  rest, protobuf, gRPC, envelope ┌► abide-receiver ──► its store
//!  clients ──────────► abide serve ─────────────────────────────────┼► the Python worker ──► SQLite
//!     │                  ▲ killed                                   └► the TypeScript worker ──► SQLite
//!     │                  │                                              ▲ killed; each logs its attempts
//!     └──► ledger ───────┴────── call records ─────────► verdict ◄──────┘
//! ```
//! Every acknowledged flow must complete. Every call must have had its effect once, in the receiver's own store. No
//! receiver may have seen an attempt that the call's record does not count.

mod attempts;
mod fleet;
mod flows;
pub(crate) mod forgetful;
mod kill_cycles;
mod ledger;
mod load;
mod orphans;
mod receiver_stores;
mod receiver_wires;
pub(crate) mod run;
mod server_calls;
mod snapshots;
mod verdict;
