//! Requests to the admin port of a process: one document, or a stream of events.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::address::Endpoint;
use crate::document::{Delta, LostEvents, Snapshot};
use crate::text::Text;

/// Maximum size of a document or an event in bytes. The largest document with default settings, 64 groups of 180
/// intervals and 5,000 streams, has about 16 MiB.
const MAX_BYTES: usize = 32 << 20;

/// Maximum size of the body of an error response that is shown.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// Maximum time to connect, and to receive the headers of a response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time to receive a document, and between two events. A process sends an event per second.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a process cannot be read. The text also says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot connect: {}", .0.kind())]
    Connect(std::io::Error),
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the connection failed")]
    Connection(#[from] hyper::Error),
    #[error("the connection was closed")]
    Closed,
    #[error("{}", describe(*.0, .1))]
    Status(StatusCode, Text),
    #[error("the response is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    #[error("the response is not the expected JSON")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Lost(#[from] LostEvents),
    #[error("the request is invalid")]
    Request(#[from] http::Error),
}

/// Describes an error status, and what to do.
fn describe(status: StatusCode, body: &Text) -> String {
    let code = status.as_u16();
    let advice = match status {
        StatusCode::UNAUTHORIZED => "set TOKENGAUGE_ADMIN_TOKEN to the admin port's token",
        StatusCode::FORBIDDEN => "configure a token, or connect over a loopback address",
        StatusCode::NOT_FOUND => "no console interface; update it, or set console: true",
        _ => body.as_str(),
    };
    if advice.is_empty() { format!("status {code}") } else { format!("status {code}: {advice}") }
}

/// An admin port, and the token for it.
#[derive(Clone, Debug)]
pub struct Client {
    pub endpoint: Endpoint,
    pub token: Option<String>,
}

/// A response. Dropping it closes the connection.
struct Answer {
    response: Response<Incoming>,
    connection: AbortHandle,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    /// Reads the current document.
    pub async fn snapshot(&self) -> Result<Snapshot, ClientError> {
        let read = async {
            let mut answer = self.get("/api/v1/snapshot").await?;
            let body = read_body(answer.response.body_mut(), MAX_BYTES).await?;
            Ok(serde_json::from_slice(&body)?)
        };
        timeout(READ_TIMEOUT, read).await.unwrap_or(Err(ClientError::Timeout(READ_TIMEOUT)))
    }

    /// Reads events until the stream ends or `update` returns an error. Calls `update` for each event.
    pub async fn follow(
        &self,
        mut update: impl FnMut(Event) -> Result<(), LostEvents>,
    ) -> Result<Infallible, ClientError> {
        let mut answer = self.get("/api/v1/live").await?;
        let mut events = EventReader::default();
        loop {
            let frame = timeout(READ_TIMEOUT, answer.response.body_mut().frame());
            let frame = frame.await.map_err(|_| ClientError::Timeout(READ_TIMEOUT))?;
            let frame = frame.ok_or(ClientError::Closed)??;
            let bytes = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
            events.read(bytes, &mut update)?;
        }
    }

    async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        let answer = timeout(CONNECT_TIMEOUT, self.send(path)).await;
        let mut answer = answer.map_err(|_| ClientError::Timeout(CONNECT_TIMEOUT))??;
        let status = answer.response.status();
        if status != StatusCode::OK {
            let body =
                timeout(CONNECT_TIMEOUT, read_body(answer.response.body_mut(), MAX_ERROR_BYTES));
            let body = body.await.ok().and_then(Result::ok).unwrap_or_default();
            return Err(ClientError::Status(
                status,
                Text::new(String::from_utf8_lossy(&body).trim()),
            ));
        }
        Ok(answer)
    }

    async fn send(&self, path: &str) -> Result<Answer, ClientError> {
        let Endpoint { address, prefix, host } = &self.endpoint;
        let stream = TcpStream::connect(address).await.map_err(ClientError::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        // Without a token, the admin port accepts only an IP address as host.
        let host = if self.token.is_some() { host.clone() } else { address.to_string() };
        let mut request = Request::get(format!("{prefix}{path}")).header(header::HOST, host);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new())?;
        Ok(Answer { response: sender.send_request(request).await?, connection })
    }
}

async fn read_body(body: &mut Incoming, limit: usize) -> Result<Bytes, ClientError> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(match error.downcast::<hyper::Error>() {
            Ok(error) => ClientError::Connection(*error),
            Err(_) => ClientError::TooLarge,
        }),
    }
}

/// An event of the stream.
#[derive(Debug)]
pub enum Event {
    Snapshot(Box<Snapshot>),
    Delta(Box<Delta>),
}

/// Reads server-sent events. Unknown events are ignored.
#[derive(Debug, Default)]
struct EventReader {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
}

impl EventReader {
    fn read(
        &mut self,
        bytes: &[u8],
        update: &mut impl FnMut(Event) -> Result<(), LostEvents>,
    ) -> Result<(), ClientError> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + part.len() > MAX_BYTES {
                return Err(ClientError::TooLarge);
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.end_line(line.trim_ascii_end(), update)?;
            }
        }
        Ok(())
    }

    fn end_line(
        &mut self,
        line: &[u8],
        update: &mut impl FnMut(Event) -> Result<(), LostEvents>,
    ) -> Result<(), ClientError> {
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            match name.as_slice() {
                b"snapshot" => update(Event::Snapshot(serde_json::from_slice(&data)?))?,
                b"delta" => update(Event::Delta(serde_json::from_slice(&data)?))?,
                _ => {}
            }
        } else if let Some(name) = line.strip_prefix(b"event:") {
            self.name = name.trim_ascii().to_vec();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            self.data.extend_from_slice(data);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        ": connected\n\nid: 3\r\nevent: snapshot\r\ndata: {\"sequence\": 3,\r\ndata: \"at_unix_ms\": 5}\r\n\r\n",
        "event: later\ndata: x\n\nevent: delta\ndata: {\"sequence\": 4}\n\n"
    );

    #[test]
    fn reads_events_at_every_split() {
        for at in 0..STREAM.len() {
            let mut sequences = Vec::new();
            let mut reader = EventReader::default();
            let mut update = |event| {
                sequences.push(match event {
                    Event::Snapshot(it) => it.sequence,
                    Event::Delta(it) => it.sequence,
                });
                Ok(())
            };
            let (first, second) = STREAM.as_bytes().split_at(at);
            reader.read(first, &mut update).unwrap();
            reader.read(second, &mut update).unwrap();
            assert_eq!(sequences, [3, 4], "{at}");
        }
    }

    #[test]
    fn limits_the_size_of_an_event() {
        let mut reader = EventReader::default();
        let chunk = vec![b'x'; 1 << 20];
        let result = (0..40).try_for_each(|_| reader.read(&chunk, &mut |_| Ok(())));
        assert!(matches!(result, Err(ClientError::TooLarge)));
        let mut reader = EventReader::default();
        let line = [b"data: ".as_slice(), &chunk, b"\n"].concat();
        let result = (0..40).try_for_each(|_| reader.read(&line, &mut |_| Ok(())));
        assert!(matches!(result, Err(ClientError::TooLarge)));
    }

    #[test]
    fn errors_say_what_to_do() {
        let text = |status| ClientError::Status(status, Text::new("busy")).to_string();
        assert!(text(StatusCode::UNAUTHORIZED).contains("TOKENGAUGE_ADMIN_TOKEN"));
        assert!(text(StatusCode::NOT_FOUND).contains("no console interface"));
        assert_eq!(text(StatusCode::SERVICE_UNAVAILABLE), "status 503: busy");
    }
}
