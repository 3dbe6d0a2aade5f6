//! Tests that no prompt, completion or credential appears in the program's pages, logs, own responses or exports.
//!
//! The rule applies to every place in an exchange where such text can be, and to every way in which an exchange can
//! end. Captured content appears only on spans of the route that captures content.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpStream;

use crate::support::collector::Collector;
use crate::support::process::Process;
use crate::support::{Backend, Raw, within};

/// Prefix of every text that must not leak. The suffix shows the place of the text in the exchange.
const PLANTED: &str = "planted-in-";

/// A request, and the raw bytes of the upstream's response. The upstream closes the connection after the response.
struct Case {
    path: &'static str,
    body: &'static str,
    status: &'static str,
    kind: &'static str,
    answer: &'static str,
}

const fn case(
    path: &'static str,
    body: &'static str,
    kind: &'static str,
    answer: &'static str,
) -> Case {
    Case { path, body, status: "200 OK", kind, answer }
}

const fn failing(status: &'static str, kind: &'static str, answer: &'static str) -> Case {
    Case { path: CHAT, body: CHAT_BODY, status, kind, answer }
}

const CHAT: &str = "/v1/chat/completions";
const CHAT_BODY: &str = r#"{"model":"gpt-4o","stream":true,"user":"planted-in-user","stop":["planted-in-stop"],
    "messages":[{"role":"system","content":"planted-in-system"},{"role":"user","content":"planted-in-prompt"}],
    "tools":[{"type":"function","function":{"name":"planted-in-tool","description":"planted-in-tool"}}]}"#;
const STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// One successful exchange of each API family, streamed where the API streams.
const ANSWERED: [Case; 9] = [
    case(
        CHAT,
        CHAT_BODY,
        STREAM,
        "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"planted-in-completion\",\
        \"reasoning_content\":\"planted-in-reasoning\",\"tool_calls\":[{\"index\":0,\"id\":\"planted-in-call\",\"function\":\
        {\"name\":\"planted-in-call\",\"arguments\":\"planted-in-arguments\"}}]},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    ),
    case(
        CHAT,
        r#"{"model":"gpt-4o","messages":[{"role":"user","content":"planted-in-prompt"}]}"#,
        JSON,
        r#"{"id":"c","choices":[{"index":0,"message":{"content":"planted-in-completion","refusal":"planted-in-refusal"},"finish_reason":"stop"}]}"#,
    ),
    case(
        "/v1/responses",
        r#"{"model":"gpt-4o","stream":true,"instructions":"planted-in-system","input":"planted-in-prompt"}"#,
        STREAM,
        "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"planted-in-completion\"}\n\n\
         data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"instructions\":\"planted-in-system\"}}\n\n",
    ),
    case(
        "/v1/messages",
        r#"{"model":"claude-a","stream":true,"max_tokens":5,"system":"planted-in-system","messages":[{"role":"user","content":"planted-in-prompt"}]}"#,
        STREAM,
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"planted-in-completion\"}}\n\n\
         data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":\"planted-in-stop\"}}\n\n\
         data: {\"type\":\"message_stop\"}\n\n",
    ),
    case(
        "/v1beta/models/gemini-a:streamGenerateContent",
        r#"{"contents":[{"role":"user","parts":[{"text":"planted-in-prompt"}]}]}"#,
        STREAM,
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"planted-in-completion\"}]},\"finishReason\":\"STOP\",\"finishMessage\":\"planted-in-message\"}]}\n\n",
    ),
    case(
        "/model/amazon.a/converse",
        r#"{"system":[{"text":"planted-in-system"}],"messages":[{"role":"user","content":[{"text":"planted-in-prompt"}]}]}"#,
        JSON,
        r#"{"output":{"message":{"content":[{"text":"planted-in-completion"}]}},"stopReason":"end_turn"}"#,
    ),
    case(
        "/v2/chat",
        r#"{"model":"command-a","messages":[{"role":"user","content":"planted-in-prompt"}]}"#,
        JSON,
        r#"{"id":"c","message":{"content":[{"type":"text","text":"planted-in-completion"}]},"finish_reason":"COMPLETE"}"#,
    ),
    case(
        "/api/chat",
        r#"{"model":"llama-a","messages":[{"role":"user","content":"planted-in-prompt"}]}"#,
        "application/x-ndjson",
        "{\"model\":\"llama-a\",\"message\":{\"content\":\"planted-in-completion\"}}\n{\"done\":true,\"done_reason\":\"stop\"}\n",
    ),
    case("/upload", "planted-in-body-of-no-api", "text/plain", "planted-in-answer-of-no-api"),
];

/// Error bodies that quote the request, and bodies that are not valid JSON, text or HTTP.
const FAILED: [Case; 8] = [
    failing(
        "401 Unauthorized",
        JSON,
        r#"{"error":{"message":"Incorrect API key provided: planted-in-error",
        "type":"invalid_request_error","param":"planted-in-error","code":"invalid_api_key"}}"#,
    ),
    failing(
        "400 Bad Request",
        JSON,
        r#"{"error":"planted-in-error message","detail":[{"input":"planted-in-prompt"}]}"#,
    ),
    failing(
        "400 Bad Request",
        JSON,
        r#"{"error":{"type":"the key planted-in-type is wrong","code":"Bearer planted-in-code"}}"#,
    ),
    failing("502 Bad Gateway", "text/html", "<html>planted-in-html</html>"),
    failing(
        "200 OK",
        STREAM,
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"planted-in-completion\"}}]}\n\n\
        data: {\"error\":{\"message\":\"planted-in-error\",\"type\":\"server_error\"}}\n\n",
    ),
    failing(
        "200 OK",
        STREAM,
        "data: {\"choices\":[{\"delta\":{\"content\":\"planted-in-broken\n\ndata: planted-in-broken\n\nplanted-in-stray\n\n",
    ),
    failing(
        "200 OK",
        JSON,
        r#"{"choices":[{"message":{"content":"planted-in-broken" oops planted-in-broken"#,
    ),
    failing(
        "200 OK",
        STREAM,
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"planted-in-cut",
    ),
];

/// Returns request headers with a credential in every header that can contain one.
fn head(method: &str, target: &str, more: &str) -> String {
    format!(
        "{method} {target}?api_key=planted-in-query&key=planted-in-query HTTP/1.1\r\nHost: a\r\n\
         Authorization: Bearer planted-in-authorization\r\nX-Api-Key: planted-in-x-api-key\r\n\
         Api-Key: planted-in-api-key\r\nX-Goog-Api-Key: planted-in-goog-key\r\nProxy-Authorization: Basic planted-in-proxy\r\n\
         Cookie: session=planted-in-cookie\r\nX-Amz-Security-Token: planted-in-amz\r\nX-Own: planted-in-header\r\n{more}\r\n"
    )
}

fn request(target: &str, body: &str) -> String {
    let length = format!("Connection: close\r\nContent-Length: {}\r\n", body.len());
    head("POST", target, &length) + body
}

/// Starts an upstream that selects the response by the number in `X-Case`. It closes the connection after each
/// response.
fn answering(backend: Backend, cases: &'static [Case]) {
    tokio::spawn(async move {
        loop {
            let mut client = backend.accept().await;
            tokio::spawn(async move {
                let Some(head) = client.next_head().await else {
                    return;
                };
                let number = |name: &str| -> Option<usize> {
                    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                    let (_, value) = lines.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
                    value.parse().ok()
                };
                client.read_exactly(number("content-length").unwrap_or(0)).await;
                let Some(case) = number("x-case").and_then(|case| cases.get(case)) else {
                    // A request without a valid `X-Case` gets a response that is not HTTP.
                    return client.write("planted-in-garbage\r\n\r\n").await;
                };
                let head = format!(
                    "HTTP/1.1 {}\r\nContent-Type: {}\r\nSet-Cookie: s=planted-in-set-cookie\r\nX-Own: planted-in-answer-header\r\n\
                     Connection: close\r\n\r\n",
                    case.status, case.kind
                );
                client.write(head + case.answer).await;
            });
        }
    });
}

/// The program with all outputs enabled, and the text of its own responses and admin pages so far.
struct Watched {
    process: Process,
    collector: Collector,
    folder: tempfile::TempDir,
    shown: String,
}

impl Watched {
    /// Starts the program. `first` contains additional configuration keys of the route `first`.
    async fn start(upstream: SocketAddr, first: &str) -> Self {
        let collector = Collector::start().await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        let log = folder.path().join("requests");
        // Nothing listens at the address of the upstream `b`.
        let text = format!(
            "version: 1\nupstreams: {{a: {{url: \"http://{upstream}\"}}, b: {{url: \"http://127.0.0.1:1\"}}}}\n\
             routes:\n  - {{upstream: a, name: first, match: {{prefix: /first}}, strip_prefix: true{first}}}\n  \
             - {{upstream: b, name: dead, match: {{prefix: /dead}}, strip_prefix: true}}\n  \
             - {{upstream: a, name: rest, match: {{prefix: /rest}}, strip_prefix: true}}\n\
             request_log: {{path: {}}}\notlp: {{headers: {{x-own: planted-in-export-header}}}}\n",
            log.display()
        );
        fs::write(&config, text).unwrap();
        let endpoint = format!("http://{}", collector.address);
        let process = Process::start(
            &["--config", config.to_str().unwrap(), "--log-level", "trace"],
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=planted-in-otlp-header"),
                ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
                ("TOKENGAUGE_ADMIN_TOKEN", "planted-in-admin-token"),
                ("https_proxy", "http://u:planted-in-proxy-url@127.0.0.1:1"),
            ],
        )
        .await;
        Self { process, collector, folder, shown: String::new() }
    }

    /// Sends a request and reads until the connection is closed. The upstream sends the response, so secrets in it are
    /// not a leak.
    async fn exchange(&self, request: &str) -> Vec<u8> {
        let mut client = self.process.client().await;
        client.write(request).await;
        client.read_to_end().await
    }

    /// Sends a request to which the proxy itself responds, and adds the response to the text that is searched for
    /// leaks.
    async fn own(&mut self, request: &str) {
        let answer = self.exchange(request).await;
        assert!(!answer.is_empty(), "no response to {request}");
        self.shown.push_str(&String::from_utf8(answer).unwrap());
    }

    /// Requests every admin page, and the metrics in both formats.
    async fn look(&mut self) {
        for path in [
            "/",
            "/metrics",
            "/config",
            "/streams",
            "/slo",
            "/stats",
            "/drift",
            "/planted-in-admin-path?planted-in-admin-query",
        ] {
            for accept in ["*/*", "application/openmetrics-text; version=1.0.0"] {
                let mut client = Raw::connect(self.process.admin).await;
                let request = format!(
                    "GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nAuthorization: Bearer planted-in-admin-token\r\n\
                     Connection: close\r\n\r\n"
                );
                client.write(request).await;
                let page = client.read_to_end().await;
                self.shown.push_str(&String::from_utf8(page).unwrap());
            }
        }
    }

    /// Waits until the observer has applied `requests` requests to their end. An overloaded observer and the shutdown give
    /// up bodies that wait for too long.
    async fn await_finished(&self, requests: u64) {
        let finished =
            async { while self.process.count(&["requests_finished_total"]).await < requests {} };
        within("the requests to be observed", finished).await;
    }

    /// Stops the program. Returns all outputs except spans, and separately the spans.
    async fn told(mut self) -> (Vec<(&'static str, String)>, Vec<Span>) {
        self.look().await;
        self.process.signal("TERM");
        assert_eq!(self.process.ended().await.code(), Some(0));
        let log = self.process.log();
        assert!(log.contains("CAPTURE_MESSAGE_CONTENT"), "the log reports the ignored variable");
        let requests = fs::read_to_string(self.path("requests")).unwrap();
        let metrics = String::from_utf8_lossy(&self.collector.metrics()).into_owned();
        assert!(
            metrics.contains("gpt-4o")
                && self.shown.contains("gpt-4o")
                && requests.contains("gpt-4o")
        );
        let told = vec![
            ("on a page or in an answer", self.shown),
            ("in the log", log),
            ("in the request log", requests),
            ("in a metric", metrics),
        ];
        (told, self.collector.spans())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn assert_clean(place: &str, text: &str) {
    let found = text.find(PLANTED).map(|at| {
        let from = at.saturating_sub(200);
        text.get(from..text.len().min(at + 60)).unwrap_or("not on a boundary").to_owned()
    });
    assert_eq!(found, None, "{place}");
}

#[tokio::test]
async fn no_output_contains_credentials_or_text() {
    static CASES: [Case; 17] = {
        let [a, b, c, d, e, f, g, h, i] = ANSWERED;
        let [j, k, l, m, n, o, p, q] = FAILED;
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]
    };
    let backend = Backend::start().await;
    let mut watched = Watched::start(backend.address, "").await;
    answering(backend, &CASES);
    let mut exchanges = 0;
    for (number, case) in CASES.iter().enumerate() {
        let request = request(&format!("/first{}", case.path), case.body).replacen(
            "\r\n",
            &format!("\r\nX-Case: {number}\r\n"),
            1,
        );
        let answer = watched.exchange(&request).await;
        let answer = String::from_utf8_lossy(&answer);
        let passed = answer.contains("planted-in-") && answer.contains("planted-in-set-cookie");
        assert!(passed, "case {number}: {answer}");
        exchanges += 1;
    }
    exchanges += failing_here(&mut watched).await;
    watched.look().await;
    let ended = ["tokengauge_requests_finished_total"];
    within("the exchanges' ends", async {
        while watched.process.count(&ended).await < exchanges {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (told, spans) = watched.told().await;
    for (place, text) in &told {
        assert_clean(place, text);
    }
    assert!(spans.len() > 20, "{}", spans.len());
    assert_clean("on a span", &format!("{spans:?}"));
}

/// Performs exchanges that fail in the proxy or break off. Returns their number.
async fn failing_here(watched: &mut Watched) -> u64 {
    // The upstream does not send HTTP, the upstream is unreachable, no route matches, or the target contains
    // credentials.
    watched.own(&request("/first/v1/chat/completions", CHAT_BODY)).await;
    watched.own(&request("/dead/v1/chat/completions", CHAT_BODY)).await;
    watched.own(&request("/elsewhere", CHAT_BODY)).await;
    watched.own(&request("http://u:planted-in-userinfo@a/elsewhere", CHAT_BODY)).await;
    // Request headers that are not valid HTTP.
    for head in [
        "planted-in-line\r\n\r\n",
        "GET /planted-in-target HTTP/1.1 planted-in-line\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nplanted-in-line planted: \u{1}\r\n\r\n",
    ] {
        watched.own(head).await;
    }
    // The client closes the connection in the middle of its body.
    let whole = request("/first/v1/chat/completions", CHAT_BODY);
    let mut client = watched.process.client().await;
    client.write(&whole.as_bytes()[..whole.len() - 10]).await;
    drop(client);
    5
}

#[tokio::test]
async fn no_output_contains_messages_of_a_session() {
    let backend = Backend::start().await;
    let mut watched = Watched::start(backend.address, "").await;
    let mut client = watched.process.client().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.planted-in-protocol\r\n";
    let asked = head("GET", "/first/v1/realtime", upgrade).replacen('?', "?model=gpt-4o&", 1);
    client.write(asked).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream
        .write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSet-Cookie: planted-in-set-cookie\r\n\r\n")
        .await;
    client.read_head().await;
    let from_client = r#"{"type":"session.update","session":{"instructions":"planted-in-system"}}"#;
    let from_upstream = [
        r#"{"type":"session.created","session":{"id":"s","model":"gpt-4o","instructions":"planted-in-system"}}"#,
        r#"{"type":"response.output_text.delta","response_id":"r","item_id":"i","delta":"planted-in-completion"}"#,
        r#"{"type":"error","error":{"type":"server_error","message":"planted-in-error"}}"#,
        "planted-in-no-json",
    ];
    client.write(frame(from_client, Some([0; 4]))).await;
    upstream.read_until("\"planted-in-system\"}}").await;
    for message in from_upstream {
        upstream.write(frame(message, None)).await;
    }
    client.read_until("planted-in-no-json").await;
    watched.look().await;
    hang_up(client, upstream).await;
    let (told, spans) = watched.told().await;
    for (place, text) in &told {
        assert_clean(place, text);
    }
    assert_eq!(spans.len(), 2);
    assert_clean("on a span", &format!("{spans:?}"));
}

/// Encodes a WebSocket text message. The mask of zeros is valid and leaves the payload readable.
fn frame(text: &str, mask: Option<[u8; 4]>) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut frame = vec![0x81, masked | 126];
    frame.extend(length.to_be_bytes());
    frame.extend(mask.unwrap_or_default().iter().take(if mask.is_some() { 4 } else { 0 }));
    frame.extend(text.as_bytes());
    frame
}

async fn hang_up(client: Raw<TcpStream>, mut upstream: Raw<TcpStream>) {
    drop(client);
    upstream.read_to_end().await;
}

/// Attributes of spans that contain content.
const CONTENT: [&str; 4] = [
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
];

fn text<'s>(span: &'s Span, key: &str) -> Option<&'s str> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Any::StringValue(text) => Some(text),
        Any::BoolValue(_)
        | Any::IntValue(_)
        | Any::DoubleValue(_)
        | Any::ArrayValue(_)
        | Any::KvlistValue(_)
        | Any::BytesValue(_)
        | Any::StringValueStrindex(_) => None,
    }
}

/// Asserts that a span of a known API has both input and output content.
fn assert_captured(span: &Span) {
    let holds = |key, what| text(span, key).is_some_and(|text| text.contains(what));
    let input = holds(CONTENT[0], "planted-in-prompt [redacted]");
    let output = holds(CONTENT[1], "planted-in-completion");
    let is_call = text(span, "gen_ai.operation.name").is_some();
    assert_eq!((input, output), (is_call, is_call), "{span:?}");
}

#[tokio::test]
async fn captured_content_is_only_on_spans_of_its_route() {
    static CASES: [Case; 9] = ANSWERED;
    let backend = Backend::start().await;
    let capture = ", content: {capture: true, redact: [secrets, '/in-argu[a-z]+/']}";
    let watched = Watched::start(backend.address, capture).await;
    answering(backend, &CASES);
    let secret = "sk-aaaaaaaaaaaaaaaaaaaaaaaa";
    let mut requests = 0;
    for (number, case) in CASES.iter().enumerate() {
        for route in ["first", "rest"] {
            let body =
                case.body.replace("planted-in-prompt", &format!("planted-in-prompt {secret}"));
            let request = request(&format!("/{route}{}", case.path), &body).replacen(
                "\r\n",
                &format!("\r\nX-Case: {number}\r\n"),
                1,
            );
            let answer = watched.exchange(&request).await;
            assert!(String::from_utf8_lossy(&answer).contains("planted-in-"));
            requests += 1;
            watched.await_finished(requests).await;
        }
    }
    let (told, mut spans) = watched.told().await;
    for (place, text) in &told {
        assert_clean(place, text);
    }
    let mut captured = String::new();
    for span in &mut spans {
        if text(span, "tokengauge.route") != Some("first") || span.kind != 3 {
            continue;
        }
        assert_captured(span);
        for key in CONTENT {
            write!(captured, "{:?}", text(span, key)).unwrap();
        }
        let is_content =
            |key: &str| CONTENT.contains(&key) || key == "gen_ai.request.stop_sequences";
        span.attributes.retain(|attribute| !is_content(&attribute.key));
    }
    assert_clean("elsewhere on a span", &format!("{spans:?}"));
    for kept in ["planted-in-system", "planted-in-reasoning", "planted-in-tool", "planted-in-call"]
    {
        assert!(captured.contains(kept), "{kept}");
    }
    // Redacted text, fields that are not content, and credentials must be absent.
    for gone in
        ["sk-aaa", "in-argu", "authorization", "-key", "cookie", "query", "header", "in-user"]
    {
        assert!(!captured.contains(gone), "{gone} in {captured}");
    }
}

#[test]
fn upstream_errors_do_not_contain_the_user_of_the_url() {
    let refused = |arguments: &[&str]| {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args(arguments)
            .env_clear()
            .output()
            .unwrap();
        assert!(!ended.status.success());
        let told = [ended.stdout, ended.stderr].concat();
        String::from_utf8(told).unwrap()
    };
    let url = "http://u:planted-in-userinfo@127.0.0.1:1/?planted-in-query=1";
    let told = refused(&["run", "--upstream", url]);
    assert!(told.contains("--upstream"), "{told}");
    assert_clean("in an error", &told);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.yaml");
    fs::write(&file, format!("version: 1\nupstreams: {{a: {{url: \"{url}\"}}}}\n")).unwrap();
    let told = refused(&["check", file.to_str().unwrap()]);
    assert!(told.contains("upstreams.a.url"), "{told}");
    assert_clean("in an error", &told);
}
