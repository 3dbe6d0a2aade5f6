//! Tests how the real program reports stalled streams, and how it reports that its own process was stopped.

use std::time::Duration;

use crate::support::process::{CALL, CHUNK, DONE, Process, open};
use crate::support::{Backend, within};

/// Starts the real program with a stall threshold of 250 ms.
async fn impatient(backend: &Backend) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokengauge.yaml");
    let address = backend.address;
    std::fs::write(
        &file,
        format!(
            "version: 1\nupstreams: {{backend: {{url: 'http://{address}'}}}}\n\
             routes: [{{upstream: backend, stall: {{inter_token_after: 250ms}}}}]\n"
        ),
    )
    .unwrap();
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    (process, folder)
}

const STALLS: [&str; 2] = ["tokengauge_stream_stalls_total{", "\"next_token\""];
const STALLED: [&str; 2] = ["tokengauge_stream_stalled{", "\"next_token\""];

#[tokio::test]
async fn counts_a_stall_once_and_before_the_stream_ends() {
    let backend = Backend::start().await;
    let (process, _folder) = impatient(&backend).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    within("the stall to be reported", async {
        while process.count(&STALLS).await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(process.count(&STALLED).await, 1);
    assert_eq!(process.streams().await[0]["stalled"], true);
    assert_eq!(process.count(&["tokengauge_stall_duration_seconds_count"]).await, 0);
    upstream.write(DONE).await;
    assert_eq!(client.read_exactly(DONE.len()).await, DONE.as_bytes());
    within("the exchange's end", async {
        while process.count(&["tokengauge_requests_finished_total{"]).await == 0 {}
    })
    .await;
    assert_eq!(process.count(&STALLED).await, 0);
    assert_eq!(process.count(&STALLS).await, 1);
    assert_eq!(process.count(&["tokengauge_stall_duration_seconds_count{"]).await, 1);
    let idle = process.seconds(&["tokengauge_stall_duration_seconds_sum{"]).await;
    assert!(idle >= 0.25, "{idle}");
}

#[tokio::test]
async fn a_stopped_process_reports_its_own_delay_and_no_stall() {
    let backend = Backend::start().await;
    let (process, _folder) = impatient(&backend).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    let counted = process.count(&STALLS).await;
    process.signal("STOP");
    tokio::time::sleep(Duration::from_secs(3)).await;
    // The backend was not silent: its bytes wait in the kernel's socket buffer.
    upstream.write(CHUNK).await;
    upstream.write(DONE).await;
    process.signal("CONT");
    client.read_exactly(CHUNK.len().min(DONE.len())).await;
    // At most 250 ms of the 3 s pass before the next heartbeat is due.
    within("the delay to be reported", async {
        let late = ["tokengauge_self_scheduling_delay_seconds_sum{", "\"runtime\""];
        while process.seconds(&late).await < 2.5 {}
    })
    .await;
    let stalled = process.seconds(&["tokengauge_stall_duration_seconds_sum{"]).await;
    let most = process.count(&STALLS).await - counted;
    assert!(
        most == 0 || stalled < 2.0,
        "{most} stalls of {stalled} s in total, but the stopped process caused the delay"
    );
}
