//! The relay: the smallest reverse proxy on hyper, with a pool of idle connections. It parses nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use anyhow::Context as _;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::connect::{Connector, Sender, Server};

/// More than the streams of any load.
const MAX_IDLE: usize = 10_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    listen: SocketAddr,
    /// Clients use HTTP/2 with prior knowledge, not HTTP/1.1
    #[arg(long)]
    http2_clients: bool,
    #[command(flatten)]
    upstream: Server,
}

struct Relay {
    connector: Connector,
    idle: Mutex<Vec<Sender<Incoming>>>,
    /// The HTTP/2 connection to the upstream, which all requests share.
    shared: tokio::sync::Mutex<Option<SendRequest<Incoming>>>,
}

type AnyBody = Either<Relayed, Empty<Bytes>>;

pub async fn run(args: Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let connector = Connector::new(&args.upstream)?;
    let relay = Arc::new(Relay {
        connector,
        idle: Mutex::default(),
        shared: tokio::sync::Mutex::default(),
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(Arc::clone(&relay).serve(stream, args.http2_clients));
    }
}

impl Relay {
    async fn serve(self: Arc<Self>, stream: TcpStream, http2: bool) {
        let service = service_fn(move |request| {
            let relay = Arc::clone(&self);
            async move {
                Ok::<_, Infallible>(relay.forward(request).await.unwrap_or_else(|_| bad_gateway()))
            }
        });
        let stream = TokioIo::new(stream);
        // An error means that the client disconnected.
        drop(if http2 {
            http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
        } else {
            http1::Builder::new().serve_connection(stream, service).await
        });
    }

    async fn forward(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> anyhow::Result<Response<AnyBody>> {
        let mut sender = self.sender().await?;
        let response = sender.send(self.rewrite(request)?).await?;
        Ok(response.map(|body| Either::Left(Relayed { body, sender: Some(sender), relay: self })))
    }

    async fn sender(&self) -> anyhow::Result<Sender<Incoming>> {
        if self.connector.http2 {
            return self.shared_sender().await;
        }
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut sender) = idle else { return self.connector.connect().await };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
    }

    async fn shared_sender(&self) -> anyhow::Result<Sender<Incoming>> {
        let mut shared = self.shared.lock().await;
        if let Some(sender) = shared.as_ref().filter(|it| !it.is_closed()) {
            return Ok(Sender::Http2(sender.clone()));
        }
        let sender = self.connector.connect().await?;
        if let Sender::Http2(sender) = &sender {
            *shared = Some(sender.clone());
        }
        Ok(sender)
    }

    /// Changes what differs between the protocols of client and upstream.
    fn rewrite(&self, mut request: Request<Incoming>) -> anyhow::Result<Request<Incoming>> {
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        if self.connector.http2 {
            *request.uri_mut() = format!("{}{path}", self.connector.origin).parse()?;
            request.headers_mut().remove(HOST);
        } else if let Some(authority) = request.uri().authority() {
            let (host, uri) = (HeaderValue::from_str(authority.as_str())?, path.parse::<Uri>()?);
            request.headers_mut().insert(HOST, host);
            *request.uri_mut() = uri;
        }
        *request.version_mut() = Version::HTTP_11;
        Ok(request)
    }

    fn release(&self, sender: Sender<Incoming>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !self.connector.http2 {
            idle.push(sender);
        }
    }
}

fn bad_gateway() -> Response<AnyBody> {
    let mut response = Response::new(Either::Right(Empty::new()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// The body of a response. Returns the connection to the pool at the end.
struct Relayed {
    body: Incoming,
    sender: Option<Sender<Incoming>>,
    relay: Arc<Relay>,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.release();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The server does not poll a body with a content length after its last byte.
impl Drop for Relayed {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.release();
        }
    }
}

impl Relayed {
    fn release(&mut self) {
        if let Some(sender) = self.sender.take() {
            self.relay.release(sender);
        }
    }
}
