//! Clients that send the requests of one script, compare every received byte, and time every chunk.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::sync::Mutex;

use crate::clock::now_ns;
use crate::connect::{Connector, Sender};
use crate::exchange::Exchange;
use crate::script::HEADER;
use crate::stats::Distribution;
use crate::verify::{Mismatch, Verifier};

/// The headers of OpenAI's Python client.
const HEADERS: [(&str, &str); 12] = [
    ("accept", "application/json"),
    ("accept-encoding", "gzip, deflate"),
    ("content-type", "application/json"),
    ("user-agent", "OpenAI/Python 1.99.1"),
    ("authorization", "Bearer sk-benchmark"),
    ("x-stainless-lang", "python"),
    ("x-stainless-package-version", "1.99.1"),
    ("x-stainless-os", "Linux"),
    ("x-stainless-arch", "x64"),
    ("x-stainless-runtime", "CPython"),
    ("x-stainless-runtime-version", "3.13.5"),
    ("x-stainless-retry-count", "0"),
];
/// Different error messages that are kept. A run with more is broken anyway.
const MAX_ERRORS: usize = 20;
/// The pause of a client after an error, so that a broken server does not turn the run into a busy loop.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// What the clients measured while [`Clients::is_measuring`].
pub struct Tally {
    pub requests: u64,
    pub chunks: u64,
    /// From the backend's write to the arrival, for chunks with a timestamp.
    pub delay: Distribution,
    /// From the request to the first chunk of the response.
    pub first_chunk: Distribution,
    /// From the request to the end of the response.
    pub total: Distribution,
}

/// All clients of a run, which share one thread.
pub struct Clients {
    exchange: Exchange,
    connector: Connector,
    new_connections: bool,
    /// Time between two requests of a client.
    pause: Duration,
    /// The HTTP/2 connection that all clients share.
    shared: Mutex<Option<Sender<Full<Bytes>>>>,
    pub is_measuring: Cell<bool>,
    pub is_stopped: Cell<bool>,
    /// Responses whose first chunk has arrived, measured or not.
    pub opened: Cell<u64>,
    pub tally: RefCell<Tally>,
    /// Errors and wrong bytes at any time, by their message.
    pub errors: RefCell<BTreeMap<String, u64>>,
    pub mismatches: Cell<u64>,
}

impl Clients {
    pub fn new(exchange: Exchange, connector: Connector) -> Self {
        Self {
            exchange,
            connector,
            new_connections: false,
            pause: Duration::ZERO,
            shared: Mutex::default(),
            is_measuring: Cell::new(false),
            is_stopped: Cell::new(false),
            opened: Cell::new(0),
            tally: RefCell::new(Tally {
                requests: 0,
                chunks: 0,
                delay: Distribution::new(),
                first_chunk: Distribution::new(),
                total: Distribution::new(),
            }),
            errors: RefCell::default(),
            mismatches: Cell::new(0),
        }
    }

    /// Opens a connection for each request.
    pub fn with_new_connections(self, new_connections: bool) -> Self {
        Self { new_connections, ..self }
    }

    pub fn with_pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Sends requests one after the other, starting after `delay`, until the run stops.
    pub async fn run_client(self: Rc<Self>, delay: Duration) {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut kept = None;
        while !self.is_stopped.get() {
            if let Err(error) = self.request(&mut kept).await {
                self.count_error(&error);
                kept = None;
                tokio::time::sleep(ERROR_PAUSE).await;
            }
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
    }

    /// Sends one request, and receives the response. `kept` is the connection of the client.
    pub async fn request(&self, kept: &mut Option<Sender<Full<Bytes>>>) -> anyhow::Result<()> {
        let request = self.build()?;
        let mut sender = match kept.take() {
            Some(sender) => sender,
            None if self.connector.http2 => self.shared_sender().await?,
            None => self.connector.connect().await?,
        };
        sender.ready().await?;
        let sent = now_ns();
        let response = sender.send(request).await?;
        if response.status() != StatusCode::OK {
            bail!("status {}", response.status().as_u16());
        }
        self.receive(response.into_body(), sent).await?;
        if !self.new_connections {
            *kept = Some(sender);
        }
        Ok(())
    }

    async fn shared_sender(&self) -> anyhow::Result<Sender<Full<Bytes>>> {
        let mut shared = self.shared.lock().await;
        if let Some(Sender::Http2(sender)) = shared.as_ref().filter(|_| !self.new_connections) {
            return Ok(Sender::Http2(sender.clone()));
        }
        let sender = self.connector.connect().await?;
        if let Sender::Http2(sender) = &sender {
            *shared = Some(Sender::Http2(sender.clone()));
        }
        Ok(sender)
    }

    fn build(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let path = self.exchange.script.path();
        let origin = &self.connector.origin;
        let mut request = Request::builder().method(Method::POST);
        request = if self.connector.http2 {
            request.uri(format!("{origin}{path}"))
        } else {
            let (_, host) = origin.split_once("//").context("the origin has a scheme")?;
            request.uri(path).header("host", host)
        };
        for (name, value) in HEADERS {
            request = request.header(name, value);
        }
        let request = request.header(HEADER, self.exchange.script.to_string());
        Ok(request.body(Full::new(self.exchange.request.clone()))?)
    }

    async fn receive(&self, mut body: Incoming, sent: u64) -> anyhow::Result<()> {
        let mut verifier = Verifier::default();
        let mut is_first = true;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let now = now_ns();
            let received = verifier.receive(&self.exchange, &data, |stamp| {
                if is_first {
                    self.open(now - sent);
                    is_first = false;
                }
                self.count_chunk(stamp.map(|it| now.saturating_sub(it)));
            });
            received.map_err(|it| self.count_mismatch(&it))?;
        }
        verifier.finish(&self.exchange).map_err(|it| self.count_mismatch(&it))?;
        if self.is_measuring.get() {
            let mut tally = self.tally.borrow_mut();
            tally.requests += 1;
            tally.total.record(now_ns() - sent);
        }
        Ok(())
    }

    fn open(&self, nanoseconds: u64) {
        self.opened.set(self.opened.get() + 1);
        if self.is_measuring.get() {
            self.tally.borrow_mut().first_chunk.record(nanoseconds);
        }
    }

    fn count_chunk(&self, delay: Option<u64>) {
        if self.is_measuring.get() {
            let mut tally = self.tally.borrow_mut();
            tally.chunks += 1;
            if let Some(delay) = delay {
                tally.delay.record(delay);
            }
        }
    }

    fn count_mismatch(&self, mismatch: &Mismatch) -> anyhow::Error {
        self.mismatches.set(self.mismatches.get() + 1);
        anyhow::anyhow!("the response differs at byte {}", mismatch.offset)
    }

    pub fn count_error(&self, error: &anyhow::Error) {
        let mut errors = self.errors.borrow_mut();
        let text = format!("{error:#}");
        if errors.len() < MAX_ERRORS || errors.contains_key(&text) {
            *errors.entry(text).or_default() += 1;
        }
    }
}
