//! The scripted backend. The header of a request has the [`Script`] of its response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use crate::clock;
use crate::exchange::{Exchange, STAMP_DIGITS};
use crate::script::{self, Kind, Script};
use crate::tls;

/// Different scripts of one run. A script with a long prompt takes some 100 KB.
const MAX_SCRIPTS: usize = 64;
/// More than any load has, so that a proxy with one HTTP/2 connection is not limited by the backend.
const MAX_HTTP2_STREAMS: u32 = 10_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address for HTTP/1.1 without TLS
    #[arg(long)]
    listen: SocketAddr,
    /// Address for HTTP/1.1 over TLS
    #[arg(long)]
    tls: SocketAddr,
    /// Address for HTTP/2 over TLS
    #[arg(long)]
    tls_http2: SocketAddr,
    /// File to write the generated certificate to
    #[arg(long)]
    certificate: PathBuf,
}

#[derive(Default)]
struct Backend {
    exchanges: Mutex<Vec<Arc<Exchange>>>,
    requests: AtomicU64,
    /// Responses that are being sent.
    active: Arc<AtomicU64>,
}

type AnyBody = BoxBody<Bytes, Infallible>;

pub async fn run(args: Args) -> anyhow::Result<()> {
    let backend = Arc::new(Backend::default());
    let [http1, http2] = tls::acceptors(&args.certificate, ["http/1.1", "h2"])?;
    let (plain, secure, secure_http2) = tokio::join!(
        Arc::clone(&backend).listen(args.listen, None, false),
        Arc::clone(&backend).listen(args.tls, Some(http1), false),
        backend.listen(args.tls_http2, Some(http2), true),
    );
    plain.and(secure).and(secure_http2)
}

impl Backend {
    async fn listen(
        self: Arc<Self>,
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        http2: bool,
    ) -> anyhow::Result<()> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(Arc::clone(&self).accept(stream, tls.clone(), http2));
        }
    }

    /// An error means that the client disconnected, which clients of a benchmark also do.
    async fn accept(self: Arc<Self>, stream: TcpStream, tls: Option<TlsAcceptor>, http2: bool) {
        match tls {
            None => self.serve(stream, http2).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.serve(stream, http2).await;
                }
            }
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        http2: bool,
    ) {
        let service = service_fn(move |request| {
            let backend = Arc::clone(&self);
            async move {
                Ok::<_, Infallible>(
                    backend.answer(request).await.unwrap_or_else(|error| reject(&error)),
                )
            }
        });
        let stream = TokioIo::new(stream);
        let end = if http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(MAX_HTTP2_STREAMS);
            builder.serve_connection(stream, service).await
        } else {
            http1::Builder::new().timer(TokioTimer::new()).serve_connection(stream, service).await
        };
        drop(end);
    }

    async fn answer(&self, request: Request<Incoming>) -> anyhow::Result<Response<AnyBody>> {
        if request.method() == Method::GET {
            let active = self.active.load(Ordering::Relaxed);
            let requests = self.requests.load(Ordering::Relaxed);
            let text = serde_json::json!({"requests": requests, "active": active}).to_string();
            return Ok(Response::new(Full::from(text).boxed()));
        }
        let script = request.headers().get(script::HEADER).context("the request has no script")?;
        let exchange = self.exchange(script.to_str()?)?;
        compare(request.into_body(), &exchange.request).await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        respond(exchange, Active::new(&self.active))
    }

    fn exchange(&self, text: &str) -> anyhow::Result<Arc<Exchange>> {
        let script: Script = text.parse()?;
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = exchanges.iter().find(|it| it.script == script) {
            return Ok(Arc::clone(found));
        }
        if exchanges.len() == MAX_SCRIPTS {
            bail!("more than {MAX_SCRIPTS} scripts");
        }
        let exchange = Arc::new(Exchange::new(script)?);
        exchanges.push(Arc::clone(&exchange));
        Ok(exchange)
    }
}

/// Compares the received request body with the expected one.
async fn compare(mut body: Incoming, expected: &Bytes) -> anyhow::Result<()> {
    let mut rest = expected.as_ref();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            rest = rest.strip_prefix(data.as_ref()).context("the request body differs")?;
        }
    }
    if rest.is_empty() { Ok(()) } else { bail!("the request body is too short") }
}

fn reject(error: &anyhow::Error) -> Response<AnyBody> {
    let mut response = Response::new(Full::from(error.to_string()).boxed());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

fn respond(exchange: Arc<Exchange>, active: Active) -> anyhow::Result<Response<AnyBody>> {
    let content_type = match exchange.script.kind {
        Kind::Stream => "text/event-stream; charset=utf-8",
        Kind::Json | Kind::Embeddings => "application/json",
    };
    // The headers that OpenAI's API sends and that a proxy can read.
    let mut response = Response::builder()
        .header("content-type", content_type)
        .header("openai-processing-ms", "120")
        .header("x-request-id", "req_0123456789abcdef0123456789abcdef")
        .header("x-ratelimit-limit-requests", "10000")
        .header("x-ratelimit-remaining-requests", "9999")
        .header("x-ratelimit-limit-tokens", "2000000")
        .header("x-ratelimit-remaining-tokens", "1999000");
    if exchange.script.gzip {
        response = response.header("content-encoding", "gzip");
    }
    let body = match exchange.script.kind {
        Kind::Stream => Chunks::new(exchange, active).boxed(),
        Kind::Json | Kind::Embeddings => Full::new(exchange.response.clone()).boxed(),
    };
    Ok(response.body(body)?)
}

/// A response that is being sent.
struct Active(Arc<AtomicU64>);

impl Active {
    fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The chunks of a stream. Each is written by itself, because the body is pending between two chunks.
struct Chunks {
    exchange: Arc<Exchange>,
    next: usize,
    start: usize,
    pause: Pause,
    _active: Active,
}

enum Pause {
    /// Chunk *n* is due *n* gaps after the first one, so that a late chunk does not delay the others.
    Until { first: Instant, sleep: Pin<Box<Sleep>> },
    /// No time passes between the chunks; the flag tells whether the body was pending since the last one.
    None { was_pending: bool },
}

impl Chunks {
    fn new(exchange: Arc<Exchange>, active: Active) -> Self {
        let first = Instant::now();
        let pause = match exchange.script.gap_us {
            0 => Pause::None { was_pending: true },
            _ => Pause::Until { first, sleep: Box::pin(tokio::time::sleep_until(first)) },
        };
        Self { exchange, next: 0, start: 0, pause, _active: active }
    }

    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.pause {
            Pause::Until { first, sleep } => {
                // A timer would delay the first chunk by up to 2 ms.
                if self.next > 0 {
                    ready!(sleep.as_mut().poll(context));
                }
                let gaps = u64::try_from(self.next + 1).unwrap_or(u64::MAX);
                let due = *first
                    + Duration::from_micros(self.exchange.script.gap_us.saturating_mul(gaps));
                sleep.as_mut().reset(due);
            }
            Pause::None { was_pending: false } => {
                self.pause = Pause::None { was_pending: true };
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Pause::None { was_pending } => *was_pending = false,
        }
        Poll::Ready(())
    }

    /// Returns the next chunk with the current time in it.
    fn chunk(&mut self) -> Option<Bytes> {
        let chunk = *self.exchange.chunks.get(self.next)?;
        let range = self.start..chunk.end;
        let data = match chunk.stamp {
            None => self.exchange.response.slice(range),
            Some(stamp) => {
                let mut data = BytesMut::from(self.exchange.response.get(range)?);
                let digits = stamp - self.start;
                let now = format!("{:0STAMP_DIGITS$}", clock::now_ns());
                data.get_mut(digits..digits + STAMP_DIGITS)?.copy_from_slice(now.as_bytes());
                data.freeze()
            }
        };
        self.start = chunk.end;
        self.next += 1;
        Some(data)
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.next == self.exchange.chunks.len() {
            return Poll::Ready(None);
        }
        // The last events follow each other without a gap, as the usage and the end of a real stream do.
        if self.next <= usize::try_from(self.exchange.script.tokens).unwrap_or(usize::MAX) {
            ready!(self.poll_pause(context));
        }
        Poll::Ready(self.chunk().map(|data| Ok(Frame::data(data))))
    }
}
