//! Measures how fast compressed responses are decompressed and parsed, in decompressed bytes per second. The rate
//! limit in `src/budget/inflation.rs` rests on these figures.

use std::hint::black_box;
use std::io::Write;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokengauge_llm::ResponseParser;

const STREAM: (&str, &str) = ("text/event-stream", "\"stream\":true");
const BODY: (&str, &str) = ("application/json", "\"stream\":false");

fn chunk(text: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// Compresses each piece and flushes it, as a server that streams does.
fn gzip(pieces: &[String]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut wire = Vec::new();
    for piece in pieces {
        encoder.write_all(piece.as_bytes()).expect("a vector accepts every write");
        encoder.flush().expect("a vector accepts every write");
        wire.push(std::mem::take(encoder.get_mut()));
    }
    wire
}

fn parse((content_type, stream): (&str, &str), wire: &[Vec<u8>]) -> u64 {
    let request = format!("{{\"model\":\"gpt-4o\",{stream},\"messages\":[]}}");
    let mut parser = ResponseParser::builder("/v1/chat/completions")
        .request_body(request.as_bytes())
        .content_type(content_type)
        .content_encoding("gzip")
        .build()
        .expect("the API is known");
    for piece in wire {
        parser.push(piece, |event, _| {
            black_box(event);
        });
    }
    parser.finish(|_, _| {}).tokens.native
}

fn inflate(criterion: &mut Criterion) {
    let words =
        ["The", " harbour", " was", " quiet", " that", " morning", ".", " Two", " boats", " had"];
    let flushed: Vec<String> = words.iter().cycle().take(2_000).map(|word| chunk(word)).collect();
    let whole = vec![flushed.concat().repeat(10)];
    let comments = vec![": keep-alive\n\n".repeat(300_000)];
    let events = vec!["data: {}\n\n".repeat(400_000)];
    let blanks = vec![" ".repeat(4 << 20)];
    let text = vec![format!(
        "{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}]}}",
        "word and ".repeat(460_000)
    )];
    let symbols = vec![format!(
        "{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}]}}",
        "=-+(1a\u{e9}".repeat(460_000)
    )];
    for (name, format, pieces) in [
        ("flushed stream", STREAM, flushed),
        ("stream", STREAM, whole),
        ("comments", STREAM, comments),
        ("empty events", STREAM, events),
        ("blanks", BODY, blanks),
        ("words", BODY, text),
        ("symbols", BODY, symbols),
    ] {
        let wire = gzip(&pieces);
        let plain: usize = pieces.iter().map(String::len).sum();
        let coded: usize = wire.iter().map(Vec::len).sum();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(plain as u64)).sample_size(10);
        group.bench_function(format!("ratio {}", plain / coded), |bencher| {
            bencher.iter(|| parse(format, &wire));
        });
        group.finish();
    }
}

criterion_group!(benches, inflate);
criterion_main!(benches);
