//! Tests what a reload reads again, and what stays in force until a restart.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::support::certificate::Certificate;
use crate::support::process::{PROGRAM, Process};
use crate::support::{Backend, Raw, within};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// Writes a configuration file with one upstream. `more` has further lines.
fn configuration(upstream: &str, more: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    rewrite(&file, upstream, more);
    (directory, file)
}

fn rewrite(file: &Path, upstream: &str, more: &str) {
    let text = format!("version: 1\nupstreams: {{a: {{{upstream}}}}}\n{more}");
    std::fs::write(file, text).unwrap();
}

/// Sends SIGHUP and waits until the log has one more line with `message`.
async fn reloaded(process: &Process, message: &str) -> String {
    let before = process.log().matches(message).count();
    process.signal("HUP");
    within(message, async {
        while process.log().matches(message).count() == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    process.log().lines().rfind(|line| line.contains(message)).unwrap().to_owned()
}

#[tokio::test]
async fn a_rotated_certificate_is_served_after_sighup() {
    let backend = Backend::start().await;
    let certificate = Certificate::new();
    let upstream = format!("http://{}", backend.address);
    let (file, key) = (certificate.file(), certificate.key());
    let tls = ["--tls-cert", file.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let process = Process::start(&[&["--upstream", &upstream][..], &tls[..]].concat(), &[]).await;
    let connect = || async {
        let stream = TcpStream::connect(process.address).await.unwrap();
        certificate.try_connect(stream, &["http/1.1"]).await
    };
    let mut open = Raw(within("handshake", connect()).await.unwrap());

    let current = ["tokengauge_self_config_last_reload_successful"];
    let expiry = process.seconds(&["tokengauge_self_certificate_expiry_seconds", "cert.pem"]).await;
    let next_year = process.seconds(&["process_start_time_seconds"]).await + 31_536_000.0;
    assert!(expiry > next_year, "{expiry}");
    assert!(process.seconds(&current).await > 0.5, "the configuration is current");

    certificate.rotate();
    assert!(within("handshake", connect()).await.is_err(), "the old certificate is in force");
    reloaded(&process, "configuration reloaded").await;
    let mut new = Raw(within("handshake", connect()).await.unwrap());

    std::fs::write(&key, "").unwrap();
    let line = reloaded(&process, "certificate reload failed").await;
    assert!(line.contains("key.pem"), "{line}");
    assert!(within("handshake", connect()).await.is_ok(), "the previous certificate stays");
    assert!(process.seconds(&current).await < 0.5, "the key is unusable");
    for client in [&mut open, &mut new] {
        client.write(GET).await;
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(OK).await;
        client.read_until("\r\n\r\nok").await;
    }
}

#[tokio::test]
async fn a_rotated_ca_file_is_trusted_after_sighup() {
    let certificate = Certificate::new();
    let backend = Backend::start().await;
    let upstream = format!(
        "url: \"https://localhost:{}\", ca_file: {}",
        backend.address.port(),
        certificate.file().display()
    );
    let (_directory, file) = configuration(&upstream, "");
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    for round in 0..2 {
        let mut client = process.client().await;
        client.write(GET).await;
        let accepting = certificate.acceptor().accept(backend.accept().await.0);
        let upstream = within("handshake", accepting).await;
        let mut upstream = Raw(upstream.unwrap_or_else(|error| panic!("round {round}: {error}")));
        upstream.read_head().await;
        upstream.write(OK).await;
        client.read_until("\r\n\r\nok").await;
        certificate.rotate();
        reloaded(&process, "configuration reloaded").await;
    }
}

/// Returns the request headers of the next scrape that trusts the certificate. A scrape that began before the reload does
/// not trust a new certificate.
async fn accept_scrape(certificate: &Certificate, engine: &Backend) -> String {
    loop {
        let accepting = certificate.acceptor().accept(engine.accept().await.0);
        if let Ok(stream) = accepting.await {
            return Raw(stream).read_head().await;
        }
    }
}

#[tokio::test]
async fn a_rotated_ca_file_is_trusted_for_engine_metrics_after_sighup() {
    let certificate = Certificate::new();
    let engine = Backend::start().await;
    let upstream = format!(
        "url: \"https://localhost:{}\", ca_file: {}, engine_metrics: {{scrape_interval: 1s}}",
        engine.address.port(),
        certificate.file().display()
    );
    let (_directory, file) = configuration(&upstream, "");
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    for round in 0..2 {
        let head = within("a scrape", accept_scrape(&certificate, &engine)).await;
        assert!(head.starts_with("GET /metrics "), "round {round}: {head}");
        certificate.rotate();
        reloaded(&process, "configuration reloaded").await;
    }
}

#[tokio::test]
async fn keys_that_need_a_restart_stay_in_force_and_each_reload_names_them() {
    let backend = Backend::start().await;
    let upstream = format!("url: \"http://{}\"", backend.address);
    let (_directory, file) =
        configuration(&upstream, "cardinality_limits: {models: 7}\nshutdown_grace_period: 9s\n");
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;

    for more in ["", "position: gateway\n"] {
        rewrite(
            &file,
            &upstream,
            &format!("cardinality_limits: {{models: 8}}\nshutdown_grace_period: 8s\n{more}"),
        );
        let line = reloaded(&process, "configuration reloaded").await;
        assert!(line.contains("cardinality_limits"), "{line}");
        let config = process.page("/config").await.1;
        assert!(
            config.contains("models: 7") && config.contains("shutdown_grace_period: 8s"),
            "{config}"
        );
    }
    rewrite(&file, &upstream, "cardinality_limits: {models: 7}\nshutdown_grace_period: 8s\n");
    let line = reloaded(&process, "configuration reloaded").await;
    assert!(!line.contains("cardinality_limits"), "{line}");
}

/// A pipe without a writer blocks its reader.
#[tokio::test]
async fn a_pipe_in_place_of_a_file_is_an_error() {
    let backend = Backend::start().await;
    let upstream = format!("url: \"http://{}\"", backend.address);
    let (directory, file) = configuration(&upstream, "shutdown_grace_period: 0s\n");
    let mut process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    process.signal("HUP");
    process.logged(&["configuration reload failed", "not a regular file"]).await;
    let [successful, time] = ["successful", "time_seconds"]
        .map(|end| format!("tokengauge_self_config_last_reload_{end}"));
    assert!(process.seconds(&[&successful]).await < 0.5, "the load has failed");
    let loaded = process.seconds(&[&time]).await;
    assert!(loaded > 1.7e9, "{loaded}");
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));

    let run = Command::new(PROGRAM).args(["run", "--config"]).arg(&file).output().unwrap();
    let message = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success() && message.contains("not a regular file"), "{message}");
}
