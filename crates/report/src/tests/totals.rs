//! Tests that totals cover the whole log, whichever requests the speed figures cover.

use proptest::prelude::*;

use super::*;
use crate::window::Trim;

/// A call that starts `millis` after the start of the log.
#[derive(Clone, Debug)]
struct LoggedCall {
    millis: u64,
    outcome: &'static str,
    model: &'static str,
    ttft: f64,
    tokens: u32,
    micros: u32,
    is_reported: bool,
}

impl LoggedCall {
    fn line(&self) -> String {
        let Self { millis, outcome, model, ttft, tokens, micros, is_reported } = self;
        let (minutes, seconds, millis) = (millis / 60_000, millis / 1_000 % 60, millis % 1_000);
        let source = if *is_reported { "reported" } else { "estimated" };
        let usage = if *is_reported {
            format!(r#""usage":{{"input":{tokens},"output":{tokens}}},"#)
        } else {
            String::new()
        };
        format!(
            r#"{{"time":"2026-01-01T10:{minutes:02}:{seconds:02}.{millis:03}Z","outcome":"{outcome}","times":{{"first_token":{ttft},"last_token":1,"end":1}},"call":{{"labels":{{"model":"{model}","stream":true}},"request":{{"prompt_bytes":{}}},{usage}"output":{{"tokens":{tokens},"counted":{tokens}}},"response":{{"finish_reasons":["stop"]}},"cost":{{"amount":{},"currency":"USD","source":"{source}"}}}}}}"#,
            4 * tokens,
            f64::from(*micros) / 1e6,
        ) + "\n"
    }
}

fn calls() -> impl Strategy<Value = Vec<LoggedCall>> {
    let outcome = prop_oneof![4 => Just("ok"), 1 => Just("error"), 1 => Just("cancelled")];
    let model = prop_oneof![Just("m"), Just("n")];
    let call = (
        0..1_800_000_u64,
        outcome,
        model,
        0.01..5.0_f64,
        0..500_u32,
        0..1_000_000_u32,
        any::<bool>(),
    );
    let call = call.prop_map(|(millis, outcome, model, ttft, tokens, micros, is_reported)| {
        LoggedCall { millis, outcome, model, ttft, tokens, micros, is_reported }
    });
    proptest::collection::vec(call, 1..300)
}

/// Returns every total of a report by name: requests, outcomes, tokens and cost of all calls and of each group.
fn totals(report: &Value) -> BTreeMap<String, f64> {
    let mut totals = BTreeMap::new();
    let all = [("all".to_owned(), &report["subjects"][0]["statistics"])];
    let groups = report["groups"].as_array().unwrap().iter();
    let groups = groups.map(|group| (group["key"].to_string(), &group["statistics"]));
    for (name, statistics) in all.into_iter().chain(groups) {
        let mut add = |key: &str, value: &Value| {
            totals.insert(format!("{name} {key}"), value.as_f64().unwrap());
        };
        add("requests", &statistics["requests"]);
        for section in ["outcomes", "tokens"] {
            for (key, value) in statistics[section].as_object().unwrap() {
                add(&format!("{section}.{key}"), value);
            }
        }
        let cost = &statistics["cost"]["USD"];
        add("cost", &cost["total"]);
        add("cost.n", &cost["n"]);
    }
    totals
}

fn steady() -> Request {
    Request { warmup: Trim::Auto, ramp_down: Trim::Auto, ..Request::default() }
}

fn of(calls: &[LoggedCall], request: Request) -> Value {
    json(&calls.iter().map(LoggedCall::line).collect::<String>(), request)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No total falls when lines are added, wherever their times are, and whatever warm-up and ramp-down are cut.
    #[test]
    fn no_total_falls_when_lines_are_added(calls in calls(), part in any::<prop::sample::Index>()) {
        let first = part.index(calls.len()) + 1;
        let (some, all) = (totals(&of(&calls[..first], steady())), totals(&of(&calls, steady())));
        for (name, before) in some {
            prop_assert!(all[&name] >= before, "{name}: {before}, then {}", all[&name]);
        }
    }

    /// The cuts of warm-up and ramp-down change no total.
    #[test]
    fn cuts_change_no_total(calls in calls(), cut in 0_u64..100) {
        let cut = Trim::Requests(cut);
        let whole = Request { warmup: Trim::None, ramp_down: Trim::None, ..Request::default() };
        let trimmed = Request { warmup: cut, ramp_down: cut, ..Request::default() };
        prop_assert_eq!(totals(&of(&calls, whole)), totals(&of(&calls, trimmed)));
    }
}

/// 200 slow calls of a warm-up and 800 fast ones.
fn run() -> Vec<LoggedCall> {
    let call = |n: u64| LoggedCall {
        millis: n * 100,
        outcome: if n % 10 == 9 { "error" } else { "ok" },
        model: "m",
        ttft: if n < 200 { 0.9 } else { 0.2 },
        tokens: 10,
        micros: 1_000,
        is_reported: true,
    };
    (0..1_000).map(call).collect()
}

#[test]
fn cuts_apply_to_speed_figures_only() {
    let report = of(&run(), steady());
    let window = &report["runs"][0]["window"];
    assert!(window["cut_before"].as_u64().unwrap() >= 200, "{window}");
    let all = &report["subjects"][0]["statistics"];
    assert_eq!(all["requests"], 1_000);
    assert_eq!(all["error_rate"], 0.1);
    assert_eq!(all["tokens"]["generated"], 10_000.0);
    assert_eq!(all["cost"]["USD"]["total"], 1.0);
    assert_eq!(all["finish"]["n"], 1_000);
    let counted = window["counted"].as_u64().unwrap();
    assert!(all["ttft"]["n"].as_u64().unwrap() <= counted, "{all}");
    assert_eq!(all["ttft"]["p99"], 0.2, "no call of the warm-up");
    let rate = report["subjects"][0]["throughput"]["requests"].as_f64().unwrap();
    let length = window["length"].as_f64().unwrap();
    assert!((rate - counted as f64 / length).abs() < 1e-9, "{rate}");
}

#[test]
fn estimates_are_marked_and_kept_apart() {
    let call = |is_reported, micros| LoggedCall {
        millis: 0,
        outcome: "ok",
        model: "m",
        ttft: 0.1,
        tokens: 100,
        micros,
        is_reported,
    };
    let report = of(&[call(true, 750_000), call(false, 250_000)], Request::default());
    let all = &report["subjects"][0]["statistics"];
    let tokens = &all["tokens"];
    assert_eq!((&tokens["input"], &tokens["input_estimated"]), (&100.0.into(), &100.0.into()));
    assert_eq!((&tokens["output"], &tokens["output_estimated"]), (&100.0.into(), &100.0.into()));
    let cost = &all["cost"]["USD"];
    assert_eq!((&cost["total"], &cost["reported"]), (&1.0.into(), &0.75.into()));
    assert_eq!(cost["reported_share"], 0.75);
}

#[test]
fn cancelled_calls_have_no_finish_reason_and_no_quality() {
    let mut calls = run();
    for call in calls.iter_mut().step_by(2) {
        call.outcome = "cancelled";
    }
    let report = of(&calls, Request::default());
    let all = &report["subjects"][0]["statistics"];
    assert_eq!((&all["outcomes"]["cancelled"], &all["finish"]["n"]), (&500.into(), &500.into()));
}
