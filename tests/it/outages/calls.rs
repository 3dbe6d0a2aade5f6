//! Plays one call between raw sockets, on the path of a row.

use std::time::Duration;

use tokengauge::forward::ConcurrencyLimit;
use tokio::net::TcpStream;

use super::table::{Row, has_stalled};
use super::{Times, threshold};
use crate::aborts::rig::Rig;
use crate::aborts::unaccepting::Unaccepting;
use crate::support::{Backend, Raw, Setup, within};

const PATH: &str = "/v1/chat/completions";
const STREAMED: &str =
    r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"Say hello"}]}"#;
const WHOLE: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Say hello"}]}"#;

/// Time limits of the proxy. The test waits for them.
const LIMIT: Duration = Duration::from_millis(50);
/// Waiting time of rows in which clients wait longer than in a healthy call.
const WAIT: Duration = Duration::from_millis(100);
/// Idle limit of the row that hangs until this limit. Longer than [`DECODE`], during which the limit must not expire.
const IDLE_LIMIT: Duration = Duration::from_secs(2);
/// Tokens before a response breaks.
const TOKENS: usize = 25;
/// Time between the first token and the others: more than the shortest time for which a rate is computed.
const DECODE: Duration = Duration::from_millis(110);

/// Plays the call of a row. Returns all metrics.
pub async fn play(row: &Row, times: Times) -> String {
    let backend = Backend::start().await;
    let unaccepting = Unaccepting::start().await;
    let mut setup = Setup::to(backend.address);
    setup.inter_token_after = threshold(2.0, times.silence);
    setup.first_token_after = threshold(30.0, times.token);
    let is_local = configure(row, &mut setup, unaccepting.address.port()).await;
    let mut rig = Rig::judged(setup, times.objectives()).await;
    let mut client = rig.proxy.client().await;
    let body = if row.stream { STREAMED } else { WHOLE };
    let length = body.len();
    let is_whole = row.breaks != "clients break off their uploads";
    let body = if is_whole { body } else { body.split_at(length / 2).0 };
    client
        .write(format!("POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"))
        .await;
    if is_local {
        if row.breaks == "a drain rejects new requests" {
            rig.proxy.forwarder.drain();
        }
        client.read_head().await;
    } else {
        if row.breaks.starts_with("the queue of the proxy grows") {
            tokio::time::sleep(WAIT).await;
            rig.proxy.limit(Some(limit(1, 0)));
        }
        let mut upstream = backend.accept().await;
        if row.breaks == "the TLS handshake fails" {
            upstream.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
            client.read_head().await;
        } else {
            upstream.read_until(body).await;
            let call = Call { stream: row.stream, waits: times.has_waited(), client, upstream };
            call.respond(row, &mut rig).await;
        }
    }
    rig.told().await.1
}

/// Changes the settings for a row. Returns whether the proxy responds without a connection to the upstream.
async fn configure(row: &Row, setup: &mut Setup, unaccepting: u16) -> bool {
    let timeouts = &mut setup.upstream.timeouts;
    match row.breaks {
        "the name of the upstream does not resolve" => {
            setup.upstream.host = "no-such-host.invalid".to_owned();
        }
        "the upstream refuses connections" => {
            setup.upstream.port = Backend::start().await.address.port();
        }
        "connecting hangs until the timeout of 10 s" => {
            timeouts.connect = Some(LIMIT);
            setup.upstream.port = unaccepting;
        }
        "the concurrency limit and its queue are full" => setup.admission = Some(limit(0, 0)),
        "requests exceed the queue timeout of 5 s" => {
            setup.admission = Some(ConcurrencyLimit { queue_timeout: LIMIT, ..limit(0, 1) });
        }
        "a drain rejects new requests" => setup.admission = Some(limit(0, 1)),
        "the queue of the proxy grows: requests wait 20 s" => {
            setup.admission = Some(limit(0, 1));
            return false;
        }
        "the TLS handshake fails" => {
            setup.upstream.tls = true;
            return false;
        }
        "no response headers until `timeouts.response_header` of 20 s" => {
            timeouts.response_header = Some(LIMIT);
            return false;
        }
        "the response hangs after 25 tokens until `timeouts.idle` of 20 s" => {
            timeouts.idle = Some(IDLE_LIMIT);
            return false;
        }
        _ => return false,
    }
    true
}

fn limit(max_in_flight: usize, max_queue: usize) -> ConcurrencyLimit {
    ConcurrencyLimit { max_in_flight, max_queue, queue_timeout: Duration::from_secs(30) }
}

/// A call whose request the upstream has received.
struct Call {
    stream: bool,
    /// Whether clients wait longer than in a healthy call.
    waits: bool,
    client: Raw<TcpStream>,
    upstream: Raw<TcpStream>,
}

impl Call {
    async fn respond(mut self, row: &Row, rig: &mut Rig) {
        if let Some(status) = row.breaks.strip_prefix("the upstream responds ") {
            self.fail(status, row.cell("error.type")).await;
            return;
        }
        match row.breaks {
            "the upstream closes or resets the connection before the response headers" => {
                drop(self.upstream);
                self.client.read_head().await;
            }
            "the response is not HTTP" => {
                self.upstream.write("SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
                self.client.read_head().await;
            }
            "no response headers until `timeouts.response_header` of 20 s" => {
                self.client.read_head().await;
            }
            breaks
                if breaks.starts_with("clients ")
                    && breaks.ends_with("before the response headers") =>
            {
                self.leave(row, rig).await;
            }
            "clients break off their uploads"
            | "no response headers, and clients leave after 60 s" => self.leave(row, rig).await,
            _ => self.respond_with_tokens(row, rig).await,
        }
    }

    async fn respond_with_tokens(mut self, row: &Row, rig: &mut Rig) {
        if row.breaks.starts_with("slow prefill") {
            tokio::time::sleep(WAIT).await;
        }
        let is_reasoning = row.breaks == "clients leave after 2 s, while the model reasons";
        self.tokens(if is_reasoning { "reasoning_content" } else { "content" }).await;
        match row.breaks {
            "the provider reports `server_error` in the stream"
            | "the provider reports `invalid_request_error` in the stream" => {
                let kind = row.cell("error.type");
                self.event(&format!(r#"{{"error":{{"type":"{kind}"}}}}"#)).await;
                self.end().await;
            }
            "the upstream cuts the response after 25 tokens" => {
                drop(self.upstream);
                self.client.read_to_end().await;
            }
            "the stream ends without its final event" => self.end().await,
            "the response hangs after 25 tokens until `timeouts.idle` of 20 s" => {
                self.client.read_to_end().await;
            }
            "a shutdown aborts responses after 25 tokens" => {
                let connections = rig.proxy.stop().await;
                connections.drain(Duration::ZERO).await;
                rig.proxy.forwarder.abort();
                connections.abort().await;
                self.client.read_to_end().await;
            }
            breaks if breaks.contains("clients leave") => self.leave(row, rig).await,
            _ => self.finish().await,
        }
    }

    async fn fail(&mut self, status: &str, kind: &str) {
        let body = format!(r#"{{"error":{{"type":"{kind}"}}}}"#);
        let length = body.len();
        self.upstream
            .write(format!(
                "HTTP/1.1 {status} Error\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .await;
        self.client.read_until(&body).await;
    }

    /// Lets the client disconnect, and waits until the proxy has closed the upstream's connection.
    async fn leave(mut self, row: &Row, rig: &Rig) {
        if self.waits {
            tokio::time::sleep(WAIT).await;
        }
        if row.breaks.ends_with("after 60 s") && row.stream {
            within("the stall to be counted", async {
                while !has_stalled(&rig.metrics()) {
                    tokio::time::sleep(WAIT).await;
                }
            })
            .await;
        }
        drop(self.client);
        self.upstream.read_to_end().await;
    }

    async fn tokens(&mut self, field: &str) {
        let kind = if self.stream { "text/event-stream" } else { "application/json" };
        self.upstream
            .write(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
            ))
            .await;
        self.client.read_head().await;
        if !self.stream {
            let text = " a".repeat(TOKENS);
            self.chunk(&format!(r#"{{"choices":[{{"message":{{"{field}":"{text}"#)).await;
            return;
        }
        let event = format!(
            r#"{{"id":"c","model":"gpt-4o","choices":[{{"index":0,"delta":{{"{field}":" a"}},"finish_reason":null}}]}}"#
        );
        self.event(&event).await;
        tokio::time::sleep(DECODE).await;
        self.chunk(&format!("data: {event}\n\n").repeat(TOKENS - 1)).await;
    }

    async fn event(&mut self, data: &str) {
        self.chunk(&format!("data: {data}\n\n")).await;
    }

    /// Sends a part of the body, and waits until the client has it.
    async fn chunk(&mut self, text: &str) {
        self.upstream.write(format!("{:x}\r\n{text}\r\n", text.len())).await;
        self.client.read_until(text).await;
    }

    async fn finish(mut self) {
        if self.stream {
            self.event(
                r#"{"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            )
            .await;
            self.event("[DONE]").await;
        } else {
            self.chunk(r#""},"finish_reason":"stop"}]}"#).await;
        }
        self.end().await;
    }

    /// Ends the body.
    async fn end(mut self) {
        self.upstream.write("0\r\n\r\n").await;
        within("the end of the body", self.client.read_until("0\r\n\r\n")).await;
    }
}
