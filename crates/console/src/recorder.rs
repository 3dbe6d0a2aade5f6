//! Records measurements and finished requests for the console.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::document::{
    ChunkStall, Consumed, Excluded, PricedCost, RecentRequests, Request, RequestLists,
    RequestStages, Session, Text, TokenCount, Tokens,
};
use crate::history::{
    self, ChunkSample, ClockChange, FinishedCall, Gauges, GroupId, GroupNames, History, Timeline,
};
use crate::requests::{FinishedRequests, RequestQuery};
use crate::seconds::seconds;
use crate::sessions::Sessions;
use crate::slos::BudgetConsumption;
use crate::ticks::ChunkTicks;
use tokengauge_llm::count::Source;
use tokengauge_measure::record::{Call, Cost, MetricLabels, Record};
use tokengauge_measure::slo::{self, SloTracker};
use tokengauge_measure::timing::{LiveSample, Stage};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::UserAgent;
use tokengauge_types::label::{Label, Name, OTHER};

/// Maximum number of stalls of one request that are kept.
const MAX_STALLS: usize = 8;

/// Settings of the console.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Address of a trace, with `{trace_id}` in place of the trace id.
    pub trace_url: Option<Text>,
    /// Whether names of tenants and sessions are left out.
    pub hide_names: bool,
    /// Whether a header for sessions is configured.
    pub has_sessions: bool,
}

/// History and finished requests of this process.
#[derive(Debug)]
pub struct Recorder {
    settings: Settings,
    timeline: Timeline,
    history: History,
    requests: FinishedRequests,
    sessions: Sessions,
    budgets: BudgetConsumption,
    currency: Currency,
    /// Interval up to which the gauges are recorded.
    gauged: u64,
}

/// The currency of all costs in the history.
#[derive(Clone, Debug, Default, PartialEq)]
enum Currency {
    #[default]
    Unknown,
    One(Label),
    /// Amounts in several currencies have no sum.
    Several,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest<'a> {
    pub at: MonotonicInstant,
    pub record: &'a Record,
    /// Arrival times of the response's chunks. `None` without a stream.
    pub ticks: Option<&'a ChunkTicks>,
    /// The SLOs that have judged the request.
    pub slos: &'a SloTracker,
}

/// The recorded state as documents show it.
#[derive(Clone, Debug)]
pub struct RecorderReading {
    /// Time of the reading on the timeline of the history.
    pub at_unix_ms: u64,
    /// Time since the start of the history.
    pub covered: Duration,
    pub history: history::Reading,
    pub requests: RequestLists,
    pub sessions: Vec<Arc<Session>>,
    /// What consumed the budget of each SLO, in the order of the names that were passed.
    pub consumed: Vec<Vec<Consumed>>,
    /// Excluded calls of each SLO by reason.
    pub excluded: Vec<Vec<Excluded>>,
    /// The currency of all costs. `None` without a cost, or with several currencies.
    pub currency: Option<Text>,
    pub settings: Settings,
}

impl Recorder {
    /// Creates a recorder at `at`, when the wall clock shows `wall`.
    pub fn new(settings: Settings, at: MonotonicInstant, wall: WallTime) -> Self {
        let timeline = Timeline::new(at, wall);
        Self {
            settings,
            timeline,
            history: History::default(),
            requests: FinishedRequests::default(),
            sessions: Sessions::default(),
            budgets: BudgetConsumption::default(),
            currency: Currency::default(),
            gauged: timeline.interval(at),
        }
    }

    /// Returns the group of a call, for [`record_sample`](Self::record_sample). `None` if the group is left out.
    pub fn group(&mut self, at: MonotonicInstant, labels: &MetricLabels) -> Option<GroupId> {
        let names = GroupNames::from_labels(labels, self.settings.hide_names);
        self.history.group(&names, self.timeline.interval(at))
    }

    /// Records the measurements of a chunk.
    #[inline]
    pub fn record_chunk(&mut self, at: MonotonicInstant, group: GroupId, chunk: &ChunkSample) {
        self.history.record_chunk(group, self.timeline.interval(at), chunk);
    }

    /// Records a measurement that is not part of a chunk.
    pub fn record_sample(&mut self, at: MonotonicInstant, group: GroupId, sample: LiveSample) {
        self.history.record_sample(group, self.timeline.interval(at), sample);
    }

    /// Records a request that has ended. Plain HTTP is ignored.
    pub fn record_end(&mut self, ended: EndedRequest<'_>) {
        let EndedRequest { at, record, slos, .. } = ended;
        let Some(call) = &record.call else { return };
        let cost = call.cost.as_ref().and_then(|cost| self.countable(cost));
        if let Some(group) = self.group(at, &call.series)
            && let Some(interval) = self.history.interval(group, self.timeline.interval(at))
        {
            interval.record_end(FinishedCall { record, call, cost });
        }
        self.budgets.record(record, call, slos);
        let request = self.request(ended, call);
        self.sessions.record(&request);
        self.requests.record(request);
    }

    /// Returns the interval that has ended since the last call of [`record_gauges`](Self::record_gauges), and whose
    /// gauges are due.
    pub const fn due_gauges(&self, at: MonotonicInstant) -> Option<u64> {
        let current = self.timeline.interval(at);
        if current > self.gauged { Some(current - 1) } else { None }
    }

    /// Records the requests in flight by group, and the highest burn rate, at the end of an interval.
    pub fn record_gauges(
        &mut self,
        interval: u64,
        gauges: &FxHashMap<GroupNames, Gauges>,
        slos: &[slo::Reading],
    ) {
        self.gauged = interval + 1;
        if let Some(rate) = highest_burn_rate(slos) {
            self.history.set_burn_rate(interval, rate);
        }
        for (names, gauges) in gauges {
            if let Some(group) = self.history.group(names, interval)
                && let Some(interval) = self.history.interval(group, interval)
            {
                interval.set_gauges(*gauges);
            }
        }
    }

    /// Returns the names of the group of a call in flight.
    pub fn group_names(&self, labels: &MetricLabels) -> GroupNames {
        GroupNames::from_labels(labels, self.settings.hide_names)
    }

    /// Returns the recorded state. `slos` are the names of all SLOs. First follows the wall clock if it was set.
    pub fn read(
        &mut self,
        at: MonotonicInstant,
        wall: WallTime,
        slos: &[&Label],
    ) -> RecorderReading {
        if self.timeline.follow(at, wall) == ClockChange::Back {
            self.gauged = self.timeline.interval(at);
            self.history.clear(self.gauged);
        }
        let now = self.timeline.unix_ms(at);
        let mut settings = self.settings.clone();
        settings.has_sessions |= self.sessions.any();
        RecorderReading {
            at_unix_ms: now,
            covered: self.timeline.covered(at),
            history: self.history.read(self.timeline.interval(at), &self.timeline, at),
            requests: self.requests.lists(now),
            sessions: self.sessions.documents(),
            consumed: slos.iter().map(|slo| self.budgets.consumed_by(slo)).collect(),
            excluded: slos.iter().map(|slo| self.budgets.excluded_by(slo)).collect(),
            currency: match &self.currency {
                Currency::One(currency) => Some(currency.shared()),
                Currency::Unknown | Currency::Several => None,
            },
            settings,
        }
    }

    /// Returns the latest finished requests that match `query`.
    pub fn query(&self, query: &RequestQuery) -> RecentRequests {
        self.requests.query(query)
    }

    pub const fn hides_names(&self) -> bool {
        self.settings.hide_names
    }

    /// Returns the amount that the history counts, and whether it is an estimate.
    fn countable(&mut self, cost: &Cost) -> Option<(f64, bool)> {
        let amount = (cost.amount, cost.source != Source::Reported);
        match &self.currency {
            Currency::Unknown => {
                self.currency = Currency::One(cost.currency.clone());
                Some(amount)
            }
            Currency::One(currency) if *currency == cost.currency => Some(amount),
            Currency::One(_) => {
                self.currency = Currency::Several;
                None
            }
            Currency::Several => None,
        }
    }

    fn request(&self, ended: EndedRequest<'_>, call: &Call) -> Request {
        let EndedRequest { record, ticks, .. } = ended;
        let hides = self.settings.hide_names;
        let timestamps = &record.timestamps;
        let series = &call.series;
        let duration = timestamps.duration();
        let ended = record.wall + duration.unwrap_or_default();
        let agent = record.http.request_headers.get("user-agent").and_then(UserAgent::parse);
        let source = record.caller.session_source;
        let session = record.caller.session.as_ref().or(call.request.conversation.as_ref());
        Request {
            id: record.exchange.0,
            started_unix_ms: record.wall.unix_nanos() / 1_000_000,
            ended_unix_ms: ended.unix_nanos() / 1_000_000,
            provider: series.provider.shared(),
            model: model(call),
            route: series.route.shared(),
            tenant: series.tenant.as_ref().filter(|_| !hides).map(Label::shared),
            variant: series.variant.as_ref().map(Label::shared),
            session: session.filter(|_| !hides).map(text),
            session_source: source.filter(|_| !hides).map(|source| source.as_str().into()),
            agent: agent.filter(|_| !hides).map(|agent| agent.to_string().into()),
            path: text(&record.http.path),
            status: record.http.status,
            stream: call.streamed,
            outcome: record.outcome.as_str().into(),
            error_source: record.error_source.as_str().into(),
            error_type: record.error_type.as_ref().map(text),
            finish_reasons: call.finish_reasons().map(text).collect(),
            trace_id: hex(&record.trace.trace_id),
            duration_seconds: duration.map(seconds),
            time_to_first_token_seconds: timestamps
                .time_to_first_token()
                .filter(|_| call.streamed)
                .map(seconds),
            output_tokens_per_second: call.rates.output,
            tokens: tokens(call),
            cost: priced(call),
            stages: stages(record),
            chunks_seconds: ticks
                .filter(|_| call.streamed)
                .map(|ticks| ticks.seconds().collect())
                .unwrap_or_default(),
            stalls: stalls(record, call),
            client_blocked_seconds: seconds(record.blocked),
        }
    }
}

/// Returns the label of the model, or the requested model if its label is `other`.
fn model(call: &Call) -> Text {
    let requested = call.request.model.as_ref();
    match requested.filter(|_| call.series.model.as_str() == OTHER) {
        Some(requested) => text(requested),
        None => call.series.model.shared(),
    }
}

fn tokens(call: &Call) -> Tokens {
    let count = |source: Source| move |count| TokenCount { count, source: source.as_str().into() };
    let reported = count(Source::Reported);
    let usage = call.usage.unwrap_or_default();
    let output = call.output.as_ref().and_then(|output| {
        let source = output.source?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "token counts are not negative and stay far below 2^52"
        )]
        Some(count(source)(output.tokens.round() as u64))
    });
    Tokens {
        input: usage.input.map(&reported),
        cached_input: usage.cache_read.map(&reported),
        reasoning: usage.reasoning.map(&reported),
        output,
    }
}

/// Returns the cost by the price table, or else the cost that the provider reports.
fn priced(call: &Call) -> Option<PricedCost> {
    let Some(cost) = &call.cost else {
        let amount = call.reported_cost()?;
        return Some(PricedCost { amount, currency: "USD".into(), source: "reported".into() });
    };
    let source = if cost.source == Source::Reported { "computed" } else { "estimated" };
    let currency = cost.currency.shared();
    Some(PricedCost { amount: cost.amount, currency, source: source.into() })
}

/// Returns the highest burn rate of all SLOs and windows.
fn highest_burn_rate(slos: &[slo::Reading]) -> Option<f64> {
    slos.iter().flat_map(|reading| reading.burn).flatten().reduce(f64::max)
}

fn stages(record: &Record) -> RequestStages {
    let length = |stage| record.stages.get(stage).map(seconds);
    RequestStages {
        admission: length(Stage::Admission),
        connect: length(Stage::Connect),
        upload: length(Stage::Upload),
        headers: length(Stage::Headers),
        first_byte: length(Stage::FirstByte),
        first_event: length(Stage::FirstEvent),
        first_token: length(Stage::FirstToken),
        reasoning: length(Stage::Reasoning),
        decode: length(Stage::Decode),
        tail: length(Stage::Tail),
    }
}

fn stalls(record: &Record, call: &Call) -> Vec<ChunkStall> {
    let first = call.stalls.first.iter().take(MAX_STALLS);
    first
        .filter_map(|stall| {
            Some(ChunkStall {
                after_seconds: seconds(stall.begun.since(record.timestamps.accept)),
                seconds: seconds(stall.lasted?),
            })
        })
        .collect()
}

fn text(name: &Name) -> Text {
    name.as_str().into()
}

fn hex(bytes: &[u8]) -> Text {
    let mut text = String::with_capacity(2 * bytes.len());
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    text.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
    text.into()
}
