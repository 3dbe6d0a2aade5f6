//! The request that carries metrics over OTLP: what the SDK aggregated, and the exemplars that belong to it.

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data as Sent;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar as SentExemplar, Metric as SentMetric, exemplar,
};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use prost::Message;

use crate::exemplars::{Exemplar, ExemplarSnapshot};
use crate::metrics_reader::MetricsSnapshot;

/// An `ExportMetricsServiceRequest`, encoded.
pub fn request(picture: &MetricsSnapshot) -> Vec<u8> {
    let mut request = ExportMetricsServiceRequest::from(&picture.metrics);
    let sent = request
        .resource_metrics
        .iter_mut()
        .flat_map(|resource| &mut resource.scope_metrics)
        .flat_map(|scope| &mut scope.metrics);
    let scopes = picture.metrics.scope_metrics();
    // The request was made of these, so both come in the same order.
    for (sent, metric) in sent.zip(scopes.flat_map(|scope| scope.metrics())) {
        match metric.data() {
            AggregatedMetrics::F64(data) => add(sent, metric, data, &picture.exemplars),
            AggregatedMetrics::U64(data) => add(sent, metric, data, &picture.exemplars),
            AggregatedMetrics::I64(data) => add(sent, metric, data, &picture.exemplars),
        }
    }
    request.encode_to_vec()
}

/// Gives each point of `sent`, which was made of `data`, its exemplars.
fn add<T>(sent: &mut SentMetric, metric: &Metric, data: &MetricData<T>, taken: &ExemplarSnapshot) {
    match (data, &mut sent.data) {
        (MetricData::Histogram(histogram), Some(Sent::Histogram(sent))) => {
            for (point, sent) in histogram.data_points().zip(&mut sent.data_points) {
                let since = sent.start_time_unix_nano;
                sent.exemplars = of_series(metric, point.attributes(), since, taken);
            }
        }
        (MetricData::Sum(sum), Some(Sent::Sum(sent))) if sum.is_monotonic() => {
            for (point, sent) in sum.data_points().zip(&mut sent.data_points) {
                let since = sent.start_time_unix_nano;
                sent.exemplars = of_series(metric, point.attributes(), since, taken);
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

/// `since`: when the point's time begins, in ns since 1970. A delta carries no exemplar of what an earlier one counted.
fn of_series<'a>(
    metric: &Metric,
    attributes: impl Iterator<Item = &'a KeyValue>,
    since: u64,
    taken: &ExemplarSnapshot,
) -> Vec<SentExemplar> {
    let exemplars = taken.of(metric.name(), attributes);
    exemplars
        .map(|(_, exemplar)| exemplar)
        .filter(|exemplar| exemplar.time.unix_nanos() >= since)
        .map(sent)
        .collect()
}

fn sent(exemplar: &Exemplar) -> SentExemplar {
    SentExemplar {
        filtered_attributes: Vec::new(),
        time_unix_nano: exemplar.time.unix_nanos(),
        span_id: exemplar.span_id.to_vec(),
        trace_id: exemplar.trace_id.to_vec(),
        value: Some(exemplar::Value::AsDouble(exemplar.value)),
    }
}
