//! Asks ClickHouse for `tokengauge report`, over HTTP or HTTPS. User and password come from the environment and are in no
//! message.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use http::uri::Scheme;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokengauge_report::clickhouse::{self, Counts, Source};
use tokengauge_report::read::Streams;
use tokengauge_report::{Report, evaluate_streams};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::forward::system_roots;

/// Maximum time to connect, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time until the response starts. The server responds after it has finished the query.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time without a byte of the response body.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response that is not a stream of lines: 10,000 groups have about 15 MiB.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// Maximum size of an error message that is shown.
const MAX_ERROR_CHARS: usize = 1_000;
/// Number of chunks of a stream that wait for the parser.
const QUEUED_CHUNKS: usize = 16;

/// The address of the HTTP interface of ClickHouse. It never contains a credential.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerUrl {
    uri: Uri,
    host: String,
    is_tls: bool,
}

/// Why an address cannot be used. The address is not in the message, because it can contain a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidUrl {
    #[error(
        "write the address of the HTTP interface, such as http://127.0.0.1:8123 or https://HOST:8443"
    )]
    NotHttp,
    #[error(
        "leave user and password out of the URL, and set CLICKHOUSE_USER and CLICKHOUSE_PASSWORD"
    )]
    Credentials,
    #[error("leave the query out of the URL; the tables are in the database tokengauge")]
    Query,
}

impl FromStr for ServerUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let uri: Uri = text.parse().map_err(|_| InvalidUrl::NotHttp)?;
        let authority = uri.authority().ok_or(InvalidUrl::NotHttp)?;
        if authority.as_str().contains('@') {
            return Err(InvalidUrl::Credentials);
        }
        if uri.query().is_some() {
            return Err(InvalidUrl::Query);
        }
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(_) | None => return Err(InvalidUrl::NotHttp),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { is_tls, host, uri })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uri)
    }
}

/// Builds the report from the requests in ClickHouse, or from these and the files of the baseline.
pub(super) fn report(
    server: &ServerUrl,
    request: &tokengauge_report::Request,
    environment: fn(&str) -> Option<String>,
) -> anyhow::Result<Report> {
    let client = Client::new(server, environment)?;
    let counts = client.answer(&clickhouse::counts(request))?;
    let counts: Counts = serde_json::from_slice(&counts)
        .map_err(|error| anyhow!("the answer of ClickHouse is invalid: {error}"))?;
    if let Source::Hours = clickhouse::choose(request, counts)? {
        let hours = client.answer(&clickhouse::hours(request, counts.daily_tables > 0))?;
        return match clickhouse::report(request, &server.to_string(), &hours) {
            Err(clickhouse::HourlyError::Empty) => Err(client.no_match(request)),
            report => Ok(report?),
        };
    }
    if counts.calls == 0 {
        return Err(client.no_match(request));
    }
    let lines = client.stream(clickhouse::lines(request))?;
    let streams = Streams::from([(PathBuf::from(server.to_string()), lines)]);
    let mut report = evaluate_streams(request, streams)?;
    if let Source::Requests(Some(warning)) = clickhouse::choose(request, counts)? {
        report.notes.push(warning);
    }
    Ok(report)
}

#[derive(Clone)]
struct Client {
    server: ServerUrl,
    authorization: Option<HeaderValue>,
}

impl Client {
    fn new(server: &ServerUrl, environment: fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let password = environment("CLICKHOUSE_PASSWORD").unwrap_or_default();
        let authorization = environment("CLICKHOUSE_USER").map(|user| {
            let mut value = HeaderValue::try_from(format!(
                "Basic {}",
                STANDARD.encode(format!("{user}:{password}"))
            ))?;
            value.set_sensitive(true);
            anyhow::Ok(value)
        });
        Ok(Self { server: server.clone(), authorization: authorization.transpose()? })
    }

    /// Returns the whole answer to a query.
    fn answer(&self, sql: &str) -> anyhow::Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(async {
            let body = Limited::new(self.send(sql.to_owned()).await?, MAX_RESPONSE_BYTES);
            let body = timeout(RESPONSE_TIMEOUT, body.collect()).await;
            let body = body.map_err(|_| self.silent(RESPONSE_TIMEOUT))?;
            let incomplete = || format!("{} did not send the whole answer", self.server);
            Ok(body.map_err(anyhow::Error::from_boxed).with_context(incomplete)?.to_bytes())
        });
        runtime.shutdown_background();
        answer
    }

    /// Returns the answer to a query as a stream, after the server has finished the query.
    fn stream(&self, sql: String) -> anyhow::Result<Box<dyn Read + Send>> {
        let (sender, chunks) = sync_channel(QUEUED_CHUNKS);
        let (status, started) = sync_channel(1);
        let client = self.clone();
        thread::Builder::new().name("clickhouse".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                match client.send(sql).await {
                    Err(error) => drop(status.send(Err(error))),
                    Ok(body) => {
                        drop(status.send(Ok(())));
                        client.forward(body, &sender).await;
                    }
                }
            });
            runtime.shutdown_background();
        })?;
        started.recv().context("the thread for ClickHouse ended")??;
        Ok(Box::new(Chunks { chunks, rest: Bytes::new() }))
    }

    /// Sends the parts of the body to the parser. A failure is the last part.
    async fn forward(&self, mut body: Incoming, sender: &SyncSender<io::Result<Bytes>>) {
        loop {
            let part = match timeout(IDLE_TIMEOUT, body.frame()).await {
                Err(_) => Err(io::Error::other(self.silent(IDLE_TIMEOUT))),
                Ok(None) => return,
                Ok(Some(Err(error))) => Err(io::Error::other(error)),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => continue,
                },
            };
            let is_last = part.is_err();
            if sender.send(part).is_err() || is_last {
                return;
            }
        }
    }

    fn silent(&self, limit: Duration) -> anyhow::Error {
        anyhow!("no answer from {} within {} s", self.server, limit.as_secs())
    }

    /// Sends a query, and returns the body of a response with status 200.
    async fn send(&self, sql: String) -> anyhow::Result<Incoming> {
        let server = &self.server;
        let connect = timeout(CONNECT_TIMEOUT, self.connect()).await;
        let mut sender = connect
            .map_err(|_| anyhow!("timeout after {} s", CONNECT_TIMEOUT.as_secs()))
            .flatten()
            .with_context(|| format!("cannot connect to {server}"))?;
        // An error after the first byte of a response would otherwise look like a line.
        let path = format!("{}/?wait_end_of_query=1", server.uri.path().trim_end_matches('/'));
        let host = server.uri.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::post(path).header(header::HOST, host);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let response = sender.send_request(request.body(Full::new(Bytes::from(sql)))?);
        let response = timeout(RESPONSE_TIMEOUT, response).await;
        let response = response.map_err(|_| self.silent(RESPONSE_TIMEOUT))?;
        let response = response
            .with_context(|| format!("{server} closed the connection without a response"))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        let message = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message: String =
            String::from_utf8_lossy(&message).trim().chars().take(MAX_ERROR_CHARS).collect();
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "; set CLICKHOUSE_USER and CLICKHOUSE_PASSWORD"
            }
            _ => "",
        };
        bail!("{server} returned {}: {message}{hint}", status.as_u16())
    }

    async fn connect(&self) -> anyhow::Result<http1::SendRequest<Full<Bytes>>> {
        let ServerUrl { uri, host, is_tls } = &self.server;
        let port = uri.port_u16().unwrap_or(if *is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        if !is_tls {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            return Ok(sender);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(system_roots())
            .with_no_client_auth();
        let name = ServerName::try_from(host.clone())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Describes a question without an answer, with values that exist.
    fn no_match(&self, request: &tokengauge_report::Request) -> anyhow::Error {
        let selectors: Vec<String> = request.only.iter().map(ToString::to_string).collect();
        let matching = match selectors.is_empty() {
            true => String::new(),
            false => format!(" that matches {}", selectors.join(" and ")),
        };
        let existing = request.only.iter().filter_map(|selector| {
            let values = self.answer(&clickhouse::values(request, selector.dimension)).ok()?;
            let values = String::from_utf8_lossy(&values).trim_end().replace('\n', ", ");
            let name = selector.dimension.as_str();
            Some(match values.as_str() {
                "" => format!("; no call has a {name}"),
                values => format!("; values of {name}: {values}"),
            })
        });
        let existing: String = existing.collect();
        anyhow!("{} has no call in the period{matching}{existing}", self.server)
    }
}

/// Reads the parts of a body that another thread receives.
struct Chunks {
    chunks: Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.chunks.recv() {
                Ok(part) => self.rest = part?,
                Err(_) => return Ok(0),
            }
        }
        let mut part = self.rest.as_ref();
        let size = part.read(buffer)?;
        self.rest.advance(size);
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_addresses_without_credentials() {
        for (text, host, is_tls) in [
            ("http://127.0.0.1:8123", "127.0.0.1", false),
            ("https://clickhouse.example:8443/", "clickhouse.example", true),
            ("http://[::1]:8123", "::1", false),
        ] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!((url.host.as_str(), url.is_tls), (host, is_tls));
        }
    }

    #[test]
    fn refuses_other_addresses_and_does_not_repeat_them() {
        for (text, problem) in [
            ("clickhouse:8123", InvalidUrl::NotHttp),
            ("tcp://clickhouse:9000", InvalidUrl::NotHttp),
            ("", InvalidUrl::NotHttp),
            ("http://reporter:s3cret@clickhouse:8123", InvalidUrl::Credentials),
            ("http://clickhouse:8123/?password=s3cret", InvalidUrl::Query),
        ] {
            let error = text.parse::<ServerUrl>().unwrap_err();
            assert_eq!(error, problem, "{text}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
