//! Gauges, and counters that other components keep. Their values are read from the snapshot that the metrics reader
//! takes before each collection.

#![expect(
    clippy::excessive_nesting,
    reason = "a callback that loops over readings, some of which are absent"
)]

use std::sync::Arc;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use tokengauge_measure::drift::Direction;
use tokengauge_measure::engine::{self, ScrapeResult};
use tokengauge_measure::load::{LimitType, RateLimitReading, RequestPhase, Throughput};
use tokengauge_measure::record::WarmupState;
use tokengauge_measure::slo::{self, BURN_WINDOWS};
use tokengauge_measure::timing::StallPhase;

use crate::attributes::{label, of_budget, of_flow, of_lane, sorted, with, word};
use crate::builders::Observed;
use crate::catalog::attributes as key;
use crate::catalog::{Metric, health, tokengauge};
use crate::series_limits::SeriesLimits;
use crate::snapshot::{BudgetReading, StateSnapshot};

/// The snapshot of the collection in progress.
pub type Current = Arc<ArcSwap<StateSnapshot>>;

pub fn register(meter: &Meter, current: &Current, limits: SeriesLimits) {
    let registrar = Registrar { meter, current, limits };
    registrar.load();
    registrar.streams();
    registrar.flows();
    registrar.rate_limits();
    registrar.objectives();
    registrar.backends();
    registrar.scrapes();
    registrar.budgets();
    registrar.observer();
    registrar.logs_and_labels();
    registrar.process();
}

/// Registers callbacks that read the current snapshot.
struct Registrar<'a> {
    meter: &'a Meter,
    current: &'a Current,
    limits: SeriesLimits,
}

impl Registrar<'_> {
    /// Registers a metric with series that `read` observes.
    fn series<T: Observed>(
        &self,
        metric: &Metric,
        read: impl Fn(&StateSnapshot, &dyn AsyncInstrument<T>) + Send + Sync + 'static,
    ) {
        let current = Arc::clone(self.current);
        T::observe(metric, self.meter, move |instrument| read(&current.load(), instrument));
    }

    /// Registers a metric without attributes. It is absent if `value` returns `None`.
    fn value<T: Observed>(&self, metric: &Metric, value: fn(&StateSnapshot) -> Option<T>) {
        self.series(metric, move |snapshot, instrument| {
            if let Some(value) = value(snapshot) {
                instrument.observe(value, &[]);
            }
        });
    }

    /// Registers a metric with one series per reading. A series is absent if `point` returns `None`.
    fn rows<R: 'static, T: Observed>(
        &self,
        metric: &Metric,
        readings: fn(&StateSnapshot) -> &[R],
        point: impl Fn(&R) -> Option<(T, Vec<KeyValue>)> + Send + Sync + 'static,
    ) {
        self.series(metric, move |snapshot, instrument| {
            for (value, attributes) in readings(snapshot).iter().filter_map(&point) {
                instrument.observe(value, &attributes);
            }
        });
    }

    fn load(&self) {
        let lanes = self.limits.lanes;
        self.series(&tokengauge::ACTIVE_REQUESTS, move |snapshot, counter| {
            for reading in snapshot.load.lanes.iter().take(lanes) {
                let base = of_lane(&reading.lane);
                for (state, count) in RequestPhase::ALL.into_iter().zip(reading.active) {
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
                    counter.observe(count, &with(&base, &[word(key::STATE, state.as_str())]));
                }
            }
        });
        self.series(&tokengauge::QUEUE_DEPTH, move |snapshot, gauge| {
            for reading in snapshot.load.lanes.iter().take(lanes) {
                let bound = word(key::BOUND, reading.bound().as_str());
                gauge.observe(reading.queue_depth(), &with(&of_lane(&reading.lane), &[bound]));
            }
        });
    }

    fn streams(&self) {
        let lanes = self.limits.lanes;
        self.series(&tokengauge::STREAM_STALLED, move |snapshot, gauge| {
            for reading in snapshot.load.lanes.iter().take(lanes) {
                let base = of_lane(&reading.lane);
                for (awaited, silence) in StallPhase::ALL.into_iter().zip(reading.silence) {
                    let own = [word(key::AWAITED, awaited.as_str())];
                    gauge.observe(silence.stalled, &with(&base, &own));
                }
            }
        });
        self.series(&tokengauge::STREAM_IDLE, move |snapshot, gauge| {
            for reading in snapshot.load.lanes.iter().take(lanes) {
                let base = of_lane(&reading.lane);
                for (awaited, silence) in StallPhase::ALL.into_iter().zip(reading.silence) {
                    if let Some(longest) = silence.longest {
                        let own = [word(key::AWAITED, awaited.as_str())];
                        gauge.observe(longest.as_secs_f64(), &with(&base, &own));
                    }
                }
            }
        });
    }

    /// Throughput and workload drift of each model.
    fn flows(&self) {
        let flows = self.limits.series;
        self.series(&tokengauge::THROUGHPUT, move |snapshot, gauge| {
            for flow in snapshot.load.flows.iter().take(flows) {
                let base = of_flow(&flow.flow);
                observe_throughput(gauge, &base, "input", &flow.input);
                observe_throughput(gauge, &base, "output", &flow.output);
            }
        });
        self.series(&tokengauge::DRIFT_WORKLOAD, move |snapshot, gauge| {
            for reading in snapshot.drift.flows.iter().take(flows) {
                let base = of_flow(&reading.flow);
                for (direction, lengths) in Direction::ALL.into_iter().zip(reading.lengths) {
                    if let Some(index) = lengths.index {
                        let own = [word(key::TOKEN_TYPE, direction.as_str())];
                        gauge.observe(index, &with(&base, &own));
                    }
                }
            }
        });
    }

    /// Remaining requests and tokens of the provider's rate limits.
    fn rate_limits(&self) {
        let most = self.limits.series * LimitType::ALL.len();
        let count = |metric: &Metric,
                     value: fn(&RateLimitReading) -> Option<u64>,
                     applies: fn(LimitType) -> bool| {
            let with_type = metric.has(key::LIMITED);
            self.series(metric, move |snapshot, gauge| {
                let readings = snapshot.load.quotas.iter().take(most);
                for reading in readings.filter(|reading| applies(reading.limited)) {
                    if let Some(value) = value(reading) {
                        gauge.observe(value, &of_rate_limit(reading, with_type));
                    }
                }
            });
        };
        let requests = |limited| limited == LimitType::Requests;
        let tokens = |limited| limited != LimitType::Requests;
        count(
            &tokengauge::QUOTA_REQUESTS_REMAINING,
            |reading| reading.allowance.remaining,
            requests,
        );
        count(&tokengauge::QUOTA_REQUESTS_LIMIT, |reading| reading.allowance.limit, requests);
        count(&tokengauge::QUOTA_TOKENS_REMAINING, |reading| reading.allowance.remaining, tokens);
        count(&tokengauge::QUOTA_TOKENS_LIMIT, |reading| reading.allowance.limit, tokens);
        self.series(&tokengauge::QUOTA_RESET, move |snapshot, gauge| {
            for reading in snapshot.load.quotas.iter().take(most) {
                if let Some(reset) = reading.allowance.reset {
                    gauge.observe(reset.as_secs_f64(), &of_rate_limit(reading, true));
                }
            }
        });
    }

    fn objectives(&self) {
        self.series(&tokengauge::SLO_EVENTS, |snapshot, counter| {
            for reading in &snapshot.slo {
                let base = of_objective(reading);
                for (result, count) in [("good", reading.good), ("bad", reading.bad)] {
                    counter.observe(count, &with(&base, &[word(key::RESULT, result)]));
                }
            }
        });
        let gauge = |metric: &Metric, value: fn(&slo::Reading) -> Option<f64>| {
            let point =
                move |reading: &slo::Reading| Some((value(reading)?, of_objective(reading)));
            self.rows(metric, |snapshot| &snapshot.slo, point);
        };
        gauge(&tokengauge::SLO_OBJECTIVE, |reading| Some(reading.objective.target));
        gauge(&tokengauge::SLO_THRESHOLD, |reading| {
            Some(reading.objective.indicator.longest()?.as_secs_f64())
        });
        gauge(&tokengauge::SLO_RATE_THRESHOLD, |reading| reading.objective.indicator.lowest());
        gauge(&tokengauge::SLO_BUDGET, |reading| reading.budget);
        gauge(&tokengauge::SLO_COVERED, |reading| Some(reading.covered.as_secs_f64()));
        gauge(&tokengauge::SLO_EXHAUSTION, |reading| Some(reading.exhaustion?.as_secs_f64()));
        self.series(&tokengauge::SLO_BURN, |snapshot, gauge| {
            for reading in &snapshot.slo {
                let base = of_objective(reading);
                for ((window, _), burn) in BURN_WINDOWS.into_iter().zip(reading.burn) {
                    if let Some(burn) = burn {
                        gauge.observe(burn, &with(&base, &[word(key::WINDOW, window)]));
                    }
                }
            }
        });
    }

    /// Metrics that the engines behind upstreams report, and their warm-up state.
    fn backends(&self) {
        self.series(&tokengauge::BACKEND_REQUESTS, |snapshot, gauge| {
            for reading in &snapshot.backends {
                let Some(base) = of_engine(reading) else {
                    continue;
                };
                for (state, count) in [("waiting", reading.waiting), ("running", reading.running)] {
                    if let Some(count) = count {
                        gauge.observe(count, &with(&base, &[word(key::STATE, state)]));
                    }
                }
            }
        });
        let gauge = |metric: &Metric, value: fn(&engine::Reading) -> Option<f64>| {
            let point = move |reading: &engine::Reading| value(reading).zip(of_engine(reading));
            self.rows(metric, |snapshot| &snapshot.backends, point);
        };
        gauge(&tokengauge::KV_CACHE, |reading| reading.kv_cache);
        gauge(&tokengauge::PREFIX_CACHE, |reading| reading.prefix_cache);
        gauge(&tokengauge::SCRAPE_AGE, |reading| reading.scrape_age);
        self.series(&tokengauge::WARM_STATE, |snapshot, gauge| {
            for reading in &snapshot.backends {
                let Some(now) = reading.warm else {
                    continue;
                };
                for state in WarmupState::ALL {
                    let own = [word(key::WARM, state.as_str())];
                    gauge.observe(u64::from(state == now), &with(&of_upstream(reading), &own));
                }
            }
        });
    }

    fn scrapes(&self) {
        self.series(&health::SELF_SCRAPES, |snapshot, counter| {
            for reading in &snapshot.backends {
                let counts = reading.asked.iter().flatten();
                for (result, count) in ScrapeResult::ALL.into_iter().zip(counts) {
                    let own = [word(key::ASKED, result.as_str())];
                    counter.observe(*count, &with(&of_upstream(reading), &own));
                }
            }
        });
        self.rows(
            &health::SELF_IMPLAUSIBLE,
            |snapshot| &snapshot.backends,
            |reading| reading.asked.map(|_| (reading.implausible, of_upstream(reading))),
        );
    }

    fn budgets(&self) {
        let gauge = |metric: &Metric, value: fn(&BudgetReading) -> f64| {
            let point = move |budget: &BudgetReading| {
                Some((value(budget), of_budget(&budget.name, &budget.unit)))
            };
            self.rows(metric, |snapshot| &snapshot.budgets, point);
        };
        gauge(&tokengauge::BUDGET_LIMIT, |budget| budget.limit);
        gauge(&tokengauge::BUDGET_WINDOW, |budget| budget.window.as_secs_f64());
        self.rows(
            &tokengauge::TOKEN_PRICE,
            |snapshot| &snapshot.token_prices,
            |price| {
                let attributes =
                    vec![label(key::CURRENCY, &price.currency), label(key::ROUTE, &price.route)];
                Some((price.amount, sorted(attributes)))
            },
        );
    }

    fn observer(&self) {
        self.value(&health::SELF_LOST, |snapshot| Some(snapshot.losses.bytes));
        self.value(&health::SELF_UNOBSERVED, |snapshot| Some(snapshot.losses.exchanges));
        self.value(&health::SELF_BACKLOG, |snapshot| Some(snapshot.losses.backlog));
        self.value(&health::SELF_REFUSED, |snapshot| Some(snapshot.refused_requests));
    }

    fn logs_and_labels(&self) {
        self.value(&health::SELF_LOGGED, |snapshot| Some(snapshot.request_log.written));
        self.series(&health::SELF_UNLOGGED, |snapshot, counter| {
            for (reason, lines) in snapshot.request_log.dropped {
                counter.observe(lines, &[word(key::DROP_REASON, reason.as_str())]);
            }
        });
        self.series(&health::SELF_OVERFLOW, |snapshot, counter| {
            for (dimension, overflowed) in &snapshot.label_overflow {
                counter.observe(*overflowed, &[word(key::DIMENSION, dimension.as_str())]);
            }
            counter.observe(snapshot.folded_series, &[word(key::DIMENSION, "series")]);
        });
    }

    /// CPU, memory and shutdown of the process. Values that the kernel does not report are absent.
    fn process(&self) {
        self.series(&health::CPU_TIME, |snapshot, counter| {
            if let Some(time) = snapshot.process.cpu {
                for (mode, spent) in [("user", time.user), ("system", time.system)] {
                    counter.observe(spent.as_secs_f64(), &[word(key::CPU_MODE, mode)]);
                }
            }
        });
        self.value(&health::MEMORY, |snapshot| {
            Some(i64::try_from(snapshot.process.resident?).unwrap_or(i64::MAX))
        });
        self.value(&health::SELF_MEMORY_LIMIT, |snapshot| snapshot.process.memory_limit);
        self.value(&health::SELF_CPU_LIMIT, |snapshot| snapshot.process.cpu_limit);
        self.value(&health::SELF_DRAINING, |snapshot| Some(snapshot.draining.as_secs_f64()));
        self.series(&health::SELF_BUILD, |_, gauge| {
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

fn of_objective(reading: &slo::Reading) -> Vec<KeyValue> {
    sorted(vec![
        label(key::SLO, &reading.objective.name),
        word(key::INDICATOR, reading.objective.indicator.as_str()),
    ])
}

/// `with_type` adds the type of the limit, for metrics whose name does not contain it.
fn of_rate_limit(reading: &RateLimitReading, with_type: bool) -> Vec<KeyValue> {
    let limited = with_type.then(|| word(key::LIMITED, reading.limited.as_str()));
    with(&of_flow(&reading.flow), limited.as_slice())
}

fn of_upstream(reading: &engine::Reading) -> Vec<KeyValue> {
    vec![label(key::UPSTREAM, &reading.upstream)]
}

/// Returns `None` until the engine is recognized.
fn of_engine(reading: &engine::Reading) -> Option<Vec<KeyValue>> {
    let engine = word(key::ENGINE, reading.engine?.as_str());
    Some(sorted(vec![label(key::UPSTREAM, &reading.upstream), engine]))
}
