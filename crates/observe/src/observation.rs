//! A ready-made observer with metrics, for applications that observe their own services or clients.

use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::endpoint::{Endpoint, EndpointOpener};
use crate::in_flight::{InFlightRequests, ObserverSettings, Sinks};
use crate::layer::ObserveLayer;
use crate::observer::Observer;
use crate::tee::{self, ObservationChannel};
use tokengauge_measure::record::Record;
use tokengauge_telemetry::{
    Instruments, MetricsReader, SnapshotSource, StateSnapshot, TelemetryConfig, prometheus,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits};

/// Maximum time that dropping an [`Observation`] takes.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A running observer: a thread that reads the observation channel, and the metrics that the thread updates.
///
/// Dropping an `Observation` stops the thread. Requests that end later are not recorded.
#[derive(Debug)]
pub struct Observation {
    channel: Arc<ObservationChannel>,
    observer: Arc<Observer>,
    collector: MetricsReader,
}

impl Observation {
    /// Starts the observer thread. The thread calls `on_record` for each finished request.
    ///
    /// # Errors
    /// Fails if the operating system cannot start a thread.
    pub fn start(on_record: impl Fn(&Record) + Send + 'static) -> io::Result<Self> {
        let channel = Arc::new(ObservationChannel::new(tee::ChannelConfig::default()));
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        // The observer updates the instruments, and gauges read the observer. The weak reference avoids a reference
        // cycle.
        let reader: Arc<OnceLock<Weak<Observer>>> = Arc::default();
        let readings = SnapshotSource::holding({
            let reader = Arc::clone(&reader);
            move |collect| match reader.get().and_then(Weak::upgrade) {
                Some(observer) => observer.with_snapshot(collect),
                None => collect(StateSnapshot::default()),
            }
        });
        let (config, _) = TelemetryConfig::from_env(|_| None);
        let (instruments, collector) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let sinks = Sinks { instruments, record: Box::new(on_record) };
        let requests = InFlightRequests::new(ObserverSettings::default(), limiter, sinks);
        let observer = Arc::new(Observer::start(Arc::clone(&channel), requests)?);
        drop(reader.set(Arc::downgrade(&observer)));
        Ok(Self { channel, observer, collector })
    }

    /// Returns a layer that reports the exchanges of `endpoint`.
    pub fn layer(&self, endpoint: Endpoint) -> ObserveLayer<EndpointOpener> {
        ObserveLayer::new(Arc::clone(&self.channel), endpoint)
    }

    /// Returns all metrics in the Prometheus text format, including events that were reported before the call.
    pub fn prometheus(&self) -> String {
        prometheus::Format::Text.render(&self.collector.scrape())
    }

    /// Waits until all events that were reported before the call are applied. `on_record` has then been called for each
    /// finished request.
    pub fn flush(&self) {
        self.observer.with_current_state(|_, _| ());
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.observer.stop(STOP_TIMEOUT);
    }
}
