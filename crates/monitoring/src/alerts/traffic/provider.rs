//! Alerts on providers. The model is not a label here, because a response that never arrived confirms no model.
//!
//! The ratios compare successful calls with calls that failed because of the upstream. Client errors, client aborts and
//! requests that this proxy rejected or drained are not evidence about a provider. Status 429 is not a failure here,
//! because a separate alert covers it.

use crate::alerts::rule::{Alert, Rule, Severity};
use crate::alerts::span::Span;
use crate::alerts::traffic::{CALL, PROVIDER, SHARE, share_of_exchanges, template};
use crate::alerts::values::Values;

const FAILED: &str =
    r#"gen_ai_provider_name!="", tokengauge_fault="upstream", http_response_status_code!="429""#;
const JUDGED: &str = r#"gen_ai_provider_name!="", tokengauge_fault=~"none|upstream", http_response_status_code!="429""#;
const LIMITED: &str =
    r#"gen_ai_provider_name!="", tokengauge_fault="upstream", http_response_status_code="429""#;
const ANSWERED: &str = r#"gen_ai_provider_name!="", tokengauge_fault=~"none|upstream""#;

pub(super) fn rules(values: &Values) -> Vec<Rule> {
    let alerts = [down(values), errors(values), limited(values), quota(values)];
    alerts.map(Into::into).into()
}

fn down(values: &Values) -> Alert {
    let provider = &values.provider;
    let thresholds = (provider.down_share, provider.min_failed);
    Alert {
        name: "LLMProviderDown",
        severity: Severity::Critical,
        expr: share_of_exchanges(values, Span::minutes(3), [FAILED, JUDGED], thresholds),
        hold: Some(Span::minutes(1)),
        keep_firing_for: Some(Span::minutes(5)),
        summary: format!("{{{{ $labels.gen_ai_provider_name }}}} is down: {SHARE} of calls fail"),
        description: format!(
            "In 3 min {SHARE} of the calls to {PROVIDER} failed by the provider's fault, more than {}. Answers of 429, and \
             what clients gave up or asked amiss, are left out.",
            provider.down_share.percent()
        ),
        dashboard: "tokengauge-overview",
    }
}

fn errors(values: &Values) -> Alert {
    let provider = &values.provider;
    let thresholds = (provider.error_share, provider.min_failed);
    Alert {
        name: "LLMProviderErrors",
        severity: Severity::Warning,
        expr: share_of_exchanges(values, Span::minutes(10), [FAILED, JUDGED], thresholds),
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(10)),
        summary: format!("{{{{ $labels.gen_ai_provider_name }}}} fails {SHARE} of calls"),
        description: format!(
            "In 10 min {SHARE} of the calls to {PROVIDER} failed by the provider's fault, more than {}. Answers of 429, and \
             what clients gave up or asked amiss, are left out.",
            provider.error_share.percent()
        ),
        dashboard: "tokengauge-overview",
    }
}

fn limited(values: &Values) -> Alert {
    let provider = &values.provider;
    let thresholds = (provider.limited_share, provider.min_failed);
    Alert {
        name: "LLMRateLimited",
        severity: Severity::Warning,
        expr: share_of_exchanges(values, Span::minutes(10), [LIMITED, ANSWERED], thresholds),
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(10)),
        summary: format!(
            "{{{{ $labels.gen_ai_provider_name }}}} refuses {SHARE} of calls with 429"
        ),
        description: format!(
            "In 10 min {SHARE} of the calls to {PROVIDER} were answered 429 by the provider, more than {}. What this proxy's \
             own limit refused is left out.",
            provider.limited_share.percent()
        ),
        dashboard: "tokengauge-overview",
    }
}

/// Uses the minimum over replicas. Each replica exports the last value it read, and other clients also use the quota,
/// so the lowest value is the most accurate.
fn quota(values: &Values) -> Alert {
    let provider = &values.provider;
    let expr = template(values)
        .with("share", provider.quota_share)
        .with("least", provider.quota_min_calls)
        .fill(
            r#"
            min by (<call>, tokengauge_limited) (
              tokengauge_quota_tokens_remaining{<only>} / (tokengauge_quota_tokens_limit{<only>} > 0)
              or label_replace(
                tokengauge_quota_requests_remaining{<only>} / (tokengauge_quota_requests_limit{<only>} > 0),
                "tokengauge_limited", "requests", "", ""
              )
            ) < <share>
            and on (<lane>) sum by (<lane>) (increase(tokengauge_requests_finished_total{<only>}[5m])) >= <least>
            "#,
        );
    Alert {
        name: "LLMQuotaLow",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(5)),
        summary: format!(
            "{{{{ $labels.gen_ai_provider_name }}}} has {SHARE} of {{{{ $labels.tokengauge_limited }}}} left"
        ),
        description: format!(
            "By the provider's rate-limit headers the account has {SHARE} of its {{{{ $labels.tokengauge_limited }}}} left for \
             {CALL}, less than {} for 5 min. When they are spent calls are answered 429.",
            provider.quota_share.percent()
        ),
        dashboard: "tokengauge-saturation",
    }
}
