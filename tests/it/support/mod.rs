//! Runs a real proxy between raw sockets on both sides, with access to the events in its observation channel.

pub mod certificate;
pub mod collector;
pub mod process;

use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokengauge::forward::{self, Forwarder, Identity, Propagation, RouteTable, Upstream, identity};
use tokengauge::forward::{ConcurrencyLimit, RouteConfig, RouteMatcher, TraceHeaders};
use tokengauge_listen::{Address, Connections, Listener, Peer, Workers};
use tokengauge_observe::tee::{self, Batch, ObservationChannel};
use tokengauge_types::event::{
    Direction, Ending, ExchangeId, ObserverEvent, RequestHead, RouteFacts, TimestampedEvent,
};
use tokengauge_types::label::Label;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Timeout that only turns a hang into a failure. Every test takes less than a tenth of this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits `future`, and fails the test if it hangs.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// An upstream that the test controls byte by byte.
pub struct Backend {
    listener: TcpListener,
    pub address: SocketAddr,
}

impl Backend {
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    pub async fn accept(&self) -> Raw<TcpStream> {
        let (stream, _) = within("accept", self.listener.accept()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Raw(stream)
    }

    /// Returns whether a connection is waiting to be accepted.
    pub async fn has_another(&self) -> bool {
        tokio::select! {
            biased;
            accepted = self.listener.accept() => accepted.is_ok(),
            () = settle() => false,
        }
    }
}

/// A stream that the test reads and writes byte by byte.
pub struct Raw<T>(pub T);

impl Raw<TcpStream> {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Raw<T> {
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        within("write", self.0.write_all(bytes.as_ref())).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// Reads up to and including `end`.
    pub async fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        let reading = async {
            while !read.ends_with(end.as_bytes()) {
                read.push(self.0.read_u8().await?);
            }
            std::io::Result::Ok(())
        };
        let result = within(end, reading).await;
        let text = String::from_utf8_lossy(&read).into_owned();
        assert!(result.is_ok(), "closed while waiting for {end:?}: {text:?}");
        text
    }

    /// Returns the next request or response headers on this connection, or `None` if the connection closes first. Waits
    /// without a time limit.
    pub async fn next_head(&mut self) -> Option<String> {
        let first = self.0.read_u8().await.ok()?;
        Some(format!("{}{}", char::from(first), self.read_head().await))
    }

    pub async fn read_head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    pub async fn read_exactly(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        within("read", self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// Returns all bytes until the peer closes the connection. A reset counts as a close.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        drop(within("close", self.0.read_to_end(&mut bytes)).await);
        bytes
    }
}

/// Returns the lines of the headers. The first one is the status line or the request line.
pub fn lines(head: &str) -> Vec<&str> {
    head.trim_end().split("\r\n").collect()
}

/// A proxy in front of one upstream. Only the test drains its observation channel.
pub struct Proxy {
    pub address: SocketAddr,
    pub channel: Arc<ObservationChannel>,
    pub forwarder: Arc<Forwarder>,
    ways: Arc<ArcSwap<RouteTable>>,
    route: RouteConfig,
    upstream: Arc<Upstream>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Connections>,
    _workers: Workers,
    said: Vec<TimestampedEvent>,
    bytes: Vec<(ExchangeId, Direction, Vec<u8>)>,
}

/// Settings of a proxy that a test can change.
pub struct Setup {
    pub listen: tokengauge_listen::ListenerConfig,
    /// By default the runtime of the test, so that [`settle`] also lets the tasks of the proxy run.
    pub workers: Workers,
    pub upstream: forward::UpstreamConfig,
    pub tee: tee::ChannelConfig,
    pub prefix: String,
    pub admission: Option<ConcurrencyLimit>,
    pub trace: TraceHeaders,
    pub propagation: Propagation,
    pub identity: identity::IdentityConfig,
    /// Time between two tokens, and time before the first one, from which a stream is stalled.
    pub inter_token_after: Duration,
    pub first_token_after: Duration,
}

impl Setup {
    pub fn to(upstream: SocketAddr) -> Self {
        let name = Label::from_trusted("backend");
        let host = upstream.ip().to_string();
        Self {
            listen: tokengauge_listen::ListenerConfig {
                marks_large_headers: true,
                ..tokengauge_listen::ListenerConfig::at(Address::Tcp(
                    "127.0.0.1:0".parse().unwrap(),
                ))
            },
            workers: Workers::current(),
            upstream: forward::UpstreamConfig::new(name, false, &host, upstream.port()),
            tee: tee::ChannelConfig::default(),
            prefix: String::new(),
            admission: None,
            trace: TraceHeaders::default(),
            propagation: Propagation::default(),
            identity: identity::IdentityConfig::default(),
            inter_token_after: Duration::from_secs(2),
            first_token_after: Duration::from_secs(30),
        }
    }

    pub async fn start(self) -> Proxy {
        let facts = RouteFacts {
            inter_token_after: self.inter_token_after,
            first_token_after: self.first_token_after,
            ..facts("route")
        };
        let facts = Arc::new(facts);
        let route = RouteConfig {
            facts: Arc::clone(&facts),
            host: None,
            strip: true,
            prefix: self.prefix,
            upstream: self.upstream.name.clone(),
            trace: self.trace,
            observed: true,
            admission: self.admission,
        };
        let channel = Arc::new(ObservationChannel::new(self.tee));
        let upstream = Upstream::new(self.upstream).unwrap();
        let table = RouteMatcher::new(vec![route.clone()]).unwrap();
        let identity = Identity::new(self.identity, b"");
        let ways = RouteTable::new(table, vec![Arc::clone(&upstream)], identity, None);
        let ways = Arc::new(ArcSwap::from_pointee(ways));
        let forwarder = Forwarder::new(forward::Dependencies {
            routes: Arc::clone(&ways),
            channel: Arc::clone(&channel),
            unrouted: Arc::new(self::facts("none")),
            propagation: self.propagation,
        });
        let listener = Listener::bind(&self.listen).unwrap();
        let address = listener.local_addr().unwrap_or_else(|| "127.0.0.1:0".parse().unwrap());
        let (stop, stopped) = oneshot::channel();
        let service = Arc::clone(&forwarder);
        let handler = move |peer: Peer| service.service(peer);
        let serving = tokio::spawn(listener.serve(handler, self.workers.clone(), async {
            drop(stopped.await);
        }));
        Proxy {
            address,
            channel,
            forwarder,
            ways,
            route,
            upstream,
            stop: Some(stop),
            serving,
            _workers: self.workers,
            said: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

fn facts(name: &str) -> RouteFacts {
    RouteFacts::for_upstream(name, "127.0.0.1", 80)
}

impl Proxy {
    pub async fn to(upstream: SocketAddr) -> Self {
        Setup::to(upstream).start().await
    }

    /// Starts a backend and a proxy in front of it.
    pub async fn with_backend() -> (Backend, Self) {
        let backend = Backend::start().await;
        let proxy = Self::to(backend.address).await;
        (backend, proxy)
    }

    pub async fn client(&self) -> Raw<TcpStream> {
        Raw::connect(self.address).await
    }

    /// Sends `request` and reads its headers at the backend. Returns the connections of the client and of the backend.
    pub async fn exchange(
        &self,
        backend: &Backend,
        request: impl AsRef<[u8]>,
    ) -> (Raw<TcpStream>, Raw<TcpStream>) {
        let mut client = self.client().await;
        client.write(request).await;
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        (client, upstream)
    }

    /// Changes the route's concurrency limit, as a reload would.
    pub fn limit(&self, admission: Option<ConcurrencyLimit>) {
        let route = RouteConfig { admission, ..self.route.clone() };
        let table = RouteMatcher::new(vec![route]).unwrap();
        let upstreams = vec![Arc::clone(&self.upstream)];
        let before = self.ways.load_full();
        let identity = Identity::new(identity::IdentityConfig::default(), b"");
        let ways = Arc::new(RouteTable::new(table, upstreams, identity, Some(&before)));
        self.ways.store(Arc::clone(&ways));
        ways.apply_limits(&before);
    }

    /// Returns the number of exchanges that were admitted.
    pub fn admitted(&mut self) -> usize {
        self.drain();
        self.said(|word| matches!(word, ObserverEvent::Admitted))
    }

    /// Stops accepting connections, and returns the open ones.
    pub async fn stop(&mut self) -> Connections {
        drop(self.stop.take());
        within("stop", &mut self.serving).await.unwrap()
    }

    /// Waits until all exchanges have ended. Returns a short form of the events of each exchange, in the order of
    /// exchanges.
    pub async fn words(&mut self) -> Vec<String> {
        within("the exchanges' ends", async {
            while self.channel.open_exchanges() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        self.drain();
        let mut told: Vec<(ExchangeId, String)> = Vec::new();
        for entry in &self.said {
            let word = short(&entry.event);
            match told.iter_mut().find(|(id, _)| *id == entry.exchange) {
                Some((_, words)) if words.ends_with(&word) && word.starts_with("Arrival") => {}
                Some((_, words)) => write!(words, " {word}").unwrap(),
                None => told.push((entry.exchange, word)),
            }
        }
        told.sort_by_key(|(id, _)| *id);
        told.into_iter().map(|(_, words)| words).collect()
    }

    /// Returns all body bytes of one direction, in the order of exchanges.
    pub fn observed(&self, direction: Direction) -> Vec<u8> {
        let of_direction =
            |(_, of, bytes): &(_, Direction, Vec<u8>)| (*of == direction).then(|| bytes.clone());
        self.bytes.iter().filter_map(of_direction).flatten().collect()
    }

    pub fn opened(&self) -> &RequestHead {
        let open = self.said.iter().find_map(|entry| {
            let ObserverEvent::RequestHead(open) = &entry.event else {
                return None;
            };
            Some(&**open)
        });
        open.expect("an exchange was opened")
    }

    /// Returns the number of events of a kind.
    pub fn said(&self, kind: impl Fn(&ObserverEvent) -> bool) -> usize {
        self.said.iter().filter(|entry| kind(&entry.event)).count()
    }

    /// Returns all events drained so far, with their timestamps.
    pub fn entries(&self) -> &[TimestampedEvent] {
        &self.said
    }

    pub fn drain(&mut self) {
        for shard in 0..self.channel.shards() {
            let mut batch = Batch::default();
            self.channel.drain(shard, &mut batch);
            let mut bytes = batch.bytes.as_slice();
            for entry in &batch.entries {
                if let ObserverEvent::Body { direction, len, .. } = entry.event {
                    let (arrived, rest) = bytes.split_at(usize::try_from(len).unwrap());
                    self.bytes.push((entry.exchange, direction, arrived.to_vec()));
                    bytes = rest;
                }
            }
            assert!(bytes.is_empty(), "all bytes belong to an arrival");
            self.said.extend(batch.entries);
        }
    }
}

/// Returns a short form of an event. Events of body bytes have no length, because the sockets decide how bytes are
/// divided.
fn short(word: &ObserverEvent) -> String {
    match word {
        ObserverEvent::RequestHead(_) => "Open".to_owned(),
        ObserverEvent::ConnectionReused(_) => "Reused".to_owned(),
        ObserverEvent::Connected(connected) if connected.reused => "Reused".to_owned(),
        ObserverEvent::Connected(_) => "Connected".to_owned(),
        ObserverEvent::ResponseHead(head) if head.from_proxy => format!("Own({})", head.status),
        ObserverEvent::ResponseHead(head) => format!("Head({})", head.status),
        ObserverEvent::Body { direction, .. } => format!("Arrival({direction:?})"),
        ObserverEvent::Gap { direction, bytes } => format!("Gap({direction:?}, {bytes})"),
        ObserverEvent::Trailers(direction) => format!("Trailers({direction:?})"),
        ObserverEvent::Closed(direction) => format!("Closed({direction:?})"),
        ObserverEvent::End(Ending::Complete) => "Complete".to_owned(),
        ObserverEvent::End(ending) => format!("End({ending:?})"),
        ObserverEvent::Queued
        | ObserverEvent::Admitted
        | ObserverEvent::RequestHeadSent
        | ObserverEvent::RequestBodySent
        | ObserverEvent::Upgraded
        | ObserverEvent::GatewayUsage(_) => {
            format!("{word:?}")
        }
    }
}

/// Lets all runnable tasks run, for assertions that something does *not* occur.
pub async fn settle() {
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
}
