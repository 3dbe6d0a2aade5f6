//! Tests faults of the collector.

use std::fs;

use crate::support::certificate::Certificate;
use crate::support::collector::Collector;
use crate::support::process::{CALL, DONE, Process, open};
use crate::support::{Backend, within};

/// Performs one call that succeeds.
async fn call(process: &Process, backend: &Backend) {
    let (mut client, mut upstream) = open(process, backend, CALL).await;
    upstream.write(DONE).await;
    client.read_until(DONE).await;
}

#[tokio::test]
async fn an_expired_certificate_of_the_collector_is_logged_once_and_drops_are_counted() {
    let [expired, valid] = [Certificate::expired(), Certificate::new()];
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("ca.pem");
    let both = [&expired, &valid].map(|certificate| fs::read(certificate.file()).unwrap());
    fs::write(&trusted, both.concat()).unwrap();
    let collector = Collector::start().await;
    collector.present(&expired);
    let backend = Backend::start().await;
    let process = Process::start(
        &["--upstream", &format!("http://{}", backend.address)],
        &[
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                &format!("https://localhost:{}", collector.address.port()),
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", trusted.to_str().unwrap()),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ],
    )
    .await;
    // Each call has a span of the request and one of the model.
    for lost in [2, 4] {
        call(&process, &backend).await;
        within("dropped spans", async {
            while process.count(&["self_export_dropped_total", "\"traces\""]).await < lost {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let failed = "OTLP export failed";
    let log = process.logged(&[failed, "traces", "certificate expired"]).await;
    assert_eq!(log.matches(failed).count(), 1, "{log}");
    assert!(collector.bytes().is_empty());

    collector.present(&valid);
    call(&process, &backend).await;
    process.logged(&["OTLP export recovered", "traces"]).await;
    within("the spans", async {
        while collector.spans().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(collector.spans().len(), 2);
    assert_eq!(process.count(&["self_export_dropped_total", "\"traces\""]).await, 4);
}

/// Starts a proxy whose collector can only be reached through the HTTP proxy `proxy`.
async fn behind(proxy: &Backend, endpoint: &str, more: &[(&str, &str)]) -> Process {
    let address = format!("http://me:s%40crt@{}", proxy.address);
    let mut variables = vec![
        ("HTTPS_PROXY", address.as_str()),
        ("http_proxy", address.as_str()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ];
    variables.extend(more);
    Process::start(&["--upstream", "http://127.0.0.1:9"], &variables).await
}

/// The credentials of [`behind`] as a header line.
const AUTHORIZATION: &str = "Basic bWU6c0BjcnQ=";

#[tokio::test]
async fn exports_follow_the_proxy_variables() {
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    for (endpoint, more, request) in [
        (
            "http://collector.invalid:4318",
            None,
            "POST http://collector.invalid:4318/v1/metrics HTTP/1.1",
        ),
        ("https://collector.invalid:4318", None, "CONNECT collector.invalid:4318 HTTP/1.1"),
        ("https://collector.invalid", None, "CONNECT collector.invalid:443 HTTP/1.1"),
        ("http://collector.invalid:4317", Some(grpc), "CONNECT collector.invalid:4317 HTTP/1.1"),
        ("https://[2001:db8::1]:4317", Some(grpc), "CONNECT [2001:db8::1]:4317 HTTP/1.1"),
    ] {
        let proxy = Backend::start().await;
        let process = behind(&proxy, endpoint, more.as_slice()).await;
        let mut stream = proxy.accept().await;
        let head = stream.read_head().await;
        assert!(head.starts_with(&format!("{request}\r\n")), "{endpoint}: {head}");
        let authorization = head.to_ascii_lowercase().contains("proxy-authorization: basic");
        assert!(authorization && head.contains(AUTHORIZATION), "{endpoint}: {head}");
        if request.starts_with("CONNECT") {
            stream.write("HTTP/1.1 200 OK\r\n\r\n").await;
            // A TLS handshake, or the preface of HTTP/2.
            let first = if endpoint.starts_with("https") { b"\x16\x03" } else { b"PR" };
            assert_eq!(stream.read_exactly(2).await, first, "{endpoint}");
        }
        let log = process.logged(&["OTLP export: metrics to "]).await;
        assert!(log.contains(&format!(" through {}", proxy.address)), "{log}");
        assert!(!log.contains("crt"), "{log}");
    }
}

#[tokio::test]
async fn exports_are_direct_to_the_hosts_of_no_proxy_and_to_loopback() {
    for (endpoint, no_proxy) in [
        ("http://collector.invalid:4318", "collector.invalid"),
        ("http://a.collector.invalid:4318", "other,.collector.invalid"),
        ("http://127.0.0.1:9", ""),
    ] {
        let proxy = Backend::start().await;
        let process = behind(&proxy, endpoint, &[("NO_PROXY", no_proxy)]).await;
        process.logged(&["OTLP export failed"]).await;
        assert!(!proxy.has_another().await, "{endpoint}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_http_proxy_is_logged_with_its_status() {
    let proxy = Backend::start().await;
    let process = behind(&proxy, "https://collector.invalid", &[]).await;
    // The first attempt and three retries.
    for _ in 0..4 {
        let mut stream = proxy.accept().await;
        stream.read_head().await;
        stream.write("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    }
    process.logged(&["OTLP export failed", "answered CONNECT with 407"]).await;
}

#[tokio::test]
async fn certificates_of_the_collector_are_read_again_after_a_change_and_after_sighup() {
    let [first, second] = [Certificate::new(), Certificate::new()];
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("ca.pem");
    fs::copy(first.file(), &trusted).unwrap();
    let collector = Collector::start().await;
    collector.present(&second);
    let backend = Backend::start().await;
    let endpoint = format!("https://localhost:{}", collector.address.port());
    let process = Process::start(
        &["--upstream", &format!("http://{}", backend.address)],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", trusted.to_str().unwrap()),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "3600000"),
        ],
    )
    .await;
    // An unusable file is reported, and found again as soon as it is corrected.
    fs::write(&trusted, "no certificate").unwrap();
    process.signal("HUP");
    process.logged(&["certificate reload failed", "ca.pem"]).await;
    fs::copy(second.file(), &trusted).unwrap();
    // The change is found without a signal.
    within("a reload without an error", async {
        let count = |message: &str| process.log().matches(message).count();
        while count("configuration reloaded") <= count("certificate reload failed") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    process.signal("TERM");
    within("the last metrics", async {
        while collector.metrics().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
