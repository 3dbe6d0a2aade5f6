//! What a chunk costs the thread that moves it, for each way of letting an observer see it.
//!
//! Every variant polls the same body of one-chunk frames and has a consumer on another thread that keeps up:
//!
//! - `bare`: nobody looks. What the others cost above this is the price of observing.
//! - `seam`: the tee of this crate; a stamp and a copy into a buffer that is drained every 50 ms.
//! - `sync_channel`, `mpsc`: a stamp and an owned copy sent through a bounded channel, chunk by chunk.
//! - `mpsc_clone`: the same with a clone of the `Bytes` instead of a copy.
//! - `parse`: a stamp, the line found and the event's JSON read in `poll_frame`; nothing is counted or recorded yet.
//!
//! `docs/adr/0001-the-seam.md` has the figures that were the reason for the choice.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench fails by panicking and reports on its standard output"
)]

use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use http_body::{Body, Frame};
use serde::Deserialize;
use tokengauge::clock::{self, Moment};
use tokengauge::label::{Label, Name};
use tokengauge::tee::body::{Limits, ResponseBody};
use tokengauge::tee::{self, Batch, Seam, Tap};
use tokengauge::wire::{Cell, Headers, Open, RouteFacts, Scheme, Trace, Vantage};

/// One event as engines write it: one token, 230 bytes.
const EVENT: &[u8] = b"data: {\"id\":\"chatcmpl-9f2b6c1d7e8a4b3c\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"llama-3.1-8b-instruct\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";

/// Chunks per measured stream: enough that opening and ending it does not show.
const CHUNKS: u64 = 10_000;

/// What a channel may hold: as much as the seam's budget of 32 MiB holds of these events.
const CHANNEL: usize = 100_000;

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

/// A body that shows each frame to a function.
struct Shown<F>(Source, F);

impl<F: FnMut(Moment, &Bytes) + Unpin> Body for Shown<F> {
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

fn open(seam: &Arc<Seam>) -> Tap {
    let facts = RouteFacts {
        name: Label::known("bench"),
        vantage: Vantage::Outbound,
        server_address: Label::known("localhost"),
        server_port: 80,
        provider: None,
        dialect: None,
        stripped: 0,
        stall_after: Duration::from_secs(2),
        hung_after: Duration::from_secs(30),
    };
    let open = Open {
        wall: clock::wall_now(),
        method: http::Method::POST,
        path: Name::new("/v1/chat/completions").unwrap(),
        host: None,
        version: http::Version::HTTP_11,
        scheme: Scheme::Http,
        headers: Headers::default(),
        length: None,
        client: None,
        route: Arc::new(facts),
        trace: Trace::default(),
        cell: Arc::<Cell>::default(),
    };
    seam.open(open, clock::now())
}

/// Drains as the observer does, and touches every byte.
fn drain_until(seam: &Seam, stop: &AtomicBool) {
    let mut batch = Batch::default();
    while !stop.load(Ordering::Relaxed) {
        seam.park(Duration::from_millis(50));
        for shard in 0..seam.shards() {
            seam.drain(shard, &mut batch);
            black_box(batch.entries.len() + batch.bytes.iter().filter(|b| **b == b'\n').count());
        }
    }
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
            black_box((
                &chunk.model,
                choice.index,
                &choice.delta.content,
                &choice.finish_reason,
            ));
        }
    }
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn chunk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chunk");
    group.throughput(Throughput::Elements(CHUNKS));
    group.bench_function("bare", |bench| bench.iter(|| run(Source(CHUNKS))));
    seam(&mut group);
    standard_channel(&mut group);
    tokio_channel(&mut group, "mpsc", |data| Bytes::copy_from_slice(data));
    tokio_channel(&mut group, "mpsc_clone", Bytes::clone);
    group.bench_function("parse", |bench| {
        bench.iter(|| {
            run(Shown(Source(CHUNKS), |at, data: &Bytes| {
                black_box(at);
                parse(data);
            }));
        });
    });
    group.finish();
}

fn seam(group: &mut Group<'_>) {
    let stop = Arc::new(AtomicBool::new(false));
    let observed = Arc::new(Seam::new(tee::Config {
        shards: 2,
        ..tee::Config::default()
    }));
    let observer = thread::spawn({
        let (observed, stop) = (Arc::clone(&observed), Arc::clone(&stop));
        move || drain_until(&observed, &stop)
    });
    group.bench_function("seam", |bench| {
        bench.iter(|| {
            let body = ResponseBody::new(Source(CHUNKS), open(&observed), Limits::default());
            run(body);
        });
    });
    stop.store(true, Ordering::Relaxed);
    observed.wake();
    observer.join().unwrap();
    println!("not observed: {:?}", observed.lost());
}

fn standard_channel(group: &mut Group<'_>) {
    let (sender, receiver) = sync_channel::<(Moment, Bytes)>(CHANNEL);
    let consumer = thread::spawn(move || receiver.iter().for_each(|item| drop(black_box(item))));
    let mut refused = 0_u64;
    group.bench_function("sync_channel", |bench| {
        bench.iter(|| {
            run(Shown(Source(CHUNKS), |at, data: &Bytes| {
                let sent = sender.try_send((at, Bytes::copy_from_slice(data)));
                refused += u64::from(sent.is_err());
            }));
        });
    });
    drop(sender);
    consumer.join().unwrap();
    println!("refused: {refused}");
}

fn tokio_channel(group: &mut Group<'_>, name: &str, take: fn(&Bytes) -> Bytes) {
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<(Moment, Bytes)>(CHANNEL);
    let consumer = thread::spawn(move || {
        while let Some(item) = receiver.blocking_recv() {
            drop(black_box(item));
        }
    });
    let mut refused = 0_u64;
    group.bench_function(name, |bench| {
        bench.iter(|| {
            run(Shown(Source(CHUNKS), |at, data: &Bytes| {
                refused += u64::from(sender.try_send((at, take(data))).is_err());
            }));
        });
    });
    drop(sender);
    consumer.join().unwrap();
    println!("refused: {refused}");
}

criterion_group!(benches, chunk);
criterion_main!(benches);
