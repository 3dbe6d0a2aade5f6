//! Measures the cost of a chunk on the thread that moves it, for each method of passing the chunk to an observer.
//!
//! Every variant polls the same body of one-chunk frames. The consumer runs on another thread, and its time is not
//! measured. It catches up before the next stream begins. Nothing is therefore dropped, and buffers are as warm as in a
//! proxy that is not overloaded.
//!
//! - `bare`: no observer. The cost of the other variants above this one is the cost of observing.
//! - `channel`: a timestamp, and a copy into a buffer that the consumer drains every 250 ms.
//! - `tee`: `channel` inside the body wrapper of the proxy, which also records which peer a stream waits for.
//! - `sync_channel`, `mpsc`: a timestamp and an owned copy, sent through a bounded channel for each chunk.
//! - `mpsc_clone`: `mpsc` with a clone of the `Bytes` instead of a copy.
//! - `parse`: a timestamp, and parsing of the event's line and JSON in `poll_frame`. Nothing is counted or recorded.
//!
//! The group `burst` has 500 chunks in a row, so the consumer of a channel wakes once for all of them. In the group
//! `alone`, the consumer sleeps before each chunk, as it does when a token arrives every few milliseconds.
//!
//! `docs/adr/0001-observation-channel.md` has the measurements that led to the chosen design.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[expect(dead_code, reason = "another bench uses the rest")]
mod stage;

use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use http_body::{Body, Frame};
use serde::Deserialize;
use tokengauge_observe::tee::body::ResponseBody;
use tokengauge_observe::tee::{self, Batch, ObservationChannel, RequestObserver};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{BackpressureTime, Direction, ObserverEvent};

/// A typical event of an engine, with one token and 218 bytes.
const EVENT: &[u8] = b"data: {\"id\":\"chatcmpl-9f2b6c1d7e8a4b3c\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"llama-3.1-8b-instruct\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";

/// Number of chunks in a row in the group `burst`.
const BURST: u64 = 500;

/// Pause after which the consumer sleeps.
const SLEEPY: Duration = Duration::from_micros(50);

/// Capacity of a bounded channel, larger than the number of chunks in flight.
const CHANNEL: usize = 10_000;

/// A body that is always ready with the next event.
struct Source(u64);

impl Body for Source {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(EVENT)))))
    }
}

/// A body that passes each frame to a function.
struct Shown<F>(Source, F);

impl<F: FnMut(MonotonicInstant, &Bytes) + Unpin> Body for Shown<F> {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            (self.1)(clock::now(), data);
        }
        polled
    }
}

fn run(mut body: impl Body<Data = Bytes> + Unpin) {
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
        black_box(frame.is_ok());
    }
}

fn open(channel: &Arc<ObservationChannel>) -> RequestObserver {
    channel.open(stage::open(&stage::route()), clock::now())
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    model: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: u32,
    #[serde(borrow)]
    delta: Delta<'a>,
    finish_reason: Option<std::borrow::Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<std::borrow::Cow<'a, str>>,
}

fn parse(data: &Bytes) {
    for line in memchr::memchr_iter(b'\n', data).scan(0, |from, to| {
        let line = data.get(*from..to);
        *from = to + 1;
        line
    }) {
        let Some(json) = line.strip_prefix(b"data: ") else {
            continue;
        };
        let chunk: Chunk<'_> = serde_json::from_slice(json).unwrap();
        for choice in &chunk.choices {
            black_box((&chunk.model, choice.index, &choice.delta.content, &choice.finish_reason));
        }
    }
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn chunk(criterion: &mut Criterion) {
    for (name, chunks) in [("burst", BURST), ("alone", 1)] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(chunks));
        measure(&mut group, "bare", || run(Source(chunks)), |_| {});
        channel(&mut group, chunks);
        standard_channel(&mut group, chunks);
        tokio_channel(&mut group, "mpsc", chunks, |data| Bytes::copy_from_slice(data));
        tokio_channel(&mut group, "mpsc_clone", chunks, Bytes::clone);
        let parsed = || {
            run(Shown(Source(chunks), |at, data: &Bytes| {
                black_box(at);
                parse(data);
            }));
        };
        measure(&mut group, "parse", parsed, |_| {});
        group.finish();
    }
}

/// Measures the time of `stream`. Outside the measured time, `catch_up` waits until the consumer has received the given
/// number of streams, and a pause lets the consumer become idle again.
fn measure(
    group: &mut Group<'_>,
    name: &str,
    mut stream: impl FnMut(),
    mut catch_up: impl FnMut(u64),
) {
    let mut seen = 0;
    group.bench_function(name, |bench| {
        bench.iter_custom(|streams| {
            let mut time = Duration::ZERO;
            for _ in 0..streams {
                let begun = clock::now();
                stream();
                let ended = clock::now();
                time += ended - begun;
                seen += 1;
                catch_up(seen);
                while clock::now() - ended < SLEEPY {
                    std::hint::spin_loop();
                }
            }
            time
        });
    });
}

/// Waits until `count` has reached `target`.
fn wait_for(count: &AtomicU64, target: u64) {
    while count.load(Ordering::Acquire) < target {
        thread::yield_now();
    }
}

fn channel(group: &mut Group<'_>, chunks: u64) {
    let channel = Arc::new(ObservationChannel::new(tee::ChannelConfig::default()));
    let arrived = Arc::<AtomicU64>::default();
    let stop = Arc::<AtomicBool>::default();
    let drain = thread::spawn({
        let (channel, arrived, stop) =
            (Arc::clone(&channel), Arc::clone(&arrived), Arc::clone(&stop));
        move || observe(&channel, &arrived, &stop)
    });
    let observer = open(&channel);
    let stream = || {
        run(Shown(Source(chunks), |at, data: &Bytes| {
            observer.record_body(Direction::Response, at, data, BackpressureTime::default());
        }));
    };
    measure(group, "channel", stream, |streams| {
        channel.wake();
        wait_for(&arrived, streams * chunks);
    });
    let before = arrived.load(Ordering::Acquire);
    let stream = || run(ResponseBody::new(Source(chunks), open(&channel)));
    measure(group, "tee", stream, |streams| {
        channel.wake();
        wait_for(&arrived, before + streams * chunks);
    });
    stop.store(true, Ordering::Release);
    channel.wake();
    drain.join().unwrap();
    assert_eq!(channel.lost(), tee::ChannelLosses::default(), "everything was observed");
}

/// Drains the channel like the observer, and reads every byte.
fn observe(channel: &ObservationChannel, arrived: &AtomicU64, stop: &AtomicBool) {
    let mut batch = Batch::default();
    while !stop.load(Ordering::Acquire) {
        channel.park(Duration::from_millis(50));
        for shard in 0..channel.shards() {
            channel.drain(shard, &mut batch);
            black_box(batch.bytes.iter().filter(|b| **b == b'\n').count());
            let arrivals = batch
                .entries
                .iter()
                .filter(|entry| matches!(entry.event, ObserverEvent::Body { .. }));
            arrived.fetch_add(arrivals.count() as u64, Ordering::Release);
        }
    }
}

fn standard_channel(group: &mut Group<'_>, chunks: u64) {
    let (sender, receiver) = sync_channel::<(MonotonicInstant, Bytes)>(CHANNEL);
    let received = Arc::<AtomicU64>::default();
    let consumer = thread::spawn({
        let received = Arc::clone(&received);
        move || {
            for item in receiver {
                drop(black_box(item));
                received.fetch_add(1, Ordering::Release);
            }
        }
    });
    let stream = || {
        run(Shown(Source(chunks), |at, data: &Bytes| {
            sender.try_send((at, Bytes::copy_from_slice(data))).unwrap();
        }));
    };
    measure(group, "sync_channel", stream, |streams| {
        wait_for(&received, streams * chunks);
    });
    drop(sender);
    consumer.join().unwrap();
}

fn tokio_channel(group: &mut Group<'_>, name: &str, chunks: u64, take: fn(&Bytes) -> Bytes) {
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<(MonotonicInstant, Bytes)>(CHANNEL);
    let received = Arc::<AtomicU64>::default();
    let consumer = thread::spawn({
        let received = Arc::clone(&received);
        move || {
            while let Some(item) = receiver.blocking_recv() {
                drop(black_box(item));
                received.fetch_add(1, Ordering::Release);
            }
        }
    });
    let stream = || {
        run(Shown(Source(chunks), |at, data: &Bytes| {
            sender.try_send((at, take(data))).unwrap();
        }));
    };
    measure(group, name, stream, |streams| {
        wait_for(&received, streams * chunks);
    });
    drop(sender);
    consumer.join().unwrap();
}

criterion_group!(benches, chunk);
criterion_main!(benches);
