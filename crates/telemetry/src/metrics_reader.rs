//! Takes snapshots of all metrics, for OTLP exports and scrapes.
//!
//! Only this module uses the SDK's metric readers. Before each collection, it also takes a snapshot of the state that
//! gauges show. OTLP exports and scrapes normally share one reader. If the back end requires deltas, a second reader
//! provides them, because a scrape needs cumulative values. The second reader doubles the cost of recording a value.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    Aggregation, Instrument, InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Stream,
    Temporality,
};
use opentelemetry_sdk::resource::{ResourceDetector, TelemetryResourceDetector};

use crate::catalog::{self, Kind, SCOPE};
use crate::config::{self, Config};
use crate::exemplars::{ExemplarSnapshot, Exemplars};
use crate::export_counters::{ExportCounters, Signal};
use crate::gauges::{self, Current};
use crate::series_limits::MOST_POINTS;
use crate::snapshot::SnapshotSource;
use tokengauge_types::sync::lock;

#[derive(Debug)]
pub struct MetricsSnapshot {
    pub metrics: ResourceMetrics,
    /// Exemplars, which link values of these metrics to traces.
    pub exemplars: ExemplarSnapshot,
    /// Age of the state that gauges show. More than zero only if the observer is overloaded.
    pub age: Duration,
}

/// Owns the SDK's meter provider and metric readers.
pub struct MetricsReader {
    provider: SdkMeterProvider,
    cumulative: SharedReader,
    /// The reader for OTLP exports. `None` if OTLP shares the cumulative reader with scrapes.
    preferred: Option<SharedReader>,
    resource: Resource,
    readings: SnapshotSource,
    current: Current,
    folded: Arc<AtomicU64>,
    exemplars: Arc<Exemplars>,
    counters: Arc<ExportCounters>,
    /// Held during a collection, so that only one collection runs at a time. Gauges read the snapshot of the current
    /// collection.
    collecting: Mutex<()>,
}

impl MetricsReader {
    pub(super) fn new(
        config: &Config,
        readings: SnapshotSource,
        (folded, exemplars): (Arc<AtomicU64>, Arc<Exemplars>),
    ) -> (Self, Meter) {
        let resource = resource(config);
        let cumulative = SharedReader::new(Temporality::Cumulative);
        let preferred = match config.temporality {
            config::Temporality::Delta => Some(SharedReader::new(Temporality::Delta)),
            config::Temporality::LowMemory => Some(SharedReader::new(Temporality::LowMemory)),
            config::Temporality::Cumulative => None,
        };
        let mut builder = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_view(stream)
            .with_reader(cumulative.clone());
        if let Some(reader) = preferred.clone().filter(|_| config.sends(Signal::Metrics)) {
            builder = builder.with_reader(reader);
        }
        let provider = builder.build();
        let scope =
            InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build();
        let meter = provider.meter_with_scope(scope);
        let current: Current = Arc::new(ArcSwap::default());
        let counters = Arc::new(ExportCounters::default());
        gauges::register(&meter, &current);
        counters.register(&meter);
        let metrics_reader = Self {
            provider,
            cumulative,
            preferred,
            resource,
            readings,
            current,
            folded,
            exemplars,
            counters,
            collecting: Mutex::new(()),
        };
        (metrics_reader, meter)
    }

    /// Returns all metrics as cumulative values since the start of the process.
    pub fn scrape(&self) -> MetricsSnapshot {
        self.snapshot(&self.cumulative)
    }

    /// Returns all metrics with the temporality that OTLP uses.
    pub fn collect(&self) -> MetricsSnapshot {
        self.snapshot(self.preferred.as_ref().unwrap_or(&self.cumulative))
    }

    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(super) fn counters(&self) -> &Arc<ExportCounters> {
        &self.counters
    }

    fn snapshot(&self, reader: &SharedReader) -> MetricsSnapshot {
        let _one_at_a_time = lock(&self.collecting);
        // Gauges and counters belong to the same instant, because nothing is recorded during the call. Every exemplar
        // belongs to an exchange that the metrics count.
        self.readings.with(|mut snapshot| {
            snapshot.folded_series = self.folded.load(Ordering::Relaxed);
            let age = snapshot.observer.age;
            self.current.store(Arc::new(snapshot));
            let exemplars = self.exemplars.snapshot();
            let mut metrics = ResourceMetrics::default();
            if let Err(error) = reader.collect(&mut metrics) {
                tracing::error!(%error, "metrics collection failed");
            }
            MetricsSnapshot { metrics, exemplars, age }
        })
    }
}

impl fmt::Debug for MetricsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsReader").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// Configures how the SDK aggregates an instrument. The cardinality limit is the maximum number of points of all
/// instruments together, so the SDK's overflow series is never used. By default, the SDK merges all series beyond 2,000
/// into one without attributes. Histograms export no minimum and no maximum, because these values are meaningless over
/// the life of a process. For a bound histogram without a value, the SDK would also export the extreme numbers of the
/// type.
fn stream(instrument: &Instrument) -> Option<Stream> {
    let metric = catalog::metric(instrument.name())?;
    let mut stream = Stream::builder().with_cardinality_limit(MOST_POINTS);
    if metric.kind == Kind::Histogram {
        stream = stream.with_aggregation(Aggregation::ExplicitBucketHistogram {
            boundaries: metric.buckets.to_vec(),
            record_min_max: false,
        });
    }
    stream.build().ok()
}

fn resource(config: &Config) -> Resource {
    let given = config.resource.iter();
    Resource::builder_empty()
        .with_attributes(
            TelemetryResourceDetector
                .detect()
                .iter()
                .map(|(key, value)| KeyValue::new(key.clone(), value.clone())),
        )
        .with_attributes(given.map(|(key, value)| KeyValue::new(key.clone(), value.clone())))
        .build()
}

/// A reader that this module shares with the SDK's meter provider.
#[derive(Clone, Debug)]
pub(super) struct SharedReader(Arc<ManualReader>);

impl SharedReader {
    #[cfg(test)]
    pub(super) const fn of(reader: Arc<ManualReader>) -> Self {
        Self(reader)
    }

    fn new(temporality: Temporality) -> Self {
        Self(Arc::new(ManualReader::builder().with_temporality(temporality).build()))
    }
}

impl MetricReader for SharedReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}
