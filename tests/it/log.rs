//! Tests a standard error that no process reads, for example while a container runtime restarts.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;

use crate::support::process::{CALL, DONE, Process, open};
use crate::support::{Backend, Raw, within};

const STREAMS: usize = 8;
const REQUESTS: usize = 20;

/// Starts a proxy with two routes: `/v1` leads to `backend`, and `/dead` to an address that refuses connections. Each
/// failed request of the latter can log a line.
async fn start(backend: &Backend, more: &[&str]) -> Process {
    let dead = Backend::start().await.address;
    let [upstream, dead] =
        [format!("/=http://{}", backend.address), format!("/dead=http://{dead}")];
    let arguments = ["--upstream", &upstream, "--upstream", &dead];
    Process::start(&[&arguments[..], more].concat(), &[]).await
}

async fn get(process: &Process, path: &str) -> String {
    let mut client = process.client().await;
    client.write(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
    String::from_utf8(client.read_to_end().await).unwrap()
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_neither_requests_nor_the_shutdown() {
    let backend = Backend::start().await;
    let mut process = start(&backend, &[]).await;
    process.stop_reading_log();
    // Both lines are logged by the main thread, which also handles signals.
    process.signal("HUP");
    process.signal("HUP");
    for _ in 0..REQUESTS {
        assert!(get(&process, "/dead").await.starts_with("HTTP/1.1 502"));
    }
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(open(&process, &backend, CALL).await);
    }
    for (client, upstream) in &mut streams {
        upstream.write(DONE).await;
        client.read_until(DONE).await;
    }
    for page in ["/livez", "/readyz", "/metrics"] {
        assert!(process.page(page).await.0.starts_with("HTTP/1.1 200"), "{page}");
    }
    process.signal("TERM");
    assert!(process.exited().await.success());
}

#[tokio::test]
async fn lines_lost_by_a_full_log_are_counted_and_reported_once_it_is_read_again() {
    let backend = Backend::start().await;
    let process = start(&backend, &["--log-level", "trace"]).await;
    process.stop_reading_log();
    // The HTTP/2 implementation logs several lines per frame at the level trace.
    let mut client = process.client().await;
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
    client.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.write([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    let counter = ["self_log_dropped_total", "queue_full"];
    within("lost lines", async {
        while process.count(&counter).await == 0 {
            client.write(ping.repeat(100)).await;
            read_available(&mut client);
        }
    })
    .await;
    drop(client);
    process.read_log_again();
    let log =
        process.logged(&["log lines were lost because standard error was not writable"]).await;
    let reported: u64 = log.lines().filter_map(lost_lines).sum();
    assert!(reported > 0, "{reported}");
    within("a report of each lost line", async {
        while process.log().lines().filter_map(lost_lines).sum::<u64>()
            < process.count(&["self_log_dropped_total"]).await
        {
            get(&process, "/dead").await;
        }
    })
    .await;
}

/// Discards the bytes that have arrived, so that the peer can write more.
fn read_available(client: &mut Raw<tokio::net::TcpStream>) {
    let mut bytes = [0; 64 << 10];
    while client.0.try_read(&mut bytes).is_ok_and(|read| read > 0) {}
}

/// Returns the number of lines that a line of the log reports as lost.
fn lost_lines(line: &str) -> Option<u64> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["message"].as_str()?.contains("log lines were lost").then(|| line["lost"].as_u64())?
}

#[tokio::test]
async fn the_webhook_serves_and_ends_with_a_log_that_nobody_reads() {
    let certificate = crate::support::certificate::Certificate::new();
    let (file, key) = (certificate.file(), certificate.key());
    let arguments =
        ["--image", "i:1", "--cert", file.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let mut process = Process::injector(&arguments).await;
    process.stop_reading_log();
    assert!(process.page("/livez").await.0.starts_with("HTTP/1.1 200"));
    process.signal("TERM");
    assert!(process.exited().await.success());
}

#[tokio::test]
async fn a_service_that_cannot_start_ends_with_a_log_that_nobody_reads() {
    let taken = Backend::start().await;
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    fill(&path);
    let mut child = std::process::Command::new(crate::support::process::PROGRAM)
        .args(["run", "--listen", &taken.address.to_string(), "--upstream", "http://127.0.0.1:9"])
        .args(["--admin", "127.0.0.1:0"])
        .env_clear()
        .stderr(writer)
        .spawn()
        .unwrap();
    let waiting = tokio::task::spawn_blocking(move || child.wait().unwrap());
    assert!(!within("the end", waiting).await.unwrap().success());
    drop(reader);
}

/// Writes to a pipe until it is full.
pub fn fill(path: &str) {
    let mut pipe = OpenOptions::new().write(true).custom_flags(NON_BLOCKING).open(path).unwrap();
    while pipe.write(&[b'\n'; 512]).is_ok() {}
    while pipe.write(b"\n").is_ok() {}
}

/// `O_NONBLOCK` of Linux.
const NON_BLOCKING: i32 = 0o4000;

/// The upstream's status is 200, so that no error response is logged.
#[tokio::test]
async fn responses_that_break_off_have_one_line() {
    let backend = Backend::start().await;
    let process =
        Process::start(&["--upstream", &format!("http://{}", backend.address)], &[]).await;
    for _ in 0..12 {
        let (mut client, upstream) = open(&process, &backend, CALL).await;
        drop(upstream);
        client.read_to_end().await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    let log = process.logged(&["upstream returns errors", "broken"]).await;
    assert_eq!(log.matches("upstream returns errors").count(), 1, "{log}");
}
