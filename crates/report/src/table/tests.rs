use super::*;
use crate::Request;
use crate::read::{File, Streams, read};
use crate::row::Side;

/// Four requests of two models, with figures computed by hand.
const LOG: &str = r#"
{"time":"2026-01-01T00:00:00Z","outcome":"ok","times":{"first_token":0.1,"last_token":1,"end":1},"call":{"labels":{"model":"m","stream":true},"rates":{"output":10,"time_per_output_token":0.1},"output":{"tokens":10},"usage":{"input":5,"output":12,"reasoning":2},"response":{"finish_reasons":["stop"]},"choices":{"complete":1},"cost":{"amount":0.5,"currency":"USD","source":"reported"}}}
{"time":"2026-01-01T00:00:01Z","outcome":"ok","times":{"first_token":0.3,"last_token":3,"end":3},"call":{"labels":{"model":"m","stream":true},"rates":{"output":30},"output":{"tokens":30},"response":{"finish_reasons":["length"]},"choices":{"unfinished":1},"cost":{"amount":1.5,"currency":"USD"}}}
{"time":"2026-01-01T00:00:02Z","outcome":"error","times":{"end":0.01},"call":{"labels":{"model":"m","stream":true},"rates":{"output":900}}}
{"time":"2026-01-01T00:00:03Z","outcome":"cancelled","times":{"first_token":0.2,"end":9},"call":{"labels":{"model":"n","stream":true},"cost":{"amount":2,"currency":"EUR"}}}
"#;

fn tables_of(text: &str) -> (Vec<String>, Vec<Statistics>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, text).unwrap();
    let (files, by) = (vec![File { path, side: Side::Neither }], vec!["model".parse().unwrap()]);
    let log = read(&Request { files, by, ..Request::default() }, Streams::new()).unwrap();
    let names: Vec<String> = log.groups.iter().map(str::to_owned).collect();
    let tables = tables(&log, names.len(), |row| Some(row.group), |_| true);
    (names, tables)
}

#[test]
fn matches_figures_computed_by_hand() {
    let (names, tables) = tables_of(LOG);
    assert_eq!(names, ["m", "n"]);
    let m = &tables[0];
    assert_eq!(m.requests, 3);
    assert_eq!(m.outcomes, BTreeMap::from([("ok", 2), ("error", 1)]));
    assert_eq!(m.error_rate, Some(1.0 / 3.0));
    // The output rate and the duration of the failed request do not count.
    let tps = m.output_tps.unwrap();
    assert_eq!((tps.n, tps.mean, tps.p50), (2, 20.0, 20.0));
    assert!((tps.p95 - 29.0).abs() < 1e-12);
    assert_eq!(m.itl.unwrap().n, 1, "a request without the figure is left out");
    assert_eq!(m.duration.map(|of| of.mean), Some(2.0));
    let tokens = Tokens {
        generated: Some(40.0),
        input: Some(5.0),
        input_estimated: None,
        output: Some(12.0),
        output_estimated: Some(30.0),
        reasoning: Some(2.0),
        cached: None,
        cache_written: None,
        cache_written_1h: None,
    };
    assert_eq!(m.tokens, tokens);
    let cost = Cost {
        n: 2,
        total: 2.0,
        reported: 0.5,
        reported_share: Some(0.25),
        mean: Some(1.0),
        per_million_tokens: Some(50_000.0),
    };
    assert_eq!(m.cost, BTreeMap::from([("USD".to_owned(), cost)]));
    assert_eq!(m.finish.as_ref().unwrap().shares.get("stop"), Some(&0.5));
    let quality = m.quality.as_ref().unwrap();
    assert_eq!((quality.n, quality.shares["complete"], quality.shares["empty"]), (2, 0.5, 0.0));
}

#[test]
fn cancelled_requests_have_no_error_rate_and_no_times() {
    let (_, tables) = tables_of(LOG);
    let n = &tables[1];
    assert_eq!((n.requests, n.error_rate, n.duration, n.ttft), (1, None, None, None));
    assert_eq!(n.cost["EUR"].per_million_tokens, None);
    assert_eq!((&n.finish, &n.quality), (&None, &None));
}

#[test]
fn throughput_covers_the_window() {
    let mut rows = [Row::new(0, Outcome::Ok); 3];
    rows[1].set(NumericField::Generated, Some(40.0));
    let throughput = Throughput::from_rows(rows.iter(), 4.0).unwrap();
    assert_eq!((throughput.requests, throughput.output_tokens), (0.75, Some(10.0)));
    assert_eq!(Throughput::from_rows(rows.iter(), 0.0), None);
}

#[test]
fn operations_leave_repetitions_out() {
    let line = |attempts: &str| {
        format!(
            r#"{{"time":"2026-01-02T03:04:05Z","outcome":"ok",{attempts}"agent":{{"name":"claude-cli"}},"call":{{"labels":{{"model":"m"}}}}}}"#
        )
    };
    let unknown = line("") + "\n";
    assert_eq!(tables_of(&unknown).1[0].operations, None);
    let attempts = |count| line(&format!(r#""attempts":{{"resend_count":{count}}},"#));
    let log = [line(""), attempts(0), attempts(1), attempts(2)].join("\n") + "\n";
    let table = &tables_of(&log).1[0];
    assert_eq!((table.requests, table.operations), (4, Some(2)));
}
