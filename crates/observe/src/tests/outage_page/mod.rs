//! Generates `docs/reference/outages.md` and tests of alerts, and tests that they are current.
//!
//! Each row of the page is a call that is played at literal timestamps. The page shows its record and its SLO results.
//! promtool runs the YAML file: it repeats the metrics of each call every second and checks the alerts that the page
//! names. `alerts/tests/quiet.yaml` has ordinary days without alerts. `UPDATE_FIXTURES=1` writes these files.

mod call;
mod monitoring;
mod promtool;
mod quiet;
mod rows;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::endings::{Stage, facts_of};
use call::{Call, KNOWN_PATH, SHARED_PATH};
use rows::{Firing, Kind, Row, rows};
use tokengauge_measure::record::{Record, Verdict};
use tokengauge_measure::slo::{CountingRules, Objective, Scope, Sli};
use tokengauge_types::label::Label;

const PAGE: &str = "docs/reference/outages.md";
const ALERT_TESTS: &str = "alerts/tests/outages.yaml";
const SLO_TESTS: &str = "alerts/tests/outages-slo.yaml";
const QUIET_TESTS: &str = "alerts/tests/quiet.yaml";
const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->";

/// The SLIs of the page with its thresholds. The first seven are columns. The last two always have the result of
/// `output_rate` on this page.
const SLIS: [(&str, Sli); 9] = [
    ("availability", Sli::Availability),
    ("ttft", Sli::Ttft(Duration::from_millis(500))),
    ("first_visible", Sli::FirstVisible(Duration::from_millis(800))),
    ("output_rate", Sli::OutputRate(30.0)),
    ("total_rate", Sli::TotalRate(10.0)),
    ("stall_free", Sli::StallFree),
    ("duration", Sli::Duration(Duration::from_secs(10))),
    ("inter_token", Sli::InterToken(Duration::from_millis(40))),
    ("tokens_above_rate", Sli::TokensAboveRate(30.0)),
];
const COLUMNS: usize = 7;

/// Counters that every call moves.
const ALWAYS: [&str; 2] = ["requests_finished", "requests_started"];

fn stage() -> Stage {
    let objective = |(name, indicator)| Objective {
        name: Label::from_trusted(name),
        indicator,
        target: 0.9,
        window: Duration::from_secs(86_400),
        scope: Scope::default(),
        counting: CountingRules::default(),
    };
    Stage::with(SLIS.map(objective).into(), &["gpt-4o"])
}

fn played(play: impl Fn(&mut Call), stream: bool, path: &'static str) -> Call {
    let mut call = Call::new(stage(), stream, path);
    play(&mut call);
    assert_eq!(call.stage.requests.in_flight(), 0, "the call has ended");
    call
}

/// Returns the rows of streams, or of calls without a stream.
fn rows_of(stream: bool) -> Vec<Row> {
    let applies = |row: &Row| stream || row.kind == Kind::Both;
    rows().into_iter().filter(applies).collect()
}

fn table(stream: bool) -> String {
    let mut table = String::from("| what breaks | status | outcome | error source | error.type |");
    for name in columns(stream) {
        write!(table, " {name} |").unwrap();
    }
    table.push_str(" tokens | alerts |\n");
    let columns = table.matches('|').count() - 1;
    writeln!(table, "|{}", "---|".repeat(columns)).unwrap();
    for row in std::iter::once(Row::healthy()).chain(rows_of(stream)) {
        let results = line(&row, &played(&row.play, stream, KNOWN_PATH), stream);
        writeln!(table, "{results} {} |", links(&row.alerts[usize::from(!stream)])).unwrap();
    }
    table
}

/// Returns the SLIs that are columns and judge such calls.
fn columns(stream: bool) -> impl Iterator<Item = &'static str> {
    let judges =
        move |sli: &&str| stream || matches!(*sli, "availability" | "total_rate" | "duration");
    SLIS.iter().take(COLUMNS).map(|(name, _)| *name).filter(judges)
}

/// Returns the cells of a row that its call shows.
fn line(row: &Row, call: &Call, stream: bool) -> String {
    let records = call.stage.records.lock().unwrap();
    let [record] = records.as_slice() else { panic!("{} records", records.len()) };
    let metrics = call.stage.metrics();
    let facts = facts_of(record, &metrics);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let mut line = format!(
        "| {} | {} | {} | {} | {} |",
        row.breaks,
        or_dash(facts.status),
        facts.outcome,
        facts.error_source,
        or_dash(facts.error),
    );
    for name in columns(stream) {
        let word = match verdict(record, name) {
            Some(Verdict::Good) => "good",
            Some(Verdict::Bad) => "**bad**",
            Some(Verdict::Excluded) => "–",
            None => panic!("{name} does not judge {:?}", row.breaks),
        };
        write!(line, " {word} |").unwrap();
    }
    for same in ["inter_token", "tokens_above_rate"] {
        assert_eq!(verdict(record, same), verdict(record, "output_rate"), "{same}: {}", row.breaks);
    }
    let tokens = Tokens::from_metrics(&metrics, call.is_unobserved);
    let has_stalled = stream && verdict(record, "stall_free") == Some(Verdict::Bad);
    assert_eq!(counters(&metrics), tokens.counters(stream, has_stalled), "{}", row.breaks);
    write!(line, " {} |", tokens.name()).unwrap();
    line
}

fn verdict(record: &Record, sli: &str) -> Option<Verdict> {
    let verdicts = &record.call.as_ref().expect("the call is known").verdicts;
    verdicts.iter().find(|(known, _)| known.as_str() == sli).map(|(_, verdict)| *verdict)
}

/// Tokens that a call moved in `tokengauge.tokens`.
#[derive(Clone, Copy, Debug)]
enum Tokens {
    None,
    Input,
    Both,
    /// Input, and the observed part of the output.
    Partial,
}

impl Tokens {
    fn from_metrics(metrics: &str, is_unobserved: bool) -> Self {
        let moved = |kind: &str| {
            let kind = format!("gen_ai_token_type=\"{kind}\"");
            let mut series =
                metrics.lines().filter(|line| line.starts_with("tokengauge_tokens_total"));
            series.any(|line| line.contains(&kind) && !line.ends_with(" 0"))
        };
        match (moved("input"), moved("output")) {
            (false, false) => Self::None,
            (true, false) => Self::Input,
            (true, true) if is_unobserved => Self::Partial,
            (true, true) => Self::Both,
            (false, true) => panic!("a response without a request"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "–",
            Self::Input => "input",
            Self::Both => "both",
            Self::Partial => "input, part of output",
        }
    }

    /// Returns the counters that the page names for such calls.
    fn counters(self, stream: bool, has_stalled: bool) -> BTreeSet<String> {
        let mut names: BTreeSet<_> = ALWAYS.into();
        names.extend(has_stalled.then_some("stream_stalls"));
        match self {
            Self::None => {}
            Self::Input => names.extend(["tokens"]),
            Self::Partial => {
                names.extend(["tokens", "normalized_tokens"]);
                names.extend(stream.then_some("requests_unrated"));
            }
            Self::Both => {
                names.extend(["tokens", "choices_finished", "normalized_tokens"]);
                names.extend(stream.then_some("requests_rated"));
            }
        }
        names.into_iter().map(str::to_owned).collect()
    }
}

/// Returns the counters of events that the call moved, without prefix and suffix. The columns of SLIs show `slo_events`.
fn counters(metrics: &str) -> BTreeSet<String> {
    let moved = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?.strip_prefix("tokengauge_")?.strip_suffix("_total")?;
        let is_other =
            name.starts_with("self_") || name.ends_with("_seconds") || name == "slo_events";
        (!is_other && value != "0").then(|| name.to_owned())
    });
    moved.collect()
}

/// Returns links to alerts with their minutes, in the order in which they fire.
fn links(alerts: &[Firing]) -> String {
    let mut alerts = alerts.to_vec();
    alerts.sort_unstable_by_key(|(name, minutes)| (*minutes, *name));
    let links: Vec<_> =
        alerts.iter().map(|(name, minutes)| format!("[{name}] {minutes} min")).collect();
    if links.is_empty() { "–".to_owned() } else { links.join(", ") }
}

fn generated() -> String {
    let mut text = format!(
        "## Streams\n\n{}\n## Calls without a stream\n\n{}\n## The proxy and its monitoring\n\n{}\n\
         ## Alerts on SLOs\n\n\
         For each SLO with the result **bad** and a target of 99 %:\n\n\
         | healthy calls before | alerts |\n|---|---|\n{}\n",
        table(true),
        table(false),
        monitoring::table(),
        slo_alerts(),
    );
    let names: BTreeSet<&str> =
        text.split('[').filter_map(|rest| Some(rest.split_once(']')?.0)).collect();
    let targets: String =
        names.iter().map(|name| format!("[{name}]: ../runbooks/{name}.md\n")).collect();
    text.push_str(&targets);
    text
}

fn slo_alerts() -> String {
    promtool::SLO_ALERTS
        .iter()
        .map(|(history, _, alerts)| format!("| {history} | {} |\n", links(alerts)))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares the content of a file, or writes it.
#[expect(clippy::disallowed_methods, reason = "a variable of the test, not of the program")]
fn check(file: &str, current: &str, expected: &str) {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(root().join(file), expected).unwrap();
    } else {
        assert!(
            current == expected,
            "{file} is not current: UPDATE_FIXTURES=1 cargo test -p tokengauge-observe outage_page"
        );
    }
}

#[test]
fn the_page_is_current() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a generated part");
    let (_, after) = rest.split_once(END).expect("the generated part has an end");
    check(PAGE, &page, &format!("{before}{BEGIN}{}{END}{after}", generated()));
}

#[test]
fn the_tests_of_alerts_are_current() {
    for (file, expected) in [
        (ALERT_TESTS, promtool::document()),
        (SLO_TESTS, promtool::slo_document()),
        (QUIET_TESTS, quiet::document()),
    ] {
        let current = fs::read_to_string(root().join(file)).unwrap_or_default();
        check(file, &current, &expected);
    }
}

#[test]
fn an_api_known_by_body_has_the_results_of_the_page() {
    let selection = promtool::Selection::new();
    for stream in [true, false] {
        for row in rows_of(stream) {
            let [by_path, by_body] = [KNOWN_PATH, SHARED_PATH].map(|path| {
                let call = played(&row.play, stream, path);
                (line(&row, &call, stream), selection.values(&call))
            });
            assert_eq!(by_path, by_body, "streams: {stream}");
        }
    }
}
