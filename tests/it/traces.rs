//! Tests traces through the real program: the parents of its spans, and their attributes.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::support::Backend;
use crate::support::collector::Collector;
use crate::support::process::{CALL, CHUNK, DONE, Process};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    let value = span.attributes.iter().find(|kv| kv.key == key)?;
    let Value::StringValue(text) = value.value.as_ref()?.value.as_ref()? else {
        return None;
    };
    Some(text)
}

/// Stops the program. Returns the SERVER and the CLIENT span of its only exchange.
fn pair(collector: &Collector) -> [Span; 2] {
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "{spans:?}");
    let of = |kind: i32| spans.iter().find(|span| span.kind == kind).unwrap().clone();
    [of(SERVER), of(CLIENT)]
}

/// Starts the program in front of `upstream`, with trace continuation enabled.
async fn continuing(upstream: &str, collector: &Collector, propagators: &str) -> Process {
    let endpoint = format!("http://{}", collector.address);
    let environment =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_PROPAGATORS", propagators)];
    let arguments = ["--upstream", upstream, "--trace-context", "continue"];
    Process::start(&arguments, &environment).await
}

async fn stop(mut process: Process) {
    process.signal("TERM");
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn two_proxies_in_a_row_create_one_trace() {
    let backend = Backend::start().await;
    let (near, far) = (Collector::start().await, Collector::start().await);
    let second = continuing(&format!("http://{}", backend.address), &far, "").await;
    let first = continuing(&format!("http://{}", second.address), &near, "").await;
    let mut client = first.client().await;
    let body = "{\"model\":\"gpt-4o\",\"stream\":true}";
    client
        .write(format!(
            "POST {CALL} HTTP/1.1\r\nHost: a\r\ntraceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: v=1\r\n\
             baggage: gen_ai.conversation.id=conv-1,user.id=planted\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    let length = CHUNK.len() + DONE.len();
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{CHUNK}{DONE}"
        ))
        .await;
    client.read_until(DONE).await;
    stop(first).await;
    stop(second).await;

    let [one, two, three, four] = {
        let ([one, two], [three, four]) = (pair(&near), pair(&far));
        [one, two, three, four]
    };
    let spans = [&one, &two, &three, &four];
    for span in spans {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(span.trace_state, "v=1");
    }
    let parents = spans.map(|span| hex(&span.parent_span_id));
    let ids = spans.map(|span| hex(&span.span_id));
    assert_eq!(parents[0], PARENT);
    assert_eq!(parents[1..], ids[..3], "each span is the child of the previous one");
    assert!(head.contains(&format!("traceparent: 00-{TRACE}-{}-01\r\n", ids[3])));
    assert!(head.contains("\r\ntracestate: v=1\r\n"), "{head}");

    for span in [&two, &four] {
        assert_eq!(text(span, "gen_ai.conversation.id"), Some("conv-1"));
    }
    assert_eq!(text(&one, "gen_ai.conversation.id"), None);
    for collector in [&near, &far] {
        let exported = collector.bytes();
        let planted = exported.windows(7).any(|bytes| bytes == b"planted");
        assert!(!planted, "no other baggage is recorded");
    }
}

#[tokio::test]
async fn keeps_and_forwards_the_sampling_decision_of_b3() {
    let backend = Backend::start().await;
    let collector = Collector::start().await;
    let upstream = format!("http://{}", backend.address);
    let process = continuing(&upstream, &collector, "b3, jaeger").await;
    process.logged(&["setting ignored", "jaeger"]).await;
    let mut client = process.client().await;
    for (sent, decision) in [("0", "0"), (&*format!("{TRACE}-{PARENT}-d"), "d")] {
        client.write(format!("GET / HTTP/1.1\r\nHost: a\r\nb3: {sent}\r\n\r\n")).await;
        let mut upstream = backend.accept().await;
        let head = upstream.read_head().await;
        let b3 = head.split("b3: ").nth(1).unwrap().lines().next().unwrap();
        let fields: Vec<&str> = b3.split('-').collect();
        assert_eq!((fields.len(), fields[2]), (3, decision), "{b3}");
        assert!(!head.contains("traceparent"), "a format that is not listed was written: {head}");
        upstream.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        client.read_head().await;
    }
    stop(process).await;
    let [server, _] = pair(&collector);
    assert_eq!(hex(&server.trace_id), TRACE, "only the chosen format is written");
    assert_eq!(hex(&server.parent_span_id), PARENT);
}
