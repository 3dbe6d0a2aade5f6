//! Counts requests that were not observed, by their result.

use super::{InFlightRequests, TrackedRequest};
use crate::tee::EventsOfResult;
use tokengauge_types::event::{ExchangeId, TimestampedEvent};

/// Id of a request that was not observed, while its result is counted. The channel numbers requests from 1.
pub(super) const MUTED: ExchangeId = ExchangeId(0);

impl InFlightRequests {
    /// Counts a request that was not observed. Creates neither a span nor a line in the request log, because both would
    /// lack the ids and the times of the request.
    pub(crate) fn count_muted(&mut self, events: EventsOfResult) {
        for (at, event) in events.into_iter().flatten() {
            self.apply(TimestampedEvent { exchange: MUTED, at, event }, &[]);
            if let Some(TrackedRequest { request, .. }) = self.requests.get_mut(&MUTED) {
                // The channel counts these requests as unobserved.
                (request.is_counted_lost, request.exchange.gap) = (true, true);
            }
        }
    }
}
