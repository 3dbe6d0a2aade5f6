//! Tests WebSocket connections through the real program. Every byte must pass unchanged, and spans and metrics must
//! describe the messages.

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpStream;
use tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};
use tungstenite::{Message, WebSocket};

use crate::support::collector::Collector;
use crate::support::process::Process;
use crate::support::{Backend, Raw, lines, within};

const REALTIME: &str =
    "/v1/realtime?api-key=sk-in-the-query&model=gpt-4o-realtime-preview&call=in-the-query";

/// The program between a client and an upstream that have switched protocols, and the collector of its exports.
struct Setting {
    process: Process,
    collector: Collector,
    client: Raw<TcpStream>,
    upstream: Raw<TcpStream>,
}

impl Setting {
    async fn websocket(target: &str) -> Self {
        Self::upgraded(target, "").await
    }

    /// Switches to the WebSocket protocol. `extensions` are the extensions that the peers negotiate.
    async fn upgraded(target: &str, extensions: &str) -> Self {
        let backend = Backend::start().await;
        let collector = Collector::start().await;
        let endpoint = format!("http://{}", collector.address);
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ];
        let upstream = format!("http://{}", backend.address);
        let process = Process::start(&["--upstream", &upstream], &environment).await;
        let asked = [
            format!("GET {target} HTTP/1.1"),
            "Connection: Upgrade".to_owned(),
            "Upgrade: websocket".to_owned(),
            "Sec-WebSocket-Version: 13".to_owned(),
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==".to_owned(),
            "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.sk-in-a-header".to_owned(),
            "Sec-WebSocket-Extensions: permessage-deflate".to_owned(),
        ];
        let mut client = process.client().await;
        client.write(format!("{}\r\nHost: a\r\n\r\n", asked.join("\r\n"))).await;
        let mut upstream = backend.accept().await;
        let head = upstream.read_head().await;
        for line in &asked {
            assert!(lines(&head).contains(&line.as_str()), "{line} in {head}");
        }
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n{extensions}\r\n"
        );
        upstream.write(&answer).await;
        let head = client.read_head().await;
        let mut got: Vec<_> = lines(&head).into_iter().map(str::to_ascii_lowercase).collect();
        let mut sent: Vec<_> = lines(&answer).into_iter().map(str::to_ascii_lowercase).collect();
        got.sort_unstable();
        sent.sort_unstable();
        assert_eq!(got, sent);
        Self { process, collector, client, upstream }
    }

    /// Wraps both connections with another WebSocket implementation.
    fn peers(
        self,
    ) -> (Process, Collector, WebSocket<std::net::TcpStream>, WebSocket<std::net::TcpStream>) {
        let peer = |raw: Raw<TcpStream>, role| {
            let stream = raw.0.into_std().unwrap();
            stream.set_nonblocking(false).unwrap();
            // This timeout only turns a hang into a failure of the test.
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            WebSocket::from_raw_socket(stream, role, None)
        };
        let client = peer(self.client, Role::Client);
        (self.process, self.collector, client, peer(self.upstream, Role::Server))
    }
}

/// Returns the SERVER and the CLIENT span of the only exchange.
async fn spans(mut process: Process, collector: &Collector) -> [Span; 2] {
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    let mut spans = collector.spans();
    spans.sort_by_key(|span| span.kind);
    spans.try_into().unwrap()
}

/// Returns a text or integer attribute, or `?` for an attribute of another type.
fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == key)?;
    match found.value.as_ref()?.value.as_ref() {
        Some(Value::StringValue(text)) => Some(text.clone()),
        Some(Value::IntValue(number)) => Some(number.to_string()),
        _ => Some("?".to_owned()),
    }
}

fn attributes(span: &Span, keys: &[&str]) -> Vec<String> {
    let found = keys.iter().map(|key| attribute(span, key));
    found.map(|value| value.unwrap_or_else(|| "-".to_owned())).collect()
}

/// Returns the message counts of the client and the upstream, the closing peer, the close code and the outcome.
fn facts(server: &Span) -> Vec<String> {
    attributes(
        server,
        &[
            "tokengauge.websocket.request_messages",
            "tokengauge.websocket.response_messages",
            "tokengauge.websocket.closed_by",
            "tokengauge.websocket.close_code",
            "tokengauge.outcome",
        ],
    )
}

async fn told(process: &Process, parts: &[&str], number: u64) {
    within(&format!("{number} of {parts:?}"), async {
        while process.count(parts).await != number {}
    })
    .await;
}

const ANSWER: [&str; 4] = [
    r#"{"type":"session.created","session":{"id":"sess_1","model":"gpt-4o-realtime-preview-2025-06-03"}}"#,
    r#"{"type":"response.text.delta","response_id":"resp_1","item_id":"item_1","delta":"Hello"}"#,
    r#"{"type":"response.text.delta","response_id":"resp_1","item_id":"item_1","delta":" world"}"#,
    r#"{"type":"response.done","response":{"id":"resp_1","status":"completed","usage":{"input_tokens":11,"output_tokens":3}}}"#,
];

/// Exchanges messages between both peers and asserts that each receives exactly the messages that the other sent.
fn converse(
    client: &mut WebSocket<std::net::TcpStream>,
    upstream: &mut WebSocket<std::net::TcpStream>,
) {
    let audio =
        format!(r#"{{"type":"input_audio_buffer.append","audio":"{}"}}"#, "A".repeat(100_000));
    let asked = [Message::text(audio), Message::text(r#"{"type":"response.create"}"#)];
    for message in asked {
        client.send(message.clone()).unwrap();
        assert_eq!(upstream.read().unwrap(), message);
    }
    upstream.send(Message::Ping("alive".into())).unwrap();
    for text in ANSWER {
        upstream.send(Message::text(text)).unwrap();
    }
    assert!(matches!(client.read().unwrap(), Message::Ping(_)));
    for text in ANSWER {
        assert_eq!(client.read().unwrap(), Message::text(text));
    }
}

/// Closes the connection from the client's side. The server responds and then ends the connection.
fn close(mut client: WebSocket<std::net::TcpStream>, mut upstream: WebSocket<std::net::TcpStream>) {
    let (code, reason) = (CloseCode::Normal, "bye".into());
    client.close(Some(CloseFrame { code, reason })).unwrap();
    while upstream.read().is_ok() {}
    drop(upstream);
    while client.read().is_ok() {}
}

/// Asserts that the CLIENT span of [`converse`] contains the requested model, the model of the response and the
/// reported values, and no attributes of streams.
fn assert_is_the_session(client: &Span) {
    assert_eq!(client.name, "realtime gpt-4o-realtime-preview");
    let call = attributes(
        client,
        &[
            "gen_ai.operation.name",
            "gen_ai.request.model",
            "gen_ai.response.model",
            "gen_ai.conversation.id",
            "gen_ai.response.id",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
            "tokengauge.output_tokens.counted",
            "tokengauge.time_to_first_token",
            "tokengauge.output_token_rate",
            "tokengauge.total_token_rate",
        ],
    );
    let dated = "gpt-4o-realtime-preview-2025-06-03";
    let asked = "gpt-4o-realtime-preview";
    assert_eq!(call, ["realtime", asked, dated, "sess_1", "-", "11", "3", "2", "-", "-", "-"]);
}

#[tokio::test]
async fn a_realtime_session_passes_and_is_one_exchange() {
    let (process, collector, mut client, mut upstream) = Setting::websocket(REALTIME).await.peers();
    let (client, upstream) = tokio::task::spawn_blocking(move || {
        converse(&mut client, &mut upstream);
        (client, upstream)
    })
    .await
    .unwrap();
    // These metrics are exported while the connection is open.
    let tokens = ["tokengauge_tokens_total", "operation_name=\"realtime\"", "type=\"output\""];
    told(&process, &tokens, 2).await;
    let of = |direction| ["tokengauge_websocket_messages_total", direction];
    told(&process, &of("direction=\"request\""), 2).await;
    told(&process, &of("direction=\"response\""), 4).await;
    told(&process, &["tokengauge_active_requests", "state=\"unstreamed\""], 1).await;
    told(&process, &["tokengauge_queue_depth"], 0).await;

    tokio::task::spawn_blocking(move || close(client, upstream)).await.unwrap();
    let [server, client] = spans(process, &collector).await;
    assert_eq!(facts(&server), ["2", "4", "client", "1000", "ok"]);
    assert_is_the_session(&client);
    let size: u64 = attribute(&server, "http.request.body.size").unwrap().parse().unwrap();
    assert!(size > 100_000, "{size}");

    let exported = collector.bytes();
    for secret in ["in-the-query", "in-a-header", "Hello", "AAAA"] {
        let found = exported.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{secret} was exported");
    }
}

#[tokio::test]
async fn compressed_messages_pass_and_are_decoded() {
    let agreed = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    let mut setting = Setting::upgraded(REALTIME, agreed).await;
    // This is "Hello" from RFC 7692, section 7.2.3.1, followed by a close frame without a code.
    let compressed = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\x88\x00";
    setting.upstream.write(compressed).await;
    assert_eq!(setting.client.read_exactly(compressed.len()).await, compressed);
    let Setting { process, collector, client, mut upstream } = setting;
    drop(client);
    upstream.read_to_end().await;
    drop(upstream);
    let [server, client] = spans(process, &collector).await;
    assert_eq!(facts(&server), ["0", "1", "upstream", "-", "ok"]);
    assert_eq!(attribute(&client, "tokengauge.complete").unwrap(), "true");
    assert_eq!(attribute(&client, "tokengauge.output_tokens.counted").unwrap(), "0");
}

#[tokio::test]
async fn reports_which_side_aborted_a_websocket() {
    let mut setting = Setting::websocket("/somewhere/else").await;
    setting.upstream.write(b"\x81\x05Hello\x81\x7e").await;
    assert_eq!(setting.client.read_exactly(9).await, b"\x81\x05Hello\x81\x7e");
    drop(setting.upstream);
    assert_eq!(setting.client.read_to_end().await, b"");
    drop(setting.client);
    let [server, client] = spans(setting.process, &setting.collector).await;
    assert_eq!(facts(&server), ["0", "1", "-", "-", "truncated"]);
    assert_eq!(attribute(&server, "error.type").unwrap(), "upstream_truncated");
    assert_eq!(client.name, "GET");

    let mut setting = Setting::websocket("/somewhere/else").await;
    setting.client.write(b"\x81\x85\0\0\0\0Hello").await;
    setting.upstream.read_exactly(11).await;
    drop(setting.client);
    assert_eq!(setting.upstream.read_to_end().await, b"");
    drop(setting.upstream);
    let [server, _] = spans(setting.process, &setting.collector).await;
    assert_eq!(facts(&server), ["1", "0", "-", "-", "cancelled"]);
    assert_eq!(attribute(&server, "tokengauge.error_source").unwrap(), "client");
}
