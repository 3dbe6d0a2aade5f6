//! The sockets of this process to upstreams. They show whether the proxy has sent a request to itself (a loop).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{LazyLock, PoisonError, RwLock};

use tokengauge_types::tcp::TcpConnection;

/// Local and remote address of every open connection to an upstream. Global, because sockets belong to the process.
static OPEN: LazyLock<RwLock<HashSet<(SocketAddr, SocketAddr)>>> = LazyLock::new(RwLock::default);

/// An entry of [`OPEN`]. Dropping this value removes the entry.
#[derive(Debug)]
pub struct OpenSocket(SocketAddr, SocketAddr);

impl OpenSocket {
    pub(super) fn register(connection: &TcpConnection) -> Self {
        let ends = (canonical(connection.local), canonical(connection.remote));
        OPEN.write().unwrap_or_else(PoisonError::into_inner).insert(ends);
        Self(ends.0, ends.1)
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        OPEN.write().unwrap_or_else(PoisonError::into_inner).remove(&(self.0, self.1));
    }
}

/// Returns whether the client of `connection` is this process. If so, a connection to an upstream has the same two
/// addresses.
pub(super) fn is_own(connection: &TcpConnection) -> bool {
    let ends = (canonical(connection.remote), canonical(connection.local));
    OPEN.read().unwrap_or_else(PoisonError::into_inner).contains(&ends)
}

/// Dual-stack sockets report IPv4 addresses as mapped IPv6 addresses.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_both_ends_while_the_connection_is_open() {
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let (near, far) = (address("192.0.2.1:1000"), address("192.0.2.2:2000"));
        let outgoing = TcpConnection::new(near, far);
        let incoming = TcpConnection::new(address("[::ffff:192.0.2.2]:2000"), near);
        assert!(!is_own(&incoming));
        let socket = OpenSocket::register(&outgoing);
        assert!(is_own(&incoming));
        assert!(!is_own(&outgoing), "the ends are not interchangeable");
        let other = TcpConnection::new(address("192.0.2.3:2000"), near);
        assert!(!is_own(&other), "another connection from the same port");
        drop(socket);
        assert!(!is_own(&incoming));
    }
}
