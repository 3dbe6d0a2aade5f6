//! How an exchange (a request and its response) ended.

use crate::clock::MonotonicInstant;
use crate::label_enum;

/// How an exchange (a request and its response) ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Ending {
    /// The proxy delivered the complete response.
    Complete,
    /// The client closed the connection or reset its stream before the end of the response.
    ClientDisconnected,
    /// The client's request body was truncated or malformed.
    RequestBodyFailed,
    /// The upstream was unreachable, or failed before or during its response.
    UpstreamFailed(UpstreamFailure),
    /// A timeout of this proxy expired.
    TimedOut(TimeoutKind),
    /// This proxy rejected the request and sent nothing upstream.
    Rejected(RejectReason),
    /// This proxy shut down before the response was complete.
    Drained,
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum UpstreamFailure {
        /// The host name could not be resolved.
        Dns = "dns",
        /// The connection was refused or reset, or the address was unreachable, so no TCP connection was opened.
        Connect = "connect",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The upstream closed or reset the connection before it sent response headers.
        BeforeResponse = "before_response",
        /// The upstream sent data that is not valid HTTP.
        Protocol = "protocol",
        /// The upstream closed or reset the connection before the end of the response body.
        MidBody = "mid_body",
    }
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum TimeoutKind {
        Connect = "connect",
        ResponseHeader = "response_header",
        Idle = "idle",
        Total = "total",
        /// The time of `Total` has passed, and the client did not read the response at that time.
        TotalUnread = "total",
        /// The client read nothing of its response for the send timeout of the listener.
        Send = "send",
    }
}

impl TimeoutKind {
    /// Returns whether the client did not read its response when the timeout expired.
    pub const fn is_unread(self) -> bool {
        match self {
            Self::Connect | Self::ResponseHeader | Self::Idle | Self::Total => false,
            Self::TotalUnread | Self::Send => true,
        }
    }
}

/// A response body whose listener ends it when its client does not read. Nothing polls such a body, so the body cannot
/// end itself.
pub trait TimedResponse {
    /// Returns when the response must end. `None` without a limit.
    fn deadline(&self) -> Option<MonotonicInstant> {
        None
    }

    /// Called before a body is dropped that ended because of `timeout`.
    fn time_out(&mut self, _timeout: TimeoutKind) {}
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum RejectReason {
        /// No route matches the request.
        NoRoute = "no_route",
        /// The request line, the headers or the body of the request are invalid.
        BadRequest = "bad_request",
        /// The headers of the request exceed a limit.
        HeadersTooLarge = "headers_too_large",
        /// The route's concurrency limit was reached. The queue was full, or no permit became free within the queue
        /// timeout.
        Overload = "overload",
        /// The proxy is shutting down.
        Draining = "draining",
        /// The request came from this proxy itself, because the address of an upstream leads back to the proxy.
        Loop = "loop",
    }
}

impl Ending {
    /// Returns whether the client, the upstream or this proxy caused the end, or `ErrorSource::None` for a complete
    /// response.
    pub const fn error_source(self) -> ErrorSource {
        match self {
            Self::Complete => ErrorSource::None,
            Self::ClientDisconnected
            | Self::RequestBodyFailed
            | Self::Rejected(
                RejectReason::NoRoute | RejectReason::BadRequest | RejectReason::HeadersTooLarge,
            ) => ErrorSource::Client,
            Self::TimedOut(timeout) if timeout.is_unread() => ErrorSource::Client,
            Self::UpstreamFailed(_) | Self::TimedOut(_) => ErrorSource::Upstream,
            Self::Rejected(
                RejectReason::Overload | RejectReason::Draining | RejectReason::Loop,
            )
            | Self::Drained => ErrorSource::Proxy,
        }
    }
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum ErrorSource {
        None = "none",
        Client = "client",
        Upstream = "upstream",
        Proxy = "proxy",
    }
}
