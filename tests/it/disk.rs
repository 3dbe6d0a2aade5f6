//! Tests a full disk and a read-only one. A limit of the size of files makes writes fail in the same way, and a folder at
//! the path of the file makes opening fail.

use std::fs;
use std::path::Path;

use crate::support::process::Process;
use crate::support::within;

/// Starts a proxy that keeps a request log and error budgets in `folder`.
async fn start(folder: &Path) -> Process {
    let config = folder.join("config.yaml");
    let text = "version: 1\nupstreams: {a: {url: \"http://127.0.0.1:9\"}}\n\
                routes: [{upstream: a, match: {prefix: /v1}}]\nrequest_log: {path: log}\n\
                slo_state: {path: slo}\nslos: [{name: a, sli: availability, target: 50%}]\n";
    fs::write(&config, text).unwrap();
    Process::with_limited_files(&["--config", config.to_str().unwrap()]).await
}

/// Performs one request, which matches no route.
async fn request(process: &Process) {
    let mut client = process.client().await;
    client.write("GET /elsewhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(client.read_to_end().await.starts_with(b"HTTP/1.1 404"));
}

async fn count(process: &Process, counter: &str, expected: u64) {
    within(counter, async {
        while process.count(&[counter]).await < expected {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(process.count(&[counter]).await, expected, "{counter}");
}

#[tokio::test]
async fn a_full_disk_fails_no_request_and_the_request_log_continues() {
    let folder = tempfile::tempdir().unwrap();
    let process = start(folder.path()).await;
    request(&process).await;
    count(&process, "request_log_written_total", 1).await;
    process.limit_file_size(Some(0));
    for lost in 1..=2 {
        request(&process).await;
        count(&process, "request_log_dropped_total", lost).await;
    }
    let failed = "request log write failed";
    let log = process.logged(&[failed]).await;
    assert_eq!(log.matches(failed).count(), 1, "{log}");
    process.limit_file_size(None);
    request(&process).await;
    process.logged(&["request log write recovered", "\"lost\":2"]).await;
    count(&process, "request_log_written_total", 2).await;
    let lines = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

#[tokio::test]
async fn a_full_disk_keeps_the_last_state_of_the_error_budgets() {
    last_state_is_kept(|process, _| process.limit_file_size(Some(0))).await;
}

#[tokio::test]
async fn a_read_only_disk_keeps_the_last_state_of_the_error_budgets() {
    last_state_is_kept(|_, temporary| fs::create_dir(temporary).unwrap()).await;
}

/// Tests a state file that cannot be written from some moment on. The next start can write it again.
async fn last_state_is_kept(fails: impl FnOnce(&Process, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slo");
    let temporary = folder.path().join("slo.tmp");
    let mut process = start(folder.path()).await;
    let before = fs::read(&file).unwrap();
    fails(&process, &temporary);
    request(&process).await;
    process.signal("TERM");
    process.ended().await;
    let log = process.log();
    assert!(log.contains("SLO state write failed"), "{log}");
    assert_eq!(fs::read(&file).unwrap(), before);
    if temporary.is_dir() {
        fs::remove_dir(&temporary).unwrap();
    }
    let process = start(folder.path()).await;
    process.logged(&["error budgets restored", "\"objectives\":1"]).await;
    assert_ne!(fs::read(&file).unwrap(), before, "the file is written again");
    assert!(!temporary.exists());
}
