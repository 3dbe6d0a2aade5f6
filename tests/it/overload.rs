//! Tests the real program with responses that its observer cannot read in time.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::support::process::Process;
use crate::support::{Raw, within};

/// Number of requests that fail beside the huge responses.
const FAILURES: usize = 200;

const ERROR: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}")
}

fn response(status: u16, body: &str) -> String {
    let length = body.len();
    let head = "Content-Type: application/json\r\nContent-Length";
    format!("HTTP/1.1 {status} X\r\n{head}: {length}\r\n\r\n{body}")
}

/// Answers chat requests with `huge`, and all other requests with status 529.
async fn serve(listener: TcpListener, huge: Arc<str>) {
    while let Ok((stream, _)) = listener.accept().await {
        let huge = Arc::clone(&huge);
        tokio::spawn(async move {
            let mut upstream = Raw(stream);
            while let Some(head) = upstream.next_head().await {
                upstream.read_exactly(2).await;
                if head.contains("/chat/") {
                    upstream.write(huge.as_bytes()).await;
                } else {
                    upstream.write(response(529, ERROR)).await;
                }
            }
        });
    }
}

/// Sends `count` requests over one connection, with a pause before each.
async fn send(process: &Process, path: &str, expected: usize, count: usize, pause: Duration) {
    let mut client = process.client().await;
    for _ in 0..count {
        tokio::time::sleep(pause).await;
        client.write(post(path)).await;
        client.read_head().await;
        client.read_exactly(expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_another_client_beside_huge_responses_are_all_counted() {
    let text = "多语言 текст متن ".repeat(110_000);
    let body = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{text}\"}}}}]}}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve(listener, response(200, &body).into()));
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("config.yaml"), folder.path().join("log"));
    let text = format!(
        "version: 1\nupstreams: {{a: {{url: \"http://{upstream}\"}}}}\nlimits: {{observer_memory: 16MiB}}\n\
         request_log: {{path: {}}}\n",
        log.display()
    );
    std::fs::write(&config, text).unwrap();
    let process = Process::start(&["--config", config.to_str().unwrap()], &[]).await;
    let huge = || send(&process, "/v1/chat/completions", body.len(), 3, Duration::ZERO);
    let failing = send(&process, "/v1/messages", ERROR.len(), FAILURES, Duration::from_millis(5));
    tokio::join!(failing, huge(), huge(), huge(), huge(), huge(), huge(), huge(), huge());
    let failed = ["requests_finished", "\"529\"", "error_source=\"upstream\""];
    let counted = async { while process.count(&failed).await < FAILURES as u64 {} };
    within("all failures to be counted", counted).await;
    assert_eq!(process.count(&failed).await, FAILURES as u64);
    assert_eq!(process.count(&["requests_finished", "\"200\""]).await, 24);
    assert!(process.count(&["observer_dropped_bytes"]).await > 0, "the observer was too late");
    let logged = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().filter(|line| line.contains(":529,")).count()
    };
    let all_logged = async {
        while logged() < FAILURES {
            tokio::task::yield_now().await;
        }
    };
    within("all failures to be logged", all_logged).await;
    serving.abort();
}
