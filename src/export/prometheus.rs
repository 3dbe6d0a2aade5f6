//! The Prometheus text format, version 0.0.4, from the same picture that goes out over OTLP.
//!
//! Names are made as Prometheus' own OTLP receiver makes them by default: characters outside `[a-zA-Z0-9_]` become `_`,
//! then the unit's word and, on counters, `_total` are appended unless the name holds them. Families and series are
//! sorted, so that two scrapes differ only in their numbers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, HistogramDataPoint, Metric, MetricData, ResourceMetrics,
};

/// What a response says that it is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of it as text.
pub fn text(metrics: &ResourceMetrics) -> String {
    let mut families = BTreeMap::new();
    for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
        let family = Family::of(metric);
        families.insert(family.name.clone(), family);
    }
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ok: fmt::Result = write_target(metrics.resource(), &mut out);
    for family in families.values() {
        let _ok: fmt::Result = family.write(&mut out);
    }
    out
}

/// The name under which a metric stands in Prometheus.
pub fn name(otel: &str, unit: &str, kind: Kind) -> String {
    let mut name: String = otel
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let has = |name: &str, word: &str| name.split('_').any(|part| part == word);
    let (main, per) = unit_words(unit, kind);
    if !main.is_empty() && !has(&name, main) {
        name.push('_');
        name.push_str(main);
    }
    if let Some(per) = per
        && !name.ends_with(&format!("per_{per}"))
    {
        name.push_str("_per_");
        name.push_str(per);
    }
    if kind == Kind::Counter && !name.ends_with("_total") {
        name.push_str("_total");
    }
    name
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The words of a unit, before and after its `/`. `{things}` have none.
fn unit_words(unit: &str, kind: Kind) -> (&str, Option<&str>) {
    let (main, per) = match unit.split_once('/') {
        Some((main, per)) => (main, Some(per)),
        None => (unit, None),
    };
    let main = match main {
        "s" => "seconds",
        "By" => "bytes",
        "1" if kind == Kind::Gauge && per.is_none() => "ratio",
        _ => "",
    };
    let per = per.map(|per| match per {
        "s" => "second",
        other => other,
    });
    (main, per)
}

/// One metric with all its series.
struct Family<'a> {
    name: String,
    help: &'a str,
    kind: Kind,
    /// Labels as they stand between the braces, and what is counted or shown.
    series: Vec<(String, Sample<'a>)>,
}

enum Sample<'a> {
    Number(f64),
    Histogram {
        bounds: Vec<f64>,
        counts: Vec<u64>,
        sum: f64,
        count: u64,
    },
    /// A whole number, exact beyond 2^53.
    Whole(Cow<'a, str>),
}

impl<'a> Family<'a> {
    fn of(metric: &'a Metric) -> Self {
        let (kind, mut series) = match metric.data() {
            AggregatedMetrics::F64(data) => samples(data, Sample::Number, |sum| sum),
            AggregatedMetrics::U64(data) => samples(data, |value| whole(&value), |sum| sum as f64),
            AggregatedMetrics::I64(data) => samples(data, |value| whole(&value), |sum| sum as f64),
        };
        series.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self {
            name: name(metric.name(), metric.unit(), kind),
            help: metric.description(),
            kind,
            series,
        }
    }

    fn write(&self, out: &mut impl Write) -> fmt::Result {
        let name = &self.name;
        writeln!(out, "# HELP {name} {}", escaped(self.help, false))?;
        writeln!(out, "# TYPE {name} {}", self.kind.as_str())?;
        for (labels, sample) in &self.series {
            match sample {
                Sample::Number(value) => {
                    writeln!(out, "{name}{} {}", braced(labels), number(*value))?
                }
                Sample::Whole(value) => writeln!(out, "{name}{} {value}", braced(labels))?,
                Sample::Histogram {
                    bounds,
                    counts,
                    sum,
                    count,
                } => {
                    let mut below = 0;
                    for (bound, bucket) in bounds.iter().zip(counts) {
                        below += bucket;
                        let labels = joined(labels, &format!("le=\"{}\"", number(*bound)));
                        writeln!(out, "{name}_bucket{{{labels}}} {below}")?;
                    }
                    let labels_of_all = joined(labels, "le=\"+Inf\"");
                    writeln!(out, "{name}_bucket{{{labels_of_all}}} {count}")?;
                    writeln!(out, "{name}_sum{} {}", braced(labels), number(*sum))?;
                    writeln!(out, "{name}_count{} {count}", braced(labels))?;
                }
            }
        }
        Ok(())
    }
}

fn samples<T: Copy>(
    data: &MetricData<T>,
    show: impl Fn(T) -> Sample<'static>,
    float: impl Fn(T) -> f64,
) -> (Kind, Vec<(String, Sample<'static>)>) {
    match data {
        MetricData::Gauge(gauge) => {
            let points = gauge.data_points();
            (
                Kind::Gauge,
                points
                    .map(|point| (labels(point.attributes()), show(point.value())))
                    .collect(),
            )
        }
        MetricData::Sum(sum) => {
            let kind = if sum.is_monotonic() {
                Kind::Counter
            } else {
                Kind::Gauge
            };
            let points = sum.data_points();
            (
                kind,
                points
                    .map(|point| (labels(point.attributes()), show(point.value())))
                    .collect(),
            )
        }
        MetricData::Histogram(histogram) => {
            let points = histogram.data_points();
            let sample = |point: &HistogramDataPoint<T>| Sample::Histogram {
                bounds: point.bounds().collect(),
                counts: point.bucket_counts().collect(),
                sum: float(point.sum()),
                count: point.count(),
            };
            (
                Kind::Histogram,
                points
                    .map(|point| (labels(point.attributes()), sample(point)))
                    .collect(),
            )
        }
        // None is made: this format cannot say them.
        MetricData::ExponentialHistogram(_) => (Kind::Histogram, Vec::new()),
    }
}

fn whole(value: &impl ToString) -> Sample<'static> {
    Sample::Whole(value.to_string().into())
}

/// `target_info` carries the resource; a scrape adds `job` and `instance` itself.
fn write_target(resource: &Resource, out: &mut impl Write) -> fmt::Result {
    let pairs: Vec<KeyValue> = resource
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
        .collect();
    writeln!(out, "# HELP target_info Target metadata")?;
    writeln!(out, "# TYPE target_info gauge")?;
    writeln!(out, "target_info{} 1", braced(&labels(pairs.iter())))
}

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
    let pairs: BTreeMap<String, String> = attributes
        .map(|kv| {
            (
                label_name(kv.key.as_str()),
                escaped(&kv.value.to_string(), true),
            )
        })
        .collect();
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\""))
        .collect();
    pairs.join(",")
}

fn label_name(key: &str) -> String {
    let name: String = key
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("key_{name}");
    }
    name
}

fn escaped(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted {
        text.replace('"', "\\\"")
    } else {
        text
    }
}

fn braced(labels: &str) -> Cow<'_, str> {
    if labels.is_empty() {
        return "".into();
    }
    format!("{{{labels}}}").into()
}

fn joined(labels: &str, further: &str) -> String {
    if labels.is_empty() {
        return further.to_owned();
    }
    format!("{labels},{further}")
}

/// As Prometheus' OTLP receiver writes bounds: the shortest decimal without an exponent.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.into()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::metrics::{ManualReader, SdkMeterProvider};

    use super::*;

    #[test]
    fn names_are_those_of_prometheus_own_translator() {
        for (otel, unit, kind, expected) in [
            (
                "gen_ai.client.inference.duration",
                "s",
                Kind::Histogram,
                "gen_ai_client_inference_duration_seconds",
            ),
            (
                "gen_ai.client.inference.usage.output_tokens",
                "{token}",
                Kind::Counter,
                "gen_ai_client_inference_usage_output_tokens_total",
            ),
            (
                "gen_ai.client.token.usage",
                "{token}",
                Kind::Histogram,
                "gen_ai_client_token_usage",
            ),
            (
                "x.throughput",
                "{token}/s",
                Kind::Gauge,
                "x_throughput_per_second",
            ),
            (
                "x.output_tokens_per_second",
                "{token}/s",
                Kind::Gauge,
                "x_output_tokens_per_second",
            ),
            ("x.ratio", "1", Kind::Gauge, "x_ratio"),
            (
                "x.budget.remaining",
                "1",
                Kind::Gauge,
                "x_budget_remaining_ratio",
            ),
            ("x.c", "1", Kind::Counter, "x_c_total"),
            ("x.queue_seconds", "s", Kind::Gauge, "x_queue_seconds"),
            ("x.lost", "By", Kind::Counter, "x_lost_bytes_total"),
            ("x.time", "s", Kind::Counter, "x_time_seconds_total"),
        ] {
            assert_eq!(name(otel, unit, kind), expected);
        }
    }

    #[test]
    fn the_text_is_sorted_escaped_and_whole() {
        let reader = std::sync::Arc::new(ManualReader::default());
        let provider = SdkMeterProvider::builder()
            .with_resource(
                Resource::builder_empty()
                    .with_attribute(KeyValue::new("service.name", "t\"g"))
                    .build(),
            )
            .with_reader(crate::export::collector::Shared::of(std::sync::Arc::clone(
                &reader,
            )))
            .build();
        let meter = provider.meter("test");
        let histogram = meter
            .f64_histogram("b.wait")
            .with_unit("s")
            .with_description("Waits\\ or\nnot.")
            .with_boundaries(vec![0.5, 2.5])
            .build();
        histogram.record(
            0.25,
            &[KeyValue::new("x.y", "a\"b\\c\nd"), KeyValue::new("n", 3)],
        );
        histogram.record(
            7.0,
            &[KeyValue::new("x.y", "a\"b\\c\nd"), KeyValue::new("n", 3)],
        );
        let counter = meter.u64_counter("a.things").with_unit("{thing}").build();
        counter.add(9_007_199_254_740_993, &[KeyValue::new("k", "z")]);
        counter.add(1, &[KeyValue::new("k", "b")]);
        let mut metrics = ResourceMetrics::default();
        opentelemetry_sdk::metrics::reader::MetricReader::collect(&*reader, &mut metrics).unwrap();
        let expected = r##"# HELP target_info Target metadata
# TYPE target_info gauge
target_info{service_name="t\"g"} 1
# HELP a_things_total 
# TYPE a_things_total counter
a_things_total{k="b"} 1
a_things_total{k="z"} 9007199254740993
# HELP b_wait_seconds Waits\\ or\nnot.
# TYPE b_wait_seconds histogram
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="0.5"} 1
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="2.5"} 1
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="+Inf"} 2
b_wait_seconds_sum{n="3",x_y="a\"b\\c\nd"} 7.25
b_wait_seconds_count{n="3",x_y="a\"b\\c\nd"} 2
"##;
        assert_eq!(text(&metrics), expected);
    }
}
