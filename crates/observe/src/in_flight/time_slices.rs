//! Reports open streams and their tokens to time-slice SLOs, which judge minutes of the whole system instead of
//! requests.
//!
//! The parent module reports finished requests to the other SLOs.

use crate::in_flight::active_request::ActiveRequest;
use crate::in_flight::{InFlightRequests, TrackedRequest};
use tokengauge_measure::slo::{SloTracker, Subject};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::Name;

impl InFlightRequests {
    /// Reports the number of open streams to each SLO that judges minutes of the whole system.
    pub(super) fn count_streams_in_slices(&mut self, at: MonotonicInstant) {
        if !self.consumers.slos.has_slices() {
            return;
        }
        let mut streams: Vec<usize> = Vec::new();
        for TrackedRequest { request, .. } in self.requests.values_mut() {
            if request.is_served(at)
                && let Some(slices) = request.slices(&self.consumers.slos)
            {
                streams.extend(slices);
            }
        }
        let count = |index| streams.iter().filter(|of| **of == index).count();
        self.consumers.slos.sample(at, |index| u32::try_from(count(index)).unwrap_or(u32::MAX));
    }
}

impl ActiveRequest {
    /// Calls `read` with the properties of the request that SLO scopes are compared with. Returns `None` for plain
    /// HTTP.
    pub(super) fn with_subject<T>(&mut self, read: impl FnOnce(&Subject<'_>) -> T) -> Option<T> {
        let series = self.exchange.metric_labels()?;
        let model = self.exchange.model();
        Some(read(&Subject {
            route: &self.exchange.request_head.route.name,
            model: model.map_or(series.model.as_str(), |name| name.as_str()),
            tenant: self.exchange.request_head.identity.tenant.as_ref().map(Name::as_str),
            operation: series.operation,
            stream: series.stream,
        }))
    }

    /// Records output tokens that have just arrived.
    pub(super) fn record_slices(
        &mut self,
        at: MonotonicInstant,
        tokens: u64,
        slos: &mut SloTracker,
    ) {
        if tokens > 0
            && slos.has_slices()
            && let Some(slices) = self.slices(slos)
        {
            slos.stream(at, slices, tokens);
        }
    }

    /// Returns whether the backend is working on this stream: the stream is in progress, and the client reads.
    fn is_served(&self, at: MonotonicInstant) -> bool {
        self.is_running() && self.unread(at).is_zero()
    }

    /// Returns the indices of the time-slice SLOs that cover the request. `None` until the request is sent completely
    /// or the response begins. WebSocket sessions are never covered, because they are open for hours and mostly idle.
    fn slices(&mut self, slos: &SloTracker) -> Option<&[usize]> {
        if self.slices.is_none() {
            let timestamps = &self.exchange.timestamps;
            if timestamps.uploaded.is_none() && timestamps.head.is_none() {
                return None;
            }
            let is_session = self.exchange.websocket().is_some();
            let in_scope =
                self.with_subject(|subject| slos.slices_of(&Subject { stream: true, ..*subject }))?;
            self.slices = Some(if is_session { Vec::new() } else { in_scope });
        }
        self.slices.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::tests::{STREAMED, at, chunk, open};
    use crate::{ObserverSettings, Sinks};
    use tokengauge_measure::slo::{CountingRules, Counts, Objective, Scope, Sli};
    use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot};
    use tokengauge_types::event::{
        BackpressureTime, BodyWaitState, Direction, Ending, ExchangeId, Headers, ObserverEvent,
        ResponseHead, TimestampedEvent, WaitingFor,
    };
    use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Label};

    struct Scene {
        requests: InFlightRequests,
        body_wait: Arc<BodyWaitState>,
    }

    impl Scene {
        /// Creates an SLO of at least 5 tokens per second, for minutes with at least two streams to `gpt-*`.
        fn new() -> Self {
            let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
            let readings = SnapshotSource::new(StateSnapshot::default);
            let (instruments, _) =
                Instruments::new(&config, CardinalityLimits::default(), readings);
            let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
            let sinks = Sinks { instruments, record: Box::new(|_| ()) };
            let objective = |model: &str| Objective {
                name: Label::from_trusted(model),
                indicator: Sli::SystemRate { floor: 5.0, min_streams: 2 },
                target: 0.99,
                window: Duration::from_secs(86_400),
                scope: Scope { model: Some(model.to_owned()), ..Scope::default() },
                counting: CountingRules::default(),
            };
            let objectives = ["gpt-*", "claude-*"].map(objective);
            Self {
                requests: InFlightRequests::new(
                    ObserverSettings::with_objectives(objectives.into()),
                    limiter,
                    sinks,
                ),
                body_wait: Arc::default(),
            }
        }

        fn report(&mut self, id: u64, millis: u64, event: ObserverEvent, bytes: &str) {
            let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(millis), event };
            self.requests.apply(entry, bytes.as_bytes());
        }

        fn bytes(&mut self, id: u64, millis: u64, direction: Direction, bytes: &str) {
            let arrival = ObserverEvent::Body {
                direction,
                len: u32::try_from(bytes.len()).unwrap(),
                blocked: BackpressureTime::default(),
            };
            self.report(id, millis, arrival, bytes);
        }

        /// Opens a stream and receives its response headers.
        fn stream(&mut self, id: u64, millis: u64) {
            let mut opened = open("/v1/chat/completions");
            opened.body_wait = Arc::clone(&self.body_wait);
            self.report(id, millis, ObserverEvent::RequestHead(Box::new(opened)), "");
            for event in [ObserverEvent::Admitted, ObserverEvent::RequestHeadSent] {
                self.report(id, millis, event, "");
            }
            self.bytes(id, millis, Direction::Request, STREAMED);
            self.report(id, millis, ObserverEvent::RequestBodySent, "");
            let content_type = ("content-type", Name::new("text/event-stream").unwrap());
            let head = ResponseHead {
                status: 200,
                version: http::Version::HTTP_11,
                headers: Headers::from_iter([content_type]),
                length: None,
                from_proxy: false,
            };
            self.report(id, millis, ObserverEvent::ResponseHead(Box::new(head)), "");
        }

        /// Runs the periodic checks from second `from` to second `to`. Stream 1 receives a token every `every`
        /// milliseconds.
        fn run(&mut self, from: u64, to: u64, every: u64) -> &mut Self {
            let event = format!("data: {}\n\n", chunk(r#"{"content":" a"}"#, "null"));
            for millis in (from * 1_000..to * 1_000).step_by(50) {
                if millis % every == 0 {
                    self.bytes(1, millis, Direction::Response, &event);
                }
                if millis % 250 == 0 {
                    self.requests.sweep(at(millis));
                }
            }
            self
        }

        /// Returns the counts of both objectives.
        fn counts(&mut self, secs: u64) -> [Counts; 2] {
            self.requests.sweep(at(secs * 1_000));
            let (_, readings) = self.requests.reading(at(secs * 1_000));
            [0, 1].map(|index| readings[index].counts)
        }
    }

    const NONE: Counts = Counts { good: 0, bad: 0 };

    fn first(good: u64, bad: u64) -> [Counts; 2] {
        [Counts { good, bad }, NONE]
    }

    #[test]
    fn minute_is_good_or_bad_by_the_rate_of_all_streams() {
        let mut scene = Scene::new();
        scene.run(0, 60, 1_000_000);
        scene.stream(1, 59_990);
        scene.stream(2, 59_995);
        scene.run(60, 120, 150);
        assert_eq!(scene.counts(120), first(1, 0), "6.7 tokens per second");
        scene.run(120, 180, 250);
        assert_eq!(scene.counts(180), first(1, 1), "4 tokens per second");
        scene.run(180, 210, 50);
        scene.report(2, 210_000, ObserverEvent::End(Ending::ClientDisconnected), "");
        scene.run(210, 300, 50);
        let counts = scene.counts(300);
        assert_eq!(counts, first(1, 1), "one stream is too few");
    }

    #[test]
    fn ignores_streams_with_backpressure_and_minutes_with_gaps() {
        let mut scene = Scene::new();
        scene.run(0, 60, 1_000_000);
        scene.stream(1, 59_990);
        scene.stream(2, 59_995);
        scene.run(60, 90, 250);
        let gap = ObserverEvent::Gap { direction: Direction::Response, bytes: 7 };
        scene.report(2, 90_000, gap, "");
        scene.run(90, 120, 250);
        assert_eq!(scene.counts(120), [NONE; 2], "a part was not observed");
        scene.run(120, 150, 250);
        scene.body_wait.set_waiting_for(WaitingFor::Client, at(150_000));
        scene.run(150, 180, 1_000_000);
        assert_eq!(scene.counts(180), [NONE; 2], "the clients do not read");
    }

    #[test]
    fn reload_reassigns_open_streams() {
        let mut scene = Scene::new();
        scene.stream(1, 0);
        scene.stream(2, 0);
        scene.run(0, 60, 250);
        let objectives = scene.requests.reading(at(60_000)).1;
        let objectives = objectives.into_iter().rev().map(|it| it.objective);
        let swapped = objectives.collect();
        scene.requests.apply_settings(at(60_000), ObserverSettings::with_objectives(swapped));
        scene.run(60, 120, 100);
        assert_eq!(scene.counts(120), [NONE, Counts { good: 1, bad: 0 }]);
    }
}
