//! Tests routes whose requests are forwarded but not observed, such as health checks.

use crate::support::Backend;
use crate::support::process::Process;

#[tokio::test]
async fn requests_of_a_route_that_is_not_observed_are_only_counted() {
    let backend = Backend::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("c.yaml"), folder.path().join("requests.jsonl"));
    let text = format!(
        "upstreams: {{a: {{url: \"http://{}\"}}}}\nroutes:\n- {{upstream: a}}\n- {{name: health, match: {{prefix: /health}}, \
         upstream: a, observe: false}}\ntrace_context: continue\nrequest_log: {{path: {}}}\n",
        backend.address,
        log.display()
    );
    std::fs::write(&file, text).unwrap();
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    let parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let get = async |path: &str| {
        let mut client = process.client().await;
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{parent}\r\n\r\n");
        client.write(head).await;
        let mut upstream = backend.accept().await;
        let head = upstream.read_head().await;
        upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
        let answer = String::from_utf8(client.read_to_end().await).unwrap();
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        head
    };
    for path in ["/health", "/health/live", "/healthz", "/v1/models"] {
        let head = get(path).await;
        let is_unchanged = head.contains(parent);
        assert_eq!(is_unchanged, path.starts_with("/health") && path != "/healthz", "{head}");
    }
    while process.count(&["tokengauge_requests_finished_total"]).await < 2 {}
    assert_eq!(process.count(&["tokengauge_requests_finished_total"]).await, 2);
    assert_eq!(process.count(&["tokengauge_requests_started_total"]).await, 2);
    assert_eq!(process.count(&["tokengauge_self_requests_not_observed_total"]).await, 2);
    let (_, page) = process.page("/metrics").await;
    assert!(!page.contains("tokengauge_route=\"health\""), "{page}");
    let mut lines = String::new();
    while lines.lines().count() < 2 {
        lines = std::fs::read_to_string(&log).unwrap();
    }
    assert!(lines.contains("/healthz") && lines.contains("/v1/models"), "{lines}");
    assert!(!lines.contains("/health\"") && !lines.contains("/health/live"), "{lines}");
}
