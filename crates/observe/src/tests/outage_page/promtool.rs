//! Writes a promtool test for each row: half an hour of healthy calls, then half an hour in which every call takes the
//! path of the row, at one call per second.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use super::call::{Call, KNOWN_PATH, is_counter};
use super::monitoring::{self, BUILD, UP};
use super::{played, root, rows_of};

/// Seconds between two samples, and their number before and after the change.
const INTERVAL: f64 = 30.0;
const BEFORE: u32 = 60;
const AFTER: u32 = 60;

/// All rule files. The results of SLOs are in a test of their own, because each SLO has its own series.
const FILES: [&str; 4] = ["recording", "traffic", "health", "slo"];

const HEADER: &str = "\
# Made by crates/observe/src/tests/outage_page from the rows of docs/reference/outages.md.
# UPDATE_FIXTURES=1 cargo test -p tokengauge-observe outage_page
#
# Each test has healthy calls for 30 min and then only calls of its row, one per second. It expects the alerts that the
# page names.
";

/// All rule files, in the order in which their groups depend on each other.
pub(super) const RULE_FILES: &str = "\
rule_files: [../recording.rules.yaml, ../traffic.rules.yaml, ../health.rules.yaml, ../slo.rules.yaml]
evaluation_interval: 1m
group_eval_order:
  [tokengauge-slo-fast, tokengauge-slo-increments, tokengauge-slo-slow, tokengauge-references, tokengauge-baselines,
   tokengauge-output, tokengauge-latency, tokengauge-provider, tokengauge-quality, tokengauge-money,
   tokengauge-health, tokengauge-slo-alerts]
tests:
";

/// SLOs whose results change from good to another result.
const SLOS: &str = "\
- name: 'SLOs'
  interval: 30s
  input_series:
  - series: 'tokengauge_slo_objective_ratio{job=\"tokengauge\", tokengauge_slo=\"becomes bad\"}'
    values: '0.99x120'
  - series: 'tokengauge_slo_objective_ratio{job=\"tokengauge\", tokengauge_slo=\"becomes excluded\"}'
    values: '0.99x120'
  - series: 'tokengauge_slo_events_total{job=\"tokengauge\", tokengauge_slo=\"becomes bad\", tokengauge_result=\"good\"}'
    values: '0+30x60 1800x59'
  - series: 'tokengauge_slo_events_total{job=\"tokengauge\", tokengauge_slo=\"becomes bad\", tokengauge_result=\"bad\"}'
    values: '0x60 30+30x59'
  - series: 'tokengauge_slo_events_total{job=\"tokengauge\", tokengauge_slo=\"becomes excluded\", tokengauge_result=\"good\"}'
    values: '0+30x60 1800x59'
  - series: 'tokengauge_slo_events_total{job=\"tokengauge\", tokengauge_slo=\"becomes excluded\", tokengauge_result=\"bad\"}'
    values: '0x120'
  promql_expr_test:
  - expr: group by (alertname, sloth_slo) (max_over_time(ALERTS{alertstate=\"firing\", alertname!~\"Tokengauge.*\"}[30m]))
    eval_time: 1h
    exp_samples:
    - {labels: '{alertname=\"LLMErrorBudgetBurnFast\", sloth_slo=\"becomes bad\"}', value: 1}
    - {labels: '{alertname=\"LLMErrorBudgetBurnSlow\", sloth_slo=\"becomes bad\"}', value: 1}
";

pub(super) fn document() -> String {
    let selection = Selection::new();
    let mut document = format!("{HEADER}{RULE_FILES}");
    for stream in [true, false] {
        let healthy = selection.values(&played(Call::healthy, stream, KNOWN_PATH));
        for row in rows_of(stream) {
            let values = selection.values(&played(&row.play, stream, KNOWN_PATH));
            let calls = if stream { "streams" } else { "calls without a stream" };
            let series = changes(&healthy, &values);
            let name = format!("{calls}: {}", row.breaks);
            document.push_str(&test(&name, &series, &row.alerts[usize::from(!stream)]));
        }
    }
    for row in &monitoring::ROWS {
        let series: Vec<_> =
            row.series.iter().map(|(name, values)| ((*name).into(), (*values).into())).collect();
        document.push_str(&test(row.breaks, &series, row.alerts));
    }
    document + SLOS
}

/// Increase of each counter per second, and the value of each gauge, at one call per second.
pub(super) type Rates = BTreeMap<String, f64>;

/// The series and labels that rules use.
pub(super) struct Selection {
    words: BTreeSet<String>,
}

impl Selection {
    pub(super) fn new() -> Self {
        let rules = FILES
            .map(|name| {
                fs::read_to_string(root().join(format!("alerts/{name}.rules.yaml"))).unwrap()
            })
            .concat();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = rules.split(|letter| !is_part(letter)).map(str::to_owned).collect();
        Self { words }
    }

    pub(super) fn values(&self, call: &Call) -> Rates {
        let mut rates = Rates::new();
        let metrics = call.stage.metrics();
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            if let Some((series, value)) = line.rsplit_once(' ')
                && is_counter(series)
                && let Some(series) = self.reduced(series)
            {
                *rates.entry(series).or_default() += value.parse::<f64>().unwrap();
            }
        }
        if call.is_unobserved {
            // The tee counts these requests, which is not part of the played call.
            let series = "tokengauge_self_observer_unobserved_requests_total{job=\"tokengauge\"}";
            rates.insert(series.to_owned(), 1.0);
        }
        for (series, seconds) in &call.gauges {
            if let Some(series) = self.reduced(series) {
                *rates.entry(series).or_default() += seconds;
            }
        }
        rates
    }

    /// Returns the series with the labels that rules use. Returns `None` if no alert on the calls of one variant uses
    /// the series.
    fn reduced(&self, series: &str) -> Option<String> {
        let (name, labels) = series.split_once('{')?;
        if ["_slo_", "_choices_"].iter().any(|part| name.contains(part)) {
            return None;
        }
        let name = self.words.get(name)?;
        let labels = labels
            .strip_suffix('}')?
            .split("\",")
            .filter(|label| label.split_once('=').is_some_and(|(key, _)| self.words.contains(key)));
        let labels: Vec<String> =
            labels.map(|label| format!("{}\"", label.trim_end_matches('"'))).collect();
        Some(format!("{name}{{job=\"tokengauge\", {}}}", labels.join(", ")))
    }
}

/// A series and its values.
pub(super) type Series = (String, String);

/// Returns the series of healthy calls that break.
fn changes(healthy: &Rates, broken: &Rates) -> Vec<Series> {
    let rate = |rates: &Rates, series| rates.get(series).copied().unwrap_or_default();
    let all: BTreeSet<&String> = healthy.keys().chain(broken.keys()).collect();
    let moved = all.into_iter().filter_map(|series| {
        let (before, after) = (rate(healthy, series), rate(broken, series));
        let values = if is_counter(series) {
            counter(before * INTERVAL, after * INTERVAL)
        } else {
            format!("{}x{BEFORE} {}x{}", round(before), round(after), AFTER - 1)
        };
        (before > 0.0 || after > 0.0).then(|| (series.clone(), values))
    });
    let constant = [UP, BUILD].map(|(name, values)| (name.to_owned(), values.to_owned()));
    constant.into_iter().chain(moved).collect()
}

fn test(name: &str, series: &[Series], alerts: &[&str]) -> String {
    inputs(name, "30s", series) + &expectation(30, 60, alerts)
}

/// Returns the start of a test: its name and its series.
pub(super) fn inputs(name: &str, interval: &str, series: &[Series]) -> String {
    let mut test = format!("- name: '{name}'\n  interval: {interval}\n  input_series:\n");
    for (name, values) in series {
        writeln!(test, "  - series: '{name}'\n    values: '{values}'").unwrap();
    }
    test
}

/// Returns the end of a test: the alerts that fire within a number of minutes before another number of minutes.
pub(super) fn expectation(within: u32, end: u32, alerts: &[&str]) -> String {
    let firing = format!("max_over_time(ALERTS{{alertstate=\"firing\"}}[{within}m])");
    let mut expected = format!(
        "  promql_expr_test:\n  - expr: group by (alertname) ({firing})\n    eval_time: {end}m\n    exp_samples:"
    );
    expected.push_str(if alerts.is_empty() { " []\n" } else { "\n" });
    for alert in alerts {
        writeln!(expected, "    - {{labels: '{{alertname=\"{alert}\"}}', value: 1}}").unwrap();
    }
    expected
}

/// Returns the samples of a counter. A counter that healthy calls do not move is absent before its first event.
fn counter(before: f64, after: f64) -> String {
    let (before, after) = (round(before), round(after));
    // promtool adds up rounded increments. Without the margin, a sum that is too high would look like a restart.
    let first = round(before * f64::from(BEFORE) + after + 0.001);
    if before > 0.0 {
        format!("0+{before}x{BEFORE} {first}+{after}x{}", AFTER - 1)
    } else {
        format!("_x{} {after}+{after}x{AFTER}", BEFORE + 1)
    }
}

pub(super) fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
