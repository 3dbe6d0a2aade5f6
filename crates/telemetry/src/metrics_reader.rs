//! Takes snapshots of all metrics, for OTLP exports and scrapes.
//!
//! Only this module uses the SDK's metric readers. Before each collection, it takes the state that gauges export. OTLP
//! exports and scrapes normally share one reader and its aggregates. If the back end requires deltas, a second reader
//! provides them, because a scrape needs cumulative sums. The second reader doubles the cost of recording a value.
//!
//! The metrics are in two groups, each with its own meter provider. *Observed* metrics are the instruments that the
//! observer records and the gauges that it provides. They are collected only while the observer records nothing, so
//! they belong to the same instant. If the observer is late, a scrape contains those of the previous collection.
//! *Process* metrics describe the rest of the process and the observer's health, and are always current.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{Metric, ResourceMetrics};
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    Aggregation, Instrument, InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Stream,
    Temporality,
};
use opentelemetry_sdk::resource::{ResourceDetector, TelemetryResourceDetector};

use crate::catalog::state::{Current, Registrar};
use crate::catalog::{self, Kind};
use crate::config::{self, MetricSelection, TelemetryConfig};
use crate::exemplars::{ExemplarSnapshot, Exemplars};
use crate::export_counters::{ExportCounters, Signal};
use crate::series_limits;
use crate::snapshot::SnapshotSource;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::sync::lock;

#[derive(Debug)]
pub struct MetricsSnapshot {
    pub(crate) process: ResourceMetrics,
    /// `None` if the observer is late and no earlier values can be exported.
    pub(crate) observed: Option<Arc<ObservedMetrics>>,
    /// Age of the observed metrics. Zero unless the observer is overloaded.
    pub age: Duration,
}

/// The observed metrics at one instant.
#[derive(Debug)]
pub struct ObservedMetrics {
    pub at: MonotonicInstant,
    pub metrics: ResourceMetrics,
    /// Exemplars, which link values of these metrics to traces.
    pub exemplars: ExemplarSnapshot,
}

impl MetricsSnapshot {
    pub(crate) fn resource(&self) -> &Resource {
        self.process.resource()
    }

    /// Returns the process metrics, and then the observed metrics.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &ResourceMetrics> {
        let observed = self.observed.as_ref().map(|observed| &observed.metrics);
        std::iter::once(&self.process).chain(observed)
    }

    /// Returns the metrics of all [`groups`](Self::groups).
    pub(crate) fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.groups().flat_map(|group| group.scope_metrics()).flat_map(|scope| scope.metrics())
    }

    pub(crate) fn exemplars(&self) -> Option<&ExemplarSnapshot> {
        self.observed.as_ref().map(|observed| &observed.exemplars)
    }
}

/// Owns the SDK's meter providers and metric readers.
pub struct MetricsReader {
    /// The provider of the observed metrics, and that of the process metrics.
    providers: [SdkMeterProvider; 2],
    cumulative: Readers,
    /// The readers for OTLP. `None` if OTLP uses the cumulative readers, too.
    preferred: Option<Readers>,
    resource: Resource,
    readings: SnapshotSource,
    current: Current,
    overflowed: Arc<AtomicU64>,
    exemplars: Arc<Exemplars>,
    counters: Arc<ExportCounters>,
    /// The observed metrics of the last cumulative collection, for scrapes while the observer is late. They take at
    /// most 54 MB, see [`series_limits::MAX_PAGE_BYTES`]. The lock is held during a collection, so that only one runs at a
    /// time: gauges read the snapshot of the collection in progress.
    last: Mutex<Option<Arc<ObservedMetrics>>>,
}

/// The readers of both groups of metrics, with one temporality.
#[derive(Clone, Debug)]
struct Readers {
    observed: SharedReader,
    process: SharedReader,
}

impl MetricsReader {
    pub(super) fn new(
        config: &TelemetryConfig,
        readings: SnapshotSource,
        (overflowed, exemplars): (Arc<AtomicU64>, Arc<Exemplars>),
    ) -> (Self, Meter) {
        let resource = resource(config);
        let selection = config.selection();
        let cumulative = Readers::new(Temporality::Cumulative);
        let preferred = match config.temporality {
            config::Temporality::Delta => Some(Readers::new(Temporality::Delta)),
            config::Temporality::LowMemory => Some(Readers::new(Temporality::LowMemory)),
            config::Temporality::Cumulative => None,
        };
        let exported = preferred.as_ref().filter(|_| config.sends(Signal::Metrics));
        let provider = |reader: fn(&Readers) -> &SharedReader| {
            let builder = SdkMeterProvider::builder().with_resource(resource.clone());
            let view = move |instrument: &Instrument| stream(instrument, selection);
            let builder = builder.with_view(view).with_reader(reader(&cumulative).clone());
            match exported {
                Some(exported) => builder.with_reader(reader(exported).clone()).build(),
                None => builder.build(),
            }
        };
        let providers =
            [provider(|readers| &readers.observed), provider(|readers| &readers.process)];
        let [observed, process] =
            providers.each_ref().map(|provider| provider.meter_with_scope(catalog::scope()));
        let current: Current = Arc::new(ArcSwap::default());
        let counters = Arc::new(ExportCounters::default());
        let registrar = Registrar { observed: &observed, process: &process, current: &current };
        registrar.register_all();
        let metrics_reader = Self {
            providers,
            cumulative,
            preferred,
            resource,
            readings,
            current,
            overflowed,
            exemplars,
            counters,
            last: Mutex::default(),
        };
        (metrics_reader, observed)
    }

    /// Returns all metrics as cumulative values since the start of the process.
    pub fn scrape(&self) -> MetricsSnapshot {
        self.snapshot(&self.cumulative, true)
    }

    /// Returns all metrics with the temporality that OTLP uses. If these are deltas and the observer is late, the
    /// observed metrics are absent, and the next deltas include them.
    pub fn collect(&self) -> MetricsSnapshot {
        match &self.preferred {
            Some(preferred) => self.snapshot(preferred, false),
            None => self.scrape(),
        }
    }

    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(super) fn counters(&self) -> &Arc<ExportCounters> {
        &self.counters
    }

    fn snapshot(&self, readers: &Readers, is_cumulative: bool) -> MetricsSnapshot {
        let mut last = lock(&self.last);
        self.readings.with(|mut snapshot| {
            let overflowed = self.overflowed.load(Ordering::Relaxed);
            snapshot.label_overflow.push(("series", overflowed));
            snapshot.exports = self.counters.counts();
            let is_late = snapshot.is_observer_late;
            let earlier = last.clone().filter(|_| is_late && is_cumulative);
            if let Some(earlier) = &earlier {
                snapshot.observer.age = clock::now().since(earlier.at);
            }
            let age = snapshot.observer.age;
            self.current.store(Arc::new(snapshot));
            let process = readers.process.collect_all();
            if is_late {
                return MetricsSnapshot { process, observed: earlier, age };
            }
            if is_cumulative {
                // The memory is freed before the next metrics take as much.
                *last = None;
            }
            // Gauges and counters belong to the same instant, because nothing is recorded during the call. Every
            // exemplar belongs to an exchange that the metrics count.
            let observed = Arc::new(ObservedMetrics {
                at: clock::now().saturating_sub(age),
                exemplars: self.exemplars.snapshot(),
                metrics: readers.observed.collect_all(),
            });
            if is_cumulative {
                *last = Some(Arc::clone(&observed));
            }
            MetricsSnapshot { process, observed: Some(observed), age }
        })
    }
}

impl fmt::Debug for MetricsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsReader").field("providers", &self.providers).finish_non_exhaustive()
    }
}

/// Configures how the SDK aggregates an instrument. The cardinality limit is above the number of series that the
/// instrument can have, so the SDK's overflow series is never used. By default, the SDK merges all series beyond 2,000
/// into one without attributes. Histograms export no minimum and no maximum, because these values are meaningless over
/// the life of a process. For a bound histogram without a value, the SDK would also export the extreme numbers of the
/// type.
fn stream(instrument: &Instrument, selection: MetricSelection) -> Option<Stream> {
    let metric = catalog::metric(instrument.name())?;
    let limit = series_limits::max_series(metric, selection);
    let mut stream = Stream::builder().with_cardinality_limit(limit);
    if metric.kind == Kind::Histogram {
        stream = stream.with_aggregation(Aggregation::ExplicitBucketHistogram {
            boundaries: metric.buckets.of(selection.profile).to_vec(),
            record_min_max: false,
        });
    }
    stream.build().ok()
}

fn resource(config: &TelemetryConfig) -> Resource {
    let given = config.resource.iter();
    Resource::builder_empty()
        .with_schema_url([], catalog::RESOURCE_SCHEMA_URL)
        .with_attributes(
            TelemetryResourceDetector
                .detect()
                .iter()
                .map(|(key, value)| KeyValue::new(key.clone(), value.clone())),
        )
        .with_attributes(given.map(|(key, value)| KeyValue::new(key.clone(), value.clone())))
        .build()
}

impl Readers {
    fn new(temporality: Temporality) -> Self {
        let [observed, process] = [(); 2].map(|()| SharedReader::new(temporality));
        Self { observed, process }
    }
}

/// A reader that this module shares with a meter provider of the SDK.
#[derive(Clone, Debug)]
pub(super) struct SharedReader(Arc<ManualReader>);

impl SharedReader {
    #[cfg(test)]
    pub(super) const fn from_reader(reader: Arc<ManualReader>) -> Self {
        Self(reader)
    }

    fn new(temporality: Temporality) -> Self {
        Self(Arc::new(ManualReader::builder().with_temporality(temporality).build()))
    }

    pub(super) fn collect_all(&self) -> ResourceMetrics {
        let mut metrics = ResourceMetrics::default();
        if let Err(error) = self.collect(&mut metrics) {
            tracing::error!(%error, "metrics collection failed");
        }
        metrics
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
