//! Checks that dashboards can be read at a glance during an incident. Each rule is about one way in which a correct
//! query was displayed misleadingly.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokengauge_monitoring::dashboards::{self, faults};

/// A rule, which returns its findings.
type Check = fn(&Value) -> Vec<String>;

const RULES: &[(&str, Check)] = &[
    ("annotations are points and off by default", annotations),
    ("a missing value has a neutral colour", missing_values),
    ("an empty cell of a table makes no claim", empty_cells),
    ("a table starts with its worst row and colours bad values", worst_first),
    ("the text of a missing value names its cause", causes),
    ("a number of events is a whole number", whole_numbers),
    ("a panel names the variables that it ignores", ignored_variables),
    ("two axes have different units", axes),
    ("a state timeline names and colours its states", states),
    ("bars start at zero", bars),
    ("a percentage axis is not 10,000 % high", percentages),
    ("a logarithmic axis has tick labels", logarithms),
    ("exemplars are drawn once per panel", exemplars),
    ("a single value has a sparkline and no stale value", sparklines),
    ("a heat map of lengths ends at the longest prompts", lengths),
    ("amounts have their currency", currencies),
    ("units are known to readers", units),
    ("links to dashboards keep the time range and the model", links),
    ("links between dashboards take one menu", menus),
    ("the overview is one screen", one_screen),
    ("the title of a single value is not cut off", short_titles),
    ("the columns of a table fit into its width", narrow_columns),
    ("an error budget has the observed part of its window", windows),
    ("a comparison has one value per side", sides),
    ("a comparison shows better, worse and the confidence", ratios),
];

#[test]
fn every_dashboard_satisfies_every_rule() {
    let mut wrong = Vec::new();
    for dashboard in dashboards::all() {
        let json = dashboard.json();
        for (rule, check) in RULES {
            let found = check(&json).into_iter();
            wrong.extend(found.map(|what| format!("{}: {rule}: {what}", dashboard.uid)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the panels of one type. An empty type means all panels with queries.
fn panels<'a>(dashboard: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = faults::panels(dashboard).filter(|panel| panel["type"] != "row");
    all.filter(move |panel| kind.is_empty() || panel["type"] == kind)
}

fn title(panel: &Value) -> String {
    panel["title"].as_str().unwrap_or_default().to_owned()
}

/// Returns the titles of the panels of one type that do not satisfy `holds`.
fn failing(dashboard: &Value, kind: &str, holds: impl Fn(&Value) -> bool) -> Vec<String> {
    panels(dashboard, kind).filter(|panel| !holds(panel)).map(title).collect()
}

fn defaults<'a>(panel: &'a Value, key: &str) -> &'a Value {
    &panel["fieldConfig"]["defaults"][key]
}

/// Returns the properties with this id of all overrides.
fn overrides<'a>(panel: &'a Value, id: &'a str) -> impl Iterator<Item = &'a Value> {
    let properties = list(panel, "/fieldConfig/overrides").iter();
    let properties = properties.flat_map(|one| list(one, "/properties"));
    properties.filter(move |property| property["id"] == id).map(|property| &property["value"])
}

/// A condition that holds for several minutes is a point only if the query excludes the minutes after the first.
fn annotations(dashboard: &Value) -> Vec<String> {
    let own = list(dashboard, "/annotations/list").iter().filter(|one| one["builtIn"] != 1);
    let is_point = |expr: &str| expr.contains(" unless ") && expr.contains("offset 1m");
    own.filter(|one| one["enable"] != false || !one["expr"].as_str().is_some_and(is_point))
        .map(|one| one["name"].to_string())
        .collect()
}

fn missing_values(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "", |panel| {
        let is_logarithmic = defaults(panel, "custom")["scaleDistribution"]["type"] == "log";
        is_logarithmic
            || defaults(panel, "mappings").as_array().is_some_and(|mappings| {
                mappings.iter().any(|mapping| {
                    let result = &mapping["options"]["result"];
                    mapping["options"]["match"] == "null+nan" && result["color"] == "#808080"
                })
            })
    })
}

/// The cells of a row come from several queries. "No traffic" in one of them would contradict the others.
fn empty_cells(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "table", |panel| defaults(panel, "noValue") != "No traffic")
}

/// The rows of the comparison are different measures, and a table with one number per row has no bad values.
fn worst_first(dashboard: &Value) -> Vec<String> {
    if dashboard["uid"] == "tokengauge-compare" {
        return Vec::new();
    }
    failing(dashboard, "table", |panel| {
        let queries = faults::queries(panel);
        let is_number = queries.len() == 1 && !queries.iter().any(|query| query.contains("ALERTS"));
        let is_sorted = !list(panel, "/options/sortBy").is_empty();
        is_number || is_sorted && overrides(panel, "custom.cellOptions").next().is_some()
    })
}

/// Texts of missing values, and parts of the metrics whose absence has this cause. All queries of a panel need one.
const CAUSES: &[(&str, &[&str])] = &[
    ("Fewer than 200 calls to compare", &["tokengauge_workload_drift_ratio"]),
    ("Fewer than 3 busy replicas", &["instance:tokengauge_"]),
    ("No budget", &["tokengauge_budget_"]),
    ("No Envoy", &["tokengauge_self_envoy_"]),
    ("No engine metrics", &["tokengauge_backend_", "tokengauge_self_scrapes", "_implausible_"]),
    ("No events", &["slo:", "tokengauge_slo_"]),
    ("No exports", &["tokengauge_self_export_"]),
    ("No hardware price, or idle", &["tokengauge_cost_per_million_output_tokens"]),
    ("No limit", &["tokengauge_self_memory_limit_bytes"]),
    ("No limit reported", &["tokengauge_rate_limit_"]),
    ("No priced calls", &["tokengauge_cost_total"]),
    ("No stall", &["tokengauge_stall_duration_seconds"]),
    ("No stream", &["tokengauge_stream_max_idle_time_seconds"]),
    ("No usage reported", &["tokengauge_reported_tokens_total"]),
    ("Nothing to compare", &["tokengauge_token_mismatch_"]),
    ("Recording rules not loaded", &["slo:"]),
    ("Warm-up is off", &["tokengauge_backend_warmup_state"]),
];
/// Texts of missing values that name no cause.
const NO_CAUSE: &[&str] = &["–", "No traffic", "None", "Not reported"];

/// "No table of prices" on a counter of calls without a price would be wrong if every call has a price.
fn causes(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "", |panel| {
        let Some(text) = defaults(panel, "noValue").as_str() else { return true };
        let cause = CAUSES.iter().find(|(name, _)| *name == text);
        let names = |query: &&str| {
            cause.is_some_and(|(_, metrics)| metrics.iter().any(|metric| query.contains(metric)))
        };
        NO_CAUSE.contains(&text) || faults::queries(panel).iter().all(names)
    })
}

/// The function `increase` extrapolates, so a number of requests has decimals, such as 6088.568.
fn whole_numbers(dashboard: &Value) -> Vec<String> {
    let is_rounded = |query: &&str| {
        let counts = query.replace("or 0 * ", "");
        let mut counts = counts.split(" or ").filter(|part| part.contains("increase("));
        counts.all(|part| {
            part.contains('/') || part.contains("histogram_quantile") || part.contains("round(")
        })
    };
    failing(dashboard, "", |panel| {
        let is_number = defaults(panel, "unit") == "none" && panel["type"] != "heatmap";
        !is_number || faults::queries(panel).iter().all(is_rounded)
    })
}

fn ignored_variables(dashboard: &Value) -> Vec<String> {
    let has_model =
        list(dashboard, "/templating/list").iter().any(|variable| variable["name"] == "model");
    if !has_model {
        return Vec::new();
    }
    failing(dashboard, "", |panel| {
        let filtered = faults::queries(panel).iter().any(|query| query.contains("$model\""));
        filtered || title(panel).contains("all models") || title(panel).contains("all routes")
    })
}

fn axes(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "timeseries", |panel| {
        list(panel, "/fieldConfig/overrides").iter().all(|one| {
            let properties = list(one, "/properties");
            let is_right = properties.iter().any(|property| property["value"] == "right");
            let unit = properties.iter().find(|property| property["id"] == "unit");
            !is_right || unit.is_some_and(|unit| unit["value"] != *defaults(panel, "unit"))
        })
    })
}

/// Grafana cuts off long names of rows. In the colour mode "thresholds", the legend lists the thresholds instead of the states.
fn states(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "state-timeline", |panel| {
        let mappings = list(panel, "/fieldConfig/defaults/mappings").iter();
        let mut values = mappings.filter(|mapping| mapping["type"] == "value");
        let is_named = values.any(|mapping| {
            let states = mapping["options"].as_object();
            states.is_some_and(|states| states.values().all(|state| state["color"] != "text"))
        });
        let is_short = list(panel, "/targets")
            .iter()
            .all(|target| target["legendFormat"] != "{{alertname}} {{sloth_slo}}");
        is_named && is_short && defaults(panel, "color")["mode"] != "thresholds"
    })
}

fn bars(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "bargauge", |panel| defaults(panel, "min") == 0.0)
}

fn percentages(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "timeseries", |panel| {
        let soft = &defaults(panel, "custom")["axisSoftMax"];
        defaults(panel, "unit") != "percentunit"
            || defaults(panel, "max").is_number()
            || soft.as_f64().is_some_and(|top| top <= 0.05)
    })
}

/// A logarithmic axis has ticks without a value. Grafana would label them with the text of a missing value.
fn logarithms(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "timeseries", |panel| {
        let scale = &defaults(panel, "custom")["scaleDistribution"];
        let is_plain =
            defaults(panel, "noValue").is_null() && defaults(panel, "mappings") == &json!([]);
        scale["type"] != "log" || is_plain
    })
}

/// Exemplars are durations. All percentiles of a histogram have the same exemplars, and they hide a heat map.
fn exemplars(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "", |panel| {
        let targets = list(panel, "/targets").iter();
        let drawn = targets.filter(|target| target["exemplar"] == true).count();
        let has_axis = panel["type"] == "timeseries" && defaults(panel, "unit") == "s";
        drawn <= usize::from(has_axis)
    })
}

/// A range of results omits absent values. The last value before a gap would look current.
fn sparklines(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "stat", |panel| {
        let targets = list(panel, "/targets");
        let [target] = targets else { return true };
        if target["legendFormat"] != "__auto" {
            return true;
        }
        let gaps = target["expr"].as_str().is_some_and(|query| query.contains(" or vector("));
        panel["options"]["graphMode"] == "area"
            && target["range"] == true
            && gaps
            && panel["options"]["reduceOptions"]["calcs"] == json!(["last"])
    })
}

fn lengths(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "heatmap", |panel| {
        let bounded = |query: &&str| query.contains("le=~\"");
        defaults(panel, "unit") != "count:tok" || faults::queries(panel).iter().all(bounded)
    })
}

fn currencies(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "", |panel| {
        let targets = list(panel, "/targets").iter();
        let legends: BTreeSet<_> = targets.filter_map(|one| one["legendFormat"].as_str()).collect();
        let is_amount = legends.iter().any(|legend| legend.contains("tokengauge_currency"));
        !is_amount || overrides(panel, "unit").any(|unit| unit == "currencyUSD")
    })
}

fn units(dashboard: &Value) -> Vec<String> {
    // Grafana displays these units as "c/m" and "c/s".
    let unknown = |unit: &Value| unit == "cpm" || unit == "cps";
    // Grafana adds a space before a suffix.
    let is_wide = |unit: &Value| unit.as_str().is_some_and(|unit| unit.starts_with("suffix: "));
    let unknown = |unit: &Value| unknown(unit) || is_wide(unit);
    failing(dashboard, "", |panel| {
        !unknown(defaults(panel, "unit")) && !overrides(panel, "unit").any(unknown)
    })
}

/// A link from the overview leads to the causes of the selected model, not of all models.
fn links(dashboard: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for panel in panels(dashboard, "") {
        let own = list(panel, "/fieldConfig/defaults/links").iter();
        let all = own.chain(overrides(panel, "links").flat_map(|links| list(links, "")));
        let urls: Vec<&str> = all.filter_map(|link| link["url"].as_str()).collect();
        let keeps = |url: &&str| {
            let kept = url.contains("${__all_variables}") || url.contains("model");
            !url.starts_with("/d/") || url.contains("${__url_time_range}") && kept
        };
        if !urls.iter().all(keeps) {
            wrong.push(format!("{}: {urls:?}", title(panel)));
        }
        let is_value = panel["type"] == "stat" || panel["type"] == "table";
        if dashboard["uid"] == "tokengauge-overview" && is_value && urls.is_empty() {
            wrong.push(format!("{}: no link", title(panel)));
        }
    }
    wrong
}

/// One link per dashboard takes a line of the screen, and three on a phone.
fn menus(dashboard: &Value) -> Vec<String> {
    let wide = list(dashboard, "/links").iter().filter(|link| link["asDropdown"] != true);
    wide.map(Value::to_string).collect()
}

/// At 1600 × 900, a screen has 20 rows below Grafana's menus and one line of variables: a row is 38 pixels high, and the
/// first one starts at 138.
fn one_screen(dashboard: &Value) -> Vec<String> {
    const ROWS: u64 = 20;
    if dashboard["uid"] != "tokengauge-overview" {
        return Vec::new();
    }
    let variables = list(dashboard, "/templating/list").iter();
    let visible: Vec<_> = variables.filter(|one| one["hide"] == 0).map(title_of_variable).collect();
    let open = list(dashboard, "/panels").iter().filter(|panel| panel["type"] != "row");
    let bottom = open.map(|panel| {
        let place = &panel["gridPos"];
        place["y"].as_u64().unwrap_or_default() + place["h"].as_u64().unwrap_or_default()
    });
    let bottom = bottom.max().unwrap_or_default();
    let many = (visible.len() > 4).then(|| format!("variables: {visible:?}"));
    let long = (bottom > ROWS).then(|| format!("{bottom} rows"));
    many.into_iter().chain(long).collect()
}

/// Grafana cuts off long titles. At a width of 1600 pixels, four columns have room for about 31 letters.
fn short_titles(dashboard: &Value) -> Vec<String> {
    failing(dashboard, "stat", |panel| {
        let letters = title(panel).chars().count() as u64;
        letters <= panel["gridPos"]["w"].as_u64().unwrap_or_default() * 31 / 4
    })
}

/// By default, a column of a table has at least 150 pixels. Viewers do not see columns that need scrolling.
fn narrow_columns(dashboard: &Value) -> Vec<String> {
    const COLUMN_OF_DASHBOARD: u64 = 65;
    failing(dashboard, "table", |panel| {
        let narrowest = defaults(panel, "custom")["minWidth"].as_u64().unwrap_or(150);
        let shown = panel["transformations"][1]["options"]["renameByName"].as_object();
        let shown = shown.map_or(0, |titles| titles.len() as u64);
        narrowest * shown
            <= panel["gridPos"]["w"].as_u64().unwrap_or_default() * COLUMN_OF_DASHBOARD
    })
}

fn title_of_variable(variable: &Value) -> String {
    variable["name"].as_str().unwrap_or_default().to_owned()
}

/// After 20 minutes, a budget of 30 days is that of few requests.
fn windows(dashboard: &Value) -> Vec<String> {
    let has = |name: &str| panels(dashboard, "stat").any(|panel| title(panel).contains(name));
    let lacks = has("Error budget remaining") && !has("Window observed");
    lacks.then(|| "no panel of the observed window".to_owned()).into_iter().collect()
}

/// With "All" on both sides, every ratio is 1.
fn sides(dashboard: &Value) -> Vec<String> {
    let variables = list(dashboard, "/templating/list").iter();
    let sides = variables
        .filter(|one| ["_a", "_b"].iter().any(|side| title_of_variable(one).ends_with(side)));
    // Without sorting, the values have the order of the query: by number of requests.
    sides
        .filter(|one| one["multi"] == true || one["includeAll"] == true || one["sort"] != 0)
        .map(title_of_variable)
        .collect()
}

fn ratios(dashboard: &Value) -> Vec<String> {
    if dashboard["uid"] != "tokengauge-compare" {
        return Vec::new();
    }
    let mut wrong = failing(dashboard, "stat", |panel| {
        let steps = list(panel, "/fieldConfig/defaults/thresholds/steps");
        let is_single = list(panel, "/targets").len() == 1;
        !is_single || !title(panel).contains("B ÷ A") || steps.len() == 3
    });
    let titles: Vec<String> = panels(dashboard, "stat").map(title).collect();
    for name in ["TTFT p50, B ÷ A", "TTFT p95, B ÷ A", "TTFT p95, B ÷ A, confidence"] {
        if !titles.iter().any(|title| title == name) {
            wrong.push(format!("no panel {name}"));
        }
    }
    wrong
}
