//! How a name becomes addresses. A trait, so that a test can play a name server that lies.
//!
//! Knows nothing of which addresses are allowed.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// The answer to come.
pub type Resolving<'r> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>>;

/// Finds the addresses of a host.
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of the host, in the order they should be tried. Asked once for each call.
    fn resolve<'r>(&'r self, host: &'r str) -> Resolving<'r>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'r>(&'r self, host: &'r str) -> Resolving<'r> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((host, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}
