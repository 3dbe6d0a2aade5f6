//! Everything that is derived from requests: load statistics, SLOs, budgets, drift and metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::in_flight::active_request::{self, ActiveRequest, LiveConsumers, Transition};
use crate::in_flight::background::BackgroundResponses;
use crate::in_flight::costs::charge;
use crate::in_flight::deadlines::MISSED;
use crate::in_flight::muted::MUTED;
use crate::mcp_sessions::McpSessions;
use tokengauge_console::{EndedRequest, Recorder};
use tokengauge_measure::cost::{Costs, TokenPrice};
use tokengauge_measure::drift::Drift;
use tokengauge_measure::engine::Backends;
use tokengauge_measure::load::{self, Load, RateLimitTracker};
use tokengauge_measure::record::Record;
use tokengauge_measure::slo::SloTracker;
use tokengauge_measure::timing::PauseDetector;
use tokengauge_telemetry::{BudgetReading, Instruments, ObserverHealth};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Direction, Ending, ObserverEvent};
use tokengauge_types::label::{CardinalityLimiter, Label};

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

/// The consumers of changes of requests. Each method passes one kind of change to them, in the order of its lines.
#[derive(Debug)]
pub(super) struct Consumers {
    pub(super) load: Load,
    pub(super) slos: SloTracker,
    /// Compares the lengths of requests and responses with a baseline.
    pub(super) drift: Drift,
    pub(super) pauses: PauseDetector,
    pub(super) quotas: RateLimitTracker,
    pub(super) backends: Backends,
    pub(super) costs: Costs,
    pub(super) health: ObserverHealth,
    /// History for the console. `None` if the console is off.
    pub(super) console: Option<Recorder>,
    background: BackgroundResponses,
    mcp_sessions: McpSessions,
    limiter: Arc<CardinalityLimiter>,
    sinks: Sinks,
}

impl Consumers {
    pub(super) fn new(limiter: Arc<CardinalityLimiter>, sinks: Sinks) -> Self {
        Self {
            load: Load::default(),
            slos: SloTracker::new(Vec::new()),
            drift: Drift::default(),
            pauses: PauseDetector::default(),
            quotas: RateLimitTracker::default(),
            backends: Backends::default(),
            costs: Costs::default(),
            health: ObserverHealth::default(),
            console: None,
            background: BackgroundResponses::default(),
            mcp_sessions: McpSessions::default(),
            limiter,
            sinks,
        }
    }

    pub(super) fn instruments(&self) -> &Instruments {
        &self.sinks.instruments
    }

    /// Sets the prices and budgets for calls that end later.
    pub(super) fn set_costs(&mut self, costs: Costs) {
        for budget in &costs.budgets {
            let unit = budget.allowance.unit();
            self.instruments().record_spend((&budget.name, &unit), 0.0);
        }
        self.costs = costs;
    }

    pub(super) fn budgets(&self) -> Vec<BudgetReading> {
        let budgets = self.costs.budgets.iter();
        let reading = budgets.map(|budget| BudgetReading {
            name: budget.name.clone(),
            unit: budget.allowance.unit(),
            limit: budget.allowance.amount(),
            window: budget.window.length(),
        });
        reading.collect()
    }

    /// Returns the price of a million output tokens for routes with an hourly hardware price, at the output rate in
    /// `reading`.
    pub(super) fn token_prices(&self, reading: &load::Reading) -> Vec<TokenPrice> {
        let sustained = |route: &Label| {
            let models = reading.models.iter().filter(|model| model.model_key.route == *route);
            let rates = models.map(|model| model.output.five_minutes);
            rates.sum::<Option<f64>>()
        };
        self.costs.token_prices(sustained)
    }

    /// Periodic check of an open request: the time of its stream, stalls and exceeded time limits.
    pub(super) fn check(&mut self, at: MonotonicInstant, request: &mut ActiveRequest) {
        request.record_time(at, Duration::ZERO, &self.sinks.instruments);
        request.check_stall(at, request.unread(at), &self.pauses, &self.sinks.instruments);
        for missed in request.take_missed_deadlines(at, &self.slos) {
            self.slos.record(at, missed, MISSED);
        }
    }

    /// What must be read or recorded before `event` changes `request`: the queue that it leaves, and a stall that it
    /// ends.
    pub(super) fn before_event(
        &mut self,
        at: MonotonicInstant,
        request: &mut ActiveRequest,
        event: &ObserverEvent,
    ) {
        if matches!(event, ObserverEvent::Admitted) {
            let depth = self.load.queue_depth_with(&request.route_key, request.state);
            request.exchange.queue_depth = u32::try_from(depth).unwrap_or(u32::MAX);
            request.admitted(at, &mut self.backends);
        }
        if request.exchange.may_be_stalled(at) {
            let unread = event.backpressure();
            request.check_stall(at, unread, &self.pauses, &self.sinks.instruments);
        }
        if matches!(event, ObserverEvent::Body { direction: Direction::Response, .. }) {
            request.arrived = Some(at);
            if self.console.is_some() && request.is_running() {
                let accepted = request.exchange.timestamps.accept;
                let ticks = request.ticks.get_or_insert_default();
                ticks.record(at.since(accepted));
            }
        }
    }

    /// Passes on what an event changed about `request`.
    pub(super) fn follow(
        &mut self,
        at: MonotonicInstant,
        request: &mut ActiveRequest,
        transition: &Transition,
    ) {
        let instruments = &self.sinks.instruments;
        let Transition { chunk, backpressure, unread_bytes, .. } = transition;
        let (backpressure, unread_bytes) = (*backpressure, *unread_bytes);
        for stall in &transition.stalls {
            request.record_stall(*stall, instruments);
        }
        self.health.lost_bytes += unread_bytes;
        if transition.is_gap || unread_bytes > 0 {
            self.slos.mark_unobserved();
            self.health.unobserved +=
                u64::from(!std::mem::replace(&mut request.is_counted_lost, true));
        }
        if transition.is_response_head
            && let Some((model, quota)) = request.quota()
        {
            self.quotas.record_limits(at, &model, &quota);
        }
        // The time until now belongs to the phase before the event.
        if transition.is_response_head || transition.changes_phase() || !backpressure.is_zero() {
            request.record_time(at, backpressure, instruments);
        }
        if transition.before != transition.after {
            self.load.transition(&request.route_key, transition.before, transition.after);
        }
        (request.state, request.is_stream_over) = (transition.after, transition.is_stream_over);
        // Before `bind`, which also counts the tokens of this event.
        request.count_output(at, chunk, &mut self.load, self.console.as_mut());
        if request.live.is_none() && request.exchange.has_final_labels() {
            request.bind(at, &mut self.load, instruments, self.console.as_mut());
        }
        request.report_messages(instruments);
        request.record_slices(at, chunk.tokens, &mut self.slos);
    }

    /// Ends a request. Returns its record, which every consumer has got.
    pub(super) fn end(
        &mut self,
        at: MonotonicInstant,
        mut request: ActiveRequest,
        ending: Ending,
    ) -> Record {
        let Self {
            load,
            slos,
            drift,
            pauses,
            backends,
            costs,
            background,
            mcp_sessions,
            limiter,
            console,
            sinks,
            health: _,
            quotas: _,
        } = self;
        let instruments = &sinks.instruments;
        let warmth = request.warmth.take();
        if let Some((upstream, _)) = &warmth {
            backends.record_end(at, upstream);
        }
        request.record_time(at, Duration::ZERO, instruments);
        let unread = request.unread(at);
        request.check_stall(at, unread, pauses, instruments);
        load.leave(&request.route_key, request.state);
        let slices = request.slices.take().unwrap_or_default();
        let deadlines = std::mem::take(&mut request.deadlines);
        let reported = request.tokens;
        let ticks = request.ticks.take();
        let live = LiveConsumers { load, instruments, console: console.as_mut() };
        let mut record = request.end(at, ending, live);
        if let Some(call) = record.call.as_ref().filter(|_| !slices.is_empty()) {
            let counted = call.output.as_ref().map_or(0, |output| output.counted);
            slos.stream(at, &slices, counted.saturating_sub(reported));
        }
        // The time in which the client did not read is added here, because no further event can report it.
        record.blocked += unread;
        if let Some(warmth) = warmth {
            active_request::record_warmth(backends, at, warmth, &mut record);
        }
        // Each line below reads what the lines above have added to the record.
        background.settle(&mut record);
        charge(costs, &mut record, instruments);
        deadlines.judge_end(slos, at, &mut record);
        drift.ended(at, &record);
        instruments.record_end(&record, limiter);
        mcp_sessions.record(at, &record, &mut |session| {
            instruments.record_mcp_session(&session, limiter);
        });
        if record.exchange != MUTED {
            (sinks.record)(&record);
            if let Some(console) = console {
                let ticks = ticks.as_deref();
                console.record_end(EndedRequest { at, record: &record, ticks, slos });
            }
        }
        record
    }
}
