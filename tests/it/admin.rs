//! Tests which data of active streams the admin port shows, and which it never shows.

use serde_json::Value;

use crate::stats::assert_documented;
use crate::support::process::{CALL, CHUNK, DONE, Process};
use crate::support::{Backend, Raw, within};

/// A web page whose name resolves to this machine sends its own name as `Host`.
#[tokio::test]
async fn a_foreign_host_gets_only_health_and_metrics() {
    let process = Process::before(Backend::start().await.address).await;
    for (page, status) in [
        ("/livez", "200"),
        ("/readyz", "200"),
        ("/metrics", "200"),
        ("/config", "403"),
        ("/streams", "403"),
        ("/", "403"),
    ] {
        let mut client = Raw::connect(process.admin).await;
        client.write(format!("GET {page} HTTP/1.1\r\nHost: rebound.example:4001\r\n\r\n")).await;
        let head = client.read_head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{page}: {head}");
    }
    let mut client = Raw::connect(process.admin).await;
    client.write("POST /drain?delay=0s HTTP/1.1\r\nHost: rebound.example\r\n\r\n").await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 403 "));
    assert!(process.page("/readyz").await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn shows_open_streams() {
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
    let waiting = open_stream(&process, "waiting").await;
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
    let stream = open_stream(&process, "streaming").await;
    assert_documented("/streams", &stream);
    assert_eq!(stream["model"], "gpt-4o", "{stream}");
    assert_eq!(stream["route"], "default");
    assert_eq!(stream["path"], CALL, "the path has no query");
    assert_eq!(stream["tokens"], 2);
    assert_eq!(stream["waiting_for"], "upstream");
    let seconds = |key: &str| stream[key].as_f64().unwrap();
    assert!(seconds("idle_seconds") > 0.0 && seconds("idle_seconds") < seconds("age_seconds"));
    assert!(seconds("time_to_first_token_seconds") < seconds("age_seconds"));

    upstream.write(DONE).await;
    client.read_exactly(DONE.len()).await;
    within("the end of the stream", async { while !process.streams().await.is_empty() {} }).await;
}

/// Waits until the only open stream is in `phase`. On a busy machine, the page can show an earlier state.
async fn open_stream(process: &Process, phase: &str) -> Value {
    let waiting = async {
        loop {
            let streams = process.streams().await;
            assert!(streams.len() <= 1, "{streams:?}");
            if let Some(stream) = streams.into_iter().find(|stream| stream["phase"] == phase) {
                return stream;
            }
        }
    };
    within(phase, waiting).await
}

#[tokio::test]
async fn the_program_starts_with_empty_variables_as_without_them() {
    let names = [
        "TOKENGAUGE_ADMIN_TOKEN",
        "TOKENGAUGE_CONFIG",
        "TOKENGAUGE_GEN_AI_NAMES",
        "TOKENGAUGE_IDENTITY_KEY",
        "TOKENGAUGE_KEEP_UNSAMPLED_FAILURES",
        "TOKENGAUGE_LOG_LEVEL",
        "TOKENGAUGE_OTLP_MAX_REQUEST_BYTES",
        "TOKENGAUGE_POSITION",
        "TOKENGAUGE_TLS_CERT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "OTEL_PROPAGATORS",
        "OTEL_SERVICE_NAME",
        "OTEL_TRACES_SAMPLER",
        "HTTPS_PROXY",
        "NO_PROXY",
    ];
    for value in ["", " "] {
        let variables = names.map(|name| (name, value));
        let process = Process::start(&["--upstream", "http://127.0.0.1:9"], &variables).await;
        assert!(process.page("/config").await.0.starts_with("HTTP/1.1 200"), "no token is needed");
        let log = process.log();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    }
}
