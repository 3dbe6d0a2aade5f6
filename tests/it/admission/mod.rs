//! A route's limit: who is let in, who waits, who is sent away; and that no place is ever lost.

mod backend;
mod crowd;
mod ends;
mod process;
mod waiting;

use std::cell::Cell;
use std::time::Duration;

use tokengauge::route::ConcurrencyLimit;
use tokengauge_observe::{InFlightRequests, Observer};

/// Turns gauges that never come right into a failure that says what they are.
const PATIENCE: Duration = Duration::from_secs(20);

/// No test waits for it; none is answered 429 for want of patience.
const LONG: Duration = Duration::from_secs(3_600);

const fn limit(max_in_flight: usize, queue: usize, wait: Duration) -> Option<ConcurrencyLimit> {
    Some(ConcurrencyLimit { max_in_flight, max_queue: queue, queue_timeout: wait })
}

/// Exchanges in the queue, and those that were let in and are not over, as the gauges tell them.
fn gauges(observer: &Observer) -> (u64, u64) {
    let (load, _) = observer.with_current_state(InFlightRequests::reading);
    let active = load.lanes.iter().map(|lane| lane.active);
    active.fold((0, 0), |(queued, inside), [q, w, s, u]| (queued + q, inside + w + s + u))
}

/// Waits until the gauges stand so.
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
