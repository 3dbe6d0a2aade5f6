//! Tests that exported metrics match the catalog, and that records and samples update the expected series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, HistogramDataPoint, Metric, exemplar, number_data_point,
};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use prost::Message;

mod profile;

use super::*;
use crate::catalog;
use crate::catalog::attributes::Values;
use crate::config::{ExemplarFilter, GenAiNames, Temporality};
use crate::instruments::result::end_stage;
use crate::metrics_reader::MetricsSnapshot;
use crate::process::{CpuTime, ProcessStats};
use crate::series_limits::{MAX_PAGE_BYTES, max_series};
use crate::snapshot::{
    CertificateReading, ClientLoad, ConfigReading, ObserverHealth, StateSnapshot,
};
use crate::{BudgetReading, UpstreamCounts, prometheus, testing};
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{ByModality, Operation, RateLimit, TextKind, Usage};
use tokengauge_measure::cost::TokenPrice;
use tokengauge_measure::drift;
use tokengauge_measure::engine;
use tokengauge_measure::load::Precision;
use tokengauge_measure::load::{
    ActiveStreams, LimitType, ModelKey, ModelReading, RateLimitReading, Reading, RouteReading,
    StalledStreams, Summary, Throughput,
};
use tokengauge_measure::record::{LengthBucket, McpOperation, McpSession, Outcome, WarmupState};
use tokengauge_measure::slo::{BURN_WINDOWS, CountingRules, Counts, Objective, Scope, Sli};
use tokengauge_measure::timing::{LiveSample, Rates, Stage, Stall, StallPhase, Stalls, Unrated};
use tokengauge_types::bounded::Int;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{ErrorSource, ProxyPosition};
use tokengauge_types::label::CardinalityLimits;

/// Returns every point as `name{key=value,…}` with its value. The value of a histogram is its count.
fn points(snapshot: &MetricsSnapshot) -> BTreeMap<String, f64> {
    let mut points = BTreeMap::new();
    for metric in sent(snapshot) {
        let mut put = |attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue],
                       value: f64| {
            let mut pairs: Vec<_> =
                attributes.iter().map(|kv| format!("{}={}", kv.key, shown(kv))).collect();
            pairs.sort();
            points.insert(format!("{}{{{}}}", metric.name, pairs.join(",")), value);
        };
        let number = |value: &Option<number_data_point::Value>| match value.unwrap() {
            number_data_point::Value::AsDouble(value) => value,
            number_data_point::Value::AsInt(value) => value as f64,
        };
        match metric.data.as_ref().unwrap() {
            Data::Gauge(gauge) => gauge
                .data_points
                .iter()
                .for_each(|point| put(&point.attributes, number(&point.value))),
            Data::Sum(sum) => sum
                .data_points
                .iter()
                .for_each(|point| put(&point.attributes, number(&point.value))),
            Data::Histogram(histogram) => histogram
                .data_points
                .iter()
                .for_each(|point| put(&point.attributes, point.count as f64)),
            Data::ExponentialHistogram(_) | Data::Summary(_) => {
                panic!("{} has an unexpected kind", metric.name)
            }
        }
    }
    points
}

fn shown(kv: &opentelemetry_proto::tonic::common::v1::KeyValue) -> String {
    use any_value::Value::{BoolValue, IntValue, StringValue};
    let value = kv.value.as_ref().and_then(|value| value.value.as_ref()).unwrap();
    if let StringValue(text) = value {
        text.clone()
    } else if let BoolValue(value) = value {
        value.to_string()
    } else if let IntValue(value) = value {
        value.to_string()
    } else {
        panic!("{}: {value:?} is not a label value", kv.key)
    }
}

/// Returns the value of the only point of `name` whose attributes include `with`. Panics if several points match.
fn one(points: &BTreeMap<String, f64>, name: &str, with: &[&str]) -> Option<f64> {
    let start = format!("{name}{{");
    let mut found = points.iter().filter(|(point, _)| {
        let attributes = point.strip_prefix(&start).map(|rest| rest.trim_end_matches('}'));
        attributes.is_some_and(|attributes| {
            let attributes: Vec<_> = attributes.split(',').collect();
            with.iter().all(|wanted| attributes.contains(wanted))
        })
    });
    let first = found.next().map(|(_, value)| *value);
    assert!(found.next().is_none(), "{name} {with:?} matches several points");
    first
}

/// Returns the sum of all points of `name`, or `None` if there are no points.
fn sum(points: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    let start = format!("{name}{{");
    let values =
        points.iter().filter(|(point, _)| point.starts_with(&start)).map(|(_, value)| *value);
    values.reduce(|sum, value| sum + value)
}

fn snapshot() -> StateSnapshot {
    StateSnapshot {
        config: Some(ConfigReading { is_current: true, loaded_at: 1_800_000_000 }),
        certificates: vec![CertificateReading {
            file: Label::from_trusted("/etc/tls/tls.crt"),
            expires_at: 1_900_000_000,
        }],
        load: load(),
        slo: vec![
            objective("availability", Sli::Availability),
            objective("ttft", Sli::Ttft(Duration::from_secs(2))),
            objective("rate", Sli::OutputRate(15.5)),
            objective("duration", Sli::Duration(Duration::from_secs(60))),
        ],
        backends: vec![backend()],
        budgets: vec![BudgetReading {
            name: Label::from_trusted("acme-month"),
            unit: Label::from_trusted("USD"),
            limit: 500.0,
            window: Duration::from_secs(30 * 86_400),
        }],
        token_prices: vec![TokenPrice {
            route: Label::from_trusted("default"),
            currency: Label::from_trusted("USD"),
            amount: 1.25,
        }],
        drift: workload_drift(),
        observer: ObserverHealth {
            lost_bytes: 10,
            unobserved: 1,
            excluded: 3,
            backlog: 5,
            held: 7,
            restarts: 1,
            age: Duration::from_millis(1_500),
        },
        refused_requests: 4,
        upstreams: vec![UpstreamCounts {
            upstream: Label::from_trusted("vllm"),
            stale: 7,
            retries: 2,
        }],
        clients: ClientLoad {
            connections: 17,
            connections_limit: 8_192,
            over_limit: 6,
            evicted: 4,
        },
        process: process(),
        draining: Duration::from_secs(12),
        envoy: Some(crate::snapshot::EnvoyCounts::default()),
        label_overflow: Dimension::ALL.map(|dimension| (dimension.as_str(), 3)).to_vec(),
        ..StateSnapshot::default()
    }
}

fn workload_drift() -> drift::Reading {
    let length = drift::LengthReading { index: Some(0.3), ..drift::LengthReading::default() };
    let model = drift::ModelDrift { model_key: model_key(), lengths: [length; 2] };
    drift::Reading { models: vec![model] }
}

fn process() -> ProcessStats {
    ProcessStats {
        cpu: Some(CpuTime {
            user: Duration::from_millis(2_500),
            system: Duration::from_millis(500),
        }),
        resident: Some(20 << 20),
        started: Some(1_700_000_001.5),
        open_files: Some(42),
        memory_limit: Some(64 << 20),
        cpu_limit: Some(0.5),
    }
}

fn backend() -> engine::Reading {
    engine::Reading {
        upstream: Label::from_trusted("gpu"),
        engine: Some(engine::Engine::Vllm),
        scrape_age: Some(2.5),
        waiting: Some(3),
        running: Some(21),
        kv_cache: Some(0.75),
        prefix_cache: Some(0.25),
        asleep: Some(false),
        warm: Some(WarmupState::Warming),
        scrapes: Some([7, 1, 0, 0, 0, 0, 0, 0]),
        implausible: 2,
    }
}

fn model_key() -> ModelKey {
    ModelKey {
        provider: Label::from_trusted("openai"),
        model: Label::from_trusted("gpt-4o"),
        route: Label::from_trusted("default"),
        position: ProxyPosition::Outbound,
    }
}

fn quotas() -> Vec<RateLimitReading> {
    let quota = |limited| RateLimitReading {
        model_key: model_key(),
        limited,
        allowance: RateLimit {
            limit: Some(500),
            remaining: (limited != LimitType::InputTokens).then_some(499),
            reset: (limited == LimitType::Tokens).then_some(Duration::from_secs(17)),
        },
    };
    LimitType::ALL.map(quota).to_vec()
}

fn load() -> Reading {
    let throughput = Throughput {
        latest: None,
        ten_seconds: Some(50.0),
        minute: Some(40.0),
        five_minutes: Some(30.0),
        peak: Some(120.0),
    };
    Reading {
        quotas: quotas(),
        routes: vec![RouteReading {
            route_key: RouteKey::from_route(&testing::route()),
            active: [1, 2, 3, 4],
            backend_waiting: None,
            stalled_streams: [1, 2].map(|stalled| StalledStreams {
                stalled,
                longest: Some(Duration::from_secs(10 * stalled)),
            }),
        }],
        models: vec![ModelReading {
            model_key: model_key(),
            input: throughput,
            output: throughput,
            recent: Summary::default(),
            streams: ActiveStreams { flowing: 3, stalled: 1 },
        }],
        ..Reading::default()
    }
}

fn objective(name: &str, indicator: Sli) -> tokengauge_measure::slo::Reading {
    tokengauge_measure::slo::Reading {
        objective: Objective {
            name: Label::from_trusted(name),
            indicator,
            target: 0.99,
            window: Duration::from_secs(86_400),
            scope: Scope::default(),
            counting: CountingRules::default(),
        },
        good: 98,
        bad: 2,
        excluded: 3,
        counts: Counts { good: 49, bad: 1 },
        budget: Some(-1.0),
        burn: [Some(2.0); BURN_WINDOWS.len()],
        covered: Duration::from_secs(600),
        exhaustion: Some(Duration::from_secs(60)),
    }
}

fn start(gen_ai: GenAiNames) -> (Arc<Instruments>, MetricsReader) {
    let config = TelemetryConfig {
        gen_ai,
        exemplars: ExemplarFilter::AlwaysOn,
        ..TelemetryConfig::default()
    };
    let limits = CardinalityLimits { length_buckets: true, ..CardinalityLimits::default() };
    Instruments::new(&config, limits, SnapshotSource::new(snapshot))
}

fn limiter() -> CardinalityLimiter {
    CardinalityLimiter::new(CardinalityLimits::default(), [])
}

const STALL: Stall = Stall {
    phase: StallPhase::NextToken,
    kind: tokengauge_measure::timing::StallKind::KeepAliveOnly,
    begun: MonotonicInstant::from_secs(1),
    raised: MonotonicInstant::from_secs(3),
    lasted: Some(Duration::from_secs(4)),
};

const SAMPLES: [LiveSample; 8] = [
    LiveSample::Tokens { kind: TextKind::Text, tokens: 7, source: Source::Counted },
    LiveSample::Standard { tokens: 8 },
    LiveSample::InterToken { latency: Duration::from_millis(20), tokens: 3 },
    LiveSample::InterChunk { gap: Duration::from_millis(60) },
    LiveSample::ChunkTokens { tokens: 3 },
    LiveSample::OutputChunk { gap: Duration::from_millis(60) },
    LiveSample::Stalled(STALL),
    LiveSample::Resumed(STALL),
];

/// Returns a snapshot after many different records and samples.
fn representative() -> MetricsSnapshot {
    let (instruments, metrics_reader) = start(GenAiNames::Both);
    let limiter = limiter();
    let route = testing::route();
    instruments.initialize_routes(&[Arc::clone(&route)]);
    instruments.record_start(&route);
    let route_key = RouteKey::from_route(&route);
    let quarter = Duration::from_millis(250);
    instruments.record_waiting(&route_key, quarter);
    Component::ALL.into_iter().for_each(|part| instruments.record_delay(part, quarter));
    instruments.live(&testing::series()).record_stream_time(quarter, quarter);
    SAMPLES.into_iter().for_each(|sample| instruments.live(&testing::series()).record(sample));
    let mut unrated = testing::streamed();
    unrated.anomalies = vec![(ParseError::BadJson, 2)];
    if let Some(call) = &mut unrated.call {
        call.rates.unrated = Some(Unrated::FewTokens);
        call.stalls = Stalls { count: 1, total: STALL.lasted.unwrap(), first: vec![STALL] };
        call.usage =
            Some(Usage { cache_write: Some(5), cost_ticks: Some(9), ..call.usage.unwrap() });
    }
    let mut named = testing::streamed();
    named.gateway_usage = Some(tokengauge_types::event::GatewayUsage::default());
    if let Some(call) = &mut named.call {
        call.series.tenant = Some(Label::from_trusted("acme"));
        call.series.variant = Some(Label::from_trusted("b"));
    }
    let (budget, unit) = (Label::from_trusted("acme-month"), Label::from_trusted("USD"));
    instruments.record_spend((&budget, &unit), 0.0);
    instruments.record_spend((&budget, &unit), 0.5);
    instruments.record_unpriced(&testing::series());
    let (refused, plain, tool) = (testing::refused(), testing::plain(), testing::tool_call());
    let mut prompt = testing::tool_call();
    for operation in prompt.mcp.iter_mut().flat_map(|mcp| &mut mcp.operations) {
        operation.message.method = testing::name("prompts/get");
        operation.message.target = testing::name("summary");
        operation.error_code = Some(-32_602);
    }
    for record in [testing::streamed(), unrated, named, refused, embeddings(), plain, tool, prompt]
    {
        instruments.record_end(&record, &limiter);
    }
    instruments.record_mcp_session(&session(None), &limiter);
    metrics_reader.scrape()
}

/// Returns a successful embeddings call with 120 input tokens.
fn embeddings() -> Record {
    let mut record = testing::refused();
    (record.outcome, record.error_type) = (Outcome::Ok, None);
    record.http.status = Some(200);
    let usage = Usage { input: Some(120), ..Usage::default() };
    record.call.as_mut().unwrap().usage = Some(usage);
    record
}

fn session(error: Option<&str>) -> McpSession {
    McpSession {
        route: testing::route(),
        protocol_version: testing::name("2025-06-18"),
        duration: Duration::from_secs(90),
        error_type: error.and_then(testing::name),
    }
}

#[test]
fn emits_exactly_the_metrics_of_the_catalog() {
    let snapshot = representative();
    let registered: BTreeSet<_> = catalog::metrics().map(|metric| metric.name).collect();
    assert_eq!(emitted(&snapshot), registered);
    for scope in snapshot.groups().flat_map(|group| group.scope_metrics()) {
        assert_eq!(scope.scope().name(), catalog::SCOPE);
        assert_eq!(scope.scope().schema_url(), Some(catalog::SCHEMA_URL));
    }
}

/// Metrics that a successful stream does not emit, with the condition under which they have series.
const CONDITIONAL: [(&str, &str); 17] = [
    ("gen_ai.client.embeddings.duration", "the call embeds"),
    ("gen_ai.client.embeddings.operation.input_tokens", "the call embeds"),
    ("gen_ai.client.inference.usage.cache_write.input_tokens", "the provider reports them"),
    ("gen_ai.client.operation.duration", "the call neither generates text nor embeds"),
    ("mcp.client.operation.duration", "the request is MCP"),
    ("mcp.client.session.duration", "an MCP session ends"),
    ("mcp.server.operation.duration", "the request is MCP"),
    ("mcp.server.session.duration", "an MCP session ends"),
    ("tokengauge.budget.used", "a budget is configured"),
    ("tokengauge.client.backpressure.duration", "the client stops reading"),
    ("tokengauge.gateway_usage.calls", "a gateway reports its count"),
    ("tokengauge.reported_cost", "the provider reports a cost"),
    ("tokengauge.requests.cost_mismatch", "the provider reports a cost"),
    ("tokengauge.requests.unpriced", "the model has no price"),
    ("tokengauge.requests.unrated", "the stream has no rate"),
    ("tokengauge.self.scheduling_delay", "a delay is measured"),
    ("tokengauge.stall.duration", "a stall ends"),
];

fn emitted(snapshot: &MetricsSnapshot) -> BTreeSet<&str> {
    snapshot.metrics().map(|metric| metric.name()).collect()
}

#[test]
fn a_stream_emits_every_metric_without_a_condition() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    let record = testing::streamed();
    instruments.record_start(&record.route);
    let live = instruments.live(&testing::series());
    let is_stall = |sample: &_| matches!(sample, LiveSample::Stalled(_) | LiveSample::Resumed(_));
    SAMPLES.into_iter().filter(|it| !is_stall(it)).for_each(|sample| live.record(sample));
    instruments.record_end(&record, &limiter());
    let snapshot = metrics_reader.scrape();
    let selection = TelemetryConfig::default().selection();
    let exported = catalog::metrics().filter(|metric| metric.is_exported(selection));
    let exported: BTreeSet<_> = exported.map(|metric| metric.name).collect();
    let missing: BTreeSet<_> = exported.difference(&emitted(&snapshot)).copied().collect();
    assert_eq!(missing, CONDITIONAL.into_iter().map(|(name, _)| name).collect());
}

/// Returns the number of lines on the scrape page, and how many of them belong to histograms, that a combination of
/// labels adds after the first stream or response of the process.
fn series_of_a_combination(streamed: bool) -> (usize, usize) {
    let limits = CardinalityLimits::default();
    let source = SnapshotSource::new(snapshot);
    let (instruments, metrics_reader) =
        Instruments::new(&TelemetryConfig::default(), limits, source);
    let call = |tenant: &str| {
        let mut record = testing::streamed();
        let call = record.call.as_mut().unwrap();
        (call.series.tenant, call.series.stream) = (Some(Label::from_trusted(tenant)), streamed);
        if !streamed {
            (call.streamed, call.rates) = (false, Rates::default());
        }
        let series = call.series.clone();
        if !streamed {
            record.timestamps = testing::plain().timestamps;
            record.stages = record.timestamps.stages();
        }
        instruments.record_start(&record.route);
        if streamed {
            let live = instruments.live(&series);
            let is_stall =
                |sample: &_| matches!(sample, LiveSample::Stalled(_) | LiveSample::Resumed(_));
            SAMPLES.into_iter().filter(|it| !is_stall(it)).for_each(|sample| live.record(sample));
        }
        instruments.record_end(&record, &limiter());
        let text = prometheus::Format::Text.render(&metrics_reader.scrape());
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let is_histogram = |line: &&&str| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            ["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
        };
        (lines.len(), lines.iter().filter(is_histogram).count())
    };
    let (before, after) = (call("a"), call("b"));
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn the_telemetry_page_states_the_series_of_a_combination() {
    let page = include_str!("../../../../../docs/reference/telemetry.md");
    for (streamed, what) in [(true, "streamed"), (false, "not streamed")] {
        let (all, histograms) = series_of_a_combination(streamed);
        let row = format!("| {what} | {all} | {histograms} |");
        assert!(page.contains(&row), "docs/reference/telemetry.md needs the row {row}");
    }
}

#[test]
fn a_whole_response_emits_no_metric_of_streams() {
    let (instruments, metrics_reader) = start(GenAiNames::Both);
    let mut record = testing::streamed();
    record.timestamps = testing::plain().timestamps;
    record.stages = record.timestamps.stages();
    let call = record.call.as_mut().unwrap();
    (call.series.stream, call.streamed, call.rates) = (false, false, Rates::default());
    instruments.record_end(&record, &limiter());
    let snapshot = metrics_reader.scrape();
    let emitted = emitted(&snapshot);
    // The state `waiting` of this time has only the labels of a route, so it is exported as 0 from the start.
    let of_streams = catalog::metrics().filter(|it| {
        let [whole, streamed] = [false, true].map(|is_stream| it.usual_series(is_stream));
        whole == 0 && streamed > 0 && it.name != "tokengauge.stream.active_time"
    });
    for metric in of_streams {
        assert!(!emitted.contains(metric.name), "{}", metric.name);
    }
}

#[test]
fn emitted_metrics_match_the_catalog() {
    for metric in representative().metrics() {
        let registered = catalog::metric(metric.name()).unwrap();
        let kind = match metric.data() {
            AggregatedMetrics::F64(data) => checked(registered, data),
            AggregatedMetrics::U64(data) => checked(registered, data),
            AggregatedMetrics::I64(data) => checked(registered, data),
        };
        assert_eq!(kind, registered.kind, "{}", registered.name);
        assert_eq!(
            (metric.unit(), metric.description()),
            (registered.unit, registered.description)
        );
    }
}

/// Checks every point of `data` against the catalog entry. Returns the kind of the metric.
fn checked<T: Copy>(registered: &catalog::Metric, data: &MetricData<T>) -> catalog::Kind {
    match data {
        MetricData::Gauge(gauge) => {
            gauge.data_points().for_each(|point| check(registered, point.attributes()));
            catalog::Kind::Gauge
        }
        MetricData::Sum(sum) => {
            sum.data_points().for_each(|point| check(registered, point.attributes()));
            if sum.is_monotonic() { catalog::Kind::Counter } else { catalog::Kind::UpDownCounter }
        }
        MetricData::Histogram(histogram) => {
            for point in histogram.data_points() {
                check(registered, point.attributes());
                assert!(
                    point.bounds().eq(registered.buckets.full.iter().copied()),
                    "{}",
                    registered.name
                );
                assert!(point.min().is_none() && point.max().is_none());
            }
            catalog::Kind::Histogram
        }
        MetricData::ExponentialHistogram(_) => panic!("{}", registered.name),
    }
}

fn check<'a>(registered: &catalog::Metric, attributes: impl Iterator<Item = &'a KeyValue>) {
    for kv in attributes {
        let known = registered.attributes().find(|known| known.key == kv.key.as_str());
        let known = known.unwrap_or_else(|| panic!("{} has {}", registered.name, kv.key));
        if let Values::Closed(values) = known.values {
            let value = kv.value.to_string();
            assert!(values.contains(&value.as_str()), "{}: {}={value}", registered.name, kv.key);
        }
    }
}

#[test]
fn every_attribute_of_the_catalog_is_used() {
    let text = prometheus::Format::Text.render(&representative());
    for attribute in catalog::attributes::ALL {
        let label = format!("{}=\"", attribute.key.replace('.', "_"));
        assert!(text.contains(&label), "{}", attribute.key);
    }
}

#[test]
fn unknown_values_of_a_backend_are_absent() {
    let text = prometheus::Format::Text.render(&representative());
    let vllm = "tokengauge_engine=\"vllm\"";
    for (series, labels, value) in [
        ("backend_requests{", [vllm, "state=\"waiting\""], "3"),
        ("backend_requests{", [vllm, "state=\"running\""], "21"),
        ("backend_kv_cache_utilization_ratio{", [vllm, "upstream=\"gpu\""], "0.75"),
        ("backend_prefix_cache_hit_ratio{", [vllm, ""], "0.25"),
        ("backend_scrape_age_seconds{", [vllm, ""], "2.5"),
        ("backend_warmup_state{", ["warmup_state=\"cold\"", ""], "0"),
        ("backend_warmup_state{", ["warmup_state=\"warming\"", ""], "1"),
        ("backend_warmup_state{", ["warmup_state=\"warm\"", ""], "0"),
        ("self_scrapes_total{", ["scrape_result=\"unreachable\"", ""], "1"),
        ("self_implausible_values_total{", ["upstream=\"gpu\"", ""], "2"),
    ] {
        let found: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&format!("tokengauge_{series}")))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(_, value)| value)
            .collect();
        assert_eq!(found, [value], "{series} {labels:?}");
    }
}

#[test]
fn a_queue_depth_of_the_engine_is_exact() {
    let mut route = load().routes.remove(0);
    assert_eq!((route.queue_depth(), route.bound()), (3, Precision::UpperBound));
    route.backend_waiting = Some(9);
    assert_eq!((route.queue_depth(), route.bound()), (10, Precision::Exact));
}

/// Returns the expected Prometheus name of a metric. This function implements the rules of Prometheus' translator
/// (`UnderscoreEscapingWithSuffixes`) a second time, and the exported names are compared with the result.
fn translated(name: &str, unit: &str, data: &Data) -> String {
    let mut tokens: Vec<&str> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|token| !token.is_empty())
        .collect();
    let (main, per) = unit.split_once('/').map_or((unit, ""), |(main, per)| (main, per));
    let main = match main {
        "s" => "seconds",
        "By" => "bytes",
        _ => "",
    };
    if !main.is_empty() && !tokens.contains(&main) {
        tokens.push(main);
    }
    if per == "s" {
        tokens.extend(["per", "second"]);
    }
    if matches!(data, Data::Sum(sum) if sum.is_monotonic) {
        tokens.retain(|token| *token != "total");
        tokens.push("total");
    }
    if unit == "1" && matches!(data, Data::Gauge(_)) {
        tokens.retain(|token| *token != "ratio");
        tokens.push("ratio");
    }
    tokens.join("_")
}

#[test]
fn names_are_equal_over_otlp_and_in_scrapes() {
    let snapshot = representative();
    let over_otlp: BTreeSet<_> = sent(&snapshot)
        .iter()
        .map(|metric| translated(&metric.name, &metric.unit, metric.data.as_ref().unwrap()))
        .collect();
    let text = prometheus::Format::Text.render(&snapshot);
    let scraped: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .filter(|name| *name != "target_info")
        .map(str::to_owned)
        .collect();
    assert_eq!(over_otlp, scraped);
}

#[test]
fn samples_update_the_live_metrics_of_their_series() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    let live = instruments.live(&testing::series());
    SAMPLES.into_iter().for_each(|sample| live.record(sample));
    SAMPLES.into_iter().for_each(|sample| live.record(sample));
    let points = points(&metrics_reader.scrape());
    let text = [
        "gen_ai.token.type=output",
        "tokengauge.token.kind=text",
        "tokengauge.token.source=counted",
        "gen_ai.request.model=gpt-4o",
    ];
    assert_eq!(one(&points, "tokengauge.tokens", &text), Some(14.0));
    assert_eq!(one(&points, "tokengauge.normalized_tokens", &[]), Some(16.0));
    assert_eq!(
        one(&points, "tokengauge.inter_token_latency", &[]),
        Some(6.0),
        "each gap is recorded once per token"
    );
    assert_eq!(one(&points, "tokengauge.inter_chunk_latency", &[]), Some(2.0));
    assert_eq!(one(&points, "tokengauge.tokens_per_chunk", &[]), Some(2.0));
    assert_eq!(one(&points, "gen_ai.client.inference.time_per_output_chunk", &[]), Some(2.0));
    assert_eq!(one(&points, "gen_ai.client.operation.time_per_output_chunk", &[]), None);
}

/// Returns the points that a single record creates in new instruments.
fn points_of(record: &Record) -> BTreeMap<String, f64> {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    instruments.record_end(record, &limiter());
    points(&metrics_reader.scrape())
}

/// Checks points. A row has a metric name, attributes, and the expected value of the only point with these attributes.
/// `None` means that no such point exists.
fn expect(points: &BTreeMap<String, f64>, rows: &[(&str, &[&str], Option<f64>)]) {
    for (name, with, value) in rows {
        assert_eq!(one(points, name, with), *value, "{name} {with:?}");
    }
}

#[test]
fn exports_phases_that_the_backend_reported() {
    let points = points_of(&testing::streamed());
    let of = |stage| one(&points, "tokengauge.backend.stage.duration", &[stage]);
    assert_eq!(of("tokengauge.backend_stage=queue"), Some(1.0));
    assert_eq!(of("tokengauge.backend_stage=prefill"), Some(1.0));
    assert_eq!(of("tokengauge.backend_stage=decode"), None);
}

#[test]
fn exports_reported_usage_unchanged() {
    let points = points_of(&testing::streamed());
    let answered = ["gen_ai.token.modality=unknown", "gen_ai.response.model=gpt-4o-2024-08-06"];
    expect(
        &points,
        &[
            ("gen_ai.client.inference.usage.input_tokens", &answered, Some(120.0)),
            ("gen_ai.client.inference.usage.output_tokens", &answered, Some(101.0)),
            ("gen_ai.client.inference.usage.cache_read.input_tokens", &[], Some(64.0)),
            // A count that the provider did not report is absent, not 0.
            ("gen_ai.client.inference.usage.cache_write.input_tokens", &[], None),
            ("gen_ai.client.inference.usage.reasoning.output_tokens", &[], Some(20.0)),
            ("gen_ai.client.inference.operation.input_tokens", &[], Some(1.0)),
            ("tokengauge.reported_tokens", &["tokengauge.token.kind=uncached"], Some(56.0)),
            ("tokengauge.reported_tokens", &["tokengauge.token.kind=output"], Some(81.0)),
            ("tokengauge.token_mismatch.counted", &[], Some(101.0)),
            ("tokengauge.token_mismatch.reported", &[], Some(101.0)),
        ],
    );
}

#[test]
fn exports_a_successful_stream() {
    let points = points_of(&testing::streamed());
    let ended = [
        "tokengauge.outcome=ok",
        "tokengauge.error_source=none",
        "http.response.status_code=200",
        "tokengauge.stage=tail",
        "gen_ai.request.model=gpt-4o",
    ];
    expect(
        &points,
        &[
            ("tokengauge.requests.finished", &ended, Some(1.0)),
            ("tokengauge.requests.rated", &["tokengauge.output_rate_range=30-60"], Some(1.0)),
            ("tokengauge.requests.rated", &["tokengauge.output_rate_range=voice"], Some(0.0)),
            // Exported as 0 before the first call in this range.
            ("tokengauge.requests.rated", &["tokengauge.output_rate_range=<5"], Some(0.0)),
            (
                "tokengauge.choices.finished",
                &["tokengauge.finish_reason=stop", "tokengauge.choice_result=complete"],
                Some(1.0),
            ),
            // The estimate is 400 bytes ÷ 4.
            ("tokengauge.tokens", &["gen_ai.token.type=input"], Some(100.0)),
            // Only samples update the next two counters, so a record leaves them unchanged.
            ("tokengauge.tokens", &["gen_ai.token.type=output"], None),
            ("tokengauge.normalized_tokens", &[], Some(0.0)),
            ("tokengauge.client.backpressure.duration", &[], None),
        ],
    );
    assert_eq!(sum(&points, "tokengauge.request.stage.duration"), Some(10.0));
    for name in ["headers", "first_byte", "first_event", "first_token", "first_visible_token"] {
        assert_eq!(sum(&points, &format!("tokengauge.time_to_{name}")), Some(1.0), "{name}");
    }
    assert!(points.keys().all(|point| !point.contains("error.type")));
    assert!(points.keys().all(|point| !point.starts_with("gen_ai.client.operation.")));
}

#[test]
fn exports_a_rejected_embeddings_call() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    instruments.record_end(&testing::refused(), &limiter());
    let points = points(&metrics_reader.scrape());
    let failed = ["error.type=rate_limit_exceeded", "gen_ai.operation.name=embeddings"];
    assert_eq!(one(&points, "gen_ai.client.embeddings.duration", &failed), Some(1.0));
    assert_eq!(one(&points, "gen_ai.client.embeddings.operation.input_tokens", &[]), None);
    assert_eq!(one(&points, "gen_ai.client.operation.duration", &[]), None);
    assert_eq!(one(&points, "gen_ai.server.request.duration", &failed), Some(1.0));
    assert_eq!(one(&points, "gen_ai.client.inference.duration", &[]), None, "no inference");
    assert_eq!(one(&points, "gen_ai.server.time_to_first_token", &[]), None);
    assert_eq!(one(&points, "tokengauge.client.backpressure.duration", &[]), Some(1.0));
    let outcome = [
        "tokengauge.outcome=error",
        "tokengauge.error_source=upstream",
        "http.response.status_code=429",
        failed[0],
    ];
    assert_eq!(one(&points, "tokengauge.requests.finished", &outcome), Some(1.0));
    assert_eq!(
        one(&points, "http.client.request.duration", &[failed[0], "http.response.status_code=429"]),
        Some(1.0)
    );
    let server =
        points.keys().find(|point| point.starts_with("http.server.request.duration")).unwrap();
    assert!(!server.contains("error.type"), "a 4xx response is not a server error: {server}");
}

#[test]
fn exports_embeddings_under_their_own_names() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    instruments.record_end(&embeddings(), &limiter());
    let snapshot = metrics_reader.scrape();
    let page = prometheus::Format::Text.render(&snapshot);
    let has_line = |name: &str, value: &str| {
        page.lines().any(|line| line.starts_with(name) && line.ends_with(value))
    };
    assert!(has_line("gen_ai_client_embeddings_duration_seconds_sum{", " 2.5"), "{page}");
    assert!(has_line("gen_ai_client_embeddings_operation_input_tokens_sum{", " 120"), "{page}");
    let points = points(&snapshot);
    let [duration, input] = ["duration", "operation.input_tokens"]
        .map(|name| format!("gen_ai.client.embeddings.{name}"));
    let labels = ["gen_ai.operation.name=embeddings"];
    assert_eq!(one(&points, &duration, &labels), Some(1.0));
    assert_eq!(one(&points, &input, &labels), Some(1.0));
    assert!(points.keys().all(|point| !point.starts_with("gen_ai.client.operation.")));
    assert!(points.keys().all(|point| !point.starts_with("gen_ai.client.inference.")));
    let (instruments, metrics_reader) = start(GenAiNames::Legacy);
    instruments.record_end(&embeddings(), &limiter());
    let points = self::points(&metrics_reader.scrape());
    assert_eq!(one(&points, "gen_ai.client.operation.duration", &labels), Some(1.0));
    assert!(points.keys().all(|point| !point.starts_with("gen_ai.client.embeddings.")));
}

#[test]
fn exports_operations_and_sessions_of_mcp() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    let limiter = limiter();
    let record_end = |change: fn(&mut McpOperation)| {
        let mut record = testing::tool_call();
        change(&mut record.mcp.as_mut().unwrap().operations[0]);
        instruments.record_end(&record, &limiter);
    };
    record_end(|_| {});
    record_end(|operation| operation.is_tool_error = true);
    // The server rejects a tool that it does not have, and the name gets no label value.
    record_end(|operation| {
        operation.error_code = Some(-32_602);
        operation.message.target = testing::name("invented");
    });
    record_end(|operation| operation.message.method = testing::name("vendor/own"));
    instruments.record_mcp_session(&session(None), &limiter);
    instruments.record_mcp_session(&session(Some("404")), &limiter);
    let snapshot = metrics_reader.scrape();
    let page = prometheus::Format::Text.render(&snapshot);
    let points = points(&snapshot);
    let matching = |metric: &str, labels: &[&str]| {
        let points = points.keys().filter(|point| point.starts_with(metric));
        points.filter(|point| labels.iter().all(|label| point.contains(label))).count()
    };
    let version = "mcp.protocol.version=2025-06-18";
    let (tool, call) = ("gen_ai.tool.name=get-weather", "mcp.method.name=tools/call");
    for (metric, rejections) in
        [("mcp.client.operation.duration", 1), ("mcp.server.operation.duration", 0)]
    {
        assert_eq!(matching(metric, &[tool, call, version]), 2, "{metric}");
        assert_eq!(one(&points, metric, &[tool, "error.type=tool_error"]), Some(1.0));
        let rejected = ["gen_ai.tool.name=other", "rpc.response.status_code=-32602"];
        assert_eq!(one(&points, metric, &rejected), Some(1.0));
        assert_eq!(matching(metric, &["error.type=-32602"]), rejections, "{metric}");
        assert_eq!(one(&points, metric, &["mcp.method.name=_OTHER"]), Some(1.0));
    }
    let has_sum = |metric: &str, value: &str| {
        let mut lines = page.lines().filter(|line| line.starts_with(metric));
        lines.any(|line| line.contains("_OTHER") && line.ends_with(value))
    };
    // Accepted at 100 ms, sent at 120 ms and answered at 500 ms.
    assert!(has_sum("mcp_client_operation_duration_seconds_sum{", " 0.38"), "{page}");
    assert!(has_sum("mcp_server_operation_duration_seconds_sum{", " 0.4"), "{page}");
    for metric in ["mcp.client.session.duration", "mcp.server.session.duration"] {
        assert_eq!(one(&points, metric, &["error.type=404", version]), Some(1.0));
    }
    assert!(points.keys().all(|point| !point.contains("invented")));
}

#[test]
fn names_of_mcp_are_bounded() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    let limiter = limiter();
    for n in 0..1_000 {
        let mut record = testing::tool_call();
        let mcp = record.mcp.as_mut().unwrap();
        mcp.protocol_version = testing::name(&format!("version-{n}"));
        mcp.operations[0].message.target = testing::name(&format!("tool-{n}"));
        instruments.record_end(&record, &limiter);
        let mcp = record.mcp.as_mut().unwrap();
        mcp.operations[0].error_code = Some(n);
        mcp.operations[0].message.method = testing::name(&format!("method-{n}"));
        instruments.record_end(&record, &limiter);
    }
    let points = points(&metrics_reader.scrape());
    let series = points.keys().filter(|point| point.starts_with("mcp.client.operation"));
    let series = series.count();
    assert!((100..200).contains(&series), "100 tools and 64 errors: {series}");
}

#[test]
fn plain_http_has_http_metrics_and_is_counted() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    instruments.record_start(&testing::route());
    instruments.record_end(&testing::plain(), &limiter());
    let points = points(&metrics_reader.scrape());
    assert_eq!(
        one(&points, "tokengauge.requests.started", &["tokengauge.route=default"]),
        Some(1.0)
    );
    let finished =
        points.iter().find(|(point, _)| point.starts_with("tokengauge.requests.finished")).unwrap();
    assert!(!finished.0.contains("gen_ai."), "{finished:?}");
    assert_eq!(
        one(
            &points,
            "http.server.request.duration",
            &["http.request.method=GET", "url.scheme=http", "network.protocol.version=1.1"]
        ),
        Some(1.0)
    );
    assert_eq!(one(&points, "http.client.request.duration", &["server.port=443"]), Some(1.0));
    assert_eq!(sum(&points, "tokengauge.request.stage.duration"), None);
}

#[test]
fn series_of_the_configuration_start_at_zero() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    instruments.initialize_routes(&[testing::route()]);
    let points = points(&metrics_reader.scrape());
    assert_eq!(
        one(
            &points,
            "tokengauge.requests.started",
            &["tokengauge.route=default", "tokengauge.position=outbound"]
        ),
        Some(0.0)
    );
    // The other two states have a model label. They are exported as 0 when the first response of a model arrives.
    let waiting = ["tokengauge.stream.state=waiting"];
    assert_eq!(one(&points, "tokengauge.stream.active_time", &waiting), Some(0.0));
    instruments.live(&testing::series());
    let live = self::points(&metrics_reader.scrape());
    for state in ["streaming", "blocked"] {
        let state = format!("tokengauge.stream.state={state}");
        let model = "gen_ai.request.model=gpt-4o";
        assert_eq!(one(&live, "tokengauge.stream.active_time", &[&state, model]), Some(0.0));
    }
    for anomaly in ParseError::ALL {
        assert_eq!(
            one(
                &points,
                "tokengauge.self.parse_errors",
                &[&format!("tokengauge.parse_error={}", anomaly.as_str())]
            ),
            Some(0.0)
        );
    }
    assert_eq!(
        one(
            &points,
            "tokengauge.self.export.dropped",
            &["tokengauge.signal=traces", "tokengauge.drop_reason=failed"]
        ),
        Some(0.0)
    );
}

#[test]
fn gauges_show_the_snapshot() {
    let (_instruments, metrics_reader) = start(GenAiNames::Latest);
    let points = points(&metrics_reader.scrape());
    let value = |name: &str, with: &[&str]| one(&points, name, with);
    assert_eq!(value("tokengauge.active_requests", &["tokengauge.state=streaming"]), Some(3.0));
    assert_eq!(value("tokengauge.queue.depth", &["tokengauge.precision=upper_bound"]), Some(3.0));
    assert_eq!(
        value(
            "tokengauge.token_throughput",
            &["gen_ai.token.type=output", "tokengauge.window=peak"]
        ),
        Some(120.0)
    );
    assert_eq!(
        value("tokengauge.slo.events", &["tokengauge.slo=ttft", "tokengauge.result=bad"]),
        Some(2.0)
    );
    assert_eq!(value("tokengauge.slo.threshold", &["tokengauge.slo=ttft"]), Some(2.0));
    assert_eq!(value("tokengauge.slo.threshold", &["tokengauge.slo=availability"]), None);
    assert_eq!(value("tokengauge.slo.rate_threshold", &[]), Some(15.5));
    assert_eq!(
        value("tokengauge.slo.burn_rate", &["tokengauge.slo=rate", "tokengauge.window=3d"]),
        Some(2.0)
    );
    assert_eq!(value("tokengauge.self.observer.dropped_bytes", &[]), Some(10.0));
    assert_eq!(value("tokengauge.self.requests.invalid", &[]), Some(4.0));
    assert_eq!(value("tokengauge.self.requests.over_limit", &[]), Some(6.0));
    assert_eq!(value("tokengauge.self.connections.evicted", &[]), Some(4.0));
    assert_eq!(value("tokengauge.self.connections.open", &[]), Some(17.0));
    assert_eq!(value("tokengauge.self.connections.limit", &[]), Some(8_192.0));
    let upstream = ["tokengauge.upstream=vllm"];
    assert_eq!(value("tokengauge.upstream.stale_connections", &upstream), Some(7.0));
    assert_eq!(value("tokengauge.upstream.retries", &upstream), Some(2.0));
    assert_eq!(value("tokengauge.self.label_overflow", &["tokengauge.dimension=model"]), Some(3.0));
    assert_eq!(value("tokengauge.build_info", &[]), Some(1.0));
}

#[test]
fn exports_usage_and_limits_of_the_process() {
    let (_instruments, metrics_reader) = start(GenAiNames::Latest);
    let points = points(&metrics_reader.scrape());
    let value = |name: &str, with: &[&str]| one(&points, name, with);
    assert_eq!(value("process.cpu.time", &["cpu.mode=user"]), Some(2.5));
    assert_eq!(value("process.cpu.time", &["cpu.mode=system"]), Some(0.5));
    let mebibytes = |count: f64| Some(count * f64::from(1 << 20));
    assert_eq!(value("process.memory.usage", &[]), mebibytes(20.0));
    assert_eq!(value("process.cpu", &[]), Some(3.0));
    assert_eq!(value("process.resident_memory", &[]), mebibytes(20.0));
    assert_eq!(value("process.start_time", &[]), Some(1_700_000_001.5));
    assert_eq!(value("process.open_fds", &[]), Some(42.0));
    let text = prometheus::Format::Text.render(&metrics_reader.scrape());
    for line in [
        "process_cpu_seconds_total 3\n",
        "process_resident_memory_bytes 20971520\n",
        "process_start_time_seconds 1700000001.5\n",
        "process_open_fds 42\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert_eq!(value("tokengauge.self.memory_limit", &[]), mebibytes(64.0));
    assert_eq!(value("tokengauge.self.cpu_limit", &[]), Some(0.5));
    assert_eq!(value("tokengauge.self.drain.duration", &[]), Some(12.0));
}

#[test]
fn exports_rate_limits_by_type() {
    let (_instruments, metrics_reader) = start(GenAiNames::Latest);
    let points = points(&metrics_reader.scrape());
    let value = |name: &str, with: &[&str]| one(&points, name, with);
    assert_eq!(value("tokengauge.rate_limit.requests.remaining", &[]), Some(499.0));
    let tokens = |name, limited: &str| value(name, &[&format!("tokengauge.limit_type={limited}")]);
    let (remaining, limit) =
        ("tokengauge.rate_limit.tokens.remaining", "tokengauge.rate_limit.tokens.limit");
    assert_eq!(tokens(remaining, "output_tokens"), Some(499.0));
    assert_eq!(tokens(remaining, "input_tokens"), None, "not said");
    assert_eq!(tokens(remaining, "requests"), None, "this is a limit on requests, not tokens");
    assert_eq!(tokens(limit, "input_tokens"), Some(500.0));
    assert_eq!(tokens("tokengauge.rate_limit.reset", "tokens"), Some(17.0));
    assert_eq!(tokens("tokengauge.rate_limit.reset", "requests"), None);
}

#[test]
fn the_snapshot_is_taken_once_per_collection() {
    let taken = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&taken);
    let readings = SnapshotSource::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        snapshot()
    });
    let (_instruments, metrics_reader) =
        Instruments::new(&TelemetryConfig::default(), CardinalityLimits::default(), readings);
    metrics_reader.scrape();
    metrics_reader.collect();
    assert_eq!(taken.load(Ordering::Relaxed), 2);
}

/// Returns a failed call in which every value from outside depends on `n`.
fn distinct(n: u16) -> Record {
    let mut record = testing::streamed();
    let mut route = (*testing::route()).clone();
    route.name = Label::from_trusted(&format!("route-{}", n % 700));
    if let Some(call) = &mut record.call {
        call.series.model = Label::from_trusted(&format!("model-{n}"));
        call.series.route = route.name.clone();
        call.response_model = testing::name(&format!("answered-{n}"));
        call.length_buckets.input = Some(LengthBucket::ALL[usize::from(n) % 6]);
        call.choices[0].reason = testing::name(&format!("because-{n}"));
    }
    record.outcome = Outcome::Error;
    record.error_type = testing::name(&format!("error-{n}"));
    record.http.status = Some(400 + n % 200);
    record.route = Arc::new(route);
    record
}

/// Records calls of 21 models by 100 tenants, each once successful and once rejected with 429.
fn many_tenants() -> (Arc<Instruments>, MetricsReader) {
    tenants_of_models("")
}

/// Like [`many_tenants`], with a suffix of all names.
fn tenants_of_models(suffix: &str) -> (Arc<Instruments>, MetricsReader) {
    let limits = CardinalityLimits::default();
    let readings = SnapshotSource::new(StateSnapshot::default);
    let (instruments, metrics_reader) =
        Instruments::new(&TelemetryConfig::default(), limits, readings);
    let limiter = limiter();
    for tenant in 0..100 {
        for model in 0..21 {
            let mut record = testing::streamed();
            let call = record.call.as_mut().unwrap();
            call.series.tenant = Some(Label::from_trusted(&format!("tenant-{tenant}{suffix}")));
            call.series.model = Label::from_trusted(&format!("model-{model}{suffix}"));
            call.response_model = testing::name(&format!("model-{model}{suffix}"));
            let live = instruments.live(&call.series);
            SAMPLES.into_iter().for_each(|sample| live.record(sample));
            instruments.record_end(&record, &limiter);
            record.outcome = Outcome::Error;
            record.error_source = ErrorSource::Upstream;
            record.error_type = testing::name("429");
            record.http.status = Some(429);
            instruments.record_end(&record, &limiter);
        }
    }
    (instruments, metrics_reader)
}

#[test]
fn tenants_are_replaced_first_and_no_status_or_error_type_is_lost() {
    let (_instruments, metrics_reader) = many_tenants();
    let metrics = metrics_reader.scrape();
    let points = points(&metrics);
    let finished = |labels: &[&str]| {
        let of = |point: &&String| {
            point.starts_with("tokengauge.requests.finished")
                && labels.iter().all(|label| point.contains(label))
        };
        let found: Vec<_> = points.keys().filter(of).collect();
        let total: f64 = found.iter().map(|point| points[*point]).sum();
        (found.len(), total.to_string())
    };
    let rejected = ["http.response.status_code=429", "error.type=429"];
    assert_eq!(
        finished(&rejected).1,
        "2100",
        "every rejection keeps its status and its error type"
    );
    assert_eq!(finished(&["http.response.status_code=200"]).1, "2100");
    assert_eq!(finished(&["error.type=other"]).0, 0);
    assert_eq!(finished(&["gen_ai.request.model=other"]).0, 0, "models are not replaced");
    assert!(finished(&["tokengauge.tenant=tenant-0}"]).0 > 0);
    let (series, calls) = finished(&["tokengauge.tenant=other"]);
    assert!(series <= 2 * 21 && calls.len() == 4, "{series} with {calls}");
    // Tokens have the same labels.
    let tokens = |point: &&String| {
        point.starts_with("tokengauge.tokens{") && point.contains("tokengauge.tenant=other")
    };
    assert!(points.keys().any(|point| tokens(&point)));
}

fn page_bytes(metrics_reader: &MetricsReader) -> usize {
    prometheus::Format::OpenMetrics.render(&metrics_reader.scrape()).len()
}

#[test]
fn a_page_of_many_tenants_is_bounded() {
    let (_instruments, metrics_reader) = many_tenants();
    let page = page_bytes(&metrics_reader);
    assert!(page > 8 << 20 && page <= MAX_PAGE_BYTES, "{page}");
    // The longest names that a label has.
    let (_instruments, metrics_reader) = tenants_of_models(&"x".repeat(240));
    let page = page_bytes(&metrics_reader);
    assert!(page > 4 << 20 && page <= MAX_PAGE_BYTES, "{page}");
}

#[test]
fn many_names_do_not_overflow_the_sdk_and_are_counted() {
    let limits = CardinalityLimits {
        models: Int::within(5),
        length_buckets: true,
        ..CardinalityLimits::default()
    };
    let (instruments, metrics_reader) = Instruments::new(
        &TelemetryConfig { gen_ai: GenAiNames::Both, ..TelemetryConfig::default() },
        limits,
        SnapshotSource::new(StateSnapshot::default),
    );
    // This limiter admits many more values than the limits of the instruments assume.
    let limiter = CardinalityLimiter::new(
        CardinalityLimits {
            models: Int::within(100_000),
            finish_reasons: Int::within(100_000),
            ..limits
        },
        [],
    );
    for record in (0..3_000).map(distinct) {
        instruments.record_start(&record.route);
        instruments.live(&record.call.as_ref().unwrap().series).record(SAMPLES[0]);
        instruments.record_end(&record, &limiter);
    }
    let metrics = metrics_reader.scrape();
    let points = points(&metrics);
    let overflown: Vec<_> =
        points.keys().filter(|point| point.contains("otel.metric.overflow")).collect();
    assert!(overflown.is_empty(), "{overflown:?}");
    assert_eq!(
        sum(&points, "tokengauge.requests.finished"),
        Some(3_000.0),
        "all requests are counted"
    );
    assert_eq!(sum(&points, "tokengauge.tokens"), Some(3_000.0 * 107.0));
    assert!(
        one(&points, "tokengauge.self.label_overflow", &["tokengauge.dimension=series"]).unwrap()
            > 0.0
    );
}

/// Returns a call with a new model and tenant. The calls 0 to 287 have all combinations of the labels that are not
/// replaced by `other`, and further calls repeat these combinations.
fn combination(n: usize) -> Record {
    let mut record = testing::streamed();
    let call = record.call.as_mut().unwrap();
    let labels = &mut call.series;
    labels.operation = Operation::ALL[n % 12];
    labels.stream = (n / 12).is_multiple_of(2);
    labels.position = ProxyPosition::ALL[n / 24 % 3];
    labels.tenant = (n / 72).is_multiple_of(2).then(|| Label::from_trusted(&format!("tenant-{n}")));
    labels.variant = (n / 144).is_multiple_of(2).then(|| Label::from_trusted("a"));
    labels.model = Label::from_trusted(&format!("model-{n}"));
    call.response_model = testing::name(&format!("answered-{n}")).filter(|_| !n.is_multiple_of(5));
    call.length_buckets.input = Some(LengthBucket::ALL[n % 6]);
    let split =
        ByModality { text: Some(50), image: Some(20), audio: Some(20), ..ByModality::default() };
    call.usage = call.usage.map(|usage| Usage { input_by: split, output_by: split, ..usage });
    record
}

#[test]
fn no_metric_has_more_series_than_its_limit() {
    let (instruments, metrics_reader) = start(GenAiNames::Both);
    let limits = CardinalityLimits { models: Int::within(100_000), ..CardinalityLimits::default() };
    let limiter = CardinalityLimiter::new(limits, []);
    for record in (0..20 * 288).map(combination) {
        let live = instruments.live(&record.call.as_ref().unwrap().series);
        SAMPLES.into_iter().for_each(|sample| live.record(sample));
        instruments.record_end(&record, &limiter);
    }
    let points = points(&metrics_reader.scrape());
    let mut fullest = 0.0_f64;
    let config = TelemetryConfig { gen_ai: GenAiNames::Both, ..TelemetryConfig::default() };
    let selection = config.selection();
    for metric in catalog::metrics().filter(|metric| metric.has(key::OPERATION)) {
        let prefix = format!("{}{{", metric.name);
        let series: Vec<_> = points.keys().filter(|point| point.starts_with(&prefix)).collect();
        assert!(!series.iter().any(|it| it.contains("otel.metric.overflow")), "{}", metric.name);
        fullest = fullest.max(series.len() as f64 / max_series(metric, selection) as f64);
    }
    assert!(points.len() > 10_000 && (0.5..1.0).contains(&fullest), "{} {fullest}", points.len());
}

/// Returns a configuration with an OTLP endpoint.
fn exporting(temporality: Temporality) -> TelemetryConfig {
    let (config, _) = TelemetryConfig::from_env(|name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://127.0.0.1:1".into()),
        _ => None,
    });
    TelemetryConfig { temporality, ..config }
}

#[test]
fn exports_deltas_over_otlp_and_sums_in_scrapes() {
    let (instruments, metrics_reader) = Instruments::new(
        &exporting(Temporality::Delta),
        CardinalityLimits::default(),
        SnapshotSource::new(snapshot),
    );
    let started =
        |metrics: &MetricsSnapshot| one(&points(metrics), "tokengauge.requests.started", &[]);
    instruments.record_start(&testing::route());
    assert_eq!(
        (started(&metrics_reader.collect()), started(&metrics_reader.scrape())),
        (Some(1.0), Some(1.0))
    );
    instruments.record_start(&testing::route());
    assert_eq!(
        (started(&metrics_reader.collect()), started(&metrics_reader.scrape())),
        (Some(1.0), Some(2.0))
    );
}

#[test]
fn a_late_observer_delays_deltas_and_leaves_sums_of_the_last_scrape() {
    let is_late = Arc::<AtomicBool>::default();
    let source = Arc::clone(&is_late);
    let (instruments, metrics_reader) = Instruments::new(
        &exporting(Temporality::Delta),
        CardinalityLimits::default(),
        SnapshotSource::new(move || StateSnapshot {
            is_observer_late: source.load(Ordering::Relaxed),
            ..snapshot()
        }),
    );
    let started = |metrics: &MetricsSnapshot| {
        let points = points(metrics);
        assert_eq!(one(&points, "tokengauge.build_info", &[]), Some(1.0));
        one(&points, "tokengauge.requests.started", &[])
    };
    instruments.record_start(&testing::route());
    assert_eq!(started(&metrics_reader.scrape()), Some(1.0));
    is_late.store(true, Ordering::Relaxed);
    instruments.record_start(&testing::route());
    assert_eq!(started(&metrics_reader.scrape()), Some(1.0));
    assert_eq!(started(&metrics_reader.collect()), None);
    is_late.store(false, Ordering::Relaxed);
    assert_eq!(started(&metrics_reader.collect()), Some(2.0));
    assert_eq!(started(&metrics_reader.scrape()), Some(2.0));
}

#[test]
fn gen_ai_metrics_can_be_disabled() {
    let (instruments, metrics_reader) = start(GenAiNames::Off);
    instruments.record_end(&testing::streamed(), &limiter());
    instruments.record_end(&testing::refused(), &limiter());
    assert!(points(&metrics_reader.scrape()).keys().all(|point| !point.starts_with("gen_ai.")));
}

#[test]
fn the_end_stage_follows_the_last_timestamp() {
    let mut record = testing::streamed();
    assert_eq!(end_stage(&record), Stage::Tail);
    record.outcome = Outcome::Truncated;
    assert_eq!(end_stage(&record), Stage::Decode);
    record.timestamps.visible = None;
    assert_eq!(end_stage(&record), Stage::Reasoning);
    record.timestamps.token = None;
    assert_eq!(end_stage(&record), Stage::FirstToken);
    record.timestamps.event = None;
    assert_eq!(end_stage(&record), Stage::FirstEvent);
    record.timestamps.byte = None;
    assert_eq!(end_stage(&record), Stage::FirstByte);
    record.timestamps.head = None;
    assert_eq!(end_stage(&record), Stage::Headers);
    record.timestamps.uploaded = None;
    assert_eq!(end_stage(&record), Stage::Upload);
    record.timestamps.sent = None;
    assert_eq!(end_stage(&record), Stage::Connect);
    record.timestamps.admit = None;
    assert_eq!(end_stage(&record), Stage::Admission);
    assert_eq!(end_stage(&testing::refused()), Stage::Tail);
}

/// Histograms without exemplars. Their values do not belong to a request, or are recorded while a stream runs. At that
/// time, it is not known yet whether the trace is kept. One request can have many operations of MCP.
const LIVE: [&str; 10] = [
    "mcp.client.operation.duration",
    "mcp.client.session.duration",
    "mcp.server.operation.duration",
    "mcp.server.session.duration",
    "tokengauge.self.scheduling_delay",
    "tokengauge.inter_token_latency",
    "tokengauge.inter_chunk_latency",
    "tokengauge.tokens_per_chunk",
    "gen_ai.client.inference.time_per_output_chunk",
    "gen_ai.client.operation.time_per_output_chunk",
];

/// Returns the buckets of a point that have exemplars. All exemplars must come from the same record.
fn marked(point: &HistogramDataPoint) -> Vec<usize> {
    let bucket = |exemplar: &Exemplar| {
        let Some(exemplar::Value::AsDouble(value)) = exemplar.value else { panic!("{exemplar:?}") };
        assert_eq!(exemplar.trace_id, b"0123456789abcdef");
        assert_eq!(exemplar.span_id, b"client00");
        let bounds = &point.explicit_bounds;
        bounds.partition_point(|bound| *bound < value)
    };
    point.exemplars.iter().map(bucket).collect()
}

fn sent(snapshot: &MetricsSnapshot) -> Vec<Metric> {
    let request = crate::otlp::metrics::requests(snapshot, usize::MAX).bodies.remove(0);
    let mut request = ExportMetricsServiceRequest::decode(request).unwrap();
    assert_eq!(request.resource_metrics.len(), 1);
    let mut resource = request.resource_metrics.remove(0);
    assert_eq!(resource.scope_metrics.len(), 1);
    resource.scope_metrics.remove(0).metrics
}

#[test]
fn every_bucket_filled_at_an_end_has_an_exemplar() {
    let mut led = BTreeSet::new();
    for metric in sent(&representative()) {
        let Some(Data::Histogram(histogram)) = metric.data else {
            continue;
        };
        let live = LIVE.contains(&&*metric.name);
        for point in &histogram.data_points {
            let counts = point.bucket_counts.iter().enumerate();
            let filled = counts.filter(|(_, count)| **count > 0 && !live);
            let filled: Vec<_> = filled.map(|(bucket, _)| bucket).collect();
            assert_eq!(marked(point), filled, "{}", metric.name);
            led.extend((!filled.is_empty()).then(|| metric.name.clone()));
        }
    }
    let histograms = catalog::metrics().filter(|metric| metric.kind == catalog::Kind::Histogram);
    let ends = histograms.filter(|metric| !LIVE.contains(&metric.name));
    assert_eq!(led, ends.map(|metric| metric.name.to_owned()).collect());
}

#[test]
fn other_metrics_have_exemplars_only_for_failures_and_stalls() {
    for metric in sent(&representative()) {
        let points = match metric.data.unwrap() {
            Data::Sum(sum) => sum.data_points,
            Data::Gauge(gauge) => gauge.data_points,
            Data::Histogram(_) | Data::ExponentialHistogram(_) | Data::Summary(_) => continue,
        };
        for point in points {
            let mut attributes = point.attributes.iter();
            let not_ok = attributes.any(|kv| kv.key == "tokengauge.outcome" && shown(kv) != "ok");
            let leads = match metric.name.as_str() {
                "tokengauge.requests.finished" => not_ok,
                "tokengauge.stream.stalls" => {
                    point.value != Some(number_data_point::Value::AsInt(0))
                }
                _ => false,
            };
            assert_eq!(point.exemplars.len(), usize::from(leads), "{}", metric.name);
        }
    }
}

#[test]
fn omits_exemplars_older_than_the_start_of_a_point() {
    let (instruments, metrics_reader) = start(GenAiNames::Latest);
    let mut record = testing::streamed();
    record.wall = tokengauge_types::clock::WallTime::from_unix_nanos(0);
    instruments.record_end(&record, &limiter());
    let snapshot = metrics_reader.collect();
    assert!(prometheus::Format::OpenMetrics.render(&snapshot).contains(" # {"));
    for metric in sent(&snapshot) {
        if let Some(Data::Histogram(histogram)) = &metric.data {
            assert!(histogram.data_points.iter().all(|point| point.exemplars.is_empty()));
        }
    }
}

/// Prometheus rejects a scrape in which a family or a series occurs twice.
#[test]
fn families_of_open_metrics_have_distinct_names() {
    let text = prometheus::Format::OpenMetrics.render(&representative());
    let mut families = BTreeSet::new();
    let mut series = BTreeSet::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(family.split(' ').next().unwrap()), "{line}");
        } else if !line.starts_with('#') {
            let sample = line.split(" # ").next().unwrap();
            assert!(series.insert(sample.rsplit_once(' ').unwrap().0), "{line}");
        }
    }
    for name in &families {
        for suffix in ["_total", "_count", "_sum", "_bucket", "_created", "_info"] {
            assert!(!families.contains(&*format!("{name}{suffix}")), "{name}{suffix}");
        }
    }
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn an_end_of_known_series_does_not_allocate() {
    let (instruments, _collector) = start(GenAiNames::Both);
    let (record, limiter) = (testing::streamed(), limiter());
    instruments.record_end(&record, &limiter);
    let counted = allocation_counter::measure(|| instruments.record_end(&record, &limiter));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
