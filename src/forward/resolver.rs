//! A replacement for the system's DNS resolution, so that tests can change the addresses of a host.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// A function that resolves host names. Called for each new connection.
#[derive(Clone)]
pub struct Resolver(Arc<Lookup>);

impl Resolver {
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    pub(super) fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        (self.0)(host)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl PartialEq for Resolver {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Resolver {}
