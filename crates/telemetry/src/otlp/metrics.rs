//! Encodes export requests for metrics. The SDK's aggregates are converted to protobuf, and exemplars are added.

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data as ProtoData;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar as ProtoExemplar, Metric as ProtoMetric, ScopeMetrics, exemplar,
};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use prost::Message;

use crate::exemplars::{Exemplar, ExemplarSnapshot};
use crate::metrics_reader::MetricsSnapshot;

/// Encodes a snapshot as an `ExportMetricsServiceRequest`.
pub fn request(snapshot: &MetricsSnapshot) -> Vec<u8> {
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
    request.encode_to_vec()
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
