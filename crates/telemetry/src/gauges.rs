//! Exports gauges, and counters that other components maintain. The metrics reader takes a snapshot of all these values
//! before each collection.

use std::slice;
use std::sync::Arc;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use tokengauge_measure::drift::{Direction, ModelDrift};
use tokengauge_measure::engine::{self, ScrapeResult};
use tokengauge_measure::load::{
    ActiveStreams, LimitType, MAX_MODEL_KEYS, ModelReading, RateLimitReading, RequestPhase,
    RouteReading, Throughput,
};
use tokengauge_measure::record::WarmupState;
use tokengauge_measure::slo::{self, BURN_WINDOWS};
use tokengauge_measure::timing::StallPhase;

use crate::attributes::{
    budget_attributes, label, model_attributes, route_attributes, sorted, with, word,
};
use crate::builders::Observed;
use crate::catalog::attributes as key;
use crate::catalog::{Attribute, Metric, health, tokengauge};
use crate::export_counters::DropReason;
use crate::series_limits::MAX_CONFIGURED;
use crate::snapshot::StateSnapshot;

/// The snapshot that the current collection exports.
pub type Current = Arc<ArcSwap<StateSnapshot>>;

/// Creates all gauges. The meter `observed` gets the gauges whose values come from the observer, and `process` the others.
pub fn register(observed: &Meter, process: &Meter, current: &Current) {
    let registrar = Registrar { meter: observed, current };
    registrar.routes();
    registrar.models();
    registrar.rate_limits();
    registrar.objectives();
    registrar.backends();
    registrar.budgets();
    let registrar = Registrar { meter: process, current };
    registrar.upstreams();
    registrar.observer_and_listeners();
    registrar.logs_and_labels();
    registrar.process();
}

/// Registers callbacks that read values from the current snapshot.
struct Registrar<'a> {
    meter: &'a Meter,
    current: &'a Current,
}

/// A list in the snapshot whose entries several metrics export, such as the readings of all routes.
struct Group<R> {
    readings: fn(&StateSnapshot) -> &[R],
    /// Maximum number of entries that are exported, to bound the number of series.
    most: usize,
    /// Returns the attributes of an entry, or `None` if the entry is not exported.
    base: fn(&R) -> Option<Vec<KeyValue>>,
}

impl<R> Group<R> {
    /// Creates a group without a limit, for a list whose length is limited elsewhere.
    const fn new(
        readings: fn(&StateSnapshot) -> &[R],
        base: fn(&R) -> Option<Vec<KeyValue>>,
    ) -> Self {
        Self { readings, most: usize::MAX, base }
    }
}

impl Registrar<'_> {
    /// Registers a metric. At each collection, `read` reports the values of its series.
    fn series<T: Observed>(
        &self,
        metric: &Metric,
        read: impl Fn(&StateSnapshot, &dyn AsyncInstrument<T>) + Send + Sync + 'static,
    ) {
        let current = Arc::clone(self.current);
        T::observe(metric, self.meter, move |instrument| read(&current.load(), instrument));
    }

    /// Registers a metric without attributes. The metric is absent if `value` returns `None`.
    fn value<T: Observed>(&self, metric: &Metric, value: fn(&StateSnapshot) -> Option<T>) {
        self.series(metric, move |snapshot, instrument| {
            if let Some(value) = value(snapshot) {
                instrument.observe(value, &[]);
            }
        });
    }

    /// Registers a metric with one series per entry of a group. The series is absent if `value` returns `None`.
    fn one_each<R: 'static, T: Observed>(
        &self,
        metric: &Metric,
        group: &Group<R>,
        value: fn(&R) -> Option<T>,
    ) {
        let Group { readings, most, base } = *group;
        self.series(metric, move |snapshot, instrument| {
            let points = readings(snapshot).iter().take(most);
            for (value, base) in points.filter_map(|reading| value(reading).zip(base(reading))) {
                instrument.observe(value, &base);
            }
        });
    }

    /// Registers a metric with one series per label and entry of a group. The series is absent if its value is `None`.
    fn labelled<R: 'static, T: Observed, const N: usize>(
        &self,
        metric: &Metric,
        group: &Group<R>,
        (attribute, labels): (Attribute, [&'static str; N]),
        values: fn(&R) -> [Option<T>; N],
    ) {
        let Group { readings, most, base } = *group;
        self.series(metric, move |snapshot, instrument| {
            let points = readings(snapshot).iter().take(most);
            for (values, base) in points.filter_map(|it| Some((values(it), base(it)?))) {
                for (label, value) in labels.into_iter().zip(values) {
                    let attributes = || with(&base, &[word(attribute, label)]);
                    value.into_iter().for_each(|value| instrument.observe(value, &attributes()));
                }
            }
        });
    }

    /// Registers the metrics of each route: requests in flight, queues and stalled streams.
    fn routes(&self) {
        let routes: Group<RouteReading> = Group {
            readings: |snapshot| &snapshot.load.routes,
            most: MAX_CONFIGURED,
            base: |reading| Some(route_attributes(&reading.route_key)),
        };
        let states = (key::STATE, RequestPhase::ALL.map(RequestPhase::as_str));
        self.labelled(&tokengauge::ACTIVE_REQUESTS, &routes, states, |reading| {
            reading.active.map(|count| Some(i64::try_from(count).unwrap_or(i64::MAX)))
        });
        let phases = (key::STALL_PHASE, StallPhase::ALL.map(StallPhase::as_str));
        self.labelled(&tokengauge::STREAM_STALLED, &routes, phases, |reading| {
            reading.stalled_streams.map(|streams| Some(streams.stalled))
        });
        self.labelled(&tokengauge::STREAM_MAX_IDLE_TIME, &routes, phases, |reading| {
            reading.stalled_streams.map(|streams| Some(streams.longest?.as_secs_f64()))
        });
        let with_bound: Group<RouteReading> = Group {
            base: |reading| {
                let bound = word(key::PRECISION, reading.bound().as_str());
                Some(with(&route_attributes(&reading.route_key), &[bound]))
            },
            ..routes
        };
        self.one_each(&tokengauge::QUEUE_DEPTH, &with_bound, |reading| Some(reading.queue_depth()));
    }

    /// Registers the metrics of each model: throughput, and drift of the workload.
    fn models(&self) {
        let most = MAX_MODEL_KEYS;
        self.series(&tokengauge::TOKEN_THROUGHPUT, move |snapshot, gauge| {
            for reading in snapshot.load.models.iter().take(most) {
                let base = model_attributes(&reading.model_key);
                observe_throughput(gauge, &base, "input", &reading.input);
                observe_throughput(gauge, &base, "output", &reading.output);
            }
        });
        let models: Group<ModelReading> = Group {
            readings: |snapshot| &snapshot.load.models,
            most,
            base: |reading| Some(model_attributes(&reading.model_key)),
        };
        let states = (key::STATE, ["flowing", "stalled"]);
        self.labelled(&tokengauge::ACTIVE_STREAMS, &models, states, |reading| {
            let ActiveStreams { flowing, stalled } = reading.streams;
            [flowing, stalled].map(|count| Some(i64::try_from(count).unwrap_or(i64::MAX)))
        });
        let drift: Group<ModelDrift> = Group {
            readings: |snapshot| &snapshot.drift.models,
            most,
            base: |reading| Some(model_attributes(&reading.model_key)),
        };
        let directions = (key::TOKEN_TYPE, Direction::ALL.map(Direction::as_str));
        self.labelled(&tokengauge::WORKLOAD_DRIFT, &drift, directions, |reading| {
            reading.lengths.map(|lengths| lengths.index)
        });
    }

    /// Registers the provider's rate limits: remaining requests and tokens.
    fn rate_limits(&self) {
        // Limits on requests and on tokens have separate metrics, so the type of limit is not a label of the request
        // metrics.
        let requests: Group<RateLimitReading> = Group {
            readings: |snapshot| &snapshot.load.quotas,
            most: MAX_MODEL_KEYS * LimitType::ALL.len(),
            base: |reading| Some(model_attributes(&reading.model_key)),
        };
        self.one_each(&tokengauge::RATE_LIMIT_REQUESTS_REMAINING, &requests, |reading| {
            reading.allowance.remaining.filter(|_| reading.limited == LimitType::Requests)
        });
        self.one_each(&tokengauge::RATE_LIMIT_REQUESTS_LIMIT, &requests, |reading| {
            reading.allowance.limit.filter(|_| reading.limited == LimitType::Requests)
        });
        let any: Group<RateLimitReading> = Group {
            base: |reading| {
                let limited = word(key::LIMIT_TYPE, reading.limited.as_str());
                Some(with(&model_attributes(&reading.model_key), &[limited]))
            },
            ..requests
        };
        self.one_each(&tokengauge::RATE_LIMIT_TOKENS_REMAINING, &any, |reading| {
            reading.allowance.remaining.filter(|_| reading.limited != LimitType::Requests)
        });
        self.one_each(&tokengauge::RATE_LIMIT_TOKENS_LIMIT, &any, |reading| {
            reading.allowance.limit.filter(|_| reading.limited != LimitType::Requests)
        });
        self.one_each(&tokengauge::RATE_LIMIT_RESET, &any, |reading| {
            Some(reading.allowance.reset?.as_secs_f64())
        });
    }

    fn objectives(&self) {
        let objectives = Group::new(
            |snapshot| &snapshot.slo,
            |reading| {
                Some(sorted(vec![
                    label(key::SLO, &reading.objective.name),
                    word(key::SLI, reading.objective.indicator.as_str()),
                ]))
            },
        );
        let results = (key::RESULT, ["good", "bad"]);
        self.labelled(&tokengauge::SLO_EVENTS, &objectives, results, |reading| {
            [Some(reading.good), Some(reading.bad)]
        });
        let windows = (key::WINDOW, BURN_WINDOWS.map(|(window, _)| window));
        self.labelled(&tokengauge::SLO_BURN_RATE, &objectives, windows, |reading| reading.burn);
        let gauge = |metric: &Metric, value: fn(&slo::Reading) -> Option<f64>| {
            self.one_each(metric, &objectives, value);
        };
        gauge(&tokengauge::SLO_OBJECTIVE, |reading| Some(reading.objective.target));
        gauge(&tokengauge::SLO_THRESHOLD, |reading| {
            Some(reading.objective.indicator.longest()?.as_secs_f64())
        });
        gauge(&tokengauge::SLO_RATE_THRESHOLD, |reading| reading.objective.indicator.lowest());
        gauge(&tokengauge::SLO_ERROR_BUDGET, |reading| reading.budget);
        gauge(&tokengauge::SLO_WINDOW_COVERAGE, |reading| Some(reading.covered.as_secs_f64()));
        gauge(&tokengauge::SLO_TIME_TO_EXHAUSTION, |reading| {
            Some(reading.exhaustion?.as_secs_f64())
        });
    }

    /// Registers the metrics of backends: values that inference engines report, warm-up states, and the results of
    /// scrapes.
    fn backends(&self) {
        let upstreams = Group::new(
            |snapshot| &snapshot.backends,
            |reading| Some(vec![label(key::UPSTREAM, &reading.upstream)]),
        );
        let states = (key::WARMUP_STATE, WarmupState::ALL.map(WarmupState::as_str));
        self.labelled(&tokengauge::BACKEND_WARMUP_STATE, &upstreams, states, |reading| {
            WarmupState::ALL.map(|state| Some(u64::from(state == reading.warm?)))
        });
        let results = (key::SCRAPE_RESULT, ScrapeResult::ALL.map(ScrapeResult::as_str));
        self.labelled(&health::SELF_SCRAPES, &upstreams, results, |reading| {
            reading.scrapes.map_or([None; ScrapeResult::ALL.len()], |counts| counts.map(Some))
        });
        self.one_each(&health::SELF_IMPLAUSIBLE, &upstreams, |reading| {
            reading.scrapes.map(|_| reading.implausible)
        });
        // The series of an engine are absent until the type of the engine is recognized.
        let engines: Group<engine::Reading> = Group {
            base: |reading| {
                let engine = word(key::ENGINE, reading.engine?.as_str());
                Some(sorted(vec![label(key::UPSTREAM, &reading.upstream), engine]))
            },
            ..upstreams
        };
        let states = (key::STATE, ["waiting", "running"]);
        self.labelled(&tokengauge::BACKEND_REQUESTS, &engines, states, |reading| {
            [reading.waiting, reading.running]
        });
        self.one_each(&tokengauge::KV_CACHE, &engines, |reading| reading.kv_cache);
        self.one_each(&tokengauge::PREFIX_CACHE, &engines, |reading| reading.prefix_cache);
        self.one_each(&tokengauge::SCRAPE_AGE, &engines, |reading| reading.scrape_age);
    }

    /// Registers the metrics of each upstream, which show how connections are reused.
    fn upstreams(&self) {
        let upstreams = Group::new(
            |snapshot| &snapshot.upstreams,
            |counts| Some(vec![label(key::UPSTREAM, &counts.upstream)]),
        );
        self.one_each(&tokengauge::UPSTREAM_STALE, &upstreams, |counts| Some(counts.stale));
        self.one_each(&tokengauge::UPSTREAM_RETRIES, &upstreams, |counts| Some(counts.retries));
    }

    fn budgets(&self) {
        let budgets = Group::new(
            |snapshot| &snapshot.budgets,
            |budget| Some(budget_attributes(&budget.name, &budget.unit)),
        );
        self.one_each(&tokengauge::BUDGET_LIMIT, &budgets, |budget| Some(budget.limit));
        self.one_each(&tokengauge::BUDGET_WINDOW, &budgets, |budget| {
            Some(budget.window.as_secs_f64())
        });
        let prices = Group::new(
            |snapshot| &snapshot.token_prices,
            |price| {
                let currency = label(key::CURRENCY, &price.currency);
                Some(sorted(vec![currency, label(key::ROUTE, &price.route)]))
            },
        );
        self.one_each(&tokengauge::COST_PER_MILLION_TOKENS, &prices, |price| Some(price.amount));
    }

    /// Registers the health of the observer, and the load of the listeners.
    fn observer_and_listeners(&self) {
        self.value(&health::SELF_DROPPED_BYTES, |snapshot| Some(snapshot.observer.lost_bytes));
        self.value(&health::SELF_UNOBSERVED, |snapshot| Some(snapshot.observer.unobserved));
        self.value(&health::SELF_BACKLOG, |snapshot| Some(snapshot.observer.backlog));
        self.value(&health::SELF_HELD, |snapshot| Some(snapshot.observer.held));
        self.value(&health::SELF_AGE, |snapshot| Some(snapshot.observer.age.as_secs_f64()));
        self.value(&health::SELF_RESTARTS, |snapshot| Some(snapshot.observer.restarts));
        self.value(&health::SELF_INVALID_REQUESTS, |snapshot| Some(snapshot.refused_requests));
        self.value(&health::SELF_OVER_LIMIT, |snapshot| Some(snapshot.clients.over_limit));
        self.value(&health::SELF_CONNECTIONS, |snapshot| Some(snapshot.clients.connections));
        self.value(&health::SELF_CONNECTIONS_LIMIT, |snapshot| {
            Some(snapshot.clients.connections_limit)
        });
        self.value(&health::SELF_CONNECTIONS_EVICTED, |snapshot| Some(snapshot.clients.evicted));
    }

    fn logs_and_labels(&self) {
        self.value(&health::SELF_LOGGED, |snapshot| Some(snapshot.request_log.written));
        let request_log =
            Group::new(|snapshot| slice::from_ref(&snapshot.request_log), |_| Some(Vec::new()));
        let reasons = (key::DROP_REASON, DropReason::ALL.map(DropReason::as_str));
        self.labelled(&health::SELF_UNLOGGED, &request_log, reasons, |counts| {
            counts.dropped.map(|(reason, lines)| match reason {
                DropReason::QueueFull | DropReason::Failed | DropReason::Shutdown => Some(lines),
                // Only a collector rejects items and limits their size.
                DropReason::Rejected | DropReason::TooLarge => None,
            })
        });
        self.value(&health::SELF_ROTATION_FAILURES, |snapshot| {
            Some(snapshot.request_log.failed_rotations)
        });
        let log = Group::new(|snapshot| slice::from_ref(&snapshot.log), |_| Some(Vec::new()));
        self.labelled(&health::SELF_LOG_DROPPED, &log, reasons, |counts| {
            counts.dropped.map(|(reason, lines)| match reason {
                DropReason::QueueFull | DropReason::Failed => Some(lines),
                // After the last line, no metrics are exported.
                DropReason::Rejected | DropReason::TooLarge | DropReason::Shutdown => None,
            })
        });
        self.series(&health::SELF_OVERFLOW, |snapshot, counter| {
            for (dimension, overflowed) in &snapshot.label_overflow {
                counter.observe(*overflowed, &[word(key::DIMENSION, dimension.as_str())]);
            }
            counter.observe(snapshot.overflowed_series, &[word(key::DIMENSION, "series")]);
        });
    }

    /// Registers the metrics of the process: CPU, memory and shutdown. Values that the kernel does not report are
    /// absent.
    fn process(&self) {
        let process =
            Group::new(|snapshot| slice::from_ref(&snapshot.process), |_| Some(Vec::new()));
        let modes = (key::CPU_MODE, ["user", "system"]);
        self.labelled(&health::CPU_TIME, &process, modes, |process| {
            let times = process.cpu.map(|time| [time.user, time.system]);
            times.map_or([None; 2], |times| times.map(|time| Some(time.as_secs_f64())))
        });
        self.value(&health::MEMORY, |snapshot| {
            Some(i64::try_from(snapshot.process.resident?).unwrap_or(i64::MAX))
        });
        self.value(&health::PROCESS_CPU, |snapshot| {
            Some(snapshot.process.cpu.map(|time| time.user + time.system)?.as_secs_f64())
        });
        self.value(&health::PROCESS_RESIDENT_MEMORY, |snapshot| snapshot.process.resident);
        self.value(&health::PROCESS_START, |snapshot| snapshot.process.started);
        self.value(&health::PROCESS_OPEN_FDS, |snapshot| snapshot.process.open_files);
        self.value(&health::SELF_MEMORY_LIMIT, |snapshot| snapshot.process.memory_limit);
        self.value(&health::SELF_CPU_LIMIT, |snapshot| snapshot.process.cpu_limit);
        self.value(&health::SELF_DRAIN_DURATION, |snapshot| Some(snapshot.draining.as_secs_f64()));
        self.series(&health::BUILD_INFO, |_, gauge| {
            gauge.observe(1_u64, &[word(key::VERSION, env!("CARGO_PKG_VERSION"))]);
        });
    }
}

fn observe_throughput(
    gauge: &dyn AsyncInstrument<f64>,
    base: &[KeyValue],
    direction: &'static str,
    rates: &Throughput,
) {
    for (window, rate) in [
        ("10s", rates.ten_seconds),
        ("1m", rates.minute),
        ("5m", rates.five_minutes),
        ("peak", rates.peak),
    ] {
        if let Some(rate) = rate {
            let own = [word(key::TOKEN_TYPE, direction), word(key::WINDOW, window)];
            gauge.observe(rate, &with(base, &own));
        }
    }
}
