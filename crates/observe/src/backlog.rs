//! Events that were taken from the observation channel and wait to be applied to the requests in flight.
//!
//! A *drain* applies all events that the channel contains. It can be interrupted between two events and continues
//! later. Body bytes that have become too old are not parsed, because the backlog would otherwise grow without end.

use std::time::Duration;

use crate::in_flight::InFlightRequests;
use crate::tee::{Batch, MutedResult, ObservationChannel, SMALL_CHUNK};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{ObserverEvent, TimestampedEvent};

/// Maximum time for which body bytes wait while the observer is busy. Even a full channel takes less time: 64 MiB of a
/// chat stream are parsed in a second. An observer that is further behind is overloaded. Chunks of up to [`SMALL_CHUNK`]
/// bytes have twice this time, so that large bodies are given up before streams and error messages.
const MAX_LAG: Duration = Duration::from_secs(2);

/// Minimum time between two reads of the clock that counts as a pause. The work between two reads takes 100 ms at most,
/// for 16 events with 64 KiB of text each. In a longer time, the thread did not run, or loaded a tokenizer.
const MIN_PAUSE: Duration = Duration::from_millis(250);

/// Number of events between two reads of the clock. A read takes a tenth of the time of an event.
const EVENTS_PER_CHECK: usize = 16;

/// Number of body bytes that take about as long as one event. A larger body therefore counts as several events.
const BYTES_PER_EVENT: usize = 1_024;

/// Values and callbacks that the caller of [`Backlog::drain`] provides.
#[derive(Clone, Copy)]
pub(crate) struct DrainContext<'a> {
    pub(crate) channel: &'a ObservationChannel,
    pub(crate) clock: &'a dyn Fn() -> MonotonicInstant,
    /// Called after the content of a shard was taken.
    pub(crate) beat: &'a dyn Fn(&mut InFlightRequests),
    /// Returns whether the drain must stop at this time. Called between two events.
    pub(crate) interrupt: &'a dyn Fn(MonotonicInstant) -> bool,
}

/// Events of one shard (buffer) of the observation channel, and the progress of the drain over all shards.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Events in reverse order, so that `pop` returns the oldest.
    batch: Batch,
    /// Number of bytes of the batch that were read.
    read: usize,
    /// Number of shards that the current drain has not read yet. `None` if no drain is in progress.
    shards_left: Option<usize>,
    /// Maximum age of large chunks in the current drain; older ones are not parsed. Time in which the thread did not work
    /// on the backlog is added, because it does not mean overload.
    max_age: Duration,
    /// Sum of the pauses of the current drain.
    paused: Duration,
    next_shard: usize,
    /// Results of requests that were not observed, and are not counted yet.
    muted: Vec<MutedResult>,
    /// Time of the end of the last drain.
    drained: MonotonicInstant,
    skips_bodies: bool,
}

impl Backlog {
    /// Finishes an interrupted drain, if any. Then applies the events that all shards contain now. Returns `false` if
    /// the drain was interrupted.
    pub(crate) fn drain(
        &mut self,
        requests: &mut InFlightRequests,
        context: DrainContext<'_>,
    ) -> bool {
        if self.shards_left.is_some() && !self.resume(requests, context) {
            return false;
        }
        let paused = std::mem::take(&mut self.paused);
        self.max_age = MAX_LAG + (context.clock)().since(self.drained) + paused;
        self.shards_left = Some(context.channel.shards());
        self.resume(requests, context)
    }

    /// Gives the bodies of all further events up.
    pub(crate) const fn skip_bodies(&mut self) {
        self.skips_bodies = true;
    }

    /// Returns the age of the oldest event that is not applied yet. Zero if no drain was interrupted.
    pub(crate) fn age(&self, now: MonotonicInstant) -> Duration {
        self.batch.entries.last().map_or(Duration::ZERO, |entry| now.since(entry.at))
    }

    fn resume(&mut self, requests: &mut InFlightRequests, context: DrainContext<'_>) -> bool {
        let DrainContext { channel, clock, beat, .. } = context;
        while let Some(shards_left) = self.shards_left {
            if !self.apply(requests, context) {
                return false;
            }
            self.shards_left = shards_left.checked_sub(1);
            if self.shards_left.is_some() {
                channel.drain(self.next_shard, &mut self.batch);
                self.batch.entries.reverse();
                self.read = 0;
                self.next_shard = (self.next_shard + 1) % channel.shards();
                beat(requests);
            }
        }
        if self.muted.is_empty() {
            self.muted = channel.take_muted();
        }
        let is_complete = self.count_muted(requests, context);
        self.drained = clock();
        is_complete
    }

    /// Counts the requests that were not observed. Returns `false` if it was interrupted.
    fn count_muted(&mut self, requests: &mut InFlightRequests, context: DrainContext<'_>) -> bool {
        let mut work = 0;
        while let Some(result) = self.muted.last_mut() {
            let Some(events) = result.next_request() else {
                self.muted.pop();
                continue;
            };
            requests.count_muted(events);
            work += 1;
            if work % EVENTS_PER_CHECK == 0 && (context.interrupt)((context.clock)()) {
                return false;
            }
        }
        true
    }

    /// Applies the events of the current shard. Returns `false` if the drain was interrupted and events are left.
    fn apply(&mut self, requests: &mut InFlightRequests, context: DrainContext<'_>) -> bool {
        let mut now = (context.clock)();
        let mut work = 0;
        while let Some(entry) = self.batch.entries.pop() {
            // The position is updated first, so that a panic affects only this event.
            let len = body_len(&entry);
            let start = self.read;
            self.read += len;
            let max_age = if len > SMALL_CHUNK { self.max_age } else { self.max_age + MAX_LAG };
            if len > 0 && (self.skips_bodies || now.since(entry.at) > max_age) {
                requests.skip(entry);
            } else {
                let bytes = self.batch.bytes.get(start..self.read).unwrap_or_default();
                requests.apply(entry, bytes);
            }
            work += 1 + len / BYTES_PER_EVENT;
            if work >= EVENTS_PER_CHECK {
                work = 0;
                let before = std::mem::replace(&mut now, (context.clock)());
                self.note_pause(now.since(before));
                if (context.interrupt)(now) {
                    return self.batch.entries.is_empty();
                }
            }
        }
        if work > 0 {
            self.note_pause((context.clock)().since(now));
        }
        true
    }

    /// If the time between two reads of the clock was a pause of the thread, adds it to the maximum age.
    fn note_pause(&mut self, passed: Duration) {
        if passed >= MIN_PAUSE {
            self.max_age += passed;
            self.paused += passed;
        }
    }
}

/// Returns the number of body bytes that belong to `entry`.
fn body_len(entry: &TimestampedEvent) -> usize {
    if let ObserverEvent::Body { len, .. } = entry.event {
        usize::try_from(len).unwrap_or(usize::MAX)
    } else {
        0
    }
}
