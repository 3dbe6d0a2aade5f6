//! One open request, and the effect of its events on load statistics and on metrics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::exchange::ObservedExchange;
use crate::in_flight::deadlines::Deadlines;
use tokengauge_console::{ChunkSample, ChunkTicks, GroupId, Recorder};
use tokengauge_llm::dialect::RateLimits;
use tokengauge_measure::engine::Backends;
use tokengauge_measure::load::{self, Load, ModelId, ModelKey, RequestPhase, RouteKey};
use tokengauge_measure::record::{Call, Outcome, Record, WarmupState};
use tokengauge_measure::slo::SloTracker;
use tokengauge_measure::timing::{LiveSample, PauseDetector};
use tokengauge_telemetry::{Instruments, LiveInstruments};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BodyWaitState, Ending, ErrorSource, MIN_BACKPRESSURE, ObserverEvent, WaitingFor,
};
use tokengauge_types::label::Label;

/// Maximum time between two periodic checks of a request. Limits how late a stall is reported if the client or this
/// process caused less delay than the last check assumed.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct ActiveRequest {
    pub(super) exchange: ObservedExchange,
    pub(super) route_key: RouteKey,
    pub(super) state: RequestPhase,
    pub(super) live: Option<SeriesInstruments>,
    pub(super) body_wait: Arc<BodyWaitState>,
    /// Instant up to which the time of the stream was recorded in metrics.
    pub(super) stream_time_recorded_until: MonotonicInstant,
    /// Whether the provider has sent its final event. The stream ends there, even if the connection stays open.
    pub(super) is_stream_over: bool,
    /// Time at which the last response bytes arrived.
    pub(super) arrived: Option<MonotonicInstant>,
    pub(super) tokens: u64,
    pub(super) first_tokens: u64,
    /// Indices of the SLOs that judge minutes of the whole system and cover this request. `None` until the request is
    /// sent completely or the response begins.
    pub(super) slices: Option<Vec<usize>>,
    /// Time limits of SLOs that the request can still miss, and those that it has missed.
    pub(super) deadlines: Deadlines,
    /// Samples that arrived before the metric labels were known. They are recorded once the labels are known.
    pub(super) early_samples: Vec<LiveSample>,
    /// Numbers of WebSocket messages that are already recorded in metrics: from the client, and from the upstream.
    pub(super) messages: [u64; 2],
    /// Upstream of an admitted call, and the backend's warm-up state at admission. `None` before admission, and if
    /// warm-up detection is off.
    pub(super) warmth: Option<(Label, WarmupState)>,
    /// Whether the request is counted as not observed completely.
    pub(super) is_counted_lost: bool,
    /// Arrival times of the response's chunks. `None` before the first chunk of a stream, and if the console is off.
    pub(super) ticks: Option<Box<ChunkTicks>>,
    /// Key by which a retry of this request is recognised. `None` if the request has no id.
    pub(super) retry_key: Option<load::RequestKey>,
}

#[derive(Clone, Debug)]
pub(super) struct SeriesInstruments {
    live: Arc<LiveInstruments>,
    model_id: ModelId,
    /// Group in the console's history. `None` if the console is off or leaves the group out.
    group: Option<GroupId>,
}

impl SeriesInstruments {
    /// Records a measurement that is not part of a chunk, in metrics and in the console's history.
    fn record(&self, at: MonotonicInstant, sample: LiveSample, console: Option<&mut Recorder>) {
        self.live.record(sample);
        if let (Some(group), Some(console)) = (self.group, console) {
            console.record_sample(at, group, sample);
        }
    }
}

/// What one event changed about an open request.
#[derive(Debug)]
pub(super) struct Transition {
    pub(super) before: RequestPhase,
    pub(super) after: RequestPhase,
    was_stream_over: bool,
    pub(super) is_stream_over: bool,
    /// Output tokens in the event.
    pub(super) chunk: ChunkSample,
    /// Time in which the client did not read, as the event reports it.
    pub(super) backpressure: Duration,
    /// Body bytes that were not parsed because of a limit or the memory budget.
    pub(super) unread_bytes: u64,
    pub(super) is_gap: bool,
    pub(super) is_response_head: bool,
    /// Stalls that began or ended with the event.
    pub(super) stalls: Vec<LiveSample>,
}

impl Transition {
    /// Whether another phase of the stream's time begins.
    #[inline]
    pub(super) fn changes_phase(&self) -> bool {
        (self.before, self.was_stream_over) != (self.after, self.is_stream_over)
    }
}

impl ActiveRequest {
    pub(super) fn new(
        exchange: ObservedExchange,
        route_key: RouteKey,
        body_wait: Arc<BodyWaitState>,
        at: MonotonicInstant,
        retry_key: Option<load::RequestKey>,
    ) -> Self {
        Self {
            state: exchange.state(),
            exchange,
            route_key,
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
            ticks: None,
            retry_key,
        }
    }

    /// Records that the request was admitted. Only API calls count for warm-up detection, because health checks and
    /// pages do not warm up a backend.
    pub(super) fn admitted(&mut self, at: MonotonicInstant, backends: &mut Backends) {
        if self.warmth.is_none() && self.exchange.is_call() {
            self.warmth = backends.record_admission(at, &self.route_key.route);
        }
    }

    /// Checks for a stall. See [`ObservedExchange::check_stall`].
    pub(super) fn check_stall(
        &mut self,
        at: MonotonicInstant,
        unread: Duration,
        pauses: &PauseDetector,
        instruments: &Instruments,
    ) {
        let mut stall = None;
        self.exchange.check_stall(at, unread, pauses, &mut |sample| stall = Some(sample));
        if let Some(sample) = stall {
            self.record_stall(sample, instruments);
        }
    }

    /// Returns when the next periodic check is due, after a check at `at`. Only body bytes may arrive in the meantime;
    /// after any other event, a check is due at once.
    pub(super) fn next_check(&self, at: MonotonicInstant) -> MonotonicInstant {
        if self.deadlines.are_unknown() {
            return at;
        }
        let deadline =
            self.deadlines.next_limit().map(|after| self.exchange.timestamps.accept + after);
        let next = self.exchange.next_stall(at).min(at + MAX_CHECK_INTERVAL);
        deadline.map_or(next, |deadline| next.min(deadline))
    }

    /// Returns for how long the client has not read, without the time that events have already reported. The time
    /// starts when response bytes are passed on, and ends when the client polls again.
    pub(super) fn unread(&self, at: MonotonicInstant) -> Duration {
        let unread = match (self.body_wait.waiting(), self.arrived) {
            ((WaitingFor::Client, since), _) => at.since(since),
            ((WaitingFor::Upstream, asked), Some(arrived)) => asked.since(arrived),
            ((WaitingFor::Upstream, _), None) => Duration::ZERO,
        };
        if unread < MIN_BACKPRESSURE { Duration::ZERO } else { unread }
    }

    /// Records the start or the end of a stall. The metric has the model's name only after a response has confirmed
    /// this name.
    pub(super) fn record_stall(&mut self, sample: LiveSample, instruments: &Instruments) {
        let Some(series) = self.exchange.metric_labels() else {
            return;
        };
        let live = match &self.live {
            Some(meters) => Arc::clone(&meters.live),
            None => instruments.live(&series),
        };
        live.record(sample);
    }

    /// Applies one event. If parsing panics, the observation of the request ends.
    pub(super) fn apply_event(
        &mut self,
        at: MonotonicInstant,
        event: ObserverEvent,
        bytes: &[u8],
    ) -> Transition {
        let backpressure = event.backpressure();
        let is_gap = matches!(event, ObserverEvent::Gap { .. });
        let is_response_head = matches!(event, ObserverEvent::ResponseHead(_));
        let (mut chunk, mut stalls) = (ChunkSample::default(), Vec::new());
        let Self { exchange, live, early_samples, .. } = self;
        let had_token = exchange.timestamps.token.is_some();
        let applied = catch_unwind(AssertUnwindSafe(|| {
            exchange.apply(at, event, bytes, &mut |sample| {
                chunk.add(sample);
                match (live.as_ref(), sample) {
                    (_, LiveSample::Stalled(_) | LiveSample::Resumed(_)) => stalls.push(sample),
                    (Some(series), _) => series.live.record(sample),
                    (None, _) => early_samples.push(sample),
                }
            });
        }));
        if applied.is_err() {
            exchange.abort();
            (chunk, stalls) = (ChunkSample::default(), Vec::new());
        }
        self.tokens += chunk.tokens;
        if !had_token && chunk.tokens > 0 {
            self.first_tokens = self.tokens;
        }
        Transition {
            before: self.state,
            after: exchange.state(),
            was_stream_over: self.is_stream_over,
            is_stream_over: exchange.is_stream_over(),
            chunk,
            backpressure,
            unread_bytes: exchange.take_unread_bytes(),
            is_gap,
            is_response_head,
            stalls,
        }
    }

    /// Counts output tokens that have just arrived in the throughput of the model and in the console's history. Before the labels are known,
    /// [`bind`](Self::bind) counts them.
    #[inline]
    pub(super) fn count_output(
        &self,
        at: MonotonicInstant,
        chunk: &ChunkSample,
        load: &mut Load,
        console: Option<&mut Recorder>,
    ) {
        let Some(series) = self.live.as_ref().filter(|_| chunk.tokens > 0) else { return };
        if let (Some(console), Some(group)) = (console, series.group) {
            console.record_chunk(at, group, chunk);
        }
        let arrives =
            self.exchange.timestamps.token.is_some() || self.exchange.websocket().is_some();
        if arrives && let Some(model) = load.model(series.model_id) {
            model.output(at, chunk.tokens);
        }
    }

    /// Selects the metric label set of the request, once the response or the session has confirmed the model. Then
    /// records the early samples.
    pub(super) fn bind(
        &mut self,
        at: MonotonicInstant,
        load: &mut Load,
        instruments: &Instruments,
        mut console: Option<&mut Recorder>,
    ) {
        let Some(series) = self.exchange.metric_labels() else {
            return;
        };
        let model_id = load.model_id(&ModelKey::from_labels(&series));
        let live = instruments.live(&series);
        let group = console.as_deref_mut().and_then(|console| console.group(at, &series));
        let series = SeriesInstruments { live, model_id, group };
        if let Some((status, source)) = self.exchange.response_start() {
            instruments.initialize_response(&series.live, status, source);
        }
        for sample in self.early_samples.drain(..) {
            if let LiveSample::Tokens { tokens, .. } = sample
                && let Some(model) = load.model(model_id)
            {
                model.output(at, tokens.into());
            }
            series.record(at, sample, console.as_deref_mut());
        }
        self.live = Some(series);
    }

    /// Returns the rate limits in the response headers, and the model key to which the limits apply.
    pub(super) fn quota(&mut self) -> Option<(ModelKey, RateLimits)> {
        let quota = self.exchange.quota()?;
        Some((ModelKey::from_labels(&self.exchange.metric_labels()?), quota))
    }

    /// Records the messages since the last call.
    pub(super) fn report_messages(&mut self, instruments: &Instruments) {
        let Some(socket) = self.exchange.websocket() else {
            return;
        };
        let now = [socket.request_messages, socket.response_messages];
        let [request, response] = std::mem::replace(&mut self.messages, now);
        let [requests, responses] = now;
        if requests > request || responses > response {
            instruments
                .record_messages(&self.route_key, [requests - request, responses - response]);
        }
    }

    /// Returns whether the request is a stream in progress: waiting for its first token, or receiving tokens.
    pub(super) const fn is_running(&self) -> bool {
        match self.state {
            RequestPhase::Waiting | RequestPhase::Streaming => !self.is_stream_over,
            RequestPhase::Queued | RequestPhase::Unstreamed => false,
        }
    }

    /// Records the time since the last call in metrics, by phase of the stream.
    pub(super) fn record_time(
        &mut self,
        at: MonotonicInstant,
        blocked: Duration,
        instruments: &Instruments,
    ) {
        let passed = at.since(self.stream_time_recorded_until);
        if passed.is_zero() || !self.is_running() {
            self.stream_time_recorded_until = self.stream_time_recorded_until.max(at);
            return;
        }
        let blocked = match self.body_wait.waiting() {
            (WaitingFor::Client, since) => {
                blocked.max(at.since(since.max(self.stream_time_recorded_until)))
            }
            (WaitingFor::Upstream, _) => blocked,
        };
        let blocked = if blocked < MIN_BACKPRESSURE { Duration::ZERO } else { blocked.min(passed) };
        self.stream_time_recorded_until = at;
        match &self.live {
            Some(meters) if self.state == RequestPhase::Streaming => {
                meters.live.record_stream_time(passed.saturating_sub(blocked), blocked);
            }
            Some(_) | None => instruments.record_waiting(&self.route_key, passed),
        }
    }

    pub(super) fn end(
        mut self,
        at: MonotonicInstant,
        ending: Ending,
        LiveConsumers { load, instruments, mut console }: LiveConsumers<'_>,
    ) -> Record {
        let mut stalls = Vec::new();
        let series = self.exchange.metric_labels();
        let Self { exchange, live, .. } = self;
        let id = exchange.id;
        let mut sum = 0;
        let mut record_sample = |sample: LiveSample| {
            if let LiveSample::Tokens { tokens, .. } = sample {
                sum += u64::from(tokens);
            }
            match (&live, sample) {
                (None, LiveSample::Stalled(_) | LiveSample::Resumed(_)) => stalls.push(sample),
                (None, _) => {}
                (Some(meters), _) => meters.record(at, sample, console.as_deref_mut()),
            }
        };
        let record = exchange.end_despite_panic(at, ending, &mut record_sample);
        debug_assert_eq!(record.exchange, id);
        if let (Some(series), false) = (series, stalls.is_empty()) {
            let live = instruments.live(&series);
            stalls.into_iter().for_each(|sample| live.record(sample));
        }
        if let Some(call) = &record.call {
            // A call without a response of an upstream has no live measurements, but it has ended too.
            let model_id = live.map_or_else(
                || load.model_id(&ModelKey::from_labels(&call.series)),
                |meters| meters.model_id,
            );
            account(load, model_id, &record, call, sum);
        }
        record
    }

    /// Returns the indices of the SLOs whose time limit the request has exceeded since the last call.
    pub(super) fn take_missed_deadlines(
        &mut self,
        at: MonotonicInstant,
        slos: &SloTracker,
    ) -> Vec<usize> {
        // Until the body was received completely, it is unknown which SLOs apply, and the client can still break off.
        if self.deadlines.are_unknown() && self.exchange.has_whole_request() {
            let accepted = self.exchange.timestamps.accept;
            let deadlines = self.with_subject(|subject| slos.deadlines_of(subject, accepted));
            self.deadlines.set(deadlines.unwrap_or_default(), slos);
        }
        if self.exchange.gap {
            return Vec::new();
        }
        let took = at.since(self.exchange.timestamps.accept);
        let blocked = self.exchange.blocked + self.unread(at);
        let has_token = self.exchange.timestamps.token.is_some();
        self.deadlines.miss(took.saturating_sub(blocked), has_token, slos)
    }
}

/// The consumers of measurements that a request reports while it runs.
pub(super) struct LiveConsumers<'a> {
    pub(super) load: &'a mut Load,
    pub(super) instruments: &'a Instruments,
    pub(super) console: Option<&'a mut Recorder>,
}

/// Adds the backend's warm-up state to the record. A response that reports a long load time corrects the state at
/// admission.
pub(super) fn record_warmth(
    backends: &mut Backends,
    at: MonotonicInstant,
    (upstream, warmth): (Label, WarmupState),
    record: &mut Record,
) {
    let well = record.outcome == Outcome::Ok;
    if let Some(call) = &mut record.call {
        let load = call.timings.and_then(|timings| timings.load);
        call.warm =
            Some(if well { backends.record_success(at, &upstream, warmth, load) } else { warmth });
    }
}

/// Adds a finished call to throughput and percentiles. Tokens without known times are spread evenly: the output of a
/// non-streaming response from sent to end, and the input from sent to the first token.
fn account(load: &mut Load, model_id: ModelId, record: &Record, call: &Call, rest: u64) {
    let timestamps = &record.timestamps;
    let (Some(end), Some(model)) = (timestamps.end, load.model(model_id)) else { return };
    if let Some(sent) = timestamps.sent {
        if call.streamed || record.websocket.is_some() {
            model.output(end, rest);
        } else if let Some(output) = &call.output {
            model.output_spread(sent..end, output.counted);
        }
        if let Some(input) = call.usage.and_then(|usage| usage.input) {
            model.input_spread(sent..timestamps.token.unwrap_or(end), input);
        }
    }
    let well = record.outcome == Outcome::Ok;
    let ended = load::FinishedRequest {
        failed: !well && record.error_source != ErrorSource::Client,
        time_to_first_token: timestamps.time_to_first_token().filter(|_| call.streamed),
        output_rate: call.rates.output,
        // The duration of a failed request is ignored, so that an immediate rejection does not count as fast.
        duration: timestamps.duration().filter(|_| well),
        time_per_output_token: call.rates.time_per_output_token,
    };
    model.ended(end, ended);
}
