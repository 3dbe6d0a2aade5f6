//! Limits of a listener: connections, and requests in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::Address;
use super::log_throttle::LogThrottle;

/// While a new connection waits for a permit, interval at which idle connections are closed, one at a time. A closed
/// connection returns its permit within milliseconds.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

/// A limited number of permits. Logs a warning when no permit is left.
#[derive(Debug)]
pub(super) struct Limit {
    key: &'static str,
    /// What happens to clients at the limit, as text for the log.
    effect: &'static str,
    address: Address,
    max: usize,
    permits: Arc<Semaphore>,
    log: LogThrottle,
}

impl Limit {
    pub(super) fn connections(address: &Address, max: usize) -> Self {
        let effect = "connections without a request are closed for new ones, which else wait";
        Self::new("max_connections", effect, address, max)
    }

    pub(super) fn requests(address: &Address, max: usize) -> Self {
        Self::new("max_requests", "further requests get status 503", address, max)
    }

    fn new(key: &'static str, effect: &'static str, address: &Address, max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            key,
            effect,
            address: address.clone(),
            max,
            permits: Arc::new(Semaphore::new(max)),
            log: LogThrottle::default(),
        }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    pub(super) fn in_use(&self) -> usize {
        self.max.saturating_sub(self.permits.available_permits())
    }

    /// Takes a permit. If no permit is left, logs a warning and returns `None`.
    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => {
                self.log();
                None
            }
        }
    }

    /// Waits for a permit. If no permit is left, logs a warning, and then calls `make_room` repeatedly until a permit
    /// is returned.
    pub(super) async fn acquire(&self, make_room: impl Fn()) -> OwnedSemaphorePermit {
        let mut permit = self.try_acquire();
        loop {
            if let Some(permit) = permit {
                return permit;
            }
            make_room();
            let returned = Arc::clone(&self.permits).acquire_owned();
            let returned = tokio::time::timeout(ROOM_INTERVAL, returned).await;
            permit = returned.ok().and_then(Result::ok);
        }
    }

    fn log(&self) {
        if self.log.is_due() {
            let Self { key, effect, address, max, .. } = self;
            tracing::warn!(listener = %address, limit = max, "{key} reached, {effect}");
        }
    }
}
