//! The commands that talk to a server, against a real one on a folder of its own: what people read, what machines read, exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod copies;
mod dispatches;
mod doctor;
mod entities;
mod lists;
mod orders;
mod runs;
mod versions;
mod workflows;
mod world;
mod wrong;
