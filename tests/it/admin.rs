//! What the program shows of what passes, and what it never shows.

use serde_json::Value;

use crate::support::Backend;
use crate::support::collector::Collector;
use crate::support::process::{CALL, CHUNK, DONE, Process};

#[tokio::test]
async fn a_stream_is_shown_while_it_goes_on() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    assert_eq!(process.streams().await, Vec::<Value>::new());
    let body = "{\"model\":\"gpt-4o\",\"stream\":true}";
    let length = body.len();
    let mut client = process.client().await;
    client
        .write(format!(
            "POST {CALL}?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_until(body).await;
    let waiting = &process.streams().await[0];
    assert_eq!(waiting["phase"], "waiting", "{waiting}");
    assert_eq!(waiting["tokens"], 0);
    assert_eq!(waiting["time_to_first_token"], Value::Null);

    let length = 2 * CHUNK.len() + DONE.len();
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{CHUNK}{CHUNK}"
        ))
        .await;
    client.read_head().await;
    client.read_exactly(2 * CHUNK.len()).await;
    let streams = process.streams().await;
    let [stream] = streams.as_slice() else {
        panic!("one stream is open: {streams:?}");
    };
    assert_eq!(stream["model"], "gpt-4o", "{stream}");
    assert_eq!(stream["route"], "default");
    assert_eq!(stream["path"], CALL, "without its query");
    assert_eq!(stream["phase"], "streaming");
    assert_eq!(stream["tokens"], 2);
    assert_eq!(stream["waiting_for"], "upstream");
    let seconds = |key: &str| stream[key].as_f64().unwrap();
    assert!(seconds("idle") > 0.0 && seconds("idle") < seconds("age"));
    assert!(seconds("time_to_first_token") < seconds("age"));

    upstream.write(DONE).await;
    client.read_exactly(DONE.len()).await;
    assert_eq!(process.streams().await, Vec::<Value>::new());
}

/// Each stands in one place only, so that a find tells where it came from.
const PLANTED: [&str; 12] = [
    "planted-in-authorization",
    "planted-in-x-api-key",
    "planted-in-api-key",
    "planted-in-cookie",
    "planted-in-query",
    "planted-in-prompt",
    "planted-in-tool",
    "planted-in-completion",
    "planted-in-set-cookie",
    "planted-in-error",
    "planted-in-otlp-header",
    "planted-in-body-of-no-api",
];

fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path}?api_key=planted-in-query HTTP/1.1\r\nHost: a\r\n\
         Authorization: Bearer planted-in-authorization\r\nX-Api-Key: planted-in-x-api-key\r\n\
         Api-Key: planted-in-api-key\r\nCookie: session=planted-in-cookie\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn response(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nSet-Cookie: s=planted-in-set-cookie\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const PROMPT: &str = r#"{"model":"gpt-4o","stream":true,"user":"planted-in-prompt",
    "messages":[{"role":"system","content":"planted-in-prompt"}],
    "tools":[{"type":"function","function":{"name":"planted-in-tool"}}]}"#;
const ERROR: &str = r#"{"error":{"message":"Incorrect API key provided: planted-in-error",
    "type":"invalid_request_error","param":"planted-in-error","code":"invalid_api_key"}}"#;

/// Every page of the admin port.
async fn pages(process: &Process) -> String {
    let mut pages = String::new();
    for path in ["/", "/metrics", "/config", "/streams", "/slo"] {
        pages.push_str(&process.page(path).await.1);
    }
    pages
}

#[tokio::test]
async fn no_credential_and_no_text_is_shown_logged_or_exported() {
    let backend = Backend::start().await;
    let collector = Collector::start().await;
    let upstream = format!("http://{}", backend.address);
    let endpoint = format!("http://{}", collector.address);
    let mut process = Process::start(
        &["--upstream", &upstream, "--log-level", "trace"],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=planted-in-otlp-header"),
        ],
    )
    .await;
    let mut client = process.client().await;
    client.write(request(CALL, PROMPT)).await;
    let mut at_upstream = backend.accept().await;
    let sent_on = at_upstream.read_until("\"planted-in-tool\"}}]}").await;
    assert!(sent_on.contains("Bearer planted-in-authorization"));
    let stream = CHUNK.replace("Hi", "planted-in-completion") + DONE;
    let stream = response("200 OK", "text/event-stream", &stream);
    let (begun, rest) = stream.split_at(stream.len() - DONE.len());
    at_upstream.write(begun).await;
    client.read_until("planted-in-completion").await;
    let mut shown = pages(&process).await;
    assert!(shown.contains("\"phase\": \"streaming\""), "{shown}");
    at_upstream.write(rest).await;
    client.read_until(DONE).await;

    // A refused key, something that is no call at all, and a call that breaks off.
    let refused = response("401 Unauthorized", "application/json", ERROR);
    let no_call = response("200 OK", "text/plain", "planted-in-completion");
    for (path, body, answer) in [
        (CALL, PROMPT, refused.as_str()),
        ("/upload", "planted-in-body-of-no-api", &no_call),
        (CALL, PROMPT, begun),
    ] {
        client.write(request(path, body)).await;
        at_upstream.read_until(body).await;
        at_upstream.write(answer).await;
        client.read_until(answer.lines().last().unwrap()).await;
    }
    drop(at_upstream);
    client.read_to_end().await;

    shown.push_str(&pages(&process).await);
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    assert_eq!(collector.spans().len(), 8, "two for each exchange");
    let exported = collector.bytes();
    let log = process.log();
    for planted in PLANTED {
        for (place, text) in [
            ("on a page", shown.as_bytes()),
            ("in the log", log.as_bytes()),
        ] {
            assert!(!has(text, planted), "{planted} {place}");
        }
        assert!(!has(&exported, planted), "{planted} in an export");
    }
    assert!(
        has(&exported, "gpt-4o"),
        "what is looked for would be found"
    );
}

fn has(text: &[u8], planted: &str) -> bool {
    text.windows(planted.len())
        .any(|window| window == planted.as_bytes())
}
