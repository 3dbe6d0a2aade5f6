//! Metrics that are read from a snapshot: gauges, and counters that other components maintain. The metrics reader takes
//! the snapshot before each collection.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use tokengauge_measure::drift::ModelDrift;
use tokengauge_measure::load::{
    LimitType, MAX_MODEL_KEYS, ModelReading, RateLimitReading, RouteReading, Throughput,
};
use tokengauge_measure::{cost, engine, slo};

use crate::attributes::{
    budget_attributes, label, model_attributes, route_attributes, sorted, with, with_labels, word,
};
use crate::builders::Observed;
use crate::catalog::attributes as key;
use crate::catalog::{self, Labelled, Labels, Metric, Read};
use crate::export_counters::SignalCounts;
use crate::line_writer::LineCounts;
use crate::process::ProcessStats;
use crate::series_limits::MAX_CONFIGURED;
use crate::snapshot::{BudgetReading, CertificateReading, StateSnapshot, UpstreamCounts};

/// The snapshot that the current collection exports.
pub type Current = Arc<ArcSwap<StateSnapshot>>;

/// Registers callbacks that read values from the current snapshot.
#[derive(Debug)]
pub struct Registrar<'a> {
    /// Meter of the metrics whose values come from the observer.
    pub observed: &'a Meter,
    /// Meter of all other metrics.
    pub process: &'a Meter,
    pub current: &'a Current,
}

/// A list in the snapshot whose entries several metrics export, such as the readings of all routes.
#[derive(Debug)]
pub struct Group<R> {
    readings: fn(&StateSnapshot) -> &[R],
    /// Maximum number of entries that are exported, to bound the number of series.
    most: usize,
    /// Returns the attributes of an entry, or `None` if the entry is not exported.
    base: fn(&R) -> Option<Vec<KeyValue>>,
    is_observed: bool,
}

pub static ROUTES: Group<RouteReading> = Group {
    most: MAX_CONFIGURED,
    ..Group::observed(
        |snapshot| &snapshot.load.routes,
        |reading| Some(route_attributes(&reading.route_key)),
    )
};
/// Routes with the precision of their queue depth.
pub static QUEUES: Group<RouteReading> = Group {
    most: MAX_CONFIGURED,
    ..Group::observed(
        |snapshot| &snapshot.load.routes,
        |reading| {
            let precision = word(key::PRECISION, reading.bound().as_str());
            Some(with(&route_attributes(&reading.route_key), &[precision]))
        },
    )
};
pub static MODELS: Group<ModelReading> = Group {
    most: MAX_MODEL_KEYS,
    ..Group::observed(
        |snapshot| &snapshot.load.models,
        |reading| Some(model_attributes(&reading.model_key)),
    )
};
pub static DRIFT: Group<ModelDrift> = Group {
    most: MAX_MODEL_KEYS,
    ..Group::observed(
        |snapshot| &snapshot.drift.models,
        |reading| Some(model_attributes(&reading.model_key)),
    )
};
/// Limits on requests. Limits on tokens have separate metrics, so the type of the limit is not a label.
pub static REQUEST_LIMITS: Group<RateLimitReading> = Group {
    most: MAX_MODEL_KEYS * LimitType::ALL.len(),
    ..Group::observed(
        |snapshot| &snapshot.load.quotas,
        |reading| {
            let is_requests = reading.limited == LimitType::Requests;
            is_requests.then(|| model_attributes(&reading.model_key))
        },
    )
};
/// Rate limits with their type.
pub static LIMITS: Group<RateLimitReading> = Group {
    most: MAX_MODEL_KEYS * LimitType::ALL.len(),
    ..Group::observed(
        |snapshot| &snapshot.load.quotas,
        |reading| {
            let limited = word(key::LIMIT_TYPE, reading.limited.as_str());
            Some(with(&model_attributes(&reading.model_key), &[limited]))
        },
    )
};
pub static OBJECTIVES: Group<slo::Reading> = Group::observed(
    |snapshot| &snapshot.slo,
    |reading| {
        let indicator = word(key::SLI, reading.objective.indicator.as_str());
        Some(sorted(vec![label(key::SLO, &reading.objective.name), indicator]))
    },
);
pub static BACKENDS: Group<engine::Reading> = Group::observed(
    |snapshot| &snapshot.backends,
    |reading| Some(vec![label(key::UPSTREAM, &reading.upstream)]),
);
/// Backends whose engine is recognized.
pub static ENGINES: Group<engine::Reading> = Group::observed(
    |snapshot| &snapshot.backends,
    |reading| {
        let engine = word(key::ENGINE, reading.engine?.as_str());
        Some(sorted(vec![label(key::UPSTREAM, &reading.upstream), engine]))
    },
);
pub static BUDGETS: Group<BudgetReading> = Group::observed(
    |snapshot| &snapshot.budgets,
    |budget| Some(budget_attributes(&budget.name, &budget.unit)),
);
pub static TOKEN_PRICES: Group<cost::TokenPrice> = Group::observed(
    |snapshot| &snapshot.token_prices,
    |price| {
        Some(sorted(vec![label(key::CURRENCY, &price.currency), label(key::ROUTE, &price.route)]))
    },
);
pub static UPSTREAMS: Group<UpstreamCounts> = Group::process(
    |snapshot| &snapshot.upstreams,
    |counts| Some(vec![label(key::UPSTREAM, &counts.upstream)]),
);
pub static EXPORTS: Group<SignalCounts> = Group::process(
    |snapshot| &snapshot.exports,
    |counts| Some(vec![word(key::SIGNAL, counts.signal.as_str())]),
);
pub static OVERFLOWS: Group<(&str, u64)> = Group::process(
    |snapshot| &snapshot.label_overflow,
    |(dimension, _)| Some(vec![word(key::DIMENSION, dimension)]),
);
pub static CERTIFICATES: Group<CertificateReading> = Group::process(
    |snapshot| &snapshot.certificates,
    |certificate| Some(vec![label(key::CERTIFICATE_FILE, &certificate.file)]),
);
pub static REQUEST_LOG: Group<LineCounts> =
    Group::process(|snapshot| slice::from_ref(&snapshot.request_log), |_| Some(Vec::new()));
pub static LOG: Group<LineCounts> =
    Group::process(|snapshot| slice::from_ref(&snapshot.log), |_| Some(Vec::new()));
/// The process. Values that the kernel does not report are absent.
pub static PROCESS: Group<ProcessStats> =
    Group::process(|snapshot| slice::from_ref(&snapshot.process), |_| Some(Vec::new()));
/// The whole snapshot, for metrics without attributes.
pub static SNAPSHOT: Group<StateSnapshot> = Group::process(slice::from_ref, |_| Some(Vec::new()));

impl<R> Group<R> {
    /// Creates a group without a limit, for a list whose length is limited elsewhere.
    const fn observed(
        readings: fn(&StateSnapshot) -> &[R],
        base: fn(&R) -> Option<Vec<KeyValue>>,
    ) -> Self {
        Self { readings, most: usize::MAX, base, is_observed: true }
    }

    /// Like [`Self::observed`], for values that do not come from the observer.
    const fn process(
        readings: fn(&StateSnapshot) -> &[R],
        base: fn(&R) -> Option<Vec<KeyValue>>,
    ) -> Self {
        Self { is_observed: false, ..Self::observed(readings, base) }
    }
}

impl Registrar<'_> {
    /// Registers all metrics of the catalog that are read from the snapshot.
    pub fn register_all(&self) {
        for metric in catalog::metrics() {
            if let Read::State(register) = metric.source.read {
                register(self, metric);
            }
        }
    }

    /// Registers a metric with one series per entry of `group`. The series is absent if `value` returns `None`.
    pub fn one<R: 'static, T: Observed>(
        &self,
        metric: &'static Metric,
        group: &'static Group<R>,
        value: fn(&R) -> Option<T>,
    ) {
        self.series(metric, group, move |reading, base, instrument| {
            value(reading).into_iter().for_each(|value| instrument.observe(value, base));
        });
    }

    /// Registers a metric with one series per label and entry of `group`. The series is absent if its value is `None`.
    pub fn each<R: 'static, L: Labels, T: Observed, const N: usize>(
        &self,
        metric: &'static Metric,
        group: &'static Group<R>,
        values: fn(&R) -> Option<Labelled<L, T, N>>,
    ) {
        self.series(metric, group, move |reading, base, instrument| {
            for (labels, value) in values(reading).into_iter().flatten() {
                let attributes = || with_labels(metric, base, labels.as_slice());
                value.into_iter().for_each(|value| instrument.observe(value, &attributes()));
            }
        });
    }

    fn series<R: 'static, T: Observed>(
        &self,
        metric: &'static Metric,
        group: &'static Group<R>,
        read: impl Fn(&R, &[KeyValue], &dyn AsyncInstrument<T>) + Send + Sync + 'static,
    ) {
        let current = Arc::clone(self.current);
        let meter = if group.is_observed { self.observed } else { self.process };
        T::observe(metric, meter, move |instrument| {
            for reading in (group.readings)(&current.load()).iter().take(group.most) {
                if let Some(base) = (group.base)(reading) {
                    read(reading, &base, instrument);
                }
            }
        });
    }
}

/// Returns the throughput in each window, with the labels of direction and window.
pub fn throughput(reading: &ModelReading) -> Labelled<[&'static str; 2], f64, 8> {
    let windows = |direction, rates: &Throughput| {
        [
            ([direction, "10s"], rates.ten_seconds),
            ([direction, "1m"], rates.minute),
            ([direction, "5m"], rates.five_minutes),
            ([direction, "peak"], rates.peak),
        ]
    };
    let [a, b, c, d] = windows("input", &reading.input);
    let [e, f, g, h] = windows("output", &reading.output);
    [a, b, c, d, e, f, g, h]
}

/// Combines labels with values in the same order.
pub fn zip<T: Copy, const N: usize>(
    labels: [&'static str; N],
    values: [Option<T>; N],
) -> Labelled<&'static str, T, N> {
    let mut values = values.into_iter();
    labels.map(|label| (label, values.next().flatten()))
}

pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// Converts a number of requests for an up-down counter.
pub fn signed(count: u64) -> Option<i64> {
    Some(i64::try_from(count).unwrap_or(i64::MAX))
}
