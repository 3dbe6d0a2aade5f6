//! The exchanges in flight, and what their words do to load, objectives and metrics.
//!
//! Still sans-IO: words and moments come in, records and samples go out to [`Sinks`]. One thread at a time has it, but
//! it need not always be the same one: whoever wants a reading that is up to date (a scrape, `/streams`, a test) takes
//! the lock, drains the channel and reads.

mod active_request;
mod time_slices;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::exchange::Exchange;
use crate::in_flight::active_request::ActiveRequest;
use crate::tcp_info::{TcpInfoQuery, TcpInfoReader};
use tokengauge_llm::content;
use tokengauge_llm::count::Tokenisers;
use tokengauge_llm::frame::Anomaly;
use tokengauge_measure::cost::{Costs, Priced, TokenPrice};
use tokengauge_measure::drift::{self, Drift};
use tokengauge_measure::engine::{self, Asked, Backend, Backends, Told};
use tokengauge_measure::load::{self, Lane, Load};
use tokengauge_measure::record::{Outcome, Record};
use tokengauge_measure::slo;
use tokengauge_measure::timing::{Awaited, Pauses, pauses};
use tokengauge_telemetry::{BudgetReading, Component, Instruments, StateSnapshot};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    Direction, Ending, ExchangeId, ObserverEvent, RequestHead, TimestampedEvent,
};
use tokengauge_types::label::{CardinalityLimiter, Label, Name};

/// Where finished exchanges go.
pub struct Sinks {
    pub instruments: Arc<Instruments>,
    /// Told every finished exchange, last of all: spans, the console.
    pub record: Box<dyn Fn(&Record) + Send>,
}

impl std::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sinks").finish_non_exhaustive()
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct InFlightRequests {
    /// The ids are our own and come in order, so no client can make them collide.
    flights: FxHashMap<ExchangeId, Box<ActiveRequest>>,
    load: Load,
    ledger: slo::Ledger,
    drift: Drift,
    pauses: Pauses,
    quotas: load::Quotas,
    retries: load::Retries,
    gate: Arc<CardinalityLimiter>,
    tokenisers: Tokenisers,
    tcp_info: TcpInfoReader,
    backends: Backends,
    /// The routes whose content is captured, and the memory that this may take.
    contents: content::Routes,
    budget: content::Budget,
    costs: Costs,
    sinks: Sinks,
}

/// What a stream shows on `/streams`: facts, never text.
#[derive(Clone, Debug, Serialize)]
pub struct StreamView {
    pub exchange: ExchangeId,
    pub route: Label,
    pub path: Name,
    pub model: Option<Name>,
    pub phase: StreamPhase,
    /// Seconds since the request's head was received.
    pub age: f64,
    /// Seconds from the request's head to the first token; `null` before it.
    pub time_to_first_token: Option<f64>,
    /// Output tokens so far, by our own count.
    pub tokens: u64,
    /// Output tokens per second since the first token; `null` before a second token-bearing chunk.
    pub output_rate: Option<f64>,
    /// Seconds since the last token, or since the request's head where there is none yet.
    pub idle: f64,
    /// Whether it has brought no token for longer than its route allows.
    pub stalled: bool,
    /// Whom the response body is waiting for.
    pub waiting_for: &'static str,
}

/// What an exchange in flight is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamPhase {
    Queued,
    Waiting,
    Streaming,
    Unstreamed,
}

impl InFlightRequests {
    /// Between two beats of the runtime: see [`beat`](Self::beat).
    pub const HEARTBEAT_INTERVAL: Duration = pauses::BEAT_EVERY;

    pub fn new(
        objectives: Vec<slo::Objective>,
        gate: Arc<CardinalityLimiter>,
        sinks: Sinks,
    ) -> Self {
        Self {
            flights: FxHashMap::default(),
            load: Load::new(),
            ledger: slo::Ledger::new(objectives),
            drift: Drift::default(),
            pauses: Pauses::default(),
            quotas: load::Quotas::default(),
            retries: load::Retries::default(),
            gate,
            tokenisers: Tokenisers::default(),
            tcp_info: TcpInfoReader::default(),
            backends: Backends::default(),
            contents: content::Routes::default(),
            budget: content::Budget::default(),
            costs: Costs::default(),
            sinks,
        }
    }

    /// Takes in one word. `bytes` are those of an `Arrival`.
    ///
    /// A panic in a stage ends the observation of that one exchange, and is counted; its bytes flow on.
    pub fn apply(&mut self, entry: TimestampedEvent, bytes: &[u8]) {
        let TimestampedEvent { exchange, at, word } = entry;
        match word {
            ObserverEvent::RequestHead(open) => self.open(exchange, at, open),
            ObserverEvent::End(ending) => {
                let Some(mut flight) = self.flights.remove(&exchange) else {
                    return;
                };
                self.tcp_info.read(flight.exchange.connections(), true);
                if let Some((upstream, _)) = &flight.found {
                    self.backends.left(at, upstream);
                }
                if catch_unwind(AssertUnwindSafe(|| self.end(*flight, at, ending))).is_err() {
                    self.sinks.instruments.record_anomaly(Anomaly::Panic, 1);
                }
            }
            word @ (ObserverEvent::Queued
            | ObserverEvent::Admitted
            | ObserverEvent::Connected(_)
            | ObserverEvent::RequestHeadSent
            | ObserverEvent::RequestBodySent
            | ObserverEvent::ResponseHead(_)
            | ObserverEvent::Body { .. }
            | ObserverEvent::Trailers(_)
            | ObserverEvent::Upgraded
            | ObserverEvent::Closed(_)
            | ObserverEvent::Gap { .. }) => self.step(exchange, at, word, bytes),
        }
    }

    /// Tells the stream-seconds that have passed, and looks for streams that hang. To be called about every 250 ms while
    /// anything is open.
    pub fn sweep(&mut self, at: MonotonicInstant) {
        let instruments = &self.sinks.instruments;
        self.tcp_info.begin_sweep();
        for flight in self.flights.values_mut() {
            self.tcp_info.read(flight.exchange.connections(), false);
            flight.tell_time(at, Duration::ZERO, instruments);
            let unread = flight.unread(at);
            flight.look(at, unread, &self.pauses, instruments);
        }
        self.look_at_slices(at);
    }

    /// The runtime that moves the bytes had its turn at `at`: see [`Pauses`].
    pub fn record_heartbeat(&mut self, at: MonotonicInstant) {
        let late = self.pauses.beat(at);
        self.sinks.instruments.record_delay(Component::Runtime, late);
    }

    /// The observer had its turn, `late` after that was due.
    pub fn record_observer_delay(&self, late: Duration) {
        self.sinks.instruments.record_delay(Component::Observer, late);
    }

    /// Load and objectives at `at`.
    pub fn reading(&mut self, at: MonotonicInstant) -> (load::Reading, Vec<slo::Reading>) {
        let mut load = self.load.reading(at);
        load.quotas = self.quotas.reading(at);
        let places: FxHashMap<Lane, usize> = load
            .lanes
            .iter()
            .enumerate()
            .map(|(place, reading)| (reading.lane.clone(), place))
            .collect();
        for flight in self.flights.values() {
            let lane = places.get(&flight.lane);
            let reading = lane.and_then(|place| load.lanes.get_mut(*place));
            let watch = flight.exchange.watch();
            if let Some((reading, watch)) = reading.zip(watch)
                && let Some(idle) = watch.idle(at)
            {
                let [first, next] = &mut reading.silence;
                match watch.awaited() {
                    Awaited::FirstToken => first.add(idle, watch.is_stalled()),
                    Awaited::NextToken => next.add(idle, watch.is_stalled()),
                }
            }
        }
        for reading in &mut load.lanes {
            reading.backend_waiting = self.backends.waiting(at, &reading.lane.route);
        }
        (load, self.ledger.reading(at))
    }

    /// What is known of the backends at `at`.
    pub fn backends(&self, at: MonotonicInstant) -> Vec<engine::Reading> {
        self.backends.readings(at)
    }

    /// Of which backends something is wanted to be known.
    pub fn set_backends(&mut self, backends: Vec<Backend>) {
        self.backends.replace(backends);
    }

    /// The metrics of the engine behind `upstream` were read at `at`, which is `wall` on the wall clock, or not.
    pub fn record_engine_reading(
        &mut self,
        at: MonotonicInstant,
        wall: WallTime,
        upstream: &Label,
        told: Result<Told, Asked>,
    ) {
        self.backends.asked(at, wall, upstream, told);
    }

    /// Everything that is read rather than recorded, as far as it is known here.
    pub fn snapshot(&mut self, at: MonotonicInstant) -> StateSnapshot {
        let (load, slo) = self.reading(at);
        StateSnapshot {
            token_prices: self.token_prices(&load),
            budgets: self.budgets(),
            drift: self.drift.reading(at),
            backends: self.backends(at),
            load,
            slo,
            ..StateSnapshot::default()
        }
    }

    /// How far the workload has moved from its baseline.
    pub fn drift(&mut self, at: MonotonicInstant) -> drift::Reading {
        self.drift.reading(at)
    }

    /// The lengths of late, to compare with later.
    pub fn lengths(&self) -> drift::Saved {
        self.drift.saved()
    }

    /// What the workload is compared with; where that changes, the comparison begins anew.
    pub fn set_drift_config(&mut self, config: drift::Config) {
        self.drift.replace(config);
    }

    /// What exchanges that begin from now on are counted with.
    pub fn set_tokenizers(&mut self, tokenisers: Tokenisers) {
        self.tokenisers = tokenisers;
    }

    /// How the kernel is asked about connections: once while an exchange goes on, and at its end.
    pub fn set_tcp_info_query(&mut self, query: TcpInfoQuery) {
        self.tcp_info = TcpInfoReader::new(query);
    }

    /// Whose content is captured of exchanges that begin from now on.
    pub fn set_content_capture(&mut self, contents: content::Routes) {
        self.contents = contents;
    }

    /// What calls that end from now on cost, and whose budget pays.
    pub fn set_costs(&mut self, costs: Costs) {
        for budget in &costs.budgets {
            let unit = budget.allowance.unit();
            self.sinks.instruments.register_budget(&budget.name, &unit);
        }
        self.costs = costs;
    }

    /// The budgets in force.
    fn budgets(&self) -> Vec<BudgetReading> {
        let budgets = self.costs.budgets.iter();
        let reading = budgets.map(|budget| BudgetReading {
            name: budget.name.clone(),
            unit: budget.allowance.unit(),
            limit: budget.allowance.amount(),
            window: budget.window,
        });
        reading.collect()
    }

    /// What a million output tokens cost on hardware that is paid by the hour, under the load of `reading`.
    fn token_prices(&self, reading: &load::Reading) -> Vec<TokenPrice> {
        let sustained = |route: &Label| {
            let flows = reading.flows.iter().filter(|flow| flow.flow.route == *route);
            let rates = flows.map(|flow| flow.output.five_minutes);
            rates.sum::<Option<f64>>()
        };
        self.costs.token_prices(sustained)
    }

    /// Every exchange in flight, oldest first.
    pub fn streams(&self, at: MonotonicInstant) -> Vec<StreamView> {
        let mut views: Vec<StreamView> =
            self.flights.values().map(|flight| flight.view(at)).collect();
        views.sort_by_key(|view| view.exchange);
        views
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Makes known a lane before its first exchange, so that it is told as 0.
    pub fn track_route(&mut self, lane: &Lane) {
        self.load.know(lane);
    }

    fn open(&mut self, id: ExchangeId, at: MonotonicInstant, open: Box<RequestHead>) {
        self.sinks.instruments.record_start(&open.route);
        let lane = Lane { route: open.route.name.clone(), vantage: open.route.vantage };
        let (retry, identity) = self.retries.opened(at, &open);
        if let Some(sign) = retry {
            self.sinks.instruments.record_retry(&lane, sign);
        }
        let cell = Arc::clone(&open.cell);
        let gate = Arc::clone(&self.gate);
        let policy = self.contents.of(&open.route.name).map(Arc::clone);
        let mut exchange = Exchange::new(id, at, open, gate, &self.tokenisers);
        if let Some(policy) = policy {
            exchange.capture(&policy, &self.budget);
        }
        let state = exchange.state();
        self.load.enter(&lane, state);
        let flight = ActiveRequest {
            exchange,
            lane,
            state,
            live: None,
            cell,
            swept: at,
            arrived: None,
            tokens: 0,
            first_tokens: 0,
            slices: None,
            untold: Vec::new(),
            messages: [0; 2],
            found: None,
            identity,
        };
        self.flights.insert(id, Box::new(flight));
    }

    fn step(&mut self, id: ExchangeId, at: MonotonicInstant, word: ObserverEvent, bytes: &[u8]) {
        let Self { flights, load, ledger, pauses, backends, quotas, sinks, .. } = self;
        // Words behind the end (a request body that is still being sent) have nobody to go to.
        let Some(flight) = flights.get_mut(&id) else {
            return;
        };
        if matches!(word, ObserverEvent::Admitted) {
            let depth = load.queue_depth(&flight.lane);
            flight.exchange.set_queue_depth(u32::try_from(depth).unwrap_or(u32::MAX));
            flight.admitted(at, backends);
        }
        let blocked = if let ObserverEvent::Body { blocked, .. } = &word {
            blocked.duration()
        } else {
            Duration::ZERO
        };
        flight.look(at, blocked, pauses, &sinks.instruments);
        if let ObserverEvent::Body { direction: Direction::Response, .. } = &word {
            flight.arrived = Some(at);
        }
        let headed = matches!(word, ObserverEvent::ResponseHead(_));
        if matches!(word, ObserverEvent::Gap { .. }) {
            ledger.lose();
        }
        let before = flight.tokens;
        match catch_unwind(AssertUnwindSafe(|| flight.word(at, word, bytes, load))) {
            Ok(stalls) => {
                stalls.into_iter().for_each(|sample| flight.tell_stall(sample, &sinks.instruments))
            }
            Err(_) => flight.exchange.break_off(),
        }
        if let Some((flow, quota)) = headed.then(|| flight.quota()).flatten() {
            quotas.say(at, &flow, &quota);
        }
        let state = flight.exchange.state();
        if headed || state != flight.state || !blocked.is_zero() {
            flight.tell_time(at, blocked, &sinks.instruments);
        }
        if state != flight.state {
            load.shift(&flight.lane, flight.state, state);
            flight.state = state;
        }
        if flight.live.is_none() && flight.exchange.is_settled() {
            flight.bind(at, load, &sinks.instruments);
        }
        flight.tell_messages(&sinks.instruments);
        flight.tell_slices(at, flight.tokens - before, ledger);
    }

    fn end(&mut self, mut flight: ActiveRequest, at: MonotonicInstant, ending: Ending) {
        let Self { load, ledger, drift, pauses, backends, retries, gate, costs, sinks, .. } = self;
        let found = flight.found.take();
        flight.tell_time(at, Duration::ZERO, &sinks.instruments);
        let unread = flight.unread(at);
        flight.look(at, unread, pauses, &sinks.instruments);
        load.leave(&flight.lane, flight.state);
        let identity = flight.identity;
        let slices = flight.slices.take().unwrap_or_default();
        let told = flight.tokens;
        let mut record = flight.end(at, ending, load, &sinks.instruments);
        if let Some(call) = record.call.as_ref().filter(|_| !slices.is_empty()) {
            let counted = call.output.as_ref().map_or(0, |output| output.counted);
            ledger.stream(at, &slices, counted.saturating_sub(told));
        }
        if let Some(identity) = identity.filter(|_| record.outcome != Outcome::Ok) {
            retries.failed(at, identity);
        }
        // Nothing came after it that could tell.
        record.blocked += unread;
        if let Some(found) = found {
            active_request::found(backends, at, found, &mut record);
        }
        charge(costs, &mut record, &sinks.instruments);
        let verdicts: Vec<_> = ledger.judge(&record).collect();
        for (index, judged) in verdicts {
            ledger.note(at, index, judged);
            if let (Some(call), Some(objective)) = (record.call.as_mut(), ledger.objective(index)) {
                call.verdicts.push((objective.name.clone(), judged.verdict));
            }
        }
        drift.ended(at, &record);
        sinks.instruments.record_end(&record, gate);
        (sinks.record)(&record);
    }
}

/// Says what a call cost, and takes it from the budgets that pay for it.
fn charge(costs: &Costs, record: &mut Record, instruments: &Instruments) {
    let Some(call) = &record.call else { return };
    let cost = match costs.price(record, call) {
        Priced::At(cost) => Some(cost),
        Priced::Free => None,
        Priced::Unpriced => {
            instruments.record_unpriced(&call.series);
            None
        }
    };
    if let Some(call) = &mut record.call {
        call.cost = cost;
    }
    for (budget, amount) in costs.spent(record) {
        instruments.record_spend((&budget.name, &budget.allowance.unit()), amount);
    }
}
