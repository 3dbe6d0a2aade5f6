//! A stub for operating systems other than Linux. No TCP statistics are recorded.

use std::io;

use super::SendQueue;
use tokengauge_types::tcp::{TcpConnection, TcpInfo};

#[derive(Debug)]
pub enum Kernel {}

impl Kernel {
    /// # Errors
    /// Always returns an error.
    pub fn open() -> io::Result<Self> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub fn query(&mut self, _: &TcpConnection) -> Option<TcpInfo> {
        match *self {}
    }

    pub fn send_queue(&mut self, _: &TcpConnection) -> Option<SendQueue> {
        match *self {}
    }
}

/// Always returns true, because only the runtime detects a closed connection on these systems.
pub fn is_silent<S>(_: S) -> bool {
    true
}
