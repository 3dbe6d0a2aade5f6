//! Time to first token above the objective.

use std::collections::BTreeMap;

use super::{Finding, MIN_EVENTS, time};
use crate::document::{Filter, Group, Severity, Text};
use crate::now::Sums;
use crate::readings::Readings;
use tokengauge_measure::slo::{Objective, Scope, Sli};
use tokengauge_types::label::GlobPattern;

/// Factor above the objective from which on the condition is critical.
const CRITICAL_FACTOR: f64 = 2.0;

pub fn find(readings: &Readings) -> Vec<Finding> {
    // One line per model, for the strictest objective that it misses.
    let mut found = BTreeMap::<String, (f64, Finding)>::new();
    for reading in &readings.slos {
        let Sli::Ttft(limit) = reading.objective.indicator else { continue };
        let limit = limit.as_secs_f64();
        for finding in missed(readings, &reading.objective, limit) {
            let known = found.get(&finding.id);
            if known.is_none_or(|(other, _)| limit < *other) {
                found.insert(finding.id.clone(), (limit, finding));
            }
        }
    }
    found.into_values().map(|(_, finding)| finding).collect()
}

/// Returns a finding for each model of the objective's scope that misses the objective.
fn missed(readings: &Readings, objective: &Objective, limit: f64) -> Vec<Finding> {
    let history = &readings.recorded.history;
    let scope = ScopeFilter::new(&objective.scope);
    let groups = history.history.groups.iter().filter(|group| scope.matches(group));
    let models: BTreeMap<(&Text, &Text), ()> =
        groups.map(|group| ((&group.provider, &group.model), ())).collect();
    let quantile = objective.target;
    let mut findings = Vec::new();
    for (provider, model) in models.into_keys() {
        let selects = |group: &Group| {
            group.provider == *provider && group.model == *model && scope.matches(group)
        };
        let value = |sums: &Sums| sums.ttft.data()?.percentile(quantile);
        let recent = Sums::recent(history, selects);
        let count = recent.ttft.data().map_or(0, |data| data.count);
        let Some(measured) = value(&recent).filter(|it| *it > limit && count >= MIN_EVENTS) else {
            continue;
        };
        let severity = match measured >= CRITICAL_FACTOR * limit {
            true => Severity::Critical,
            false => Severity::Warning,
        };
        findings.push(Finding {
            id: format!("ttft:{provider}:{model}"),
            severity,
            text: format!(
                "{provider} · {model}: TTFT p{} {}, objective {}",
                percentile_name(quantile),
                time(measured),
                time(limit)
            ),
            since_unix_ms: history.bad_since(selects, |sums| value(sums).map(|it| it > limit)),
            runbook: "LLMTTFTDegraded",
            view: "charts",
            filter: Filter {
                provider: Some(Text::clone(provider)),
                model: Some(Text::clone(model)),
                ..Filter::default()
            },
        });
    }
    findings
}

/// Returns the percentile of a ratio, such as `95` or `99.5`.
fn percentile_name(quantile: f64) -> String {
    let text = format!("{:.2}", quantile * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The parts of a scope that a group can be compared with.
struct ScopeFilter<'a> {
    scope: &'a Scope,
    model: Option<GlobPattern>,
    tenant: Option<GlobPattern>,
}

impl<'a> ScopeFilter<'a> {
    fn new(scope: &'a Scope) -> Self {
        let pattern = |text: &Option<String>| text.as_deref().map(GlobPattern::new);
        Self { scope, model: pattern(&scope.model), tenant: pattern(&scope.tenant) }
    }

    fn matches(&self, group: &Group) -> bool {
        let is_route = |route: &&str| *route == &*group.route;
        self.scope.route.as_ref().is_none_or(|route| is_route(&route.as_str()))
            && self.model.as_ref().is_none_or(|pattern| pattern.matches(&group.model))
            && self.tenant.as_ref().is_none_or(|pattern| {
                group.tenant.as_deref().is_some_and(|tenant| pattern.matches(tenant))
            })
    }
}
