//! Facts about a request that was upgraded to a WebSocket, and its outcome.

use crate::record::{Outcome, ResponseSummary, classify};
use tokengauge_llm::dialect::blames_client;
use tokengauge_types::event::{Direction, Ending, ErrorSource, UpstreamFailure};
use tokengauge_types::label::Name;

/// Close codes that mean success. A close frame without a code also means success.
const SUCCESS_CODES: [u16; 2] = [1000, 1001];

/// Close codes that blame the client: protocol, type, text, policy, size, missing extension. The last two codes, from
/// the IANA registry, mean unauthorized and forbidden.
const CLIENT_ERROR_CODES: [u16; 8] = [1002, 1003, 1007, 1008, 1009, 1010, 3000, 3003];

/// Observed traffic of a WebSocket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WebSocket {
    /// Complete messages from the client. Control frames such as pings do not count.
    pub request_messages: u64,
    /// Messages from the upstream.
    pub response_messages: u64,
    /// First close frame.
    pub closed: Option<CloseFrame>,
    /// Side of the connection that ended first.
    pub left: Option<Direction>,
    /// Whether parsing stopped early. Later messages and the close frame may have been missed.
    pub lost: bool,
    /// Whether compressed messages could not be read.
    pub compressed: bool,
}

/// A close frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CloseFrame {
    /// Direction of the frame.
    pub by: Direction,
    /// Close code; `None` if the frame has none.
    pub code: Option<u16>,
}

/// Errors that the API's messages report during a WebSocket session. Empty for any other WebSocket.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Whether the provider's last message was an error that the client did not cause.
    pub failed: bool,
    /// Type of the last reported error, from any source.
    pub error: Option<Name>,
}

impl WebSocket {
    /// Counts a message.
    pub const fn count(&mut self, direction: Direction) {
        let messages = match direction {
            Direction::Request => &mut self.request_messages,
            Direction::Response => &mut self.response_messages,
        };
        *messages = messages.saturating_add(1);
    }

    /// Returns the outcome, the error source and `error.type`.
    ///
    /// An error code in the upstream's close frame means an error, and so does a provider error as the last message.
    /// Any other close frame means success, no matter how the connection ends. Without a close frame, the peer that
    /// closed the connection first disconnected.
    pub fn classify(
        &self,
        ending: Ending,
        session: &Session,
    ) -> (Outcome, ErrorSource, Option<Name>) {
        if let Some(code) = self.failing_code() {
            let kind = session.error.clone();
            let mistaken = kind.as_ref().is_some_and(|kind| blames_client(kind.as_str()));
            let error_source = if mistaken || CLIENT_ERROR_CODES.contains(&code) {
                ErrorSource::Client
            } else {
                ErrorSource::Upstream
            };
            let kind = kind.or_else(|| Name::new(&format!("websocket_{code}")));
            return (Outcome::Error, error_source, kind);
        }
        if session.failed {
            let kind = session.error.clone().or_else(|| Name::new("_OTHER"));
            return (Outcome::Error, ErrorSource::Upstream, kind);
        }
        if self.closed.is_some() || (self.lost && ending == Ending::Complete) {
            return (Outcome::Ok, ErrorSource::None, None);
        }
        let ending = match (ending, self.left) {
            (Ending::Complete, Some(Direction::Response)) => {
                Ending::UpstreamFailed(UpstreamFailure::MidBody)
            }
            (Ending::Complete, Some(Direction::Request) | None) => Ending::ClientDisconnected,
            (other, _) => other,
        };
        let cut_short = ResponseSummary { streamed: true, ..ResponseSummary::default() };
        classify(ending, &cut_short)
    }

    /// Returns whether a close frame announced the end.
    pub const fn is_finished(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns the code of the upstream's close frame if the code reports an error.
    fn failing_code(&self) -> Option<u16> {
        let closed = self.closed.filter(|closed| closed.by == Direction::Response)?;
        closed.code.filter(|code| !SUCCESS_CODES.contains(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(by: Direction, code: Option<u16>) -> WebSocket {
        WebSocket { closed: Some(CloseFrame { by, code }), ..WebSocket::default() }
    }

    fn left(by: Direction) -> WebSocket {
        WebSocket { left: Some(by), ..WebSocket::default() }
    }

    fn said(failed: bool, error: &str) -> Session {
        let error = Name::new(error);
        Session { failed, error }
    }

    fn actual(
        socket: WebSocket,
        ending: Ending,
        session: &Session,
    ) -> (Outcome, ErrorSource, String) {
        let (outcome, error_source, kind) = socket.classify(ending, session);
        let kind = kind.map(|kind| kind.to_string());
        (outcome, error_source, kind.unwrap_or_default())
    }

    const OK: (Outcome, ErrorSource, String) = (Outcome::Ok, ErrorSource::None, String::new());
    const UPSTREAM: Direction = Direction::Response;
    const CLIENT: Direction = Direction::Request;

    #[test]
    fn a_close_frame_decides_the_outcome() {
        let nothing = Session::default();
        let broke = Ending::UpstreamFailed(UpstreamFailure::MidBody);
        for ending in [Ending::Complete, Ending::ClientDisconnected, broke, Ending::Drained] {
            for code in [None, Some(1000), Some(1001)] {
                assert_eq!(
                    actual(closed(UPSTREAM, code), ending, &nothing),
                    OK,
                    "{code:?} {ending:?}"
                );
            }
            assert_eq!(actual(closed(CLIENT, Some(4321)), ending, &nothing), OK, "{ending:?}");
        }
    }

    #[test]
    fn the_close_code_of_the_upstream_decides_failure_and_error_source() {
        let of = |code, session: &Session| {
            actual(closed(UPSTREAM, Some(code)), Ending::Complete, session)
        };
        let nothing = Session::default();
        assert_eq!(
            of(1011, &nothing),
            (Outcome::Error, ErrorSource::Upstream, "websocket_1011".into())
        );
        assert_eq!(
            of(3000, &nothing),
            (Outcome::Error, ErrorSource::Client, "websocket_3000".into())
        );
        let mistaken = said(false, "invalid_request_error");
        let expected = (Outcome::Error, ErrorSource::Client, "invalid_request_error".into());
        assert_eq!(of(4004, &mistaken), expected);
        let expected = (Outcome::Error, ErrorSource::Upstream, "server_error".into());
        assert_eq!(of(4000, &said(false, "server_error")), expected);
    }

    #[test]
    fn an_error_as_the_last_message_fails_a_session_with_a_normal_close() {
        let of = |session: &Session| actual(closed(CLIENT, Some(1000)), Ending::Complete, session);
        assert_eq!(
            of(&said(true, "server_error")),
            (Outcome::Error, ErrorSource::Upstream, "server_error".into())
        );
        assert_eq!(of(&said(true, "")), (Outcome::Error, ErrorSource::Upstream, "_OTHER".into()));
        assert_eq!(of(&said(false, "invalid_request_error")), OK);
    }

    #[test]
    fn ending_without_a_close_frame_is_a_disconnect() {
        let nothing = Session::default();
        let of = |socket, ending| actual(socket, ending, &nothing);
        let gone = (Outcome::Cancelled, ErrorSource::Client, "client_gone".to_owned());
        let broke = (Outcome::Truncated, ErrorSource::Upstream, "upstream_truncated".to_owned());
        assert_eq!(of(left(CLIENT), Ending::Complete), gone);
        assert_eq!(of(left(CLIENT), Ending::ClientDisconnected), gone);
        assert_eq!(of(left(UPSTREAM), Ending::Complete), broke);
        assert_eq!(of(left(UPSTREAM), Ending::UpstreamFailed(UpstreamFailure::MidBody)), broke);
        assert_eq!(
            of(WebSocket::default(), Ending::Drained),
            (Outcome::Truncated, ErrorSource::Proxy, "drained".into())
        );
        let lost = WebSocket { lost: true, ..left(UPSTREAM) };
        assert_eq!(of(lost, Ending::Complete), OK, "nobody knows whether a closing frame went by");
    }
}
