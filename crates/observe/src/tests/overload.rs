//! An overloaded, stuck or panicking observer: readers, the shutdown and other requests do not wait for it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::Observer;
use crate::backlog::{Backlog, DrainContext};
use crate::tee::{self, ObservationChannel, RequestObserver};
use tokengauge_telemetry::{MetricsReader, prometheus};
use tokengauge_types::clock;
use tokengauge_types::tcp::{TcpConnection, TcpInfo};

/// Requests of a new process, and the records that they leave.
fn requests() -> (InFlightRequests, mpsc::Receiver<Record>) {
    requests_with(ObserverSettings::default())
}

fn requests_with(settings: ObserverSettings) -> (InFlightRequests, mpsc::Receiver<Record>) {
    let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
    let limits = CardinalityLimits::default();
    let readings = SnapshotSource::new(StateSnapshot::default);
    let (instruments, _) = Instruments::new(&config, limits, readings);
    let (sender, records) = mpsc::channel();
    let record = Box::new(move |record: &Record| sender.send(record.clone()).unwrap_or_default());
    let limiter = Arc::new(CardinalityLimiter::new(limits, []));
    let requests = InFlightRequests::new(settings, limiter, Sinks { instruments, record });
    (requests, records)
}

/// An observer thread with its channel.
struct Running {
    channel: Arc<ObservationChannel>,
    observer: Arc<Observer>,
    records: mpsc::Receiver<Record>,
}

impl Running {
    fn start() -> Self {
        Self::with(tee::ChannelConfig::default())
    }

    fn with(config: tee::ChannelConfig) -> Self {
        let channel = Arc::new(ObservationChannel::new(config));
        let (requests, records) = requests();
        let observer = Arc::new(Observer::start(Arc::clone(&channel), requests).unwrap());
        Self { channel, observer, records }
    }

    fn open(&self) -> RequestObserver {
        self.channel.open(open("/v1/chat/completions"), clock::now())
    }

    /// Lets another thread use the in-flight requests until the returned sender is dropped.
    fn occupy(&self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let observer = Arc::clone(&self.observer);
        std::thread::spawn(move || {
            observer.with_current_state(|_, _| {
                begun.send(()).unwrap();
                released.recv().unwrap_err();
            });
        });
        has_begun.recv().unwrap();
        release
    }

    fn health(&self) -> tokengauge_telemetry::ObserverHealth {
        let mut health = None;
        self.observer.with_snapshot(|snapshot| health = Some(snapshot.observer));
        health.unwrap()
    }
}

fn arrive(observer: &RequestObserver, at: MonotonicInstant, bytes: &[u8]) {
    observer.record_body(Direction::Response, at, bytes, BackpressureTime::default());
}

fn respond(observer: &RequestObserver, content_encoding: Option<&'static str>) {
    let ObserverEvent::ResponseHead(mut head) = head(200, "text/event-stream") else {
        unreachable!("the function returns response headers");
    };
    if let Some(coding) = content_encoding {
        head.headers.set("content-encoding", coding);
    }
    observer.head(clock::now(), *head);
}

/// Returns the sum of the series with this name.
fn sum(page: &str, name: &str) -> f64 {
    let series = page.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// Returns whether these pages show enough requests that end between two scrapes.
fn has_enough(pages: &[String]) -> bool {
    let ended = |page: &String| sum(page, "tokengauge_requests_finished_total");
    pages.len() >= 40 && pages.last().map(ended) > Some(10.0)
}

/// An observer thread with its channel, and a reader of its metrics.
fn start_with_metrics() -> (Arc<ObservationChannel>, Arc<Observer>, MetricsReader) {
    let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
    let limits = CardinalityLimits::default();
    let slot = Arc::<OnceLock<Arc<Observer>>>::default();
    let source = Arc::clone(&slot);
    let readings = SnapshotSource::holding(move |collect| match source.get() {
        Some(observer) => observer.with_snapshot(collect),
        None => collect(StateSnapshot::default()),
    });
    let (instruments, reader) = Instruments::new(&config, limits, readings);
    let limiter = Arc::new(CardinalityLimiter::new(limits, []));
    let sinks = Sinks { instruments, record: Box::new(|_| {}) };
    let channel = Arc::new(ObservationChannel::new(tee::ChannelConfig::default()));
    let requests = InFlightRequests::new(ObserverSettings::default(), limiter, sinks);
    let observer = Arc::new(Observer::start(Arc::clone(&channel), requests).unwrap());
    slot.set(Arc::clone(&observer)).unwrap();
    (channel, observer, reader)
}

/// Asserts that counters and gauges of the page belong to the same instant. Returns the number of started requests.
fn assert_consistent(page: &str) -> String {
    let ended = sum(page, "tokengauge_requests_finished_total");
    let active = sum(page, "tokengauge_active_requests");
    let started = sum(page, "tokengauge_requests_started_total");
    assert!((started - ended - active).abs() < 0.5, "{started} = {ended} + {active}");
    started.to_string()
}

#[test]
fn started_requests_are_finished_or_in_flight_in_every_scrape() {
    let (channel, _observer, reader) = start_with_metrics();
    let is_over = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut open_requests = VecDeque::new();
            while !is_over.load(Ordering::Relaxed) {
                open_requests.push_back(channel.open(open("/v1/chat/completions"), clock::now()));
                if open_requests.len() > 5 {
                    open_requests.pop_front().unwrap().end(clock::now(), Ending::Complete);
                }
                // The observer of a development build finishes fewer requests per second than an unlimited loop opens.
                std::thread::park_timeout(Duration::from_micros(200));
            }
        });
        let (begun, mut pages) = (clock::now(), Vec::new());
        while !has_enough(&pages) && clock::now().since(begun) < Duration::from_secs(60) {
            pages.push(prometheus::Format::Text.render(&reader.scrape()));
        }
        is_over.store(true, Ordering::Relaxed);
        pages
    });
    for page in &counted {
        assert_consistent(page);
    }
    assert!(has_enough(&counted), "{} scrapes", counted.len());
}

/// A scrape cannot read the state of a late observer, which goes on counting.
#[test]
fn started_requests_are_finished_or_in_flight_in_scrapes_of_a_late_observer() {
    let (channel, observer, reader) = start_with_metrics();
    let _first = channel.open(open("/v1/chat/completions"), clock::now());
    let scrape = || {
        let scrape = reader.scrape();
        let page = prometheus::Format::Text.render(&scrape);
        let age = sum(&page, "tokengauge_self_observer_snapshot_age_seconds");
        assert!((age - scrape.age.as_secs_f64()).abs() < 1e-9, "{age}");
        (assert_consistent(&page), scrape.age > Duration::ZERO)
    };
    assert_eq!(scrape(), ("1".to_owned(), false));
    observer.with_current_state(|requests, at| {
        for id in 101..104 {
            let event = ObserverEvent::RequestHead(Box::new(open("/v1/chat/completions")));
            requests.apply(TimestampedEvent { exchange: ExchangeId(id), at, event }, &[]);
            assert_eq!(scrape(), ("1".to_owned(), true));
        }
    });
    assert_eq!(scrape(), ("4".to_owned(), false));
}

#[test]
fn readers_get_the_last_snapshot_of_a_stuck_observer() {
    let running = Running::start();
    let before = running.health();
    assert_eq!((before.age, before.restarts), (Duration::ZERO, 0));
    let release = running.occupy();
    let started = clock::now();
    for _ in 0..20 {
        assert!(running.observer.read_in_time(|_, _| ()).is_none());
        assert!(running.health().age > Duration::ZERO);
    }
    // 40 full waits would take 8 s.
    assert!(clock::now().since(started) < Duration::from_secs(4), "the waits do not add up");
    drop(release);
    running.observer.with_current_state(|_, _| ());
    assert_eq!(running.health().age, Duration::ZERO);
    assert!(running.observer.read_in_time(|_, _| ()).is_some());
}

#[test]
fn shutdown_does_not_wait_for_a_stuck_observer() {
    let running = Running::start();
    let _release = running.occupy();
    let started = clock::now();
    assert!(!running.observer.stop(Duration::from_millis(100)));
    assert!(clock::now().since(started) < Duration::from_secs(5));
}

#[test]
fn shutdown_applies_all_events_and_may_skip_bodies() {
    let running = Running::start();
    let release = running.occupy();
    let exchanges: Vec<_> = (0..10).map(|_| running.open()).collect();
    for exchange in &exchanges {
        respond(exchange, None);
        arrive(exchange, clock::now(), b"data: {}\n\n");
        exchange.end(clock::now(), Ending::Complete);
    }
    drop(release);
    assert!(running.observer.stop(Duration::from_secs(30)));
    assert_eq!(running.records.try_iter().count(), 10);
    assert!(running.observer.read_in_time(|requests, _| requests.in_flight()).is_some());
}

/// The machine is so busy that the observer gets no time before the limit.
#[test]
fn requests_that_a_shutdown_leaves_without_a_record_are_counted() {
    let running = Running::start();
    let call = || {
        let exchange = running.open();
        respond(&exchange, None);
        exchange.end(clock::now(), Ending::Complete);
    };
    (0..3).for_each(|_| call());
    running.observer.with_current_state(|_, _| ());
    let release = running.occupy();
    (0..60).for_each(|_| call());
    assert!(!running.observer.stop(Duration::from_millis(100)));
    assert_eq!(running.observer.unrecorded_requests(), 60);
    assert_eq!((running.records.try_iter().count(), running.health().unobserved), (3, 60));
    drop(release);
    assert!(running.observer.stop(Duration::from_secs(30)));
    assert_eq!(running.observer.unrecorded_requests(), 0);
    assert_eq!(running.records.try_iter().count(), 60);
}

#[test]
fn a_shutdown_counts_requests_that_the_channel_did_not_admit_once() {
    let running = Running::with(tee::ChannelConfig { max_requests: 0, ..Default::default() });
    running.open().end(clock::now(), Ending::Complete);
    assert!(running.observer.stop(Duration::from_secs(30)));
    assert_eq!((running.observer.unrecorded_requests(), running.health().unobserved), (0, 1));
}

/// Large chunks that have waited for the observer for longer than two seconds are given up, small ones after four
/// seconds. Bodies that waited because the process did nothing are parsed.
#[test]
fn backlog_is_judged_by_its_age() {
    let (mut requests, records) = requests();
    let channel = Arc::new(ObservationChannel::new(tee::ChannelConfig::default()));
    let mut backlog = Backlog::default();
    let mut drain = |requests: &mut InFlightRequests, millis| {
        let clock = move || at(millis);
        let channel = &channel;
        let context = DrainContext { channel, clock: &clock, beat: &|_| {}, interrupt: &|_| false };
        assert!(backlog.drain(requests, context));
    };
    let small = format!("data: {}\n\n", chunk(r#"{"content":"Hello"}"#, "null"));
    let body = format!("{small}:{}\n\n", " ".repeat(4 << 10));
    let call_with = |millis, body: &str| {
        let exchange = channel.open(open("/v1/chat/completions"), at(millis));
        respond(&exchange, None);
        arrive(&exchange, at(millis), body.as_bytes());
        exchange.end(at(millis), Ending::Complete);
    };
    let call = |millis| call_with(millis, &body);
    let complete = |record: &Record| record.call.as_ref().unwrap().complete;
    drain(&mut requests, 1_000);
    call(1_001);
    drain(&mut requests, 60_000);
    assert_ne!(complete(&records.try_recv().unwrap()), Completeness::Unobserved);
    assert_eq!(requests.snapshot(at(60_000)).observer.lost_bytes, 0);

    call(57_900);
    drain(&mut requests, 60_001);
    let late = records.try_recv().unwrap();
    assert_eq!(complete(&late), Completeness::Unobserved);
    assert_eq!(late.http.response_bytes, body.len() as u64, "the size is known nevertheless");
    let health = requests.snapshot(at(60_001)).observer;
    assert_eq!((health.lost_bytes, health.unobserved), (body.len() as u64, 1));

    call_with(57_900, &small);
    call_with(55_900, &small);
    drain(&mut requests, 60_002);
    let seen = records.try_iter().map(|record| complete(&record) != Completeness::Unobserved);
    assert_eq!(seen.collect::<Vec<_>>(), [true, false]);
}

/// A pause is the time in which the thread loads a tokenizer or does not run.
#[test]
fn a_pause_of_the_observer_does_not_make_bodies_too_old() {
    let (mut requests, records) = requests();
    let config = tee::ChannelConfig { shards: 1, ..tee::ChannelConfig::default() };
    let channel = Arc::new(ObservationChannel::new(config));
    let mut backlog = Backlog::default();
    let now = Cell::new(1_000);
    let mut drain = |requests: &mut InFlightRequests, looks: &[u64]| {
        let looks = Cell::new(looks);
        let clock = || {
            if let [next, later @ ..] = looks.get() {
                now.set(*next);
                looks.set(later);
            }
            at(now.get())
        };
        let channel = &channel;
        let context = DrainContext { channel, clock: &clock, beat: &|_| {}, interrupt: &|_| false };
        assert!(backlog.drain(requests, context));
    };
    let text = chunk(r#"{"content":"Hello"}"#, "null");
    let body = format!("data: {text}\n\n:{}\n\n", " ".repeat(4 << 10));
    let call = |millis| {
        let exchange = channel.open(open("/v1/chat/completions"), at(millis));
        respond(&exchange, None);
        arrive(&exchange, at(millis), body.as_bytes());
        exchange.end(at(millis), Ending::Complete);
    };
    let completes =
        || records.try_iter().map(|it| it.call.unwrap().complete != Completeness::Unobserved);
    drain(&mut requests, &[1_000]);
    (0..20).for_each(|_| call(1_000));
    // The first look after the start of the batch is 5 s later.
    drain(&mut requests, &[1_001, 1_001, 1_001, 6_001]);
    assert_eq!(completes().filter(|complete| *complete).count(), 20);
    call(1_002);
    drain(&mut requests, &[6_002]);
    assert_eq!(completes().collect::<Vec<_>>(), [true], "it arrived during the pause");
    call(6_002);
    drain(&mut requests, &[9_000, 9_000]);
    drain(&mut requests, &[9_001]);
    completes().for_each(drop);
    call(6_003);
    drain(&mut requests, &[9_002]);
    assert_eq!(completes().collect::<Vec<_>>(), [false], "the next drain had no pause");
}

#[test]
fn a_drain_is_interrupted_between_two_events_and_continues() {
    let (mut requests, records) = requests();
    let config = tee::ChannelConfig { shards: 3, ..tee::ChannelConfig::default() };
    let channel = Arc::new(ObservationChannel::new(config));
    for _ in 0..300 {
        let exchange = channel.open(open("/v1/chat/completions"), clock::now());
        exchange.end(clock::now(), Ending::Complete);
    }
    let mut backlog = Backlog::default();
    let (channel, clock) = (&channel, &clock::now);
    let context = DrainContext { channel, clock, beat: &|_| {}, interrupt: &|_| true };
    let mut drains = 1;
    while !backlog.drain(&mut requests, context) {
        assert!(backlog.age(clock::now()) > Duration::ZERO);
        drains += 1;
    }
    assert!(drains > 10, "{drains}");
    assert_eq!((records.try_iter().count(), requests.in_flight()), (300, 0));
}

#[test]
fn a_panic_of_the_thread_is_counted_and_the_thread_continues() {
    let running = Running::start();
    running.observer.fail_once(|| panic!("a fault in the loop"));
    let exchange = running.open();
    respond(&exchange, None);
    arrive(&exchange, clock::now(), b"data: {}\n\n");
    let started = clock::now();
    while running.health().restarts == 0 {
        assert!(
            clock::now().since(started) < Duration::from_secs(30),
            "the thread has not restarted"
        );
    }
    exchange.end(clock::now(), Ending::Complete);
    let record = running.records.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(record.http.response_bytes, 10);
    assert_eq!(running.health().restarts, 1);
    assert!(running.observer.stop(Duration::from_secs(30)));
}

fn connection() -> Option<Arc<TcpConnection>> {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    Some(Arc::new(TcpConnection::new(address, address)))
}

#[test]
fn a_sweep_queries_a_connection_until_the_kernel_answers() {
    let (mut requests, _records) = requests();
    let queries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&queries);
    requests.set_tcp_info_query(Box::new(move |_| {
        let info = TcpInfo { rtt: None, least_rtt: None, retransmits: 0 };
        (counted.fetch_add(1, Ordering::Relaxed) == 1).then_some(info)
    }));
    let mut head = open("/v1/chat/completions");
    head.connection = connection();
    for event in [ObserverEvent::RequestHead(Box::new(head)), ObserverEvent::RequestBodySent] {
        requests.apply(TimestampedEvent { exchange: ExchangeId(1), at: at(100), event }, &[]);
    }
    let sweeps = [250, 500, 750].map(|millis| {
        requests.sweep(at(millis));
        queries.load(Ordering::Relaxed)
    });
    assert_eq!(sweeps, [1, 2, 2], "nothing else is due in the second sweep");
}

#[test]
fn a_panic_in_a_sweep_ends_the_observation_of_its_request_only() {
    let (mut requests, records) = requests();
    requests.set_tcp_info_query(Box::new(|_| panic!("a fault in a query")));
    for id in [1, 2] {
        let mut head = open("/v1/chat/completions");
        if id == 1 {
            head.connection = connection();
        }
        let event = ObserverEvent::RequestHead(Box::new(head));
        requests.apply(TimestampedEvent { exchange: ExchangeId(id), at: at(100), event }, &[]);
    }
    requests.sweep(at(400));
    requests.sweep(at(800));
    for id in [1, 2] {
        let event = ObserverEvent::End(Ending::Complete);
        requests.apply(TimestampedEvent { exchange: ExchangeId(id), at: at(900), event }, &[]);
    }
    let anomalies: Vec<_> = records.try_iter().map(|record| record.anomalies).collect();
    assert_eq!(anomalies, [vec![(ParseError::Panic, 1)], vec![]]);
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Plays a call with a compressed response at `millis` and returns its record.
fn compressed(
    (requests, records): (&mut InFlightRequests, &mpsc::Receiver<Record>),
    id: u64,
    millis: u64,
    body: &[u8],
) -> Record {
    let ObserverEvent::ResponseHead(mut head) = head(200, "text/event-stream") else {
        unreachable!("the function returns response headers");
    };
    head.headers.set("content-encoding", "gzip");
    let len = u32::try_from(body.len()).unwrap();
    let arrival =
        ObserverEvent::Body { direction: Direction::Response, len, blocked: Default::default() };
    for (event, bytes) in [
        (ObserverEvent::RequestHead(Box::new(open("/v1/chat/completions"))), &[][..]),
        (ObserverEvent::Admitted, &[]),
        (ObserverEvent::ResponseHead(head), &[]),
        (arrival, body),
        (ObserverEvent::End(Ending::Complete), &[]),
    ] {
        let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(millis), event };
        requests.apply(entry, bytes);
    }
    records.try_recv().unwrap()
}

#[test]
fn bombs_are_given_up_and_counted_and_leave_ordinary_streams_alone() {
    let (mut requests, records) = requests();
    let bomb = gzip(&b": keep-alive\n\n".repeat(280_000));
    let stream = gzip(format!("data: {}\n\n", chunk(r#"{"content":"Hello"}"#, "null")).as_bytes());
    let mut unobserved = 0;
    for id in 1..=20 {
        let record = compressed((&mut requests, &records), id, 1_000, &bomb);
        unobserved += u64::from(record.anomalies.contains(&(ParseError::Budget, 1)));
    }
    assert_eq!(unobserved, 15, "16 MiB hold the excess of five bodies of 3.9 MB");
    let health = requests.snapshot(at(1_000)).observer;
    assert_eq!((health.unobserved, health.lost_bytes), (15, 15 * bomb.len() as u64));
    let record = compressed((&mut requests, &records), 21, 1_000, &stream);
    assert_eq!(record.call.unwrap().output.unwrap().counted, 1);
    let record = compressed((&mut requests, &records), 22, 2_000, &bomb);
    assert_eq!(record.anomalies, [], "after a second, there is room for another one");
}

/// Opens `count` requests, each of which holds `half` of a response message, and ends them. `begin` returns the events
/// before the body. Returns how many requests were not observed completely because they share a budget of 4 MiB.
fn unobserved_halves(count: u64, begin: impl Fn() -> Vec<ObserverEvent>, half: &[u8]) -> usize {
    let settings = ObserverSettings { memory: 4 << 20, ..ObserverSettings::default() };
    let (mut requests, records) = requests_with(settings);
    let apply = |requests: &mut InFlightRequests, id, event, bytes: &[u8]| {
        let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(100), event };
        requests.apply(entry, bytes);
    };
    for id in 1..=count {
        begin().into_iter().for_each(|event| apply(&mut requests, id, event, &[]));
        let (direction, len) = (Direction::Response, u32::try_from(half.len()).unwrap());
        let arrival = ObserverEvent::Body { direction, len, blocked: Default::default() };
        apply(&mut requests, id, arrival, half);
    }
    let health = requests.snapshot(at(200)).observer;
    assert!(health.held > 3_000_000 && health.held <= 4 << 20, "{}", health.held);
    for id in 1..=count {
        apply(&mut requests, id, ObserverEvent::End(Ending::Complete), &[]);
    }
    assert_eq!(requests.snapshot(at(400)).observer.held, 0);
    let is_unobserved =
        |record: &Record| record.call.as_ref().unwrap().complete == Completeness::Unobserved;
    let unobserved = records.try_iter().filter(is_unobserved).count();
    assert_eq!(health.unobserved, unobserved as u64);
    unobserved
}

#[test]
fn half_events_of_all_requests_share_the_memory_budget() {
    let half = [b"data: ".as_slice(), &vec![b'x'; 1_000_000]].concat();
    let begin = || {
        let request = open("/v1/chat/completions");
        vec![ObserverEvent::RequestHead(Box::new(request)), head(200, "text/event-stream")]
    };
    assert_eq!(unobserved_halves(30, begin, &half), 26, "four of them fit");
}

#[test]
fn half_messages_of_aws_streams_share_the_memory_budget() {
    // The lengths of a message of 128 KiB without headers, and their checksum.
    let prelude = [0, 2, 0, 0, 0, 0, 0, 0, 0xf2, 0xbd, 0xce, 0x40];
    let half = [prelude.as_slice(), &[b'x'; (16 << 10) - 12]].concat();
    let begin = || {
        let request = open("/model/anthropic.claude-v2/converse-stream");
        let response = head(200, "application/vnd.amazon.eventstream");
        vec![ObserverEvent::RequestHead(Box::new(request)), response]
    };
    assert_eq!(unobserved_halves(1_000, begin, &half), 744, "256 of them fit");
}

#[test]
fn half_messages_of_websockets_share_the_memory_budget() {
    // The header of a text message of 128 KiB.
    let header = [0x81, 127, 0, 0, 0, 0, 0, 2, 0, 0];
    let half = [header.as_slice(), &[b'x'; 16 << 10]].concat();
    let begin = || {
        let request = RequestHead { method: http::Method::GET, ..open("/v1/realtime") };
        let mut response = head(101, "text/plain");
        if let ObserverEvent::ResponseHead(head) = &mut response {
            head.headers.set("upgrade", "websocket");
        }
        vec![ObserverEvent::RequestHead(Box::new(request)), response, ObserverEvent::Upgraded]
    };
    assert_eq!(unobserved_halves(1_000, begin, &half), 744, "256 of them fit");
}
