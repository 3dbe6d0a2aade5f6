//! Logs connections that cannot be opened, at most one line per kind and minute.

use std::io;

use rustls::InvalidMessage;

use super::Address;
use super::log_throttle::LogThrottle;

/// First byte of a TLS connection: the content type of a handshake record (RFC 8446, section 5.1). No HTTP method starts
/// with this byte.
const TLS_HANDSHAKE: u8 = 22;

/// The problems of one listener.
#[derive(Debug)]
pub(super) struct OpenProblems {
    listener: String,
    registration: LogThrottle,
    tls_on_plain: LogThrottle,
    handshake: LogThrottle,
}

impl OpenProblems {
    pub(super) fn new(address: &Address) -> Self {
        Self {
            listener: address.to_string(),
            registration: LogThrottle::default(),
            tls_on_plain: LogThrottle::default(),
            handshake: LogThrottle::default(),
        }
    }

    /// Logs that the kernel refuses to watch a socket.
    pub(super) fn log_registration(&self, error: &io::Error) {
        if self.registration.is_due() {
            let message = "cannot wait for data of a new connection, so it was closed; if this \
                 recurs, raise the limit of watched files (sysctl fs.epoll.max_user_watches)";
            tracing::warn!(%error, "{message}");
        }
    }

    /// Logs a client that starts a TLS handshake on a listener without TLS. `first` is the first byte of the connection.
    pub(super) fn log_first_byte(&self, first: Option<u8>) {
        if first == Some(TLS_HANDSHAKE) && self.tls_on_plain.is_due() {
            let message = "a client starts TLS, but this listener has none; let the client use http://, or configure \
                 a certificate";
            tracing::warn!(listener = self.listener, "{message}");
        }
    }

    /// Logs a failed TLS handshake. Clients that only close the connection, as health checks do, are not logged.
    pub(super) fn log_handshake(&self, error: &io::Error) {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let Some(cause) = cause else { return };
        if !self.handshake.is_due() {
            return;
        }
        let listener = &*self.listener;
        let is_plain = *cause == rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        if is_plain {
            let message =
                "a client does not use TLS, but this listener does; let the client use https://";
            tracing::warn!(listener, "{message}");
        } else {
            tracing::warn!(listener, error = %cause, "TLS handshake with a client failed");
        }
    }
}
