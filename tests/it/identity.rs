//! Tests tenant, session and variant in metrics, on spans and in the request log, within the limits of each output.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::process::Process;
use crate::support::{Backend, within};

const CONFIG: &str = "version: 1\n\
    upstreams: {a: {url: \"http://UPSTREAM\"}}\n\
    request_log: {path: LOG}\n\
    cardinality_limits: {tenants: 2}\n\
    identity:\n  \
      tenant: {headers: [x-tenant]}\n  \
      session: {headers: [x-session]}\n  \
      variant: {headers: [authorization], hash: true}\n";

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
const BODY: &str = r#"{"object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a b c"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}}"#;

/// Performs a call of `tenant` to which the upstream responds with `status`. The headers must reach the upstream
/// unchanged.
async fn call(process: &Process, backend: &Backend, tenant: &str, status: &str) {
    let body = r#"{"model":"m","messages":[]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Tenant: {tenant}\r\nX-Session: run-7\r\n\
         Authorization: Bearer planted\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = process.client().await;
    client.write(&request).await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_until(body).await;
    assert!(head.to_lowercase().contains("x-tenant"), "{head}");
    assert!(head.contains("Bearer planted"), "{head}");
    let streams = process.streams().await;
    assert!(streams.iter().any(|stream| stream["tenant"] == tenant), "{streams:?}");
    let answer = format!("{}{}\r\n\r\n{BODY}", HEAD.replace("200 OK", status), BODY.len());
    upstream.write(&answer).await;
    client.read_until("total_tokens").await;
}

/// Waits until the log has `number` lines, and returns them.
async fn lines(log: &Path, number: usize) -> Vec<Value> {
    let read = || -> Vec<Value> {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap_or_default()
    };
    let wait = async {
        while read().len() < number {
            tokio::task::yield_now().await;
        }
    };
    within("a line of the request log", wait).await;
    read()
}

#[tokio::test]
async fn exports_identity_only_where_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("c.yaml"), folder.path().join("log"));
    let backend = Backend::start().await;
    let config = CONFIG
        .replace("UPSTREAM", &backend.address.to_string())
        .replace("LOG", log.to_str().unwrap());
    fs::write(&path, config).unwrap();
    let mut process = Process::start(&["--config", path.to_str().unwrap()], &[]).await;
    for (number, (tenant, status, label)) in [
        ("stranger", "401 No", "other"),
        ("acme", "200 OK", "acme"),
        ("globex", "200 OK", "globex"),
        ("third", "200 OK", "other"),
    ]
    .into_iter()
    .enumerate()
    {
        call(&process, &backend, tenant, status).await;
        let told = lines(&log, number + 1).await.pop().unwrap();
        assert_eq!(told["identity"]["tenant"], tenant);
        let hash = told["config"]["hash"].as_str().unwrap();
        assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(told["identity"]["session"], "run-7");
        assert_eq!(told["call"]["labels"]["tenant"], label);
    }
    let logged = lines(&log, 4).await;
    let variant = logged[0]["identity"]["variant"].as_str().unwrap();
    assert_eq!(variant.len(), 16, "a hash has 32 hexadecimal digits");

    for (tenant, calls) in [("acme", 1), ("globex", 1), ("other", 2), ("third", 0)] {
        let tenant = format!("tokengauge_tenant=\"{tenant}\"");
        let finished = ["tokengauge_requests_finished_total", &tenant];
        assert_eq!(process.count(&finished).await, calls, "{tenant}");
    }
    // The variant is used as a label only after an upstream has accepted a request with it. The first call got status
    // 401.
    let variant = format!("tokengauge_variant=\"{variant}\"");
    let finished = ["tokengauge_requests_finished_total", &variant];
    assert_eq!(process.count(&finished).await, 3);
    let overflow = ["tokengauge_self_label_overflow_total", "=\"tenant\""];
    assert!(process.count(&overflow).await > 0);
    let labels = process.page("/labels").await.1;
    assert!(labels.contains("acme") && !labels.contains("stranger"), "{labels}");
    let metrics = process.page("/metrics").await.1;
    assert!(!metrics.contains("run-7"), "the session id is a label");
    let all = [metrics, labels, fs::read_to_string(&log).unwrap()].concat();
    assert!(!all.contains("planted") && !all.contains("Bearer"), "a credential");
    process.signal("TERM");
    assert!(process.ended().await.success());
}

const SESSION: &str = "3f1c2a9e-5d4b-4c8f-9a10-6b7c8d9e0f11";

/// Sends a request as Claude Code sends it. The session is in the request log, in `/streams` and in the console, and in
/// no metric.
#[tokio::test]
async fn finds_the_session_of_a_coding_agent() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("c.yaml"), folder.path().join("log"));
    let backend = Backend::start().await;
    let (upstream, logged) = (backend.address, log.display());
    let config = format!(
        "version: 1\nupstreams: {{a: {{url: \"http://{upstream}\"}}}}\nrequest_log: {{path: {logged}}}\n"
    );
    fs::write(&path, config).unwrap();
    let mut process = Process::start(&["--config", path.to_str().unwrap()], &[]).await;
    let body = format!(
        r#"{{"model":"claude-x","max_tokens":9,"metadata":{{"user_id":"user_a_account__session_{SESSION}"}},"messages":[]}}"#
    );
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: a\r\nUser-Agent: claude-cli/2.1.86 (external, cli)\r\n\
         X-Claude-Code-Agent-Id: sub-1\r\nX-Client-Request-Id: once\r\nX-Stainless-Retry-Count: 2\r\n\
         Anthropic-Version: 2023-06-01\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = process.client().await;
    client.write(&request).await;
    let mut upstream = backend.accept().await;
    upstream.read_until(&body).await;
    let streams = process.streams().await;
    assert_eq!(streams[0]["session"], SESSION, "{streams:?}");
    assert_eq!(streams[0]["agent"], "claude-cli/2.1.86");
    let answer = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}"#;
    upstream.write(&format!("{HEAD}{}\r\n\r\n{answer}", answer.len())).await;
    client.read_until("end_turn").await;

    let line = lines(&log, 1).await.pop().unwrap();
    assert_eq!(line["identity"]["session"], SESSION);
    assert_eq!(line["identity"]["session_source"], "metadata.user_id");
    assert_eq!(line["identity"]["sub_agent"], "sub-1");
    assert_eq!(line["agent"]["name"], "claude-cli");
    assert_eq!(line["agent"]["version"], "2.1.86");
    assert_eq!(line["attempts"]["resend_count"], 2);
    let snapshot: Value = serde_json::from_str(&process.page("/api/v1/snapshot").await.1).unwrap();
    let session = &snapshot["sessions"][0];
    assert_eq!(session["id"], SESSION, "{snapshot}");
    assert_eq!(session["agent"], "claude-cli/2.1.86");
    assert_eq!(session["source"], "metadata.user_id");
    let metrics = process.page("/metrics").await.1;
    assert!(
        !metrics.contains(SESSION) && !metrics.contains("claude-cli") && !metrics.contains("sub-1")
    );
    process.signal("TERM");
    assert!(process.ended().await.success());
}
