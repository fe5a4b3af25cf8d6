//! The rig on dispatch: the server and three receivers, each a process of its own, are killed again and again while the server calls them.
//!
//! ```text
//!            starts                  rest, protobuf, gRPC, envelope ┌► abide-receiver ──► its store
//!  clients ──────────► abide serve ─────────────────────────────────┼► the Python worker ──► SQLite
//!     │                  ▲ killed                                   └► the TypeScript worker ──► SQLite
//!     │                  │                                              ▲ killed; each writes down what came
//!     └──► ledger ───────┴── the journal's own word ──► verdict ◄───────┘
//! ```
//! Every flow that was acknowledged must complete; every call must have had its effect once, in the receiver's own store; and no receiver may
//! have seen a delivery that the journal does not count.

mod cycles;
mod deliveries;
mod fleet;
mod flows;
pub(crate) mod forgetful;
mod journal;
mod ledger;
mod lines;
mod load;
mod orphans;
pub(crate) mod run;
mod snapshots;
mod stores;
mod verdict;
