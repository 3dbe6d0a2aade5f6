//! Concurrency limits of routes.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{length_within, within};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::route::ConcurrencyLimit;

/// None at all is no route; more than 65,536 exchanges are more than one process has ports for towards one upstream.
const IN_FLIGHT: RangeInclusive<usize> = 1..=65_536;

/// Each that waits holds a connection, and up to 64 KiB of its request.
const QUEUES: RangeInclusive<usize> = 0..=65_536;

/// Below the lower one nobody need wait: that is `queue: 0`. Layers the upper one clients have left long since.
const WAITS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);

/// `None` where the route has no limit.
pub(super) fn resolve(
    written: Field<raw::Admission>,
    errors: &mut ErrorCollector,
) -> Option<ConcurrencyLimit> {
    let Spanned { value, node } = written.spanned()?;
    let remedy = "write how many requests may be on their way at once, or remove the key above";
    let max_in_flight = value.max_in_flight.required(errors, node, "max_in_flight", remedy);
    let most = max_in_flight.and_then(|Spanned { value, node }| {
        within(Field::Present(Spanned { value, node }), IN_FLIGHT, errors)
    });
    let queue = within(value.queue, QUEUES, errors).unwrap_or(ConcurrencyLimit::DEFAULT_MAX_QUEUE);
    let wait =
        length_within(value.wait, WAITS, errors).unwrap_or(ConcurrencyLimit::DEFAULT_QUEUE_TIMEOUT);
    Some(ConcurrencyLimit { max_in_flight: most?, max_queue: queue, queue_timeout: wait })
}
