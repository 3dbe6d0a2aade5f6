//! The exchanges that Envoy's access log can still end, by request id.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Direction, Ending, ObserverEvent};
use tokengauge_types::sync::lock;

/// Maximum number of exchanges that are kept for the access log, twice the default limit of requests in flight. The entry
/// of a request arrives up to the flush interval of the log (1 s by default) after its end.
const MAX_KEPT: usize = 16_384;

/// One exchange, shared by its `ext_proc` stream and the access log.
#[derive(Debug)]
pub struct Exchange {
    pub observer: RequestObserver,
    opened_at: MonotonicInstant,
    /// Time of the latest event in nanoseconds of [`MonotonicInstant`].
    last_at: AtomicU64,
}

impl Exchange {
    pub fn new(observer: RequestObserver, opened_at: MonotonicInstant) -> Self {
        Self { observer, opened_at, last_at: AtomicU64::new(opened_at.nanos()) }
    }

    /// Records the time of an event.
    pub fn touch(&self, at: MonotonicInstant) {
        self.last_at.store(at.nanos(), Ordering::Relaxed);
    }

    /// Ends the exchange as the access log reports it. `duration` is the time from the start of the request to its end.
    /// The entry arrives later, so the end is dated back.
    pub fn end_by_log(&self, now: MonotonicInstant, ending: Ending, duration: Option<Duration>) {
        let last = MonotonicInstant::from_nanos(self.last_at.load(Ordering::Relaxed));
        let at = duration.map_or(now, |duration| self.opened_at + duration);
        self.observer.end(at.max(last).min(now.max(last)), ending);
    }

    /// Ends an exchange whose real end is not known. A gap marks it as not completely observed, so that no SLO counts it.
    pub fn end_unknown(&self, at: MonotonicInstant) {
        self.observer.report(at, ObserverEvent::Gap { direction: Direction::Response, bytes: 0 });
        self.observer.end(at, Ending::Complete);
    }
}

/// Exchanges by the value of `x-request-id`.
#[derive(Debug, Default)]
pub struct OpenExchanges(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<Arc<str>, Arc<Exchange>>,
    /// Ids in the order of their requests. An id whose entry has arrived stays until it is the oldest.
    order: VecDeque<Arc<str>>,
}

impl OpenExchanges {
    /// Keeps the exchange until its access log entry arrives. If two requests have the same id, the later one is kept.
    pub fn insert(&self, id: &str, exchange: &Arc<Exchange>) {
        let id: Arc<str> = id.into();
        let mut kept = lock(&self.0);
        if kept.order.len() >= MAX_KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.by_id.remove(&oldest);
        }
        kept.by_id.insert(Arc::clone(&id), Arc::clone(exchange));
        kept.order.push_back(id);
    }

    /// Returns the exchange with this id, and keeps it no longer.
    pub fn take(&self, id: &str) -> Option<Arc<Exchange>> {
        lock(&self.0).by_id.remove(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_observe::tee::{ChannelConfig, ObservationChannel};

    #[test]
    fn the_number_of_kept_exchanges_is_bounded() {
        let open = OpenExchanges::default();
        let channel = Arc::new(ObservationChannel::new(ChannelConfig::default()));
        let observer = channel.open_excluded();
        let exchange = Arc::new(Exchange::new(observer, MonotonicInstant::ZERO));
        for number in 0..MAX_KEPT + 10 {
            open.insert(&number.to_string(), &exchange);
        }
        assert!(open.take("9").is_none() && open.take("10").is_some() && open.take("10").is_none());
        let kept = lock(&open.0);
        assert_eq!((kept.by_id.len(), kept.order.len()), (MAX_KEPT - 1, MAX_KEPT));
    }
}
