//! The limit of open connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::Address;
use super::log_throttle::LogThrottle;

/// While a new connection waits for a permit, interval at which idle connections are closed, one at a time. A closed
/// connection returns its permit within milliseconds.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

/// A limited number of permits for connections. Logs a warning when no permit is left.
#[derive(Debug)]
pub(super) struct Limit {
    address: Address,
    max: usize,
    permits: Arc<Semaphore>,
    log: LogThrottle,
}

impl Limit {
    pub(super) fn new(address: &Address, max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            address: address.clone(),
            max,
            permits: Arc::new(Semaphore::new(max)),
            log: LogThrottle::default(),
        }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// Takes a permit. If no permit is left, logs a warning and returns `None`.
    fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
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
            let Self { address, max, .. } = self;
            let message = "max_connections reached, connections without a request are closed for \
                 new ones, which else wait";
            tracing::warn!(listener = %address, limit = max, "{message}");
        }
    }
}
