//! What an exchange was that went on as a WebSocket, and how it came out.

use crate::record::{Outcome, ResponseSummary, settle};
use tokengauge_types::event::{Direction, Ending, ErrorSource, UpstreamFailure};
use tokengauge_types::label::Name;

/// Closing codes that say that all is well; a close without a code says so too.
const FINE: [u16; 2] = [1000, 1001];

/// Closing codes by which the upstream says that the client is to blame: protocol, type, text, policy, size, missing
/// extension; unauthorized, forbidden (the registry's).
const CLIENT_TO_BLAME: [u16; 8] = [1002, 1003, 1007, 1008, 1009, 1010, 3000, 3003];

/// The provider's word for an error of the client's own.
const CLIENTS_MISTAKE: &str = "invalid_request_error";

/// What went by over a WebSocket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WebSocket {
    /// Messages from the client, whole ones; pings and the like are none.
    pub request_messages: u64,
    /// Messages from the upstream.
    pub response_messages: u64,
    /// The first closing frame.
    pub closed: Option<CloseFrame>,
    /// Whose side of the connection ended first.
    pub left: Option<Direction>,
    /// Frames could not be followed to the end: messages, and the closing frame, may have gone by unseen.
    pub lost: bool,
    /// Messages were compressed, so their content was not read.
    pub compressed: bool,
}

/// A closing frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CloseFrame {
    /// Which way it went.
    pub by: Direction,
    /// `None`: it had no code.
    pub code: Option<u16>,
}

/// What the API's own messages said of how a session went; nothing, where it was none.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The provider's last word was an error of its own.
    pub failed: bool,
    /// The kind of the last error that it reported, whoever's it was.
    pub error: Option<Name>,
}

impl WebSocket {
    /// A message went by.
    pub const fn count(&mut self, direction: Direction) {
        let messages = match direction {
            Direction::Request => &mut self.request_messages,
            Direction::Response => &mut self.response_messages,
        };
        *messages = messages.saturating_add(1);
    }

    /// Outcome, fault and `error.type`.
    ///
    /// A closing frame is the last word, however the connection ends after it: from the client it is always fine, from
    /// the upstream by its code. Where none came, whoever ended the connection first just left.
    pub fn settle(
        &self,
        ending: Ending,
        session: &Session,
    ) -> (Outcome, ErrorSource, Option<Name>) {
        if let Some(code) = self.failing_code() {
            let kind = session.error.clone();
            let mistaken = kind.as_ref().is_some_and(|kind| kind.as_str() == CLIENTS_MISTAKE);
            let fault = if mistaken || CLIENT_TO_BLAME.contains(&code) {
                ErrorSource::Client
            } else {
                ErrorSource::Upstream
            };
            let kind = kind.or_else(|| Name::new(&format!("websocket_{code}")));
            return (Outcome::Error, fault, kind);
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
        settle(ending, &cut_short)
    }

    /// Whether the end was announced.
    pub const fn is_finished(&self) -> bool {
        self.closed.is_some()
    }

    /// The code with which the upstream closed, if it says that something went wrong.
    fn failing_code(&self) -> Option<u16> {
        let closed = self.closed.filter(|closed| closed.by == Direction::Response)?;
        closed.code.filter(|code| !FINE.contains(code))
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

    fn told(
        socket: WebSocket,
        ending: Ending,
        session: &Session,
    ) -> (Outcome, ErrorSource, String) {
        let (outcome, fault, kind) = socket.settle(ending, session);
        let kind = kind.map(|kind| kind.to_string());
        (outcome, fault, kind.unwrap_or_default())
    }

    const OK: (Outcome, ErrorSource, String) = (Outcome::Ok, ErrorSource::None, String::new());
    const UPSTREAM: Direction = Direction::Response;
    const CLIENT: Direction = Direction::Request;

    #[test]
    fn a_closing_frame_is_the_last_word() {
        let nothing = Session::default();
        let broke = Ending::UpstreamFailed(UpstreamFailure::MidBody);
        for ending in [Ending::Complete, Ending::ClientDisconnected, broke, Ending::Drained] {
            for code in [None, Some(1000), Some(1001)] {
                assert_eq!(
                    told(closed(UPSTREAM, code), ending, &nothing),
                    OK,
                    "{code:?} {ending:?}"
                );
            }
            assert_eq!(told(closed(CLIENT, Some(4321)), ending, &nothing), OK, "{ending:?}");
        }
    }

    #[test]
    fn the_upstreams_code_tells_a_failure_and_whose_it_is() {
        let of =
            |code, session: &Session| told(closed(UPSTREAM, Some(code)), Ending::Complete, session);
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
    fn an_error_that_was_the_providers_last_word_fails_a_session_closed_politely() {
        let of = |session: &Session| told(closed(CLIENT, Some(1000)), Ending::Complete, session);
        assert_eq!(
            of(&said(true, "server_error")),
            (Outcome::Error, ErrorSource::Upstream, "server_error".into())
        );
        assert_eq!(of(&said(true, "")), (Outcome::Error, ErrorSource::Upstream, "_OTHER".into()));
        assert_eq!(of(&said(false, "invalid_request_error")), OK);
    }

    #[test]
    fn who_ends_without_a_word_has_left() {
        let nothing = Session::default();
        let of = |socket, ending| told(socket, ending, &nothing);
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
