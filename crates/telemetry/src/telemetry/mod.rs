//! The thread on which all sending happens.
//!
//! It has a runtime of its own, so a collector that hangs, or a machine with one core, can slow or dead-lock nothing
//! else. The SDK's own periodic reader and span processor are not used: they wait without bound at shutdown, and what they
//! lose is only logged. Here each export has its time limit, what is lost is counted, the queue is bounded, and shutdown
//! keeps to its bound whatever the collector does.

mod queue;

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use crate::MetricsReader;
use crate::config::Config;
use crate::export_counters::{DropReason, ExportCounters, Signal};
use crate::otlp::{BuildError, MetricExporter, SpanExporter};
use crate::prometheus::Format;
use crate::sampling::Sampler;
use crate::self_telemetry;
use crate::span::{self, SpanLimits};
use queue::Queue;
use tokengauge_measure::record::Record;

/// How much longer than its bound a shutdown waits for the thread to notice: scheduling on a busy single core.
pub const GRACE: Duration = Duration::from_millis(200);

/// The thread that sends, and the queue to it. Without an endpoint there is neither: metrics can be scraped, spans go
/// nowhere.
#[derive(Debug)]
pub struct Telemetry {
    metrics_reader: Arc<MetricsReader>,
    sampler: Sampler,
    style: SpanLimits,
    /// `None` where spans go nowhere.
    queue: Option<Arc<Queue>>,
    thread: Option<Thread>,
}

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the telemetry thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
    #[error("OTLP export of {signal} to {endpoint}: {source}")]
    Exporter { signal: &'static str, endpoint: String, source: BuildError },
    #[error("the telemetry thread broke off while starting")]
    BrokeOff,
}

impl Telemetry {
    /// Says once, in the log, what will be sent where; fails where an exporter cannot be built as configured.
    pub fn start(config: Config, metrics_reader: MetricsReader) -> Result<Self, StartError> {
        self_telemetry::export_configured(&config.summary());
        let metrics_reader = Arc::new(metrics_reader);
        let sampler = config.sampler;
        let style = SpanLimits::new(config.max_value_chars);
        let counters = Arc::clone(metrics_reader.counters());
        let queue = config.sends_traces().then(|| Arc::new(Queue::new(config.batch, counters)));
        let thread = if config.sends() {
            Some(Thread::start(config, Arc::clone(&metrics_reader), queue.clone())?)
        } else {
            None
        };
        Ok(Self { metrics_reader, sampler, style, queue, thread })
    }

    /// Makes the spans of a finished exchange, if its trace is kept, and queues them. Never blocks.
    pub fn record(&self, record: &Record) {
        let Some(queue) = &self.queue else { return };
        let Some(kept) = self.sampler.decide(record) else {
            return;
        };
        // What will not be sent is not made.
        if let Some(refused) = queue.refuses() {
            queue.lost(refused, span::span_count(record));
            return;
        }
        for span in span::encode_spans(record, &self.style, kept) {
            queue.offer(span);
        }
    }

    /// All metrics now, as a scrape shows them.
    pub fn prometheus(&self, format: Format) -> String {
        format.text(&self.metrics_reader.scrape())
    }

    /// Sends what is left and ends the thread, within `bound`; true where everything was delivered in time. May be
    /// called from any thread and more than once. It blocks: on a runtime, call it in `spawn_blocking`.
    pub fn shutdown(&self, bound: Duration) -> bool {
        self.thread.as_ref().is_none_or(|thread| thread.stop(bound))
    }
}

/// The way to tell the thread to stop, and to hear that it has.
#[derive(Debug)]
struct Thread {
    stop: watch::Sender<Option<Duration>>,
    ended: Arc<Ended>,
}

/// Set when the thread is over: whether everything was delivered.
#[derive(Debug, Default)]
struct Ended {
    delivered: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Thread {
    fn start(
        config: Config,
        metrics_reader: Arc<MetricsReader>,
        queue: Option<Arc<Queue>>,
    ) -> Result<Self, StartError> {
        let (stop, stopping) = watch::channel(None);
        let ended = Arc::new(Ended::default());
        let (ready, started) = mpsc::sync_channel(1);
        let over = Over(Arc::clone(&ended));
        std::thread::Builder::new().name("tokengauge-telemetry".into()).spawn(move || {
            let delivered = run(config, metrics_reader, queue, stopping, &ready);
            over.0.set(delivered);
        })?;
        started.recv().map_err(|_| StartError::BrokeOff)??;
        Ok(Self { stop, ended })
    }

    fn stop(&self, bound: Duration) -> bool {
        // The first bound counts.
        self.stop.send_if_modified(|stop| stop.is_none() && stop.replace(bound).is_none());
        let delivered = self.ended.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        let (delivered, _) = self
            .ended
            .changed
            .wait_timeout_while(delivered, bound + GRACE, |delivered| delivered.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        delivered.unwrap_or(false)
    }
}

impl Ended {
    fn set(&self, delivered: bool) {
        let mut slot = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(delivered);
        self.changed.notify_all();
    }
}

/// Tells that the thread is over even if it panicked.
struct Over(Arc<Ended>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// The thread. True where everything was delivered.
fn run(
    config: Config,
    metrics_reader: Arc<MetricsReader>,
    queue: Option<Arc<Queue>>,
    stopping: watch::Receiver<Option<Duration>>,
    ready: &mpsc::SyncSender<Result<(), StartError>>,
) -> bool {
    let answer = |result| ready.send(result).is_ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            answer(Err(error.into()));
            return false;
        }
    };
    let exporters = {
        let _inside = runtime.enter();
        Exporters::build(&config, &metrics_reader)
    };
    let exporters = match exporters {
        Ok(exporters) => exporters,
        Err(error) => {
            answer(Err(error));
            return false;
        }
    };
    answer(Ok(()));
    let sender = Sender {
        counters: Arc::clone(metrics_reader.counters()),
        config,
        metrics_reader,
        queue,
        stopping,
    };
    let delivered = runtime.block_on(sender.send(exporters));
    // A name lookup may still hang on a thread of the pool: leave it behind.
    runtime.shutdown_background();
    delivered
}

struct Exporters {
    metrics: Option<MetricExporter>,
    traces: Option<SpanExporter>,
}

impl Exporters {
    fn build(config: &Config, metrics_reader: &MetricsReader) -> Result<Self, StartError> {
        let metrics = config
            .sends_metrics()
            .then(|| MetricExporter::new(&config.metrics))
            .transpose()
            .map_err(|source| StartError::Exporter {
                signal: "metrics",
                endpoint: config.metrics.endpoint.clone().unwrap_or_default(),
                source,
            })?;
        let traces = config
            .sends_traces()
            .then(|| SpanExporter::new(&config.traces, metrics_reader.resource()))
            .transpose()
            .map_err(|source| StartError::Exporter {
                signal: "traces",
                endpoint: config.traces.endpoint.clone().unwrap_or_default(),
                source,
            })?;
        Ok(Self { metrics, traces })
    }
}

struct Sender {
    config: Config,
    metrics_reader: Arc<MetricsReader>,
    queue: Option<Arc<Queue>>,
    counters: Arc<ExportCounters>,
    stopping: watch::Receiver<Option<Duration>>,
}

impl Sender {
    /// Until the end, and at most as long after it as it allows.
    async fn send(&self, exporters: Exporters) -> bool {
        let last_metrics = Cell::new(exporters.metrics.is_none());
        let metrics = async {
            if let Some(exporter) = exporters.metrics {
                last_metrics.set(self.metrics(&exporter).await);
            }
            last_metrics.get()
        };
        let spans = async {
            match (&self.queue, exporters.traces) {
                (Some(queue), Some(exporter)) => self.spans(queue, &exporter).await,
                _ => true,
            }
        };
        let all = async { tokio::join!(metrics, spans) };
        let delivered = tokio::select! {
            (metrics, spans) = all => metrics && spans,
            () = self.time_is_up() => false,
        };
        let left = self.queue.as_ref().map_or(0, |queue| queue.close());
        let lost = |reason| self.counters.dropped(Signal::Traces, reason);
        let spans = DropReason::ALL.into_iter().map(lost).sum();
        if spans > 0 || !last_metrics.get() {
            self_telemetry::telemetry_lost(spans, last_metrics.get());
        }
        delivered && left == 0
    }

    /// Each interval, and once more at the end.
    async fn metrics(&self, exporter: &MetricExporter) -> bool {
        let interval = self.config.metric_interval;
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut link = Link::new(Signal::Metrics, &self.counters);
        loop {
            let last = tokio::select! {
                _ = ticks.tick() => false,
                () = self.told_to_stop() => true,
            };
            let picture = self.metrics_reader.collect();
            let limit = self.config.metrics.timeout;
            let delivered = link.export(limit, 1, exporter.export(&picture)).await;
            if last {
                return delivered;
            }
        }
    }

    /// Whenever a batch is full or has waited long enough, and until the queue is empty at the end.
    async fn spans(&self, queue: &Queue, exporter: &SpanExporter) -> bool {
        let mut link = Link::new(Signal::Traces, &self.counters);
        let limit = self.config.traces.timeout.min(queue.batch.timeout);
        loop {
            let last = tokio::select! {
                () = sleep(queue.batch.delay) => false,
                () = queue.full.notified() => false,
                () = self.told_to_stop() => true,
            };
            let mut delivered = true;
            loop {
                let batch = queue.take();
                if batch.is_empty() {
                    break;
                }
                let spans = batch.len();
                queue.in_flight.store(spans, Ordering::Relaxed);
                delivered &= link.export(limit, spans, exporter.export(batch)).await;
                queue.in_flight.store(0, Ordering::Relaxed);
            }
            if last {
                return delivered;
            }
        }
    }

    /// The handle being dropped is an end too.
    async fn told_to_stop(&self) {
        let mut stopping = self.stopping.clone();
        // An error says that the handle is gone.
        drop(stopping.wait_for(Option::is_some).await);
    }

    async fn time_is_up(&self) {
        self.told_to_stop().await;
        let bound = *self.stopping.borrow();
        sleep(bound.unwrap_or_default()).await;
    }
}

/// The connection of one signal to its collector, as far as the log is concerned: told when it breaks and when it is
/// back, not at every attempt in between.
struct Link<'a> {
    signal: Signal,
    counters: &'a ExportCounters,
    failures: u64,
}

impl<'a> Link<'a> {
    const fn new(signal: Signal, counters: &'a ExportCounters) -> Self {
        Self { signal, counters, failures: 0 }
    }

    async fn export(
        &mut self,
        limit: Duration,
        items: usize,
        export: impl Future<Output = Result<(), String>>,
    ) -> bool {
        let problem = match timeout(limit, export).await {
            Ok(Ok(())) => None,
            Ok(Err(problem)) => Some(problem),
            Err(_) => Some(format!("no answer within {limit:?}")),
        };
        let delivered = problem.is_none();
        self.counters.ended(self.signal, delivered);
        if let Some(problem) = problem {
            self.counters.lost(self.signal, DropReason::Failed, items);
            if self.failures == 0 {
                self_telemetry::export_failed(self.signal.as_str(), &problem);
            }
            self.failures += 1;
        } else if self.failures > 0 {
            self_telemetry::export_recovered(self.signal.as_str(), self.failures);
            self.failures = 0;
        }
        delivered
    }
}

#[cfg(test)]
mod tests;
