//! Tests of the backend over real sockets.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use serde_json::Value;
use tokio::sync::oneshot;

use super::*;
use tokengauge_types::clock;

struct Running {
    address: std::net::SocketAddr,
    ledger: Arc<Ledger>,
    _stop: oneshot::Sender<()>,
}

async fn start(models: &[&str]) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = Running {
        address: listener.local_addr().unwrap(),
        ledger: Arc::new(Ledger::default()),
        _stop: stop,
    };
    let models = models.iter().map(|it| it.parse().unwrap()).collect();
    let config = Config { models, seed: 5 };
    tokio::spawn(serve(listener, config, Arc::clone(&running.ledger), async {
        let _ended = stopped.await;
    }));
    running
}

impl Running {
    async fn post(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post(path).header("host", "simulate");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_owned()));
        sender.send_request(request.body(body).unwrap()).await.unwrap()
    }

    async fn post_json(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let response = self.post(path, body, headers).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn get(&self, path: &str) -> String {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "simulate");
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    /// Returns the data of each body frame, and whether the stream ended without an error.
    async fn stream(&self, body: &str, headers: &[(&str, &str)]) -> (Vec<String>, bool) {
        let mut body = self.post("/v1/chat/completions", body, headers).await.into_body();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    frames.push(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
                }
                Err(_) => return (frames, false),
            }
        }
        (frames, true)
    }

    async fn last_entry(&self) -> Entry {
        self.ledger.wait_for_responses(1).await;
        self.ledger.entries().pop().unwrap()
    }
}

fn chunks(frames: &[String]) -> Vec<Value> {
    let text = frames.concat();
    text.split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

fn content(frames: &[String]) -> String {
    let delta =
        |chunk: &Value| Some(chunk.pointer("/choices/0/delta/content")?.as_str()?.to_owned());
    chunks(frames).iter().filter_map(delta).collect()
}

const QUICK: &str = "quick:prefill-ms=0,prefill-us-per-token=0,step-ms=0,batch-ms=0,tokens=40";
const STREAM: &str = r#"{"model":"quick","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}"#;

#[tokio::test]
async fn a_stream_matches_the_ledger() {
    let backend = start(&[QUICK]).await;
    let (frames, well) = backend.stream(STREAM, &[("x-request-id", "mine")]).await;
    assert!(well && frames.last().unwrap().ends_with("data: [DONE]\n\n"));
    let chunks = chunks(&frames);
    let usage = chunks.last().unwrap().get("usage").unwrap();
    assert_eq!(chunks.last().unwrap().get("choices").unwrap(), &Value::Array(Vec::new()));
    assert_eq!(chunks[0].pointer("/choices/0/delta/role").unwrap(), "assistant");
    assert!(chunks[1].get("usage").unwrap().is_null());
    let entry = backend.last_entry().await;
    assert_eq!(entry.request_id.as_str(), "mine");
    assert_eq!(entry.ended, ResponseEnd::Complete);
    assert_eq!(entry.tokens, tokens::count(&content(&frames)));
    assert_eq!(usage.get("completion_tokens").unwrap().as_u64(), Some(entry.tokens));
    assert_eq!(entry.reported.unwrap().output, entry.tokens);
    assert!(entry.head <= entry.first_token && entry.first_token < entry.last_token);
}

#[tokio::test]
async fn equal_requests_get_equal_bytes() {
    let backend = start(&[QUICK]).await;
    let (first, _) = backend.stream(STREAM, &[]).await;
    let (second, _) = backend.stream(STREAM, &[]).await;
    let (other, _) = backend.stream(&STREAM.replace("hello", "hallo"), &[]).await;
    assert_eq!(first.concat(), second.concat());
    assert_ne!(content(&first), content(&other));
}

#[tokio::test]
async fn a_non_streaming_response_has_the_text_of_the_stream() {
    let backend = start(&[QUICK]).await;
    let body = STREAM.replace("\"stream\":true", "\"stream\":false");
    let (status, response) = backend.post_json("/v1/chat/completions", &body, &[]).await;
    let text = response.pointer("/choices/0/message/content").unwrap().as_str().unwrap();
    let entry = backend.last_entry().await;
    assert_eq!(status, 200);
    assert_eq!(
        response.pointer("/usage/completion_tokens").unwrap().as_u64(),
        Some(tokens::count(text))
    );
    assert_eq!((entry.tokens, entry.stream), (tokens::count(text), false));
}

#[tokio::test]
async fn all_endpoints_use_the_openai_format() {
    let backend = start(&[QUICK]).await;
    let (_, completion) =
        backend.post_json("/v1/completions", r#"{"model":"quick","prompt":"x"}"#, &[]).await;
    assert_eq!(completion.get("object").unwrap(), "text_completion");
    assert!(!completion.pointer("/choices/0/text").unwrap().as_str().unwrap().is_empty());
    let (_, embeddings) =
        backend.post_json("/v1/embeddings", r#"{"model":"quick","input":"x"}"#, &[]).await;
    assert_eq!(embeddings.pointer("/data/0/embedding").unwrap().as_array().unwrap().len(), 1_536);
    assert_eq!(embeddings.pointer("/usage/prompt_tokens").unwrap().as_u64(), Some(2));
    let (status, missing) = backend.post_json("/v1/chat/completions", "{}", &[]).await;
    assert_eq!(
        (status, missing.pointer("/error/param").unwrap().as_str()),
        (400, Some("messages"))
    );
    let (status, limited) =
        backend.post_json("/v1/chat/completions", STREAM, &[("x-simulate-status", "429")]).await;
    assert_eq!(
        (status, limited.pointer("/error/code").unwrap().as_str()),
        (429, Some("rate_limit_exceeded"))
    );
    assert_eq!(backend.last_entry().await.ended, ResponseEnd::Failed(429));
    let (status, _) = backend.post_json("/v1/images", "{}", &[]).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn every_chunk_is_a_separate_write() {
    let backend = start(&["paced:prefill-ms=1,step-ms=3,batch-ms=0,tokens=20"]).await;
    let (frames, _) = backend.stream(&STREAM.replace("quick", "paced"), &[]).await;
    let coalesced = frames.iter().filter(|frame| frame.matches("data: ").count() > 1).count();
    assert!(frames.len() >= 20 && coalesced <= 3, "{} frames, {coalesced} coalesced", frames.len());
}

#[tokio::test]
async fn a_cut_stream_breaks_after_the_recorded_tokens() {
    let backend = start(&[QUICK]).await;
    let (frames, well) = backend.stream(STREAM, &[("x-simulate-cut-after", "10")]).await;
    let entry = backend.last_entry().await;
    assert!(!well);
    assert_eq!(entry.ended, ResponseEnd::Cut);
    assert_eq!(entry.tokens, tokens::count(&content(&frames)));
    assert!((5..=10).contains(&entry.tokens));
    assert_eq!(entry.reported, None);
    let non_streaming = STREAM.replace("\"stream\":true", "\"stream\":false");
    let response = backend
        .post("/v1/chat/completions", &non_streaming, &[("x-simulate-cut-after", "10")])
        .await;
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn records_a_client_disconnect_and_the_tokens_sent() {
    let backend = start(&[QUICK]).await;
    let headers = [("x-simulate-stall-after", "5"), ("x-simulate-stall-ms", "3600000")];
    let mut body = backend.post("/v1/chat/completions", STREAM, &headers).await.into_body();
    let mut text = String::new();
    while text.matches("content").count() < 6 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    drop(body);
    let entry = backend.last_entry().await;
    assert_eq!(entry.ended, ResponseEnd::ClientGone);
    assert!((4..=5).contains(&entry.tokens), "{}", entry.tokens);
}

#[tokio::test]
async fn headers_set_length_pace_and_chunk_size() {
    let backend = start(&["slow:prefill-ms=60000,step-ms=60000"]).await;
    let headers = [
        ("x-simulate-tokens", "12"),
        ("x-simulate-chunk-tokens", "4"),
        ("x-simulate-ttft-us", "30000"),
        ("x-simulate-gap-us", "2000"),
    ];
    let (frames, _) = backend.stream(&STREAM.replace("quick", "slow"), &headers).await;
    let entry = backend.last_entry().await;
    let with_text = chunks(&frames)
        .iter()
        .filter(|it| it.pointer("/choices/0/delta/content").is_some_and(|it| it != ""))
        .count();
    assert_eq!(with_text, 3);
    let since = |from, to: Option<clock::MonotonicInstant>| to.unwrap().since(from);
    assert!(since(entry.received, entry.first_token) >= Duration::from_millis(30 + 6));
    // Due times do not depend on earlier writes: a late first chunk does not delay the last one.
    assert!(since(entry.received, entry.last_token) >= Duration::from_millis(30 + 22));
}

#[tokio::test]
async fn sends_keep_alives_during_pauses() {
    let backend = start(&[
        "slow:prefill-ms=50,prefill-us-per-token=0,step-ms=0,batch-ms=0,tokens=2,ping-ms=10",
    ])
    .await;
    let (frames, _) = backend.stream(&STREAM.replace("quick", "slow"), &[]).await;
    assert!(frames.concat().matches(": ping\n\n").count() >= 2);
}

#[tokio::test]
async fn serves_http_2() {
    let backend = start(&[QUICK]).await;
    let socket = TcpStream::connect(backend.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://simulate/v1/chat/completions")
        .body(Full::new(Bytes::from(STREAM)))
        .unwrap();
    let body =
        sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test]
async fn serves_rate_limit_headers_and_metrics() {
    let backend = start(&["m:requests-per-minute=2,slots=4,tokens=1,prefix-hits=1"]).await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"Hello there"}]}"#;
    let mut results = Vec::new();
    for _ in 0..3 {
        let response = backend.post("/v1/chat/completions", body, &[]).await;
        let left = response.headers().get("x-ratelimit-remaining-requests");
        results.push((response.status().as_u16(), left.unwrap().clone()));
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(
        results,
        [(200, "1".parse().unwrap()), (200, "0".parse().unwrap()), (429, "0".parse().unwrap())]
    );
    assert_eq!(backend.get("/health").await, "");
    let page = backend.get("/metrics").await;
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.0",
    ] {
        assert!(page.lines().any(|it| it == line), "{page}");
    }
    assert!(!page.contains("queries_total{engine=\"0\",model_name=\"m\"} 0.0"), "{page}");
}
