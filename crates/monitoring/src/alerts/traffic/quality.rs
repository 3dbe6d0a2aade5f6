//! Response quality alerts: truncated streams, token-count mismatches, variants that are worse than others, and
//! workload shifts.

use crate::alerts::rule::{Alert, Rule, Severity};
use crate::alerts::span::Span;
use crate::alerts::traffic::{CALL, PROVIDER, SHARE, record, share_of_exchanges, template};
use crate::alerts::values::Values;

const TRUNCATED: &str =
    r#"gen_ai_provider_name!="", tokengauge_outcome="truncated", tokengauge_fault="upstream""#;
const STREAMS: &str = r#"gen_ai_provider_name!="", gen_ai_request_stream="true""#;

pub(super) fn rules(values: &Values) -> Vec<Rule> {
    let alerts =
        [truncated(values), count_drift(values), faster_but_worse(values), workload_drift(values)];
    alerts.map(Into::into).into()
}

fn truncated(values: &Values) -> Alert {
    let quality = &values.quality;
    let thresholds = (quality.truncated_share, quality.min_truncated);
    Alert {
        name: "LLMStreamsTruncated",
        severity: Severity::Warning,
        expr: share_of_exchanges(values, Span::minutes(10), [TRUNCATED, STREAMS], thresholds),
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(10)),
        summary: format!(
            "{SHARE} of the streams of {{{{ $labels.gen_ai_provider_name }}}} break off"
        ),
        description: format!(
            "In 10 min {SHARE} of the streams of {PROVIDER} broke off by the provider's fault, more than {}. What this proxy \
             cut when it was drained is left out.",
            quality.truncated_share.percent()
        ),
        dashboard: "tokengauge-streaming",
    }
}

fn count_drift(values: &Values) -> Alert {
    let quality = &values.quality;
    let expr = template(values)
        .with("least", quality.count_drift_min_tokens)
        .with("share", quality.count_drift)
        .fill(
            r"
            abs(
              sum by (<call>) (increase(tokengauge_drift_counted_total{<only>}[1h]))
              / (sum by (<call>) (increase(tokengauge_drift_reported_total{<only>}[1h])) >= <least>)
              - 1
            ) > <share>
            ",
        );
    Alert {
        name: "LLMTokenCountDrift",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(15)),
        keep_firing_for: Some(Span::minutes(30)),
        summary:
            "{{ $labels.gen_ai_request_model }} reports other numbers of tokens than are counted"
                .to_owned(),
        description: format!(
            "In 1 h the output tokens that were counted of {CALL} and those that were reported differ by {SHARE}, more than \
             {}, over calls in which they should agree. Either what is billed or what is counted is wrong.",
            quality.count_drift.percent()
        ),
        dashboard: "tokengauge-streaming",
    }
}

/// Records quality series per variant over an hour: values where higher is better, and values where lower is better.
/// Each is paired with the value of all other variants of the model, including calls without a variant. Absent unless
/// both sides have enough responses.
pub(super) fn variants(values: &Values) -> Vec<Rule> {
    let template = template(values);
    let sums = [
        (
            "variant:tokengauge_output_tokens:rate1h",
            r#"sum by (<variant>) (rate(tokengauge_tokens_total{<only>, gen_ai_token_type="output", gen_ai_request_stream="true", gen_ai_request_model!="other"}[1h]))"#,
        ),
        (
            "variant:tokengauge_streaming:rate1h",
            r#"sum by (<variant>) (rate(tokengauge_stream_time_seconds_total{<only>, tokengauge_stream_state="streaming", gen_ai_request_model!="other"}[1h]))"#,
        ),
        (
            "variant:tokengauge_choices:increase1h",
            r#"sum by (<variant>) (increase(tokengauge_choices_finished_total{<only>, gen_ai_request_model!="other"}[1h]))"#,
        ),
        (
            "variant:tokengauge_choices_bad:increase1h",
            r#"
            sum by (<variant>) (increase(tokengauge_choices_finished_total{<only>, tokengauge_choice!="complete", gen_ai_request_model!="other"}[1h]))
            or 0 * variant:tokengauge_choices:increase1h
            "#,
        ),
        (
            "variant:tokengauge_streams:increase1h",
            r#"sum by (<variant>) (increase(tokengauge_requests_finished_total{<only>, gen_ai_request_stream="true", gen_ai_request_model!="other"}[1h]))"#,
        ),
        (
            "variant:tokengauge_streams_truncated:increase1h",
            r#"
            sum by (<variant>) (increase(tokengauge_requests_finished_total{<only>, gen_ai_request_stream="true", tokengauge_outcome="truncated", tokengauge_fault="upstream", gen_ai_request_model!="other"}[1h]))
            or 0 * variant:tokengauge_streams:increase1h
            "#,
        ),
    ];
    let mut rules: Vec<Rule> =
        sums.into_iter().map(|(name, expr)| record(name, template.fill(expr))).collect();
    let enough = format!(">= {}", values.quality.variant_min_answers);
    rules.extend(beside_others(
        "variant:tokengauge_live_rate",
        "variant:tokengauge_output_tokens:rate1h",
        ("variant:tokengauge_streaming:rate1h", "> 0"),
    ));
    rules.extend(beside_others(
        "variant:tokengauge_choices_bad",
        "variant:tokengauge_choices_bad:increase1h",
        ("variant:tokengauge_choices:increase1h", &enough),
    ));
    rules.extend(beside_others(
        "variant:tokengauge_streams_truncated",
        "variant:tokengauge_streams_truncated:increase1h",
        ("variant:tokengauge_streams:increase1h", &enough),
    ));
    rules
}

/// Records `part` ÷ `whole` of each variant, and the same ratio of all other variants of its model together.
fn beside_others(name: &str, part: &str, (whole, enough): (&str, &str)) -> [Rule; 2] {
    let others = |series: &str| {
        format!(
            "(sum without (tokengauge_variant) ({series}) - ignoring (tokengauge_variant) group_right () {series})"
        )
    };
    [
        record(format!("{name}:ratio1h"), format!("{part} / ({whole} {enough})")),
        record(
            format!("{name}:ratio1h_others"),
            format!("{}\n/ ({} {enough})", others(part), others(whole)),
        ),
    ]
}

fn faster_but_worse(values: &Values) -> Alert {
    let quality = &values.quality;
    let expr = template(values)
        .with("rate", quality.variant_rate)
        .with("ratio", quality.variant_ratio)
        .with("share", quality.variant_share)
        .fill(
            r#"
            variant:tokengauge_live_rate:ratio1h{tokengauge_variant!~"|other"} / variant:tokengauge_live_rate:ratio1h_others > <rate>
            and (
              (
                variant:tokengauge_choices_bad:ratio1h > <ratio> * variant:tokengauge_choices_bad:ratio1h_others
                and variant:tokengauge_choices_bad:ratio1h - variant:tokengauge_choices_bad:ratio1h_others > <share>
              )
              or
              (
                variant:tokengauge_streams_truncated:ratio1h > <ratio> * variant:tokengauge_streams_truncated:ratio1h_others
                and variant:tokengauge_streams_truncated:ratio1h - variant:tokengauge_streams_truncated:ratio1h_others > <share>
              )
            )
            "#,
        );
    Alert {
        name: "LLMVariantFasterButWorse",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(15)),
        keep_firing_for: Some(Span::hours(1)),
        summary: "Variant {{ $labels.tokengauge_variant }} of {{ $labels.gen_ai_request_model }} is faster, and worse".to_owned(),
        description: format!(
            "In 1 h variant {{{{ $labels.tokengauge_variant }}}} of {{{{ $labels.gen_ai_request_model }}}} \
             ({{{{ $labels.gen_ai_provider_name }}}}, vantage {{{{ $labels.tokengauge_vantage }}}}) generated {{{{ $value | \
             printf \"%.2f\" }}}} times as fast as all others together, and more than {} times as many of its answers were \
             refused, filtered, empty, unfinished or broken off, or held tool arguments that are no JSON.",
            quality.variant_ratio
        ),
        dashboard: "tokengauge-compare",
    }
}

/// Uses the mean over replicas, because each replica has a separate baseline. The index is absent below 200 calls.
fn workload_drift(values: &Values) -> Alert {
    let index = values.quality.workload_index;
    let expr = template(values).with("index", index).fill(
        "avg by (<call>, gen_ai_token_type) (tokengauge_drift_workload_ratio{<only>}) > <index>",
    );
    Alert {
        name: "LLMWorkloadDrift",
        severity: Severity::Info,
        expr,
        hold: Some(Span::hours(1)),
        keep_firing_for: Some(Span::minutes(30)),
        summary: "The {{ $labels.gen_ai_token_type }} of {{ $labels.gen_ai_request_model }} is not what it was".to_owned(),
        description: format!(
            "For 1 h the population stability index of {{{{ $labels.gen_ai_token_type }}}} lengths of {CALL} is above {index}, \
             now {{{{ $value | printf \"%.2f\" }}}}. If latency or rates changed with it, the workload may be why."
        ),
        dashboard: "tokengauge-workload",
    }
}
