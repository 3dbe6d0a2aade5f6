//! Alerts on error budgets, for any set of SLOs. The target comes from a metric.
//!
//! Each alert uses two windows. The short window lets the alert resolve soon after its cause ends. Burn rate alerts
//! require a minimum number of events. A separate alert fires if an SLO has too few events.

use crate::alerts::number::Factor;
use crate::alerts::promql::Template;
use crate::alerts::recording::burn;
use crate::alerts::rule::{Alert, Group, Severity};
use crate::alerts::span::Span;
use crate::alerts::values::Values;

const DASHBOARD: &str = "tokengauge-slo";

pub(super) fn groups(values: &Values) -> Vec<Group> {
    let alerts = [fast(values), slow(values), too_few(values)];
    vec![Group {
        name: "tokengauge-slo-alerts",
        interval: Span::seconds(30),
        rules: alerts.map(Into::into).into(),
    }]
}

/// A long window, a short window, and the burn rate that both must exceed.
struct Pair {
    long: &'static str,
    short: &'static str,
    burn: Factor,
}

fn fast(values: &Values) -> Alert {
    let slo = &values.slo;
    let hour = Pair { long: "1h", short: "5m", burn: slo.burn_1h };
    let hours = Pair { long: "6h", short: "30m", burn: slo.burn_6h };
    Alert {
        name: "LLMErrorBudgetBurnFast",
        severity: Severity::Critical,
        expr: burning(values, &[hour, hours]),
        hold: Some(Span::minutes(2)),
        keep_firing_for: Some(Span::minutes(5)),
        summary: "Error budget of {{ $labels.sloth_slo }} burns {{ $value | printf \"%.1f\" }} times too fast".to_owned(),
        description: format!(
            "The objective {{{{ $labels.sloth_slo }}}} ({{{{ $labels.tokengauge_indicator }}}}, job {{{{ $labels.job }}}}) fails \
             {{{{ $value | printf \"%.1f\" }}}} times as often as its target allows: more than {} times over 1 h and 5 min, or \
             more than {} times over 6 h and 30 min. At 14.4 times a budget for 30 days is gone in 50 h.",
            slo.burn_1h, slo.burn_6h
        ),
        dashboard: DASHBOARD,
    }
}

fn slow(values: &Values) -> Alert {
    let slo = &values.slo;
    let day = Pair { long: "1d", short: "2h", burn: slo.burn_1d };
    let days = Pair { long: "3d", short: "6h", burn: slo.burn_3d };
    Alert {
        name: "LLMErrorBudgetBurnSlow",
        severity: Severity::Warning,
        expr: burning(values, &[day, days]),
        hold: Some(Span::minutes(15)),
        keep_firing_for: Some(Span::minutes(30)),
        summary: "Error budget of {{ $labels.sloth_slo }} will not last: it burns {{ $value | printf \"%.1f\" }} times too fast".to_owned(),
        description: format!(
            "The objective {{{{ $labels.sloth_slo }}}} ({{{{ $labels.tokengauge_indicator }}}}, job {{{{ $labels.job }}}}) fails \
             {{{{ $value | printf \"%.1f\" }}}} times as often as its target allows: more than {} times over 1 d and 2 h, or \
             more than {} times over 3 d and 6 h.",
            slo.burn_1d, slo.burn_3d
        ),
        dashboard: DASHBOARD,
    }
}

fn burning(values: &Values, pairs: &[Pair]) -> String {
    let side = |pair: &Pair| {
        Template::new(values)
            .with("long", burn(pair.long))
            .with("short", burn(pair.short))
            .with("burn", pair.burn)
            .with("events", format!("slo:tokengauge_slo_events:increase{}", pair.long))
            .with("min_events", values.slo.min_events)
            .with("min_bad_events", values.slo.min_bad_events)
            .fill(
                r#"
                (
                  (<long>) > <burn>
                  and
                  (<short>) > <burn>
                  and
                  sum without (tokengauge_result) (<events>) >= <min_events>
                  and
                  sum without (tokengauge_result) (<events>{tokengauge_result="bad"}) >= <min_bad_events>
                )
                "#,
            )
    };
    pairs.iter().map(side).collect::<Vec<_>>().join("\nor\n")
}

fn too_few(values: &Values) -> Alert {
    let least = values.slo.min_events_1d;
    let expr = Template::new(values).with("least", least).fill(
        r#"
        sum without (tokengauge_result) (slo:tokengauge_slo_events:increase1d) < <least>
        and
        sum without (tokengauge_result) (present_over_time(slo:tokengauge_slo_events:increment5m[1h] offset 1d))
        and
        slo:objective:ratio
        "#,
    );
    Alert {
        name: "LLMObjectiveTooFewEvents",
        severity: Severity::Info,
        expr,
        hold: Some(Span::hours(1)),
        keep_firing_for: None,
        summary: "Too few events to judge {{ $labels.sloth_slo }} by".to_owned(),
        description: format!(
            "The objective {{{{ $labels.sloth_slo }}}} ({{{{ $labels.tokengauge_indicator }}}}, job {{{{ $labels.job }}}}) had \
             {{{{ $value | printf \"%.0f\" }}}} events in a day, fewer than {least}: alerts on its burn rate over an hour, six \
             or a day cannot fire, whatever happens."
        ),
        dashboard: DASHBOARD,
    }
}
