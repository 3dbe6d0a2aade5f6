use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::document::{ErrorCounts, Group, History, Interval, RequestLists, Stream};
use crate::histogram::Histogram;
use crate::history::Reading;
use crate::recorder::{RecorderReading, Settings};
use tokengauge_llm::dialect::RateLimit;
use tokengauge_measure::load::{
    self, LimitType, ModelKey, RateLimitReading, RouteKey, RouteReading,
};
use tokengauge_measure::slo::{self, BURN_WINDOWS, CountingRules, Counts, Objective, Scope, Sli};
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::Label;

/// Number of the last complete interval.
const LAST: u64 = 1_000;

/// Returns readings of one group, `openai` and `gpt-4o`, in which the intervals with these numbers have a content.
fn readings(intervals: impl IntoIterator<Item = (u64, Interval)>) -> Readings {
    let intervals = intervals.into_iter().map(|(number, it)| (number, Arc::new(it))).collect();
    let group = Group {
        id: 0,
        provider: "openai".into(),
        model: "gpt-4o".into(),
        route: "default".into(),
        intervals,
        ..Group::default()
    };
    let history = History {
        first_interval: LAST - 179,
        last_interval: LAST,
        groups: vec![group],
        ..History::default()
    };
    Readings {
        recorded: RecorderReading {
            at_unix_ms: 5_000 * (LAST + 1),
            covered: Duration::from_secs(1_000),
            history: Reading { history, current: Vec::new(), elapsed: 0.0 },
            requests: RequestLists::default(),
            sessions: Vec::new(),
            consumed: Vec::new(),
            excluded: Vec::new(),
            currency: None,
            settings: Settings::default(),
        },
        load: load::Reading::default(),
        slos: Vec::new(),
        slo_objects: Vec::new(),
        engines: Vec::new(),
        streams: Vec::new(),
    }
}

fn conditions(readings: &Readings) -> Vec<Condition> {
    ConditionTracker::default().update(readings)
}

fn with_ttft(seconds: f64) -> Interval {
    let mut ttft = Histogram::default();
    ttft.record(seconds, 2);
    Interval { finished: 2, ttft: ttft.data(), ..Interval::default() }
}

fn slo(indicator: Sli, burn: [Option<f64>; BURN_WINDOWS.len()], bad: u64) -> slo::Reading {
    slo::Reading {
        objective: Objective {
            name: Label::from_trusted("fast"),
            indicator,
            target: 0.95,
            window: Duration::from_secs(86_400),
            scope: Scope::default(),
            counting: CountingRules::default(),
        },
        good: 1_000,
        bad,
        excluded: 0,
        counts: Counts { good: 1_000, bad },
        budget: Some(0.41),
        burn,
        covered: Duration::from_secs(3_600),
        exhaustion: None,
    }
}

#[test]
fn nothing_is_wrong_with_good_traffic() {
    let good = (LAST - 20..=LAST).map(|number| (number, with_ttft(0.3)));
    let mut readings = readings(good);
    readings.slos = vec![slo(Sli::Ttft(Duration::from_secs(2)), [Some(0.9); 7], 20)];
    assert_eq!(conditions(&readings), []);
}

#[test]
fn a_late_first_token_is_a_condition_since_the_interval_in_which_it_began() {
    let began = LAST - 8;
    let mut readings = readings(
        (LAST - 30..=LAST)
            .filter(|number| *number != LAST - 4)
            .map(|number| (number, with_ttft(if number >= began { 4.2 } else { 0.3 }))),
    );
    readings.slos = vec![slo(Sli::Ttft(Duration::from_secs(2)), [None; 7], 0)];
    let found = conditions(&readings);
    assert_eq!(found.len(), 1, "{found:?}");
    let condition = &found[0];
    assert_eq!((&*condition.id, condition.severity), ("ttft:openai:gpt-4o", Severity::Critical));
    assert!(condition.text.starts_with("openai · gpt-4o: TTFT p95 4."), "{}", condition.text);
    assert!(condition.text.ends_with(" s, objective 2 s"), "{}", condition.text);
    assert_eq!(condition.since_unix_ms, began * 5_000);
    assert_eq!(condition.runbook.as_deref(), Some("LLMTTFTDegraded"));
    assert_eq!(condition.filter.model.as_deref(), Some("gpt-4o"));
    // An objective for another model does not apply.
    readings.slos[0].objective.scope.model = Some("claude-*".to_owned());
    assert_eq!(conditions(&readings), []);
}

#[test]
fn few_events_are_no_condition() {
    let mut late = readings([(LAST - 1, with_ttft(9.0)), (LAST, with_ttft(9.0))]);
    late.slos = vec![slo(Sli::Ttft(Duration::from_secs(2)), [None; 7], 0)];
    assert_eq!(conditions(&late), []);
    let failed = Interval {
        finished: 4,
        errors: ErrorCounts { upstream: 4, ..ErrorCounts::default() },
        ..Interval::default()
    };
    assert_eq!(conditions(&readings([(LAST, failed)])), []);
}

#[test]
fn a_burning_slo_is_critical_or_a_warning_as_the_alerts_define() {
    let burn = |five_minutes: f64, hour: f64| {
        let mut burn = [None; 7];
        (burn[0], burn[2]) = (Some(five_minutes), Some(hour));
        burn
    };
    let found = |burn, bad| {
        let mut readings = readings([]);
        readings.slos = vec![slo(Sli::Availability, burn, bad)];
        conditions(&readings)
    };
    let fast = found(burn(30.0, 16.25), 30);
    assert_eq!(fast[0].severity, Severity::Critical);
    assert_eq!(
        &*fast[0].text,
        "SLO fast: burns its error budget 16.2 × too fast over 1h, 41 % of the budget left"
    );
    assert_eq!(fast[0].runbook.as_deref(), Some("LLMErrorBudgetBurnFast"));
    assert_eq!(found(burn(30.0, 3.0), 30)[0].severity, Severity::Warning, "only the last 5 min");
    assert!(found(burn(2.0, 16.0), 30).is_empty(), "it is over");
    assert!(found(burn(30.0, 16.0), 4).is_empty(), "few events");
}

#[test]
fn stalled_streams_are_counted_by_model() {
    let stream = |request_number, model: &str, stalled| Stream {
        request_number,
        provider: Some("openai".into()),
        model: Some(model.into()),
        phase: "streaming".into(),
        stalled,
        idle_seconds: if stalled { 32.0 } else { 0.1 },
        ..Stream::default()
    };
    let mut readings = readings([]);
    readings.streams = (0..20).map(|number| stream(number, "a", number == 0)).collect();
    readings.streams.extend((20..30).map(|number| stream(number, "b", number < 23)));
    let found = conditions(&readings);
    assert_eq!(found.len(), 2);
    assert_eq!(&*found[0].text, "openai · b: 3 of 10 streams stalled, the longest for 32 s");
    assert_eq!(found[0].severity, Severity::Critical);
    assert_eq!(found[0].since_unix_ms, readings.recorded.at_unix_ms - 32_000);
    assert_eq!(&*found[1].text, "openai · a: 1 of 20 streams stalled, the longest for 32 s");
    assert_eq!(found[1].severity, Severity::Warning);
}

#[test]
fn a_queue_that_grows_is_a_condition_and_a_long_one_that_does_not_is_none() {
    let route = |queued| RouteReading {
        route_key: RouteKey {
            route: Label::from_trusted("default"),
            position: ProxyPosition::Gateway,
        },
        active: [queued, 0, 0, 0],
        stalled_streams: Default::default(),
        backend_waiting: None,
    };
    let queued = |before, now| {
        let intervals = (LAST - 100..=LAST).map(move |number| {
            let queued = if number > LAST - 6 { now } else { before };
            (number, Interval { queue_depth: queued, finished: 1, ..Interval::default() })
        });
        let mut readings = readings(intervals);
        readings.load.routes = vec![route(now)];
        conditions(&readings)
    };
    let found = queued(2, 40);
    assert!(found[0].text.starts_with("route default: 40 requests wait"), "{found:?}");
    assert_eq!(found[0].since_unix_ms, (LAST - 5) * 5_000);
    assert!(queued(39, 40).is_empty() && queued(0, 10).is_empty());
}

#[test]
fn failing_providers_and_rejected_credentials_are_told_apart() {
    let interval = |finished, upstream, rate_limited, credentials_rejected| Interval {
        finished,
        errors: ErrorCounts { upstream, client: credentials_rejected, ..ErrorCounts::default() },
        rate_limited,
        credentials_rejected,
        ..Interval::default()
    };
    let found = |interval: Interval| {
        let found = conditions(&readings([(LAST, interval)]));
        found.iter().map(|it| it.runbook.as_deref().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(interval(100, 95, 0, 0)), ["LLMProviderDown"]);
    assert_eq!(found(interval(100, 60, 0, 0)), ["LLMModelFailing", "LLMProviderErrors"]);
    assert_eq!(found(interval(100, 10, 0, 0)), ["LLMProviderErrors"]);
    assert_eq!(found(interval(100, 10, 10, 0)), [""; 0], "429 has its own alert");
    assert_eq!(found(interval(100, 0, 0, 97)), ["LLMCredentialsRejected"]);
}

#[test]
fn a_rate_limit_that_is_nearly_used_up_is_reported_once() {
    let reading = |route: &str| RateLimitReading {
        model_key: ModelKey {
            provider: Label::from_trusted("openai"),
            model: Label::from_trusted("gpt-4o"),
            route: Label::from_trusted(route),
            position: ProxyPosition::Gateway,
        },
        limited: LimitType::InputTokens,
        allowance: RateLimit { limit: Some(100), remaining: Some(7), reset: None },
    };
    let mut readings = readings([]);
    readings.load.quotas = vec![reading("a"), reading("b")];
    let found = conditions(&readings);
    assert_eq!(found.len(), 1);
    assert_eq!(&*found[0].text, "openai · gpt-4o: 93 % of the rate limit for input tokens used");
}

#[test]
fn remembers_since_when_a_condition_lasts_and_forgets_it_when_it_is_over() {
    let mut tracker = ConditionTracker::default();
    let at = |readings: &mut Readings, at| readings.recorded.at_unix_ms = at;
    let mut burning = readings([]);
    burning.slos = vec![slo(Sli::Availability, [Some(20.0); 7], 30)];
    for now in [10_000, 20_000] {
        at(&mut burning, now);
        assert_eq!(tracker.update(&burning)[0].since_unix_ms, 10_000);
    }
    let mut quiet = readings([]);
    at(&mut quiet, 30_000);
    assert_eq!(tracker.update(&quiet), []);
    at(&mut burning, 40_000);
    assert_eq!(tracker.update(&burning)[0].since_unix_ms, 40_000);
}
