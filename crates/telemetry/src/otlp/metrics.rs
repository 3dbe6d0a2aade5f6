//! Encodes export requests for metrics. The SDK's aggregates are converted to protobuf, and exemplars are added.

use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data as ProtoData;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar as ProtoExemplar, ExponentialHistogram, Gauge, Histogram, Metric as ProtoMetric,
    ScopeMetrics, Sum, Summary, exemplar,
};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use prost::Message;
use prost::encoding::encoded_len_varint;

use crate::exemplars::{Exemplar, ExemplarSnapshot};
use crate::metrics_reader::MetricsSnapshot;

/// Export requests for a collection of metrics. Each request is at most as large as allowed.
#[derive(Debug, Default)]
pub struct Requests {
    pub bodies: Vec<Bytes>,
    /// Number of data points that are too large for a request of their own. They are in no request.
    pub too_large: usize,
}

/// Encodes a snapshot as `ExportMetricsServiceRequest`s of at most `limit` bytes.
pub fn requests(snapshot: &MetricsSnapshot, limit: usize) -> Requests {
    let mut whole = request(snapshot);
    let metrics: Vec<ProtoMetric> =
        scopes(&mut whole).flat_map(|scope| std::mem::take(&mut scope.metrics)).collect();
    // All metrics have the same resource and the same scope.
    let envelope = whole;
    let budget = limit.saturating_sub(envelope.encoded_len() + ENVELOPE_GROWTH);
    let mut packer = Packer { envelope, budget, bytes: 0, all: Requests::default() };
    for metric in metrics {
        packer.add(metric);
    }
    packer.finish()
}

/// Maximum number of bytes by which the length prefixes of resource and scope grow when metrics are added.
const ENVELOPE_GROWTH: usize = 16;

/// Fills export requests with metrics.
struct Packer {
    /// A request with the metrics of the next request.
    envelope: ExportMetricsServiceRequest,
    /// Maximum size in bytes of the metrics in a request.
    budget: usize,
    /// Size in bytes of the metrics in `envelope`.
    bytes: usize,
    all: Requests,
}

impl Packer {
    /// Adds a metric to the current request, or else to the next one. A metric that is larger than a request is split
    /// into halves of its data points.
    fn add(&mut self, metric: ProtoMetric) {
        let length = metric.encoded_len();
        let bytes = length + encoded_len_varint(length as u64) + 1;
        if bytes > self.budget {
            return match halves(metric) {
                Some([first, second]) => {
                    self.add(first);
                    self.add(second);
                }
                None => self.all.too_large += 1,
            };
        }
        if self.bytes + bytes > self.budget {
            self.flush();
        }
        self.bytes += bytes;
        if let Some(scope) = scopes(&mut self.envelope).next() {
            scope.metrics.push(metric);
        }
    }

    fn flush(&mut self) {
        self.all.bodies.push(self.envelope.encode_to_vec().into());
        scopes(&mut self.envelope).for_each(|scope| scope.metrics.clear());
        self.bytes = 0;
    }

    fn finish(mut self) -> Requests {
        if self.bytes > 0 {
            self.flush();
        }
        self.all
    }
}

/// Splits the data points of a metric into two metrics with the same name. Returns `None` for a single data point.
fn halves(mut metric: ProtoMetric) -> Option<[ProtoMetric; 2]> {
    fn split<T>(points: &mut Vec<T>) -> Option<Vec<T>> {
        (points.len() > 1).then(|| points.split_off(points.len() / 2))
    }
    let second = match metric.data.as_mut()? {
        ProtoData::Gauge(data) => {
            let data_points = split(&mut data.data_points)?;
            ProtoData::Gauge(Gauge { data_points })
        }
        ProtoData::Sum(data) => {
            let data_points = split(&mut data.data_points)?;
            ProtoData::Sum(Sum { data_points, ..*data })
        }
        ProtoData::Histogram(data) => {
            let data_points = split(&mut data.data_points)?;
            ProtoData::Histogram(Histogram { data_points, ..*data })
        }
        ProtoData::ExponentialHistogram(data) => {
            let data_points = split(&mut data.data_points)?;
            ProtoData::ExponentialHistogram(ExponentialHistogram { data_points, ..*data })
        }
        ProtoData::Summary(data) => {
            let data_points = split(&mut data.data_points)?;
            ProtoData::Summary(Summary { data_points })
        }
    };
    let other = ProtoMetric {
        name: metric.name.clone(),
        description: metric.description.clone(),
        unit: metric.unit.clone(),
        metadata: metric.metadata.clone(),
        data: Some(second),
    };
    Some([metric, other])
}

/// Converts a snapshot to an export request with all metrics.
fn request(snapshot: &MetricsSnapshot) -> ExportMetricsServiceRequest {
    let mut groups = snapshot.groups().map(ExportMetricsServiceRequest::from);
    let mut request = groups.next().unwrap_or_default();
    for group in groups {
        // All metrics have the same resource and the same scope.
        let others = group.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
        for (scope, others) in scopes(&mut request).zip(others) {
            scope.metrics.extend(others.metrics);
        }
    }
    // The encoded metrics were converted from these metrics, so both lists have the same order.
    let encoded = scopes(&mut request).flat_map(|scope| &mut scope.metrics);
    for (encoded, metric) in encoded.zip(snapshot.metrics()) {
        let Some(exemplars) = snapshot.exemplars() else { break };
        match metric.data() {
            AggregatedMetrics::F64(data) => add_exemplars(encoded, metric, data, exemplars),
            AggregatedMetrics::U64(data) => add_exemplars(encoded, metric, data, exemplars),
            AggregatedMetrics::I64(data) => add_exemplars(encoded, metric, data, exemplars),
        }
    }
    request
}

fn scopes(request: &mut ExportMetricsServiceRequest) -> impl Iterator<Item = &mut ScopeMetrics> {
    request.resource_metrics.iter_mut().flat_map(|resource| &mut resource.scope_metrics)
}

/// Adds exemplars to all points of `encoded`. `data` are the points from which it was converted.
fn add_exemplars<T>(
    encoded: &mut ProtoMetric,
    metric: &Metric,
    data: &MetricData<T>,
    exemplars: &ExemplarSnapshot,
) {
    match (data, &mut encoded.data) {
        (MetricData::Histogram(histogram), Some(ProtoData::Histogram(encoded))) => {
            for (point, encoded) in histogram.data_points().zip(&mut encoded.data_points) {
                let since = encoded.start_time_unix_nano;
                encoded.exemplars = of_series(metric, point.attributes(), since, exemplars);
            }
        }
        (MetricData::Sum(sum), Some(ProtoData::Sum(encoded))) if sum.is_monotonic() => {
            for (point, encoded) in sum.data_points().zip(&mut encoded.data_points) {
                let since = encoded.start_time_unix_nano;
                encoded.exemplars = of_series(metric, point.attributes(), since, exemplars);
            }
        }
        (
            MetricData::Gauge(_)
            | MetricData::Sum(_)
            | MetricData::Histogram(_)
            | MetricData::ExponentialHistogram(_),
            _,
        ) => {}
    }
}

/// Returns the exemplars of one series that are not older than `since`, the start time of the point in nanoseconds
/// since 1970. Without this limit, a delta could contain an exemplar of an earlier delta.
fn of_series<'a>(
    metric: &Metric,
    attributes: impl Iterator<Item = &'a KeyValue>,
    since: u64,
    exemplars: &ExemplarSnapshot,
) -> Vec<ProtoExemplar> {
    let exemplars = exemplars.of_series(metric.name(), attributes);
    exemplars
        .map(|(_, exemplar)| exemplar)
        .filter(|exemplar| exemplar.time.unix_nanos() >= since)
        .map(encode)
        .collect()
}

fn encode(exemplar: &Exemplar) -> ProtoExemplar {
    ProtoExemplar {
        filtered_attributes: Vec::new(),
        time_unix_nano: exemplar.time.unix_nanos(),
        span_id: exemplar.span_id.to_vec(),
        trace_id: exemplar.trace_id.to_vec(),
        value: Some(exemplar::Value::AsDouble(exemplar.value)),
    }
}
