//! Checks runbooks against rules. Each alert must have a runbook, each runbook must have an alert, and every query and
//! threshold in a runbook must exist. Names of series and attributes in runbooks are checked here, too.
//! `tests/readme.rs` checks everything else in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tokengauge_kubernetes::webhook;
use tokengauge_monitoring::emitted::{TARGET_LABELS, emitted};
use tokengauge_telemetry::catalog::{self, attributes, spans};
use tokengauge_telemetry::logs::{CONTENT_EVENT, EXCEPTION_EVENT, REQUEST_EVENT};
use tokengauge_telemetry::prometheus::label_name;

use super::pages::{self, blocks, code_spans, read, root};
use super::promql::{Checker, Labels};

const SECTIONS: [&str; 5] = ["Symptom", "Check", "Causes", "Actions", "Escalation"];

/// Names with the project's prefixes that are not series or attributes of the project: error types, and a value of
/// `OTEL_SEMCONV_STABILITY_OPT_IN`.
const NEITHER: &[&str] =
    &["tokengauge_overload", "tokengauge_draining", "gen_ai_latest_experimental"];

/// Prefix of pod annotations and labels.
const ANNOTATIONS: &str = "tokengauge.dev";

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let alerts = alerts();
    assert!(alerts.len() >= 29, "{}", alerts.len());
    assert_eq!(unpaired(&alerts, &runbooks()), [""; 0]);
}

#[test]
fn every_runbook_has_its_sections_in_their_order() {
    for (name, text) in runbooks() {
        assert_eq!(misbuilt(&name, &text), [""; 0]);
    }
}

#[test]
fn the_index_has_every_alert_with_its_severity() {
    assert_eq!(missing(&alerts(), &read("docs/runbooks/README.md")), [""; 0]);
}

#[test]
fn every_link_of_an_alert_exists() {
    for alert in alerts() {
        assert_eq!(astray(&alert), [""; 0], "{}", alert.name);
    }
}

#[test]
fn every_query_on_a_page_parses_and_selects_existing_series() {
    let checker = checker();
    let mut queries = 0;
    let mut wrong = Vec::new();
    for page in pages::all() {
        for query in blocks(&read(&page), "promql") {
            queries += 1;
            let found = checker.dashboard(query);
            wrong.extend(found.iter().map(|what| format!("{page}: {what}\n{query}")));
        }
    }
    assert!(queries > 100, "{queries}");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Nothing may read the buckets that the page on telemetry drops to save series.
#[test]
fn nothing_reads_the_buckets_that_the_telemetry_page_drops() {
    let page = read("docs/reference/telemetry.md");
    let names = page.split_once("regex: (").unwrap().1.split_once(")_seconds_bucket").unwrap().0;
    let mut texts: Vec<String> = Vec::new();
    for page in pages::all() {
        texts.extend(blocks(&read(&page), "promql").into_iter().map(str::to_owned));
    }
    texts.extend(rules().into_iter().map(|rule| rule.expr));
    texts.extend(tokengauge_monitoring::dashboards::files().iter().map(|(_, it)| it.to_owned()));
    assert!(names.split('|').count() > 2, "{names}");
    for name in names.split('|') {
        let series = format!("{name}_seconds_bucket");
        assert!(emitted().contains_key(&series), "{series}");
        assert!(!texts.iter().any(|text| text.contains(&series)), "{series}");
    }
}

#[test]
fn every_series_and_attribute_on_a_page_exists() {
    let known = Known::new();
    let mut wrong = Vec::new();
    for page in pages::all().iter().filter(|page| !page.starts_with("docs/adr")) {
        let text = read(page);
        let found = known.strangers(&text);
        wrong.extend(found.iter().map(|name| format!("{page}: {name}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_threshold_of_a_runbook_is_in_the_values_file() {
    let keys = keys(&read("alerts/values.yaml"));
    assert!(keys.len() > 10, "{keys:?}");
    for (name, text) in runbooks() {
        assert_eq!(unset(&text, &keys), [""; 0], "{name}");
    }
}

/// The text of a Prometheus rule that these tests read.
struct Rule {
    name: String,
    recorded: bool,
    expr: String,
    /// Labels and annotations of the rule.
    fields: BTreeMap<String, String>,
}

fn alerts() -> Vec<Rule> {
    let mut all = rules();
    all.retain(|rule| !rule.recorded);
    all
}

/// Returns the rules in `alerts/*.rules.yaml`.
fn rules() -> Vec<Rule> {
    fs::read_dir(root().join("alerts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".rules.yaml"))
        .flat_map(|path| read_rules(&fs::read_to_string(path).unwrap()))
        .collect()
}

/// Parses rules in the layout of `tokengauge alerts`: one key per line, and an expression on its line or in a block
/// below.
fn read_rules(text: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut block = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if let Some(depth) = block {
            if line.is_empty() || indent > depth {
                let rule = rules.last_mut().unwrap();
                rule.expr.push_str(line);
                rule.expr.push('\n');
                continue;
            }
            block = None;
        }
        let Some((key, value)) = line.split_once(": ").or(line.split_once(':')) else {
            continue;
        };
        let value = value.trim().trim_matches('"');
        match (key, rules.last_mut()) {
            ("- record" | "- alert", _) => rules.push(Rule {
                name: value.to_owned(),
                recorded: key == "- record",
                expr: String::new(),
                fields: BTreeMap::new(),
            }),
            ("expr", Some(_)) if value == "|" => block = Some(indent),
            ("expr", Some(rule)) => value.clone_into(&mut rule.expr),
            ("- name" | "interval" | "rules" | "labels" | "annotations", _) => {}
            (_, Some(rule)) => {
                rule.fields.insert(key.to_owned(), value.to_owned());
            }
            (_, None) => {}
        }
    }
    rules
}

/// Returns the runbooks by name, without the two general pages.
fn runbooks() -> BTreeMap<String, String> {
    pages::all()
        .iter()
        .filter_map(|page| {
            let name = page.strip_prefix("docs/runbooks/")?.strip_suffix(".md")?;
            Some((name.to_owned(), read(page)))
        })
        .filter(|(name, _)| !["README", "whose-fault"].contains(&name.as_str()))
        .collect()
}

fn unpaired(alerts: &[Rule], runbooks: &BTreeMap<String, String>) -> Vec<String> {
    let alerts: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    let books: BTreeSet<&str> = runbooks.keys().map(String::as_str).collect();
    let without = alerts.difference(&books).map(|it| format!("{it}: no runbook"));
    let beside = books.difference(&alerts).map(|it| format!("{it}: no alert"));
    without.chain(beside).collect()
}

fn misbuilt(name: &str, text: &str) -> Vec<String> {
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    let mut expected = vec![format!("# {name}")];
    expected.extend(SECTIONS.map(|section| format!("## {section}")));
    if headings != expected {
        return vec![format!("{name}: {headings:?}")];
    }
    text.split("\n## ")
        .skip(1)
        .filter(|section| section.split_once('\n').is_none_or(|it| it.1.trim().is_empty()))
        .map(|section| format!("{name}: {section} is empty"))
        .collect()
}

fn missing(alerts: &[Rule], index: &str) -> Vec<String> {
    alerts
        .iter()
        .map(|Rule { name, fields, .. }| {
            format!("| [{name}]({name}.md) | {} |", fields["severity"])
        })
        .filter(|row| !index.contains(row))
        .collect()
}

/// Returns the links of an alert whose target file does not exist in this repository.
fn astray(alert: &Rule) -> Vec<String> {
    let target = |field: &str, folder: &str, ending: &str| {
        let url = alert.fields.get(field).map_or("", String::as_str);
        let last = url.rsplit('/').next().unwrap_or_default();
        let file = format!("{folder}/{last}{ending}");
        (last.is_empty() || !root().join(&file).is_file()).then(|| format!("{field}: {url}"))
    };
    let book = alert.fields.get("runbook_url").map_or("", String::as_str);
    let own = (!book.ends_with(&format!("/runbooks/{}", alert.name)))
        .then(|| format!("runbook_url: {book}"));
    [
        target("runbook_url", "docs/runbooks", ".md"),
        target("dashboard_url", "dashboards", ".json"),
        own,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a checker that knows exported and recorded series. A recorded series is added once the series in its
/// expression are known.
fn checker() -> Checker {
    let mut checker = Checker::new().knows("up", TARGET_LABELS);
    let mut unknown = rules();
    unknown.retain(|rule| rule.recorded);
    while !unknown.is_empty() {
        let before = unknown.len();
        let mut later = Vec::new();
        for rule in unknown {
            let (labels, wrong) = checker.rule(&rule.expr);
            if wrong.iter().any(|what| what.ends_with("no such series is exported")) {
                later.push(rule);
                continue;
            }
            let labels: Labels = labels.unwrap_or_default();
            let labels = labels.iter().chain(rule.fields.keys());
            let labels: Vec<&str> = labels.map(String::as_str).collect();
            checker = checker.knows(&rule.name, &labels);
        }
        let names: Vec<&str> = later.iter().map(|rule| rule.name.as_str()).collect();
        assert!(later.len() < before, "no series with these names exist: {names:?}");
        unknown = later;
    }
    checker
}

/// Names that a page may use for series, labels, metrics and attributes.
struct Known {
    /// Names with underscores: series, histograms without suffix, labels, and recorded series.
    prometheus: BTreeSet<String>,
    /// Names with dots: metrics, and attributes of metrics and spans.
    opentelemetry: BTreeSet<String>,
}

impl Known {
    fn new() -> Self {
        let series = emitted().into_keys().flat_map(|name| {
            let whole = name.strip_suffix("_bucket").map(str::to_owned);
            whole.into_iter().chain([name])
        });
        let keys = || attributes::ALL.iter().chain(spans::ALL).map(|it| it.key);
        let labels = keys().map(label_name);
        let recorded = || rules().into_iter().filter(|rule| rule.recorded);
        Self {
            prometheus: series
                .chain(labels)
                .chain(recorded().map(|rule| rule.name))
                .chain(recorded().flat_map(|rule| rule.fields.into_keys()))
                .chain(webhook::metric_names().map(str::to_owned))
                .chain(NEITHER.iter().map(|&name| name.to_owned()))
                .collect(),
            opentelemetry: catalog::metrics()
                .map(|metric| metric.name)
                .chain(keys())
                .chain([ANNOTATIONS, REQUEST_EVENT, CONTENT_EVENT, EXCEPTION_EVENT])
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Returns unknown names in code spans that have our prefixes.
    fn strangers(&self, page: &str) -> Vec<String> {
        code_spans(page)
            .map(|span| {
                let end = span.find(|c: char| !(c.is_ascii_alphanumeric() || "_:.*".contains(c)));
                &span[..end.unwrap_or(span.len())]
            })
            .filter(|name| !self.knows(name))
            .map(str::to_owned)
            .collect()
    }

    fn knows(&self, name: &str) -> bool {
        let has = |names: &BTreeSet<String>| match name.strip_suffix('*') {
            Some(beginning) => names.iter().any(|name| name.starts_with(beginning)),
            None => names.contains(name),
        };
        let begins = |beginnings: &[&str]| beginnings.iter().any(|it| name.starts_with(it));
        let recorded = begins(&["slo:"]) || name.contains(":tokengauge_");
        if recorded || begins(&["tokengauge_", "gen_ai_", "process_"]) {
            has(&self.prometheus)
        } else if begins(&["tokengauge.", "gen_ai."]) && !is_file(name) {
            // SLO names are user-defined. The rest is a table of ClickHouse.
            has(&self.opentelemetry)
                || name.starts_with("tokengauge.slo.")
                || name == "tokengauge.otel_logs"
        } else {
            true
        }
    }
}

fn is_file(name: &str) -> bool {
    [".yaml", ".json", ".rb"].iter().any(|ending| name.ends_with(ending))
}

/// Returns the nested keys of a values file, joined with a dot.
fn keys(values: &str) -> BTreeSet<String> {
    let mut outer = "";
    let mut keys = BTreeSet::new();
    for line in values.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let Some((key, _)) = line.split_once(':') else {
            continue;
        };
        match key.strip_prefix("  ") {
            None => outer = key,
            Some(inner) => {
                keys.insert(format!("{outer}.{}", inner.trim()));
            }
        }
    }
    keys
}

/// Returns the thresholds that a page names but the values file does not define.
fn unset(page: &str, keys: &BTreeSet<String>) -> Vec<String> {
    let outer: BTreeSet<&str> =
        keys.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    code_spans(page)
        .filter(|span| span.split_once('.').is_some_and(|(first, _)| outer.contains(first)))
        .filter(|span| match span.strip_suffix('*') {
            Some(beginning) => !keys.iter().any(|key| key.starts_with(beginning)),
            None => !keys.contains(*span),
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn finds_inconsistent_pages() {
    let rules = "groups:\n  - name: a\n    rules:\n      - record: slo:x:ratio\n        expr: up\n      - alert: A\n        \
        expr: |\n          up == 0\n          or up\n        labels:\n          severity: warning\n        annotations:\n          \
        runbook_url: https://example.com/docs/runbooks/B\n          dashboard_url: http://localhost:3000/d/nowhere\n";
    let mut rules = read_rules(rules);
    assert_eq!((rules[0].name.as_str(), rules[0].expr.as_str()), ("slo:x:ratio", "up"));
    assert_eq!(rules[1].expr, "up == 0\nor up\n");
    rules.remove(0);
    let books = BTreeMap::from([("B".to_owned(), String::new())]);
    assert_eq!(unpaired(&rules, &books), ["A: no runbook", "B: no alert"]);
    assert_eq!(missing(&rules, "| [A](A.md) | critical |"), ["| [A](A.md) | warning |"]);
    assert_eq!(astray(&rules[0]).len(), 3);

    let page = "# A\n\nx\n\n## Symptom\n\nx\n\n## Check\n\n\n## Causes\n\nx\n\n## Actions\n\nx\n\n\
        ## Escalation\n\nx\n";
    assert_eq!(misbuilt("A", page), ["A: Check\n\n is empty"]);
    assert_eq!(misbuilt("B", page).len(), 1);
    let swapped = page.replace("Symptom", "Meaning");
    assert_eq!(misbuilt("A", &swapped).len(), 1);
}

#[test]
fn finds_unknown_names_and_thresholds() {
    let known = Known::new();
    let page = "`tokengauge_tokens_total` `tokengauge_tokens` `tokengauge_route=\"a\"` `tokengauge.tokens` `tokengauge.token` \
        `tokengauge_time_to_first_token_seconds` `tokengauge_rate_limit_*` `tokengauge_quote_*` `slo:nothing:ratio` `tokengauge.yaml`";
    assert_eq!(
        known.strangers(page),
        ["tokengauge_tokens", "tokengauge.token", "tokengauge_quote_*", "slo:nothing:ratio"]
    );
    let keys =
        keys("jobs: [a]\n# x: y\nhealth:\n  # a\n  absent_for: 10m\nslo:\n  burn_1h: 14.4\n");
    assert_eq!(keys, BTreeSet::from(["health.absent_for", "slo.burn_1h"].map(str::to_owned)));
    assert_eq!(
        unset("`health.absent_for` `health.*` `health.absent` `slo.brun_*` `a.b`", &keys),
        ["health.absent", "slo.brun_*"]
    );
}
