//! The sending side against real servers on the loopback address.

mod dead;
mod directory;
mod grpc;
mod parts;
mod pool;
mod probe;
mod room;
mod server;
mod ssrf;
mod targets;
mod tls;
mod wires;
