//! Stalled streams, growing queues and rate limits that are nearly used up.

use std::collections::BTreeMap;

use super::{Finding, percent, time};
use crate::document::{Filter, Group, Severity, Stream, Text};
use crate::now::{RECENT_INTERVALS, Sums, as_f64};
use crate::rate_limits::used_share;
use crate::readings::Readings;
use tokengauge_measure::load::RouteReading;

/// Share and number of a model's streams from which on stalls are critical.
const CRITICAL_STALLED: (f64, usize) = (0.2, 3);

/// Queue depth below which a queue is not reported.
const MIN_QUEUE: u64 = 10;

/// A queue grows if it is this many times as long as before.
const QUEUE_GROWTH: f64 = 2.0;

/// Used share of a rate limit from which on it is reported.
const NEAR_LIMIT: f64 = 0.9;

pub fn find(readings: &Readings) -> Vec<Finding> {
    let queues = readings.load.routes.iter().filter_map(|route| queue(readings, route));
    stalls(readings).into_iter().chain(queues).chain(rate_limits(readings)).collect()
}

fn stalls(readings: &Readings) -> Vec<Finding> {
    let mut by_model = BTreeMap::<(Option<&Text>, Option<&Text>), Vec<&Stream>>::new();
    for stream in readings.streams.iter().filter(|it| &*it.phase != "unstreamed") {
        let key = (stream.provider.as_ref(), stream.model.as_ref());
        by_model.entry(key).or_default().push(stream);
    }
    let now = readings.recorded.at_unix_ms;
    let finding = |((provider, model), streams): (_, Vec<&Stream>)| {
        let stalled: Vec<_> = streams.iter().filter(|it| it.stalled).collect();
        let longest = stalled.iter().map(|it| it.idle_seconds).max_by(f64::total_cmp)?;
        let share = as_f64(stalled.len() as u64) / as_f64(streams.len() as u64);
        let (critical_share, critical_count) = CRITICAL_STALLED;
        let is_critical = share > critical_share && stalled.len() >= critical_count;
        let (provider, model): (Option<&Text>, Option<&Text>) = (provider, model);
        let name =
            |name: Option<&Text>| name.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
        let (provider_name, model_name) = (name(provider), name(model));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short time")]
        let since = now.saturating_sub((longest * 1_000.0) as u64);
        Some(Finding {
            id: format!("stalled:{provider_name}:{model_name}"),
            severity: if is_critical { Severity::Critical } else { Severity::Warning },
            text: format!(
                "{provider_name} · {model_name}: {} of {} streams stalled, the longest for {}",
                stalled.len(),
                streams.len(),
                time(longest)
            ),
            since_unix_ms: Some(since),
            runbook: "LLMStreamsStalled",
            view: "streams",
            filter: Filter {
                provider: provider.cloned(),
                model: model.cloned(),
                ..Filter::default()
            },
        })
    };
    by_model.into_iter().filter_map(finding).collect()
}

fn queue(readings: &Readings, route: &RouteReading) -> Option<Finding> {
    let depth = route.queue_depth();
    if depth <= MIN_QUEUE {
        return None;
    }
    let name = route.route_key.route.shared();
    let history = &readings.recorded.history;
    let selects = |group: &Group| group.route == name;
    let recent = Sums::recent(history, selects);
    // Requests that the route finishes in 2 s.
    let finished_soon = recent.finished / (RECENT_INTERVALS * 5 / 2);
    let before = history.queue_depth_before_recent(selects)?;
    if depth <= finished_soon || as_f64(depth) <= QUEUE_GROWTH * before {
        return None;
    }
    let limit = (2.0 * before).max(as_f64(MIN_QUEUE));
    Some(Finding {
        id: format!("queue:{name}"),
        severity: Severity::Warning,
        text: format!(
            "route {name}: {depth} requests wait for a first token, {before:.0} in the minutes before"
        ),
        since_unix_ms: history.bad_since(selects, |sums| Some(as_f64(sums.queue_depth) > limit)),
        runbook: "LLMQueueGrowing",
        view: "charts",
        filter: Filter { route: Some(name), ..Filter::default() },
    })
}

fn rate_limits(readings: &Readings) -> Vec<Finding> {
    let finding = |reading: &tokengauge_measure::load::RateLimitReading| {
        let used = used_share(reading).filter(|used| *used > NEAR_LIMIT)?;
        let key = &reading.model_key;
        let kind = reading.limited.as_str();
        Some(Finding {
            id: format!("rate_limit:{}:{}:{kind}", key.provider, key.model),
            severity: Severity::Warning,
            text: format!(
                "{} · {}: {} of the rate limit for {} used",
                key.provider,
                key.model,
                percent(used),
                kind.replace('_', " ")
            ),
            since_unix_ms: None,
            runbook: "LLMRateLimitNear",
            view: "limits",
            filter: Filter {
                provider: Some(key.provider.shared()),
                model: Some(key.model.shared()),
                ..Filter::default()
            },
        })
    };
    let mut findings: Vec<Finding> = readings.load.quotas.iter().filter_map(finding).collect();
    // The same limit may be reported for several routes.
    findings.sort_by(|a, b| a.id.cmp(&b.id));
    findings.dedup_by(|a, b| a.id == b.id);
    findings
}
