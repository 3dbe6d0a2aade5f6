use std::sync::mpsc;

use super::*;
use tokengauge_types::clock::{self, WallTime};
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, CallerIdentity, Direction, Ending, Headers, ObserverEvent,
    RESPONSE_HEADERS, ResponseHead, RouteFacts, Scheme, SessionRule, TraceContext, UpstreamFailure,
};
use tokengauge_types::label::Name;

pub(super) fn channel(budget_bytes: usize) -> Arc<ObservationChannel> {
    Arc::new(ObservationChannel::new(ChannelConfig { shards: 1, budget_bytes, max_requests: 8 }))
}

pub(super) fn open(channel: &Arc<ObservationChannel>) -> RequestObserver {
    open_with(channel, Arc::default())
}

pub(super) fn open_with(
    channel: &Arc<ObservationChannel>,
    body_wait: Arc<BodyWaitState>,
) -> RequestObserver {
    channel.open(head(body_wait), clock::now())
}

fn head(body_wait: Arc<BodyWaitState>) -> RequestHead {
    let facts = RouteFacts::for_upstream("test", "localhost", 80);
    RequestHead {
        wall: WallTime::default(),
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
        route: Arc::new(facts),
        trace: TraceContext::default(),
        conversation: None,
        identity: CallerIdentity::default(),
        session_rule: SessionRule::default(),
        connection: None,
        body_wait,
    }
}

/// Returns the events since the last call and their bytes, without the request headers.
pub(super) fn events(channel: &ObservationChannel) -> (Vec<String>, Vec<u8>) {
    let mut batch = Batch::default();
    channel.drain(0, &mut batch);
    let names = batch
        .entries
        .iter()
        .filter(|entry| !matches!(entry.event, ObserverEvent::RequestHead(_)))
        .map(|entry| {
            if let ObserverEvent::Body { direction, len, .. } = entry.event {
                format!("{direction:?} {len}")
            } else {
                format!("{:?}", entry.event)
            }
        })
        .collect();
    (names, batch.bytes)
}

fn copy(observer: &RequestObserver, bytes: &[u8]) {
    observer.record_body(Direction::Response, clock::now(), bytes, BackpressureTime::default());
}

#[test]
fn reports_the_end_once_and_nothing_after_it() {
    let channel = channel(1 << 20);
    let observer = open(&channel);
    let other = observer.clone();
    copy(&observer, b"abc");
    copy(&observer, b"");
    observer.end(clock::now(), Ending::UpstreamFailed(UpstreamFailure::MidBody));
    assert!(other.is_ended());
    copy(&other, b"late");
    other.report(clock::now(), ObserverEvent::Connected(Box::default()));
    other.end(clock::now(), Ending::Complete);
    drop((observer, other));
    let (names, bytes) = events(&channel);
    assert_eq!(names, ["Response 3", "End(UpstreamFailed(MidBody))"]);
    assert_eq!(bytes, b"abc");
    assert_eq!(channel.open_exchanges(), 0);
}

#[test]
fn dropped_observer_reports_abandonment() {
    let channel = channel(1 << 20);
    let observer = open(&channel);
    let clone = observer.clone();
    drop(observer);
    assert_eq!(events(&channel).0, [""; 0], "a clone is left");
    drop(clone);
    assert_eq!(events(&channel).0, ["End(ClientDisconnected)"]);
    let observer = open(&channel);
    channel.mark_shutdown();
    drop(observer);
    assert_eq!(events(&channel).0, ["End(Drained)"]);
}

#[test]
fn reports_the_request_end_once() {
    let channel = channel(1 << 20);
    let observer = open(&channel);
    assert!(!observer.is_uploaded());
    observer.request_end(clock::now());
    observer.request_end(clock::now());
    assert!(observer.is_uploaded());
    assert_eq!(events(&channel).0, ["RequestBodySent"]);
}

#[test]
fn reports_excess_bytes_as_one_gap() {
    let channel = channel(32 * 1024);
    let observer = open(&channel);
    let chunk = vec![b'x'; 4 * 1024];
    for _ in 0..10 {
        copy(&observer, &chunk);
    }
    let (names, bytes) = events(&channel);
    assert_eq!(names, ["Response 4096"; 3], "half of the budget is for the observer");
    assert_eq!(bytes.len(), 3 * 4096);
    assert_eq!(channel.lost().bytes, 7 * 4096);
    copy(&observer, b"again");
    observer.end(clock::now(), Ending::Complete);
    let (names, bytes) = events(&channel);
    let gap = "Gap { direction: Response, bytes: 28672 }";
    assert_eq!(names, [gap, "Response 5", "End(Complete)"]);
    assert_eq!(bytes, b"again");
}

#[test]
fn small_chunks_count_with_their_event() {
    let channel = channel(64 * 1024);
    let observer = open(&channel);
    for _ in 0..100_000 {
        copy(&observer, b"x");
    }
    let mut batch = Batch::default();
    channel.drain(0, &mut batch);
    assert!(batch.entries.len() * size_of::<TimestampedEvent>() <= 32 * 1024);
    assert_eq!(channel.lost().bytes, 100_000 - batch.bytes.len() as u64);
}

#[test]
fn capacity_stays_within_the_budget() {
    for len in [1, 1_000] {
        let channel = channel(64 * 1024);
        let observer = open(&channel);
        for _ in 0..100_000 {
            copy(&observer, &vec![b'x'; len]);
        }
        let mut batch = Batch::default();
        channel.drain(0, &mut batch);
        assert!(channel.lost().bytes > 0, "it is full");
        assert!(batch.bytes.capacity() <= 32 * 1024);
        assert!(batch.entries.capacity() * size_of::<TimestampedEvent>() <= 32 * 1024);
    }
}

#[test]
fn a_full_buffer_drops_the_bytes_of_large_bodies_first_and_no_event() {
    let channel = channel(64 * 1024);
    let large = open(&channel);
    copy(&large, &vec![b'x'; 20 * 1024]);
    copy(&large, &vec![b'x'; 5 * 1024]);
    let small = open(&channel);
    for _ in 0..2 {
        copy(&small, &[b'y'; 4 * 1024]);
    }
    copy(&small, &[b'y'; 4 * 1024]);
    copy(&small, b"z");
    small.end(clock::now(), Ending::Complete);
    drop(large);
    let gap = |bytes| format!("Gap {{ direction: Response, bytes: {bytes} }}");
    let expected = [
        "Response 20480",
        "Response 4096",
        "Response 4096",
        &gap(4097),
        "End(Complete)",
        &gap(5120),
        "End(ClientDisconnected)",
    ];
    assert_eq!(events(&channel).0, expected);
    assert_eq!(channel.lost(), ChannelLosses { bytes: 4097 + 5120, exchanges: 0 });
    copy(&open(&channel), b"welcome again");
    assert!(events(&channel).0.contains(&"Response 13".to_owned()));
}

/// Reports all events that a request can have.
fn report_all(observer: &RequestObserver, header: &str) {
    let (at, connected) = (clock::now(), || ObserverEvent::Connected(Box::default()));
    let sent = || ObserverEvent::RequestHeadSent;
    observer.report(at, ObserverEvent::Queued);
    observer.report(at, ObserverEvent::Admitted);
    for event in [connected(), sent(), connected(), sent()] {
        observer.report(at, event);
    }
    observer.request_end(at);
    let value = || Name::new(header).unwrap();
    let response = ResponseHead {
        status: 101,
        version: http::Version::HTTP_11,
        headers: RESPONSE_HEADERS.iter().map(|name| (*name, value())).collect(),
        length: None,
        from_proxy: false,
    };
    observer.head(at, response);
    observer.upgraded(at);
    for direction in [Direction::Request, Direction::Response] {
        observer.report(at, ObserverEvent::Trailers(direction));
        observer.report(at, ObserverEvent::Closed(direction));
    }
    observer.end(at, Ending::Complete);
}

/// The room follows from `max_requests`: so many requests can be open, while as many others wait after their end.
#[test]
fn all_events_of_max_requests_have_room_without_a_body_budget() {
    const MAX: usize = 9;
    for (shards, header) in [(1, "short"), (3, "short"), (1, &"long".repeat(64))] {
        let config = ChannelConfig { shards, budget_bytes: 0, max_requests: MAX };
        let channel = Arc::new(ObservationChannel::new(config));
        let requests: Vec<_> = (0..MAX).map(|_| open(&channel)).collect();
        requests.iter().for_each(|request| report_all(request, header));
        let others: Vec<_> = (0..MAX).map(|_| open(&channel)).collect();
        if header == "short" {
            assert_eq!(channel.lost(), ChannelLosses::default());
        }
        let (mut batch, mut ends, mut weight) = (Batch::default(), 0, 0);
        for shard in 0..shards {
            channel.drain(shard, &mut batch);
            for entry in &batch.entries {
                ends += usize::from(matches!(entry.event, ObserverEvent::End(_)));
                weight += size_of::<TimestampedEvent>() + shard::head_weight(&entry.event);
            }
        }
        assert_eq!(ends, MAX, "the events of open requests are never lost");
        assert!(weight <= 2 * REQUEST_ROOM * MAX, "{weight}");
        drop(others);
    }
}

#[test]
fn requests_beyond_the_room_for_events_are_counted_by_their_result() {
    let config = ChannelConfig { shards: 1, budget_bytes: 1 << 20, max_requests: 0 };
    let channel = Arc::new(ObservationChannel::new(config));
    for _ in 0..3 {
        let muted = open(&channel);
        copy(&muted, b"unseen");
        muted.report(clock::now(), ObserverEvent::Admitted);
        muted.end(clock::now(), Ending::Complete);
        muted.end(clock::now(), Ending::Drained);
    }
    drop(open(&channel));
    assert_eq!(channel.open_exchanges(), 0);
    assert_eq!(channel.lost(), ChannelLosses { bytes: 18, exchanges: 4 });
    assert_eq!(events(&channel).0, [""; 0]);
    let mut results: Vec<String> = Vec::new();
    for mut result in channel.take_muted() {
        while let Some(events) = result.next_request() {
            let events = events.into_iter().flatten().skip(1);
            results.push(events.map(|(_, event)| format!("{event:?} ")).collect());
        }
    }
    results.sort_unstable();
    let complete = "Admitted Gap { direction: Response, bytes: 6 } End(Complete) ";
    let expected = [complete, complete, complete, "End(ClientDisconnected) "];
    assert_eq!(results, expected);
    assert!(channel.take_muted().is_empty(), "each result is returned once");
}

#[test]
fn an_excluded_request_leaves_no_event_but_is_open_until_its_end() {
    let channel = Arc::new(ObservationChannel::new(ChannelConfig::default()));
    let excluded = channel.open_excluded();
    assert_eq!((channel.open_exchanges(), channel.excluded(), channel.opened()), (1, 1, 0));
    copy(&excluded, b"unseen");
    excluded.report(clock::now(), ObserverEvent::Admitted);
    excluded.request_end(clock::now());
    assert!(excluded.is_uploaded() && !excluded.is_ended());
    excluded.end(clock::now(), Ending::Complete);
    excluded.end(clock::now(), Ending::Complete);
    assert!(excluded.is_ended());
    drop(channel.open_excluded());
    assert_eq!((channel.open_exchanges(), channel.excluded()), (0, 2));
    assert_eq!(channel.lost(), ChannelLosses::default());
    assert!(channel.take_muted().is_empty());
    let mut batch = Batch::default();
    for shard in 0..channel.shards() {
        channel.drain(shard, &mut batch);
        assert!(batch.entries.is_empty() && batch.bytes.is_empty());
    }
}

#[test]
fn results_of_muted_requests_are_bounded() {
    let config = ChannelConfig { shards: 1, budget_bytes: 0, max_requests: 0 };
    let channel = Arc::new(ObservationChannel::new(config));
    let route = Arc::new(RouteFacts::for_upstream("test", "localhost", 80));
    for number in 0..5_000 {
        let path = Name::new(&format!("/{number}")).unwrap();
        let head = RequestHead { path, route: Arc::clone(&route), ..head(Arc::default()) };
        channel.open(head, clock::now()).end(clock::now(), Ending::Complete);
    }
    let mut results = channel.take_muted();
    assert!(results.len() <= 1_025, "{}", results.len());
    let requests = |result: &mut MutedResult| std::iter::from_fn(|| result.next_request()).count();
    assert_eq!(results.iter_mut().map(requests).sum::<usize>(), 5_000);
}

/// Returns the lengths of the bodies in each buffer since the last call.
fn bodies_by_buffer(channel: &ObservationChannel) -> Vec<Vec<u32>> {
    let mut batch = Batch::default();
    let body = |entry: &TimestampedEvent| {
        if let ObserverEvent::Body { len, .. } = entry.event { Some(len) } else { None }
    };
    let mut drained = |shard| {
        channel.drain(shard, &mut batch);
        batch.entries.iter().filter_map(body).collect()
    };
    (0..channel.shards()).map(&mut drained).collect()
}

#[test]
fn requests_use_the_buffer_of_the_thread_that_opened_them() {
    let channel = Arc::new(ObservationChannel::new(ChannelConfig {
        shards: 4,
        budget_bytes: 1 << 20,
        max_requests: 8,
    }));
    let requests = [open(&channel), open(&channel), open(&channel)];
    copy(&requests[0], b"a");
    thread::scope(|scope| {
        scope.spawn(|| copy(&requests[0], b"bc"));
    });
    copy(&requests[1], b"def");
    copy(&requests[2], b"ghij");
    let mut buffers = bodies_by_buffer(&channel);
    buffers.retain(|bodies| !bodies.is_empty());
    assert_eq!(buffers, [[1, 2, 3, 4]]);
}

#[test]
fn a_request_uses_another_buffer_if_that_of_its_thread_is_nearly_full() {
    let config = ChannelConfig { shards: 2, budget_bytes: 96 * 1024, max_requests: 8 };
    let channel = Arc::new(ObservationChannel::new(config));
    let first = open(&channel);
    copy(&first, &vec![b'x'; 20 * 1024]);
    copy(&first, &vec![b'x'; 4 * 1024]);
    let second = open(&channel);
    copy(&second, &vec![b'x'; 21 * 1024]);
    copy(&second, &vec![b'x'; 4 * 1024]);
    copy(&open(&channel), b"third");
    assert_eq!(channel.lost(), ChannelLosses::default());
    let mut buffers = bodies_by_buffer(&channel);
    buffers.sort_unstable();
    assert_eq!(buffers, [vec![20 * 1024, 4 * 1024, 5], vec![21 * 1024, 4 * 1024]]);
}

#[test]
fn a_request_uses_another_buffer_if_that_of_its_thread_has_no_room_for_events() {
    let config = ChannelConfig { shards: 2, budget_bytes: 96 * 1024, max_requests: 2 };
    let channel = Arc::new(ObservationChannel::new(config));
    let mut open: Vec<_> = std::iter::repeat_with(|| open(&channel)).take(2).collect();
    assert_eq!(channel.lost().exchanges, 0);
    while channel.lost().exchanges == 0 {
        open.push(self::open(&channel));
    }
    let mut batch = Batch::default();
    let mut opened = |shard| {
        channel.drain(shard, &mut batch);
        batch.entries.len()
    };
    assert_eq!([opened(0), opened(1)], [(open.len() - 1) / 2; 2]);
}

#[test]
fn releases_capacity_after_a_burst() {
    let channel = channel(64 << 20);
    let observer = open(&channel);
    copy(&observer, &vec![0; 8 << 20]);
    let mut batch = Batch::default();
    channel.drain(0, &mut batch);
    assert!(batch.bytes.capacity() >= 8 << 20);
    for _ in 0..4 {
        copy(&observer, b"quiet");
        channel.drain(0, &mut batch);
    }
    let mut other = Batch::default();
    channel.drain(0, &mut other);
    assert!(batch.bytes.capacity() + other.bytes.capacity() < 2 << 20);
}

/// Starts a thread that parks repeatedly and reports each return. The timeout is longer than the test. The thread stops
/// when the receiver is dropped.
fn observer(channel: &Arc<ObservationChannel>) -> (mpsc::Receiver<()>, thread::JoinHandle<()>) {
    let (returned, returns) = mpsc::channel();
    let channel = Arc::clone(channel);
    let parking = thread::spawn(move || {
        while returned.send(()).is_ok() {
            channel.park(Duration::from_secs(3600));
        }
    });
    (returns, parking)
}

fn response_head() -> ResponseHead {
    ResponseHead {
        status: 200,
        version: http::Version::HTTP_2,
        headers: Headers::default(),
        length: None,
        from_proxy: false,
    }
}

#[test]
fn wakes_after_the_first_request_was_sent_and_for_a_half_full_shard() {
    let patience = Duration::from_secs(30);
    let channel = channel(64 * 1024);
    let (returns, parking) = observer(&channel);
    for _ in 0..2 {
        returns.recv_timeout(patience).expect("the first park only registers");
    }
    assert!(channel.begin_idle());
    let first = open(&channel);
    assert!(returns.try_recv().is_err(), "the request is not sent yet");
    first.request_written(clock::now());
    returns.recv_timeout(patience).expect("the request was sent");
    assert!(!channel.begin_idle(), "a request is open");
    let second = open(&channel);
    second.request_written(clock::now());
    copy(&first, &vec![b'x'; 1024]);
    assert!(returns.try_recv().is_err(), "no chunk wakes it, nor a second exchange");
    copy(&first, &vec![b'x'; 16 * 1024]);
    returns.recv_timeout(patience).expect("its shard is half full");
    drop((first, second));
    assert!(channel.begin_idle());
    drop(open(&channel));
    returns.recv_timeout(patience).expect("a request ended that was never sent");
    assert!(channel.begin_idle());
    let answered = open(&channel);
    answered.head(clock::now(), response_head());
    returns.recv_timeout(patience).expect("an HTTP/2 upstream reports only its response");
    drop(returns);
    channel.wake();
    parking.join().unwrap();
}

#[test]
fn wakes_for_half_a_mebibyte_in_a_large_shard() {
    let patience = Duration::from_secs(30);
    let channel = channel(64 << 20);
    let request = open(&channel);
    let (returns, parking) = observer(&channel);
    for _ in 0..2 {
        returns.recv_timeout(patience).expect("the first park only registers");
    }
    copy(&request, &vec![b'x'; 500 << 10]);
    assert!(returns.try_recv().is_err(), "less than half a mebibyte");
    copy(&request, &vec![b'x'; 12 << 10]);
    returns.recv_timeout(patience).expect("the shard has half a mebibyte");
    drop(returns);
    channel.wake();
    parking.join().unwrap();
}
