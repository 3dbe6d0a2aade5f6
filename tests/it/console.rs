//! Compares the console's documents with `/stats`, with the request log and with each other.
//!
//! The real program runs in front of the simulated backend.

use serde_json::Value;
use tokengauge_console::document::{Delta, RecentRequests, Request, Snapshot};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::stats::{Rig, assert_documented, call, percentile, rig_after_25_calls};
use crate::support::process::{CALL, Process};
use crate::support::{Backend, Raw, within};

/// Maximum relative error of a percentile from a histogram of scale 3.
const HISTOGRAM_ERROR: f64 = 0.045;

const HTML: &str = "Accept: text/html,*/*;q=0.8\r\n";

async fn snapshot(process: &Process) -> Snapshot {
    let (head, body) = process.page("/api/v1/snapshot").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// A viewer of `/api/v1/live`, with the state that it shows.
struct Viewer {
    connection: Raw<TcpStream>,
    state: Snapshot,
}

impl Viewer {
    async fn connect(process: &Process) -> Self {
        let mut connection = live(process).await;
        let head = connection.read_head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        let (name, data) = event(&mut connection).await;
        assert_eq!(name, "snapshot");
        Self { connection, state: serde_json::from_str(&data).unwrap() }
    }

    /// Applies the next event.
    async fn follow(&mut self) {
        let (name, data) = event(&mut self.connection).await;
        assert_eq!(name, "delta");
        let delta: Delta = serde_json::from_str(&data).unwrap();
        assert_eq!(delta.sequence, self.state.sequence + 1);
        delta.apply(&mut self.state);
    }
}

/// Sends a request for the stream of events.
async fn live(process: &Process) -> Raw<TcpStream> {
    let mut connection = Raw::connect(process.admin).await;
    connection.write(format!("GET /api/v1/live HTTP/1.1\r\nHost: {}\r\n\r\n", process.admin)).await;
    connection
}

/// Reads one event, which is one chunk of the body. Returns its name and its data.
async fn event(connection: &mut Raw<TcpStream>) -> (String, String) {
    let size = connection.read_until("\r\n").await;
    let size = usize::from_str_radix(size.trim(), 16).unwrap();
    let chunk = String::from_utf8(connection.read_exactly(size + 2).await).unwrap();
    let text = chunk.strip_suffix("\n\n\r\n").unwrap_or_else(|| panic!("{chunk:?}"));
    let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
    (name.to_owned(), data.to_owned())
}

fn agree(estimate: f64, exact: f64) {
    assert!((estimate / exact - 1.0).abs() <= HISTOGRAM_ERROR, "{estimate} for {exact}");
}

#[tokio::test]
async fn a_snapshot_has_the_values_of_stats_and_of_the_request_log() {
    let (rig, lines) = rig_after_25_calls().await;
    let stats = rig.page("/stats").await;
    let text = rig.page("/api/v1/snapshot").await;
    let snapshot: Snapshot = serde_json::from_value(text.clone()).unwrap();
    for item in text["requests"]["items"].as_object().unwrap().values() {
        let mut example = text.clone();
        example["requests"]["items"] = serde_json::json!({"812": item});
        assert_documented("/api/v1/snapshot", &example);
    }

    let recent = &stats["total"]["last_five_minutes"];
    let now = &snapshot.now;
    let field = |line: &Value, pointer: &str| line.pointer(pointer).and_then(Value::as_f64);
    let logged = |pointer: &str| -> Vec<f64> {
        lines.iter().filter_map(|line| field(line, pointer)).collect()
    };
    let ttft = now.time_to_first_token_seconds.unwrap();
    let streamed = lines.iter().filter(|line| line["call"]["response"]["streamed"] == true);
    let mut exact: Vec<_> = streamed.filter_map(|it| field(it, "/times/first_token")).collect();
    assert_eq!(recent["time_to_first_token_seconds"]["count"], ttft.count);
    agree(ttft.p50, percentile(&mut exact, 50));
    agree(ttft.p95, percentile(&mut exact, 95));
    let rate = now.stream_output_tokens_per_second.unwrap();
    assert_eq!(recent["output_tokens_per_second"]["count"], rate.count);
    agree(rate.p50, percentile(&mut logged("/call/rates/output"), 50));
    agree(rate.p10, percentile(&mut logged("/call/rates/output"), 10));
    let errors = now.error_share.unwrap();
    assert_eq!(recent["failed"], 1);
    assert_eq!((errors.upstream, errors.client, errors.proxy), (1.0 / 25.0, 0.0, 0.0));
    assert_eq!((now.in_flight, now.queue_depth, now.stalled), (0, 0, 0));
    assert_eq!(snapshot.slos.len(), rig.page("/slo").await.as_array().unwrap().len());
    assert_eq!(text["slos"][0]["sli"], rig.page("/slo").await[0]["sli"]);

    assert_eq!(snapshot.requests.items.len(), 25, "each is among the 50 slowest");
    for line in &lines {
        let id = line["request_number"].as_u64().unwrap();
        compare(&snapshot.requests.items[&id], line);
    }
    assert_eq!(snapshot.requests.failed.len(), 1);
}

/// Compares a request with its line in the request log.
fn compare(request: &Request, line: &Value) {
    let close = |found: Option<f64>, pointer: &str| {
        let logged = line.pointer(pointer).and_then(Value::as_f64);
        let (Some(found), Some(logged)) = (found, logged) else {
            return assert_eq!(found, logged, "{pointer}");
        };
        assert!((found - logged).abs() < 1e-5, "{pointer}: {found} for {logged}");
    };
    assert_eq!(*request.outcome, line["outcome"]);
    assert_eq!(*request.error_source, line["error_source"]);
    assert_eq!(*request.trace_id, line["trace"]["trace_id"]);
    let label = &line["call"]["labels"]["model"];
    let requested = &line["call"]["request"]["model"];
    assert_eq!(*request.model, *if label == "other" { requested } else { label });
    assert_eq!(request.status.map(Value::from), line["http"].get("status").cloned());
    close(request.duration_seconds, "/times/end");
    close(request.output_tokens_per_second, "/call/rates/output");
    let stages = serde_json::to_value(&request.stages).unwrap();
    let stages = stages.as_object().unwrap();
    for (stage, seconds) in stages {
        close(seconds.as_f64(), &format!("/stages/{stage}"));
    }
    assert_eq!(stages.len(), line["stages"].as_object().unwrap().len());
    let output = request.tokens.output.as_ref().map(|it| it.count);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few tokens")]
    let logged = line.pointer("/call/output/tokens").and_then(Value::as_f64).map(|it| it as u64);
    assert_eq!(output, logged);
    let chunks = &request.chunks_seconds;
    assert_eq!(!chunks.is_empty(), request.stream, "one tick per chunk of a stream");
    assert!(chunks.len() <= 62 && chunks.is_sorted());
    assert!(chunks.last().is_none_or(|last| *last <= request.duration_seconds.unwrap() + 1e-3));
}

#[tokio::test]
async fn the_history_counts_each_call_and_each_token_once() {
    let (rig, lines) = rig_after_25_calls().await;
    let counted = lines.iter().filter_map(|line| line.pointer("/call/output/counted")?.as_u64());
    let counted: u64 = counted.sum();
    let complete = async {
        loop {
            let snapshot = snapshot(&rig.process).await;
            let groups = snapshot.history.groups;
            let all = || groups.iter().flat_map(|group| &group.intervals).map(|(_, it)| it);
            if all().map(|it| it.finished).sum::<u64>() == 25 {
                let tokens: u64 = all().map(|it| it.output_tokens).sum();
                assert_eq!(tokens, counted);
                let errors: u64 = all().map(|it| it.errors.upstream).sum();
                assert_eq!(errors, 1);
                let latencies = all().filter_map(|it| it.itl.as_ref()).map(|it| it.count);
                assert!(latencies.sum::<u64>() > 0);
                let last = snapshot.history.last_interval;
                assert!(
                    last * 5_000 < snapshot.at_unix_ms
                        && snapshot.history.first_interval + 179 == last
                );
                return;
            }
        }
    };
    within("the end of the interval", complete).await;
}

#[tokio::test]
async fn the_changes_applied_to_a_snapshot_give_the_next_snapshot() {
    let profile = "steady:prefill-ms=60,step-ms=20,jitter=0.3,tokens=30-60,chunk-tokens=1";
    let rig = Rig::start(&[profile, "failing:fail=1,status=503"], "").await;
    let mut viewer = Viewer::connect(&rig.process).await;
    let mut calls = JoinSet::new();
    for n in 0..12 {
        let model = if n % 4 == 0 { "failing" } else { "steady" };
        calls.spawn(call(rig.process.address, model, n % 3 != 0, n));
    }
    let mut compared = 0;
    while compared < 5 {
        viewer.follow().await;
        // While somebody looks, all readers get the same state.
        let read = snapshot(&rig.process).await;
        while viewer.state.sequence < read.sequence {
            viewer.follow().await;
        }
        if viewer.state.sequence == read.sequence {
            assert_eq!(viewer.state, read);
            compared += 1;
        }
    }
    calls.join_all().await;
    rig.logged(12).await;
    let ended = async {
        while viewer.state.requests.items.len() < 12 || !viewer.state.streams.is_empty() {
            viewer.follow().await;
        }
    };
    within("the last call", ended).await;
}

#[tokio::test]
async fn the_33rd_viewer_is_turned_away_until_another_leaves() {
    let process = Process::before(Backend::start().await.address).await;
    let mut viewers = Vec::new();
    for _ in 0..32 {
        viewers.push(Viewer::connect(&process).await);
    }
    let (head, body) = process.page("/api/v1/live").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    let message = "32 viewers are connected, the limit; close one or use /api/v1/snapshot";
    assert_eq!(body, format!("{{\"error\":\"{message}\"}}"));
    viewers.pop();
    let admitted =
        async { while live(&process).await.read_head().await.starts_with("HTTP/1.1 503 ") {} };
    within("a place", admitted).await;
}

#[tokio::test]
async fn nothing_is_computed_while_nobody_looks() {
    let process = Process::before(Backend::start().await.address).await;
    let mut viewer = Viewer::connect(&process).await;
    viewer.follow().await;
    drop(viewer);
    // The numbers of two documents are consecutive as soon as no task computes more of them.
    let quiet = async {
        loop {
            let first = snapshot(&process).await.sequence;
            tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
            if snapshot(&process).await.sequence == first + 1 {
                return;
            }
        }
    };
    within("the end of the task", quiet).await;
}

#[tokio::test]
async fn data_needs_the_token_and_the_page_does_not() {
    let upstream = Backend::start().await.address;
    let arguments = ["--upstream", &format!("http://{upstream}")];
    let process = Process::start(&arguments, &[("TOKENGAUGE_ADMIN_TOKEN", "secret")]).await;
    for path in ["/api/v1/snapshot", "/api/v1/live", "/api/v1/requests"] {
        for headers in ["", "Authorization: Bearer wrong\r\n"] {
            let (head, _) = process.page_with(path, headers).await;
            assert!(head.starts_with("HTTP/1.1 401 "), "{path}: {head}");
        }
    }
    let right = "Authorization: Bearer secret\r\n";
    assert!(process.page_with("/api/v1/snapshot", right).await.0.starts_with("HTTP/1.1 200 "));
    let (head, page) = process.page_with("/", HTML).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && page.contains("<!doctype html>"), "{head}");
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self'"),
        "{head}"
    );
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (head, page) = process.page_with("/", &format!("{HTML}If-None-Match: {tag}\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 304 ") && page.is_empty(), "{head}");
    assert!(process.page("/console/nothing").await.0.starts_with("HTTP/1.1 404 "));
    assert!(process.page("/").await.0.starts_with("HTTP/1.1 401 "), "the list of endpoints");
}

#[tokio::test]
async fn a_console_that_is_off_has_no_endpoints() {
    let rig = Rig::start(&["steady"], "console: false").await;
    call(rig.process.address, "steady", true, 1).await;
    for path in ["/api/v1/snapshot", "/api/v1/live", "/api/v1/requests", "/console/index.html"] {
        assert!(rig.process.page(path).await.0.starts_with("HTTP/1.1 404 "), "{path}");
    }
    let (_, page) = rig.process.page_with("/", HTML).await;
    assert!(page.starts_with("tokengauge admin port"), "{page}");
}

#[tokio::test]
async fn finds_requests_and_explains_a_wrong_query() {
    let (rig, _) = rig_after_25_calls().await;
    let find = async |query: &str| -> RecentRequests {
        let found = rig.page(&format!("/api/v1/requests?{query}")).await;
        serde_json::from_value(found).unwrap()
    };
    let all = find("").await;
    assert_eq!((all.items.len(), all.left_out), (25, 0));
    assert!(all.items.is_sorted_by(|a, b| a.ended_unix_ms >= b.ended_unix_ms));
    let two = find("limit=2&model=steady&route=sim").await;
    assert_eq!((two.items.len(), two.left_out), (2, 22));
    let ended = all.items[3].ended_unix_ms;
    let then = find(&format!("ended_from_unix_ms={ended}&ended_to_unix_ms={ended}")).await;
    assert!(then.items.contains(&all.items[3]));
    let (head, body) = rig.process.page("/api/v1/requests?modle=a").await;
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("unknown parameter"), "{body}");
}

#[tokio::test]
async fn hostile_names_are_plain_strings_and_bounded() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    let name = format!("</script><img src=x onerror=alert(1)>\u{7}\u{2028}{}", "x".repeat(10_000));
    let body = serde_json::json!({"model": name, "stream": true}).to_string();
    let mut client = process.client().await;
    let length = body.len();
    client
        .write(format!("POST {CALL} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"))
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_until(&body).await;
    let listed = async {
        loop {
            let streams = snapshot(&process).await.streams;
            if let Some(model) = streams.first().and_then(|stream| stream.model.clone()) {
                return model;
            }
        }
    };
    let model = within("the stream", listed).await;
    assert!(model.starts_with("</script><img src=x onerror=alert(1)>\u{fffd}"), "{model}");
    // 256 bytes, one of which became the three bytes of U+FFFD.
    assert!(model.len() <= 258, "{}", model.len());
}

#[tokio::test]
async fn streams_end_when_the_process_drains() {
    let mut process = Process::before(Backend::start().await.address).await;
    let mut viewer = Viewer::connect(&process).await;
    process.signal("TERM");
    viewer.connection.read_to_end().await;
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn a_restart_shows_in_the_start_of_the_process() {
    let upstream = Backend::start().await.address;
    let process = Process::before(upstream).await;
    let mut viewer = Viewer::connect(&process).await;
    drop(process);
    viewer.connection.read_to_end().await;
    let after = Viewer::connect(&Process::before(upstream).await).await.state;
    let before = viewer.state;
    assert!(after.process.started_unix_ms > before.process.started_unix_ms);
    let gap = after.history.gap_before_unix_ms.unwrap();
    assert!(gap >= after.process.started_unix_ms, "nothing is known from before the start");
    assert_eq!((before.sequence, after.sequence), (1, 1));
}

#[tokio::test]
async fn names_of_tenants_and_sessions_are_hidden_on_request() {
    let identity = "identity: {tenant: {headers: [x-tenant]}, session: {headers: [x-session]}}\n\
        slos: [{name: a, sli: availability, target: 99%, scope: {tenant: team-a}}]";
    for (console, shown) in [("{}", true), ("{hide_names: true}", false)] {
        let rig = Rig::start(&["steady"], &format!("{identity}\nconsole: {console}")).await;
        let body = "{\"model\":\"steady\",\"stream\":true}";
        let length = body.len();
        let mut client = Raw::connect(rig.process.address).await;
        client
            .write(format!(
                "POST {CALL} HTTP/1.1\r\nHost: a\r\nX-Tenant: team-a\r\nX-Session: s-1\r\nUser-Agent: agent/1 x\r\n\
                 Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .await;
        client.read_to_end().await;
        rig.logged(1).await;
        let text = rig.page("/api/v1/snapshot").await.to_string();
        assert_eq!(text.contains("team-a") && text.contains("\"s-1\""), shown, "{text}");
        assert_eq!(text.contains("team-a") || text.contains("\"s-1\""), shown, "{text}");
        let snapshot: Snapshot = serde_json::from_str(&text).unwrap();
        assert_eq!(snapshot.settings.names_hidden, !shown);
        if shown {
            let session = &snapshot.sessions[0];
            assert_eq!((session.calls, session.agent.as_deref()), (1, Some("agent/1")));
            assert_eq!(session.requests.len(), 1);
        }
    }
}
