//! Tests the recipes in `deploy/autoscaling`. Each query must parse and use only exported series. The adapter's rules
//! must define each metric that an autoscaler names. `.ci/run kubernetes` runs the queries against Prometheus.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::pages::{read, root};
use super::promql::Checker;

const FOLDER: &str = "deploy/autoscaling";

#[test]
fn recipes_select_exported_series() {
    let checker = checker();
    let queries = queries();
    assert!(queries.len() >= 9, "{queries:?}");
    let wrong: Vec<String> = queries
        .iter()
        .flat_map(|(place, query)| {
            let wrong = checker.rule(query).1.into_iter();
            wrong.map(move |wrong| format!("{place}: {wrong}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The autoscaler reads a single number and ignores a query with several results.
#[test]
fn a_trigger_is_one_number() {
    let checker = checker();
    let triggers = queries().into_iter().filter(|(place, _)| place.starts_with("keda"));
    for (place, query) in triggers {
        let labels = checker.rule(&query).0.unwrap();
        assert!(labels.is_empty(), "{place}: {labels:?}");
    }
}

#[test]
fn finds_a_name_that_is_not_exported() {
    let (_, wrong) = checker().rule("sum(tokengauge_queue_length{pod=\"a\"})");
    assert!(!wrong.is_empty());
    let (_, wrong) = checker().rule("sum(tokengauge_queue_depth{tokengauge_position=\"inside\"})");
    assert!(!wrong.is_empty());
}

#[test]
fn autoscalers_use_metrics_of_the_adapter() {
    let rules = adapter();
    let made = |list: &str| -> Vec<String> {
        let rules = rules[list].as_array().unwrap().iter();
        rules.map(|rule| rule["name"]["as"].as_str().unwrap().to_owned()).collect()
    };
    let (of_pods, external) = (made("rules"), made("externalRules"));
    let mut named = 0;
    for (file, object) in objects() {
        let metrics = object["spec"]["metrics"].as_array().into_iter().flatten();
        for metric in metrics {
            let (name, made) = match metric["type"].as_str().unwrap() {
                "Pods" => (&metric["pods"]["metric"]["name"], &of_pods),
                "External" => (&metric["external"]["metric"]["name"], &external),
                "Resource" => continue,
                other => panic!("{file}: {other}"),
            };
            named += 1;
            assert!(made.iter().any(|it| name == it), "{file}: {name}");
        }
    }
    assert!(named >= 3, "{named}");
}

/// Returns a checker that knows the label `pod`, which only a scraper in Kubernetes adds.
fn checker() -> Checker {
    Checker::new().everywhere("pod")
}

/// Returns every query by file and name.
fn queries() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (file, object) in objects() {
        for trigger in object["spec"]["triggers"].as_array().into_iter().flatten() {
            if let Some(query) = trigger["metadata"]["query"].as_str() {
                let name = trigger["name"].as_str().unwrap();
                found.insert(format!("{file}: {name}"), query.to_owned());
            }
        }
    }
    let rules = adapter();
    for list in ["rules", "externalRules"] {
        for rule in rules[list].as_array().unwrap() {
            let name = rule["name"]["as"].as_str().unwrap();
            let query = rule["metricsQuery"].as_str().unwrap();
            let query = query
                .replace("<<.LabelMatchers>>", "namespace=\"llm\"")
                .replace("<<.GroupBy>>", "namespace,pod");
            found.insert(format!("adapter: {name}"), query);
            let series = rule["seriesQuery"].as_str().unwrap();
            found.insert(format!("adapter: series of {name}"), series.to_owned());
        }
    }
    found
}

/// Returns the rules of prometheus-adapter.
fn adapter() -> Value {
    let map: Value =
        serde_saphyr::from_str(&read(&format!("{FOLDER}/prometheus-adapter.yaml"))).unwrap();
    serde_saphyr::from_str(map["data"]["config.yaml"].as_str().unwrap()).unwrap()
}

/// Returns the objects of all files. Each file holds one object.
fn objects() -> Vec<(String, Value)> {
    let entries = fs::read_dir(root().join(FOLDER)).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    files
        .filter(|file| file.ends_with(".yaml"))
        .map(|file| {
            let text = read(&format!("{FOLDER}/{file}"));
            (file, serde_saphyr::from_str(&text).unwrap())
        })
        .collect()
}
