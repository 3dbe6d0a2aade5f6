//! Identifies TCP connections, so that the observer thread can read their kernel statistics.
//!
//! The data path creates a [`TcpConnection`] when it accepts or opens a connection, and makes no system calls for
//! statistics. The observer queries the kernel by the two addresses of the connection, a few times per request. The
//! observer therefore does not need the socket, which belongs to hyper.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// An open TCP connection of this process.
#[derive(Debug)]
pub struct TcpConnection {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Highest number of retransmits that was already reported for a request on this connection.
    reported_retransmits: AtomicU32,
}

/// Kernel statistics of a TCP connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpInfo {
    /// Smoothed round-trip time. `None` before the first sample.
    pub rtt: Option<Duration>,
    /// Minimum round-trip time in the kernel's measuring window (5 min by default). `None` before the first sample.
    pub least_rtt: Option<Duration>,
    /// Number of retransmitted segments since the connection was opened, including handshake segments.
    pub retransmits: u32,
}

impl TcpConnection {
    pub const fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, reported_retransmits: AtomicU32::new(0) }
    }

    /// Returns how many of the `retransmits` were not reported for an earlier request, and marks them as reported.
    /// `retransmits` is the total since the connection was opened. The reported values of all requests on a connection,
    /// including concurrent HTTP/2 streams, therefore add up to this total.
    pub fn take_unreported_retransmits(&self, retransmits: u32) -> u32 {
        let reported = self.reported_retransmits.fetch_max(retransmits, Ordering::Relaxed);
        retransmits.saturating_sub(reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_each_retransmit_once() {
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        let connection = TcpConnection::new(end, end);
        assert_eq!(
            [3, 3, 5, 4].map(|total| connection.take_unreported_retransmits(total)),
            [3, 0, 2, 0]
        );
    }
}
