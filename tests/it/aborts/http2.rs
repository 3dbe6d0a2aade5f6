//! Tests rows of `docs/reference/outcomes.md` with HTTP/2, on one side of the proxy and then on the other.
//!
//! With HTTP/2, a peer ends an exchange by resetting its stream or by closing its connection.

use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokengauge::forward::Protocol;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::rig::{Rig, facts};
use super::stream::{BODY, PATH, until};
use super::table::{Cell, Facts, cells};
use crate::support::{Backend, Raw, Setup, within};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// The connection stays open.
    ResetStream,
    /// A FIN closes the connection.
    Close,
    /// A RST closes the connection.
    Reset,
}

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn every_row_with_http2_clients() {
    for cell in cells() {
        let ways: &[Way] = match cell.what {
            "client leaves" => &[Way::ResetStream, Way::Close],
            "upstream closes" | "upstream ends its body" | "drain" => &[Way::Close],
            "upstream resets" => &[Way::Reset],
            _ => &[],
        };
        for way in ways {
            let told = from_http2(&cell, *way).await;
            assert_eq!(told, cell.facts, "{} · {} · {way:?}", cell.when, cell.what);
        }
    }
}

#[tokio::test]
async fn every_row_with_http2_upstreams() {
    for cell in cells() {
        let ways: &[Way] = match cell.what {
            "client leaves"
            | "upstream ends its body"
            | "limit `head`"
            | "limit `idle`"
            | "drain" => &[Way::Close],
            "upstream closes" => &[Way::Close],
            "upstream resets" => &[Way::ResetStream, Way::Reset],
            _ => &[],
        };
        for way in ways {
            let told = to_http2(&cell, *way).await;
            assert_eq!(told, cell.facts, "{} · {} · {way:?}", cell.when, cell.what);
        }
    }
}

/// A call over a separate connection.
struct Call {
    /// The socket of the connection, so that the test can close it while hyper does not notice.
    socket: std::net::TcpStream,
    asked: JoinHandle<hyper::Result<Response<Incoming>>>,
}

impl Call {
    async fn start(rig: &Rig) -> Self {
        let socket = TcpStream::connect(rig.proxy.address).await.unwrap();
        let socket = socket.into_std().unwrap();
        let stream = TcpStream::from_std(socket.try_clone().unwrap()).unwrap();
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        let uri = format!("http://{}{PATH}", rig.proxy.address);
        let request = Request::post(uri).body(Full::new(Bytes::from(BODY))).unwrap();
        tokio::spawn(connection);
        Self { socket, asked: tokio::spawn(async move { sender.send_request(request).await }) }
    }
}

async fn from_http2(cell: &Cell, way: Way) -> Facts {
    let backend = Backend::start().await;
    let mut rig = Rig::start(Setup::to(backend.address)).await;
    let Call { socket, asked } = Call::start(&rig).await;
    let mut upstream = backend.accept().await;
    upstream.read_until(BODY).await;
    let Some(body) = until(cell.when) else {
        match way {
            Way::ResetStream => asked.abort(),
            Way::Close if cell.what == "client leaves" => socket.shutdown(Shutdown::Both).unwrap(),
            Way::Close | Way::Reset => leave(cell, way, &mut rig, &mut upstream).await,
        }
        released(cell, upstream).await;
        return facts(&rig.told().await);
    };
    let framed = match body.len() {
        0 => String::new(),
        length => format!("{length:x}\r\n{body}\r\n"),
    };
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{framed}"
        ))
        .await;
    let mut answer = within("head", asked).await.unwrap().unwrap().into_body();
    read(&mut answer, &body).await;
    match way {
        Way::ResetStream => drop(answer),
        Way::Close if cell.what == "client leaves" => socket.shutdown(Shutdown::Both).unwrap(),
        Way::Close | Way::Reset => {
            leave(cell, way, &mut rig, &mut upstream).await;
            let ended = within("end", answer.collect()).await;
            let whole = cell.what == "upstream ends its body";
            assert_eq!(ended.is_ok(), whole, "{cell:?}");
        }
    }
    released(cell, upstream).await;
    facts(&rig.told().await)
}

/// Performs the action of the upstream or of the proxy.
async fn leave(cell: &Cell, way: Way, rig: &mut Rig, upstream: &mut Raw<TcpStream>) {
    if cell.what == "upstream ends its body" {
        return upstream.write("0\r\n\r\n").await;
    }
    if cell.what == "drain" {
        return drain(rig).await;
    }
    if way == Way::Reset {
        reset_when_dropped(&upstream.0);
    }
    let gone = Backend::start().await;
    // Assigning the replacement drops the old connection.
    *upstream = Raw::connect(gone.address).await;
}

/// Asserts that the proxy has closed the upstream's connection and sent nothing else, unless the upstream itself has
/// closed it.
async fn released(cell: &Cell, mut upstream: Raw<TcpStream>) {
    if matches!(cell.what, "client leaves" | "drain") {
        assert_eq!(upstream.read_to_end().await, b"");
    }
}

async fn drain(rig: &mut Rig) {
    let connections = rig.proxy.stop().await;
    connections.drain(Duration::ZERO).await;
    rig.proxy.forwarder.abort();
    connections.abort().await;
}

/// Reads as many bytes of `answer` as `body` contains.
async fn read(answer: &mut Incoming, body: &str) {
    let mut read = 0;
    while read < body.len() {
        let frame = within("body", answer.frame()).await.unwrap().unwrap();
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}

fn reset_when_dropped(stream: &TcpStream) {
    stream.set_zero_linger().unwrap();
}

/// What the upstream does next.
#[derive(Debug)]
enum Step {
    Head,
    Data(Bytes),
    Break,
    End,
}

/// A body whose data the test provides step by step.
#[derive(Debug)]
struct Fed(mpsc::UnboundedReceiver<Step>);

impl Body for Fed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(cx).map(|step| match step? {
            Step::Data(data) => Some(Ok(Frame::data(data))),
            Step::Break => Some(Err(std::io::Error::other("on purpose"))),
            Step::Head | Step::End => None,
        })
    }
}

/// An HTTP/2 upstream that has read its only request.
struct Upstream {
    connection: JoinHandle<()>,
    /// Closed once the stream has ended.
    steps: mpsc::UnboundedSender<Step>,
}

impl Upstream {
    async fn accept(backend: &Backend, way: Way) -> Self {
        let stream = backend.accept().await.0;
        if way == Way::Reset {
            reset_when_dropped(&stream);
        }
        let (steps, told) = mpsc::unbounded_channel();
        let told = Arc::new(Mutex::new(Some(Fed(told))));
        let (read, mut asked) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Incoming>| {
            let fed = told.lock().unwrap().take();
            let read = read.clone();
            async move {
                let mut fed = fed.unwrap();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                read.send(body).unwrap();
                match fed.0.recv().await {
                    Some(Step::Head) => {}
                    // The stream is reset before its response headers.
                    step => return Err(std::io::Error::other(format!("{step:?}"))),
                }
                let head = Response::builder().header("content-type", "text/event-stream");
                Ok(head.body(fed).unwrap())
            }
        });
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        let connection = tokio::spawn(async { drop(serving.await) });
        assert_eq!(within("request", asked.recv()).await.unwrap(), BODY);
        Self { connection, steps }
    }

    fn step(&self, step: Step) {
        self.steps.send(step).unwrap();
    }
}

async fn to_http2(cell: &Cell, way: Way) -> Facts {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.protocol = Protocol::Http2;
    match cell.what {
        "limit `head`" => setup.upstream.timeouts.response_header = Some(SHORT),
        "limit `idle`" => setup.upstream.timeouts.idle = Some(SHORT),
        _ => {}
    }
    let mut rig = Rig::start(setup).await;
    let mut client = rig.proxy.client().await;
    let length = BODY.len();
    client
        .write(format!("POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{BODY}"))
        .await;
    let upstream = Upstream::accept(&backend, way).await;
    if let Some(body) = until(cell.when) {
        if !body.is_empty() {
            upstream.step(Step::Head);
            upstream.step(Step::Data(body.clone().into()));
        } else {
            upstream.step(Step::Head);
        }
        client.read_head().await;
        if let Some(tail) = body.lines().rfind(|line| line.starts_with("data: ")) {
            client.read_until(tail).await;
        }
    }
    match cell.what {
        "client leaves" => drop(client),
        "upstream closes" | "upstream resets" if way != Way::ResetStream => {
            upstream.connection.abort();
        }
        "upstream resets" => upstream.step(Step::Break),
        "upstream ends its body" => {
            upstream.step(Step::End);
            client.read_until("0\r\n\r\n").await;
        }
        "drain" => drain(&mut rig).await,
        _ => {}
    }
    within("the stream's end", upstream.steps.closed()).await;
    facts(&rig.told().await)
}
