//! Tests the cost of calls: from the price file to the counters, the request log and the budgets.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::process::Process;
use crate::support::{Backend, within};

const PRICES: &str = "version: 1\ncurrency: USD\nmodels:\n  \
    - {model: gpt-4o, input: 2000, cache_read: 1000, output: 10000}\n  \
    - {model: gpt-4o, input: 9000, output: 9000, from: 9000-01-01}\n";

const BUDGETS: &str = "  budgets:\n    \
    - {name: money, tenant: acme, money: {amount: 500, currency: USD}}\n    \
    - {name: tokens, tokens: 1000, window: 1d}\n    \
    - {name: euros, money: {amount: 5, currency: EUR}}\n";

fn configure(folder: &Path, upstream: std::net::SocketAddr) -> String {
    let prices = folder.join("prices.yaml");
    fs::write(&prices, PRICES).unwrap();
    let config = folder.join("config.yaml");
    let text = format!(
        "version: 1\nupstreams: {{a: {{url: \"http://{upstream}\"}}}}\nrequest_log: {{path: {}}}\n\
         identity: {{tenant: {{headers: [x-tenant]}}}}\ncost:\n  prices: {}\n{BUDGETS}",
        folder.join("log").display(),
        prices.display()
    );
    fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

/// Performs one non-streaming call of `tenant` to `model`, with 300 input tokens, of which 100 are cached, and 50
/// output tokens.
async fn call(process: &Process, backend: &Backend, tenant: &str, model: &str) {
    let body = format!(r#"{{"model":"{model}","messages":[]}}"#);
    let answer = format!(
        r#"{{"object":"chat.completion","model":"{model}","choices":[{{"index":0,"message":{{"role":"assistant","content":"a"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":300,"completion_tokens":50,"total_tokens":350,"prompt_tokens_details":{{"cached_tokens":100}}}}}}"#
    );
    let mut client = process.client().await;
    let length = body.len();
    client
        .write(format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Tenant: {tenant}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_until(&body).await;
    let length = answer.len();
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{answer}"
        ))
        .await;
    client.read_until("total_tokens").await;
}

#[tokio::test]
async fn calls_cost_what_the_table_defines_and_use_their_budget() {
    let folder = tempfile::tempdir().unwrap();
    let backend = Backend::start().await;
    let config = configure(folder.path(), backend.address);
    let mut process = Process::start(&["--config", &config], &[]).await;
    let used = |budget: &'static str| ["tokengauge_budget_used_total{", budget];
    assert_eq!(process.seconds(&used("\"money\"")).await.to_string(), "0");
    call(&process, &backend, "acme", "gpt-4o").await;
    call(&process, &backend, "globex", "gpt-4o").await;
    call(&process, &backend, "acme", "nameless").await;
    let log = folder.path().join("log");
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap_or_default()
    };
    let wait = async {
        while lines().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    within("lines of the request log", wait).await;
    // The cost is (200 × 2000 + 100 × 1000 + 50 × 10000) / 1,000,000.
    let exact = 1.0;
    let costs: Vec<_> =
        lines().iter().filter_map(|line| line["call"]["cost"]["amount"].as_f64()).collect();
    assert_eq!(costs.len(), 2, "one model has no price");
    assert!(costs.iter().all(|cost| (cost - exact).abs() < 1e-9), "{costs:?}");
    let near = |found: f64, exact: f64| {
        assert!((found - exact).abs() < 1e-9, "{found} instead of {exact}")
    };
    let cost = ["tokengauge_cost_total{", "\"USD\"", "\"reported\""];
    near(process.seconds(&cost).await, 2.0 * exact);
    assert_eq!(process.count(&["tokengauge_requests_unpriced_total{"]).await, 1);
    near(process.seconds(&used("\"money\"")).await, exact);
    near(process.seconds(&used("\"tokens\"")).await, 3.0 * 350.0);
    near(process.seconds(&used("\"euros\"")).await, 0.0);
    let limit = ["tokengauge_budget_limit{", "\"money\""];
    near(process.seconds(&limit).await, 500.0);
    process.signal("TERM");
    assert!(process.ended().await.success());
}

/// Anthropic reports the output at the end of a stream. At its beginning, the output is a placeholder.
#[tokio::test]
async fn a_cut_stream_costs_its_counted_output() {
    const WORDS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let backend = Backend::start().await;
    let config = configure(folder.path(), backend.address);
    let process = Process::start(&["--config", &config], &[]).await;
    let body = r#"{"model":"gpt-4o","max_tokens":900,"stream":true,"messages":[]}"#;
    let mut client = process.client().await;
    let length = body.len();
    client
        .write(format!(
            "POST /v1/messages HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_until(body).await;
    let start = r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"gpt-4o","content":[],"usage":{"input_tokens":100,"output_tokens":1}}}"#;
    let delta =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" Hello"}}"#;
    let events = format!(
        "event: message_start\ndata: {start}\n\n{}",
        format!("event: content_block_delta\ndata: {delta}\n\n").repeat(WORDS)
    );
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000000\r\n\r\n{events}"
        ))
        .await;
    client.read_head().await;
    drop(upstream);
    assert_eq!(client.read_to_end().await, events.as_bytes());
    let tokens = ["tokengauge_budget_used_total{", "\"tokens\""];
    within("the end of the call", async { while process.seconds(&tokens).await <= 0.0 {} }).await;
    assert_eq!(process.count(&tokens).await, 100 + WORDS as u64);
    // The cost is (100 × 2000 + 40 × 10000) / 1,000,000.
    let cost = process.seconds(&["tokengauge_cost_total{", "\"USD\"", "\"estimated\""]).await;
    assert!((cost - 0.6).abs() < 1e-9, "{cost}");
}
