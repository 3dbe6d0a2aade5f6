//! Applies the calls inside a WebSocket session, each like a request of its own.

use super::InFlightRequests;
use super::active_request::ActiveRequest;
use crate::websocket::{OpenTurn, TurnStep, TurnStepKind};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, Headers, ObserverEvent, ResponseHead,
    TimestampedEvent, UpstreamFailure,
};
use tokengauge_types::label::Name;

/// The ids of calls inside WebSockets begin here, above all ids of the channel. JSON represents these numbers exactly.
const FIRST_TURN: u64 = 1 << 52;

/// Returns whether this is a call inside a WebSocket session.
pub(super) const fn is_turn(id: ExchangeId) -> bool {
    id.0 >= FIRST_TURN
}

impl InFlightRequests {
    /// Applies the messages that the session `id` has received, to the calls inside it.
    pub(super) fn apply_turns(&mut self, id: ExchangeId, at: MonotonicInstant) {
        let open = self.requests.get_mut(&id).map(|open| &mut open.request.exchange);
        let Some(turns) = open.and_then(|exchange| exchange.turns_mut()) else {
            return;
        };
        let (steps, bytes) = turns.take();
        let mut rest = bytes.as_slice();
        for TurnStep { kind, len } in steps {
            let (bytes, after) = rest.split_at_checked(len).unwrap_or((rest, b""));
            rest = after;
            self.apply_turn_step(id, at, kind, bytes);
        }
    }

    /// Ends the calls that are open at the end of the session.
    pub(super) fn end_turns(
        &mut self,
        session: &mut ActiveRequest,
        at: MonotonicInstant,
        ending: Ending,
    ) {
        let exchange = &mut session.exchange;
        let Some(open) = exchange.turns_mut().map(|turns| std::mem::take(&mut turns.open)) else {
            return;
        };
        let left = exchange.websocket().and_then(|socket| socket.left);
        let ending = match (ending, left) {
            (Ending::Complete, Some(Direction::Response)) => {
                Ending::UpstreamFailed(UpstreamFailure::MidBody)
            }
            (Ending::Complete, Some(Direction::Request) | None) => Ending::ClientDisconnected,
            (other, _) => other,
        };
        for OpenTurn { id, .. } in open {
            self.apply_to_turn(id, at, ObserverEvent::End(ending), b"");
        }
    }

    fn apply_turn_step(
        &mut self,
        session: ExchangeId,
        at: MonotonicInstant,
        kind: TurnStepKind,
        bytes: &[u8],
    ) {
        let Some(open) = self.requests.get_mut(&session) else { return };
        let exchange = &mut open.request.exchange;
        let version = exchange.request_head.version;
        let head = (kind == TurnStepKind::Request).then(|| exchange.turn_head(at));
        let Some(turns) = exchange.turns_mut() else { return };
        if let Some(head) = head {
            let id = ExchangeId(FIRST_TURN + self.turns);
            self.turns += 1;
            turns.open.push_back(OpenTurn { id, has_head: false });
            self.open(id, at, head, true);
            self.apply_to_turn(id, at, ObserverEvent::Admitted, b"");
            self.apply_to_turn(id, at, ObserverEvent::RequestHeadSent, b"");
            self.apply_to_turn(id, at, body(Direction::Request, bytes), bytes);
            return self.apply_to_turn(id, at, ObserverEvent::RequestBodySent, b"");
        }
        let Some(turn) = turns.open.front_mut() else { return };
        let id = turn.id;
        match kind {
            TurnStepKind::Request => {}
            TurnStepKind::Response { status } => {
                if !std::mem::replace(&mut turn.has_head, true) {
                    self.apply_to_turn(id, at, response_head(status, version), b"");
                }
                self.apply_to_turn(id, at, body(Direction::Response, bytes), bytes);
            }
            TurnStepKind::Gap(bytes) => {
                let gap = ObserverEvent::Gap { direction: Direction::Response, bytes };
                self.apply_to_turn(id, at, gap, b"");
            }
            TurnStepKind::End => {
                turns.open.pop_front();
                self.apply_to_turn(id, at, ObserverEvent::End(Ending::Complete), b"");
            }
        }
    }

    fn apply_to_turn(
        &mut self,
        exchange: ExchangeId,
        at: MonotonicInstant,
        event: ObserverEvent,
        bytes: &[u8],
    ) {
        self.apply(TimestampedEvent { exchange, at, event }, bytes);
    }
}

fn body(direction: Direction, bytes: &[u8]) -> ObserverEvent {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    ObserverEvent::Body { direction, len, blocked: BackpressureTime::default() }
}

/// Returns the headers that the response would have as a stream of server-sent events.
fn response_head(status: u16, version: http::Version) -> ObserverEvent {
    let content_type = Name::new("text/event-stream").map(|value| ("content-type", value));
    let headers: Headers = content_type.into_iter().collect();
    let length = None;
    let head = ResponseHead { status, version, headers, length, from_proxy: false };
    ObserverEvent::ResponseHead(Box::new(head))
}
