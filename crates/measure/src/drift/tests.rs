use proptest::prelude::*;

use super::*;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::Label;

const HOUR: u64 = 3_600;

fn model_key(model: &str) -> ModelKey {
    ModelKey {
        provider: Label::from_trusted("openai"),
        model: Label::from_trusted(model),
        route: Label::from_trusted("default"),
        position: ProxyPosition::Gateway,
    }
}

fn drift(baseline: Baseline, exchanges: usize) -> Drift {
    let mut drift = Drift::default();
    drift.replace(DriftConfig { baseline, exchanges });
    drift
}

fn at(hours: u64) -> MonotonicInstant {
    MonotonicInstant::from_secs(hours * HOUR)
}

/// Records `count` requests. Their input and output lengths are spread over 100 values, beginning with `from`.
fn record(drift: &mut Drift, hours: u64, count: u64, from: u64) {
    for n in 0..count {
        let length = Some(from + n % 100);
        drift.record(at(hours), &model_key("m"), [length, length]);
    }
}

fn length_reading(drift: &mut Drift, hours: u64) -> LengthReading {
    let reading = drift.reading(at(hours));
    assert_eq!(reading.models.len(), 1);
    let [input, output] = reading.models[0].lengths;
    assert_eq!(input, output);
    input
}

#[test]
fn the_first_exchanges_are_the_baseline_and_are_not_compared_with_themselves() {
    let mut drift = drift(Baseline::First, 300);
    record(&mut drift, 0, 300, 1);
    let reading = length_reading(&mut drift, 0);
    assert_eq!((reading.baseline, reading.current), (300, 0));
    record(&mut drift, 0, 199, 1);
    assert_eq!(length_reading(&mut drift, 0).index, None, "one too few");
    record(&mut drift, 0, 1, 100);
    let reading = length_reading(&mut drift, 0);
    assert!(reading.index < Some(0.01), "{reading:?}");
    assert_eq!(reading.by_chance, Some(9.0 * (1.0 / 300.0 + 1.0 / 200.0)));
    assert_eq!((reading.bins, reading.current), (Some(10), 200));
    record(&mut drift, 0, 300, 1_000);
    let reading = length_reading(&mut drift, 0);
    assert_eq!((reading.baseline, reading.current), (300, 300));
    assert!(reading.index > Some(0.25), "{reading:?}");
}

#[test]
fn a_first_baseline_reports_nothing_before_it_is_complete() {
    let mut drift = drift(Baseline::First, 1_000);
    record(&mut drift, 0, 999, 1);
    let reading = length_reading(&mut drift, 0);
    assert_eq!((reading.baseline, reading.current, reading.index), (999, 0, None));
}

#[test]
fn a_reverted_change_is_not_reported() {
    let mut drift = drift(Baseline::First, 200);
    for (from, changed) in [(1, false), (1, false), (500, true), (1, false)] {
        record(&mut drift, 0, 200, from);
        let index = length_reading(&mut drift, 0).index.unwrap_or(0.0);
        assert_eq!(index > 0.25, changed, "{from}: {index}");
    }
}

#[test]
fn a_day_is_compared_with_the_previous_day_from_its_start() {
    let mut drift = drift(Baseline::Yesterday, 500);
    record(&mut drift, 0, 600, 1);
    record(&mut drift, 23, 600, 1);
    let reading = length_reading(&mut drift, 23);
    assert_eq!((reading.baseline, reading.current), (0, 500));
    assert_eq!(reading.index, None, "there was no yesterday");
    let reading = length_reading(&mut drift, 24);
    assert_eq!((reading.baseline, reading.current), (1_200, 0));
    record(&mut drift, 25, 300, 1_000);
    assert!(length_reading(&mut drift, 47).index > Some(0.25));
    record(&mut drift, 48, 300, 1_000);
    let reading = length_reading(&mut drift, 48);
    assert_eq!((reading.baseline, reading.index), (300, Some(0.0)));
}

#[test]
fn a_day_without_traffic_is_not_a_baseline() {
    let mut drift = drift(Baseline::Yesterday, 500);
    record(&mut drift, 1, 300, 1);
    record(&mut drift, 49, 300, 1);
    let reading = length_reading(&mut drift, 49);
    assert_eq!((reading.baseline, reading.index), (0, None));
    record(&mut drift, 30, 1, 1);
    assert_eq!(length_reading(&mut drift, 49).current, 301, "what comes late is of today");
}

#[test]
fn a_saved_baseline_is_compared_per_model() {
    let mut before = drift(Baseline::First, 200);
    record(&mut before, 0, 500, 1);
    let saved = SavedBaseline::read(before.saved().to_json().as_bytes()).unwrap();
    let path = PathBuf::from("baseline.json");
    let mut after = drift(Baseline::File { path, saved: Arc::new(saved) }, 200);
    record(&mut after, 0, 200, 1);
    let reading = length_reading(&mut after, 0);
    assert_eq!((reading.baseline, reading.index), (200, Some(0.0)));
    for n in 0..400 {
        after.record(at(0), &model_key("new"), [Some(n), None]);
    }
    let reading = after.reading(at(0));
    let names: Vec<_> =
        reading.models.iter().map(|reading| reading.model_key.model.as_str()).collect();
    assert_eq!(names, ["m", "new"]);
    let [input, output] = reading.models[1].lengths;
    assert_eq!((input.baseline, input.current, input.index), (0, 200, None));
    assert_eq!(output.current, 0);
}

#[test]
fn the_latest_lengths_are_saved_or_the_baseline_while_they_are_few() {
    let mut drift = drift(Baseline::First, 300);
    record(&mut drift, 0, 250, 1);
    let saved = |drift: &Drift| drift.saved().lengths(&model_key("m"), Direction::Input).unwrap();
    assert_eq!(saved(&drift).total(), 250);
    record(&mut drift, 0, 50 + 199, 1);
    assert_eq!(saved(&drift).total(), 300);
    record(&mut drift, 0, 1, 1);
    assert_eq!(saved(&drift).total(), 200);
}

#[test]
fn an_invalid_baseline_file_is_rejected_with_reason_and_remedy() {
    let entry = |model: &str, count: u32| {
        format!(
            "{{\"provider\":\"p\",\"model\":\"{model}\",\"route\":\"r\",\"position\":\"gateway\",\
             \"input\":[[10,{count}]],\"output\":[]}}"
        )
    };
    let file = |models: &str| format!("{{\"version\":1,\"models\":[{models}]}}");
    let many = vec![entry("m", 200); MAX_MODEL_KEYS + 1].join(",");
    for (text, expected) in [
        (String::new(), "not a saved baseline (line 1, column 0)"),
        ("sk-planted: secret".to_owned(), "not a saved baseline (line 1, column 1)"),
        (file(&entry("m", 200)).replace("10,", "-10,"), "not a saved baseline (line 1,"),
        (file(&entry("m", 200)).replace("200", "4294967296"), "not a saved baseline (line 1,"),
        (file(&entry("m", 200)).replace("gateway", "sideways"), "not a saved baseline (line 1,"),
        (file("").replace('1', "2"), "the version is 2, but this program reads version 1"),
        (file(&many), "it has more than 256 models"),
        (file(&[entry("a", 200), entry("a", 3)].join(",")), "model 2 is listed twice"),
        (file(&entry("", 200)), "model 1 is listed twice or has an invalid name"),
        (file(&entry(&"x".repeat(257), 200)), "model 1 is"),
        (file(&entry("m", 199)), "no model has 200 requests"),
        (file(""), "no model has 200 requests"),
    ] {
        let error = SavedBaseline::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("planted") && error.contains("; save"), "{error}");
    }
    let current = file(&entry("m", 200));
    let former = current.replace("models", "flows").replace("position", "vantage");
    let [current, former] =
        [current, former].map(|text| SavedBaseline::read(text.as_bytes()).unwrap());
    assert_eq!(former, current);
}

#[test]
fn changed_settings_start_again_and_equal_ones_change_nothing() {
    let mut drift = drift(Baseline::First, 300);
    record(&mut drift, 0, 10, 1);
    drift.replace(DriftConfig { baseline: Baseline::First, exchanges: 300 });
    assert_eq!(length_reading(&mut drift, 0).baseline, 10);
    drift.replace(DriftConfig::default());
    assert_eq!(drift.reading(at(0)), Reading::default());
}

#[test]
fn models_beyond_the_limit_are_not_compared() {
    let mut drift = drift(Baseline::First, 200);
    for n in 0..2 * MAX_MODEL_KEYS {
        drift.record(at(0), &model_key(&n.to_string()), [Some(1), None]);
    }
    assert_eq!(drift.reading(at(0)).models.len(), MAX_MODEL_KEYS);
}

proptest! {
    /// For any recorded lengths, a baseline is unchanged after saving and loading.
    #[test]
    fn a_saved_baseline_is_read_back_unchanged(
        lists in prop::collection::vec((any::<u64>(), 0_u64..5_000), 200..400),
        models in 1_usize..4,
    ) {
        let mut drift = drift(Baseline::First, 1_000);
        for (n, (input, output)) in lists.into_iter().cycle().take(200 * models).enumerate() {
            drift.record(at(0), &model_key(&format!("m{}", n % models)), [Some(input), Some(output)]);
        }
        let saved = drift.saved();
        prop_assert_eq!(SavedBaseline::read(saved.to_json().as_bytes()).unwrap(), saved);
    }
}
