//! Providers and models that fail, and rejected credentials.

use std::collections::BTreeSet;

use super::{Finding, MIN_EVENTS, percent};
use crate::document::{Filter, Group, Severity, Text};
use crate::now::{Sums, as_f64};
use crate::readings::Readings;

/// Shares of failed calls, as in the alerts.
const PROVIDER_ERRORS: f64 = 0.05;
const MODEL_FAILING: f64 = 0.5;
const PROVIDER_DOWN: f64 = 0.9;
const CREDENTIALS_REJECTED: f64 = 0.9;

pub fn find(readings: &Readings) -> Vec<Finding> {
    let groups = &readings.recorded.history.history.groups;
    let providers: BTreeSet<&Text> = groups.iter().map(|group| &group.provider).collect();
    providers.into_iter().flat_map(|provider| of_provider(readings, provider)).collect()
}

/// Returns the share of calls that failed because of the provider. Responses of 429 are excluded.
fn failed_share(sums: &Sums) -> Option<f64> {
    let failed = sums.errors.upstream.saturating_sub(sums.rate_limited);
    (sums.finished > 0).then(|| as_f64(failed) / as_f64(sums.finished))
}

fn rejected_share(sums: &Sums) -> Option<f64> {
    (sums.finished > 0).then(|| as_f64(sums.credentials_rejected) / as_f64(sums.finished))
}

fn of_provider(readings: &Readings, provider: &Text) -> Vec<Finding> {
    let history = &readings.recorded.history;
    let selects = |group: &Group| group.provider == *provider;
    let sums = Sums::recent(history, selects);
    let mut findings = Vec::new();
    let finding = |id: String,
                   severity,
                   text: String,
                   share: fn(&Sums) -> Option<f64>,
                   limit: f64,
                   runbook| {
        Finding {
            id,
            severity,
            text,
            since_unix_ms: history.bad_since(selects, |sums| share(sums).map(|it| it > limit)),
            runbook,
            view: "requests",
            filter: Filter { provider: Some(Text::clone(provider)), ..Filter::default() },
        }
    };
    if sums.credentials_rejected >= MIN_EVENTS
        && let Some(share) = rejected_share(&sums).filter(|it| *it > CREDENTIALS_REJECTED)
    {
        findings.push(finding(
            format!("credentials:{provider}"),
            Severity::Critical,
            format!(
                "{provider}: rejects the credentials of {} of calls (401 or 403)",
                percent(share)
            ),
            rejected_share,
            CREDENTIALS_REJECTED,
            "LLMCredentialsRejected",
        ));
    }
    let failed = sums.errors.upstream.saturating_sub(sums.rate_limited);
    let share = failed_share(&sums).filter(|share| *share > PROVIDER_ERRORS);
    let Some(share) = share.filter(|_| failed >= MIN_EVENTS) else { return findings };
    let is_down = share > PROVIDER_DOWN;
    findings.push(finding(
        format!("provider:{provider}"),
        if is_down { Severity::Critical } else { Severity::Warning },
        format!("{provider}: {} of calls fail because of the provider", percent(share)),
        failed_share,
        PROVIDER_ERRORS,
        if is_down { "LLMProviderDown" } else { "LLMProviderErrors" },
    ));
    if !is_down {
        findings.extend(failing_models(readings, provider));
    }
    findings
}

fn failing_models(readings: &Readings, provider: &Text) -> Vec<Finding> {
    let history = &readings.recorded.history;
    let groups = history.history.groups.iter().filter(|group| group.provider == *provider);
    let models: BTreeSet<&Text> = groups.map(|group| &group.model).collect();
    let finding = |model: &Text| {
        let selects = |group: &Group| group.provider == *provider && group.model == *model;
        let sums = Sums::recent(history, selects);
        let failed = sums.errors.upstream.saturating_sub(sums.rate_limited);
        let share = failed_share(&sums).filter(|share| *share > MODEL_FAILING)?;
        let is_bad = |sums: &Sums| failed_share(sums).map(|share| share > MODEL_FAILING);
        (failed >= MIN_EVENTS).then(|| Finding {
            id: format!("model:{provider}:{model}"),
            severity: Severity::Critical,
            text: format!(
                "{provider} · {model}: {} of calls fail because of the provider",
                percent(share)
            ),
            since_unix_ms: history.bad_since(selects, is_bad),
            runbook: "LLMModelFailing",
            view: "requests",
            filter: Filter {
                provider: Some(Text::clone(provider)),
                model: Some(Text::clone(model)),
                ..Filter::default()
            },
        })
    };
    models.into_iter().filter_map(finding).collect()
}
