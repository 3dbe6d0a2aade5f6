//! Tests of backend readings, and of the warm-up state in the records of calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{at, open, recording};
use crate::{InFlightRequests, ObserverSettings};
use tokengauge_measure::cost::{Costs, HardwareCost, Prices};
use tokengauge_measure::engine::{Backend, Engine, EngineMetrics, EngineReading, warm};
use tokengauge_measure::load::Precision;
use tokengauge_measure::record::{Record, WarmupState};
use tokengauge_types::clock::WallTime;
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, ObserverEvent, ResponseHead, TimestampedEvent,
};
use tokengauge_types::label::{Label, Name};

const REQUEST: &str =
    r#"{"model":"qwen3:4b","stream":false,"messages":[{"role":"user","content":"Hi"}]}"#;

struct Stage {
    requests: InFlightRequests,
    records: Arc<Mutex<Vec<Record>>>,
    next: u64,
}

impl Stage {
    fn new(warm: Option<warm::WarmupConfig>) -> Self {
        Self::with(warm, ObserverSettings::default())
    }

    fn with(warm: Option<warm::WarmupConfig>, settings: ObserverSettings) -> Self {
        let backend = Backend {
            upstream: Label::from_trusted("gpu"),
            routes: vec![Label::from_trusted("default")],
            stale_after: Some(Duration::from_secs(15)),
            warm,
        };
        let settings = ObserverSettings { backends: vec![backend], ..settings };
        let (requests, records) = recording(settings);
        Self { requests, records, next: 0 }
    }

    fn report(&mut self, millis: u64, event: ObserverEvent, bytes: &[u8]) {
        let entry = TimestampedEvent { exchange: ExchangeId(self.next), at: at(millis), event };
        self.requests.apply(entry, bytes);
    }

    fn body(&mut self, millis: u64, direction: Direction, text: &str) {
        let event = ObserverEvent::Body {
            direction,
            len: u32::try_from(text.len()).unwrap(),
            blocked: BackpressureTime::default(),
        };
        self.report(millis, event, text.as_bytes());
    }

    /// Plays one exchange of 100 ms with `path` and `status`. Returns the backend's warm-up state in the record.
    fn exchange(&mut self, millis: u64, path: &str, status: u16, load: u64) -> Option<WarmupState> {
        self.next += 1;
        self.report(millis, ObserverEvent::RequestHead(Box::new(open(path))), b"");
        self.report(millis, ObserverEvent::Admitted, b"");
        self.report(millis, ObserverEvent::RequestHeadSent, b"");
        self.body(millis, Direction::Request, REQUEST);
        self.report(millis, ObserverEvent::RequestBodySent, b"");
        let kind = Name::new("application/json").unwrap();
        let head = ResponseHead {
            status,
            version: http::Version::HTTP_11,
            headers: [("content-type", kind)].into_iter().collect(),
            length: None,
            from_proxy: false,
        };
        self.report(millis + 50, ObserverEvent::ResponseHead(Box::new(head)), b"");
        let answer = format!(
            r#"{{"model":"qwen3:4b","message":{{"role":"assistant","content":"Hi"}},"done_reason":"stop","done":true,"load_duration":{load},"eval_count":1,"eval_duration":7}}"#
        );
        self.body(millis + 60, Direction::Response, &answer);
        self.report(millis + 100, ObserverEvent::End(Ending::Complete), b"");
        let record = self.records.lock().unwrap().pop().unwrap();
        record.call.and_then(|call| call.warm)
    }

    fn chat(&mut self, millis: u64, load: u64) -> Option<WarmupState> {
        self.exchange(millis, "/api/chat", 200, load)
    }

    fn state(&mut self, millis: u64) -> Option<WarmupState> {
        self.requests.backends().readings(at(millis)).remove(0).warm
    }
}

#[test]
fn records_warmth_of_each_call() {
    let mut stage = Stage::new(Some(warm::WarmupConfig::default()));
    let seconds = 1_000_000_000;
    let found = [3 * seconds, 1, 1, 1, 1].map(|load| stage.chat(1_000, load));
    let expected = [
        WarmupState::Cold,
        WarmupState::Warming,
        WarmupState::Warming,
        WarmupState::Warming,
        WarmupState::Warm,
    ];
    assert_eq!(found, expected.map(Some));
    assert_eq!(stage.state(2_000), Some(WarmupState::Warm));
    assert_eq!(stage.state(302_000), Some(WarmupState::Warming), "no request for 5 min");
}

#[test]
fn failures_and_other_requests_do_not_warm_up() {
    let mut stage = Stage::new(Some(warm::WarmupConfig::default()));
    for _ in 0..5 {
        assert_eq!(stage.exchange(1_000, "/api/chat", 500, 1), Some(WarmupState::Warming));
        assert_eq!(stage.exchange(1_000, "/health", 200, 1), None);
    }
    assert_eq!(stage.state(2_000), Some(WarmupState::Warming));
}

#[test]
fn reports_nothing_for_untracked_backends() {
    let mut stage = Stage::new(None);
    assert_eq!(stage.chat(1_000, 3_000_000_000), None);
    assert_eq!(stage.state(2_000), None);
}

#[test]
fn counts_every_end_of_a_call() {
    let mut stage = Stage::new(Some(warm::WarmupConfig::default()));
    stage.next = 1;
    stage.report(0, ObserverEvent::RequestHead(Box::new(open("/api/chat"))), b"");
    stage.report(0, ObserverEvent::Admitted, b"");
    stage.report(1_000, ObserverEvent::End(Ending::ClientDisconnected), b"");
    for second in [2, 3, 4] {
        stage.chat(second * 1_000, 1);
    }
    assert_eq!(stage.state(5_000), Some(WarmupState::Warm));
    assert_eq!(stage.state(304_099), Some(WarmupState::Warm));
    assert_eq!(stage.state(304_100), Some(WarmupState::Warming), "it is idle");
}

#[test]
fn queue_is_exact_while_the_engine_reports_it() {
    let route_key = tokengauge_measure::load::RouteKey {
        route: Label::from_trusted("default"),
        position: tokengauge_types::event::ProxyPosition::Outbound,
    };
    let settings = ObserverSettings { routes: vec![route_key], ..ObserverSettings::default() };
    let mut stage = Stage::with(None, settings);
    let mut depth = |millis| {
        let route = stage.requests.reading(at(millis)).0.routes.remove(0);
        (route.queue_depth(), route.bound())
    };
    assert_eq!(depth(0), (0, Precision::UpperBound));
    let reading = EngineReading {
        engine: Engine::Vllm,
        metrics: EngineMetrics { waiting: Some(7), ..EngineMetrics::default() },
        implausible: 0,
    };
    stage.requests.backends().record_scrape(
        at(0),
        WallTime::default(),
        &Label::from_trusted("gpu"),
        Ok(reading),
    );
    let mut depth = |millis| {
        let route = stage.requests.reading(at(millis)).0.routes.remove(0);
        (route.queue_depth(), route.bound())
    };
    assert_eq!(depth(15_000), (7, Precision::Exact));
    assert_eq!(depth(15_001), (0, Precision::UpperBound));
}

/// One token in 300 s on hardware at 36 per hour costs 3, so a million tokens cost 3 million.
#[test]
fn price_per_token_follows_the_load() {
    let rental = |route: &str| HardwareCost {
        route: Label::from_trusted(route),
        hour: 36.0,
        currency: Label::from_trusted("USD"),
    };
    let prices = Prices { rentals: vec![rental("default"), rental("idle")], ..Prices::default() };
    let costs = Costs { prices, budgets: Vec::new() };
    let mut stage = Stage::with(None, ObserverSettings { costs, ..ObserverSettings::default() });
    stage.chat(310_000, 1);
    let mut prices = stage.requests.snapshot(at(320_000)).token_prices;
    assert_eq!(prices.len(), 1, "{prices:?}");
    let price = prices.remove(0);
    assert_eq!(price.route.as_str(), "default");
    assert!((price.amount - 3e6).abs() < 1.0, "{}", price.amount);
}
