//! Handle through which the forwarding code reports the events of one request to the observer.

use std::sync::Arc;

use super::muted::MutedRequest;
use super::shard::Shard;
use super::{ObservationChannel, thread_number};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, Direction, Ending, ExchangeId, ObserverEvent, RequestHead,
    ResponseHead, WaitingFor,
};
use tokengauge_types::sync::{AtomicBool, AtomicU64, Ordering};

/// The id of all requests that are excluded from observation. Observed requests start at 1.
const EXCLUDED: ExchangeId = ExchangeId(0);

/// Reports the events of one request to the observer. Clones are cheap and report for the same request.
///
/// Events after the first [`end`](Self::end) are ignored. If the last clone is dropped without a call of `end`, the
/// request counts as aborted by the client. After [`ObservationChannel::mark_shutdown`], it counts as aborted by this
/// process.
#[derive(Clone, Debug)]
pub struct RequestObserver(Arc<SharedState>);

#[derive(Debug)]
struct SharedState {
    channel: Arc<ObservationChannel>,
    id: ExchangeId,
    /// Number of the channel's buffer for this request.
    shard: usize,
    coverage: Coverage,
    /// Whether the end was reported. Written under the lock of the buffer, so that no event can follow the end.
    ended: AtomicBool,
    uploaded: AtomicBool,
    has_head: AtomicBool,
    upgraded: AtomicBool,
    /// Number of lost request bytes that are not yet reported as a gap. Accessed under the lock of the buffer.
    request_gap: AtomicU64,
    response_gap: AtomicU64,
    body_wait: Arc<BodyWaitState>,
}

/// How much of a request is observed.
#[derive(Debug)]
enum Coverage {
    Full,
    /// Only the result is counted, because no buffer has room for the events of the request.
    Result(Box<MutedRequest>),
    /// Nothing, because the route excludes its requests from observation.
    Nothing,
}

impl RequestObserver {
    /// Creates the observer of a request that is excluded from observation. It only counts as open until its end.
    pub(super) fn excluded(channel: Arc<ObservationChannel>) -> Self {
        Self::new(channel, EXCLUDED, 0, Coverage::Nothing, Arc::default())
    }

    pub(super) fn open(
        channel: Arc<ObservationChannel>,
        id: ExchangeId,
        open: RequestHead,
        at: MonotonicInstant,
    ) -> Self {
        let body_wait = Arc::clone(&open.body_wait);
        let mut head = Some(Box::new(open));
        let own = thread_number();
        let mut try_open = |number: &usize, needs_body_room: bool| {
            channel.with_shard(*number, |shard| {
                let is_admitted = (!needs_body_room || shard.has_body_room())
                    && head.as_ref().is_some_and(|head| shard.admits(head));
                if let Some(head) = head.take_if(|_| is_admitted) {
                    shard.open(id, at, head);
                }
                is_admitted
            })
        };
        // If the buffer of this thread is nearly full, any other buffer is used.
        let mut shards = own..own + channel.shards();
        let with_body_room = shards.clone().find(|number| try_open(number, true));
        let shard = with_body_room.or_else(|| shards.find(|number| try_open(number, false)));
        let coverage = match head {
            None => Coverage::Full,
            Some(head) => {
                channel.counters.lost_exchanges.fetch_add(1, Ordering::Relaxed);
                Coverage::Result(Box::new(MutedRequest::new(head, at)))
            }
        };
        Self::new(channel, id, shard.unwrap_or(own), coverage, body_wait)
    }

    fn new(
        channel: Arc<ObservationChannel>,
        id: ExchangeId,
        shard: usize,
        coverage: Coverage,
        body_wait: Arc<BodyWaitState>,
    ) -> Self {
        Self(Arc::new(SharedState {
            channel,
            id,
            shard,
            coverage,
            ended: AtomicBool::new(false),
            uploaded: AtomicBool::new(false),
            has_head: AtomicBool::new(false),
            upgraded: AtomicBool::new(false),
            request_gap: AtomicU64::new(0),
            response_gap: AtomicU64::new(0),
            body_wait,
        }))
    }

    pub fn id(&self) -> ExchangeId {
        self.0.id
    }

    /// Reports an event for which this type has no own method.
    pub fn report(&self, at: MonotonicInstant, event: ObserverEvent) {
        self.0.push(at, event);
    }

    /// Reports that the whole request body was sent. Repeated calls have no effect.
    pub fn request_end(&self, at: MonotonicInstant) {
        if !self.0.uploaded.swap(true, Ordering::AcqRel) {
            self.0.push(at, ObserverEvent::RequestBodySent);
        }
    }

    /// Reports the same after the body was written to the socket, and wakes an idle observer.
    pub(super) fn request_written(&self, at: MonotonicInstant) {
        self.request_end(at);
        self.0.channel.note_progress();
    }

    /// Returns whether the request body was sent completely.
    pub fn is_uploaded(&self) -> bool {
        self.0.uploaded.load(Ordering::Acquire)
    }

    /// Reports the response headers.
    pub fn head(&self, at: MonotonicInstant, head: ResponseHead) {
        self.0.has_head.store(true, Ordering::Release);
        self.0.push(at, ObserverEvent::ResponseHead(Box::new(head)));
        self.0.channel.note_progress();
    }

    /// Returns whether the response headers were reported.
    pub fn has_head(&self) -> bool {
        self.0.has_head.load(Ordering::Acquire)
    }

    /// Copies body bytes into the observation channel. Bytes beyond the memory budget are not copied, and are reported
    /// as a gap.
    pub fn record_body(
        &self,
        direction: Direction,
        at: MonotonicInstant,
        bytes: &[u8],
        blocked: BackpressureTime,
    ) {
        if bytes.is_empty() {
            return;
        }
        let state = &*self.0;
        match &state.coverage {
            Coverage::Full => {}
            Coverage::Result(muted) => {
                muted.count_bytes(direction, bytes.len() as u64);
                state.channel.count_lost_bytes(bytes.len() as u64);
                return;
            }
            Coverage::Nothing => return,
        }
        state.with_shard(|shard| {
            let gap = state.gap(direction);
            if gap.load(Ordering::Relaxed) > 0 && shard.can_end_gap(bytes.len()) {
                state.push_gaps(shard, at);
            }
            let is_in_gap = gap.load(Ordering::Relaxed) > 0;
            if is_in_gap || !shard.copy((state.id, at), direction, bytes, blocked) {
                let len = bytes.len() as u64;
                gap.fetch_add(len, Ordering::Relaxed);
                state.channel.count_lost_bytes(len);
            }
        });
    }

    /// Records body bytes that were lost before they reached this process. They are reported as a gap.
    pub fn record_loss(&self, direction: Direction, bytes: u64) {
        let state = &*self.0;
        match &state.coverage {
            Coverage::Full => {
                state.with_shard(|_| {
                    state.gap(direction).fetch_add(bytes, Ordering::Relaxed);
                });
            }
            Coverage::Result(muted) => muted.count_bytes(direction, bytes),
            Coverage::Nothing => return,
        }
        state.channel.count_lost_bytes(bytes);
    }

    /// Reports that the connection was upgraded to another protocol, such as a WebSocket. Its bytes are not part of the
    /// response body.
    pub fn upgraded(&self, at: MonotonicInstant) {
        self.0.upgraded.store(true, Ordering::Release);
        self.0.push(at, ObserverEvent::Upgraded);
    }

    pub fn is_upgraded(&self) -> bool {
        self.0.upgraded.load(Ordering::Acquire)
    }

    pub fn end(&self, at: MonotonicInstant, ending: Ending) {
        self.0.end(at, ending);
    }

    pub fn is_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Returns the ending for a response body that was dropped: aborted by the client, or by the shutdown.
    pub fn abandoned(&self) -> Ending {
        self.0.abandoned()
    }

    /// Records which peer the response body waits for, and since when. Costs one atomic store and sends no event.
    pub fn set_waiting_for(&self, peer: WaitingFor, since: MonotonicInstant) {
        self.0.body_wait.set_waiting_for(peer, since);
    }
}

impl SharedState {
    fn push(&self, at: MonotonicInstant, event: ObserverEvent) {
        match &self.coverage {
            Coverage::Full => self.with_shard(|shard| {
                self.push_gaps(shard, at);
                shard.push(self.id, at, event);
            }),
            Coverage::Result(muted) => muted.note(&event),
            Coverage::Nothing => {}
        }
    }

    fn end(&self, at: MonotonicInstant, ending: Ending) {
        let open = &self.channel.counters.open;
        if matches!(self.coverage, Coverage::Full) {
            self.with_shard(|shard| {
                self.push_gaps(shard, at);
                shard.end(self.id, at, ending);
                self.ended.store(true, Ordering::Release);
                open.fetch_sub(1, Ordering::AcqRel);
            });
        } else if !self.ended.swap(true, Ordering::AcqRel) {
            if let Coverage::Result(muted) = &self.coverage {
                self.channel.count_muted(muted, at, ending);
            }
            open.fetch_sub(1, Ordering::AcqRel);
        }
        self.channel.note_progress();
    }

    fn abandoned(&self) -> Ending {
        if self.channel.is_shutting_down() { Ending::Drained } else { Ending::ClientDisconnected }
    }

    /// Reports consecutive lost bytes as one event. One event per loss could fill a buffer that has no room for bytes.
    fn push_gaps(&self, shard: &mut Shard, at: MonotonicInstant) {
        for direction in [Direction::Request, Direction::Response] {
            let bytes = self.gap(direction).swap(0, Ordering::Relaxed);
            if bytes > 0 {
                shard.push_gap((self.id, at), direction, bytes);
            }
        }
    }

    fn gap(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Request => &self.request_gap,
            Direction::Response => &self.response_gap,
        }
    }

    fn with_shard(&self, act: impl FnOnce(&mut Shard)) {
        self.channel.with_shard(self.shard, |shard| {
            if !self.ended.load(Ordering::Relaxed) {
                act(shard);
            }
        });
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Acquire) {
            self.end(clock::now(), self.abandoned());
        }
    }
}
