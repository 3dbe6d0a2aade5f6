//! Tests the life of the real program: start, reload, drain, flush at shutdown, and a second signal.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::collector::Collector;
use crate::support::process::{CALL, DONE, PROGRAM, Process, open};
use crate::support::{Backend, within};

/// Starts the program with telemetry export to `collector`.
async fn exporting(backend: &Backend, collector: std::net::SocketAddr) -> Process {
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*format!("http://{collector}")),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ];
    let upstream = format!("http://{}", backend.address);
    Process::start(&["--upstream", &upstream], &environment).await
}

#[tokio::test]
async fn a_stream_survives_sigterm_and_its_spans_arrive() {
    let backend = Backend::start().await;
    let collector = Collector::start().await;
    let mut process = exporting(&backend, collector.address).await;
    assert!(process.page("/readyz").await.0.starts_with("HTTP/1.1 200 "));
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    process.signal("TERM");
    process.logged(&["draining", "\"exchanges\":1"]).await;
    assert!(process.page("/readyz").await.0.starts_with("HTTP/1.1 503 "));
    assert!(process.page("/livez").await.0.starts_with("HTTP/1.1 200 "));
    within("connections to be refused", async {
        while TcpStream::connect(process.address).await.is_ok() {}
    })
    .await;
    upstream.write(DONE).await;
    assert_eq!(client.read_to_end().await, DONE.as_bytes());
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(process.log().contains("\"stopped\""), "{}", process.log());
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "expected one span per side: {spans:?}");
    for span in spans {
        let outcome = span.attributes.iter();
        let outcome = outcome.filter(|it| it.key == "tokengauge.outcome");
        assert!(outcome.map(|it| format!("{it:?}")).any(|it| it.contains("\"ok\"")));
    }
}

/// Tests that the simulated backend handles signals. Without a handler, the kernel ignores signals to the first process
/// of a container.
#[test]
fn the_simulated_backend_exits_after_sigterm() {
    for signal in ["TERM", "INT"] {
        let mut child = Command::new(PROGRAM)
            .args(["simulate", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut said).unwrap();
        assert!(said.contains("simulated backend on http://"), "{said}");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "SIG{signal}");
    }
}

#[tokio::test]
async fn a_second_signal_exits_immediately() {
    let backend = Backend::start().await;
    let mut process = Process::before(backend.address).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    process.signal("TERM");
    process.logged(&["draining"]).await;
    process.signal("INT");
    assert_eq!(process.ended().await.code(), Some(143));
    assert_eq!(client.read_to_end().await, b"", "the stream is aborted");
    assert_eq!(upstream.read_to_end().await, b"");
}

#[tokio::test]
async fn a_hung_collector_delays_the_exit_only_by_the_flush_timeout() {
    let backend = Backend::start().await;
    let silent = Backend::start().await;
    let mut process = exporting(&backend, silent.address).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    upstream.write(DONE).await;
    client.read_exactly(DONE.len()).await;
    process.signal("TERM");
    // The flush timeout is 1.5 s. The rest of the limit is for a busy machine.
    let ended = tokio::time::timeout(Duration::from_secs(10), process.ended()).await;
    assert_eq!(ended.unwrap().code(), Some(0));
    process.logged(&["\"telemetry_flushed\":false"]).await;
    let lost = [
        "\"telemetry was lost\"",
        "\"spans\":2",
        "\"log_records\":0",
        "\"last_metrics_delivered\":false",
    ];
    process.logged(&lost).await;
}

#[tokio::test]
async fn logs_the_addresses_and_the_first_call_once() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    process.logged(&["OTLP export is off"]).await;
    process.logged(&["admin port listening", "/metrics\""]).await;
    for _ in 0..2 {
        let (mut client, mut upstream) = open(&process, &backend, CALL).await;
        upstream.write(DONE).await;
        client.read_exactly(DONE.len()).await;
    }
    let first =
        ["first call measured", "\"model\":\"gpt-4o\"", "\"outcome\":\"ok\"", "\"ttft_s\":"];
    process.logged(&first).await;
    while process.count(&["requests_finished_total"]).await < 2 {}
    assert_eq!(process.log().matches("first call measured").count(), 1);
}

#[tokio::test]
async fn logs_dropped_telemetry_only_at_the_end() {
    let backend = Backend::start().await;
    let gone = Backend::start().await.address;
    let mut process = exporting(&backend, gone).await;
    for _ in 0..2 {
        let (mut client, mut upstream) = open(&process, &backend, CALL).await;
        upstream.write(DONE).await;
        client.read_exactly(DONE.len()).await;
        // Dropping both connections also closes the upstream connection, so the next exchange opens another one.
        drop((client, upstream));
    }
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    let log = process.log();
    let told = log.matches("\"telemetry was lost\",\"spans\":4,").count();
    assert_eq!(told, 1, "the number includes failed exports: {log}");
}

#[tokio::test]
async fn a_signal_during_a_hung_flush_exits_immediately() {
    let backend = Backend::start().await;
    let silent = Backend::start().await;
    let mut process = exporting(&backend, silent.address).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    upstream.write(DONE).await;
    client.read_exactly(DONE.len()).await;
    process.signal("TERM");
    // After the program has sent an export, its flush is in progress.
    silent.accept().await.read_head().await;
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(143));
}

#[tokio::test]
async fn reports_start_reload_and_stop_to_the_service_manager() {
    let backend = Backend::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (file, path) = (directory.path().join("c.yaml"), directory.path().join("notify"));
    replace(&file, &written(&[("one", &backend)], "").replace("0s", "1h"));
    let manager = tokio::net::UnixDatagram::bind(&path).unwrap();
    let received = async || {
        let mut message = vec![0; 1_024];
        let length = within("a message", manager.recv(&mut message)).await.unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let arguments = ["--config", file.to_str().unwrap()];
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut process = Process::start(&arguments, &variables).await;
    assert_eq!(received().await, "READY=1\nSTATUS=serving");
    for (text, status) in [("nonsense: 1\n", "serving with the previous"), ("", "serving")] {
        replace(&file, &(written(&[("one", &backend)], "").replace("0s", "7s") + text));
        process.signal("HUP");
        assert_eq!(received().await, "RELOADING=1");
        let ready = received().await;
        assert!(ready.starts_with(&format!("READY=1\nSTATUS={status}")), "{ready}");
    }
    process.signal("TERM");
    let stopping = received().await;
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");
    // The grace period of the last valid configuration.
    assert!(stopping.ends_with("\nEXTEND_TIMEOUT_USEC=12000000"), "{stopping}");
    assert_eq!(process.ended().await.code(), Some(0));
}

/// Replaces `file` atomically, as an editor or Kubernetes does.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// Returns a configuration with one route per upstream, selected by path prefix. Its drain ends immediately.
fn written(upstreams: &[(&str, &Backend)], objectives: &str) -> String {
    let upstream = |(name, backend): &(&str, &Backend)| {
        format!("  {name}: {{url: \"http://{}\", pool: {{idle_timeout: 5m}}}}\n", backend.address)
    };
    let route = |(name, _): &(&str, &Backend)| {
        format!("  - {{upstream: {name}, match: {{prefix: /{name}}}, strip_prefix: true}}\n")
    };
    let upstreams_text: String = upstreams.iter().map(upstream).collect();
    let routes: String = upstreams.iter().map(route).collect();
    format!(
        "version: 1\nshutdown_grace_period: 0s\nupstreams:\n{upstreams_text}routes:\n{routes}{objectives}"
    )
}

const OBJECTIVES: &str = "slos:\n  - {name: uptime, sli: availability, target: 0.9}\n";

#[tokio::test]
async fn a_reload_changes_routes_upstreams_and_objectives_under_an_open_stream() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    replace(&file, &written(&[("one", &first)], "").replace("0s", "1h"));
    let mut process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    let (mut client, mut upstream) = open(&process, &first, "/one/v1/chat/completions").await;
    assert!(process.page("/slo").await.1.contains("ttft"));

    replace(&file, &written(&[("two", &second)], OBJECTIVES));
    process.signal("HUP");
    process.logged(&["configuration reloaded"]).await;
    let slo = process.page("/slo").await.1;
    assert!(slo.contains("uptime") && !slo.contains("ttft"), "{slo}");
    let (_, config) = process.page("/config").await;
    assert!(config.contains(&second.address.to_string()), "{config}");
    let (mut to_second, mut at_second) = open(&process, &second, "/two/v1/chat/completions").await;
    let mut nowhere = process.client().await;
    nowhere.write("GET /one/v1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(nowhere.read_head().await.starts_with("HTTP/1.1 404 "));
    upstream.write(DONE).await;
    assert_eq!(client.read_exactly(DONE.len()).await, DONE.as_bytes());

    let bad = written(&[("one", &first)], "slos: [{name: bad}]\nnonsense: 1\n");
    replace(&file, &bad);
    process.signal("HUP");
    let log = process.logged(&["configuration reload failed"]).await;
    assert!(
        log.contains("nonsense") && log.contains("slos[0].sli"),
        "all errors are logged: {log}"
    );
    assert_eq!(process.page("/config").await.1, config);
    at_second.write("data: ").await;
    to_second.read_exactly(6).await;

    // The reloaded drain timeout applies. With the first configuration, this stream would delay the shutdown for an
    // hour.
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(process.log().contains("\"exchanges_cut\":1"), "{}", process.log());
}

#[tokio::test]
async fn an_unchanged_upstream_keeps_its_connections_after_a_reload() {
    let backend = Backend::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    replace(&file, &written(&[("one", &backend)], ""));
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    let (mut client, mut upstream) = open(&process, &backend, "/one/v1/chat/completions").await;
    upstream.write(DONE).await;
    client.read_exactly(DONE.len()).await;
    replace(&file, &written(&[("one", &backend)], OBJECTIVES));
    process.signal("HUP");
    process.logged(&["configuration reloaded"]).await;
    client.write("GET /one/v1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(upstream.read_head().await.starts_with("GET /v1 "));
}

#[cfg(feature = "hf-tokenizers")]
#[tokio::test]
async fn uses_the_configured_tokenizer_and_a_reload_applies_to_later_requests() {
    let backend = Backend::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (file, letters) = (directory.path().join("c.yaml"), directory.path().join("letters.json"));
    let model = r#"{"model": {"type": "BPE", "vocab": {"H": 0, "i": 1}, "merges": []}}"#;
    std::fs::write(&letters, model).unwrap();
    let tokenizers = format!("tokenizers: {{\"gpt-*\": {}}}\n", letters.display());
    replace(&file, &written(&[("one", &backend)], &tokenizers));
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    let first = open(&process, &backend, "/one/v1/chat/completions").await;
    replace(&file, &written(&[("one", &backend)], ""));
    process.signal("HUP");
    process.logged(&["configuration reloaded"]).await;
    let second = open(&process, &backend, "/one/v1/chat/completions").await;
    for (mut client, mut upstream) in [first, second] {
        upstream.write(DONE).await;
        client.read_exactly(DONE.len()).await;
    }
    let ok = ["requests_finished_total", "tokengauge_outcome=\"ok\""];
    within("the ends", async { while process.count(&ok).await != 2 {} }).await;
    let output = ["tokengauge_tokens_total{", "gen_ai_token_type=\"output\""];
    assert_eq!(process.count(&output).await, 3, "one token per letter, then the tokens of gpt-4o");
}
