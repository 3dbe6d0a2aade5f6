//! One request and its response (an *exchange*), from the first event to the record. No I/O. Malformed input is counted
//! in the record; the data parsed before it stays valid.

mod end;
mod protocol;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use crate::api_call::ApiCall;
use crate::detection::{detect, detect_posted, has_turns};
use crate::exchange::end::report_end_of_stall;
use crate::exchange::protocol::{Messages, Protocol, WebSocketExchange};
use crate::mcp::McpExchange;
use crate::tcp_info::Connections;
use crate::websocket::{Turns, WebSocketSession};
use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::content::CapturePolicy;
use tokengauge_llm::count::{Source, Tokenizers};
use tokengauge_llm::dialect::RateLimits;
use tokengauge_measure::load::RequestPhase;
use tokengauge_measure::record::{MetricLabels, WebSocket};
use tokengauge_measure::timing::{
    LiveSample, PauseDetector, StallClock, StallPhase, StallThresholds, Timestamps,
};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    ConnectTimings, Direction, ExchangeId, GatewayUsage, Headers, MCP_SESSION, ObserverEvent,
    RequestHead, ResponseHead,
};
use tokengauge_types::label::{CardinalityLimiter, Name};

/// HTTP status of an upgraded connection.
const SWITCHING: u16 = 101;

/// Removes the session of the Model Context Protocol, which is recorded apart from the headers.
fn remove_session(headers: &mut Headers) {
    if headers.get(MCP_SESSION).is_some() {
        headers.set(MCP_SESSION, "");
    }
}

/// An open request, as observed so far.
#[derive(Debug)]
pub struct ObservedExchange {
    pub(crate) id: ExchangeId,
    pub(crate) request_head: Box<RequestHead>,
    limiter: Arc<CardinalityLimiter>,
    pub(crate) timestamps: Timestamps,
    stall_clock: StallClock,
    connected: Option<Box<ConnectTimings>>,
    pub(crate) connections: Connections,
    head: Option<Box<ResponseHead>>,
    protocol: Protocol,
    /// Whether this is a call inside a WebSocket.
    is_turn: bool,
    request_bytes: u64,
    response_bytes: u64,
    /// Total time in which the client did not read, without the current wait.
    pub(crate) blocked: Duration,
    /// Whether the request is queued for a permit of the concurrency limit.
    queued: bool,
    pub(crate) queue_depth: u32,
    gateway_usage: Option<GatewayUsage>,
    /// Whether a part of the request was not observed.
    pub(crate) gap: bool,
    /// Body bytes that were not parsed because of a limit or the memory budget, and are not reported yet.
    unread_bytes: u64,
    broken: bool,
    budget: RequestBudget,
}

impl ObservedExchange {
    pub fn new(
        id: ExchangeId,
        at: MonotonicInstant,
        request_head: Box<RequestHead>,
        limiter: Arc<CardinalityLimiter>,
        (tokenizers, budget): (&Tokenizers, RequestBudget),
    ) -> Self {
        let mut exchange = Self::of_http(id, at, request_head, limiter, budget);
        exchange.detect_call(tokenizers);
        exchange
    }

    /// Creates a request that is plain HTTP until [`detect_call`](Self::detect_call).
    pub(crate) fn of_http(
        id: ExchangeId,
        at: MonotonicInstant,
        mut request_head: Box<RequestHead>,
        limiter: Arc<CardinalityLimiter>,
        budget: RequestBudget,
    ) -> Self {
        let mut connections = Connections::default();
        connections.client.set(request_head.connection.take());
        // A request that asks for reasoning has a longer threshold.
        let stall_clock = StallClock::new(StallThresholds::for_route(&request_head.route, false));
        Self {
            id,
            request_head,
            limiter,
            timestamps: Timestamps { accept: at, ..Timestamps::default() },
            stall_clock,
            connected: None,
            connections,
            head: None,
            protocol: Protocol::Plain,
            is_turn: false,
            request_bytes: 0,
            response_bytes: 0,
            blocked: Duration::ZERO,
            queued: false,
            queue_depth: 0,
            gateway_usage: None,
            gap: false,
            unread_bytes: 0,
            broken: false,
            budget,
        }
    }

    /// Detects the API that the request calls.
    pub(crate) fn detect_call(&mut self, tokenizers: &Tokenizers) {
        let found = if self.is_turn {
            detect_posted(&self.request_head)
        } else {
            detect(&self.request_head)
        };
        let open = &self.request_head;
        self.protocol = match found {
            Some(found) => {
                let call = ApiCall::new(found, open, tokenizers, &self.budget);
                Protocol::Call(Box::new(call))
            }
            None => McpExchange::detect(open, &self.budget)
                .map_or(Protocol::Plain, |mcp| Protocol::Mcp(Box::new(mcp))),
        };
        remove_session(&mut self.request_head.headers);
        // Only the detection needs the whole path.
        self.request_head.whole_path = None;
    }

    /// Starts to capture the content of the request and the response. No effect for plain HTTP.
    pub fn capture(&mut self, policy: &Arc<CapturePolicy>) {
        if let Some(call) = self.protocol.call_mut() {
            call.capture(policy);
        }
    }

    /// Applies one event, except `RequestHead` and `End`. `bytes` is the data of a `Body` event, and empty for other
    /// events. `out` receives live samples, such as token counts and inter-token latencies.
    pub fn apply(
        &mut self,
        at: MonotonicInstant,
        event: ObserverEvent,
        bytes: &[u8],
        out: &mut impl FnMut(LiveSample),
    ) {
        match event {
            ObserverEvent::RequestHead(_) | ObserverEvent::End(_) | ObserverEvent::Trailers(_) => {}
            ObserverEvent::Queued => self.queued = self.timestamps.admit.is_none(),
            ObserverEvent::Admitted => {
                self.queued = false;
                self.timestamps.admit = Some(at);
                self.stall_clock.restart(at, StallPhase::FirstToken);
            }
            ObserverEvent::Connected(mut connected) => {
                self.connections.upstream.set(connected.connection.take());
                self.connected = Some(connected);
            }
            ObserverEvent::ConnectionReused(connection) => {
                self.connections.upstream.set(connection);
                self.connected = Some(Box::new(ConnectTimings::reused()));
            }
            ObserverEvent::RequestHeadSent => self.timestamps.sent = Some(at),
            ObserverEvent::RequestBodySent => self.request_end(at, out),
            ObserverEvent::ResponseHead(head) => self.head(at, head),
            ObserverEvent::Body { direction: Direction::Request, .. } => {
                self.request(at, bytes, out)
            }
            ObserverEvent::Body { direction: Direction::Response, blocked, .. } => {
                self.response(at, bytes, blocked.duration(), out);
            }
            ObserverEvent::Upgraded => self.upgraded(),
            ObserverEvent::Closed(direction) => {
                if let Protocol::WebSocket(socket) = &mut self.protocol {
                    socket.session.closed(direction);
                }
            }
            ObserverEvent::Gap { direction, bytes } => self.gap(direction, bytes),
            ObserverEvent::GatewayUsage(usage) => self.gateway_usage = Some(*usage),
        }
    }

    /// Checks for a stall at `at`. Called periodically, to report a stall while it lasts, and before each event, to
    /// record a stall that the event ends. `unread` is the time for which the client has not read and which no event
    /// has reported yet.
    pub fn check_stall(
        &mut self,
        at: MonotonicInstant,
        unread: Duration,
        pauses: &PauseDetector,
        out: &mut impl FnMut(LiveSample),
    ) {
        let Some(since) = self.stall_clock.since() else {
            return;
        };
        if !self.is_awaiting() {
            // If no stall is reported, the clock keeps running. The rest of the request may ask for a stream, and the
            // response may still contain a token.
            if self.stall_clock.is_stalled() {
                report_end_of_stall(self.stall_clock.stop(at), out);
            }
            return;
        }
        let thresholds = self.stall_thresholds();
        let stall = self.stall_clock.check(at, unread, pauses.within(since, at), thresholds);
        if let Some(stall) = stall {
            out(LiveSample::Stalled(stall));
        }
    }

    /// Returns whether [`check_stall`](Self::check_stall) could report anything. Reads less memory.
    pub fn may_be_stalled(&self, at: MonotonicInstant) -> bool {
        self.stall_clock.may_be_stalled(at)
    }

    /// Returns the earliest time at which [`check_stall`](Self::check_stall) could find a new stall, after a check at
    /// `at`. Only body bytes may arrive in the meantime.
    pub fn next_stall(&self, at: MonotonicInstant) -> MonotonicInstant {
        self.stall_clock.next_stall(at, self.stall_thresholds())
    }

    /// Returns the phase of the open request, for the in-flight gauges.
    pub fn state(&self) -> RequestPhase {
        match self.protocol.call() {
            _ if self.queued => RequestPhase::Queued,
            Some(call) if !call.is_stream() => RequestPhase::Unstreamed,
            Some(_) if self.timestamps.token.is_some() => RequestPhase::Streaming,
            Some(_) => RequestPhase::Waiting,
            None => RequestPhase::Unstreamed,
        }
    }

    /// Returns whether the stream is over although the connection may stay open: the provider's final event or an error
    /// was received.
    pub fn is_stream_over(&self) -> bool {
        self.protocol.call().is_some_and(ApiCall::is_stream_over)
    }

    /// Returns the stall clock while a token is expected.
    pub fn stall_clock(&self) -> Option<&StallClock> {
        self.is_awaiting().then_some(&self.stall_clock)
    }

    /// Returns the labels of the live metrics.
    pub fn metric_labels(&mut self) -> Option<MetricLabels> {
        let is_confirmed = self.is_answering();
        Some(self.protocol.call_mut()?.metric_labels(
            &self.request_head,
            is_confirmed,
            &self.limiter,
        ))
    }

    /// Returns the number of body bytes that were not parsed since the last call, because of a limit or the memory
    /// budget.
    pub(super) const fn take_unread_bytes(&mut self) -> u64 {
        std::mem::replace(&mut self.unread_bytes, 0)
    }

    /// Ends the observation after a panic in the pipeline.
    pub fn abort(&mut self) {
        self.broken = true;
        self.protocol.take_call();
        self.connections = Connections::default();
    }

    pub fn model(&self) -> Option<&Name> {
        self.protocol.call()?.requested_model()
    }

    pub fn quota(&self) -> Option<RateLimits> {
        self.protocol.call()?.quota
    }

    /// Returns the observed facts of the WebSocket.
    pub fn websocket(&self) -> Option<&WebSocket> {
        match &self.protocol {
            Protocol::WebSocket(socket) => Some(socket.session.facts()),
            Protocol::Plain | Protocol::Call(_) | Protocol::Mcp(_) => None,
        }
    }

    /// The calls inside the WebSocket, if its messages are requests and responses.
    pub(crate) fn turns_mut(&mut self) -> Option<&mut Turns> {
        self.protocol.turns_mut()
    }

    /// Returns whether the request calls a known API, according to the data received so far.
    pub fn is_call(&self) -> bool {
        self.protocol.call().is_some()
    }

    /// Returns whether the labels of the live metrics can no longer change.
    pub fn has_final_labels(&self) -> bool {
        let switched = self.head.as_ref().map(|head| head.status == SWITCHING);
        switched.is_some_and(|switched| !switched || self.is_answering() && self.has_final_model())
    }

    fn has_final_model(&self) -> bool {
        self.protocol.call().is_some_and(ApiCall::has_final_model)
    }

    /// Continues as a WebSocket. Stops parsing if the connection was upgraded to another protocol.
    fn upgraded(&mut self) {
        let head = self.head.as_ref();
        let protocol = head.and_then(|head| head.headers.get("upgrade"));
        let is_socket = protocol.is_some_and(|name| name.eq_ignore_ascii_case("websocket"));
        let extensions = head.and_then(|head| head.headers.get("sec-websocket-extensions"));
        let call = self.protocol.take_call();
        if !is_socket {
            self.protocol = Protocol::Plain;
            return;
        }
        let has_call = call.is_some();
        let messages = match call.and_then(|mut call| call.upgrade().then_some(call)) {
            Some(call) => Messages::Session(call),
            None if !has_call && has_turns(&self.request_head) => Messages::Turns(Turns::default()),
            None => Messages::Unknown,
        };
        let session = WebSocketSession::new(extensions, &self.budget);
        self.protocol = Protocol::WebSocket(Box::new(WebSocketExchange { session, messages }));
    }

    /// Returns whether a token is expected: the call is a stream that was observed completely, was not rejected and has
    /// not ended.
    fn is_awaiting(&self) -> bool {
        let answering = self.head.is_none() || self.is_answering();
        match &self.protocol {
            Protocol::Call(call) => answering && call.is_awaiting(self.head.is_some()),
            Protocol::Plain | Protocol::Mcp(_) | Protocol::WebSocket(_) => false,
        }
    }

    fn stall_thresholds(&self) -> StallThresholds {
        let reasons = self.protocol.call().is_some_and(|call| call.facts().asks_to_reason());
        StallThresholds::for_route(&self.request_head.route, reasons)
    }

    /// Restarts the stall clock at each part of the request body, so that a long upload is not a stall. Has no effect
    /// once the response has begun.
    fn uploaded(&mut self, at: MonotonicInstant, out: &mut impl FnMut(LiveSample)) {
        if self.head.is_none() && self.stall_clock.since().is_some() {
            report_end_of_stall(self.stall_clock.restart(at, StallPhase::FirstToken), out);
        }
    }

    fn request(&mut self, at: MonotonicInstant, bytes: &[u8], out: &mut impl FnMut(LiveSample)) {
        self.request_bytes += bytes.len() as u64;
        self.uploaded(at, out);
        let is_read = match &mut self.protocol {
            Protocol::Plain => true,
            Protocol::Call(call) => call.request(bytes),
            Protocol::Mcp(mcp) => mcp.request(bytes),
            Protocol::WebSocket(socket) => socket.push(Direction::Request, bytes, out),
        };
        self.count_unread(is_read, bytes);
    }

    const fn count_unread(&mut self, is_read: bool, bytes: &[u8]) {
        if !is_read {
            self.unread_bytes += bytes.len() as u64;
        }
    }

    fn request_end(&mut self, at: MonotonicInstant, out: &mut impl FnMut(LiveSample)) {
        self.timestamps.uploaded = Some(at);
        self.uploaded(at, out);
        if let Some(call) = self.protocol.call_mut() {
            call.request_end(true);
        }
        if let Protocol::Mcp(mcp) = &mut self.protocol {
            mcp.request_end();
        }
        self.resolve_session();
    }

    fn head(&mut self, at: MonotonicInstant, mut head: Box<ResponseHead>) {
        // The timestamp is absent if this process generated the response, because the upstream sent no headers.
        self.timestamps.head = (!head.from_proxy).then_some(at);
        self.select_api(head.status >= 400);
        let now = Duration::from_nanos(
            (self.request_head.wall + at.since(self.timestamps.accept)).unix_nanos(),
        );
        if let Some(call) = self.protocol.call_mut() {
            call.head(&head, &self.request_head.route, now);
        }
        if let Protocol::Mcp(mcp) = &mut self.protocol {
            mcp.head(at, &head, &self.request_head.session_rule);
        }
        remove_session(&mut head.headers);
        self.head = Some(head);
    }

    /// Selects the API of a request from its body, if several APIs share the path. If the request `failed` before its
    /// whole body was observed, the API guessed from the path stays.
    fn select_api(&mut self, failed: bool) {
        let may_go_on = failed && !self.has_whole_request();
        self.protocol.take_call_if(|call| !call.select_api(may_go_on));
    }

    /// Returns whether the request body was observed completely.
    pub fn has_whole_request(&self) -> bool {
        self.timestamps.uploaded.is_some() || self.request_head.length == Some(self.request_bytes)
    }

    fn response(
        &mut self,
        at: MonotonicInstant,
        bytes: &[u8],
        blocked: Duration,
        out: &mut impl FnMut(LiveSample),
    ) {
        self.timestamps.byte.get_or_insert(at);
        self.response_bytes += bytes.len() as u64;
        self.blocked += blocked;
        let before = self.timestamps.last;
        let is_read = match &mut self.protocol {
            Protocol::Plain => return,
            Protocol::Mcp(mcp) => {
                let is_read = mcp.response(at, bytes);
                return self.count_unread(is_read, bytes);
            }
            Protocol::WebSocket(socket) => {
                let is_read = socket.push(Direction::Response, bytes, out);
                return self.count_unread(is_read, bytes);
            }
            Protocol::Call(call) => {
                call.response.timing.block(blocked);
                call.response(at, bytes, &mut self.timestamps, out)
            }
        };
        self.count_unread(is_read, bytes);
        self.stall_clock.record_blocked(blocked);
        if self.timestamps.last == before {
            self.stall_clock.record_arrival();
        } else {
            report_end_of_stall(self.stall_clock.restart(at, StallPhase::NextToken), out);
        }
        if self.stall_clock.is_stalled() && !self.is_awaiting() {
            report_end_of_stall(self.stall_clock.stop(at), out);
        }
    }

    fn gap(&mut self, direction: Direction, bytes: u64) {
        self.gap = true;
        match direction {
            Direction::Request => self.request_bytes += bytes,
            Direction::Response => self.response_bytes += bytes,
        }
        match &mut self.protocol {
            Protocol::Plain => {}
            Protocol::Call(call) => call.gap(direction),
            Protocol::Mcp(mcp) => mcp.gap(direction == Direction::Request),
            Protocol::WebSocket(socket) => socket.gap(direction, bytes),
        }
    }

    /// Returns the status code and the source of the token counts, once a successful response (below 400) or a
    /// WebSocket session has begun.
    pub fn response_start(&self) -> Option<(u16, Source)> {
        let status = self.head.as_ref().filter(|_| self.is_answering())?.status;
        Some((status, self.protocol.call()?.response.facts.source()))
    }

    /// Returns whether the upstream has begun a successful response (below 400) or a WebSocket session.
    fn is_answering(&self) -> bool {
        let head = self.head.as_ref().filter(|head| !head.from_proxy);
        head.is_some_and(|head| match head.status {
            SWITCHING => self.protocol.call().is_some_and(ApiCall::is_accepted),
            status => status < 400,
        })
    }
}
