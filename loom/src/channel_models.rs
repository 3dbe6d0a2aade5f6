//! The observation channel loses no event, and no event follows the end of its request.

use std::sync::Arc;

use loom::thread;

use crate::Model;
use crate::clock;
use crate::event::{
    BackpressureTime, BodyWaitState, CallerIdentity, Direction, Ending, Headers, ObserverEvent,
    RequestHead, RouteFacts, Scheme, SessionRule, TraceContext,
};
use crate::label::Name;
use crate::tee::{Batch, ChannelConfig, ObservationChannel, RequestObserver, UploadFlush};

pub const MODELS: [Model; 6] = [
    ("channel: nothing follows the end of a request", nothing_follows_the_end),
    ("channel: a request ends once", a_request_ends_once),
    ("channel: the last clone ends the request", the_last_clone_ends_the_request),
    ("channel: bytes are drained or lost", bytes_are_drained_or_lost),
    ("channel: each request is drained or counted", each_request_is_drained_or_counted),
    ("upload flush: the end of an upload is reported once", an_upload_is_reported_once),
];

fn channel(budget_bytes: usize, max_requests: usize) -> Arc<ObservationChannel> {
    Arc::new(ObservationChannel::new(ChannelConfig { shards: 1, budget_bytes, max_requests }))
}

fn open(channel: &Arc<ObservationChannel>) -> RequestObserver {
    let head = RequestHead {
        wall: clock::WallTime::default(),
        method: http::Method::GET,
        path: Name::new("/").unwrap(),
        whole_path: None,
        model: None,
        host: None,
        version: http::Version::HTTP_11,
        scheme: Scheme::Http,
        headers: Headers::default(),
        length: None,
        client: None,
        route: Arc::new(RouteFacts::for_upstream("test", "localhost", 80)),
        trace: TraceContext::default(),
        conversation: None,
        identity: CallerIdentity::default(),
        session_rule: SessionRule::default(),
        connection: None,
        body_wait: Arc::<BodyWaitState>::default(),
    };
    channel.open(head, clock::MonotonicInstant::ZERO)
}

fn arrive(observer: &RequestObserver, bytes: &[u8]) {
    let blocked = BackpressureTime::default();
    observer.record_body(Direction::Response, clock::MonotonicInstant::ZERO, bytes, blocked);
}

fn end(observer: &RequestObserver, ending: Ending) {
    observer.end(clock::MonotonicInstant::ZERO, ending);
}

/// Takes the waiting events, in order.
fn drain(channel: &ObservationChannel) -> Vec<ObserverEvent> {
    let mut batch = Batch::default();
    channel.drain(0, &mut batch);
    batch.entries.into_iter().map(|entry| entry.event).collect()
}

const fn is_end(event: &ObserverEvent) -> bool {
    matches!(event, ObserverEvent::End(_))
}

fn nothing_follows_the_end() {
    let channel = channel(1 << 20, 8);
    let observer = open(&channel);
    let other = observer.clone();
    let reporting = thread::spawn(move || {
        other.report(clock::MonotonicInstant::ZERO, ObserverEvent::Admitted);
        arrive(&other, b"late");
    });
    end(&observer, Ending::Complete);
    reporting.join().unwrap();
    drop(observer);
    let events = drain(&channel);
    assert_eq!(events.iter().position(is_end), Some(events.len() - 1), "{events:?}");
    assert_eq!(channel.open_exchanges(), 0);
}

fn a_request_ends_once() {
    for max_requests in [8, 0] {
        let channel = channel(1 << 20, max_requests);
        let observer = open(&channel);
        let other = observer.clone();
        let ending = thread::spawn(move || end(&other, Ending::ClientDisconnected));
        end(&observer, Ending::Complete);
        ending.join().unwrap();
        drop(observer);
        let drained = drain(&channel).iter().filter(|event| is_end(event)).count();
        assert_eq!(drained + counted(&channel), 1);
        assert_eq!(channel.open_exchanges(), 0);
    }
}

/// Returns the number of requests that were counted without their events.
fn counted(channel: &ObservationChannel) -> usize {
    let results = channel.take_muted().into_iter();
    results.map(|mut result| std::iter::from_fn(|| result.next_request()).count()).sum()
}

fn the_last_clone_ends_the_request() {
    let channel = channel(1 << 20, 8);
    let observer = open(&channel);
    let other = observer.clone();
    let dropping = thread::spawn(move || {
        arrive(&other, b"data");
        drop(other);
    });
    drop(observer);
    dropping.join().unwrap();
    let events = drain(&channel);
    assert_eq!(events.iter().filter(|event| is_end(event)).count(), 1);
    assert_eq!(events.len(), 3, "{events:?}");
}

fn bytes_are_drained_or_lost() {
    // Room for one chunk at a time.
    let channel = channel(2 * (2 << 10), 8);
    let observer = open(&channel);
    let other = observer.clone();
    let copying = thread::spawn(move || arrive(&other, &[b'x'; 1_500]));
    let first = drain(&channel);
    arrive(&observer, &[b'y'; 1_500]);
    copying.join().unwrap();
    end(&observer, Ending::Complete);
    let events = first.into_iter().chain(drain(&channel));
    let bytes = events.map(|event| match event {
        ObserverEvent::Body { len, .. } => u64::from(len),
        ObserverEvent::Gap { bytes, .. } => bytes,
        _ => 0,
    });
    assert_eq!(bytes.sum::<u64>(), 3_000, "each byte is in a body or in a gap");
}

fn each_request_is_drained_or_counted() {
    // Room for two requests.
    let channel = channel(0, 1);
    let opening = thread::spawn({
        let channel = Arc::clone(&channel);
        move || (0..2).for_each(|_| drop(open(&channel)))
    });
    let first = drain(&channel);
    drop(open(&channel));
    opening.join().unwrap();
    let drained = first.into_iter().chain(drain(&channel)).filter(is_end).count();
    assert_eq!(drained + counted(&channel), 3);
    assert_eq!(channel.open_exchanges(), 0);
}

fn an_upload_is_reported_once() {
    let channel = channel(1 << 20, 8);
    let observer = open(&channel);
    let flush = Arc::new(UploadFlush::default());
    let flushing = thread::spawn({
        let flush = Arc::clone(&flush);
        move || flush.on_flushed()
    });
    flush.expect(observer.clone());
    flush.on_flushed();
    flushing.join().unwrap();
    let is_sent = |event: &ObserverEvent| matches!(event, ObserverEvent::RequestBodySent);
    assert_eq!(drain(&channel).iter().filter(|event| is_sent(event)).count(), 1);
    drop(observer);
}
