//! Reads rule definitions in YAML and replaces their placeholders:
//!
//! - `<slo.min_events>` becomes a threshold of [`Values`], and `<slo.min_events%>` the same threshold in per cent.
//! - `<slo.windows>` becomes a list, and `<slo.further_windows>` those of them that the definitions do not have anyway.
//! - `<scope>`, `<route>`, `<provider>`, `<call>`, `<variant>` and `<budget>` become lists of labels, for `by (…)`.
//! - `{<only>}`, or `{<only>, …}`, becomes the configured selector. Each selector of an exported metric contains it.
//! - An expression with `<job>` is repeated for each configured job.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

use crate::alerts::rule::{Group, Rule};
use crate::alerts::span::Span;
use crate::alerts::values::Values;

/// Placeholders and the labels that replace them. The labels of a row may contain placeholders of later rows. `<scope>`
/// identifies a deployment, for both scraped and OTLP series. A label that a series lacks stays absent.
const LABELS: [(&str, &str); 6] = [
    ("<call>", "<provider>, gen_ai_request_model"),
    ("<provider>", "<route>, gen_ai_provider_name"),
    ("<route>", "<scope>, tokengauge_position, tokengauge_route"),
    (
        "<variant>",
        "<scope>, tokengauge_position, gen_ai_provider_name, gen_ai_request_model, tokengauge_variant",
    ),
    ("<budget>", "<scope>, tokengauge_budget_name, tokengauge_budget_unit"),
    ("<scope>", "cluster, k8s_cluster_name, namespace, k8s_namespace_name, job"),
];

/// Matches the placeholder of a threshold.
static THRESHOLD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"<(?<section>[a-z_]+)\.(?<key>[a-z0-9_]+)(?<percent>%?)>").expect("valid pattern")
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupDefinition {
    name: String,
    interval: Span,
    rules: Vec<Definition>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Definition {
    Rule(Rule),
    /// Rules that are repeated for each window. The window replaces the placeholder `<window>` in the rules, and its
    /// length in seconds the placeholder `<window_seconds>`.
    Windows {
        windows: Vec<String>,
        rules: Vec<Rule>,
    },
}

/// Windows for which the definitions always have rules of SLO events.
const SLO_WINDOWS: [&str; 7] = ["5m", "30m", "1h", "2h", "6h", "1d", "3d"];

/// Reads the rule groups from the definition in `text`.
pub(super) fn groups(text: &str, values: &Values) -> Vec<Group> {
    let mut text = thresholds(text, values);
    for (placeholder, labels) in LABELS {
        text = text.replace(placeholder, labels);
    }
    let groups: Vec<GroupDefinition> =
        serde_saphyr::from_str(&text).expect("embedded definitions are valid");
    let group = |GroupDefinition { name, interval, rules }| Group {
        name,
        interval,
        rules: rules
            .into_iter()
            .flat_map(expanded)
            .filter_map(|rule| filled(rule, values))
            .collect(),
    };
    groups.into_iter().map(group).collect()
}

/// Replaces the placeholders of thresholds.
fn thresholds(text: &str, values: &Values) -> String {
    let mut sections = serde_json::to_value(values).unwrap_or_default();
    let further = values.slo.windows.iter().map(ToString::to_string);
    let further: Vec<_> =
        further.filter(|window| !SLO_WINDOWS.contains(&window.as_str())).collect();
    if let Some(slo) = sections.get_mut("slo").and_then(Value::as_object_mut) {
        slo.insert("further_windows".to_owned(), further.into());
    }
    let threshold = |found: &Captures<'_>| {
        let value = sections.get(&found["section"]).and_then(|section| section.get(&found["key"]));
        match value {
            Some(Value::String(text)) if !found["percent"].is_empty() => percent(text),
            Some(Value::String(text)) => text.clone(),
            Some(number) => number.to_string(),
            None => found[0].to_owned(),
        }
    };
    THRESHOLD.replace_all(text, threshold).into_owned()
}

/// Formats a ratio as a percentage, such as `5 %`.
fn percent(ratio: &str) -> String {
    let ratio: f64 = ratio.parse().unwrap_or_default();
    format!("{} %", (ratio * 1e4).round() / 1e2)
}

fn expanded(definition: Definition) -> Vec<Rule> {
    match definition {
        Definition::Rule(rule) => vec![rule],
        Definition::Windows { windows, rules } => {
            let each = |window: &String| {
                let rules = rules.iter().cloned();
                rules.map(|rule| of_window(rule, window)).collect::<Vec<_>>()
            };
            windows.iter().flat_map(each).collect()
        }
    }
}

fn of_window(mut rule: Rule, window: &str) -> Rule {
    let seconds = window.parse::<Span>().map_or(0, |window| window.millis() / 1_000);
    let fill = |text: &mut String| {
        *text = text.replace("<window>", window).replace("<window_seconds>", &seconds.to_string());
    };
    fill(rule.expr_mut());
    if let Rule::Record(recording) = &mut rule {
        fill(&mut recording.record);
        recording.labels.values_mut().for_each(fill);
    }
    rule
}

/// Inserts the configured selector and jobs into a rule. Returns `None` if the rule needs jobs and no job is
/// configured.
fn filled(mut rule: Rule, values: &Values) -> Option<Rule> {
    let expr = rule.expr_mut();
    if expr.contains("<job>") {
        let sides: Vec<String> =
            values.jobs.iter().map(|job| expr.replace("<job>", job.as_str())).collect();
        *expr = sides.join("\nor\n");
    }
    *expr = match values.selector.as_str() {
        "" => expr.replace("{<only>}", "").replace("<only>, ", ""),
        only => expr.replace("<only>", only),
    };
    (!rule.expr().is_empty()).then_some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::values::defaults;

    #[test]
    fn fills_placeholders_and_drops_empty_selectors() {
        let text = "
            - name: a
              interval: 1m
              rules:
                - record: b
                  expr: sum by (<scope>) (x{<only>}) > <slo.min_events> and y{<only>, a=\"b\"}
        ";
        let mut values = defaults();
        let expr = |values: &Values| groups(text, values)[0].rules[0].expr().to_owned();
        let scope = "cluster, k8s_cluster_name, namespace, k8s_namespace_name, job";
        assert_eq!(expr(&values), format!("sum by ({scope}) (x) > 20 and y{{a=\"b\"}}"));
        values.selector = "team=\"a\"".parse().unwrap();
        assert_eq!(
            expr(&values),
            format!("sum by ({scope}) (x{{team=\"a\"}}) > 20 and y{{team=\"a\", a=\"b\"}}")
        );
    }

    #[test]
    fn formats_ratios_as_percentages() {
        assert_eq!(percent("0.07"), "7 %");
        assert_eq!(thresholds("<provider.down_share%> <no.key>", &defaults()), "90 % <no.key>");
    }

    #[test]
    fn without_jobs_no_alert_on_jobs_exists() {
        let text = include_str!("health.yaml");
        let count = |values: &Values| groups(text, values)[0].rules.len();
        let mut values = defaults();
        let with_jobs = count(&values);
        values.jobs.clear();
        assert_eq!(count(&values), with_jobs - 1);
    }
}
