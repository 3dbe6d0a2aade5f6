//! Repeats one part of the observation, so that an instruction counter can measure it.
//!
//! ```text
//! instructions CASE COUNT
//! ```
//!
//! The difference between two counts is the cost of the repetitions alone, without start and set-up.
//! `tests/python/instructions_check.py` compares it with `benches/instructions.json`.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[expect(dead_code, reason = "another bench uses the rest")]
mod stage;

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokengauge_llm::ResponseParser;
use tokengauge_llm::count::TokenCounter;
use tokengauge_llm::dialect::Part;
use tokengauge_llm::frame::{Framer, JsonFraming};
use tokengauge_observe::tee::body::ResponseBody;
use tokengauge_observe::tee::{self, Batch, ObservationChannel};
use tokengauge_types::clock;

use stage::{CHUNKS, STREAM_REQUEST, Stage, WHOLE_REQUEST};

/// A chunk with padding that differs between chunks, as OpenAI sends it.
fn chunk(number: usize) -> String {
    let padding = "x".repeat(number % 13 + 1);
    format!(
        "data: {{\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1800000000,\"model\":\"gpt-4o-2024-08-06\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" tide\"}},\"finish_reason\":null}}],\"obfuscation\":\"{padding}\"}}\n\n"
    )
}

/// Chunks in groups, so that many exist at the same time. The cost of a search or a copy depends on the alignment, and
/// chunks that follow each other in memory have different alignments.
fn groups(count: usize) -> impl Iterator<Item = Vec<String>> {
    (0..count.div_ceil(CHUNKS)).map(|_| (0..CHUNKS).map(chunk).collect())
}

/// A body that is always ready with the next chunk.
struct Chunks(Vec<Bytes>);

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// Passes chunks through the tee, and drains the channel after every hundred.
fn pass_tee(count: usize) {
    let channel = Arc::new(ObservationChannel::new(tee::ChannelConfig::default()));
    let (mut batch, mut cx) = (Batch::default(), Context::from_waker(Waker::noop()));
    for group in groups(count) {
        let chunks = Chunks(group.into_iter().map(Bytes::from).collect());
        let observer = channel.open(stage::open(&stage::route()), clock::now());
        let mut body = ResponseBody::new(chunks, observer);
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
            black_box(frame.unwrap());
        }
        drop(body);
        (0..channel.shards()).for_each(|shard| channel.drain(shard, &mut batch));
    }
}

fn frame(count: usize) {
    let mut framer = Framer::new(Some("text/event-stream"), JsonFraming::Array);
    for chunk in groups(count).flatten() {
        framer.push(chunk.as_bytes(), &mut |frame| {
            black_box(frame);
        });
    }
}

fn parse(count: usize) {
    let mut parser = ResponseParser::builder("/v1/chat/completions")
        .content_type("text/event-stream")
        .build()
        .unwrap();
    for chunk in groups(count).flatten() {
        parser.push(chunk.as_bytes(), |event, tokens| {
            black_box((event, tokens));
        });
    }
}

fn count_tokens(count: usize) {
    let mut counter = TokenCounter::default();
    counter.set_model("gpt-4o");
    for _ in 0..count {
        black_box(counter.push(0, Part::Text, " tide"));
    }
}

/// Observes one long stream, so that a repetition is one chunk.
fn observe_stream(count: usize) {
    let chunks: Vec<_> = (0..count).map(chunk).collect();
    Stage::new(true).exchange(STREAM_REQUEST, "text/event-stream", &chunks);
}

/// Observes streams that only end. A stream without any choice would be an error, which costs more.
fn open_and_close(count: usize) {
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let (mut stage, end) = (Stage::new(true), [end.to_owned()]);
    for _ in 0..count {
        stage.exchange(STREAM_REQUEST, "text/event-stream", &end);
    }
}

fn observe_json(count: usize) {
    let (mut stage, body) = (Stage::new(true), stage::whole());
    for _ in 0..count {
        stage.exchange(WHOLE_REQUEST, "application/json", &body);
    }
}

/// Observes requests of 300 KB, as coding agents send them: a third of the prompt is source code.
fn observe_long_prompt(count: usize) {
    let line = "    let tide = \\\"high\\\";\\n";
    let prose = "The harbour master writes down when the tide turns, and who came in with it. ";
    let text = format!("{}{}", line.repeat(2), prose).repeat(2_250);
    let request = format!(
        "{{\"model\":\"gpt-4o\",\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    );
    let (mut stage, body) = (Stage::new(true), stage::whole());
    for _ in 0..count {
        stage.exchange(&request, "application/json", &body);
    }
}

fn make_chunks(count: usize) {
    for chunk in groups(count).flatten() {
        black_box(chunk);
    }
}

/// A name, and a function that repeats the case.
type Case = (&'static str, fn(usize));

/// All cases. `make-chunk` is the part of others that is not measured.
const CASES: [Case; 9] = [
    ("make-chunk", make_chunks),
    ("tee", pass_tee),
    ("frame", frame),
    ("parse", parse),
    ("count", count_tokens),
    ("chunk", observe_stream),
    ("open-close", open_and_close),
    ("json", observe_json),
    ("prompt", observe_long_prompt),
];

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [case, count] = arguments.as_slice() else {
        // `cargo bench` has no such arguments.
        return CASES.iter().for_each(|(_, run)| run(1));
    };
    let (_, run) = CASES.iter().find(|(name, _)| name == case).unwrap();
    run(count.parse().unwrap());
}
