//! Renders metrics as text for a scrape: in the Prometheus text format 0.0.4 or in OpenMetrics 1.0.
//!
//! The text comes from the same snapshot that OTLP exports. Metrics and series are sorted, so two scrapes differ only
//! in their numbers. Both formats contain the same series and write bucket bounds in the notation of OpenMetrics, which
//! Prometheus 3 stores. Series therefore stay the same if a scraper changes the format. Only OpenMetrics contains
//! exemplars.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, HistogramDataPoint, Metric, MetricData};

use crate::exemplars::{Exemplar, ExemplarSnapshot};
use crate::metrics_reader::MetricsSnapshot;
use crate::prometheus_names;

mod format;
mod page;

pub use crate::prometheus_names::{Kind, label_name, name};
pub use format::Format;
pub use page::MetricsPage;

impl Format {
    pub fn render(self, snapshot: &MetricsSnapshot) -> String {
        self.page(snapshot).collect()
    }

    /// Renders all metrics in pieces. The whole text is far larger than the snapshot, so it is never held in memory.
    pub fn page<S: Borrow<MetricsSnapshot>>(self, snapshot: S) -> MetricsPage<S> {
        MetricsPage::new(self, snapshot)
    }

    /// Writes `target_info`, whose labels are the resource attributes. The scraper adds the labels `job` and
    /// `instance`.
    fn write_target(self, resource: &Resource, out: &mut impl Write) -> fmt::Result {
        let (family, kind) = match self {
            Self::Text => ("target_info", "gauge"),
            Self::OpenMetrics => ("target", "info"),
        };
        let pairs: Vec<KeyValue> =
            resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        writeln!(out, "# HELP {family} Target metadata")?;
        writeln!(out, "# TYPE {family} {kind}")?;
        writeln!(out, "target_info{} 1", braced(&[&labels(pairs.iter())]))
    }

    /// Writes the comments before the series of a metric (a family): `HELP`, `TYPE`, and in OpenMetrics also `UNIT`.
    fn write_family_head(
        self,
        metric: &Metric,
        (name, kind): (&str, Kind),
        out: &mut impl Write,
    ) -> fmt::Result {
        let help = metric.description();
        match self {
            Self::Text => {
                writeln!(out, "# HELP {name} {}", escaped(help, false))?;
                writeln!(out, "# TYPE {name} {}", kind.as_str())?;
            }
            Self::OpenMetrics => {
                // In OpenMetrics, the name of a counter family does not include the `_total` of its samples.
                let base = name.strip_suffix("_total").unwrap_or(name);
                writeln!(out, "# HELP {base} {}", escaped(help, true))?;
                writeln!(out, "# TYPE {base} {}", kind.as_str())?;
                if let Some(unit) = prometheus_names::unit_of(base, metric.unit(), kind) {
                    writeln!(out, "# UNIT {base} {unit}")?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Series {
    /// Labels as they are written between the braces.
    labels: String,
    sample: Sample,
    /// Exemplars to write, each with the index of its bucket.
    exemplars: Vec<(usize, Exemplar)>,
}

#[derive(Debug)]
enum Sample {
    Number(String),
    Histogram { bounds: Vec<f64>, counts: Vec<u64>, sum: String, count: u64 },
}

/// Returns the series of a metric, sorted by labels.
fn series_of(metric: &Metric, taken: Option<&ExemplarSnapshot>) -> Vec<Series> {
    let points = Points { metric, taken };
    // Integers are formatted as integers, so that they stay exact above 2⁵³.
    let mut series = match metric.data() {
        AggregatedMetrics::F64(data) => points.series(data, number),
        AggregatedMetrics::U64(data) => points.series(data, |value| value.to_string()),
        AggregatedMetrics::I64(data) => points.series(data, |value| value.to_string()),
    };
    series.sort_by(|one, other| one.labels.cmp(&other.labels));
    series
}

impl Series {
    fn write(&self, name: &str, out: &mut impl Write) -> fmt::Result {
        let labels = &self.labels;
        let exemplar = |bucket| {
            let found = self.exemplars.iter().find(|(at, _)| *at == bucket);
            ExemplarSuffix(found.map(|(_, exemplar)| exemplar))
        };
        match &self.sample {
            Sample::Number(value) => {
                writeln!(out, "{name}{} {value}{}", braced(&[labels]), exemplar(0))
            }
            Sample::Histogram { bounds, counts, sum, count } => {
                let mut below = 0;
                for (bucket, (bound, counted)) in bounds.iter().zip(counts).enumerate() {
                    below += counted;
                    let bound = format!("le=\"{}\"", canonical(*bound));
                    let labels = braced(&[labels, &bound]);
                    writeln!(out, "{name}_bucket{labels} {below}{}", exemplar(bucket))?;
                }
                let (all, last) = (braced(&[labels, "le=\"+Inf\""]), exemplar(bounds.len()));
                writeln!(out, "{name}_bucket{all} {count}{last}")?;
                writeln!(out, "{name}_sum{} {sum}", braced(&[labels]))?;
                writeln!(out, "{name}_count{} {count}", braced(&[labels]))
            }
        }
    }
}

/// Formats an exemplar, which follows its sample on the same line.
struct ExemplarSuffix<'a>(Option<&'a Exemplar>);

impl fmt::Display for ExemplarSuffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(exemplar) = self.0 else {
            return Ok(());
        };
        let trace = u128::from_be_bytes(exemplar.trace_id);
        let span = u64::from_be_bytes(exemplar.span_id);
        let value = number(exemplar.value);
        let millis = exemplar.time.unix_nanos() / 1_000_000;
        let (seconds, millis) = (millis / 1_000, millis % 1_000);
        write!(
            f,
            " # {{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {value} {seconds}.{millis:03}"
        )
    }
}

/// Creates the series of one metric.
#[derive(Clone, Copy)]
struct Points<'a> {
    metric: &'a Metric,
    taken: Option<&'a ExemplarSnapshot>,
}

impl<'a> Points<'a> {
    fn series<T: Copy>(self, data: &'a MetricData<T>, show: impl Fn(T) -> String) -> Vec<Series> {
        let shown = |value| Sample::Number(show(value));
        match data {
            MetricData::Gauge(gauge) => {
                let points = gauge.data_points();
                points.map(|it| self.one(it.attributes(), shown(it.value()))).collect()
            }
            MetricData::Sum(sum) => {
                let points = sum.data_points();
                points.map(|it| self.one(it.attributes(), shown(it.value()))).collect()
            }
            MetricData::Histogram(histogram) => {
                let sample = |point: &HistogramDataPoint<T>| Sample::Histogram {
                    bounds: point.bounds().collect(),
                    counts: point.bucket_counts().collect(),
                    sum: show(point.sum()),
                    count: point.count(),
                };
                let points = histogram.data_points();
                points.map(|it| self.one(it.attributes(), sample(it))).collect()
            }
            // This program creates no exponential histograms, because these formats cannot represent them.
            MetricData::ExponentialHistogram(_) => Vec::new(),
        }
    }

    fn one(self, attributes: impl Iterator<Item = &'a KeyValue>, sample: Sample) -> Series {
        let attributes: Vec<_> = attributes.collect();
        let name = self.metric.name();
        let exemplars = self.taken.map(|taken| taken.of_series(name, attributes.iter().copied()));
        Series {
            exemplars: exemplars
                .into_iter()
                .flatten()
                .map(|(bucket, exemplar)| (bucket, *exemplar))
                .collect(),
            labels: labels(attributes.into_iter()),
            sample,
        }
    }
}

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
    let pairs: BTreeMap<String, String> = attributes
        .map(|kv| (label_name(kv.key.as_str()), escaped(&kv.value.to_string(), true)))
        .collect();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    pairs.join(",")
}

fn escaped(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted { text.replace('"', "\\\"") } else { text }
}

/// Encloses labels in braces. Returns an empty string if there are no labels.
fn braced(labels: &[&str]) -> String {
    let labels: Vec<_> = labels.iter().copied().filter(|it| !it.is_empty()).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

/// Formats a number as the shortest decimal number without an exponent.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.into()
    } else {
        value.to_string()
    }
}

/// Formats a bucket bound in the canonical notation of OpenMetrics: Go's shortest `%g`, with `.0` appended to integers.
fn canonical(bound: f64) -> String {
    let scientific = format!("{bound:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        let plain = number(bound);
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::metrics::{ManualReader, SdkMeterProvider};

    use super::*;
    use crate::catalog::{self, tokengauge};
    use crate::config::{ExemplarFilter, TelemetryConfig};
    use crate::exemplars::Exemplars;
    use crate::metrics_reader::{ObservedMetrics, SharedReader};
    use crate::testing;
    use tokengauge_types::clock::{self, WallTime};

    /// Returns a histogram with two values and a counter with two series. The first value and the first series have an
    /// exemplar.
    fn snapshot() -> MetricsSnapshot {
        let reader = SharedReader::from_reader(Arc::new(ManualReader::default()));
        let provider = SdkMeterProvider::builder()
            .with_resource(
                Resource::builder_empty()
                    .with_attribute(KeyValue::new("service.name", "t\"g"))
                    .build(),
            )
            .with_reader(reader.clone())
            .build();
        let process = reader.collect_all();
        let meter = provider.meter("test");
        let histogram = meter
            .f64_histogram(WAIT.name)
            .with_unit("s")
            .with_description("Waits\\ or\n\"not\".")
            .with_boundaries(WAIT.buckets.full.to_vec())
            .build();
        let attributes = [KeyValue::new("n", 3), KeyValue::new("x.y", "a\"b\\c\nd")];
        histogram.record(0.25, &attributes);
        histogram.record(7.0, &attributes);
        let counter = meter.u64_counter(THINGS.name).with_unit("{thing}").build();
        counter.add(9_007_199_254_740_993, &[KeyValue::new("k", "z")]);
        let first = [KeyValue::new("k", "b")];
        counter.add(1, &first);

        let everything =
            TelemetryConfig { exemplars: ExemplarFilter::AlwaysOn, ..TelemetryConfig::default() };
        let exemplars = Exemplars::new(&everything);
        let mut marks = exemplars.recorder(&testing::streamed());
        for value in [0.25, 7.0] {
            marks.bucket(exemplars.series(&WAIT, &attributes), WAIT.buckets.full, value);
        }
        marks.one(exemplars.series(&THINGS, &first));
        drop(marks);
        let exemplars = exemplars.snapshot();
        let observed =
            ObservedMetrics { at: clock::now(), metrics: reader.collect_all(), exemplars };
        MetricsSnapshot { process, observed: Some(Arc::new(observed)), age: Duration::ZERO }
    }

    const WAIT: catalog::Metric = catalog::Metric {
        name: "b.wait",
        buckets: catalog::Bounds::equal(&[0.5, 2.0]),
        ..tokengauge::TIME_TO_FIRST_TOKEN
    };
    const THINGS: catalog::Metric = catalog::Metric { name: "a.things", ..tokengauge::TOKENS };

    #[test]
    fn text_is_sorted_and_escaped() {
        let expected = r##"# HELP target_info Target metadata
# TYPE target_info gauge
target_info{service_name="t\"g"} 1
# HELP a_things_total 
# TYPE a_things_total counter
a_things_total{k="b"} 1
a_things_total{k="z"} 9007199254740993
# HELP b_wait_seconds Waits\\ or\n"not".
# TYPE b_wait_seconds histogram
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="0.5"} 1
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="2.0"} 1
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="+Inf"} 2
b_wait_seconds_sum{n="3",x_y="a\"b\\c\nd"} 7.25
b_wait_seconds_count{n="3",x_y="a\"b\\c\nd"} 2
"##;
        assert_eq!(Format::Text.render(&snapshot()), expected);
    }

    #[test]
    fn open_metrics_has_the_same_series_and_exemplars() {
        let expected = r##"# HELP target Target metadata
# TYPE target info
target_info{service_name="t\"g"} 1
# HELP a_things 
# TYPE a_things counter
a_things_total{k="b"} 1 # {trace_id="30313233343536373839616263646566",span_id="636c69656e743030"} 1 1800000002.500
a_things_total{k="z"} 9007199254740993
# HELP b_wait_seconds Waits\\ or\n\"not\".
# TYPE b_wait_seconds histogram
# UNIT b_wait_seconds seconds
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="0.5"} 1 # {trace_id="30313233343536373839616263646566",span_id="636c69656e743030"} 0.25 1800000002.500
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="2.0"} 1
b_wait_seconds_bucket{n="3",x_y="a\"b\\c\nd",le="+Inf"} 2 # {trace_id="30313233343536373839616263646566",span_id="636c69656e743030"} 7 1800000002.500
b_wait_seconds_sum{n="3",x_y="a\"b\\c\nd"} 7.25
b_wait_seconds_count{n="3",x_y="a\"b\\c\nd"} 2
# EOF
"##;
        let (open, plain) =
            (Format::OpenMetrics.render(&snapshot()), Format::Text.render(&snapshot()));
        assert_eq!(open, expected);
        let series = |text: &str| -> Vec<String> {
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            samples.map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
        };
        assert_eq!(series(&open), series(&plain));
    }

    #[test]
    fn exemplar_labels_fit_the_limit() {
        let exemplar = Exemplar {
            trace_id: [0xff; 16],
            span_id: [0xff; 8],
            value: 1.0,
            time: WallTime::from_unix_nanos(0),
        };
        let shown = ExemplarSuffix(Some(&exemplar)).to_string();
        let labels = shown.split(['{', '}']).nth(1).unwrap();
        let characters = labels.chars().filter(|c| !matches!(c, '=' | '"' | ','));
        assert_eq!(characters.count(), 63, "OpenMetrics allows 128 characters");
    }

    #[test]
    fn bounds_are_canonical() {
        for (bound, expected) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (0.0005, "0.0005"),
            (0.00005, "5e-05"),
            (7.5, "7.5"),
            (655.36, "655.36"),
            (1_000.5, "1000.5"),
            (262_144.0, "262144.0"),
            (1_048_576.0, "1.048576e+06"),
            (67_108_864.0, "6.7108864e+07"),
            (1e21, "1e+21"),
        ] {
            assert_eq!(canonical(bound), expected);
        }
    }
}
