//! Tests bodies with a content encoding. The proxy forwards them unchanged, and the observer decodes a copy.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::support::Backend;
use crate::support::collector::Collector;
use crate::support::process::{CALL, CHUNK, DONE, Process};

const REQUEST: &str = "{\"model\":\"gpt-4o\",\"stream\":true,\"max_tokens\":77}";
const USAGE: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o\",\"choices\":[],\
    \"usage\":{\"prompt_tokens\":11,\"completion_tokens\":22,\"total_tokens\":33}}\n\n";

/// Compresses the pieces and flushes after each one. The last piece includes the end of the encoded body.
fn gzip(pieces: &[&str]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut wire = Vec::new();
    for piece in pieces {
        encoder.write_all(piece.as_bytes()).unwrap();
        encoder.flush().unwrap();
        wire.push(std::mem::take(encoder.get_mut()));
    }
    wire.last_mut().unwrap().extend(encoder.finish().unwrap());
    wire
}

fn has(spans: &[Span], key: &str, value: &str) -> bool {
    let mut attributes = spans.iter().flat_map(|span| &span.attributes);
    attributes.any(|it| it.key == key && format!("{:?}", it.value).contains(value))
}

#[tokio::test]
async fn forwards_a_gzip_call_unchanged_and_decodes_it_for_its_span() {
    let backend = Backend::start().await;
    let collector = Collector::start().await;
    let mut process = Process::start(
        &["--upstream", &format!("http://{}", backend.address)],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{}", collector.address)),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ],
    )
    .await;
    let request = gzip(&[REQUEST]).concat();
    let head = format!(
        "POST {CALL} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br;q=0.5, gzip\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        request.len()
    );
    let mut client = process.client().await;
    client.write([head.as_bytes(), &request].concat()).await;
    let mut upstream = backend.accept().await;
    let asked = upstream.read_head().await.to_ascii_lowercase();
    assert!(asked.contains("\r\naccept-encoding: br;q=0.5, gzip\r\n"), "{asked}");
    assert!(asked.contains("\r\ncontent-encoding: gzip\r\n"), "{asked}");
    assert_eq!(upstream.read_exactly(request.len()).await, request);

    let answer = gzip(&[CHUNK, USAGE, DONE]);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: GZip\r\nContent-Length: {}\r\n\r\n",
        answer.concat().len()
    );
    upstream.write(&head).await;
    assert!(client.read_head().await.contains("Content-Encoding: GZip"));
    for (index, piece) in answer.iter().enumerate() {
        upstream.write(piece).await;
        assert_eq!(&client.read_exactly(piece.len()).await, piece);
        if index == 0 {
            let live = process.page("/streams").await.1;
            assert!(live.contains("\"phase\": \"streaming\""), "visible when flushed: {live}");
        }
    }
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    let spans = collector.spans();
    for (key, value) in [
        ("gen_ai.request.max_tokens", "77"),
        ("gen_ai.usage.input_tokens", "11"),
        ("gen_ai.usage.output_tokens", "22"),
        ("tokengauge.complete", "\"true\""),
        ("tokengauge.outcome", "\"ok\""),
    ] {
        assert!(has(&spans, key, value), "{key} = {value}: {spans:#?}");
    }
}
