//! Output token rate: tokens received ÷ stream-seconds between first token and end, both counted while they occur.
//! Waiting, prefill and slow clients affect neither value. Longer prompts, idle hours, shorter responses and slow
//! readers therefore do not lower the rate.

use crate::alerts::rule::{Alert, Rule, Severity};
use crate::alerts::span::Span;
use crate::alerts::traffic::{Believed, CALL, LANE, SHARE, formerly, record, template};
use crate::alerts::values::Values;

/// Live rate per stream over 3 min. At steady load, a rate that drops by half is below 70 % after 2 min.
const NOW: &str = "model:tokengauge_live_rate:ratio_rate3m";
const HOUR: &str = "model:tokengauge_live_rate:ratio_rate1h";
const REFERENCE: &str = "model:tokengauge_live_rate:reference";
const MEDIAN: &str = "model:tokengauge_live_rate:median6h";
const DEVIATION: &str = "model:tokengauge_live_rate:mad6h";
const BAND: &str = "model:tokengauge_live_rate:lower_band";

pub(super) fn rules(values: &Values) -> Vec<Rule> {
    vec![now(values), drop(values).into(), anomaly(values).into(), collapse(values).into()]
}

/// Records the live rate if enough streams contributed, counting both finished and in-flight streams. The expression is
/// a single query, because samples that Prometheus ingests between two queries would reach only one side of the ratio.
fn now(values: &Values) -> Rule {
    let expr = template(values)
        .with("least", values.output_rate.min_streams)
        .fill(
            r#"
            sum by (<call>) (
              rate(tokengauge_tokens_total{<only>, gen_ai_token_type="output", gen_ai_request_stream="true", gen_ai_request_model!="other"}[3m])
            )
            / (
              sum by (<call>) (
                rate(tokengauge_stream_time_seconds_total{<only>, tokengauge_stream_state="streaming", gen_ai_request_model!="other"}[3m])
              ) > 0
            )
            and (
              sum by (<call>) (
                increase(tokengauge_requests_finished_total{<only>, gen_ai_request_stream="true", gen_ai_request_model!="other"}[3m])
              )
              + sum by (<call>) (
                rate(tokengauge_stream_time_seconds_total{<only>, tokengauge_stream_state="streaming", gen_ai_request_model!="other"}[3m])
              )
            ) >= <least>
            "#,
        );
    record(NOW, expr)
}

/// Records the hourly rate, and the reference value for the live rate.
pub(super) fn references(values: &Values) -> Vec<Rule> {
    let hour = template(values)
        .with("least", values.output_rate.min_reference_streams)
        .fill(
            r#"
            sum by (<call>) (
              rate(tokengauge_tokens_total{<only>, gen_ai_token_type="output", gen_ai_request_stream="true", gen_ai_request_model!="other"}[1h])
            )
            / (
              sum by (<call>) (
                rate(tokengauge_stream_time_seconds_total{<only>, tokengauge_stream_state="streaming", gen_ai_request_model!="other"}[1h])
              ) > 0
            )
            and sum by (<call>) (
              increase(tokengauge_requests_finished_total{<only>, gen_ai_request_stream="true", gen_ai_request_model!="other"}[1h])
            ) >= <least>
            "#,
        );
    vec![record(HOUR, hour), record(REFERENCE, formerly(HOUR, Believed::Lower))]
}

/// Records the median over six hours and the lower bound of usual rates. The bound is a number of scaled median
/// absolute deviations below the median, but at least a ratio of the median below it. The scale 1.4826 converts to
/// standard deviations. The latest half hour is excluded, because the anomaly itself would shift the bound. Requires
/// three hours of rates.
pub(super) fn bands(values: &Values) -> Vec<Rule> {
    let template = template(values)
        .with("now", NOW)
        .with("median", MEDIAN)
        .with("mad", DEVIATION)
        .with("deviations", values.output_rate.anomaly_deviations)
        .with("band", values.output_rate.anomaly_band);
    vec![
        record(
            MEDIAN,
            template.fill(
                r"
                quantile_over_time(0.5, <now>[6h] offset 30m)
                and count_over_time(<now>[6h:5m] offset 30m) >= 36
                ",
            ),
        ),
        record(
            DEVIATION,
            template
                .fill("quantile_over_time(0.5, abs(<now> - <median> @ end())[6h:5m] offset 30m)"),
        ),
        record(
            BAND,
            template.fill(
                r"
                <median> - (
                  <deviations> * 1.4826 * <mad> > <band> * <median>
                  or <band> * <median>
                )
                ",
            ),
        ),
    ]
}

fn drop(values: &Values) -> Alert {
    let share = values.output_rate.drop_to;
    Alert {
        name: "LLMOutputTPSDrop",
        severity: Severity::Critical,
        expr: format!("{NOW} / {REFERENCE} < {share}"),
        hold: Some(Span::minutes(1)),
        keep_firing_for: Some(Span::minutes(5)),
        summary: format!(
            "{{{{ $labels.gen_ai_request_model }}}} generates at {SHARE} of its usual rate"
        ),
        description: format!(
            "Over 3 min the streams of {CALL} bring {SHARE} of the output tokens per second that they brought each a day and \
             a week ago or, where neither is known, in the last hour. Below {} it is slow for everybody. Waiting, prefill and \
             clients that do not read are no part of it.",
            share.percent()
        ),
        dashboard: "tokengauge-streaming",
    }
}

fn anomaly(values: &Values) -> Alert {
    let (deviations, band) =
        (values.output_rate.anomaly_deviations, values.output_rate.anomaly_band.percent());
    Alert {
        name: "LLMOutputTPSAnomaly",
        severity: Severity::Warning,
        expr: format!("{NOW} < {BAND}"),
        hold: Some(Span::minutes(15)),
        keep_firing_for: Some(Span::minutes(15)),
        summary: "{{ $labels.gen_ai_request_model }} generates unusually slowly".to_owned(),
        description: format!(
            "Over 3 min the streams of {CALL} bring {{{{ $value | humanize }}}} output tokens per second each: below the \
             median of 6 h by more than {deviations} scaled median absolute deviations, and by more than {band}."
        ),
        dashboard: "tokengauge-streaming",
    }
}

/// Fires if streams are in flight, on average over 3 min and now, and no token arrives, although tokens arrived in the
/// last 6 h. Time in which clients did not read is not stream time. Non-streaming responses have no stream time.
fn collapse(values: &Values) -> Alert {
    let expr = template(values)
        .with("least", values.output_rate.collapse_streams)
        .fill(
            r#"
            sum by (<lane>) (rate(tokengauge_stream_time_seconds_total{<only>, tokengauge_stream_state=~"waiting|streaming"}[3m])) >= <least>
            and sum by (<lane>) (tokengauge_active_requests{<only>, tokengauge_state=~"waiting|streaming"}) > 0
            and sum by (<lane>) (increase(tokengauge_tokens_total{<only>, gen_ai_token_type="output"}[6h])) > 0
            unless sum by (<lane>) (increase(tokengauge_tokens_total{<only>, gen_ai_token_type="output"}[3m])) > 0
            "#,
        );
    Alert {
        name: "LLMThroughputCollapse",
        severity: Severity::Critical,
        expr,
        hold: None,
        keep_firing_for: Some(Span::minutes(3)),
        summary: "Route {{ $labels.tokengauge_route }} generates nothing, with work in flight"
            .to_owned(),
        description: format!(
            "On {LANE} {{{{ $value | humanize }}}} streams were in flight on average over 3 min, and not one output token \
             came. Answers that are not streamed are left out."
        ),
        dashboard: "tokengauge-saturation",
    }
}
