//! Resolves host names to addresses, through a trait, so that a test can play a name server that lies.
//!
//! Knows nothing about which addresses are allowed.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// The future of the addresses of a host.
pub type ResolveFuture<'r> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>>;

/// Resolves the names of hosts.
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of the host, in the order they should be tried. Called once for each new connection.
    fn resolve<'r>(&'r self, host: &'r str) -> ResolveFuture<'r>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'r>(&'r self, host: &'r str) -> ResolveFuture<'r> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((host, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}
