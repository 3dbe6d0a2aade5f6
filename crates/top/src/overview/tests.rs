use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::histogram::Histogram;
use crate::testing::{NOW, document, source, unreachable};

fn merged(documents: &[Value]) -> Overview {
    let sources: Vec<Source> = documents
        .iter()
        .enumerate()
        .map(|(nth, it)| source(&format!("10.0.0.{nth}:1"), it.clone()))
        .collect();
    Overview::merge(&sources, 0)
}

fn json_of(overview: &Overview) -> Value {
    serde_json::to_value(overview).unwrap()
}

fn times() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1e-3..1e2_f64, 1..60)
}

proptest! {
    #[test]
    fn percentiles_are_those_of_the_union(a in times(), b in times(), c in times()) {
        let overview = merged(&[document("a", &a, 0), document("b", &b, 0), document("c", &c, 0)]);
        let union = Histogram::of(a.into_iter().chain(b).chain(c));
        let ttft = overview.now.time_to_first_token_seconds;
        prop_assert_eq!((ttft.p50, ttft.p95), (union.quantile(0.5), union.quantile(0.95)));
        let model = overview.models.iter().find(|model| model.model == Some(Text::new("gpt-4o")));
        prop_assert_eq!(model.unwrap().time_to_first_token_seconds, ttft);
    }

    #[test]
    fn the_order_of_processes_does_not_matter(
        times in prop::collection::vec(times(), 1..6),
        failed in 0_u64..3,
        seed in any::<prop::sample::Index>(),
    ) {
        let mut sources: Vec<Source> = times
            .iter()
            .enumerate()
            .map(|(nth, times)| source(&format!("10.0.0.{nth}:1"), document(&format!("pod-{nth}"), times, failed)))
            .chain([unreachable("10.0.1.1:1")])
            .collect();
        let expected = json_of(&Overview::merge(&sources, 0));
        let at = seed.index(sources.len());
        sources.rotate_left(at);
        prop_assert_eq!(json_of(&Overview::merge(&sources, 0)), expected.clone());
        sources.reverse();
        prop_assert_eq!(json_of(&Overview::merge(&sources, 0)), expected);
    }
}

#[test]
fn one_process_keeps_its_own_values() {
    let now = merged(&[document("a", &[0.1, 0.2], 0)]).now;
    assert_eq!(now.time_to_first_token_seconds.p95, Some(0.911));
    assert_eq!(now.upstream_error_share, Some(0.02));
    assert_eq!(now.stream_output_tokens_per_second.p10, Some(41.2));
}

#[test]
fn counts_and_rates_are_sums_and_unreachable_processes_have_no_part() {
    let (a, b) = (document("a", &[0.1; 30], 3), document("b", &[0.1; 10], 0));
    let mut gone = source("10.0.0.9:1", document("c", &[9.0; 50], 50));
    gone.failure = unreachable("x").failure;
    let sources = [source("10.0.0.1:1", a), source("10.0.0.2:1", b), gone];
    let overview = Overview::merge(&sources, 0);
    let now = &overview.now;
    assert_eq!(now.output_tokens_per_second, Some(530.2));
    assert_eq!((now.in_flight, now.stalled), (Some(8), Some(2)));
    assert_eq!(
        now.upstream_error_share,
        Some(3.0 / 44.0),
        "of 30 + 10 requests and 2 × 2 of the other model"
    );
    assert_eq!(Some(now.cost_per_hour[0].amount), Some(2.4));
    assert_eq!((overview.streams.len(), overview.unreachable()), (8, 1));
    let gone = &overview.processes[2];
    assert_eq!((gone.name.as_str(), gone.requests_per_second), ("c", None));
    assert_eq!(overview.sessions.len(), 1);
    assert_eq!((overview.sessions[0].calls, overview.sessions[0].cost.len()), (24, 1));
}

#[test]
fn without_a_document_everything_is_undefined() {
    let overview = Overview::merge(&[unreachable("10.0.0.1:1")], 0);
    assert!(!overview.has_data());
    let now = json_of(&overview)["now"].clone();
    assert_eq!(now["requests_per_second"], Value::Null);
    assert_eq!(now["time_to_first_token_seconds"], json!({"p50": null}));
    assert_eq!(overview.at_unix_ms, None);
    let empty = merged(&[json!({})]);
    assert!(empty.now.in_flight.is_none() && empty.models.is_empty() && empty.slos.is_empty());
}

#[test]
fn intervals_count_back_from_the_last_one_of_each_process() {
    let mut late = document("b", &[0.1; 4], 0);
    late["history"]["last_interval"] = json!(9011);
    late["at_unix_ms"] = json!(NOW + 55_000);
    let model = |documents: &[Value]| {
        let models = merged(documents).models;
        models.into_iter().find(|model| model.model == Some(Text::new("gpt-4o"))).unwrap()
    };
    let rate = |documents: &[Value]| Some(model(documents).output_tokens_per_second);
    assert_eq!(
        rate(&[document("a", &[0.1; 4], 0)]),
        Some(20.0),
        "1,200 tokens in 60 s; older intervals do not count"
    );
    assert_eq!(
        rate(&[late.clone(), document("a", &[0.1; 4], 0)]),
        Some(40.0),
        "55 s before the last interval counts"
    );
    late["history"]["last_interval"] = json!(9012);
    assert_eq!(rate(&[late]), Some(0.0), "60 s before does not");
}

#[test]
fn a_process_that_has_just_started_divides_by_its_uptime() {
    let mut young = document("a", &[0.1; 6], 0);
    // The process started 7 s before the start of the last interval, which takes 5 s.
    young["process"]["uptime_seconds"] = json!(7.0);
    let model = &merged(&[young]).models[0];
    assert_eq!(Some(model.output_tokens_per_second), Some(100.0));
}

#[test]
fn conditions_of_several_processes_are_one() {
    let mut worse = document("b", &[], 0);
    worse["conditions"] = json!([
        {"id": "x", "severity": "warning", "text": "x"},
        {"id": "ttft:openai:gpt-4o", "severity": "warning", "text": "less", "since_unix_ms": 5},
    ]);
    let conditions = merged(&[document("a", &[], 0), worse]).conditions;
    let [ttft, other] = conditions.as_slice() else { panic!("{conditions:?}") };
    assert!(ttft.text.as_str().contains("TTFT p95 4.2 s"), "the text of the highest severity");
    assert_eq!((ttft.since_unix_ms, ttft.processes.len()), (Some(5), 2));
    assert_eq!((other.text.as_str(), other.since_unix_ms), ("x", None));
}

#[test]
fn budgets_come_from_the_sums_if_they_explain_each_process() {
    let slo = |good: u64, bad: u64, left: f64| {
        json!({"slos": [{"name": "ttft", "target": 0.9, "good": good, "bad": bad, "error_budget_remaining": left,
            "burn_rate": {"5m": bad as f64}}]})
    };
    let overview = merged(&[slo(90, 10, 0.0), slo(300, 0, 1.0)]);
    let [merged_slo] = overview.slos.as_slice() else { panic!("{:?}", overview.slos) };
    let budget = merged_slo.error_budget_remaining.unwrap();
    assert!((budget.remaining - 0.75).abs() < 1e-9 && !budget.is_lowest, "{budget:?}");
    let burn = &merged_slo.burn_rate[&Text::new("5m")];
    assert_eq!((burn.burn_rate, burn.process.as_str()), (10.0, "10.0.0.0:1"));
    let other_window = merged(&[slo(90, 10, 0.3), slo(300, 0, 1.0)]);
    let budget = other_window.slos[0].error_budget_remaining.unwrap();
    assert_eq!((budget.remaining, budget.is_lowest), (0.3, true));
}

#[test]
fn names_are_unique() {
    let overview = merged(&[document("a", &[], 0), document("a", &[], 0), document("b", &[], 0)]);
    let names: Vec<&str> = overview.processes.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a (10.0.0.0:1)", "a (10.0.0.1:1)", "b"]);
}

#[test]
fn names_the_process_that_deviates() {
    let fast = vec![0.3; 20];
    let slow = vec![0.8; 20];
    let named = |documents: &[Value]| {
        let deviations = merged(documents).deviations;
        deviations
            .into_iter()
            .map(|it| (it.process.as_str().to_owned(), it.measure))
            .collect::<Vec<_>>()
    };
    let (a, b, c) = (document("a", &fast, 0), document("b", &fast, 0), document("c", &slow, 0));
    let ttft = Measure::TimeToFirstTokenP95Seconds;
    assert_eq!(named(&[a.clone(), b.clone(), c.clone()]), [("c".to_owned(), ttft)]);
    assert_eq!(named(&[a.clone(), c.clone()]), [], "two processes have no majority");
    assert_eq!(
        named(&[a.clone(), b.clone(), document("c", &slow[1..], 0)]),
        [],
        "too few requests"
    );
    assert_eq!(named(&[a.clone(), b.clone(), document("c", &[0.5; 20], 0)]), [], "less than twice");
    let failing = document("c", &fast, 2);
    assert_eq!(named(&[a.clone(), b.clone(), failing]), [("c".to_owned(), Measure::FailedShare)]);
    let mut slow_rate = document("c", &fast, 0);
    slow_rate["history"]["groups"][0]["intervals"][2][1]["rate"] =
        Histogram::of(vec![30.0; 20]).json();
    assert_eq!(
        named(&[a, b, slow_rate]),
        [("c".to_owned(), Measure::StreamOutputTokensPerSecondP50)]
    );
}

#[test]
fn stalled_streams_come_first_and_slow_clients_are_named() {
    let streams = merged(&[document("a", &[], 0)]).streams;
    let phases: Vec<_> = streams.iter().map(|it| (it.request_number, it.phase.word())).collect();
    assert_eq!(
        phases,
        [(9, "stalled"), (10, "client is slow"), (12, "streaming"), (14, "waiting")]
    );
}
