//! Runs the thread that exports over OTLP.
//!
//! The thread has its own runtime, so a collector that hangs cannot slow down or block any other part, even on a
//! machine with one core. The SDK's periodic reader and batch processors are not used, because they wait without a time
//! limit at shutdown and report lost data only in the log. This module limits the time of each export, counts dropped
//! items and bounds its queues. A shutdown ends in time, whatever the collector does.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::Context;
use tokengauge_measure::record::Record;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::config::{SignalConfig, TelemetryConfig, Temporality, TlsFiles};
use crate::export_counters::{DropReason, ExportCounters, Signal};
use crate::logs::{LogEmitter, QueuedLog};
use crate::otlp::logs::LogRecordExporter;
use crate::otlp::metrics::{self, Requests};
use crate::otlp::{BuildError, ExportError, Transport, batch, check_tls_files};
use crate::queue::Queue;
use crate::sampling::Sampler;
use crate::self_telemetry;
use crate::span::encoder::TraceRequestEncoder;
use crate::span::{self, EncodedSpan};
use crate::{MetricsReader, MetricsSnapshot};
use tokengauge_types::sync::lock;

/// Time that a shutdown waits for the telemetry thread beyond its time limit, because a busy core can schedule the
/// thread late.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(200);

/// Records spans and log records, and owns the thread that exports them. If no endpoint is configured, there is no
/// thread. Metrics can then still be scraped, but spans and log records are discarded.
#[derive(Debug)]
pub struct Telemetry {
    metrics_reader: Arc<MetricsReader>,
    sampler: Sampler,
    max_value_chars: Option<usize>,
    queues: Queues,
    logs: Option<LogEmitter>,
    /// Certificate and key files of the exported signals.
    tls: Vec<TlsFiles>,
    thread: Option<ExportThread>,
}

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot start the telemetry thread")]
    Thread(#[from] std::io::Error),
    #[error("OTLP export of {signal} to {endpoint}")]
    Exporter { signal: &'static str, endpoint: String, source: BuildError },
    #[error("the telemetry thread ended during startup")]
    Ended,
}

impl Telemetry {
    /// Starts exporting as configured. Logs the destination of each signal once.
    ///
    /// # Errors
    /// Fails if an exporter cannot be created, or if the thread cannot be started.
    pub fn start(
        config: TelemetryConfig,
        metrics_reader: MetricsReader,
    ) -> Result<Self, StartError> {
        self_telemetry::export_configured(&config.summary());
        let metrics_reader = Arc::new(metrics_reader);
        let sampler = config.sampler;
        let max_value_chars = config.max_value_chars;
        let queues = Queues::new(&config, metrics_reader.counters());
        let logs = queues.logs.as_ref();
        let logs = logs.map(|queue| LogEmitter::new(Arc::clone(queue), metrics_reader.resource()));
        let tls = tls_files(&config);
        let thread = if config.sends_any() {
            Some(ExportThread::start(config, Arc::clone(&metrics_reader), queues.clone())?)
        } else {
            None
        };
        Ok(Self { metrics_reader, sampler, max_value_chars, queues, logs, tls, thread })
    }

    /// Encodes and queues the spans of a finished request if its trace is kept. Never blocks.
    pub fn record(&self, record: &Record) {
        let Some(queue) = &self.queues.spans else { return };
        let Some(decision) = self.sampler.decide(record) else {
            return;
        };
        if let Some(reason) = queue.refusal() {
            return queue.count_dropped(reason, span::span_count(record));
        }
        for span in span::encode_spans(record, self.max_value_chars, decision) {
            let bytes = span.len();
            queue.offer(span, bytes);
        }
    }

    /// Returns the emitter of log records, if logs are exported.
    pub const fn logs(&self) -> Option<&LogEmitter> {
        self.logs.as_ref()
    }

    pub fn scrape(&self) -> MetricsSnapshot {
        self.metrics_reader.scrape()
    }

    /// Makes the next export of each signal read its certificate and key files again. If one of the files cannot be used,
    /// logs the error, and the previous certificates of this signal stay in use.
    pub fn reload_certificates(&self) {
        for problem in self.tls.iter().filter_map(|files| check_tls_files(files).err()) {
            self_telemetry::certificate_reload_failed(&problem);
        }
        if let Some(thread) = &self.thread {
            thread.reloads.send_replace(());
        }
    }

    /// Exports the remaining data and ends the thread within `limit`. Returns `true` if everything was delivered in
    /// time. Can be called from any thread and more than once. The call blocks, so async code must call it in
    /// `spawn_blocking`.
    pub fn shutdown(&self, limit: Duration) -> bool {
        self.thread.as_ref().is_none_or(|thread| thread.stop(limit))
    }
}

/// Returns the different sets of certificate and key files of the exported signals.
fn tls_files(config: &TelemetryConfig) -> Vec<TlsFiles> {
    let mut all = Vec::new();
    for signal in Signal::ALL.into_iter().filter_map(|signal| config.exported(signal)) {
        if signal.uses_tls() && !all.contains(&signal.tls) {
            all.push(signal.tls.clone());
        }
    }
    all
}

/// The queues of the exported signals.
#[derive(Clone, Debug)]
struct Queues {
    spans: Option<Arc<Queue<EncodedSpan>>>,
    logs: Option<Arc<Queue<QueuedLog>>>,
}

impl Queues {
    fn new(config: &TelemetryConfig, counters: &Arc<ExportCounters>) -> Self {
        let counters = || Arc::clone(counters);
        let spans = || Queue::new(Signal::Traces, config.span_batch, counters());
        let logs = || Queue::new(Signal::Logs, config.log_batch, counters());
        Self {
            spans: config.sends(Signal::Traces).then(|| Arc::new(spans())),
            logs: config.sends(Signal::Logs).then(|| Arc::new(logs())),
        }
    }

    /// Closes all queues. Returns the number of items that were not delivered.
    fn close(&self) -> usize {
        self.spans.as_ref().map_or(0, |queue| queue.close())
            + self.logs.as_ref().map_or(0, |queue| queue.close())
    }
}

#[derive(Debug)]
struct ExportThread {
    stop: watch::Sender<Option<Duration>>,
    reloads: watch::Sender<()>,
    end: Arc<ThreadEnd>,
}

/// Whether all telemetry was delivered. The telemetry thread sets the value when it ends.
#[derive(Debug, Default)]
struct ThreadEnd {
    delivered: Mutex<Option<bool>>,
    changed: Condvar,
}

impl ExportThread {
    fn start(
        config: TelemetryConfig,
        metrics_reader: Arc<MetricsReader>,
        queues: Queues,
    ) -> Result<Self, StartError> {
        let (stop, stopping) = watch::channel(None);
        let (reloads, reloading) = watch::channel(());
        let end = Arc::new(ThreadEnd::default());
        let (ready, started) = mpsc::sync_channel(1);
        let guard = EndGuard(Arc::clone(&end));
        std::thread::Builder::new().name("tokengauge-telemetry".into()).spawn(move || {
            // The export of log records would otherwise create log records, and the exports would never end.
            let _suppressed = Context::enter_telemetry_suppressed_scope();
            let requests = Requested { stopping, reloading };
            let delivered = run(config, metrics_reader, queues, requests, &ready);
            guard.0.set(delivered);
        })?;
        started.recv().map_err(|_| StartError::Ended)??;
        Ok(Self { stop, reloads, end })
    }

    fn stop(&self, limit: Duration) -> bool {
        // If `stop` is called several times, the limit of the first call applies.
        self.stop.send_if_modified(|stop| stop.is_none() && stop.replace(limit).is_none());
        let delivered = lock(&self.end.delivered);
        let (delivered, _) = self
            .end
            .changed
            .wait_timeout_while(delivered, limit + SHUTDOWN_GRACE, |delivered| delivered.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        delivered.unwrap_or(false)
    }
}

impl ThreadEnd {
    fn set(&self, delivered: bool) {
        let mut slot = lock(&self.delivered);
        slot.get_or_insert(delivered);
        self.changed.notify_all();
    }
}

/// Marks the thread as ended when this guard is dropped, even if the thread panicked.
struct EndGuard(Arc<ThreadEnd>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Requests from other threads to the export thread.
struct Requested {
    stopping: watch::Receiver<Option<Duration>>,
    reloading: watch::Receiver<()>,
}

/// Runs the export thread. Returns `true` if everything was delivered.
fn run(
    config: TelemetryConfig,
    metrics_reader: Arc<MetricsReader>,
    queues: Queues,
    Requested { stopping, reloading }: Requested,
    ready: &mpsc::SyncSender<Result<(), StartError>>,
) -> bool {
    let start = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let transports = Transports::new(&config, &reloading, &metrics_reader)?;
        drop(inside);
        Ok((runtime, transports))
    };
    let (started, result) = match start() {
        Ok(started) => (Some(started), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // If the receiver no longer exists, the caller has given up waiting for the start.
    let wanted = ready.send(result).is_ok();
    let Some((runtime, transports)) = started.filter(|_| wanted) else {
        return false;
    };
    let counters = Arc::clone(metrics_reader.counters());
    let sender = Sender { config, metrics_reader, queues, counters, stopping };
    let delivered = runtime.block_on(sender.send(transports));
    // A DNS lookup can still block a thread of the pool. The shutdown does not wait for this lookup.
    runtime.shutdown_background();
    delivered
}

/// The transports of the exported signals. Log records have an exporter that contains their transport.
struct Transports {
    logs: Option<LogRecordExporter>,
    metrics: Option<Transport>,
    traces: Option<Transport>,
}

impl Transports {
    fn new(
        config: &TelemetryConfig,
        reloading: &watch::Receiver<()>,
        metrics_reader: &MetricsReader,
    ) -> Result<Self, StartError> {
        let new =
            |signal| Transport::new(signal, config, reloading.clone(), metrics_reader.counters());
        let failed = |signal: Signal, source| {
            let endpoint = config.exported(signal).and_then(SignalConfig::shown_endpoint);
            let endpoint = endpoint.unwrap_or_default();
            StartError::Exporter { signal: signal.as_str(), endpoint, source }
        };
        let with_resource =
            |transport| LogRecordExporter::new(transport, metrics_reader.resource());
        let logs = new(Signal::Logs).and_then(|transport| transport.map(with_resource).transpose());
        Ok(Self {
            logs: logs.map_err(|source| failed(Signal::Logs, source))?,
            metrics: new(Signal::Metrics).map_err(|source| failed(Signal::Metrics, source))?,
            traces: new(Signal::Traces).map_err(|source| failed(Signal::Traces, source))?,
        })
    }
}

struct Sender {
    config: TelemetryConfig,
    metrics_reader: Arc<MetricsReader>,
    queues: Queues,
    counters: Arc<ExportCounters>,
    stopping: watch::Receiver<Option<Duration>>,
}

impl Sender {
    /// Exports all signals until a stop is requested. Then exports the remaining data within the time limit of the
    /// stop. Returns whether everything was delivered.
    async fn send(&self, transports: Transports) -> bool {
        let last_metrics = Cell::new(transports.metrics.is_none());
        let metrics = async {
            if let Some(transport) = transports.metrics {
                last_metrics.set(self.send_metrics(transport).await);
            }
            last_metrics.get()
        };
        let spans = async {
            let Some((mut transport, queue)) = transports.traces.zip(self.queues.spans.as_deref())
            else {
                return true;
            };
            let encoder = TraceRequestEncoder::new(self.metrics_reader.resource());
            let export =
                async |spans: &[EncodedSpan]| transport.export(encoder.request(spans).into()).await;
            self.send_batches(queue, export).await
        };
        let logs = async {
            let Some((exporter, queue)) = transports.logs.zip(self.queues.logs.as_deref()) else {
                return true;
            };
            self.send_batches(queue, async |records: &[QueuedLog]| exporter.export(records).await)
                .await
        };
        let all = async { tokio::join!(metrics, spans, logs) };
        let delivered = tokio::select! {
            (metrics, spans, logs) = all => metrics && spans && logs,
            () = self.shutdown_limit() => false,
        };
        let left = self.queues.close();
        let dropped = |signal| -> u64 {
            DropReason::ALL.into_iter().map(|reason| self.counters.dropped(signal, reason)).sum()
        };
        let (spans, log_records) = (dropped(Signal::Traces), dropped(Signal::Logs));
        if spans > 0 || log_records > 0 || !last_metrics.get() {
            self_telemetry::telemetry_lost(spans, log_records, last_metrics.get());
        }
        delivered && left == 0
    }

    /// Exports metrics at each interval, and once more at the end.
    async fn send_metrics(&self, mut transport: Transport) -> bool {
        let interval = self.config.metric_interval;
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waiting = WaitingCollections::new(&self.config, &self.counters);
        loop {
            let last = tokio::select! {
                _ = ticks.tick() => false,
                () = self.stop_requested() => true,
            };
            let snapshot = self.metrics_reader.collect();
            waiting.push(metrics::requests(&snapshot, self.config.max_request_bytes));
            drop(snapshot);
            let delivered = waiting.send(&mut transport).await;
            if last {
                return delivered;
            }
        }
    }

    /// Exports a batch when the batch is full or the batch delay has passed. At the end, exports the rest of the queue.
    /// `export` exports items in one request.
    async fn send_batches<T>(
        &self,
        queue: &Queue<T>,
        mut export: impl AsyncFnMut(&[T]) -> Result<(), ExportError>,
    ) -> bool {
        loop {
            let last = tokio::select! {
                () = sleep(queue.batch.delay) => false,
                () = queue.batch_full.notified() => false,
                () = self.stop_requested() => true,
            };
            let mut delivered = true;
            while let Some(is_delivered) = batch::export(queue, &mut export).await {
                delivered &= is_delivered;
            }
            if last {
                return delivered;
            }
        }
    }

    /// Waits until a stop is requested, or until the handle to the thread is dropped.
    async fn stop_requested(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the handle was dropped.
        drop(stopping.wait_for(Option::is_some).await);
    }

    async fn shutdown_limit(&self) {
        self.stop_requested().await;
        let limit = *self.stopping.borrow();
        sleep(limit.unwrap_or_default()).await;
    }
}

/// Collections of metrics that wait for their export, oldest first.
///
/// A cumulative collection includes the previous ones, so at most one waits. A delta does not include earlier deltas.
/// If its export fails, the delta is sent again before the next one.
struct WaitingCollections<'a> {
    is_delta: bool,
    /// The export requests of each collection that are not delivered yet.
    collections: VecDeque<VecDeque<Bytes>>,
    bytes: usize,
    counters: &'a ExportCounters,
}

impl<'a> WaitingCollections<'a> {
    /// Maximum size in bytes of the deltas that wait. A delta of a busy process takes 100 KiB, so the limit covers an
    /// outage of half an hour at the default interval.
    const MAX_BYTES: usize = 16 << 20;

    fn new(config: &TelemetryConfig, counters: &'a ExportCounters) -> Self {
        let is_delta = config.temporality != Temporality::Cumulative;
        Self { is_delta, collections: VecDeque::new(), bytes: 0, counters }
    }

    /// Adds a collection. If the limit is exceeded, drops the oldest collections. Data points that are too large for a
    /// request are dropped, too.
    fn push(&mut self, Requests { bodies, too_large }: Requests) {
        self.counters.count_dropped(Signal::Metrics, DropReason::TooLarge, too_large);
        self.bytes += bodies.iter().map(Bytes::len).sum::<usize>();
        self.collections.push_back(bodies.into());
        while self.bytes > Self::MAX_BYTES && self.collections.len() > 1 {
            self.remove_first();
            self.counters.count_dropped(Signal::Metrics, DropReason::QueueFull, 1);
        }
    }

    /// Exports all collections in order. Stops at a delta that can be sent later. Drops other collections of which a
    /// part could not be sent. Returns whether all were delivered.
    async fn send(&mut self, transport: &mut Transport) -> bool {
        let mut delivered = true;
        while !self.collections.is_empty() {
            let (sent, is_temporary) = self.send_first(transport).await;
            delivered &= sent;
            if is_temporary && self.is_delta {
                return false;
            }
            self.counters.count_dropped(Signal::Metrics, DropReason::Failed, is_temporary.into());
            self.remove_first();
        }
        delivered
    }

    /// Exports the requests of the first collection. Returns whether all were delivered, and whether this stopped at a
    /// request that can be sent later: the collector is not available, so the next requests would fail, too. A request
    /// that the collector will never accept is dropped.
    async fn send_first(&mut self, transport: &mut Transport) -> (bool, bool) {
        let mut delivered = true;
        while let Some(part) = self.collections.front().and_then(VecDeque::front) {
            if let Err(problem) = transport.export(part.clone()).await {
                if problem.retry_after().is_some() {
                    return (false, true);
                }
                delivered = false;
                self.counters.count_dropped(Signal::Metrics, DropReason::Failed, 1);
            }
            let sent = self.collections.front_mut().and_then(VecDeque::pop_front);
            self.bytes -= sent.map_or(0, |part| part.len());
        }
        (delivered, false)
    }

    fn remove_first(&mut self) {
        let first = self.collections.pop_front().unwrap_or_default();
        self.bytes -= first.iter().map(Bytes::len).sum::<usize>();
    }
}

impl Drop for WaitingCollections<'_> {
    fn drop(&mut self) {
        let left = self.collections.len();
        self.counters.count_dropped(Signal::Metrics, DropReason::Shutdown, left);
    }
}

#[cfg(test)]
mod tests;
