//! Tests what a new user reads in the log: addresses, mistakes in the environment, outages.

use std::process::Command;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use crate::support::certificate::Certificate;
use crate::support::process::{CALL, PROGRAM, Process};
use crate::support::{Backend, Raw};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Returns the lines of the log with this message.
fn messages(log: &str, message: &str) -> Vec<Value> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["message"] == message).collect()
}

#[tokio::test]
async fn a_proxy_variable_of_an_unsupported_kind_does_not_prevent_the_start() {
    let backend = Backend::start().await;
    let upstream = format!("http://{}", backend.address);
    let environment = [("ALL_PROXY", "socks5://me:secret@proxy.example:1080")];
    let process = Process::start(&["--upstream", &upstream], &environment).await;
    let mut client = process.client().await;
    client.write(GET).await;
    backend.accept().await.read_head().await;
    let log = process.log();
    assert!(log.contains("ALL_PROXY: proxies over socks5:// are not supported"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test]
async fn an_outage_of_the_upstream_leaves_one_warning_and_its_end_another_line() {
    let address = Backend::start().await.address;
    let process = Process::before(address).await;
    for _ in 0..3 {
        let mut client = process.client().await;
        client.write(GET).await;
        let answer = String::from_utf8(client.read_to_end().await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
    let listener = TcpListener::bind(address).await.unwrap();
    let mut client = process.client().await;
    client.write(GET).await;
    let mut upstream = Raw(listener.accept().await.unwrap().0);
    upstream.read_head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    client.read_head().await;
    let log = process.logged(&["upstream recovered"]).await;
    let failed = messages(&log, "upstream failed");
    let [warning] = failed.as_slice() else { panic!("{log}") };
    assert_eq!(
        [&warning["level"], &warning["upstream"], &warning["address"]],
        ["WARN", "default", &address.to_string()]
    );
    let problem = warning["problem"].as_str().unwrap();
    assert!(problem.contains("Connection refused"), "{problem}");
    let recovered = messages(&log, "upstream recovered");
    assert_eq!(recovered.len(), 1, "{log}");
    assert_eq!(
        (&recovered[0]["level"], &recovered[0]["failed_requests"]),
        (&"INFO".into(), &3.into())
    );
    assert!(recovered[0]["outage"].is_string(), "{log}");
}

#[tokio::test]
async fn tls_on_a_plain_port_and_plain_http_on_a_tls_port_leave_one_line_each() {
    let certificate = Certificate::new();
    let backend = Backend::start().await;
    let upstream = format!("http://{}", backend.address);
    let plain = Process::start(&["--upstream", &upstream], &[]).await;
    for _ in 0..2 {
        let stream = TcpStream::connect(plain.address).await.unwrap();
        assert!(certificate.try_connect(stream, &[]).await.is_err());
    }
    let message = "a client starts TLS, but this listener has none; let the client use http://, or configure a \
                   certificate";
    let log = plain.logged(&[message]).await;
    let lines = messages(&log, message);
    assert_eq!((lines.len(), &lines[0]["level"]), (1, &"WARN".into()), "{log}");
    assert!(lines[0]["listener"].as_str().unwrap().starts_with("127.0.0.1:"), "{log}");

    let files = [certificate.file(), certificate.key()].map(|file| file.display().to_string());
    let arguments = ["--upstream", &upstream, "--tls-cert", &files[0], "--tls-key", &files[1]];
    let tls = Process::start(&arguments, &[]).await;
    for _ in 0..2 {
        let mut client = tls.client().await;
        client.write(GET).await;
        client.read_to_end().await;
    }
    let message = "a client does not use TLS, but this listener does; let the client use https://";
    let log = tls.logged(&[message]).await;
    assert_eq!(messages(&log, message).len(), 1, "{log}");
}

#[tokio::test]
async fn a_failed_export_names_the_collector_and_the_cause_without_credentials() {
    let backend = Backend::start().await;
    let upstream = format!("http://{}", backend.address);
    let gone = Backend::start().await.address;
    let endpoint = format!("http://me:hunter2@{gone}/base?key=hunter3");
    for protocol in ["http/protobuf", "grpc"] {
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ];
        let process = Process::start(&["--upstream", &upstream], &environment).await;
        process.logged(&["OTLP export failed"]).await;
        let is_exported = ["tokengauge_self_export_requests_total", "failed"];
        while process.count(&is_exported).await < 3 {}
        let log = process.log();
        let failed = messages(&log, "OTLP export failed");
        let [failed] = failed.as_slice() else { panic!("one line per outage: {log}") };
        let shown = failed["endpoint"].as_str().unwrap();
        assert!(shown.contains(&gone.to_string()), "{shown}");
        let problem = failed["problem"].as_str().unwrap();
        assert!(problem.contains("Connection refused"), "{problem}");
        assert!(!log.contains("hunter"), "{log}");
    }
}

#[tokio::test]
async fn localhost_is_an_address_to_listen_on() {
    let backend = Backend::start().await;
    let upstream = format!("http://{}", backend.address);
    let arguments = ["--listen", "localhost:0", "--admin", "localhost:0", "--upstream", &upstream];
    let process = Process::start(&arguments, &[]).await;
    assert!(process.address.ip().is_loopback() && process.admin.ip().is_loopback());
    assert!(process.page("/livez").await.0.starts_with("HTTP/1.1 200 "));
    assert_eq!(messages(&process.log(), "listening").len(), 2);
}

#[tokio::test]
async fn the_log_has_the_port_of_each_listener() {
    let backend = Backend::start().await;
    let upstream = format!("http://{}", backend.address);
    let process = Process::start(&["--listen", "127.0.0.1:0", "--upstream", &upstream], &[]).await;
    let listening = messages(&process.log(), "listening");
    assert_eq!(listening.len(), 2, "{listening:?}");
    for line in listening {
        let address = line["address"].as_str().unwrap().parse().unwrap();
        Raw::connect(address).await;
    }
}

#[tokio::test]
async fn a_misspelt_variable_is_logged() {
    let environment = [("TOKENGAUGE_LOG_LEVL", "debug")];
    let process = Process::start(&["--upstream", "http://127.0.0.1:9"], &environment).await;
    process.logged(&["WARN", "TOKENGAUGE_LOG_LEVL", "did you mean TOKENGAUGE_LOG_LEVEL?"]).await;
}

#[tokio::test]
async fn a_first_call_without_a_response_has_the_requested_model() {
    let process = Process::before(Backend::start().await.address).await;
    let mut client = process.client().await;
    let body = "{\"model\":\"gpt-4o\",\"messages\":[]}";
    let length = body.len();
    let request = format!(
        "POST {CALL} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    client.write(request).await;
    client.read_to_end().await;
    let log = process.logged(&["first call measured"]).await;
    let message = "first call measured; /stats and /metrics of the admin port have all calls";
    let call = &messages(&log, message)[0];
    assert_eq!((&call["model"], &call["status"]), (&"gpt-4o".into(), &502.into()), "{call}");
}

#[tokio::test]
async fn invalid_settings_end_with_the_page_that_describes_them() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "upstreams: {a: {url: \"http://a\"}}\nadmin: {address: box}\n")
        .unwrap();
    for arguments in [["check"].as_slice(), &["run", "--config"]] {
        let output = Command::new(PROGRAM).args(arguments).arg(file.path()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        let expected = concat!(
            "\ndocumentation: ",
            env!("CARGO_PKG_REPOSITORY"),
            "/blob/main/docs/reference/configuration.md#admin-port\n"
        );
        assert!(!output.status.success() && message.ends_with(expected), "{message}");
    }
}

#[test]
fn completions_have_the_flags_and_are_valid() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(PROGRAM).args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["request-log", "uninject", "probe"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        if shell == "bash" {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), script).unwrap();
            let completed = "source \"$0\"; COMP_WORDS=(tokengauge run --request); COMP_CWORD=2; \
                             _tokengauge tokengauge --request run; echo \"${COMPREPLY[@]}\"";
            let output =
                Command::new("bash").args(["-c", completed]).arg(file.path()).output().unwrap();
            let reply = String::from_utf8(output.stdout).unwrap();
            assert_eq!(reply, "--request-log\n", "{:?}", String::from_utf8(output.stderr));
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let output = Command::new(PROGRAM).arg("man").arg(&pages).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for command in ["tokengauge", "tokengauge-run", "tokengauge-check", "tokengauge-completions"] {
        let page = std::fs::read_to_string(pages.join(format!("{command}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
    }
    let run = std::fs::read_to_string(pages.join("tokengauge-run.1")).unwrap();
    assert!(run.contains("request\\-log"), "{run}");
}
