//! Recording rules: series that alerts share, and SLO series under Sloth's names, so that Sloth's dashboards work.
//!
//! Sums are built from counter increases, so a restart or a removed replica does not change earlier counts. All ratios
//! are ratios of sums, so every event has the same weight, also over 30 days.

use crate::alerts::promql::Template;
use crate::alerts::rule::{Group, Recording, Rule};
use crate::alerts::span::Span;
use crate::alerts::values::Values;

/// Windows that are queried from the counters directly, in the order in which burn rates need them.
const SHORT: [&str; 3] = ["5m", "30m", "1h"];
const MEDIUM: [&str; 2] = ["2h", "6h"];

/// Windows that are summed from 5-minute increments. Over 30 days, the counters of a fleet exceed the number of samples
/// that Prometheus allows a query to load.
const LONG: [&str; 3] = ["1d", "3d", "30d"];

pub(super) fn groups(values: &Values) -> Vec<Group> {
    let template = Template::new(values);
    let counted = |windows: &[&str]| -> Vec<Rule> {
        let rules = |window| [events(&template, window), errors(window)];
        windows.iter().copied().flat_map(rules).collect()
    };
    let mut fast = counted(&SHORT);
    fast.extend(targets(&template));
    let mut slow = counted(&MEDIUM);
    slow.extend(LONG.into_iter().flat_map(|window| [added_up(window), errors(window)]));
    slow.extend(period());
    vec![
        Group { name: "tokengauge-slo-fast", interval: Span::seconds(30), rules: fast },
        Group {
            name: "tokengauge-slo-increments",
            // The interval equals the counted window, so that each event is in exactly one increment.
            interval: Span::minutes(5),
            rules: vec![increments(&template)],
        },
        Group { name: "tokengauge-slo-slow", interval: Span::minutes(2), rules: slow },
    ]
}

/// Name of the 5-minute event increments of an SLO, from which the [`LONG`] windows are summed.
const INCREMENTS: &str = "slo:tokengauge_slo_events:increment5m";

/// Counts the good and bad events of each SLO in a window, with Sloth's labels in addition to the original labels.
fn events(template: &Template, window: &str) -> Rule {
    counted(template, &name(window), window)
}

fn increments(template: &Template) -> Rule {
    counted(template, INCREMENTS, "5m")
}

fn name(window: &str) -> String {
    format!("slo:tokengauge_slo_events:increase{window}")
}

fn counted(template: &Template, record: &str, window: &str) -> Rule {
    let expr = template.clone().with("window", window).fill(
        r#"
        label_replace(
          label_replace(
            sum by (<scope>, tokengauge_slo, tokengauge_indicator, tokengauge_result) (
              increase(tokengauge_slo_events_total{<only>}[<window>])
            ),
            "sloth_slo", "$1", "tokengauge_slo", "(.+)"
          ),
          "sloth_id", "tokengauge-$1", "tokengauge_slo", "(.+)"
        )
        "#,
    );
    record_with(record, expr, &[SERVICE])
}

/// Sloth's label for the service that an SLO belongs to.
const SERVICE: (&str, &str) = ("sloth_service", "tokengauge");

fn added_up(window: &str) -> Rule {
    let expr = format!("sum_over_time({INCREMENTS}[{window}])");
    record_with(&name(window), expr, &[])
}

/// Computes the ratio of bad events. Absent if the window has no events.
fn errors(window: &str) -> Rule {
    let events = name(window);
    let expr = format!(
        "{events}{{tokengauge_result=\"bad\"}}\n\
         / ignoring (tokengauge_result)\n\
         (sum without (tokengauge_result) ({events}) > 0)"
    );
    let record = format!("slo:sli_error:ratio_rate{window}");
    record_with(&record, expr, &[("sloth_window", window)])
}

/// Records SLO targets and error budgets. Every process exports the targets. During a rollout, the stricter target
/// applies. The targets of a stopped process remain valid for 15 minutes.
fn targets(template: &Template) -> Vec<Rule> {
    let objective = template.fill(
        r#"
        label_replace(
          label_replace(
            max by (<scope>, tokengauge_slo, tokengauge_indicator) (
              last_over_time(tokengauge_slo_objective_ratio{<only>}[15m])
            ),
            "sloth_slo", "$1", "tokengauge_slo", "(.+)"
          ),
          "sloth_id", "tokengauge-$1", "tokengauge_slo", "(.+)"
        )
        "#,
    );
    let info =
        "count_values without () (\"sloth_objective\", round(slo:objective:ratio * 100, 0.0001))";
    vec![
        record_with("slo:objective:ratio", objective, &[SERVICE]),
        record_with("slo:error_budget:ratio", "1 - slo:objective:ratio".to_owned(), &[]),
        record_with("slo:time_period:days", "slo:objective:ratio * 0 + 30".to_owned(), &[]),
        record_with("slo:current_burn_rate:ratio", burn("5m"), &[]),
        record_with(
            "sloth_slo_info",
            info.to_owned(),
            &[("sloth_mode", "tokengauge"), ("sloth_spec", "tokengauge")],
        ),
    ]
}

fn period() -> [Rule; 2] {
    let remaining = "1 - slo:period_burn_rate:ratio".to_owned();
    [
        record_with("slo:period_burn_rate:ratio", burn("30d"), &[]),
        record_with("slo:period_error_budget_remaining:ratio", remaining, &[]),
    ]
}

/// Returns the PromQL of the burn rate over a window.
pub(super) fn burn(window: &str) -> String {
    format!("slo:sli_error:ratio_rate{window} / ignoring (sloth_window) slo:error_budget:ratio")
}

fn record_with(record: &str, expr: String, labels: &[(&'static str, &str)]) -> Rule {
    let labels = labels.iter().map(|&(name, value)| (name, value.to_owned()));
    Recording { record: record.to_owned(), expr, labels: labels.collect() }.into()
}
