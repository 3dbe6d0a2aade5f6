//! Tests alert rules. Each rule must use only exported series, and a copy for a failover test may differ only in its
//! durations. Each alert must have a test in which it fires and a test in which it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use promql_parser::parser::token::T_LOR;
use promql_parser::parser::{self, Expr, Offset};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;
use tokengauge::config;
use tokengauge_monitoring::alerts::rule::{Alert, Rule, Severity};
use tokengauge_monitoring::alerts::span::{Divisor, Span};
use tokengauge_monitoring::alerts::values::Values;
use tokengauge_monitoring::alerts::{Rules, divided, files, is_generated, rules};

use crate::promql::{Checker, Labels, selectors};

#[test]
fn every_rule_selects_exported_or_recorded_series() {
    let (_, wrong) = labels_of_alerts();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the possible labels of each alert, and the faults of the rules.
fn labels_of_alerts() -> (BTreeMap<String, Labels>, Vec<String>) {
    let all = rules(&values());
    let mut checker = Checker::new().knows("up", &["job", "instance", "cluster", "namespace"]);
    let mut alerts = BTreeMap::new();
    // Files are ordered by dependency. Within a file, a group can depend on any other group.
    let mut left: Vec<&Rule> = all.iter().flat_map(each).collect();
    while let Some(at) = left.iter().position(|rule| checker.rule(rule.expr()).1.is_empty()) {
        let rule = left.remove(at);
        let labels = checker.rule(rule.expr()).0.unwrap();
        match rule {
            Rule::Record(recording) => {
                let own = recording.labels.keys().map(String::as_str);
                let labels: Vec<&str> = labels.iter().map(String::as_str).chain(own).collect();
                checker = checker.knows(&recording.record, &labels);
            }
            Rule::Alert(alert) => {
                alerts.insert(alert.name.clone(), labels);
            }
        }
    }
    let wrong = left.iter().flat_map(|rule| checker.rule(rule.expr()).1).collect();
    (alerts, wrong)
}

/// If a label is missing on one side, it never equals the label of the other side, and the inhibition does not apply.
#[test]
fn inhibition_uses_labels_that_both_alerts_have() {
    let (alerts, _) = labels_of_alerts();
    let text = fs::read_to_string(root().join("alerts/alertmanager.yaml")).unwrap();
    let read: Value = serde_saphyr::from_str(&text).unwrap();
    let silencing = read["inhibit_rules"].as_array().unwrap();
    assert!(silencing.len() > 3);
    for rule in silencing {
        let [sources, targets] = ["source_matchers", "target_matchers"].map(|side| {
            let name = rule[side].as_array().unwrap().iter();
            let name = name.filter_map(Value::as_str).find_map(named).unwrap();
            let named: Vec<_> = alerts.iter().filter(|(it, _)| name.is_match(it)).collect();
            assert!(!named.is_empty(), "no alert has the name {name}");
            named
        });
        for equal in rule["equal"].as_array().unwrap() {
            let equal = equal.as_str().unwrap();
            for (name, labels) in sources.iter().chain(&targets) {
                assert!(labels.contains(equal), "{name} has no {equal}");
            }
        }
    }
}

/// In every outage of `docs/reference/outages.md`, at most one alert pages after inhibition. Alerts on SLOs page in the
/// same group.
#[test]
fn an_outage_has_at_most_one_page() {
    let read = |file: &str| -> Value {
        serde_saphyr::from_str(&fs::read_to_string(root().join(file)).unwrap()).unwrap()
    };
    let manager = read("alerts/alertmanager.yaml");
    let routes = manager["route"]["routes"].as_array().unwrap();
    let page = routes.iter().find(|route| route["receiver"] == "page").unwrap();
    let groups = page["group_by"].as_array().unwrap();
    assert!(!groups.is_empty() && groups.iter().all(|label| label != "alertname"), "{groups:?}");
    let pages: BTreeSet<String> = alerts()
        .into_iter()
        .filter(|alert| matches!(alert.severity, Severity::Critical))
        .map(|alert| alert.name)
        .collect();
    let names = |rule: &Value, side: &str| {
        let matchers = rule[side].as_array().unwrap().iter();
        matchers.filter_map(Value::as_str).find_map(named).unwrap()
    };
    let (mut outages, mut muted) = (0, 0);
    for test in read("alerts/tests/outages.yaml")["tests"].as_array().unwrap() {
        let samples = test["promql_expr_test"][0]["exp_samples"].as_array().unwrap();
        let firing: Vec<&str> = samples
            .iter()
            .map(|sample| sample["labels"].as_str().unwrap().split('"').nth(1).unwrap())
            .collect();
        let is_muted = |alert: &str| {
            manager["inhibit_rules"].as_array().unwrap().iter().any(|rule| {
                names(rule, "target_matchers").is_match(alert)
                    && firing.iter().any(|other| names(rule, "source_matchers").is_match(other))
            })
        };
        let paging = firing.iter().copied().filter(|alert| pages.contains(*alert));
        let (silent, heard): (Vec<&str>, Vec<&str>) = paging.partition(|alert| is_muted(alert));
        assert!(heard.len() <= 1, "{}: {heard:?}", test["name"]);
        outages += usize::from(!heard.is_empty());
        muted += silent.len();
    }
    assert!(outages > 20 && muted > 20, "{outages} outages page, {muted} alerts are muted");
}

/// A notification must be sufficient to see what is wrong: it has the model, the route and the provider as far as the
/// alert has these labels, the observed value, and the value that was expected.
#[test]
fn every_notification_names_the_affected_calls_and_the_observed_and_expected_values() {
    let (labels, _) = labels_of_alerts();
    for alert in alerts() {
        let text = format!("{} {}", alert.summary, alert.description);
        for label in ["gen_ai_request_model", "tokengauge_route", "gen_ai_provider_name"] {
            let placeholder = format!("$labels.{label} ");
            let is_named = text.contains(&placeholder);
            assert_eq!(is_named, labels[&alert.name].contains(label), "{}: {label}", alert.name);
        }
        if alert.name == "TokengaugeTelemetryAbsent" {
            // Nothing is observed. The expected telemetry is in the name.
            continue;
        }
        assert!(text.contains("$value "), "{} has no observed value", alert.name);
        let expected = thresholds(&parser::parse(&alert.expr).unwrap());
        assert!(!expected.is_empty(), "{}: {}", alert.name, alert.expr);
        for threshold in expected {
            let is_named = has_number(&alert.description, threshold);
            assert!(is_named, "{} does not name {threshold}: {text}", alert.name);
        }
    }
}

/// Returns the numbers that the value of a firing alert is compared with. Other conditions, such as a minimum of
/// traffic, follow after `and`.
fn thresholds(expr: &Expr) -> Vec<f64> {
    match expr {
        Expr::Paren(paren) => thresholds(&paren.expr),
        Expr::Binary(binary) if binary.op.id() == T_LOR => {
            [thresholds(&binary.lhs), thresholds(&binary.rhs)].concat()
        }
        Expr::Binary(binary) if binary.op.is_comparison_operator() => numbers(&binary.rhs),
        Expr::Binary(binary) => thresholds(&binary.lhs),
        Expr::Aggregate(aggregate) => thresholds(&aggregate.expr),
        Expr::Unary(unary) => thresholds(&unary.expr),
        _ => Vec::new(),
    }
}

/// Returns the numbers other than 0 in an expression.
fn numbers(expr: &Expr) -> Vec<f64> {
    struct Numbers(Vec<f64>);
    impl ExprVisitor for Numbers {
        type Error = ();

        fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
            if let Expr::NumberLiteral(number) = expression
                && number.val != 0.0
            {
                self.0.push(number.val);
            }
            Ok(true)
        }
    }
    let mut numbers = Numbers(Vec::new());
    walk_expr(&mut numbers, expr).unwrap();
    numbers.0
}

/// Returns whether a text has a number, as such or in per cent. Durations in minutes are no such number.
fn has_number(text: &str, number: f64) -> bool {
    let numbers = regex::Regex::new(r"(\d+(?:\.\d+)?)( %| min\b| h\b| d\b)?").unwrap();
    numbers.captures_iter(text).any(|found| {
        let value: f64 = found[1].parse().unwrap();
        match found.get(2).map(|unit| unit.as_str()) {
            None => (value - number).abs() < 1e-9,
            Some(" %") => (value / 100.0 - number).abs() < 1e-9,
            Some(_) => false,
        }
    })
}

/// Returns a pattern for the alerts that a matcher on `alertname` selects.
fn named(matcher: &str) -> Option<regex::Regex> {
    let name = matcher.strip_prefix("alertname")?;
    let name = name.trim_start_matches(['=', '~']).trim_matches('"');
    Some(regex::Regex::new(&format!("^(?:{name})$")).unwrap())
}

/// A placeholder that was not replaced would parse as a comparison.
#[test]
fn no_placeholder_is_left_in_a_rule() {
    let left = regex::Regex::new("<[a-z_]+>").unwrap();
    for file in files(&rules(&values()), &values().links).iter() {
        assert_eq!(left.find(file.1).map(|found| found.as_str()), None, "{}", file.0);
    }
}

#[test]
fn every_exported_metric_has_the_selector() {
    let mut values = values();
    values.selector = "team=\"a\"".parse().unwrap();
    let mut seen = 0;
    for rule in rules(&values).iter().flat_map(each) {
        for selector in selectors(rule.expr()) {
            let name = selector.name.clone().unwrap();
            if name.contains(':') {
                continue;
            }
            seen += 1;
            let has = |matcher: &promql_parser::label::Matcher| matcher.name == "team";
            assert!(selector.matchers.matchers.iter().any(has), "{name}: {}", rule.expr());
        }
    }
    assert!(seen > 10);
}

/// No rule selects a bucket by its bound, because stores write bounds differently.
#[test]
fn no_rule_selects_a_bucket_boundary() {
    for rule in rules(&values()).iter().flat_map(each) {
        for selector in selectors(rule.expr()) {
            let has = |matcher: &promql_parser::label::Matcher| matcher.name == "le";
            assert!(!selector.matchers.matchers.iter().any(has), "{}", rule.expr());
        }
    }
}

#[test]
fn divided_rules_differ_only_in_their_durations() {
    for by in [60, 7] {
        let by = Divisor(NonZeroU32::new(by).unwrap());
        let original = rules(&values());
        let copy = divided(rules(&values()), by);
        let of = |times: Vec<Span>| -> Vec<Span> {
            times.into_iter().map(|time| by.divide(time)).collect()
        };
        assert_eq!(original.len(), copy.len());
        for (one, other) in original.iter().zip(&copy) {
            let (one, other) = (normal(one), normal(other));
            assert_eq!(one.text, other.text);
            assert_eq!(of(one.durations), other.durations, "{}", one.text);
        }
    }
}

/// Rules without durations, and the durations in order of appearance.
struct Normal {
    text: String,
    durations: Vec<Span>,
}

fn normal(rules: &Rules) -> Normal {
    let mut durations = Vec::new();
    let mut text = rules.name.to_owned();
    for group in &rules.groups {
        text.push_str(&format!("\n{}", group.name));
        durations.push(group.interval);
        for rule in &group.rules {
            let (expr, inside) = without_durations(rule.expr());
            durations.extend(inside);
            match rule {
                Rule::Record(recording) => {
                    text.push_str(&format!("\n{} {:?} {expr}", recording.record, recording.labels));
                }
                Rule::Alert(alert) => {
                    durations.extend(alert.pending_for.into_iter().chain(alert.keep_firing_for));
                    let has = (alert.pending_for.is_some(), alert.keep_firing_for.is_some());
                    let Alert { name, severity, summary, description, dashboard, .. } = alert;
                    text.push_str(&format!(
                        "\n{name} {severity:?} {summary} {description} {dashboard} {has:?} {expr}"
                    ));
                }
            }
        }
    }
    Normal { text, durations }
}

/// Returns the expression as formatted by the parser, with each duration replaced by one hour, and the original
/// durations.
fn without_durations(expr: &str) -> (String, Vec<Span>) {
    struct Found(Vec<Duration>);
    impl Found {
        fn offset(&mut self, offset: Option<&Offset>) {
            match offset {
                Some(Offset::Pos(time) | Offset::Neg(time)) => self.0.push(*time),
                None => {}
            }
        }
    }
    impl ExprVisitor for Found {
        type Error = ();

        fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
            match expression {
                Expr::MatrixSelector(matrix) => {
                    self.0.push(matrix.range);
                    self.offset(matrix.vs.offset.as_ref());
                }
                Expr::VectorSelector(selector) => self.offset(selector.offset.as_ref()),
                Expr::Subquery(subquery) => {
                    self.0.push(subquery.range);
                    self.0.extend(subquery.step);
                    self.offset(subquery.offset.as_ref());
                }
                _ => {}
            }
            Ok(true)
        }
    }
    let parsed = parser::parse(expr).unwrap();
    let mut found = Found(Vec::new());
    walk_expr(&mut found, &parsed).unwrap();
    let spans = found.0.iter().map(|time| format!("{}ms", time.as_millis()).parse().unwrap());
    (blanked(&parsed), spans.collect())
}

/// Returns the debug output of the expression tree, which contains every field. The replaced durations are its only
/// values of the type `Duration`.
fn blanked(expression: &Expr) -> String {
    let mut expression = expression.clone();
    blank(&mut expression);
    format!("{expression:?}")
}

/// Replaces each duration with one hour.
fn blank(expression: &mut Expr) {
    const HOUR: Duration = Duration::from_secs(3600);
    let offset = |offset: &mut Option<Offset>| match offset {
        Some(Offset::Pos(time) | Offset::Neg(time)) => *time = HOUR,
        None => {}
    };
    match expression {
        Expr::Aggregate(aggregate) => {
            blank(&mut aggregate.expr);
            if let Some(param) = &mut aggregate.param {
                blank(param);
            }
        }
        Expr::Unary(unary) => blank(&mut unary.expr),
        Expr::Binary(binary) => {
            blank(&mut binary.lhs);
            blank(&mut binary.rhs);
        }
        Expr::Paren(paren) => blank(&mut paren.expr),
        Expr::Subquery(subquery) => {
            subquery.range = HOUR;
            subquery.step = subquery.step.map(|_| HOUR);
            offset(&mut subquery.offset);
            blank(&mut subquery.expr);
        }
        Expr::VectorSelector(selector) => offset(&mut selector.offset),
        Expr::MatrixSelector(matrix) => {
            matrix.range = HOUR;
            offset(&mut matrix.vs.offset);
        }
        Expr::Call(call) => call.args.args.iter_mut().for_each(|arg| blank(arg)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

#[test]
fn finds_rules_that_differ_in_more_than_durations() {
    let (one, times) = without_durations("rate(x[1h] offset 5m) > 3");
    assert_eq!(times.len(), 2);
    assert_eq!(without_durations("rate(x[2h] offset 1m) > 3").0, one);
    for other in [
        "rate(x[1h] offset 5m) > 4",
        "rate(y[1h] offset 5m) > 3",
        "rate(x[1h]) > 3",
        "increase(x[1h] offset 5m) > 3",
        "rate(x[1h] offset -5m) > 3",
        "max_over_time(rate(x[1h] offset 5m)[1h:5m]) > 3",
    ] {
        assert_ne!(without_durations(other).0, one, "{other}");
    }
}

/// The object for the Prometheus Operator contains the same groups as the rules files.
#[test]
fn prometheus_rule_equals_the_files() {
    let files = files(&rules(&values()), &values().links);
    let mut groups = Vec::new();
    let mut object = Value::Null;
    for (name, text) in files.iter() {
        assert!(is_generated(name), "{name}");
        let mut read: Value = serde_saphyr::from_str(text).unwrap();
        if name == "prometheusrule.yaml" {
            object = read;
        } else {
            groups.append(read["groups"].as_array_mut().unwrap());
        }
    }
    assert_eq!(object["kind"], "PrometheusRule");
    assert_eq!(object["metadata"]["labels"]["role"], "alert-rules");
    let held = object["spec"]["groups"].as_array().unwrap();
    assert_eq!(held.len(), groups.len());
    for group in groups {
        assert!(held.contains(&group), "{group}");
    }
}

#[test]
fn every_alert_is_tested_to_fire_and_not_to_fire() {
    let tests = tested();
    for alert in alerts() {
        let (fires, rests) = tests.get(&alert.name).copied().unwrap_or_default();
        assert!(fires > 0, "no file in alerts/tests expects {} to fire", alert.name);
        assert!(rests > 0, "no file in alerts/tests expects {} not to fire", alert.name);
    }
    let known: BTreeSet<String> = alerts().into_iter().map(|alert| alert.name).collect();
    for name in tests.keys() {
        assert!(known.contains(name), "alerts/tests contains {name}, which is not an alert");
    }
}

/// Returns, per alert, the number of tests that expect it to fire and of tests that expect it not to fire.
fn tested() -> BTreeMap<String, (usize, usize)> {
    let mut tested: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for path in test_files() {
        let read: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let cases = read["tests"].as_array().unwrap().iter();
        for case in cases.flat_map(|test| test["alert_rule_test"].as_array().into_iter().flatten())
        {
            let count = tested.entry(case["alertname"].as_str().unwrap().to_owned()).or_default();
            // promtool treats a missing list as empty. An explicit list shows that the author did not forget it.
            let expected = case["exp_alerts"].as_array().unwrap();
            if expected.is_empty() {
                count.1 += 1;
            } else {
                count.0 += 1;
            }
        }
    }
    tested
}

#[test]
fn every_test_file_is_for_rules_of_this_folder() {
    for path in test_files() {
        let read: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for file in read["rule_files"].as_array().unwrap() {
            let file = file.as_str().unwrap().strip_prefix("../").unwrap();
            assert!(root().join("alerts").join(file).exists(), "{}: {file}", path.display());
        }
    }
}

fn test_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("alerts/tests")).unwrap();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() > 2);
    paths
}

fn alerts() -> Vec<Alert> {
    let all = rules(&values());
    let alerts = all.iter().flat_map(each).filter_map(|rule| match rule {
        Rule::Alert(alert) => Some(alert.clone()),
        Rule::Record(_) => None,
    });
    alerts.collect()
}

fn each(rules: &Rules) -> impl Iterator<Item = &Rule> {
    rules.groups.iter().flat_map(|group| &group.rules)
}

fn values() -> Values {
    config::alert_values(None).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
