//! Open requests, and the effect of their events on load statistics, SLOs and metrics.
//!
//! This module does no I/O: callers pass events and timestamps, and [`Sinks`] receives records and samples. Only one
//! thread at a time uses `InFlightRequests`. A thread that needs current values, for example for a scrape or
//! `/streams`, takes the lock and first applies the waiting events.

mod active_request;
mod background;
mod console;
mod consumers;
mod costs;
mod deadlines;
mod muted;
mod settings;
mod stream_view;
mod time_slices;
mod turns;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use console::ConsoleReading;
pub use consumers::Sinks;
pub use settings::ObserverSettings;
pub use stream_view::StreamView;

use rustc_hash::FxHashMap;

use crate::exchange::ObservedExchange;
use crate::in_flight::active_request::ActiveRequest;
use crate::in_flight::consumers::Consumers;
use crate::tcp_info::{TcpInfoQuery, TcpInfoReader};
use tokengauge_llm::budget::Budget;
use tokengauge_llm::content::CapturePolicies;
use tokengauge_llm::count::Tokenizers;
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::drift::Drift;
use tokengauge_measure::engine::Backends;
use tokengauge_measure::load::{self, ActiveStreams, ModelKey, RouteKey};
use tokengauge_measure::record::Outcome;
use tokengauge_measure::slo::{self, SloTracker};
use tokengauge_measure::timing::{StallClock, StallPhase, pauses};
use tokengauge_telemetry::{Component, ObserverHealth, StateSnapshot};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Ending, ExchangeId, ObserverEvent, RequestHead, TimestampedEvent};
use tokengauge_types::label::{CardinalityLimiter, OTHER};

/// The open requests of this process, and all state derived from requests.
#[derive(Debug)]
pub struct InFlightRequests {
    /// Open requests by id. Ids are consecutive numbers from this process, so a client cannot cause hash collisions.
    requests: FxHashMap<ExchangeId, TrackedRequest>,
    consumers: Consumers,
    retries: load::Retries,
    limiter: Arc<CardinalityLimiter>,
    tokenizers: Tokenizers,
    contents: CapturePolicies,
    budget: Budget,
    tcp_info: TcpInfoReader,
    /// Number of calls inside WebSockets so far.
    turns: u64,
    /// Number of requests of the channel that have ended so far.
    ended: u64,
}

/// An open request, and when its next periodic check is due. Most checks only read this time, which is next to the
/// times of other requests in memory.
#[derive(Debug)]
struct TrackedRequest {
    request: Box<ActiveRequest>,
    check_due: MonotonicInstant,
    /// Whether the TCP statistics of a connection are not known yet.
    lacks_tcp_info: bool,
}

impl InFlightRequests {
    /// Time between two heartbeats of a thread that forwards traffic. See [`record_heartbeat`](Self::record_heartbeat).
    pub const HEARTBEAT_INTERVAL: Duration = pauses::HEARTBEAT_INTERVAL;

    pub fn new(settings: ObserverSettings, limiter: Arc<CardinalityLimiter>, sinks: Sinks) -> Self {
        let mut requests = Self {
            requests: FxHashMap::default(),
            consumers: Consumers::new(Arc::clone(&limiter), sinks),
            retries: load::Retries::default(),
            limiter,
            tokenizers: Tokenizers::default(),
            contents: CapturePolicies::default(),
            budget: Budget::new(settings.memory),
            tcp_info: TcpInfoReader::default(),
            turns: 0,
            ended: 0,
        };
        requests.apply_settings(MonotonicInstant::ZERO, settings);
        requests
    }

    /// Applies one event. `bytes` is the data of a `Body` event, and empty for other events.
    ///
    /// If parsing panics, only the observation of this request ends, and the panic is counted. Traffic is not affected.
    pub fn apply(&mut self, entry: TimestampedEvent, bytes: &[u8]) {
        let TimestampedEvent { exchange, at, event } = entry;
        self.budget.advance(at);
        match event {
            ObserverEvent::RequestHead(open) => self.open(exchange, at, open, false),
            ObserverEvent::End(ending) => {
                self.ended += u64::from(!turns::is_turn(exchange));
                let Some(TrackedRequest { mut request, .. }) = self.requests.remove(&exchange)
                else {
                    return;
                };
                self.end_turns(&mut request, at, ending);
                if catch_unwind(AssertUnwindSafe(|| self.end(*request, at, ending))).is_err() {
                    self.consumers.instruments().record_anomaly(ParseError::Panic, 1);
                }
            }
            event @ (ObserverEvent::Queued
            | ObserverEvent::Admitted
            | ObserverEvent::Connected(_)
            | ObserverEvent::ConnectionReused(_)
            | ObserverEvent::RequestHeadSent
            | ObserverEvent::RequestBodySent
            | ObserverEvent::ResponseHead(_)
            | ObserverEvent::Body { .. }
            | ObserverEvent::Trailers(_)
            | ObserverEvent::Upgraded
            | ObserverEvent::Closed(_)
            | ObserverEvent::Gap { .. }
            | ObserverEvent::GatewayUsage(_)) => {
                if self.step(exchange, at, event, bytes) {
                    self.apply_turns(exchange, at);
                }
            }
        }
    }

    /// Applies an event without parsing its body, because the observer is overloaded. The bytes of a `Body` event count
    /// as lost.
    pub fn skip(&mut self, entry: TimestampedEvent) {
        let event = if let ObserverEvent::Body { direction, len, .. } = entry.event {
            self.consumers.health.lost_bytes += u64::from(len);
            ObserverEvent::Gap { direction, bytes: u64::from(len) }
        } else {
            entry.event
        };
        self.apply(TimestampedEvent { event, ..entry }, &[]);
    }

    /// Checks the open requests for stalls and exceeded time limits, and records the time of streams. Skips requests for
    /// which nothing can be due. Called about every 250 ms while a request is open. If a check panics, only the
    /// observation of that request ends.
    pub fn sweep(&mut self, at: MonotonicInstant) {
        let Self { requests, tcp_info, consumers, .. } = self;
        tcp_info.begin_sweep();
        for TrackedRequest { request, check_due, lacks_tcp_info } in requests.values_mut() {
            let asks_kernel = *lacks_tcp_info && tcp_info.may_query();
            if at < *check_due && !asks_kernel {
                continue;
            }
            let swept = catch_unwind(AssertUnwindSafe(|| {
                tcp_info.read(&mut request.exchange.connections, false);
                consumers.check(at, request);
                request.next_check(at)
            }));
            *check_due = swept.unwrap_or_else(|_| {
                request.exchange.abort();
                at
            });
            *lacks_tcp_info = !request.exchange.connections.are_read();
        }
        self.count_streams_in_slices(at);
        self.record_console_gauges(at);
    }

    /// Like [`sweep`](Self::sweep), but checks all open requests, so that values that are read next are current.
    pub fn sweep_all(&mut self, at: MonotonicInstant) {
        self.make_checks_due();
        self.sweep(at);
    }

    fn make_checks_due(&mut self) {
        for open in self.requests.values_mut() {
            open.check_due = MonotonicInstant::ZERO;
        }
    }

    /// Records that the thread `worker`, which forwards traffic, was responsive at `at`. See
    /// [`PauseDetector`](tokengauge_measure::timing::PauseDetector).
    pub fn record_heartbeat(&mut self, worker: usize, at: MonotonicInstant) {
        let late = self.consumers.pauses.record_heartbeat(worker, at);
        self.consumers.instruments().record_delay(Component::Runtime, late);
    }

    /// Records that the observer thread woke up `late` after its due time.
    pub fn record_observer_delay(&self, late: Duration) {
        self.consumers.instruments().record_delay(Component::Observer, late);
    }

    pub fn reading(&mut self, at: MonotonicInstant) -> (load::Reading, Vec<slo::Reading>) {
        let streams = self.active_streams(at);
        let mut load = self.consumers.load.reading(at);
        for model in &mut load.models {
            model.streams = streams.get(&model.model_key).copied().unwrap_or_default();
        }
        load.quotas = self.consumers.quotas.reading(at);
        let places: FxHashMap<RouteKey, usize> = load
            .routes
            .iter()
            .enumerate()
            .map(|(place, reading)| (reading.route_key.clone(), place))
            .collect();
        for TrackedRequest { request, .. } in self.requests.values() {
            let place = places.get(&request.route_key);
            let reading = place.and_then(|place| load.routes.get_mut(*place));
            let stall_clock = request.exchange.stall_clock();
            if let Some((reading, stall_clock)) = reading.zip(stall_clock)
                && let Some(idle) = stall_clock.idle(at)
            {
                let [first, next] = &mut reading.stalled_streams;
                match stall_clock.phase() {
                    StallPhase::FirstToken => first.add(idle, stall_clock.is_stalled()),
                    StallPhase::NextToken => next.add(idle, stall_clock.is_stalled()),
                }
            }
        }
        for reading in &mut load.routes {
            reading.backend_waiting = self.consumers.backends.waiting(at, &reading.route_key.route);
        }
        (load, self.consumers.slos.reading(at))
    }

    /// Counts the streams that await a token by model, including models without tokens in the last 5 minutes.
    fn active_streams(&mut self, at: MonotonicInstant) -> FxHashMap<ModelKey, ActiveStreams> {
        let mut streams = FxHashMap::<ModelKey, ActiveStreams>::default();
        for TrackedRequest { request, .. } in self.requests.values_mut() {
            let awaiting = request.exchange.stall_clock().filter(|clock| clock.idle(at).is_some());
            let is_stalled = awaiting.map(StallClock::is_stalled);
            let Some((is_stalled, labels)) = is_stalled.zip(request.exchange.metric_labels())
            else {
                continue;
            };
            let key = ModelKey::from_labels(&labels);
            if key.model.as_str() == OTHER {
                continue;
            }
            self.consumers.load.keep(&key, at);
            let counts = streams.entry(key).or_default();
            match is_stalled {
                true => counts.stalled += 1,
                false => counts.flowing += 1,
            }
        }
        streams
    }

    /// Returns the values of all gauges that are computed from open and recent requests.
    pub fn snapshot(&mut self, at: MonotonicInstant) -> StateSnapshot {
        let (load, slo) = self.reading(at);
        StateSnapshot {
            token_prices: self.consumers.token_prices(&load),
            budgets: self.consumers.budgets(),
            drift: self.consumers.drift.reading(at),
            backends: self.consumers.backends.readings(at),
            observer: ObserverHealth {
                held: self.budget.held_bytes() as u64,
                ..self.consumers.health
            },
            load,
            slo,
            ..StateSnapshot::default()
        }
    }

    /// Sets the function that reads TCP statistics from the kernel. It is called for each connection: once while the
    /// request is open, and once at its end.
    pub fn set_tcp_info_query(&mut self, query: TcpInfoQuery) {
        self.tcp_info = TcpInfoReader::new(query);
    }

    /// Returns all open requests, oldest first.
    pub fn streams(&self, at: MonotonicInstant) -> Vec<StreamView> {
        let mut views: Vec<StreamView> =
            self.requests.values().map(|open| open.request.view(at)).collect();
        views.sort_by_key(|view| view.request_number);
        views
    }

    /// For reading and restoring the state of the SLOs.
    pub const fn slos(&mut self) -> &mut SloTracker {
        &mut self.consumers.slos
    }

    pub const fn drift(&mut self) -> &mut Drift {
        &mut self.consumers.drift
    }

    /// For scraped metrics of engines.
    pub const fn backends(&mut self) -> &mut Backends {
        &mut self.consumers.backends
    }

    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Returns the number of requests of the channel that have ended, without calls inside WebSockets.
    pub(crate) const fn ended(&self) -> u64 {
        self.ended
    }

    fn open(
        &mut self,
        id: ExchangeId,
        at: MonotonicInstant,
        head: Box<RequestHead>,
        is_turn: bool,
    ) {
        let instruments = self.consumers.instruments();
        instruments.record_start(&head.route);
        let route_key = RouteKey::from_route(&head.route);
        let (retry, retry_key) = self.retries.opened(at, &head);
        if let Some(signal) = retry {
            instruments.record_retry(&route_key, signal);
        }
        let body_wait = Arc::clone(&head.body_wait);
        let policy = self.contents.for_route(&head.route.name).map(Arc::clone);
        let limiter = Arc::clone(&self.limiter);
        let mut exchange = ObservedExchange::of_http(id, at, head, limiter, self.budget.request());
        if is_turn {
            exchange.mark_turn();
        }
        let detected = catch_unwind(AssertUnwindSafe(|| {
            exchange.detect_call(&self.tokenizers);
            if let Some(policy) = policy {
                exchange.capture(&policy);
            }
        }));
        if detected.is_err() {
            exchange.abort();
        }
        self.consumers.load.enter(&route_key, exchange.state());
        let request = Box::new(ActiveRequest::new(exchange, route_key, body_wait, at, retry_key));
        self.requests.insert(id, TrackedRequest { request, check_due: at, lacks_tcp_info: false });
    }

    /// Applies an event of an open request, and passes on what it changed. Returns whether the request is a session with
    /// calls inside.
    fn step(
        &mut self,
        id: ExchangeId,
        at: MonotonicInstant,
        event: ObserverEvent,
        bytes: &[u8],
    ) -> bool {
        let Self { requests, consumers, .. } = self;
        // An event after the end of an exchange finds no open request. Such events come from a request body that is
        // still being sent.
        let Some(TrackedRequest { request, check_due, .. }) = requests.get_mut(&id) else {
            return false;
        };
        if !matches!(event, ObserverEvent::Body { .. }) {
            *check_due = at;
        }
        consumers.before_event(at, request, &event);
        let transition = request.apply_event(at, event, bytes);
        consumers.follow(at, request, &transition);
        request.exchange.turns_mut().is_some()
    }

    fn end(&mut self, mut request: ActiveRequest, at: MonotonicInstant, ending: Ending) {
        let connections = &mut request.exchange.connections;
        let read = catch_unwind(AssertUnwindSafe(|| self.tcp_info.read(connections, true)));
        if read.is_err() {
            request.exchange.abort();
        }
        let retry_key = request.retry_key;
        let record = self.consumers.end(at, request, ending);
        if let Some(retry_key) = retry_key.filter(|_| record.outcome != Outcome::Ok) {
            self.retries.failed(at, retry_key);
        }
    }
}
