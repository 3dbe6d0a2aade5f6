//! SLO targets, remaining error budgets and time to exhaustion.
//!
//! The upper rows query the recording rules in `alerts/`, under Sloth's names. These rows show budgets of the whole
//! service over 30 days, across process restarts. The last rows query counters and gauges of the processes directly and
//! do not need recording rules.

use super::Colour::{Green, Orange, Red, Yellow};
use super::{Dashboard, Panel, Scope, Unit, Variable, stat, state_timeline, table, time_series};

pub(super) fn dashboard() -> Dashboard {
    Dashboard::new(
        "tokengauge-slo",
        "tokengauge · objectives",
        "Error budgets: what is left, how fast it burns, and when it is spent. Needs the recording rules of alerts/, but for the events and what each process tells.",
    )
    .scope(Scope::Process)
    .variable(Variable::named(
        "slo",
        "Objective",
        "label_values(tokengauge_slo_objective_ratio{<process>}, tokengauge_slo)",
    ))
    .from("now-6h")
    .row("Budgets", [left(), firing(), objectives()])
    .row("Burn rates, and the lines at which alerts fire", burning())
    .row("Events", events())
    .folded("As each process tells it", told())
}

/// Text for a missing value: the window has no events, or the rules are not loaded or have not run long enough.
const NOTHING_RECORDED: &str = "Not recorded";

fn left() -> Panel {
    stat(
        "Error budget left",
        Unit::Share,
        "Over 30 days, by objective: slo:period_error_budget_remaining:ratio = 1 − bad ÷ (events × (1 − objective)). 1 is untouched, 0 spent, below 0 overspent. Of several jobs the one that has least.",
    )
    .line(
        "{{sloth_slo}}",
        r#"min by (sloth_slo) (slo:period_error_budget_remaining:ratio{<fleet>, sloth_slo=~"$slo"})"#,
    )
    .judged(Red, &[(0.0, Orange), (0.25, Green)])
    .empty(NOTHING_RECORDED)
    .size(14, 5)
}

fn firing() -> Panel {
    state_timeline(
        "Alerts",
        Unit::Number,
        "Which alerts on objectives fired when: ALERTS with alertstate = firing, by alertname and sloth_slo.",
    )
    .line(
        "{{alertname}} {{sloth_slo}}",
        r#"max by (alertname, sloth_slo) (ALERTS{alertstate="firing", <alert>, sloth_slo=~"$slo"})"#,
    )
    .word(1.0, "firing", Red)
    .empty("None fired")
    .size(10, 5)
}

fn objectives() -> Panel {
    let panel = table(
        "Objectives",
        Unit::Number,
        "By objective and job. Target: slo:objective:ratio. Attained: 1 − slo:sli_error:ratio_rate30d. Left: slo:period_error_budget_remaining:ratio. Burn rates: slo:sli_error:ratio_rate… ÷ slo:error_budget:ratio. Spent in: left × 30 days ÷ burn rate of 1 h, where that is above 1. Bad events: increase(tokengauge_slo_events_total) over the time shown.",
    )
    .key("sloth_slo", "Objective")
    .key("job", "Job");
    spent(burnt(promised(panel))).decimals(2).empty("–")
}

fn promised(panel: Panel) -> Panel {
    panel.column(
        "Target",
        Unit::Share,
        r#"min by (sloth_slo, job) (slo:objective:ratio{<fleet>, sloth_slo=~"$slo"})"#,
    )
    .column(
        "Attained, 30 d",
        Unit::Share,
        r#"1 - max by (sloth_slo, job) (slo:sli_error:ratio_rate30d{<fleet>, sloth_slo=~"$slo"})"#,
    )
    .column(
        "Left",
        Unit::Share,
        r#"min by (sloth_slo, job) (slo:period_error_budget_remaining:ratio{<fleet>, sloth_slo=~"$slo"})"#,
    )
}

fn burnt(panel: Panel) -> Panel {
    panel
        .column(
            "Burn, 5 min",
            Unit::Times,
            r#"max by (sloth_slo, job) (
            slo:sli_error:ratio_rate5m{<fleet>, sloth_slo=~"$slo"}
            / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
        )"#,
        )
        .column(
            "1 h",
            Unit::Times,
            r#"max by (sloth_slo, job) (
            slo:sli_error:ratio_rate1h{<fleet>, sloth_slo=~"$slo"}
            / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
        )"#,
        )
        .column(
            "6 h",
            Unit::Times,
            r#"max by (sloth_slo, job) (
            slo:sli_error:ratio_rate6h{<fleet>, sloth_slo=~"$slo"}
            / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
        )"#,
        )
        .column(
            "3 d",
            Unit::Times,
            r#"max by (sloth_slo, job) (
            slo:sli_error:ratio_rate3d{<fleet>, sloth_slo=~"$slo"}
            / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
        )"#,
        )
}

fn spent(panel: Panel) -> Panel {
    panel.column(
        "Spent in",
        Unit::Seconds,
        r#"min by (sloth_slo, job) (
            (slo:period_error_budget_remaining:ratio{<fleet>, sloth_slo=~"$slo"} > 0)
            * slo:time_period:days{<fleet>, sloth_slo=~"$slo"} * 86400
            / (
                slo:sli_error:ratio_rate1h{<fleet>, sloth_slo=~"$slo"}
                / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                > 1
            )
        )"#,
    )
    .column(
        "Bad events",
        Unit::Number,
        r#"sum by (sloth_slo, job) (
            label_replace(
                increase(tokengauge_slo_events_total{<process>, tokengauge_slo=~"$slo", tokengauge_result="bad"}[$__range]),
                "sloth_slo", "$1", "tokengauge_slo", "(.+)"
            )
        )"#,
    )
}

/// Burn rates over the two windows of each alert, and the alert threshold. The alert fires if both lines exceed it.
fn burning() -> Vec<Panel> {
    let pages = burn(
        "Over 5 min and 1 h: pages at 14.4",
        "Burn rate = share of bad events ÷ (1 − objective): slo:sli_error:ratio_rate5m and …1h ÷ slo:error_budget:ratio. 14.4 for an hour takes 2 % of a budget of 30 days.",
        [
            (
                "{{sloth_slo}}, 5 min",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate5m{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
            (
                "{{sloth_slo}}, 1 h",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate1h{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
        ],
    )
    .lines_at(&[(14.4, Red)]);
    let slow_pages = burn(
        "Over 30 min and 6 h: pages at 6",
        "Burn rate = share of bad events ÷ (1 − objective): slo:sli_error:ratio_rate30m and …6h ÷ slo:error_budget:ratio. 6 for six hours takes 5 % of a budget of 30 days.",
        [
            (
                "{{sloth_slo}}, 30 min",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate30m{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
            (
                "{{sloth_slo}}, 6 h",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate6h{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
        ],
    )
    .lines_at(&[(6.0, Red)]);
    vec![pages, slow_pages, quick_tickets(), slow_tickets()]
}

fn quick_tickets() -> Panel {
    burn(
        "Over 2 h and 1 d: warns at 3",
        "Burn rate = share of bad events ÷ (1 − objective): slo:sli_error:ratio_rate2h and …1d ÷ slo:error_budget:ratio. 3 for a day takes 10 % of a budget of 30 days.",
        [
            (
                "{{sloth_slo}}, 2 h",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate2h{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
            (
                "{{sloth_slo}}, 1 d",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate1d{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
        ],
    )
    .lines_at(&[(3.0, Orange)])
}

fn slow_tickets() -> Panel {
    burn(
        "Over 6 h and 3 d: warns at 1",
        "Burn rate = share of bad events ÷ (1 − objective): slo:sli_error:ratio_rate6h and …3d ÷ slo:error_budget:ratio. 1 for three days takes 10 % of a budget of 30 days.",
        [
            (
                "{{sloth_slo}}, 6 h",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate6h{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
            (
                "{{sloth_slo}}, 3 d",
                r#"max by (sloth_slo) (
                    slo:sli_error:ratio_rate3d{<fleet>, sloth_slo=~"$slo"}
                    / ignoring (sloth_window) slo:error_budget:ratio{<fleet>, sloth_slo=~"$slo"}
                )"#,
            ),
        ],
    )
    .lines_at(&[(1.0, Yellow)])
}

fn burn(
    title: &'static str,
    description: &'static str,
    lines: [(&'static str, &'static str); 2],
) -> Panel {
    lines
        .into_iter()
        .fold(time_series(title, Unit::Times, description), |panel, (name, text)| {
            panel.line(name, text)
        })
        .empty(NOTHING_RECORDED)
        .size(12, 7)
}

fn events() -> Vec<Panel> {
    let attained = time_series(
        "Attained",
        Unit::Share,
        "Share of good events: rate(tokengauge_slo_events_total) with tokengauge_result = good ÷ all. Absent where there were no events.",
    )
    .line(
        "{{tokengauge_slo}}",
        r#"(
            sum by (tokengauge_slo) (rate(tokengauge_slo_events_total{<process>, tokengauge_slo=~"$slo", tokengauge_result="good"}[$__rate_interval]))
            or 0 * sum by (tokengauge_slo) (rate(tokengauge_slo_events_total{<process>, tokengauge_slo=~"$slo"}[$__rate_interval]))
        )
        / (sum by (tokengauge_slo) (rate(tokengauge_slo_events_total{<process>, tokengauge_slo=~"$slo"}[$__rate_interval])) > 0)"#,
    )
    .max(1.0)
    .size(8, 8);
    let bad = time_series(
        "Bad events",
        Unit::Number,
        "Exchanges that broke the promise (tokens, of tokens_above_rate; minutes, of system_rate): increase(tokengauge_slo_events_total) with tokengauge_result = bad.",
    )
    .line(
        "{{tokengauge_slo}}",
        r#"sum by (tokengauge_slo) (increase(tokengauge_slo_events_total{<process>, tokengauge_slo=~"$slo", tokengauge_result="bad"}[$__rate_interval]))"#,
    )
    .bars()
    .stacked()
    .size(8, 8);
    let budget = time_series(
        "Error budget left",
        Unit::Share,
        "Over 30 days: slo:period_error_budget_remaining:ratio. It rises as bad events leave the window.",
    )
    .line(
        "{{sloth_slo}}",
        r#"min by (sloth_slo) (slo:period_error_budget_remaining:ratio{<fleet>, sloth_slo=~"$slo"})"#,
    )
    .max(1.0)
    .lines_at(&[(0.0, Red)])
    .empty(NOTHING_RECORDED)
    .size(8, 8);
    vec![attained, bad, budget]
}

/// SLO values that each process computes from its own exchanges, over the window of the SLO.
fn told() -> Vec<Panel> {
    let budget = time_series(
        "Error budget left, by process",
        Unit::Share,
        "Over the objective's own window, of this process's exchanges: tokengauge_slo_budget_ratio.",
    )
    .line(
        "{{tokengauge_slo}}, {{instance}}",
        r#"max by (tokengauge_slo, instance) (tokengauge_slo_budget_ratio{<process>, tokengauge_slo=~"$slo"})"#,
    )
    .max(1.0)
    .empty("No events");
    let burn = time_series(
        "Burn rate of 1 h, by process",
        Unit::Times,
        "tokengauge_slo_burn_ratio with tokengauge_window = 1h. Absent before the process has observed an hour.",
    )
    .line(
        "{{tokengauge_slo}}, {{instance}}",
        r#"max by (tokengauge_slo, instance) (tokengauge_slo_burn_ratio{<process>, tokengauge_slo=~"$slo", tokengauge_window="1h"})"#,
    )
    .empty("No events");
    let by_process = table(
        "Objectives, by process",
        Unit::Number,
        "Target: tokengauge_slo_objective_ratio. Left: tokengauge_slo_budget_ratio. Observed: tokengauge_slo_covered_seconds. Spent in: tokengauge_slo_exhaustion_seconds, if it burns on as in the last hour.",
    )
    .key("tokengauge_slo", "Objective")
    .key("instance", "Instance")
    .column(
        "Target",
        Unit::Share,
        r#"max by (tokengauge_slo, instance) (tokengauge_slo_objective_ratio{<process>, tokengauge_slo=~"$slo"})"#,
    )
    .column(
        "Left",
        Unit::Share,
        r#"max by (tokengauge_slo, instance) (tokengauge_slo_budget_ratio{<process>, tokengauge_slo=~"$slo"})"#,
    )
    .column(
        "Observed",
        Unit::Seconds,
        r#"max by (tokengauge_slo, instance) (tokengauge_slo_covered_seconds{<process>, tokengauge_slo=~"$slo"})"#,
    )
    .column(
        "Spent in",
        Unit::Seconds,
        r#"min by (tokengauge_slo, instance) (tokengauge_slo_exhaustion_seconds{<process>, tokengauge_slo=~"$slo"})"#,
    )
    .decimals(2)
    .empty("–");
    vec![budget, burn, by_process]
}
