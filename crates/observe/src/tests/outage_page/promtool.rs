//! Writes a promtool test for each row: half an hour of healthy calls, then half an hour in which every call takes the
//! path of the row, at one call per second.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use super::call::{Call, KNOWN_PATH, is_counter};
use super::monitoring::{self, BUILD, UP};
use super::rows::Firing;
use super::{played, root, rows_of};

/// Seconds between two samples, and their number before and after the change.
const INTERVAL: u16 = 30;
const BEFORE: u16 = 60;
const AFTER: u16 = 60;
/// Minutes from the start of a test to the change, and to its end.
const CHANGE: u32 = 30;
const END: u32 = 60;

/// All rule files.
const FILES: [&str; 4] = ["recording", "traffic", "health", "slo"];

const HEADER: &str = "\
# Made by crates/observe/src/tests/outage_page from the rows of docs/reference/outages.md.
# UPDATE_FIXTURES=1 cargo test -p tokengauge-observe outage_page
#
# Each test has healthy calls for 30 min and then only calls of its row, one per second. It expects the alerts that the
# page names, each with the minutes from the change to the evaluation in which it starts to fire.
";

const SLO_HEADER: &str = "\
# Made by crates/observe/src/tests/outage_page, like outages.yaml: when alerts on an SLO fire.
rule_files: [../recording.rules.yaml, ../slo.rules.yaml]
evaluation_interval: 1m
group_eval_order: [tokengauge-slo-fast, tokengauge-slo-increments, tokengauge-slo-slow, tokengauge-slo-alerts]
tests:
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

/// Alerts on an SLO with a target of 99 %: minutes of healthy calls, and the alerts when all results become bad.
/// The longer the healthy part, the later a window of the alert has enough bad results.
pub(super) const SLO_ALERTS: [(&str, u32, [Firing; 2]); 2] = [
    ("30 minutes", CHANGE, [("LLMErrorBudgetBurnFast", 4), ("LLMErrorBudgetBurnSlow", 17)]),
    ("3 days", 3 * 24 * 60, [("LLMErrorBudgetBurnFast", 11), ("LLMErrorBudgetBurnSlow", 61)]),
];

/// Returns the test of an SLO whose results are good for `healthy` minutes, and then bad, or excluded.
fn slo_test(name: &str, healthy: u32, is_bad: bool, alerts: &[Firing]) -> String {
    let end = healthy + 90;
    let events = |result| {
        let labels = "job=\"tokengauge\", tokengauge_slo=\"slo\"";
        format!("tokengauge_slo_events_total{{{labels}, tokengauge_result=\"{result}\"}}")
    };
    let bad = if is_bad { format!("0x{healthy} 60+60x89") } else { format!("0x{end}") };
    let series = [
        (UP.0.to_owned(), format!("1x{end}")),
        (BUILD.0.to_owned(), format!("1x{end}")),
        (
            "tokengauge_slo_objective_ratio{job=\"tokengauge\", tokengauge_slo=\"slo\"}".to_owned(),
            format!("0.99x{end}"),
        ),
        (events("good"), format!("0+60x{healthy} {}x89", 60 * healthy)),
        (events("bad"), bad),
    ];
    inputs(name, "1m", &series) + &expectation(healthy, end, alerts)
}

pub(super) fn document() -> String {
    let selection = Selection::new();
    let mut document = format!("{HEADER}{RULE_FILES}");
    for stream in [true, false] {
        let healthy = selection.values(&played(Call::healthy, stream, KNOWN_PATH));
        for row in rows_of(stream) {
            let course = selection.course(&played(&row.play, stream, KNOWN_PATH));
            let calls = if stream { "streams" } else { "calls without a stream" };
            let series = changes(&healthy, &course);
            let name = format!("{calls}: {}", row.breaks);
            document.push_str(&test(&name, &series, &row.alerts[usize::from(!stream)]));
        }
    }
    for row in &monitoring::ROWS {
        document.push_str(&test(row.breaks, &owned(row.series), row.alerts));
    }
    document
}

pub(super) fn slo_document() -> String {
    let mut document = SLO_HEADER.to_owned();
    for (history, healthy, alerts) in &SLO_ALERTS {
        let name = format!("SLOs with the result bad after {history}");
        document.push_str(&slo_test(&name, *healthy, true, alerts));
    }
    document.push_str(&slo_test("SLOs that exclude the calls", CHANGE, false, &[]));
    document
}

fn owned(series: &[(&str, &str)]) -> Vec<Series> {
    series.iter().map(|(name, values)| ((*name).to_owned(), (*values).to_owned())).collect()
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
        let course = self.course(call);
        let series = course.final_rates.keys().chain(course.ages.iter().flat_map(Rates::keys));
        series.map(|series| (series.clone(), course.steady(series))).collect()
    }

    fn course(&self, call: &Call) -> Course {
        let ages = call.samples.iter().map(|metrics| self.rates(metrics)).collect();
        let mut final_rates = self.rates(&call.stage.metrics());
        final_rates.retain(|series, _| is_counter(series));
        if call.is_unobserved {
            // The tee counts these requests, which is not part of the played call.
            let series = "tokengauge_self_observer_unobserved_requests_total{job=\"tokengauge\"}";
            final_rates.insert(series.to_owned(), 1.0);
        }
        Course { ages, final_rates }
    }

    fn rates(&self, metrics: &str) -> Rates {
        let mut rates = Rates::new();
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            if let Some((series, value)) = line.rsplit_once(' ')
                && let Some(series) = self.reduced(series)
            {
                *rates.entry(series).or_default() += value.parse::<f64>().unwrap();
            }
        }
        rates
    }

    /// Returns the series with the labels that rules use. Returns `None` if no alert on the calls of one variant uses
    /// the series.
    fn reduced(&self, series: &str) -> Option<String> {
        let (name, labels) = series.split_once('{')?;
        if ["_slo_", "_choices_", "_build_"].iter().any(|part| name.contains(part)) {
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

/// What one call contributes to each series, from its start on.
struct Course {
    /// Values at the age of 1 s, 2 s and so on, while the call is in progress.
    ages: Vec<Rates>,
    /// Values of counters after the end of the call.
    final_rates: Rates,
}

impl Course {
    /// Returns the sum of a series over all calls, `seconds` after the start of the first one. One call starts per
    /// second.
    fn sum(&self, series: &str, seconds: u16) -> f64 {
        let seconds = usize::from(seconds);
        let ended = u32::try_from(seconds.saturating_sub(self.ages.len())).unwrap();
        let in_progress = self.ages.iter().take(seconds).filter_map(|values| values.get(series));
        in_progress.sum::<f64>() + f64::from(ended) * value(&self.final_rates, series)
    }

    /// Returns the increase of a counter per second, or the value of a gauge, when calls end as often as they start.
    fn steady(&self, series: &str) -> f64 {
        if is_counter(series) {
            value(&self.final_rates, series)
        } else {
            self.ages.iter().filter_map(|values| values.get(series)).sum()
        }
    }

    /// Returns the first sample after the start from which on calls end as often as they start.
    fn first_steady_sample(&self) -> u16 {
        u16::try_from(self.ages.len() / usize::from(INTERVAL) + 1).unwrap()
    }
}

fn value(rates: &Rates, series: &str) -> f64 {
    rates.get(series).copied().unwrap_or_default()
}

/// Returns the series of healthy calls that break.
fn changes(healthy: &Rates, broken: &Course) -> Vec<Series> {
    let series = broken.final_rates.keys().chain(broken.ages.iter().flat_map(Rates::keys));
    let all: BTreeSet<&String> = healthy.keys().chain(series).collect();
    let moved = all.into_iter().filter_map(|series| {
        let (before, after) = (value(healthy, series), broken.steady(series));
        let values = if is_counter(series) {
            counter(before, broken, series)
        } else {
            gauge(before, broken, series)
        };
        (before > 0.0 || after > 0.0).then(|| (series.clone(), values))
    });
    let constant = [UP, BUILD].map(|(name, values)| (name.to_owned(), values.to_owned()));
    constant.into_iter().chain(moved).collect()
}

fn test(name: &str, series: &[Series], alerts: &[Firing]) -> String {
    inputs(name, "30s", series) + &expectation(CHANGE, END, alerts)
}

/// Returns the start of a test: its name and its series.
pub(super) fn inputs(name: &str, interval: &str, series: &[Series]) -> String {
    let mut test = format!("- name: '{name}'\n  interval: {interval}\n  input_series:\n");
    for (name, values) in series {
        writeln!(test, "  - series: '{name}'\n    values: '{values}'").unwrap();
    }
    test
}

/// Returns the end of a test: the alerts that fire between two minutes, each with the number of minutes after the first
/// one. The rules are evaluated once a minute.
pub(super) fn expectation(from: u32, end: u32, alerts: &[Firing]) -> String {
    let firing = "timestamp(ALERTS{alertstate=\"firing\"})";
    let window = end - from;
    let mut expected = format!(
        "  promql_expr_test:\n  - expr: min by (alertname) (min_over_time({firing}[{window}m:1m])) / 60 - {from}\n    \
         eval_time: {end}m\n    exp_samples:"
    );
    expected.push_str(if alerts.is_empty() { " []\n" } else { "\n" });
    for (alert, minutes) in alerts {
        writeln!(expected, "    - {{labels: '{{alertname=\"{alert}\"}}', value: {minutes}}}")
            .unwrap();
    }
    expected
}

/// Returns the samples of a counter. A counter that healthy calls do not move is absent before its first event.
fn counter(before: f64, broken: &Course, series: &str) -> String {
    let interval = f64::from(INTERVAL);
    let before = round(before * interval);
    // promtool adds up rounded increments. Without the margin, a sum that is too high would look like a restart.
    let margin = if before > 0.0 { 0.001 } else { 0.0 };
    let start = before * f64::from(BEFORE) + margin;
    let mut values =
        if before > 0.0 { format!("0+{before}x{BEFORE}") } else { format!("_x{}", BEFORE + 1) };
    let steady = broken.first_steady_sample();
    for sample in 1..=steady {
        match round(start + broken.sum(series, sample * INTERVAL)) {
            0.0 => values.push_str(" _"),
            value => write!(values, " {value}").unwrap(),
        }
    }
    let step = round(broken.steady(series) * interval);
    write!(values, "+{step}x{}", AFTER - steady).unwrap();
    values
}

/// Returns the samples of a gauge.
fn gauge(before: f64, broken: &Course, series: &str) -> String {
    let mut values = format!("{}x{BEFORE}", round(before));
    let steady = broken.first_steady_sample();
    for sample in 1..=steady {
        write!(values, " {}", round(broken.sum(series, sample * INTERVAL))).unwrap();
    }
    write!(values, "x{}", AFTER - steady).unwrap();
    values
}

pub(super) fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
