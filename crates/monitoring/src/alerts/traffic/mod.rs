//! Alerts on observed traffic: rates, latency, providers, quality and cost.
//!
//! The alerts compare a flow with its own past. A flow is a combination of provider, model, route and position. Labels
//! that do not matter for an alert are dropped, and so is a model that no upstream has accepted yet. Tenants, variants,
//! response model names and replicas are aggregated. Counters are summed first, and ratios and means are computed from
//! the sums. A removed or restarted replica therefore affects both sides of a ratio equally.
//!
//! Each alert requires a minimum number of calls and is silent without traffic. No ratio has a zero denominator, so
//! none is NaN. Models above the cardinality limit (`other`) are excluded from model alerts, because their mix changes.

mod latency;
mod money;
mod output;
mod provider;
mod quality;
pub mod thresholds;

use std::fmt::Display;

use crate::alerts::promql::{SCOPE, Template};
use crate::alerts::rule::{Group, Recording, Rule};
use crate::alerts::span::Span;
use crate::alerts::values::Values;

/// Returns the alert groups. Each alert follows the recording rules that it needs up to date.
pub(super) fn groups(values: &Values) -> Vec<Group> {
    let group = |name, interval, rules| Group { name, interval, rules };
    vec![
        group("tokengauge-output", Span::seconds(30), output::rules(values)),
        group("tokengauge-latency", Span::seconds(30), latency::rules(values)),
        group("tokengauge-provider", Span::seconds(30), provider::rules(values)),
        group("tokengauge-quality", Span::minutes(1), quality::rules(values)),
        group("tokengauge-money", Span::minutes(1), money::rules(values)),
    ]
}

/// Returns the reference series over an hour and longer, which change slowly.
pub(super) fn recordings(values: &Values) -> Vec<Group> {
    let references =
        [output::references(values), latency::references(values), money::increments(values)];
    let baselines = [output::bands(values), quality::variants(values), money::budgets(values)];
    vec![
        Group {
            name: "tokengauge-references",
            interval: Span::minutes(1),
            rules: references.concat(),
        },
        Group {
            name: "tokengauge-baselines",
            interval: Span::minutes(5),
            rules: baselines.concat(),
        },
    ]
}

/// Returns a template with the labels that identify flows, for `by (…)`:
///
/// - `<lane>`: route and position; `<provider>`: these and provider; `<call>`: these and model;
/// - `<variant>`: provider, model, position and variant, for any route.
fn template(values: &Values) -> Template {
    let lane = format!("{SCOPE}, tokengauge_vantage, tokengauge_route");
    let provider = format!("{lane}, gen_ai_provider_name");
    let call = format!("{provider}, gen_ai_request_model");
    let variant = format!(
        "{SCOPE}, tokengauge_vantage, gen_ai_provider_name, gen_ai_request_model, tokengauge_variant"
    );
    Template::new(values)
        .with("lane", lane)
        .with("provider", provider)
        .with("call", call)
        .with("variant", variant)
}

fn record(name: impl Into<String>, expr: impl Into<String>) -> Rule {
    Recording { record: name.into(), expr: expr.into(), labels: Vec::new() }.into()
}

/// Which value to use if both a day ago and a week ago are known: the one that makes the alert less likely.
#[derive(Clone, Copy, Debug)]
enum Believed {
    Lower,
    Higher,
}

impl Believed {
    const fn operator(self) -> &'static str {
        match self {
            Self::Lower => "<=",
            Self::Higher => ">=",
        }
    }
}

/// Returns PromQL for `series` a day ago or a week ago. If both exist, `believed` selects one of them.
fn days_ago(series: &str, believed: Believed) -> String {
    let operator = believed.operator();
    format!(
        "{series} offset 1d {operator} {series} offset 1w\n\
         or {series} offset 1w\n\
         or {series} offset 1d"
    )
}

/// Returns [`days_ago`]. During the first day, returns the value ten minutes ago, which predates the evaluated window.
fn formerly(series: &str, believed: Believed) -> String {
    format!("{}\nor {series} offset 10m", days_ago(series, believed))
}

/// Returns PromQL for the ratio of `some` exchanges to `all` exchanges in a window. Both are matchers. The ratio must
/// exceed `share`, and the window must contain at least `least` of the `some` exchanges.
fn share_of_exchanges(
    values: &Values,
    window: Span,
    [some, all]: [&str; 2],
    (share, least): (impl Display, u64),
) -> String {
    template(values)
        .with("some", some)
        .with("all", all)
        .with("window", window)
        .with("share", share)
        .with("least", least)
        .fill(
            r"
            sum by (<provider>) (increase(tokengauge_requests_finished_total{<only>, <some>}[<window>]))
            / (sum by (<provider>) (increase(tokengauge_requests_finished_total{<only>, <all>}[<window>])) > 0)
            > <share>
            and sum by (<provider>) (increase(tokengauge_requests_finished_total{<only>, <some>}[<window>])) >= <least>
            ",
        )
}

/// Text of a flow in annotations of alerts by `<call>`.
const CALL: &str = "{{ $labels.gen_ai_request_model }} ({{ $labels.gen_ai_provider_name }}, route {{ $labels.tokengauge_route }}, \
                    vantage {{ $labels.tokengauge_vantage }})";

/// Text of a flow in annotations of alerts by `<provider>`.
const PROVIDER: &str = "{{ $labels.gen_ai_provider_name }} (route {{ $labels.tokengauge_route }}, vantage \
                        {{ $labels.tokengauge_vantage }})";

/// Text of a flow in annotations of alerts by `<lane>`.
const LANE: &str =
    "route {{ $labels.tokengauge_route }} (vantage {{ $labels.tokengauge_vantage }})";

const SHARE: &str = "{{ $value | humanizePercentage }}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_days_the_one_that_accuses_less_is_believed() {
        assert_eq!(
            formerly("x", Believed::Higher),
            "x offset 1d >= x offset 1w\nor x offset 1w\nor x offset 1d\nor x offset 10m"
        );
    }

    #[test]
    fn no_mark_is_left_unfilled() {
        let values = crate::alerts::values::defaults();
        let groups = [groups(&values), recordings(&values)].concat();
        for rule in groups.iter().flat_map(|group| &group.rules) {
            let (first, _) = rule.expr().split_once('<').unwrap_or_default();
            assert!(
                !rule
                    .expr()
                    .split('<')
                    .skip(1)
                    .any(|after| after.starts_with(|c: char| c.is_ascii_alphabetic())),
                "{first}: {}",
                rule.expr()
            );
        }
    }
}
