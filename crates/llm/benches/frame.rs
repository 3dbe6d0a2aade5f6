//! Measures the cost of splitting a stream into frames, for each framing. Each frame is one token's chunk in its
//! provider's format. `whole` arrives in pieces of 16 KiB. `cut` arrives in pieces of 100 bytes, so nearly every frame
//! needs buffering.

use std::hint::black_box;

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokengauge_llm::frame::{Frame, Framer, JsonFraming};

const FRAMES: usize = 1000;

/// A chunk of OpenAI chat completions.
const CHAT: &str = r#"{"id":"chatcmpl-Bx4T1hLQyZ","object":"chat.completion.chunk","created":1772350000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_a1b2c3d4e5","choices":[{"index":0,"delta":{"content":" tide"},"logprobs":null,"finish_reason":null}],"usage":null}"#;

/// A line of Ollama chat.
const OLLAMA: &str = r#"{"model":"qwen3:4b","created_at":"2026-03-01T09:00:00.123456789Z","message":{"role":"assistant","content":" tide"},"done":false}"#;

/// A response of Gemini `streamGenerateContent`.
const GEMINI: &str = r#"{
  "candidates": [
    {
      "content": {
        "parts": [
          {
            "text": "The tide turns at six, and with it the boats that have waited all night outside the \"old\" bar.\nBring a lamp."
          }
        ],
        "role": "model"
      },
      "index": 0
    }
  ],
  "usageMetadata": {
    "promptTokenCount": 12,
    "candidatesTokenCount": 27,
    "totalTokenCount": 39,
    "promptTokensDetails": [
      {
        "modality": "TEXT",
        "tokenCount": 12
      }
    ]
  },
  "modelVersion": "gemini-2.5-flash",
  "responseId": "kQqkaY3xDZ"
}"#;

/// A delta of Bedrock `ConverseStream`.
const BEDROCK: &str =
    r#"{"contentBlockIndex":0,"delta":{"text":" tide"},"p":"abcdefghijklmnopqrstuvwxyzABCDEF"}"#;

fn frame(criterion: &mut Criterion) {
    let bodies = [
        ("sse", "text/event-stream", format!("data: {CHAT}\n\n").repeat(FRAMES).into_bytes()),
        ("lines", "application/x-ndjson", format!("{OLLAMA}\n").repeat(FRAMES).into_bytes()),
        (
            "elements",
            "application/json",
            format!("[{}]", [GEMINI; FRAMES].join("\n,\r\n")).into_bytes(),
        ),
        ("aws", "application/vnd.amazon.eventstream", message().repeat(FRAMES)),
    ];
    for (name, content_type, body) in bodies {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(FRAMES as u64));
        for (how, size) in [("whole", 1 << 14), ("cut", 100)] {
            group.bench_with_input(BenchmarkId::new(how, FRAMES), &body, |bencher, body| {
                bencher.iter(|| assert_eq!(count(content_type, body, size), FRAMES));
            });
        }
        group.finish();
    }
}

/// Splits the body into frames and counts them.
fn count(content_type: &str, body: &[u8], size: usize) -> usize {
    let mut framer = Framer::new(Some(content_type), JsonFraming::Array);
    let mut frames = 0;
    for piece in body.chunks(size) {
        framer.push(piece, &mut |frame| {
            frames += usize::from(matches!(black_box(frame), Frame::Event { .. }));
        });
    }
    frames
}

fn message() -> Vec<u8> {
    let header = |name, value: &'static str| Header::new(name, HeaderValue::String(value.into()));
    let message = Message::new(BEDROCK)
        .add_header(header(":event-type", "contentBlockDelta"))
        .add_header(header(":content-type", "application/json"))
        .add_header(header(":message-type", "event"));
    let mut written = Vec::new();
    write_message_to(&message, &mut written).expect("a small message can be written");
    written
}

criterion_group!(benches, frame);
criterion_main!(benches);
