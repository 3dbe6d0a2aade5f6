//! The data path's end of one exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::ObservationChannel;
use super::shard::Shard;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{
    BackpressureTime, ConnectTimings, Direction, Ending, ExchangeId, LiveState, ObserverEvent,
    RequestHead, ResponseHead, WaitingFor,
};

/// Says the words of one exchange. Clones are cheap and say into the same exchange.
///
/// After the first [`end`](Self::end) nothing more is said. When the last clone is dropped without one, the exchange
/// was abandoned: by the client, or by this proxy's shutdown once [`ObservationChannel::cut`] was called.
#[derive(Clone, Debug)]
pub struct RequestObserver(Arc<SharedState>);

#[derive(Debug)]
struct SharedState {
    channel: Arc<ObservationChannel>,
    id: ExchangeId,
    /// The whole exchange goes unobserved.
    mute: bool,
    /// UploadFlush under the shard's lock, so that no word can follow the end.
    ended: AtomicBool,
    uploaded: AtomicBool,
    /// Bytes that went by unobserved and are not said yet; touched under the shard's lock.
    request_gap: AtomicU64,
    response_gap: AtomicU64,
    /// Some of its bytes went by unobserved; touched under the shard's lock.
    lossy: AtomicBool,
    cell: Arc<LiveState>,
}

impl RequestObserver {
    pub(super) fn open(
        channel: Arc<ObservationChannel>,
        id: ExchangeId,
        open: RequestHead,
        at: MonotonicInstant,
    ) -> Self {
        let cell = Arc::clone(&open.cell);
        let mute = channel.with_shard(id, |shard| {
            let admitted = shard.admits_exchange();
            if admitted {
                shard.say(id, at, ObserverEvent::RequestHead(Box::new(open)));
            }
            !admitted
        });
        if mute {
            channel.lost_exchanges.fetch_add(1, Ordering::Relaxed);
        }
        Self(Arc::new(SharedState {
            channel,
            id,
            mute,
            ended: AtomicBool::new(false),
            uploaded: AtomicBool::new(false),
            request_gap: AtomicU64::new(0),
            response_gap: AtomicU64::new(0),
            lossy: AtomicBool::new(false),
            cell,
        }))
    }

    pub fn id(&self) -> ExchangeId {
        self.0.id
    }

    pub fn queued(&self, at: MonotonicInstant) {
        self.0.say(at, ObserverEvent::Queued);
    }

    pub fn admitted(&self, at: MonotonicInstant) {
        self.0.say(at, ObserverEvent::Admitted);
    }

    pub fn connected(&self, at: MonotonicInstant, connected: ConnectTimings) {
        self.0.say(at, ObserverEvent::Connected(Box::new(connected)));
    }

    pub fn sent(&self, at: MonotonicInstant) {
        self.0.say(at, ObserverEvent::RequestHeadSent);
    }

    /// Says once that the request's body was sent to its end.
    pub fn request_end(&self, at: MonotonicInstant) {
        if !self.0.uploaded.swap(true, Ordering::AcqRel) {
            self.0.say(at, ObserverEvent::RequestBodySent);
        }
    }

    /// Whether the request's body was sent to its end.
    pub fn uploaded(&self) -> bool {
        self.0.uploaded.load(Ordering::Acquire)
    }

    pub fn head(&self, at: MonotonicInstant, head: ResponseHead) {
        self.0.say(at, ObserverEvent::ResponseHead(Box::new(head)));
    }

    /// Copies body bytes; what does not fit the budget becomes a gap.
    pub fn arrival(
        &self,
        direction: Direction,
        at: MonotonicInstant,
        bytes: &[u8],
        blocked: BackpressureTime,
    ) {
        if !bytes.is_empty() {
            self.0.arrival(direction, at, bytes, blocked);
        }
    }

    pub fn trailers(&self, direction: Direction, at: MonotonicInstant) {
        self.0.say(at, ObserverEvent::Trailers(direction));
    }

    pub fn upgraded(&self, at: MonotonicInstant) {
        self.0.say(at, ObserverEvent::Upgraded);
    }

    /// The sender of `direction` ended its side of an upgraded connection.
    pub fn closed(&self, direction: Direction, at: MonotonicInstant) {
        self.0.say(at, ObserverEvent::Closed(direction));
    }

    pub fn end(&self, at: MonotonicInstant, ending: Ending) {
        self.0.end(at, ending);
    }

    pub fn is_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// How an exchange ended whose response nobody takes any more.
    pub fn abandoned(&self) -> Ending {
        self.0.abandoned()
    }

    pub fn wait_for(&self, whom: WaitingFor, since: MonotonicInstant) {
        self.0.cell.wait_for(whom, since);
    }
}

impl SharedState {
    fn say(&self, at: MonotonicInstant, word: ObserverEvent) {
        self.with_shard(|shard| {
            self.say_gaps(shard, at);
            shard.say(self.id, at, word);
        });
    }

    fn arrival(
        &self,
        direction: Direction,
        at: MonotonicInstant,
        bytes: &[u8],
        blocked: BackpressureTime,
    ) {
        self.with_shard(|shard| {
            let gap = self.gap(direction);
            if gap.load(Ordering::Relaxed) > 0 && shard.admits_exchange() {
                self.say_gaps(shard, at);
            }
            let gapless = gap.load(Ordering::Relaxed) == 0;
            if !(gapless && shard.copy((self.id, at), direction, bytes, blocked)) {
                let len = bytes.len() as u64;
                gap.fetch_add(len, Ordering::Relaxed);
                self.channel.lost_bytes.fetch_add(len, Ordering::Relaxed);
                if !self.lossy.swap(true, Ordering::Relaxed) {
                    self.channel.lost_exchanges.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }

    fn end(&self, at: MonotonicInstant, ending: Ending) {
        if !self.mute {
            self.with_shard(|shard| {
                self.say_gaps(shard, at);
                shard.say(self.id, at, ObserverEvent::End(ending));
                self.ended.store(true, Ordering::Release);
                self.channel.open.fetch_sub(1, Ordering::AcqRel);
            });
        } else if !self.ended.swap(true, Ordering::AcqRel) {
            self.channel.open.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn abandoned(&self) -> Ending {
        if self.channel.is_cut() { Ending::Drained } else { Ending::ClientDisconnected }
    }

    /// One word for all bytes lost in a row, so that gaps cannot fill the buffer that had no room for bytes.
    fn say_gaps(&self, shard: &mut Shard, at: MonotonicInstant) {
        for direction in [Direction::Request, Direction::Response] {
            let bytes = self.gap(direction).swap(0, Ordering::Relaxed);
            if bytes > 0 {
                shard.say(self.id, at, ObserverEvent::Gap { direction, bytes });
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
        if self.mute {
            return;
        }
        self.channel.with_shard(self.id, |shard| {
            if !self.ended.load(Ordering::Relaxed) {
                act(shard);
            }
        });
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        if !*self.ended.get_mut() {
            self.end(clock::now(), self.abandoned());
        }
    }
}
