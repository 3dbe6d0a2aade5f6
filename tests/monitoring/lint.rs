//! Checks every dashboard against the rules of Grafana's dashboard-linter.
//!
//! The rules of dashboard-linter v0.2.0 are implemented here again, because the linter cannot be installed where these
//! tests run: the module proxy does not serve one of its Grafana modules. The same applies to v0.1.0. Two rules are
//! stricter: every panel with a query must use the templated data source and must have a unit, for all types of panels.
//! One rule is less strict: custom units (`count:tok/s`) are allowed.

use std::collections::BTreeSet;

use promql_parser::label::MatchOp;
use promql_parser::parser::{self, Expr};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::{Value, json};
use tokengauge_monitoring::dashboards::{self, faults};

use super::promql::{selectors, substituted};

/// A lint rule, which returns its findings.
type Check = fn(&Value) -> Vec<String>;

const RULES: &[(&str, Check)] = &[
    ("template-datasource-rule", template_datasource),
    ("template-job-rule", |dashboard| template(dashboard, "job")),
    ("template-instance-rule", |dashboard| template(dashboard, "instance")),
    ("template-label-promql-rule", template_label_promql),
    ("template-on-time-change-reload-rule", template_reload),
    ("panel-datasource-rule", panel_datasource),
    ("panel-title-description-rule", panel_title_description),
    ("panel-units-rule", panel_units),
    ("panel-no-targets-rule", panel_no_targets),
    ("target-promql-rule", target_promql),
    ("target-rate-interval-rule", target_rate_interval),
    ("target-job-rule", |dashboard| target_matcher(dashboard, "job")),
    ("target-instance-rule", |dashboard| target_matcher(dashboard, "instance")),
    ("target-counter-agg-rule", target_counter_agg),
    ("uneditable-dashboard-rule", uneditable),
];

/// A series to which a rule does not apply, and the reason.
struct Exclusion {
    rule: &'static str,
    /// Prefix of the series name.
    series: &'static str,
    #[expect(dead_code, reason = "for readability")]
    reason: &'static str,
}

const EXCLUSIONS: &[Exclusion] = &[
    Exclusion {
        rule: "target-instance-rule",
        series: "ALERTS",
        reason: "an alert is about a service; its rule leaves out the instance",
    },
    Exclusion {
        rule: "target-instance-rule",
        series: "slo:",
        reason: "a budget is the service's; rules add up its instances",
    },
    Exclusion {
        rule: "target-job-rule",
        series: "ALERTS",
        reason: "the matcher has an empty alternative, for alerts about all jobs",
    },
];

#[test]
fn every_dashboard_satisfies_every_rule() {
    let mut wrong = Vec::new();
    for dashboard in dashboards::all() {
        let json = dashboard.json();
        for (rule, check) in RULES {
            let told = check(&json);
            wrong.extend(told.into_iter().map(|what| format!("{}: {rule}: {what}", dashboard.uid)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// An exclusion that matches nothing would hide later findings.
#[test]
fn every_exclusion_is_needed() {
    let asked: BTreeSet<String> = dashboards::all()
        .iter()
        .flat_map(|dashboard| targets(&dashboard.json()))
        .flat_map(|(_, query)| selectors(&query))
        .filter_map(|selector| selector.name)
        .collect();
    for exclusion in EXCLUSIONS {
        assert!(
            asked.iter().any(|name| name.starts_with(exclusion.series)),
            "{}",
            exclusion.series
        );
    }
}

fn excluded(rule: &str, series: &str) -> bool {
    EXCLUSIONS
        .iter()
        .any(|exclusion| exclusion.rule == rule && series.starts_with(exclusion.series))
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn variables(dashboard: &Value) -> &[Value] {
    list(dashboard, "/templating/list")
}

/// Returns the panels with queries. Rows and text panels have none.
fn asking(dashboard: &Value) -> impl Iterator<Item = &Value> {
    faults::panels(dashboard).filter(|panel| panel["type"] != "row" && panel["type"] != "text")
}

/// Returns each query with the title of its panel.
fn targets(dashboard: &Value) -> Vec<(String, String)> {
    asking(dashboard)
        .flat_map(|panel| {
            let queries = faults::queries(panel);
            queries.into_iter().map(|query| (panel["title"].to_string(), query.to_owned()))
        })
        .collect()
}

fn is_templated(datasource: &Value) -> bool {
    ["$datasource", "${datasource}"].iter().any(|uid| datasource["uid"] == *uid)
}

fn template_datasource(dashboard: &Value) -> Vec<String> {
    let all: Vec<_> =
        variables(dashboard).iter().filter(|variable| variable["type"] == "datasource").collect();
    let right = |variable: &Value| {
        variable["name"] == "datasource"
            && variable["label"] == "Data source"
            && variable["query"] == "prometheus"
    };
    if all.len() == 1 && right(all[0]) {
        return Vec::new();
    }
    vec![format!("not one templated data source: {all:?}")]
}

fn template(dashboard: &Value, name: &str) -> Vec<String> {
    let Some(variable) = variables(dashboard).iter().find(|variable| variable["name"] == name)
    else {
        return vec![format!("no variable {name}")];
    };
    let title = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
    let mut wrong = Vec::new();
    let mut hold = |holds: bool, what: &str| {
        if !holds {
            wrong.push(format!("{name}: {what}: {variable}"));
        }
    };
    hold(is_templated(&variable["datasource"]), "the data source is not templated");
    hold(variable["type"] == "query", "not a query variable");
    hold(variable["label"] == *title, "the label is not the name");
    hold(variable["multi"] == true, "not a multi-value variable");
    hold(variable["allValue"] == ".+", "allValue is not .+");
    wrong
}

fn template_label_promql(dashboard: &Value) -> Vec<String> {
    const FUNCTIONS: &[&str] = &["label_names", "label_values", "metrics", "query_result"];
    let wrong = |variable: &&Value| {
        let query = variable["query"].as_str().unwrap_or_default();
        let Some((function, rest)) = query.split_once('(') else {
            return true;
        };
        let Some(inner) = rest.strip_suffix(')') else {
            return true;
        };
        let selector = if function == "label_values" {
            inner.rsplit_once(',').map_or(inner, |(selector, _)| selector)
        } else {
            inner
        };
        !FUNCTIONS.contains(&function) || parser::parse(&substituted(selector)).is_err()
    };
    let queries = variables(dashboard).iter().filter(|variable| variable["type"] == "query");
    queries.filter(wrong).map(|variable| variable["query"].to_string()).collect()
}

fn template_reload(dashboard: &Value) -> Vec<String> {
    let queries = variables(dashboard).iter().filter(|variable| variable["type"] == "query");
    queries
        .filter(|variable| variable["refresh"] != 2)
        .map(|variable| variable["name"].to_string())
        .collect()
}

fn panel_datasource(dashboard: &Value) -> Vec<String> {
    let wrong = |panel: &&Value| {
        !is_templated(&panel["datasource"])
            || !list(panel, "/targets").iter().all(|target| is_templated(&target["datasource"]))
    };
    asking(dashboard).filter(wrong).map(|panel| panel["title"].to_string()).collect()
}

fn panel_title_description(dashboard: &Value) -> Vec<String> {
    let has = |panel: &Value, field: &str| {
        panel[field].as_str().is_some_and(|text| !text.trim().is_empty())
    };
    faults::panels(dashboard)
        .filter(|panel| panel["type"] != "row")
        .filter(|panel| !has(panel, "title") || !has(panel, "description"))
        .map(|panel| format!("{}: title or description is missing", panel["title"]))
        .collect()
}

fn panel_units(dashboard: &Value) -> Vec<String> {
    const KNOWN: &[&str] = &[
        "none",
        "short",
        "s",
        "bytes",
        "binBps",
        "percentunit",
        "reqps",
        "string",
        "dateTimeFromNow",
    ];
    let valid = |unit: &str| {
        let currency = unit.strip_prefix("currency").is_some_and(|code| code.len() == 3);
        let custom = unit.split_once(':').is_some_and(|(how, what)| {
            ["count", "suffix"].contains(&how) && !what.trim().is_empty()
        });
        KNOWN.contains(&unit) || currency || custom
    };
    let wrong = |panel: &Value| {
        let unit = panel
            .pointer("/fieldConfig/defaults/unit")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let overrides = list(panel, "/fieldConfig/overrides")
            .iter()
            .flat_map(|one| list(one, "/properties"))
            .filter(|property| property["id"] == "unit")
            .map(|property| property["value"].as_str().unwrap_or_default().to_owned());
        std::iter::once(unit).chain(overrides).find(|unit| !valid(unit))
    };
    asking(dashboard)
        .filter_map(|panel| Some(format!("{}: unit {:?}", panel["title"], wrong(panel)?)))
        .collect()
}

fn panel_no_targets(dashboard: &Value) -> Vec<String> {
    asking(dashboard)
        .filter(|panel| faults::queries(panel).is_empty())
        .map(|panel| panel["title"].to_string())
        .collect()
}

fn target_promql(dashboard: &Value) -> Vec<String> {
    let wrong = |query: &str| parser::parse(&substituted(query)).err();
    targets(dashboard)
        .into_iter()
        .filter_map(|(panel, query)| Some(format!("{panel}: {}", wrong(&query)?)))
        .collect()
}

/// Rates must use the range that Grafana computes from the step and the scrape interval. A fixed range can skip samples
/// or contain too few of them.
fn target_rate_interval(dashboard: &Value) -> Vec<String> {
    let fixed = |query: &str| {
        let magic = query.replace("$__rate_interval", "11m11s");
        calls(&magic).into_iter().any(|(function, range)| {
            ["rate", "irate"].contains(&function.as_str())
                && range.is_some_and(|range| range != 671)
        })
    };
    failing(dashboard, fixed)
}

/// The value of a counter depends on the start of the process. Only its increase describes the displayed time range.
fn target_counter_agg(dashboard: &Value) -> Vec<String> {
    let bare = |query: &str| {
        let counters = |selectors: Vec<String>| {
            selectors.into_iter().filter(|name| name.ends_with("_total")).count()
        };
        let all =
            counters(selectors(query).into_iter().filter_map(|selector| selector.name).collect());
        let counted = calls(query)
            .into_iter()
            .filter(|(function, range)| {
                ["rate", "irate", "increase"].contains(&function.as_str()) && range.is_some()
            })
            .count();
        // Every range that is an argument of one of the three functions is one selector.
        all > 0 && counted < all
    };
    failing(dashboard, bare)
}

fn failing(dashboard: &Value, fails: impl Fn(&str) -> bool) -> Vec<String> {
    let targets = targets(dashboard).into_iter();
    targets
        .filter(|(_, query)| fails(query))
        .map(|(panel, query)| format!("{panel}: {query}"))
        .collect()
}

/// Returns each called function, with the range in seconds if the argument is a range of a series.
fn calls(query: &str) -> Vec<(String, Option<u64>)> {
    struct Found(Vec<(String, Option<u64>)>);
    impl ExprVisitor for Found {
        type Error = ();

        fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
            if let Expr::Call(call) = expression {
                let range = call.args.args.iter().find_map(|argument| match argument.as_ref() {
                    Expr::MatrixSelector(matrix) => Some(matrix.range.as_secs()),
                    _ => None,
                });
                self.0.push((call.func.name.to_owned(), range));
            }
            Ok(true)
        }
    }
    let mut found = Found(Vec::new());
    if let Ok(expression) = parser::parse(&substituted(query)) {
        walk_expr(&mut found, &expression).unwrap();
    }
    found.0
}

fn target_matcher(dashboard: &Value, label: &str) -> Vec<String> {
    let rule = format!("target-{label}-rule");
    let chosen = format!("${label}");
    let mut wrong = Vec::new();
    for (panel, query) in targets(dashboard) {
        for selector in selectors(&query) {
            let name = selector.name.clone().unwrap_or_default();
            let matched = selector.matchers.matchers.iter().any(|matcher| {
                matcher.name == label
                    && matches!(matcher.op, MatchOp::Re(_))
                    && matcher.value == chosen
            });
            if !matched && !excluded(&rule, &name) {
                wrong.push(format!("{panel}: {selector}"));
            }
        }
    }
    wrong
}

fn uneditable(dashboard: &Value) -> Vec<String> {
    if dashboard["editable"] == false { Vec::new() } else { vec!["it is editable".to_owned()] }
}

/// Returns a dashboard that passes every rule. Each test breaks one rule in it.
fn sample() -> Value {
    let variable = |name: &str, label: &str| {
        json!({
            "type": "query", "name": name, "label": label, "multi": true, "allValue": ".+", "refresh": 2,
            "datasource": { "uid": "${datasource}" }, "query": format!("label_values(up{{job=~\"$job\"}}, {name})"),
        })
    };
    json!({
        "editable": false,
        "templating": { "list": [
            { "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus" },
            variable("job", "Job"),
            variable("instance", "Instance"),
        ] },
        "panels": [{ "title": "R", "type": "row", "panels": [{
            "title": "T", "description": "d", "type": "stat",
            "datasource": { "uid": "${datasource}" },
            "fieldConfig": { "defaults": { "unit": "s" } },
            "targets": [{
                "datasource": { "uid": "${datasource}" },
                "expr": "rate(x_total{job=~\"$job\", instance=~\"$instance\"}[$__rate_interval])",
            }],
        }] }],
    })
}

#[test]
fn a_valid_sample_satisfies_every_rule() {
    for (rule, check) in RULES {
        assert_eq!(check(&sample()), [""; 0], "{rule}");
    }
}

#[test]
fn each_rule_fails_where_it_is_broken() {
    const PANEL: &str = "/panels/0/panels/0";
    let bare = |query: &str| json!(query);
    let broken = [
        ("template-datasource-rule", "/templating/list/0/name", json!("ds")),
        ("template-job-rule", "/templating/list/1/allValue", json!(".*")),
        ("template-job-rule", "/templating/list/1/name", json!("service")),
        ("template-instance-rule", "/templating/list/2/multi", json!(false)),
        ("template-label-promql-rule", "/templating/list/1/query", json!("label_values(up{, job)")),
        ("template-label-promql-rule", "/templating/list/1/query", json!("labels(up, job)")),
        ("template-on-time-change-reload-rule", "/templating/list/2/refresh", json!(1)),
        ("panel-datasource-rule", "/panels/0/panels/0/datasource/uid", json!("abc")),
        ("panel-datasource-rule", "/panels/0/panels/0/targets/0/datasource/uid", json!("abc")),
        ("panel-title-description-rule", "/panels/0/panels/0/title", json!("")),
        ("panel-title-description-rule", "/panels/0/panels/0/description", json!(null)),
        ("panel-units-rule", "/panels/0/panels/0/fieldConfig/defaults/unit", json!("furlongs")),
        ("panel-units-rule", "/panels/0/panels/0/fieldConfig/defaults", json!({})),
        ("panel-no-targets-rule", "/panels/0/panels/0/targets", json!([])),
        ("target-promql-rule", "/panels/0/panels/0/targets/0/expr", bare("sum(")),
        (
            "target-rate-interval-rule",
            "/panels/0/panels/0/targets/0/expr",
            bare("rate(x_total{job=~\"$job\", instance=~\"$instance\"}[5m])"),
        ),
        (
            "target-job-rule",
            "/panels/0/panels/0/targets/0/expr",
            bare("y{instance=~\"$instance\"}"),
        ),
        (
            "target-job-rule",
            "/panels/0/panels/0/targets/0/expr",
            bare("y{job=\"$job\", instance=~\"$instance\"}"),
        ),
        ("target-instance-rule", "/panels/0/panels/0/targets/0/expr", bare("y{job=~\"$job\"}")),
        (
            "target-counter-agg-rule",
            "/panels/0/panels/0/targets/0/expr",
            bare("sum(x_total{job=~\"$job\", instance=~\"$instance\"})"),
        ),
        (
            "target-counter-agg-rule",
            "/panels/0/panels/0/targets/0/expr",
            bare(
                "max_over_time(x_total{job=~\"$job\", instance=~\"$instance\"}[$__rate_interval])",
            ),
        ),
        ("uneditable-dashboard-rule", "/editable", json!(true)),
    ];
    let tried: BTreeSet<&str> = broken.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(tried.len(), RULES.len(), "a rule without a broken sample");
    for (rule, path, value) in broken {
        let mut dashboard = sample();
        assert!(dashboard.pointer(PANEL).is_some());
        *dashboard.pointer_mut(path).unwrap() = value;
        let (_, check) = RULES.iter().find(|(name, _)| *name == rule).unwrap();
        assert_eq!(check(&dashboard).len(), 1, "{rule}: {path}");
    }
}
