//! Tests of the profiles, and of the estimate of a scrape page.

use super::*;
use crate::config::Profile;
use crate::{ExpectedTraffic, estimate};

/// Number of models, tenants and variants. 0 is no label.
type Load = [usize; 3];

/// The load for which `docs/reference/telemetry.md` compares the profiles.
const DOCUMENTED: Load = [8, 10, 2];

fn config(profile: Profile) -> TelemetryConfig {
    TelemetryConfig { profile, ..TelemetryConfig::default() }
}

/// Records a stream of each combination, with each of 4 pairs of length ranges if these are enabled.
fn played(profile: Profile, load: Load, length_buckets: bool) -> MetricsReader {
    let limits = CardinalityLimits { length_buckets, ..CardinalityLimits::default() };
    let source = SnapshotSource::new(StateSnapshot::default);
    let (instruments, metrics_reader) = Instruments::new(&config(profile), limits, source);
    let limiter = limiter();
    let [models, tenants, variants] = load;
    let values = |name: &str, count: usize| -> Vec<Option<Label>> {
        let value = |it| Some(Label::from_trusted(&format!("{name}-{it:04}")));
        if count == 0 { vec![None] } else { (0..count).map(value).collect() }
    };
    for model in 0..models {
        for tenant in values("tenant", tenants) {
            for variant in values("v", variants) {
                let mut record = testing::streamed();
                let call = record.call.as_mut().unwrap();
                let name = format!("model-{model:08}");
                (call.series.model, call.response_model) =
                    (Label::from_trusted(&name), testing::name(&name));
                (call.series.tenant, call.series.variant) = (tenant.clone(), variant);
                (call.timings, call.cost) = (None, None);
                record.blocked = Duration::ZERO;
                instruments.record_start(&record.route);
                let live = instruments.live(&record.call.as_ref().unwrap().series);
                let is_stall =
                    |it: &_| matches!(it, LiveSample::Stalled(_) | LiveSample::Resumed(_));
                SAMPLES.into_iter().filter(|it| !is_stall(it)).for_each(|it| live.record(it));
                let pairs = if length_buckets { 4 } else { 1 };
                for pair in 0..pairs {
                    let lengths = &mut record.call.as_mut().unwrap().length_buckets;
                    lengths.input = Some(LengthBucket::ALL[pair % 2]);
                    lengths.output = Some(LengthBucket::ALL[pair / 2]);
                    instruments.record_end(&record, &limiter);
                }
            }
        }
    }
    metrics_reader
}

/// Returns the number of series and of bytes of the page.
fn measured(metrics_reader: &MetricsReader) -> [usize; 2] {
    let text = prometheus::Format::Text.render(&metrics_reader.scrape());
    [text.lines().filter(|line| !line.starts_with('#')).count(), text.len()]
}

/// Returns the series and bytes that the load adds to the page.
fn added(profile: Profile, load: Load, length_buckets: bool) -> [usize; 2] {
    let [before, after] =
        [[0; 3], load].map(|load| measured(&played(profile, load, length_buckets)));
    [after[0] - before[0], after[1] - before[1]]
}

fn telemetry_page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/telemetry.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn lean_has_a_tenth_of_the_series() {
    let page = telemetry_page();
    let kilobytes = |bytes: usize| bytes.div_ceil(1_000);
    let mut missing = Vec::new();
    for (load, length_buckets, what) in [
        ([1, 0, 0], false, "1 model"),
        ([8, 0, 0], false, "8 models"),
        (DOCUMENTED, false, "8 models × 10 tenants × 2 variants"),
        (DOCUMENTED, true, "the same, with length buckets"),
    ] {
        let [full, lean] = [Profile::Full, Profile::Lean].map(|it| added(it, load, length_buckets));
        assert!(lean[0] * 10 <= full[0], "{what}: {full:?} {lean:?}");
        let (full_size, lean_size) = (kilobytes(full[1]), kilobytes(lean[1]));
        let row =
            format!("| {what} | {} | {full_size} kB | {} | {lean_size} kB |", full[0], lean[0]);
        if !page.contains(&row) {
            missing.push(row);
        }
    }
    assert!(missing.is_empty(), "docs/reference/telemetry.md needs the rows {missing:#?}");
}

#[test]
fn lean_keeps_tenant_and_variant_only_on_counters_of_finished_calls() {
    let reader = played(Profile::Lean, [2, 3, 2], true);
    let points = points(&reader.scrape());
    let names = |label: &str| -> BTreeSet<String> {
        let has = points.keys().filter(|point| point.contains(label));
        has.map(|point| point.split('{').next().unwrap().to_owned()).collect()
    };
    let identified = names("tokengauge.tenant=tenant-0002");
    assert_eq!(identified, names("tokengauge.variant=v-0001"));
    for name in ["tokengauge.requests.finished", "tokengauge.reported_tokens"] {
        assert!(identified.contains(name), "{name}: {identified:?}");
    }
    for name in ["tokengauge.tokens", "tokengauge.time_to_first_token"] {
        assert!(!identified.contains(name), "{name}");
        assert!(names("gen_ai.request.model=model-00000001").contains(name), "{name}");
    }
    assert!(names("length_bucket").is_empty());
    // No call is lost: all tenants share the series without a tenant.
    let calls: f64 = points
        .iter()
        .filter(|(point, _)| point.starts_with("tokengauge.time_to_first_token{"))
        .map(|(_, value)| value)
        .sum();
    let finished: f64 = points
        .iter()
        .filter(|(point, _)| point.starts_with("tokengauge.requests.finished{"))
        .map(|(_, value)| value)
        .sum();
    assert!(finished > 40.0 && (calls - finished).abs() < 1e-9, "{calls} {finished}");
}

#[test]
fn lean_series_are_within_the_limits_of_metrics() {
    let reader = played(Profile::Lean, [40, 60, 1], false);
    let points = points(&reader.scrape());
    assert!(points.len() > 4_000, "{}", points.len());
    assert!(!points.keys().any(|point| point.contains("otel.metric.overflow")));
    assert!(measured(&reader)[1] <= MAX_PAGE_BYTES);
}

/// The largest errors of the estimated series and bytes, as ratios of the measured page.
const ESTIMATE_ERRORS: [f64; 2] = [0.15, 0.5];

#[test]
fn the_estimate_is_close_to_the_measured_page() {
    for error in ESTIMATE_ERRORS {
        let stated = format!("at most {:.0} %", error * 100.0);
        assert!(telemetry_page().contains(&stated), "docs/reference/telemetry.md: {stated}");
    }
    let mut wrong = Vec::new();
    for profile in Profile::ALL {
        for load in [[1, 0, 0], [8, 0, 0], [8, 10, 0], DOCUMENTED, [10, 30, 2]] {
            let (estimated, measured) = (estimated(profile, load), added(profile, load, false));
            let pairs = estimated.into_iter().zip(measured);
            for ((estimated, measured), most) in pairs.zip(ESTIMATE_ERRORS) {
                let error = estimated as f64 / measured as f64 - 1.0;
                if error.abs() > most {
                    wrong.push((profile, load, estimated, measured, error));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the estimated number of series and of bytes that the load adds to the page.
fn estimated(profile: Profile, load: Load) -> [usize; 2] {
    let routes = [testing::route()];
    let of = |[models, tenants, variants]: Load| {
        let traffic = ExpectedTraffic {
            routes: &routes,
            upstreams: 1,
            objectives: 0,
            budgets: 0,
            models,
            tenants,
            variants,
            length_buckets: false,
            has_prices: false,
        };
        estimate(config(profile).selection(), &traffic)
    };
    let (before, after) = (of([0; 3]), of(load));
    // The snapshot of the test has no models, so it has no gauges of models.
    let gauges = catalog::metrics()
        .filter(|it| it.has(key::REQUEST_MODEL) && !it.has(key::OPERATION))
        .filter(|it| !it.has(key::LIMIT_TYPE) && !it.name.contains("rate_limit"));
    let gauges: usize = gauges.map(|it| it.combinations() * load[0]).sum();
    [after.series - before.series - gauges, after.bytes - before.bytes]
}
