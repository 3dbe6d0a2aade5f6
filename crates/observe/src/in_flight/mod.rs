//! Open requests, and the effect of their events on load statistics, SLOs and metrics.
//!
//! This module does no I/O: callers pass events and timestamps, and [`Sinks`] receives records and samples. Only one
//! thread at a time uses `InFlightRequests`. A thread that needs current values, for example for a scrape or
//! `/streams`, takes the lock and first applies the waiting events.

mod active_request;
mod background;
mod costs;
mod deadlines;
mod muted;
mod time_slices;
mod turns;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use active_request::StreamView;

use rustc_hash::FxHashMap;

use crate::exchange::ObservedExchange;
use crate::in_flight::active_request::ActiveRequest;
use crate::in_flight::background::BackgroundResponses;
use crate::in_flight::costs::charge;
use crate::in_flight::deadlines::{Deadlines, MISSED};
use crate::in_flight::muted::MUTED;
use crate::tcp_info::{TcpInfoQuery, TcpInfoReader};
use tokengauge_llm::budget::Budget;
use tokengauge_llm::content;
use tokengauge_llm::count::Tokenizers;
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::cost::Costs;
use tokengauge_measure::drift::Drift;
use tokengauge_measure::engine::Backends;
use tokengauge_measure::load::{self, ActiveStreams, Load, ModelKey, RouteKey};
use tokengauge_measure::record::{Outcome, Record};
use tokengauge_measure::slo;
use tokengauge_measure::timing::{PauseDetector, StallClock, StallPhase, pauses};
use tokengauge_telemetry::{Component, Instruments, ObserverHealth, StateSnapshot};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    Direction, Ending, ExchangeId, ObserverEvent, RequestHead, TimestampedEvent,
};
use tokengauge_types::label::{CardinalityLimiter, OTHER};

/// Receivers of finished requests.
pub struct Sinks {
    pub instruments: Arc<Instruments>,
    /// Called last with every finished request.
    pub record: Box<dyn Fn(&Record) + Send>,
}

impl std::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sinks").finish_non_exhaustive()
    }
}

/// The open requests of this process, and all state derived from requests.
#[derive(Debug)]
pub struct InFlightRequests {
    /// Open requests by id. Ids are consecutive numbers from this process, so a client cannot cause hash collisions.
    requests: FxHashMap<ExchangeId, TrackedRequest>,
    load: Load,
    pub slos: slo::SloTracker,
    /// Detects workload drift: compares the lengths of requests and responses with a baseline.
    pub drift: Drift,
    pauses: PauseDetector,
    quotas: load::RateLimitTracker,
    retries: load::Retries,
    limiter: Arc<CardinalityLimiter>,
    /// The tokenizers for requests that open from now on.
    pub tokenizers: Tokenizers,
    tcp_info: TcpInfoReader,
    pub backends: Backends,
    /// Selects the routes whose content is captured. A change applies to requests that begin later.
    pub contents: content::CapturePolicies,
    /// Limits the memory of all parsers, and the number of bytes that they decompress. A change applies to requests
    /// that begin later.
    pub budget: Budget,
    health: ObserverHealth,
    background: BackgroundResponses,
    costs: Costs,
    sinks: Sinks,
    /// Number of calls inside WebSockets so far.
    turns: u64,
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

    /// Default limit in bytes for the memory of all parsers, enough for 1,000 concurrent gzip streams.
    pub const DEFAULT_MEMORY: usize = 48 << 20;

    pub fn new(
        objectives: Vec<slo::Objective>,
        limiter: Arc<CardinalityLimiter>,
        sinks: Sinks,
    ) -> Self {
        Self {
            requests: FxHashMap::default(),
            load: Load::default(),
            slos: slo::SloTracker::new(objectives),
            drift: Drift::default(),
            pauses: PauseDetector::default(),
            quotas: load::RateLimitTracker::default(),
            retries: load::Retries::default(),
            limiter,
            tokenizers: Tokenizers::default(),
            tcp_info: TcpInfoReader::default(),
            backends: Backends::default(),
            contents: content::CapturePolicies::default(),
            budget: Budget::new(Self::DEFAULT_MEMORY),
            health: ObserverHealth::default(),
            background: BackgroundResponses::default(),
            costs: Costs::default(),
            sinks,
            turns: 0,
        }
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
                let Some(TrackedRequest { mut request, .. }) = self.requests.remove(&exchange)
                else {
                    return;
                };
                self.end_turns(&mut request, at, ending);
                if catch_unwind(AssertUnwindSafe(|| self.end(*request, at, ending))).is_err() {
                    self.sinks.instruments.record_anomaly(ParseError::Panic, 1);
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
            | ObserverEvent::Gap { .. }) => {
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
            self.health.lost_bytes += u64::from(len);
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
        let Self { requests, tcp_info, pauses, sinks, slos, .. } = self;
        let instruments = &sinks.instruments;
        tcp_info.begin_sweep();
        for TrackedRequest { request, check_due, lacks_tcp_info } in requests.values_mut() {
            let asks_kernel = *lacks_tcp_info && tcp_info.may_query();
            if at < *check_due && !asks_kernel {
                continue;
            }
            let swept = catch_unwind(AssertUnwindSafe(|| {
                tcp_info.read(&mut request.exchange.connections, false);
                request.record_time(at, Duration::ZERO, instruments);
                let unread = request.unread(at);
                request.check_stall(at, unread, pauses, instruments);
                for missed in request.take_missed_deadlines(at, slos) {
                    slos.record(at, missed, MISSED);
                }
                request.next_check(at)
            }));
            *check_due = swept.unwrap_or_else(|_| {
                request.exchange.abort();
                at
            });
            *lacks_tcp_info = !request.exchange.connections.are_read();
        }
        self.count_streams_in_slices(at);
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

    /// Records that the thread `worker`, which forwards traffic, was responsive at `at`. See [`PauseDetector`].
    pub fn record_heartbeat(&mut self, worker: usize, at: MonotonicInstant) {
        let late = self.pauses.record_heartbeat(worker, at);
        self.sinks.instruments.record_delay(Component::Runtime, late);
    }

    /// Records that the observer thread woke up `late` after its due time.
    pub fn record_observer_delay(&self, late: Duration) {
        self.sinks.instruments.record_delay(Component::Observer, late);
    }

    pub fn reading(&mut self, at: MonotonicInstant) -> (load::Reading, Vec<slo::Reading>) {
        let streams = self.active_streams(at);
        let mut load = self.load.reading(at);
        for model in &mut load.models {
            model.streams = streams.get(&model.model_key).copied().unwrap_or_default();
        }
        load.quotas = self.quotas.reading(at);
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
            reading.backend_waiting = self.backends.waiting(at, &reading.route_key.route);
        }
        (load, self.slos.reading(at))
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
            self.load.keep(&key, at);
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
            token_prices: self.token_prices(&load),
            budgets: self.budgets(),
            drift: self.drift.reading(at),
            backends: self.backends.readings(at),
            observer: ObserverHealth { held: self.budget.held_bytes() as u64, ..self.health },
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

    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Registers a route before its first request, so that its metrics report 0 instead of being absent.
    pub fn track_route(&mut self, route: &RouteKey) {
        self.load.register(route);
    }

    fn open(
        &mut self,
        id: ExchangeId,
        at: MonotonicInstant,
        open: Box<RequestHead>,
        is_turn: bool,
    ) {
        self.sinks.instruments.record_start(&open.route);
        let route_key = RouteKey::from_route(&open.route);
        let (retry, identity) = self.retries.opened(at, &open);
        if let Some(signal) = retry {
            self.sinks.instruments.record_retry(&route_key, signal);
        }
        let body_wait = Arc::clone(&open.body_wait);
        let limiter = Arc::clone(&self.limiter);
        let policy = self.contents.for_route(&open.route.name).map(Arc::clone);
        let parsers = (&self.tokenizers, self.budget.request());
        let mut exchange = ObservedExchange::of_http(id, at, open, limiter, parsers.1);
        if is_turn {
            exchange.mark_turn();
        }
        let detected = catch_unwind(AssertUnwindSafe(|| {
            exchange.detect_call(parsers.0);
            if let Some(policy) = policy {
                exchange.capture(&policy);
            }
        }));
        if detected.is_err() {
            exchange.abort();
        }
        let state = exchange.state();
        self.load.enter(&route_key, state);
        let request = ActiveRequest {
            exchange,
            route_key,
            state,
            live: None,
            body_wait,
            stream_time_recorded_until: at,
            is_stream_over: false,
            arrived: None,
            tokens: 0,
            first_tokens: 0,
            slices: None,
            deadlines: Deadlines::default(),
            early_samples: Vec::new(),
            messages: [0; 2],
            warmth: None,
            is_counted_lost: false,
            identity,
        };
        let request = Box::new(request);
        self.requests.insert(id, TrackedRequest { request, check_due: at, lacks_tcp_info: false });
    }

    /// Applies an event of an open request. Returns whether the request is a session with calls inside.
    fn step(
        &mut self,
        id: ExchangeId,
        at: MonotonicInstant,
        event: ObserverEvent,
        bytes: &[u8],
    ) -> bool {
        let Self { requests, load, slos, pauses, backends, quotas, health, sinks, .. } = self;
        // An event after the end of an exchange finds no open request. Such events come from a request body that is
        // still being sent.
        let Some(TrackedRequest { request, check_due, .. }) = requests.get_mut(&id) else {
            return false;
        };
        if !matches!(event, ObserverEvent::Body { .. }) {
            *check_due = at;
        }
        if matches!(event, ObserverEvent::Admitted) {
            let depth = load.queue_depth_with(&request.route_key, request.state);
            request.exchange.queue_depth = u32::try_from(depth).unwrap_or(u32::MAX);
            request.admitted(at, backends);
        }
        let blocked = if let ObserverEvent::Body { blocked, .. } = &event {
            blocked.duration()
        } else {
            Duration::ZERO
        };
        if request.exchange.may_be_stalled(at) {
            request.check_stall(at, blocked, pauses, &sinks.instruments);
        }
        if let ObserverEvent::Body { direction: Direction::Response, .. } = &event {
            request.arrived = Some(at);
        }
        let is_head = matches!(event, ObserverEvent::ResponseHead(_));
        let is_gap = matches!(event, ObserverEvent::Gap { .. });
        let before = request.tokens;
        match catch_unwind(AssertUnwindSafe(|| request.apply_event(at, event, bytes, load))) {
            Ok(stalls) => stalls
                .into_iter()
                .for_each(|sample| request.record_stall(sample, &sinks.instruments)),
            Err(_) => request.exchange.abort(),
        }
        let unread = request.exchange.take_unread_bytes();
        health.lost_bytes += unread;
        if is_gap || unread > 0 {
            slos.mark_unobserved();
            health.unobserved += u64::from(!std::mem::replace(&mut request.is_counted_lost, true));
        }
        if let Some((model, quota)) = is_head.then(|| request.quota()).flatten() {
            quotas.record_limits(at, &model, &quota);
        }
        let state = request.exchange.state();
        let is_stream_over = request.exchange.is_stream_over();
        let changes = state != request.state || is_stream_over != request.is_stream_over;
        if is_head || changes || !blocked.is_zero() {
            request.record_time(at, blocked, &sinks.instruments);
        }
        request.is_stream_over = is_stream_over;
        if state != request.state {
            load.transition(&request.route_key, request.state, state);
            request.state = state;
        }
        if request.live.is_none() && request.exchange.has_final_labels() {
            request.bind(at, load, &sinks.instruments);
        }
        request.report_messages(&sinks.instruments);
        request.record_slices(at, request.tokens - before, slos);
        request.exchange.turns.is_some()
    }

    fn end(&mut self, mut request: ActiveRequest, at: MonotonicInstant, ending: Ending) {
        let connections = &mut request.exchange.connections;
        let read = catch_unwind(AssertUnwindSafe(|| self.tcp_info.read(connections, true)));
        if read.is_err() {
            request.exchange.abort();
        }
        if let Some((upstream, _)) = &request.warmth {
            self.backends.record_end(at, upstream);
        }
        let Self { load, slos, drift, pauses, backends, retries, limiter, background, .. } = self;
        let (costs, sinks) = (&self.costs, &self.sinks);
        let warmth = request.warmth.take();
        request.record_time(at, Duration::ZERO, &sinks.instruments);
        let unread = request.unread(at);
        request.check_stall(at, unread, pauses, &sinks.instruments);
        load.leave(&request.route_key, request.state);
        let identity = request.identity;
        let slices = request.slices.take().unwrap_or_default();
        let deadlines = std::mem::take(&mut request.deadlines);
        let reported = request.tokens;
        let mut record = request.end(at, ending, load, &sinks.instruments);
        if let Some(call) = record.call.as_ref().filter(|_| !slices.is_empty()) {
            let counted = call.output.as_ref().map_or(0, |output| output.counted);
            slos.stream(at, &slices, counted.saturating_sub(reported));
        }
        if let Some(identity) = identity.filter(|_| record.outcome != Outcome::Ok) {
            retries.failed(at, identity);
        }
        // The time in which the client did not read is added here, because no further event can report it.
        record.blocked += unread;
        if let Some(warmth) = warmth {
            active_request::record_warmth(backends, at, warmth, &mut record);
        }
        background.settle(&mut record);
        charge(costs, &mut record, &sinks.instruments);
        deadlines.judge_end(slos, at, &mut record);
        drift.ended(at, &record);
        sinks.instruments.record_end(&record, limiter);
        if record.exchange != MUTED {
            (sinks.record)(&record);
        }
    }
}
