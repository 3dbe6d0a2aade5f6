//! Writes `alerts/tests/quiet.yaml`: ordinary days of a deployment, in which no alert may fire.

use super::call::{Call, KNOWN_PATH, is_counter};
use super::played;
use super::promtool::{RULE_FILES, Rates, Selection, Series, expectation, inputs, round};

const HEADER: &str = "\
# Made by crates/observe/src/tests/outage_page/quiet.rs: ordinary days in which no alert of any rule file fires.
# UPDATE_FIXTURES=1 cargo test -p tokengauge-observe outage_page
";

/// Part of the time of one process.
#[derive(Clone, Copy)]
enum Part {
    /// No series for a number of minutes. Counters begin at 0 afterwards.
    Absent(u32),
    /// Calls per second for a number of minutes.
    Calls(u32, f64),
    /// One call at the end of every hour, for a number of hours.
    Hourly(u32),
}

use Part::{Absent, Calls, Hourly};

/// The series of one process. `changed` replaces a part of their names.
struct Process {
    instance: &'static str,
    changed: Option<(&'static str, &'static str)>,
    parts: &'static [Part],
}

/// Ordinary days with the minutes that they last.
const DAYS: [(&str, u32, &[Process]); 8] = [
    ("start-up", 120, &[process(&[Absent(4), Calls(116, 1.0)])]),
    ("an idle night", 900, &[process(&[Calls(240, 1.0), Calls(480, 0.0), Calls(180, 1.0)])]),
    ("one request an hour", 1_680, &[process(&[Hourly(28)])]),
    (
        "a rolling restart",
        180,
        &[
            process(&[Calls(60, 1.0), Calls(2, 0.2), Absent(118)]),
            Process { instance: "b", ..process(&[Absent(59), Calls(121, 1.0)]) },
        ],
    ),
    (
        "a process that restarts with the same labels",
        180,
        &[process(&[Calls(60, 1.0), Absent(2), Calls(118, 1.0)])],
    ),
    (
        "a new model",
        180,
        &[
            process(&[Calls(180, 1.0)]),
            Process {
                changed: Some(("\"gpt-4o\"", "\"gpt-5\"")),
                ..process(&[Absent(60), Calls(120, 0.5)])
            },
        ],
    ),
    (
        "a route that changes its provider",
        180,
        &[
            process(&[Calls(60, 1.0), Calls(120, 0.0)]),
            Process {
                changed: Some(("\"openai\"", "\"azure.ai.openai\"")),
                ..process(&[Absent(60), Calls(120, 1.0)])
            },
        ],
    ),
    (
        "the peak of a day",
        720,
        &[process(&[
            Calls(120, 0.2),
            Calls(60, 1.0),
            Calls(60, 3.0),
            Calls(120, 6.0),
            Calls(120, 3.0),
            Calls(120, 1.0),
            Calls(120, 0.2),
        ])],
    ),
];

const fn process(parts: &'static [Part]) -> Process {
    Process { instance: "a", changed: None, parts }
}

/// Gauges that do not follow the calls.
const GAUGES: [(&str, f64); 10] = [
    ("up{}", 1.0),
    ("tokengauge_build_info{}", 1.0),
    ("process_memory_usage_bytes{}", 4e8),
    ("tokengauge_self_memory_limit_bytes{}", 1e9),
    ("tokengauge_slo_objective_ratio{tokengauge_slo=\"chat-ttft\"}", 0.99),
    ("tokengauge_rate_limit_tokens_remaining{tokengauge_limit_type=\"tokens\"}", 6e5),
    ("tokengauge_rate_limit_tokens_limit{tokengauge_limit_type=\"tokens\"}", 1e6),
    ("tokengauge_workload_drift_ratio{gen_ai_request_model=\"gpt-4o\"}", 0.05),
    ("tokengauge_budget_limit{tokengauge_budget_name=\"team\"}", 1e7),
    ("tokengauge_budget_window_seconds{tokengauge_budget_name=\"team\"}", 86_400.0),
];

/// Counters that the played call does not move, by call.
const COUNTERS: [(&str, f64); 10] = [
    ("tokengauge_requests_started_total{}", 1.0),
    (
        "tokengauge_slo_events_total{tokengauge_slo=\"chat-ttft\", tokengauge_result=\"good\"}",
        0.998,
    ),
    ("tokengauge_slo_events_total{tokengauge_slo=\"chat-ttft\", tokengauge_result=\"bad\"}", 0.002),
    ("tokengauge_budget_used_total{tokengauge_budget_name=\"team\"}", 10.0),
    ("tokengauge_cost_total{tokengauge_currency=\"USD\"}", 0.005),
    ("tokengauge_token_mismatch_counted_total{gen_ai_request_model=\"gpt-4o\"}", 50.0),
    ("tokengauge_token_mismatch_reported_total{gen_ai_request_model=\"gpt-4o\"}", 51.0),
    ("tokengauge_self_parse_errors_total{tokengauge_parse_error=\"bad_json\"}", 0.001),
    (
        "tokengauge_self_export_requests_total{tokengauge_signal=\"traces\", tokengauge_result=\"ok\"}",
        0.1,
    ),
    (
        "tokengauge_self_export_requests_total{tokengauge_signal=\"traces\", tokengauge_result=\"failed\"}",
        0.001,
    ),
];

/// Failures of an ordinary day, by call: the labels of a success, those of the failure, and its share.
const FAILURES: [([(&str, &str); 3], f64); 2] = [
    ([("=\"ok\"", "=\"error\""), ("=\"none\"", "=\"upstream\""), ("=\"200\"", "=\"500\"")], 0.01),
    ([("=\"ok\"", "=\"cancelled\""), ("=\"none\"", "=\"client\""), ("=\"200\"", "=\"200\"")], 0.05),
];

pub(super) fn document() -> String {
    let calls = ordinary_calls();
    let mut document = format!("{HEADER}{RULE_FILES}");
    for (name, minutes, processes) in DAYS {
        let series: Vec<Series> =
            processes.iter().flat_map(|process| process.series(&calls)).collect();
        document.push_str(&inputs(name, "1m", &series));
        document.push_str(&expectation(0, minutes, &[]));
    }
    document
}

/// Returns the increase of each counter by call, and each gauge at one call per second.
fn ordinary_calls() -> Rates {
    let selection = Selection::new();
    let mut rates = selection.values(&played(Call::healthy, true, KNOWN_PATH));
    for (series, value) in selection.values(&played(Call::healthy, false, KNOWN_PATH)) {
        *rates.entry(series).or_default() += value / 2.0;
    }
    for (labels, share) in FAILURES {
        let failed = rates.iter().filter(|(series, _)| series.contains("=\"ok\""));
        let failed: Vec<_> = failed
            .map(|(series, value)| {
                let replace = |name: String, (from, to): &(&str, &str)| name.replace(from, to);
                (labels.iter().fold(series.clone(), replace), value * share)
            })
            .collect();
        rates.extend(failed);
    }
    rates.extend(COUNTERS.map(|(series, value)| (with_job(series), value)));
    rates
}

fn with_job(series: &str) -> String {
    series.replace('{', "{job=\"tokengauge\", ").replace(", }", "}")
}

impl Process {
    fn series(&self, calls: &Rates) -> Vec<Series> {
        let constant =
            GAUGES.iter().map(|(series, value)| (with_job(series), self.gauge(*value, false)));
        let moving = calls.iter().map(|(series, value)| {
            let values =
                if is_counter(series) { self.counter(*value) } else { self.gauge(*value, true) };
            (series.clone(), values)
        });
        let all = constant.chain(moving);
        let is_changed =
            |series: &String| self.changed.is_none_or(|(from, _)| series.contains(from));
        all.filter(|(series, _)| is_changed(series))
            .map(|(series, values)| {
                let series = match self.changed {
                    Some((from, to)) => series.replace(from, to),
                    None => series,
                };
                (series.replace('{', &format!("{{instance=\"{}\", ", self.instance)), values)
            })
            .collect()
    }

    fn gauge(&self, value: f64, follows_calls: bool) -> String {
        let parts = self.parts.iter().map(|part| match *part {
            Absent(minutes) => format!("_x{minutes}"),
            Calls(minutes, rate) => {
                let factor = if follows_calls { rate } else { 1.0 };
                format!("{}x{}", round(value * factor), minutes - 1)
            }
            Hourly(hours) => {
                let factor = if follows_calls { 0.0 } else { 1.0 };
                format!("{}x{}", round(value * factor), hours * 60 - 1)
            }
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    fn counter(&self, by_call: f64) -> String {
        let mut total = 0.0;
        let mut values = Vec::new();
        for part in self.parts {
            match *part {
                Absent(minutes) => {
                    total = 0.0;
                    values.push(format!("_x{minutes}"));
                }
                Calls(minutes, rate) => {
                    let step = round(by_call * rate * 60.0);
                    values.push(format!("{}+{step}x{}", round(total), minutes - 1));
                    // promtool adds up rounded increments. Without the margin, a sum that is too high would look like
                    // a restart.
                    let margin = if step > 0.0 { 0.001 } else { 0.0 };
                    total += step * f64::from(minutes) + margin;
                }
                Hourly(hours) => {
                    for hour in 0..hours {
                        values.push(format!("{}x59", (by_call * f64::from(hour)).floor()));
                    }
                }
            }
        }
        values.join(" ")
    }
}
