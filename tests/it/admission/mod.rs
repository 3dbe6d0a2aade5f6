//! Tests the concurrency limit of a route: which requests are admitted, queued and rejected, and that no permit is
//! lost.

mod backend;
mod crowd;
mod ends;
mod process;
mod waiting;

use std::cell::Cell;
use std::time::Duration;

use tokengauge::forward::ConcurrencyLimit;
use tokengauge_observe::{InFlightRequests, Observer};

/// Timeout for waiting until gauges have the expected values. A test then fails and shows the wrong values.
const PATIENCE: Duration = Duration::from_secs(20);

/// A queue timeout that no test reaches, so that no request is rejected because of it.
const LONG: Duration = Duration::from_secs(3_600);

const fn limit(max_in_flight: usize, queue: usize, wait: Duration) -> Option<ConcurrencyLimit> {
    Some(ConcurrencyLimit { max_in_flight, max_queue: queue, queue_timeout: wait })
}

/// Returns the gauges for queued exchanges and for admitted exchanges in progress.
fn gauges(observer: &Observer) -> (u64, u64) {
    let (load, _) = observer.with_current_state(InFlightRequests::reading);
    let active = load.routes.iter().map(|route| route.active);
    active.fold((0, 0), |(queued, inside), [q, w, s, u]| (queued + q, inside + w + s + u))
}

/// Waits until the gauges have these values.
async fn until_gauges(observer: &Observer, expected: (u64, u64)) {
    let last = Cell::new((0, 0));
    let reached = async {
        loop {
            last.set(gauges(observer));
            if last.get() == expected {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let reached = tokio::time::timeout(PATIENCE, reached).await;
    assert!(reached.is_ok(), "{:?} instead of {expected:?}", last.get());
}
