//! What the console needs from open requests.

use rustc_hash::FxHashMap;

use crate::in_flight::active_request::ActiveRequest;
use crate::in_flight::{InFlightRequests, TrackedRequest};
use tokengauge_console::document::{StageSums, Stream, Text};
use tokengauge_console::history::{Gauges, GroupNames, add_stages};
use tokengauge_console::{Recorder, RecorderReading};
use tokengauge_measure::load::{self, RequestPhase};
use tokengauge_measure::slo;
use tokengauge_measure::timing::{StallClock, Timestamps};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::label::{Label, Name};

/// What a snapshot of the console shows.
#[derive(Debug)]
pub struct ConsoleReading {
    pub recorded: RecorderReading,
    pub load: load::Reading,
    pub slos: Vec<slo::Reading>,
    pub streams: Vec<Stream>,
    pub engines: Vec<tokengauge_measure::engine::Reading>,
}

impl InFlightRequests {
    /// Records the history of the console from now on.
    pub fn enable_console(&mut self, recorder: Recorder) {
        self.consumers.console = Some(recorder);
    }

    /// Returns the recorder of the console. `None` if the console is off.
    pub const fn console(&self) -> Option<&Recorder> {
        self.consumers.console.as_ref()
    }

    /// Returns the state that the console shows. `wall` is the wall-clock time of `at`. `None` if the console is off.
    pub fn console_reading(
        &mut self,
        at: MonotonicInstant,
        wall: WallTime,
    ) -> Option<ConsoleReading> {
        let hides_names = self.consumers.console.as_ref()?.hides_names();
        let (load, slos) = self.reading(at);
        let engines = self.consumers.backends.readings(at);
        let requests = self.requests.values_mut();
        let streams = requests.map(|open| open.request.console_stream(at, hides_names)).collect();
        let names: Vec<&Label> = slos.iter().map(|slo| &slo.objective.name).collect();
        let recorded = self.consumers.console.as_mut()?.read(at, wall, &names);
        Some(ConsoleReading { recorded, load, slos, streams, engines })
    }

    /// Records the requests in flight by group, if an interval of the history has ended.
    pub(super) fn record_console_gauges(&mut self, at: MonotonicInstant) {
        let Self { requests, consumers, .. } = self;
        let Some(console) = &mut consumers.console else { return };
        let Some(interval) = console.due_gauges(at) else { return };
        let mut gauges = FxHashMap::<GroupNames, Gauges>::default();
        for TrackedRequest { request, .. } in requests.values_mut() {
            let Some(labels) = request.exchange.metric_labels() else { continue };
            let group = gauges.entry(console.group_names(&labels)).or_default();
            group.in_flight += 1;
            group.queue_depth += u64::from(request.waits_for_token());
            group.stalled += u64::from(request.is_stalled());
        }
        console.record_gauges(interval, &gauges, &consumers.slos.reading(at));
    }
}

impl ActiveRequest {
    /// Whether the request counts in the queue depth.
    const fn waits_for_token(&self) -> bool {
        matches!(self.state, RequestPhase::Queued | RequestPhase::Waiting)
    }

    fn is_stalled(&self) -> bool {
        self.exchange.stall_clock().is_some_and(StallClock::is_stalled)
    }

    fn console_stream(&mut self, at: MonotonicInstant, hides_names: bool) -> Stream {
        let labels = self.exchange.metric_labels();
        let view = self.view(at);
        let timestamps = &self.exchange.timestamps;
        let identity = &self.exchange.request_head.identity;
        let session = identity.session.as_ref().filter(|_| !hides_names);
        let tenant = labels.as_ref().and_then(|labels| labels.tenant.as_ref());
        Stream {
            request_number: view.request_number.0,
            provider: labels.as_ref().map(|labels| labels.provider.shared()),
            model: view.model.as_ref().map(text),
            route: view.route.shared(),
            tenant: tenant.filter(|_| !hides_names).map(Label::shared),
            session: session.map(text),
            agent: view.agent.filter(|_| !hides_names).map(Text::from),
            path: text(&view.path),
            phase: view.phase.as_str().into(),
            started_unix_ms: self.exchange.request_head.wall.unix_nanos() / 1_000_000,
            age_seconds: rounded(view.age_seconds),
            time_to_first_token_seconds: view.time_to_first_token_seconds.map(rounded),
            tokens: view.tokens,
            output_tokens_per_second: view.output_tokens_per_second.map(rounded),
            idle_seconds: rounded(view.idle_seconds),
            stalled: view.stalled,
            waiting_for: view.waiting_for.into(),
            stages: stages_so_far(timestamps, at),
        }
    }
}

/// Returns the stages of an open request, as if it ended at `at`.
fn stages_so_far(timestamps: &Timestamps, at: MonotonicInstant) -> StageSums {
    let mut sums = StageSums::default();
    add_stages(&mut sums, &Timestamps { end: Some(at), ..*timestamps }.stages());
    sums
}

/// Rounds to milliseconds, which keeps documents short.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn text(name: &Name) -> Text {
    name.as_str().into()
}
