//! Tests how the real program scrapes the metrics of an engine.
//!
//! The engine responds, hangs, sends false values, redirects, disappears and comes back.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::process::{CALL, Process};
use crate::support::within;

const VLLM: &str = include_str!("../fixtures/engines/vllm.prom");

/// What the engine does at the next scrape.
#[derive(Clone, Debug)]
enum Does {
    /// Responds with status 200 and this body.
    Answers(String),
    /// Responds with these raw bytes.
    Says(&'static str),
    /// Accepts the scrape and never responds.
    Hangs,
    /// Sends a page without end.
    Floods,
}

/// An engine whose behaviour at scrapes the test controls. It responds successfully to every API call.
struct Engine {
    address: SocketAddr,
    does: Arc<Mutex<Does>>,
    heads: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Engine {
    async fn start(does: Does) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), does).await
    }

    async fn at(address: SocketAddr, does: Does) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let does = Arc::new(Mutex::new(does));
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (now, asked) = (Arc::clone(&does), Arc::clone(&heads));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let does = now.lock().unwrap().clone();
                tokio::spawn(serve(stream, does, Arc::clone(&asked)));
            }
        });
        Self { address, does, heads, serving }
    }

    fn now(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut stream: TcpStream, does: Does, asked: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    asked.lock().unwrap().push(head);
    let answer = match does {
        Does::Answers(body) => {
            let length = body.len();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
            )
        }
        Does::Says(text) => text.to_owned(),
        Does::Hangs => return std::future::pending().await,
        Does::Floods => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let chunk = format!("{:x}\r\n{}\r\n", 65_536, "x".repeat(65_536));
            let mut sent = stream.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                sent = stream.write_all(chunk.as_bytes()).await;
            }
            return;
        }
    };
    drop(stream.write_all(answer.as_bytes()).await);
}

/// Starts the program in front of `engine`. `metrics` and `more` are additional keys of the upstream's configuration.
async fn before(engine: &Engine, metrics: &str, more: &str) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let log = folder.path().join("log.jsonl");
    let config = format!(
        "version: 1\nupstreams:\n  gpu: {{url: \"http://{}\", engine_metrics: {{{metrics}}}, {more}}}\n\
         request_log: {{path: \"{}\"}}\n",
        engine.address,
        log.display()
    );
    std::fs::write(&path, config).unwrap();
    let process = Process::start(&["--config", path.to_str().unwrap()], &[]).await;
    (process, folder)
}

const FAST: &str = "scrape_interval: 1s";

/// Returns the value of the only series in `/metrics` that contains each of `parts`, or `None` if no series matches.
async fn told(process: &Process, parts: &[&str]) -> Option<f64> {
    let (_, metrics) = process.page("/metrics").await;
    let mut found = metrics
        .lines()
        .filter(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)))
        .filter_map(|line| line.rsplit_once(' '));
    let value = found.next().map(|(_, value)| value.parse().unwrap());
    assert_eq!(found.next(), None, "{parts:?} matches more than one series");
    value
}

/// Waits until the series has the value.
async fn until(process: &Process, parts: &[&str], value: Option<f64>) {
    let waiting = async {
        while told(process, parts).await != value {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(&format!("{parts:?} = {value:?}"), waiting).await;
}

/// Waits until another scrape ends with this result.
async fn asked(process: &Process, how: &str) {
    let how = format!("tokengauge_scrape_result=\"{how}\"");
    let parts = ["tokengauge_self_scrapes_total", how.as_str()];
    let before = told(process, &parts).await.unwrap();
    let waiting = async {
        while told(process, &parts).await.unwrap() <= before {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(&how, waiting).await;
}

const WAITING: [&str; 2] = ["tokengauge_backend_requests{", "state=\"waiting\""];
const AGE: [&str; 1] = ["tokengauge_backend_scrape_age_seconds{"];
const DEPTH: &str = "tokengauge_queue_depth{";

#[tokio::test]
async fn scrapes_an_engine_and_its_queue_makes_the_depth_exact() {
    let engine = Engine::start(Does::Answers(VLLM.to_owned())).await;
    let (process, _folder) = before(&engine, FAST, "").await;
    until(&process, &WAITING, Some(3.0)).await;
    let running = ["backend_requests{", "state=\"running\"", "engine=\"vllm\""];
    assert_eq!(told(&process, &running).await, Some(21.0));
    let cache = ["backend_kv_cache_utilization_ratio{", "upstream=\"gpu\""];
    assert_eq!(told(&process, &cache).await, Some(0.837_104_072_398_190_1));
    let depth = told(&process, &[DEPTH, "precision=\"exact\""]).await;
    assert_eq!(depth, Some(3.0));
    assert_eq!(told(&process, &[DEPTH, "precision=\"upper_bound\""]).await, None);
    assert!(told(&process, &AGE).await.unwrap() >= 0.0);
    let stats: Value = serde_json::from_str(&process.page("/stats").await.1).unwrap();
    let shown = &stats["backends"][0];
    assert_eq!((&shown["upstream"], &shown["engine"]), (&"gpu".into(), &"vllm".into()));
    assert_eq!((&shown["waiting"], &shown["running"]), (&3.into(), &21.into()));
    let prefix = ["tokengauge_backend_prefix_cache_hit_ratio{"];
    assert_eq!(told(&process, &prefix).await, None, "no interval has passed");
    let more = VLLM
        .replace(
            "queries_total{engine=\"1\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"} 451424.0",
            "queries_total{engine=\"1\"} 451824.0",
        )
        .replace(
            "hits_total{engine=\"1\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"} 75712.0",
            "hits_total{engine=\"1\"} 75812.0",
        );
    engine.now(Does::Answers(more));
    until(&process, &prefix, Some(0.25)).await;
    let head = engine.heads.lock().unwrap()[0].to_ascii_lowercase();
    assert!(head.starts_with("get /metrics http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {}\r\n", engine.address)), "{head}");
    assert!(!head.contains("authorization"), "{head}");
    process.logged(&["engine metrics scrape succeeded", "\"vllm\""]).await;
}

#[tokio::test]
async fn counts_scrape_failures_by_kind_and_logs_each_once() {
    const REDIRECT: &str =
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: /metrics/\r\nContent-Length: 0\r\n\r\n";
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>no</html>";
    const CUT: &str =
        "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nvllm:num_requests_waiting 1\n";
    const OTHER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n";
    let engine = Engine::start(Does::Hangs).await;
    // Only a hanging scrape reaches the long timeout of 5 s. A second timeout would log an additional failure.
    let (process, _folder) = before(&engine, "scrape_interval: 1s, scrape_timeout: 5s", "").await;
    asked(&process, "timeout").await;
    assert_eq!(told(&process, &AGE).await, None, "no scrape has succeeded");
    for (does, how) in [
        (Does::Says(REDIRECT), "redirect"),
        (Does::Says(BUSY), "http_error"),
        (Does::Says(PAGE), "not_metrics"),
        (Does::Says(CUT), "unreachable"),
        (Does::Says(OTHER), "unknown_engine"),
        (Does::Floods, "too_large"),
        (Does::Answers(VLLM.to_owned()), "ok"),
    ] {
        engine.now(does);
        asked(&process, how).await;
    }
    assert!(
        engine.heads.lock().unwrap().iter().all(|head| !head.contains("/metrics/")),
        "a redirect was followed"
    );
    asked(&process, "ok").await;
    let log = process.log();
    let said = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(said("scrape failed"), 7, "{log}");
    assert_eq!(said("scrape succeeded"), 1, "{log}");
}

#[tokio::test]
async fn ignores_impossible_values_of_an_engine() {
    let page =
        "vllm:num_requests_waiting -4\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 93\n";
    let engine = Engine::start(Does::Answers(page.to_owned())).await;
    let (process, _folder) = before(&engine, FAST, "").await;
    let running = ["tokengauge_backend_requests{", "state=\"running\""];
    until(&process, &running, Some(2.0)).await;
    assert_eq!(told(&process, &WAITING).await, None);
    let cache = ["tokengauge_backend_kv_cache_utilization_ratio{"];
    assert_eq!(told(&process, &cache).await, None);
    let lies = told(&process, &["tokengauge_self_implausible_values_total{"]).await;
    assert!(lies >= Some(2.0), "{lies:?}");
    assert_eq!(told(&process, &[DEPTH, "precision=\"upper_bound\""]).await, Some(0.0));
}

#[tokio::test]
async fn an_engine_that_disappears_leaves_its_scrape_age_and_can_return() {
    let engine = Engine::start(Does::Answers(VLLM.to_owned())).await;
    let (process, _folder) = before(&engine, FAST, "").await;
    until(&process, &WAITING, Some(3.0)).await;
    let address = engine.address;
    drop(engine);
    asked(&process, "unreachable").await;
    until(&process, &WAITING, None).await;
    // The minimum age is three intervals plus one timeout.
    let age = told(&process, &AGE).await.unwrap();
    assert!(age > 5.0, "{age}");
    assert_eq!(told(&process, &[DEPTH, "precision=\"upper_bound\""]).await, Some(0.0));
    let _engine = Engine::at(address, Does::Answers(VLLM.to_owned())).await;
    until(&process, &WAITING, Some(3.0)).await;
    let younger = told(&process, &AGE).await.unwrap();
    assert!(younger < age, "{younger}");
}

#[tokio::test]
async fn a_reload_starts_and_stops_scraping() {
    let engine = Engine::start(Does::Answers(VLLM.to_owned())).await;
    let (process, folder) = before(&engine, FAST, "").await;
    until(&process, &WAITING, Some(3.0)).await;
    let path = folder.path().join("config.yaml");
    let with = std::fs::read_to_string(&path).unwrap();
    let without = with.replace(&format!("engine_metrics: {{{FAST}}},"), "");
    assert_ne!(with, without);
    std::fs::write(&path, without).unwrap();
    process.signal("HUP");
    until(&process, &AGE, None).await;
    let asked_before = engine.heads.lock().unwrap().len();
    std::fs::write(&path, with).unwrap();
    process.signal("HUP");
    until(&process, &WAITING, Some(3.0)).await;
    assert!(engine.heads.lock().unwrap().len() > asked_before);
}

#[tokio::test]
async fn calls_to_a_warming_backend_are_labelled() {
    const ANSWER: &str = r#"{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}"#;
    let engine = Engine::start(Does::Answers(ANSWER.to_owned())).await;
    let (process, folder) =
        before(&engine, "scrape_interval: 1m", "warmup: {min_requests: 2}").await;
    let warm = |state: &'static str| ["tokengauge_backend_warmup_state{", state];
    assert_eq!(told(&process, &warm("warmup_state=\"warming\"")).await, Some(1.0));
    for sent in 1..=3 {
        let mut client = process.client().await;
        let body = r#"{"model":"m","messages":[]}"#;
        let length = body.len();
        client
            .write(format!(
                "POST {CALL} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .await;
        client.read_to_end().await;
        // The next request must not begin before the observer has seen the end of this one.
        let counted = async { while process.count(&["requests_finished"]).await < sent {} };
        within("the request to be counted", counted).await;
    }
    assert_eq!(told(&process, &warm("warmup_state=\"warming\"")).await, Some(0.0));
    assert_eq!(told(&process, &warm("warmup_state=\"warm\"")).await, Some(1.0));
    let log = folder.path().join("log.jsonl");
    let lines = async {
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<Value> =
                text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            if lines.len() == 3 {
                return lines;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let lines = within("three lines", lines).await;
    let found: Vec<&str> =
        lines.iter().map(|line| line["call"]["warmup_state"].as_str().unwrap()).collect();
    assert_eq!(found, ["warming", "warming", "warm"]);
}
