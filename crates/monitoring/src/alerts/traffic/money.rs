//! Cost of calls, per currency and never summed across currencies, and remaining budgets.

use crate::alerts::rule::{Alert, Recording, Rule, Severity};
use crate::alerts::span::Span;
use crate::alerts::traffic::{Believed, SHARE, days_ago, record, template};
use crate::alerts::values::Values;

const COST: &str = "currency:tokengauge_cost:per_hour1h";
const COST_REFERENCE: &str = "currency:tokengauge_cost:reference";
const INCREMENT: &str = "budget:tokengauge_budget_used:increase1h";
const USED: &str = "budget:tokengauge_budget_used:ratio";
const FORECAST: &str = "budget:tokengauge_budget_forecast:ratio";
const BUDGET: &str = "<scope>, tokengauge_budget_name, tokengauge_budget_unit";

pub(super) fn rules(values: &Values) -> Vec<Rule> {
    let cost = template(values).fill(
        "sum by (<scope>, tokengauge_vantage, tokengauge_currency) (rate(tokengauge_cost_total{<only>}[1h])) * 3600",
    );
    vec![
        record(COST, cost),
        record(COST_REFERENCE, days_ago(COST, Believed::Higher)),
        cost_spike(values).into(),
        budget(values).into(),
    ]
}

/// Uses the total over routes and models, so that cost moving between them is not a spike.
fn cost_spike(values: &Values) -> Alert {
    let (ratio, least) = (values.money.cost_ratio, values.money.cost_per_hour);
    Alert {
        name: "LLMCostSpike",
        severity: Severity::Warning,
        expr: format!("{COST} > {ratio} * {COST_REFERENCE}\nand {COST} > {least}"),
        hold: Some(Span::minutes(10)),
        keep_firing_for: Some(Span::minutes(30)),
        summary:
            "Calls cost {{ $value | printf \"%.2f\" }} {{ $labels.tokengauge_currency }} an hour"
                .to_owned(),
        description: format!(
            "In the last hour calls cost {{{{ $value | printf \"%.2f\" }}}} {{{{ $labels.tokengauge_currency }}}} (job \
             {{{{ $labels.job }}}}, vantage {{{{ $labels.tokengauge_vantage }}}}): more than {ratio} times as much as in the same \
             hour a day and a week ago, and more than {least}."
        ),
        dashboard: "tokengauge-workload",
    }
}

/// A possible budget window. PromQL cannot read a window from a metric, so each window has a rule that selects the
/// budgets with that window. A budget over another window has no forecast.
struct Window {
    length: &'static str,
    /// Value of `tokengauge.budget.window` in seconds.
    seconds: u64,
    /// The forecast horizon, and the offset at which the part of the window starts that expires within the horizon.
    ahead: (&'static str, &'static str),
    /// The recent period whose rate is extrapolated, and the number of such periods in the horizon.
    recent: (&'static str, u64),
}

const WINDOWS: [Window; 4] = [
    Window { length: "1h", seconds: 3_600, ahead: ("15m", "45m"), recent: ("15m", 1) },
    Window { length: "1d", seconds: 86_400, ahead: ("4h", "20h"), recent: ("2h", 2) },
    Window { length: "7d", seconds: 604_800, ahead: ("1d", "6d"), recent: ("6h", 4) },
    Window { length: "30d", seconds: 2_592_000, ahead: ("3d", "27d"), recent: ("6h", 12) },
];

/// Records the hourly usage of a fleet, from which weekly and monthly usage are summed.
pub(super) fn increments(values: &Values) -> Vec<Rule> {
    vec![record(INCREMENT, used(values, "1h", ""))]
}

/// Records the used ratio and the forecast ratio of each budget. The forecast is the usage in the window, plus the
/// extrapolated usage, minus the usage that expires from the window by then.
pub(super) fn budgets(values: &Values) -> Vec<Rule> {
    let now = WINDOWS.iter().map(|window| {
        let used = over(values, window.length, window.length, "");
        of_limit(values, USED, window, &used)
    });
    let then = WINDOWS.iter().map(|window| {
        let (ahead, since) = window.ahead;
        let (recent, times) = window.recent;
        let text = template(values)
            .with("limit", limit(values))
            .with("used", over(values, window.length, window.length, ""))
            .with("times", times)
            .with("recent", used(values, recent, ""))
            .with("leaves", over(values, window.length, ahead, &format!(" offset {since}")))
            .fill("(<used> + <times> * <recent> - (<leaves> or 0 * <limit>))");
        of_limit(values, FORECAST, window, &text)
    });
    now.chain(then).collect()
}

fn used(values: &Values, span: &str, offset: &str) -> String {
    template(values).with("span", span).with("offset", offset).fill(&format!(
        "sum by ({BUDGET}) (increase(tokengauge_budget_used_total{{<only>}}[<span>]<offset>))"
    ))
}

/// Returns the usage in `span` for a budget with the window `window`. Up to a day, the counters are queried directly.
/// Longer windows are summed from hourly increments, because a query cannot load a month of a fleet's counters.
fn over(values: &Values, window: &str, span: &str, offset: &str) -> String {
    match window {
        "1h" | "1d" => used(values, span, offset),
        _ => format!("sum_over_time({INCREMENT}[{span}:1h]{offset})"),
    }
}

fn limit(values: &Values) -> String {
    template(values).fill(&format!("max by ({BUDGET}) (tokengauge_budget_limit{{<only>}})"))
}

/// Records `used` as a ratio of the limits of all budgets with this window.
fn of_limit(values: &Values, name: &str, window: &Window, used: &str) -> Rule {
    let expr = template(values)
        .with("limit", limit(values))
        .with("seconds", window.seconds)
        .fill(&format!(
            "{used}\n/ (<limit> > 0)\nand max by ({BUDGET}) (tokengauge_budget_window_seconds{{<only>}}) == <seconds>"
        ));
    Recording {
        record: name.to_owned(),
        expr,
        labels: vec![("tokengauge_budget_window", window.length.to_owned())],
    }
    .into()
}

fn budget(values: &Values) -> Alert {
    let least = values.money.budget_used;
    Alert {
        name: "LLMBudgetForecastExceeded",
        severity: Severity::Warning,
        expr: format!("{FORECAST} > 1\nand {USED} >= {least}\nor {USED} > 1"),
        hold: Some(Span::minutes(10)),
        keep_firing_for: Some(Span::minutes(30)),
        summary: "Budget {{ $labels.tokengauge_budget_name }} will not last".to_owned(),
        description: format!(
            "At the rate of the last hours budget {{{{ $labels.tokengauge_budget_name }}}} (in \
             {{{{ $labels.tokengauge_budget_unit }}}}, over {{{{ $labels.tokengauge_budget_window }}}}) will be at {SHARE} of its \
             limit before long. More than {} of it is used.",
            least.percent()
        ),
        dashboard: "tokengauge-workload",
    }
}
