//! The exchanges in flight, and what their words do to load, objectives and metrics.
//!
//! Still sans-IO: words and moments come in, records and samples go out to [`Sinks`]. One thread at a time has it, but
//! it need not always be the same one: whoever wants a reading that is up to date (a scrape, `/streams`, a test) takes
//! the lock, drains the seam and reads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::clock::Moment;
use crate::content;
use crate::count::Tokenisers;
use crate::export::{Instruments, Live};
use crate::frame::Anomaly;
use crate::label::{Gate, Label, Name};
use crate::load::{self, Flow, FlowId, Lane, Load, State};
use crate::measure::Sample;
use crate::observe::exchange::Exchange;
use crate::record::{Call, Outcome, Record, Series};
use crate::slo;
use crate::wire::{Cell, Ending, Entry, ExchangeId, Fault, Open, Waiting, Word};

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
pub struct Board {
    /// The ids are our own and come in order, so no client can make them collide.
    flights: FxHashMap<ExchangeId, Box<Flight>>,
    load: Load,
    ledger: slo::Ledger,
    gate: Arc<Gate>,
    tokenisers: Tokenisers,
    /// The routes whose content is captured, and the memory that this may take.
    contents: content::Routes,
    budget: content::Budget,
    sinks: Sinks,
}

/// What a stream shows on `/streams`: facts, never text.
#[derive(Clone, Debug, Serialize)]
pub struct StreamView {
    pub exchange: ExchangeId,
    pub route: Label,
    pub path: Name,
    pub model: Option<Name>,
    pub phase: Phase,
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
    /// Whom the response body is waiting for.
    pub waiting_for: &'static str,
}

/// What an exchange in flight is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Queued,
    Waiting,
    Streaming,
    Unstreamed,
}

#[derive(Debug)]
struct Flight {
    exchange: Exchange,
    lane: Lane,
    state: State,
    live: Option<Meters>,
    cell: Arc<Cell>,
    /// Up to when its stream-seconds have been told.
    swept: Moment,
    tokens: u64,
    first_tokens: u64,
    /// What was measured before the series was settled: of a session, what one batch of messages brought.
    untold: Vec<Sample>,
    /// Messages told so far, from the client and from the upstream.
    messages: [u64; 2],
}

/// Bound instruments of one series.
#[derive(Clone, Debug)]
struct Meters {
    live: Arc<Live>,
    flow: FlowId,
}

impl Board {
    pub fn new(objectives: Vec<slo::Objective>, gate: Arc<Gate>, sinks: Sinks) -> Self {
        Self {
            flights: FxHashMap::default(),
            load: Load::new(),
            ledger: slo::Ledger::new(objectives),
            gate,
            tokenisers: Tokenisers::default(),
            contents: content::Routes::default(),
            budget: content::Budget::default(),
            sinks,
        }
    }

    /// Takes in one word. `bytes` are those of an `Arrival`.
    ///
    /// A panic in a stage ends the observation of that one exchange, and is counted; its bytes flow on.
    pub fn take(&mut self, entry: Entry, bytes: &[u8]) {
        let Entry { exchange, at, word } = entry;
        match word {
            Word::Open(open) => self.open(exchange, at, open),
            Word::End(ending) => {
                let Some(flight) = self.flights.remove(&exchange) else {
                    return;
                };
                if catch_unwind(AssertUnwindSafe(|| self.end(*flight, at, ending))).is_err() {
                    self.sinks.instruments.odd(Anomaly::Panic, 1);
                }
            }
            word @ (Word::Admitted
            | Word::Connected(_)
            | Word::Sent
            | Word::RequestEnd
            | Word::Head(_)
            | Word::Arrival { .. }
            | Word::Trailers(_)
            | Word::Upgraded
            | Word::Closed(_)
            | Word::Gap { .. }) => self.step(exchange, at, word, bytes),
        }
    }

    /// Tells the stream-seconds that have passed. To be called about every 250 ms while anything is open.
    pub fn sweep(&mut self, at: Moment) {
        for flight in self.flights.values_mut() {
            flight.tell_time(at, Duration::ZERO, &self.sinks.instruments);
        }
    }

    /// Load and objectives at `at`.
    pub fn reading(&mut self, at: Moment) -> (load::Reading, Vec<slo::Reading>) {
        (self.load.reading(at), self.ledger.reading(at))
    }

    /// Replaces the objectives; those that stay the same keep their history.
    pub fn replace_objectives(&mut self, at: Moment, objectives: Vec<slo::Objective>) {
        self.ledger.replace(at, objectives);
    }

    /// What exchanges that begin from now on are counted with.
    pub fn count_with(&mut self, tokenisers: Tokenisers) {
        self.tokenisers = tokenisers;
    }

    /// Whose content is captured of exchanges that begin from now on.
    pub fn capture(&mut self, contents: content::Routes) {
        self.contents = contents;
    }

    /// Every exchange in flight, oldest first.
    pub fn streams(&self, at: Moment) -> Vec<StreamView> {
        let mut views: Vec<StreamView> = self
            .flights
            .values()
            .map(|flight| flight.view(at))
            .collect();
        views.sort_by_key(|view| view.exchange);
        views
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Makes known a lane before its first exchange, so that it is told as 0.
    pub fn prime(&mut self, lane: &Lane) {
        self.load.know(lane);
    }

    fn open(&mut self, id: ExchangeId, at: Moment, open: Box<Open>) {
        self.sinks.instruments.started(&open.route);
        let lane = Lane {
            route: open.route.name.clone(),
            vantage: open.route.vantage,
        };
        let cell = Arc::clone(&open.cell);
        let gate = Arc::clone(&self.gate);
        let policy = self.contents.of(&open.route.name).map(Arc::clone);
        let mut exchange = Exchange::new(id, at, open, gate, &self.tokenisers);
        if let Some(policy) = policy {
            exchange.capture(&policy, &self.budget);
        }
        let state = exchange.state();
        self.load.enter(&lane, state);
        let flight = Flight {
            exchange,
            lane,
            state,
            live: None,
            cell,
            swept: at,
            tokens: 0,
            first_tokens: 0,
            untold: Vec::new(),
            messages: [0; 2],
        };
        self.flights.insert(id, Box::new(flight));
    }

    fn step(&mut self, id: ExchangeId, at: Moment, word: Word, bytes: &[u8]) {
        let Self {
            flights,
            load,
            sinks,
            ..
        } = self;
        // Words behind the end (a request body that is still being sent) have nobody to go to.
        let Some(flight) = flights.get_mut(&id) else {
            return;
        };
        if matches!(word, Word::Admitted) {
            let depth = load.queue_depth(&flight.lane);
            flight
                .exchange
                .set_queue_depth(u32::try_from(depth).unwrap_or(u32::MAX));
        }
        let blocked = if let Word::Arrival { blocked, .. } = &word {
            blocked.duration()
        } else {
            Duration::ZERO
        };
        let headed = matches!(word, Word::Head(_));
        if catch_unwind(AssertUnwindSafe(|| flight.word(at, word, bytes, load))).is_err() {
            flight.exchange.break_off();
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
    }

    fn end(&mut self, mut flight: Flight, at: Moment, ending: Ending) {
        let Self {
            load,
            ledger,
            gate,
            sinks,
            ..
        } = self;
        flight.tell_time(at, Duration::ZERO, &sinks.instruments);
        load.leave(&flight.lane, flight.state);
        let mut record = flight.end(at, ending, load);
        let verdicts: Vec<_> = ledger.judge(&record).collect();
        for (index, verdict) in verdicts {
            ledger.note(at, index, verdict);
            if let (Some(call), Some(objective)) = (record.call.as_mut(), ledger.objective(index)) {
                call.verdicts.push((objective.name.clone(), verdict));
            }
        }
        sinks.instruments.finished(&record, gate);
        (sinks.record)(&record);
    }
}

impl Flight {
    fn word(&mut self, at: Moment, word: Word, bytes: &[u8], load: &mut Load) {
        let Self {
            exchange,
            live,
            tokens,
            first_tokens,
            untold,
            ..
        } = self;
        let before = exchange.points().token;
        let mut sum = 0;
        exchange.word(at, word, bytes, &mut |sample| {
            if let Sample::Tokens { tokens, .. } = sample {
                sum += u64::from(tokens);
            }
            match live {
                Some(meters) => meters.live.sample(sample),
                None => untold.push(sample),
            }
        });
        if sum == 0 {
            return;
        }
        *tokens += sum;
        if before.is_none() {
            *first_tokens = *tokens;
        }
        let arrives = exchange.points().token.is_some() || exchange.websocket().is_some();
        if let Some(meters) = live.as_ref().filter(|_| arrives) {
            load.output(at, meters.flow, sum);
        }
    }

    /// Once the answer's head, or a session's first message, vouches for the model, the series is settled and its
    /// instruments are bound.
    fn bind(&mut self, at: Moment, load: &mut Load, instruments: &Instruments) {
        let Some(series) = self.exchange.series() else {
            return;
        };
        let flow = load.flow(&flow_of(&series));
        let live = instruments.live(&series);
        for sample in self.untold.drain(..) {
            if let Sample::Tokens { tokens, .. } = sample {
                load.output(at, flow, u64::from(tokens));
            }
            live.sample(sample);
        }
        self.live = Some(Meters { live, flow });
    }

    /// Tells the messages that have gone by since the last telling.
    fn tell_messages(&mut self, instruments: &Instruments) {
        let Some(socket) = self.exchange.websocket() else {
            return;
        };
        let now = [socket.request_messages, socket.response_messages];
        let [request, response] = std::mem::replace(&mut self.messages, now);
        let [requests, responses] = now;
        if requests > request || responses > response {
            instruments.messages(&self.lane, [requests - request, responses - response]);
        }
    }

    /// Tells the time since the last telling, split by what the stream was doing.
    fn tell_time(&mut self, at: Moment, blocked: Duration, instruments: &Instruments) {
        let passed = at.since(self.swept);
        if passed.is_zero() || !matches!(self.state, State::Waiting | State::Streaming) {
            self.swept = self.swept.max(at);
            return;
        }
        let blocked = match self.cell.waiting() {
            (Waiting::Client, since) => blocked.max(at.since(since.max(self.swept))),
            (Waiting::Upstream, _) => blocked,
        };
        let blocked = if blocked < BLOCKED_FROM {
            Duration::ZERO
        } else {
            blocked.min(passed)
        };
        self.swept = at;
        match &self.live {
            Some(meters) if self.state == State::Streaming => {
                meters
                    .live
                    .streaming(passed.saturating_sub(blocked), blocked);
            }
            Some(_) | None => instruments.waiting(&self.lane, passed),
        }
    }

    fn end(self, at: Moment, ending: Ending, load: &mut Load) -> Record {
        let Self { exchange, live, .. } = self;
        let id = exchange.id();
        let mut sum = 0;
        let mut told = |sample: Sample| {
            if let Sample::Tokens { tokens, .. } = sample {
                sum += u64::from(tokens);
            }
            if let Some(meters) = &live {
                meters.live.sample(sample);
            }
        };
        let record = exchange.end(at, ending, &mut told);
        debug_assert_eq!(record.exchange, id);
        if let (Some(meters), Some(call)) = (&live, &record.call) {
            account(load, meters.flow, &record, call, sum);
        }
        record
    }

    fn view(&self, at: Moment) -> StreamView {
        let points = self.exchange.points();
        let open = self.exchange.open();
        let last = points.last.unwrap_or(points.accept);
        let rate = points.token.zip(points.last).and_then(|(token, last)| {
            let seconds = last.since(token).as_secs_f64();
            #[expect(
                clippy::cast_precision_loss,
                reason = "token counts stay far below 2^52"
            )]
            (seconds > 0.0).then(|| self.tokens.saturating_sub(self.first_tokens) as f64 / seconds)
        });
        StreamView {
            exchange: self.exchange.id(),
            route: open.route.name.clone(),
            path: open.path.clone(),
            model: self.exchange.model().cloned(),
            phase: match self.state {
                State::Queued => Phase::Queued,
                State::Waiting => Phase::Waiting,
                State::Streaming => Phase::Streaming,
                State::Unstreamed => Phase::Unstreamed,
            },
            age: at.since(points.accept).as_secs_f64(),
            time_to_first_token: points.time_to_first_token().map(|time| time.as_secs_f64()),
            tokens: self.tokens,
            output_rate: rate,
            idle: at.since(last).as_secs_f64(),
            waiting_for: match self.cell.waiting().0 {
                Waiting::Upstream => "upstream",
                Waiting::Client => "client",
            },
        }
    }
}

/// Shorter waits for the client are the relay's own scheduling: the tee does not tell them either.
const BLOCKED_FROM: Duration = Duration::from_millis(1);

/// Adds a finished call to throughput and percentiles: whole output spread over sent…end, input over sent…token.
fn account(load: &mut Load, flow: FlowId, record: &Record, call: &Call, rest: u64) {
    let points = &record.points;
    let (Some(sent), Some(end)) = (points.sent, points.end) else {
        return;
    };
    if call.streamed || record.websocket.is_some() {
        load.output(end, flow, rest);
    } else if let Some(output) = &call.output {
        load.output_spread(sent, end, flow, output.counted);
    }
    if let Some(input) = call.usage.and_then(|usage| usage.input) {
        load.input_spread(sent, points.token.unwrap_or(end), flow, input);
    }
    let failed = record.outcome != Outcome::Ok && record.fault != Fault::Client;
    let ended = load::Ended {
        failed,
        time_to_first_token: points.time_to_first_token().filter(|_| call.streamed),
        output_rate: call.rates.output,
    };
    load.ended(end, flow, ended);
}

fn flow_of(series: &Series) -> Flow {
    Flow {
        provider: series.provider.clone(),
        model: series.model.clone(),
        route: series.route.clone(),
        vantage: series.vantage,
    }
}
