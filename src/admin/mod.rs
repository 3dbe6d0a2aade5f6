//! The admin port: health, metrics, configuration, live streams.
//!
//! On loopback everything is served. Bound elsewhere only `/livez`, `/readyz` and `/metrics` are, unless a bearer token
//! is configured and sent. Elsewhere too, whoever is on the machine may ask for a drain. What is served comes from closures, so this module knows nothing of those it shows.

mod drain;
mod objective;
mod places;
mod stats;

pub use drain::{Begin, Drain, DrainStage};
pub use objective::Objective;
pub use stats::{Facts, Stats};

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

use self::drain::{DrainOutcome, is_local};
use self::places::{Place, Places};
use tokengauge_telemetry::prometheus::Format;

/// Scrapers, probes and a few people need some ten; the rest is for strangers, who would need as many addresses to keep the
/// kubelet out. With those who wait for a drain a quarter of the 1,024 file descriptors that a container has in the worst case.
const MOST_CONNECTIONS: usize = 128;

/// Of connections that wait for the end of a drain: apart from the others, so that neither those make them lose their place, nor
/// the probes that come from the same address as a hook.
const MOST_WAITING: usize = 128;

/// Pages that are made or that their readers have not taken yet: what bounds the memory that slow readers hold.
const MOST_PAGES: usize = 16;

/// What the head of a request may take, in bytes; hyper would allow 400 KiB.
const MOST_HEAD: usize = 16 << 10;

/// A probe that has not sent its request by then never will.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the body of one page at the time it is asked for.
pub type Page = Box<dyn Fn() -> String + Send + Sync>;

/// What the admin port shows.
pub struct Pages {
    /// Prometheus text, or OpenMetrics.
    pub metrics: Box<dyn Fn(Format) -> String + Send + Sync>,
    /// The resolved configuration, secrets redacted (YAML).
    pub config: Page,
    /// Exchanges in flight (JSON).
    pub streams: Page,
    /// Objectives, budgets and burn rates (JSON).
    pub slo: Page,
    /// Throughput, percentiles, what is in flight, and drift (JSON).
    pub stats: Page,
    /// The lengths of late, as a baseline to compare with (JSON).
    pub drift: Page,
    /// The values that metrics are told apart by (JSON).
    pub labels: Page,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

/// The admin server, bound and not yet serving.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<AdminState>,
}

#[derive(Debug)]
struct AdminState {
    pages: Pages,
    drain: Drain,
    ready: Arc<AtomicBool>,
    /// Expected behind `Bearer `.
    token: Option<String>,
    loopback: bool,
    waiting: Places,
    pages_held: Places,
    /// One page is made at a time: milliseconds of work, and more would take cores from streams.
    turn: Arc<Semaphore>,
}

/// One connection, for as long as it lasts.
#[derive(Debug)]
struct AdminConnection {
    peer: IpAddr,
    /// Told when another is to have one of its places.
    out: Arc<Notify>,
    /// Among connections, or among those who wait.
    place: Mutex<Option<Place>>,
    /// For the page that its answer holds, until the next request is looked at: then it has been read.
    page: Mutex<Option<Place>>,
}

impl Admin {
    /// `ready` is what `/readyz` answers by.
    ///
    /// # Errors
    /// Where the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        token: Option<String>,
        ready: Arc<AtomicBool>,
        pages: Pages,
        drain: Drain,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = AdminState {
            pages,
            drain,
            ready,
            token,
            loopback: address.ip().is_loopback(),
            waiting: Places::new(MOST_WAITING),
            pages_held: Places::new(MOST_PAGES),
            turn: Arc::new(Semaphore::new(1)),
        };
        Ok(Self { listener, address, state: Arc::new(state) })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped. Nobody waits to be accepted, so that a probe is answered however many hold a connection.
    pub async fn serve(self) {
        let places = Places::new(MOST_CONNECTIONS);
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = AdminConnection {
                        peer: peer.ip().to_canonical(),
                        out: Arc::default(),
                        place: Mutex::default(),
                        page: Mutex::default(),
                    };
                    hold(&connection.place, Some(connection.takes(&places)));
                    let state = Arc::clone(&self.state);
                    tokio::spawn(converse(stream, Arc::new(connection), state));
                }
                Err(problem) => {
                    tracing::warn!(%problem, "the admin port could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn converse(stream: TcpStream, connection: Arc<AdminConnection>, state: Arc<AdminState>) {
    let out = Arc::clone(&connection.out);
    let service = service_fn(move |request| {
        let (state, connection) = (Arc::clone(&state), Arc::clone(&connection));
        async move { Ok::<_, Infallible>(state.answer(request, &connection).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = connection => {
            if let Err(problem) = ended {
                tracing::debug!(%problem, "an admin connection broke off");
            }
        }
        () = out.notified() => {
            tracing::debug!("an admin connection was closed to make room for another");
        }
    }
}

impl AdminConnection {
    fn takes(&self, places: &Places) -> Place {
        places.take(self.peer, &self.out)
    }
}

fn hold(held: &Mutex<Option<Place>>, place: Option<Place>) {
    *held.lock().unwrap_or_else(PoisonError::into_inner) = place;
}

/// The pages that may be asked for.
#[derive(Clone, Copy)]
enum Wanted {
    Metrics(Format),
    Config,
    Streams,
    Slo,
    Stats,
    Drift,
    Labels,
    Index,
}

/// What is asked for, and how.
enum Asked {
    Live,
    Ready,
    Page(Wanted),
    Drain,
    Drained,
}

impl Asked {
    /// Else why it is not answered.
    fn of<B>(request: &Request<B>) -> Result<Self, (StatusCode, &'static str)> {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match (request.uri().path(), reads) {
            ("/drain", _) if request.method() == Method::POST => Ok(Self::Drain),
            ("/drain", _) => {
                Err((StatusCode::METHOD_NOT_ALLOWED, "a drain is asked for by POST\n"))
            }
            ("/drained", true) => Ok(Self::Drained),
            ("/livez", true) => Ok(Self::Live),
            ("/readyz", true) => Ok(Self::Ready),
            (_, true) => Wanted::of(request).map(Self::Page).ok_or((StatusCode::NOT_FOUND, INDEX)),
            (_, false) => Err((StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n")),
        }
    }
}

impl Wanted {
    fn of<B>(request: &Request<B>) -> Option<Self> {
        Some(match request.uri().path() {
            "/metrics" => Self::Metrics(format(request.headers())),
            "/config" => Self::Config,
            "/streams" => Self::Streams,
            "/slo" => Self::Slo,
            "/stats" => Self::Stats,
            "/drift" => Self::Drift,
            "/labels" => Self::Labels,
            "/" => Self::Index,
            _ => return None,
        })
    }

    /// Whether it tells nothing that a stranger on the network may not know.
    const fn is_open(self) -> bool {
        match self {
            Self::Metrics(_) => true,
            Self::Config
            | Self::Streams
            | Self::Slo
            | Self::Stats
            | Self::Drift
            | Self::Labels
            | Self::Index => false,
        }
    }
}

const INDEX: &str = "tokengauge admin port\n\n\
    /livez    200 while the process runs\n\
    /readyz   200 while it takes requests, 503 while it drains\n\
    /drain    (POST) be seen off: not ready, then no connection is kept, while everything is still served\n\
    /drained  answers when that is done\n\
    /metrics  Prometheus text, or OpenMetrics for who accepts it\n\
    /config   the configuration in force, secrets redacted\n\
    /streams  exchanges in flight\n\
    /slo      objectives, budgets and burn rates\n\
    /stats    throughput, percentiles, queue depth and drift, for those without a Prometheus\n\
    /drift    lengths of prompts and answers of late, to save as a baseline\n\
    /labels   the names that metrics are told apart by\n";

impl AdminState {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &AdminConnection,
    ) -> Response<Full<Bytes>> {
        hold(&connection.page, None);
        let wanted = match Asked::of(&request) {
            Ok(Asked::Page(wanted)) => wanted,
            // Here and now: whether a container is restarted hangs on it.
            Ok(Asked::Live) => return text(StatusCode::OK, "live\n"),
            Ok(Asked::Ready) if self.ready.load(Ordering::Acquire) => {
                return text(StatusCode::OK, "ready\n");
            }
            Ok(Asked::Ready) => return text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            Ok(Asked::Drained) => {
                hold(&connection.place, Some(connection.takes(&self.waiting)));
                return waited(self.drain.wait().await);
            }
            Ok(Asked::Drain) if !self.may_drain(&request, connection.peer) => {
                let why = "a drain is begun by who is on this machine, or sends the admin token (Authorization: Bearer …)\n";
                return text(StatusCode::FORBIDDEN, why);
            }
            Ok(Asked::Drain) => {
                hold(&connection.place, Some(connection.takes(&self.waiting)));
                let query = request.uri().query().unwrap_or_default();
                return waited(self.drain.ask(query).await);
            }
            Err((status, why)) => return text(status, why),
        };
        if !wanted.is_open() && !self.allows(&request) {
            let why = "this page needs the admin token: the port is not on loopback (send Authorization: Bearer …)\n";
            return text(StatusCode::FORBIDDEN, why);
        }
        hold(&connection.page, Some(connection.takes(&self.pages_held)));
        self.make(wanted).await
    }

    /// In its turn, and where no relaying worker is held up. Who is gone by then has left the queue.
    async fn make(self: Arc<Self>, wanted: Wanted) -> Response<Full<Bytes>> {
        let failed = || text(StatusCode::INTERNAL_SERVER_ERROR, "this page could not be made\n");
        let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else {
            return failed();
        };
        let page = tokio::task::spawn_blocking(move || {
            let page = self.page(wanted);
            drop(turn);
            page
        });
        page.await.unwrap_or_else(|_| failed())
    }

    fn page(&self, wanted: Wanted) -> Response<Full<Bytes>> {
        match wanted {
            Wanted::Metrics(format) => typed(format.content_type(), (self.pages.metrics)(format)),
            Wanted::Config => typed("application/yaml", (self.pages.config)()),
            Wanted::Streams => typed("application/json", (self.pages.streams)()),
            Wanted::Slo => typed("application/json", (self.pages.slo)()),
            Wanted::Stats => typed("application/json", (self.pages.stats)()),
            Wanted::Drift => typed("application/json", (self.pages.drift)()),
            Wanted::Labels => typed("application/json", (self.pages.labels)()),
            Wanted::Index => text(StatusCode::OK, INDEX),
        }
    }

    fn allows(&self, request: &Request<Incoming>) -> bool {
        self.token.is_none() && self.loopback || self.knows_token(request)
    }

    /// A pod's hook has no token at hand. A page in a browser on this machine is not who is meant, and browsers say by
    /// this header that it is one.
    fn may_drain(&self, request: &Request<Incoming>, peer: IpAddr) -> bool {
        let browser = request.headers().contains_key(header::ORIGIN);
        is_local(peer) && !browser || self.knows_token(request)
    }

    fn knows_token(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else {
            return false;
        };
        let sent =
            request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        sent.and_then(|sent| sent.strip_prefix("Bearer "))
            .is_some_and(|sent| same(sent.as_bytes(), token.as_bytes()))
    }
}

/// What comes of waiting, after which the connection has no place among others.
fn waited(waited: DrainOutcome) -> Response<Full<Bytes>> {
    let mut response = told(waited);
    let close = header::HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

fn told(waited: DrainOutcome) -> Response<Full<Bytes>> {
    match waited {
        DrainOutcome::Drained => text(StatusCode::OK, "drained\n"),
        DrainOutcome::NotDraining => text(StatusCode::OK, "not draining\n"),
        DrainOutcome::Overdue => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "not drained in time: what is in flight goes on\n",
        ),
        DrainOutcome::Full => {
            text(StatusCode::SERVICE_UNAVAILABLE, "too many have asked for this already\n")
        }
        DrainOutcome::Wrong(why) => {
            let mut response = typed("text/plain; charset=utf-8", why + "\n");
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

/// By all `Accept` headers, as if they were one.
fn format(headers: &HeaderMap) -> Format {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted: Vec<_> = accepted.filter_map(|value| value.to_str().ok()).collect();
    Format::accepted(&accepted.join(","))
}

/// Compares in time that depends on the lengths alone, so that a token cannot be guessed byte by byte.
fn same(sent: &[u8], expected: &[u8]) -> bool {
    let difference = sent.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
    sent.len() == expected.len() && difference == 0
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

fn typed(kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::watch;

    fn no_drain() -> Drain {
        Drain::new(Box::new(|_| Ok(Duration::ZERO)), watch::channel(DrainStage::None).1)
    }

    async fn admin(token: Option<&str>) -> (SocketAddr, Arc<AtomicBool>) {
        let ready = Arc::new(AtomicBool::new(true));
        let page = |body: &'static str| -> Page { Box::new(move || body.to_owned()) };
        let pages = Pages {
            metrics: Box::new(|format| match format {
                Format::Text => "m 1\n".to_owned(),
                Format::OpenMetrics => "m 1\n# EOF\n".to_owned(),
            }),
            config: page("c"),
            streams: page("[]"),
            slo: page("[]"),
            stats: page("{}"),
            drift: page("{}"),
            labels: page("[]"),
        };
        let token = token.map(str::to_owned);
        let admin =
            Admin::bind(([127, 0, 0, 1], 0).into(), token, Arc::clone(&ready), pages, no_drain())
                .await
                .unwrap();
        let address = admin.address();
        tokio::spawn(admin.serve());
        (address, ready)
    }

    async fn ask(address: SocketAddr, path: &str, extra: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{extra}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readiness_follows_the_flag_and_liveness_does_not() {
        let (address, ready) = admin(None).await;
        assert!(ask(address, "/readyz", "").await.starts_with("HTTP/1.1 200"));
        ready.store(false, Ordering::Release);
        assert!(ask(address, "/readyz", "").await.starts_with("HTTP/1.1 503"));
        assert!(ask(address, "/livez", "").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn every_page_is_served_on_loopback() {
        let (address, _) = admin(None).await;
        for (path, body) in [
            ("/metrics", "m 1\n"),
            ("/config", "c"),
            ("/streams", "[]"),
            ("/slo", "[]"),
            ("/stats", "{}"),
            ("/drift", "{}"),
            ("/labels", "[]"),
        ] {
            let answer = ask(address, path, "").await;
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with(body),
                "{path}: {answer}"
            );
        }
        assert!(ask(address, "/nothing", "").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn metrics_come_in_the_format_that_is_asked_for() {
        let (address, _) = admin(None).await;
        for (accept, kind, body) in [
            ("", "text/plain; version=0.0.4; charset=utf-8", "m 1\n"),
            (
                "accept: application/openmetrics-text;version=1.0.0\r\naccept: text/plain;q=0.5\r\n",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                "m 1\n# EOF\n",
            ),
        ] {
            let answer = ask(address, "/metrics", accept).await;
            let (head, content) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-type: {kind}")), "{head}");
            assert_eq!(content, body);
        }
    }

    #[tokio::test]
    async fn a_configured_token_is_asked_for() {
        let (address, _) = admin(Some("secret")).await;
        assert!(ask(address, "/metrics", "").await.starts_with("HTTP/1.1 200"));
        assert!(ask(address, "/streams", "").await.starts_with("HTTP/1.1 403"));
        assert!(
            ask(address, "/streams", "authorization: Bearer secret!\r\n")
                .await
                .starts_with("HTTP/1.1 403")
        );
        assert!(
            ask(address, "/streams", "authorization: Bearer secret\r\n")
                .await
                .starts_with("HTTP/1.1 200")
        );
    }

    #[tokio::test]
    async fn away_from_loopback_only_the_open_pages_are_served() {
        let page = || -> Page { Box::new(String::new) };
        let pages = Pages {
            metrics: Box::new(|_| String::new()),
            config: page(),
            streams: page(),
            slo: page(),
            stats: page(),
            drift: page(),
            labels: page(),
        };
        let admin = Admin::bind(([0, 0, 0, 0], 0).into(), None, Arc::default(), pages, no_drain())
            .await
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], admin.address().port()));
        tokio::spawn(admin.serve());
        assert!(ask(address, "/metrics", "").await.starts_with("HTTP/1.1 200"));
        for path in ["/config", "/streams", "/slo", "/stats", "/drift", "/labels", "/"] {
            let answer = ask(address, path, "").await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
        }
    }
}
