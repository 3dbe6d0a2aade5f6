//! A TCP connection by its two ends, and what the kernel knows of it.
//!
//! The data path makes a [`TcpConnection`] where it accepts or opens one and hands it on; it asks the kernel nothing. The
//! observer asks, a few times for each exchange, by the addresses alone: so nobody needs the socket, which hyper owns.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// An open TCP connection of this process.
#[derive(Debug)]
pub struct TcpConnection {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Retransmits that some exchange has told already.
    told: AtomicU32,
}

/// What the kernel says of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpInfo {
    /// The smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// The least over the kernel's window (5 min by default); `None` before the first sample.
    pub least_rtt: Option<Duration>,
    /// Segments sent again since the connection began, those of its handshake included.
    pub retransmits: u32,
}

impl TcpConnection {
    pub const fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, told: AtomicU32::new(0) }
    }

    /// How many of `retransmits`, counted since the connection began, nobody was told of yet. Whoever asks is told: the
    /// exchanges of a connection, also those side by side over HTTP/2, add up to what was sent again.
    pub fn tell(&self, retransmits: u32) -> u32 {
        let told = self.told.fetch_max(retransmits, Ordering::Relaxed);
        retransmits.saturating_sub(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_retransmit_is_told_once() {
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        let connection = TcpConnection::new(end, end);
        assert_eq!([3, 3, 5, 4].map(|total| connection.tell(total)), [3, 0, 2, 0]);
    }
}
