//! Tests of periods, calendar groups and CSV.

use super::*;
use crate::period;

/// Two teams from 2026-09-30 to 2026-11-01, one call per team each six hours, at 0.25 USD and 0.5 USD.
fn autumn() -> String {
    let mut text = String::new();
    let days = (30..=30).map(|day| (9, day)).chain((1..=31).map(|day| (10, day))).chain([(11, 1)]);
    for (month, day) in days {
        for hour in [0, 6, 12, 18] {
            for (team, cost) in [("team-a", 0.25), ("=team,b", 0.5)] {
                text += &format!(
                    r#"{{"time":"2026-{month:02}-{day:02}T{hour:02}:00:00Z","outcome":"ok","times":{{"end":1}},"identity":{{"tenant":"{team}"}},"call":{{"labels":{{"model":"m"}},"usage":{{"input":5,"output":7}},"output":{{"tokens":7}},"cost":{{"amount":{cost},"currency":"USD","source":"reported"}}}}}}"#
                );
                text.push('\n');
            }
        }
    }
    text
}

fn evaluated(request: Request) -> Result<Report, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, autumn()).unwrap();
    evaluate(&Request { files: vec![File { path, side: Side::Neither }], ..request })
}

fn by(names: &[&str]) -> Vec<Dimension> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn between(since: &str, until: &str) -> StartRange {
    let bound = |text: &str| Some(text.parse().unwrap());
    period::range(bound(since), bound(until), tokengauge_types::clock::WallTime::from_unix_nanos(0))
        .unwrap()
}

#[test]
fn a_period_selects_the_calls_of_a_month() {
    let only = vec!["tenant=team-a".parse().unwrap()];
    let period = between("2026-10", "2026-11");
    let report = evaluated(Request { only, period, ..Request::default() }).unwrap();
    let all = &report.subjects[0].statistics;
    // October has 31 days with four calls of the team each.
    assert_eq!((all.requests, all.cost["USD"].total), (124, 31.0));
    assert_eq!(report.lines.outside, 16);
    let text = text::render(&report);
    let note = "Period: since 2026-10-01T00:00:00.000Z until 2026-11-01T00:00:00.000Z; 16 calls are outside";
    assert!(text.contains(note) && html::render(&report).contains(note), "{text}");
}

#[test]
fn calls_without_a_known_cost_are_named_if_others_have_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let line = |model: &str, cost: &str| {
        format!(
            r#"{{"time":"2026-01-01T00:00:00Z","outcome":"ok","times":{{"end":1}},"call":{{"labels":{{"model":"{model}"}},"usage":{{"input":5}}{cost}}}}}"#
        )
    };
    let priced = line("m", r#","cost":{"amount":0.00123,"currency":"USD"}"#);
    let notes = |lines: [String; 2]| {
        fs::write(&path, lines.join("\n")).unwrap();
        let files = vec![File { path: path.clone(), side: Side::Neither }];
        text::render(&evaluate(&Request { files, ..Request::default() }).unwrap())
    };
    let text = notes([priced, line("new", "")]);
    assert!(text.contains("1 call with tokens has no known cost"), "{text}");
    assert!(text.contains("0.001230 USD"), "{text}");
    assert!(!notes([line("m", ""), line("n", "")]).contains("no known cost"));
}

#[test]
fn a_period_without_calls_is_an_error_that_names_the_calls() {
    let error = evaluated(Request { period: between("2025-10", "2025-11"), ..Request::default() });
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        error,
        "no call since 2025-10-01T00:00:00.000Z until 2025-11-01T00:00:00.000Z; the calls of the files started from \
         2026-09-30T00:00:00.000Z to 2026-11-01T18:00:00.000Z"
    );
}

#[test]
fn groups_follow_the_calendar() {
    let report = evaluated(Request { by: by(&["tenant", "month"]), ..Request::default() }).unwrap();
    let keys: Vec<(&str, u64)> = report
        .groups
        .iter()
        .map(|group| (group.key["month"].as_str(), group.statistics.requests))
        .collect();
    let expected = ["2026-09", "2026-10", "2026-11"]
        .map(|month| (month, if month == "2026-10" { 124 } else { 4 }));
    assert_eq!(keys, expected.map(|it| [it; 2]).concat());
    let report = evaluated(Request { by: by(&["day"]), ..Request::default() }).unwrap();
    let days: Vec<&str> = report.groups.iter().map(|group| group.key["day"].as_str()).collect();
    assert_eq!((days.len(), days[0], days[32]), (33, "2026-09-30", "2026-11-01"));
    assert!(days.is_sorted());
}

#[test]
fn csv_has_a_row_per_group() {
    let report = evaluated(Request { by: by(&["month", "tenant"]), ..Request::default() }).unwrap();
    let csv = csv::render(&report);
    let rows: Vec<&str> = csv.split_terminator("\r\n").collect();
    assert_eq!(rows.len(), 7);
    assert!(
        rows[0].starts_with(
            "month,tenant,requests,operations,ok,error,cancelled,timeout,truncated,rejected,error_rate,tokens_input,\
             tokens_input_estimated,tokens_output,tokens_output_estimated,tokens_generated,tokens_reasoning,\
             tokens_cached,tokens_cache_written,tokens_cache_written_1h,cost_USD,cost_reported_USD,output_tps_n,"
        ),
        "{}",
        rows[0]
    );
    assert!(
        rows[3].starts_with("2026-10,team-a,124,,124,0,0,0,0,0,0,620,,868,,868,,,,,31,31,"),
        "{}",
        rows[3]
    );
    assert!(rows[4].starts_with("2026-10,\"'=team,b\",124,"), "{}", rows[4]);
    let columns = |row: &str| row.replace("=team,b", "").matches(',').count();
    assert!(rows.iter().all(|row| columns(row) == columns(rows[0])), "{csv}");
}

#[test]
fn plots_show_cost_over_calendar_time() {
    let page = html::render(&evaluated(Request::default()).unwrap());
    assert!(page.contains("Cost per hour (USD)"));
    assert!(page.contains(">2026-10-08<") || page.contains(">2026-10-11<"), "calendar labels");
    assert!(!page.contains("00000 s<"), "no seconds since the start");
}

/// A log with little load, such as one call per six hours, has no saturation point.
#[test]
fn an_idle_log_has_no_saturation_point() {
    let report = evaluated(Request::default()).unwrap();
    let run = serde_json::to_value(&report.runs[0]).unwrap();
    assert_eq!(run["saturation"].get("knee"), None, "{run}");
    assert!(!text::render(&report).contains("Saturation point: 0"));
}
