//! The admin port: health, metrics, configuration, live streams and draining.
//!
//! Health, metrics, runbooks and `/drained` are public. Other pages need the bearer token. If no token is configured,
//! they are served only on a loopback address (the module `access` has the rules). Closures provide the content of the
//! pages, so this module does not depend on the parts that the pages show.

mod access;
mod connection;
mod console;
mod drain;
mod fair_limit;
mod live;
mod pieces;
mod runbooks;
mod stats;

pub use console::Console;
pub use drain::{Drain, DrainStart, DrainTarget};
pub use live::LiveFeed;
pub use pieces::Pieces;
pub use stats::{Objective, Stats, StatsReading};

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AGE, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use self::access::{Access, Denial};
use self::connection::AdminConnection;
use self::console::ConsoleEndpoint;
use self::drain::DrainOutcome;
use self::fair_limit::{FairLimit, Permit};
use self::live::EventStream;
use self::pieces::PiecesBody;
use self::runbooks::{linked_page, runbook};
use tokengauge_console::assets::Asset;
use tokengauge_listen::WriteTimeout;
use tokengauge_telemetry::prometheus::Format;

/// Maximum number of connections to the admin port. Scrapers, probes and a few people need about ten. Addresses share
/// the limit fairly, so one client cannot lock out the kubelet. This limit and [`MAX_WAITING_CONNECTIONS`] together
/// take a quarter of a container's 1,024 file descriptors.
const MAX_CONNECTIONS: usize = 128;

/// Maximum number of connections that wait for the end of a drain. They have a separate limit, because a pod's hooks
/// and probes come from the same address and must not compete.
const MAX_WAITING_CONNECTIONS: usize = 128;

/// Maximum number of pages that the proxy renders or that clients have not read completely. Limits the memory for
/// clients that read slowly.
const MAX_PAGES: usize = 16;

/// Maximum number of `/metrics` responses that clients have not read completely. Each response keeps a snapshot of up
/// to 36 MB. Two Prometheus servers and a person with `curl` need three.
const MAX_SCRAPES: usize = 4;

/// Maximum size of the request headers in bytes. hyper's default is 400 KiB, which is too much here.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Maximum time to receive the request headers. A probe that takes longer has failed anyway.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time in which a client reads nothing of a page. Prometheus ends a scrape after 10 s by default.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a response: a complete text, a page that is rendered while the client reads, or events.
type PageBody = Either<Full<Bytes>, Either<PiecesBody, EventStream>>;

/// A page that needs authorization.
#[expect(missing_debug_implementations, reason = "closures have no Debug")]
pub struct Page {
    pub path: &'static str,
    pub content_type: &'static str,
    pub render: Box<dyn Fn() -> Rendered + Send + Sync>,
}

/// A rendered page.
#[derive(Clone, Debug)]
pub struct Rendered {
    pub body: Bytes,
    /// Age of the content, for the header `Age`.
    pub age: Duration,
}

impl Rendered {
    /// Creates a page with current content.
    pub fn now(body: String) -> Self {
        Self { body: body.into(), age: Duration::ZERO }
    }
}

/// A scrape, which is rendered as it is read.
#[expect(missing_debug_implementations, reason = "iterators have no Debug")]
pub struct Scrape {
    pub pieces: Pieces,
    /// Age of the metrics that the observer provides, for the header `Age`.
    pub age: Duration,
}

/// The pages of the admin port.
pub struct Pages {
    /// Prometheus text, or OpenMetrics.
    pub metrics: Box<dyn Fn(Format) -> Scrape + Send + Sync>,
    pub others: Vec<Page>,
    /// The console. `None` if it is off.
    pub console: Option<Arc<Console>>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

/// The admin server, bound but not serving yet.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<AdminState>,
}

impl Admin {
    /// Binds the admin port. `/readyz` succeeds while `ready` is true.
    ///
    /// # Errors
    /// Returns an error if the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        token: Option<String>,
        ready: Arc<AtomicBool>,
        pages: Pages,
        drain: Drain,
    ) -> std::io::Result<Self> {
        let listener = tokengauge_listen::bind_tcp(address)?;
        let address = listener.local_addr()?;
        let state = AdminState {
            pages,
            drain,
            ready,
            access: Access { token, is_loopback: address.ip().is_loopback() },
            waiting_limit: FairLimit::new(MAX_WAITING_CONNECTIONS),
            page_limit: FairLimit::new(MAX_PAGES),
            scrape_limit: FairLimit::new(MAX_SCRAPES),
            rendering: Arc::new(Semaphore::new(1)),
        };
        Ok(Self { listener, address, state: Arc::new(state) })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until the future is dropped. Accepts every connection at once, so that probes succeed even if
    /// the limit of connections is reached.
    pub async fn serve(self) {
        let limit = FairLimit::new(MAX_CONNECTIONS);
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = Arc::new(AdminConnection::new(peer.ip().to_canonical()));
                    connection.hold_permit(&limit);
                    tokio::spawn(serve_connection(stream, connection, Arc::clone(&self.state)));
                }
                Err(error) => {
                    tracing::warn!(%error, "admin port: cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    connection: Arc<AdminConnection>,
    state: Arc<AdminState>,
) {
    let displaced = Arc::clone(&connection.displaced);
    let service = service_fn(move |request| {
        let (state, connection) = (Arc::clone(&state), Arc::clone(&connection));
        async move { Ok::<_, Infallible>(state.respond(request, &connection).await) }
    });
    let server = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream, SEND_TIMEOUT)), service);
    tokio::select! {
        result = server => {
            if let Err(error) = result {
                tracing::debug!(%error, "admin connection failed");
            }
        }
        () = displaced.notified() => {
            tracing::debug!("admin connection closed in favour of another client");
        }
    }
}

#[derive(Clone, Copy)]
enum PageKind {
    Metrics(Format),
    /// An index into [`Pages::others`].
    Other(usize),
    Index,
}

/// A complete response, or a scrape to render.
enum RenderedPage {
    Whole(Response<PageBody>),
    Scrape(Format, Scrape),
}

/// The endpoint that a request asks for.
enum Endpoint {
    Live,
    Ready,
    StartDrain,
    AwaitDrain,
    /// The text of a runbook, or of a page to which runbooks link.
    Runbook(&'static str),
    Page(PageKind),
    /// A file of the web console, which contains no data.
    File(&'static Asset),
    Console(Arc<Console>, ConsoleEndpoint),
}

impl Endpoint {
    /// Returns the endpoint of a request, or the status and body of an error response.
    fn from_request<B>(
        request: &Request<B>,
        pages: &Pages,
    ) -> Result<Self, (StatusCode, &'static str)> {
        let method = request.method();
        let path = request.uri().path();
        if path == "/drain" {
            let message = "use POST to start a drain\n";
            let is_post = method == Method::POST;
            return is_post
                .then_some(Self::StartDrain)
                .ok_or((StatusCode::METHOD_NOT_ALLOWED, message));
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET is supported\n"));
        }
        if let Some(console) = &pages.console {
            if let Some(endpoint) = ConsoleEndpoint::from_path(path, request.uri().query()) {
                return Ok(Self::Console(Arc::clone(console), endpoint));
            }
            if let Some(file) = console::file(path, request.headers()) {
                return Ok(Self::File(file));
            }
        }
        Ok(match path {
            "/livez" => Self::Live,
            "/readyz" => Self::Ready,
            "/drained" => Self::AwaitDrain,
            "/metrics" => Self::Page(PageKind::Metrics(accepted_format(request.headers()))),
            "/" => Self::Page(PageKind::Index),
            path if path.starts_with("/runbooks/") => {
                let message = "no such runbook; /runbooks/ lists them\n";
                Self::Runbook(runbook(path).ok_or((StatusCode::NOT_FOUND, message))?)
            }
            path => match pages.others.iter().position(|page| page.path == path) {
                Some(index) => Self::Page(PageKind::Other(index)),
                None => Self::Runbook(linked_page(path).ok_or((StatusCode::NOT_FOUND, INDEX))?),
            },
        })
    }
}

const INDEX: &str = "tokengauge admin port\n\n\
    /livez    200 while the process runs\n\
    /readyz   200 while it accepts requests, 503 while it drains\n\
    /drain    (POST) drain: fail /readyz, then close connections, while all requests are still served\n\
    /drained  responds when the drain is complete\n\
    /metrics  Prometheus text, or OpenMetrics if accepted\n\
    /config   current configuration, secrets redacted\n\
    /streams  requests in flight\n\
    /slo      SLOs, error budgets and burn rates\n\
    /stats    throughput, percentiles, queue depth and drift\n\
    /drift    recent prompt and response lengths, to save as a baseline\n\
    /labels   label values of metrics\n\
    /runbooks/NAME  runbook of an alert; /runbooks/ lists them\n\
    /api/v1/snapshot  state of the console\n\
    /api/v1/live      the same as server-sent events, once a second\n\
    /api/v1/requests  finished requests\n";

/// Shared by all connections.
#[derive(Debug)]
struct AdminState {
    pages: Pages,
    drain: Drain,
    ready: Arc<AtomicBool>,
    access: Access,
    waiting_limit: FairLimit,
    page_limit: FairLimit,
    scrape_limit: FairLimit,
    /// Permit to render a page. Pages are rendered one at a time, because each takes milliseconds of CPU time that
    /// streams need.
    rendering: Arc<Semaphore>,
}

impl AdminState {
    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &AdminConnection,
    ) -> Response<PageBody> {
        connection.release_page_permit();
        match Endpoint::from_request(&request, &self.pages) {
            // This response must not wait for any other part, because Kubernetes restarts the container if it fails.
            Ok(Endpoint::Live) => text(StatusCode::OK, "live\n"),
            Ok(Endpoint::Ready) if self.ready.load(Ordering::Acquire) => {
                text(StatusCode::OK, "ready\n")
            }
            Ok(Endpoint::Ready) => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            Ok(Endpoint::Runbook(markdown)) => {
                let body = Full::new(Bytes::from_static(markdown.as_bytes()));
                response("text/markdown; charset=utf-8", Duration::ZERO, Either::Left(body))
            }
            Ok(Endpoint::AwaitDrain) => {
                connection.hold_permit(&self.waiting_limit);
                drain_response(self.drain.wait().await)
            }
            Ok(Endpoint::StartDrain) => {
                if let Err(denial) = self.access.check_drain(request.headers(), connection.peer) {
                    return denied(denial);
                }
                connection.hold_permit(&self.waiting_limit);
                let query = request.uri().query().unwrap_or_default();
                drain_response(self.drain.start(query).await)
            }
            Ok(Endpoint::Page(page)) => {
                let is_public = matches!(page, PageKind::Metrics(_));
                if !is_public && let Err(denial) = self.access.check_page(request.headers()) {
                    return denied(denial);
                }
                let scrape_permit = if let PageKind::Metrics(_) = page {
                    Some(self.scrape_limit.acquire(connection.peer, &connection.displaced))
                } else {
                    connection.hold_page_permit(&self.page_limit);
                    None
                };
                self.render_in_turn(page, scrape_permit).await
            }
            Ok(Endpoint::File(file)) => console::file_response(file, request.headers()),
            Ok(Endpoint::Console(console, endpoint)) => {
                match self.access.check_page(request.headers()) {
                    Ok(()) => console.respond(endpoint).await,
                    Err(denial) => denied(denial),
                }
            }
            Err((status, message)) => text(status, message),
        }
    }

    /// Renders a page on a blocking thread, after the pages that were requested earlier. A client that disconnects
    /// leaves the queue.
    async fn render_in_turn(
        self: Arc<Self>,
        page: PageKind,
        scrape_permit: Option<Permit>,
    ) -> Response<PageBody> {
        let failed = || text(StatusCode::INTERNAL_SERVER_ERROR, "this page cannot be rendered\n");
        let rendering = Arc::clone(&self.rendering);
        let Ok(turn) = Arc::clone(&rendering).acquire_owned().await else {
            return failed();
        };
        let rendered = tokio::task::spawn_blocking(move || {
            let page = self.render(page);
            drop(turn);
            page
        });
        match rendered.await {
            Ok(RenderedPage::Whole(response)) => response,
            Ok(RenderedPage::Scrape(format, Scrape { pieces, age })) => {
                let body = PiecesBody::new(pieces, rendering, scrape_permit);
                response(format.content_type(), age, Either::Right(Either::Left(body)))
            }
            Err(_) => failed(),
        }
    }

    fn render(&self, page: PageKind) -> RenderedPage {
        RenderedPage::Whole(match page {
            PageKind::Metrics(format) => {
                return RenderedPage::Scrape(format, (self.pages.metrics)(format));
            }
            PageKind::Other(index) => match self.pages.others.get(index) {
                Some(page) => rendered(page.content_type, (page.render)()),
                None => text(StatusCode::NOT_FOUND, INDEX),
            },
            PageKind::Index => text(StatusCode::OK, INDEX),
        })
    }
}

/// Creates the response to a request that may not read a page or start a drain.
fn denied(denial: Denial) -> Response<PageBody> {
    let (status, message) = denial.response();
    let mut response = text(status, message);
    if denial == Denial::Token {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Creates the response to a drain request, and closes the connection. While it waited, the connection gave up its
/// permit of [`MAX_CONNECTIONS`].
fn drain_response(outcome: DrainOutcome) -> Response<PageBody> {
    let mut response = match outcome {
        DrainOutcome::Drained => text(StatusCode::OK, "drained\n"),
        DrainOutcome::NotDraining => text(StatusCode::OK, "not draining\n"),
        DrainOutcome::Overdue => {
            text(StatusCode::SERVICE_UNAVAILABLE, "not drained in time; exchanges continue\n")
        }
        DrainOutcome::TooManyRequests => {
            text(StatusCode::SERVICE_UNAVAILABLE, "too many drain requests\n")
        }
        DrainOutcome::InvalidQuery(message) => {
            let mut response = rendered(TEXT, Rendered::now(message + "\n"));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    };
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Selects the metrics format from all `Accept` headers of the request.
fn accepted_format(headers: &HeaderMap) -> Format {
    let accepted = headers.get_all(ACCEPT).iter();
    let accepted: Vec<_> = accepted.filter_map(|value| value.to_str().ok()).collect();
    Format::accepted(&accepted.join(","))
}

const JSON: &str = "application/json";

const TEXT: &str = "text/plain; charset=utf-8";

fn text(status: StatusCode, body: &'static str) -> Response<PageBody> {
    let body = Full::new(Bytes::from_static(body.as_bytes()));
    let mut response = Response::new(Either::Left(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    response
}

fn rendered(content_type: &'static str, page: Rendered) -> Response<PageBody> {
    response(content_type, page.age, Either::Left(Full::new(page.body)))
}

fn response(content_type: &'static str, age: Duration, body: PageBody) -> Response<PageBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(AGE, HeaderValue::from(age.as_secs()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_observe::tee::{self, ObservationChannel};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn pages() -> Pages {
        let page = |(path, body): (&'static str, &'static str)| {
            let render = Box::new(move || Rendered::now(body.to_owned()));
            Page { path, content_type: "application/json", render }
        };
        let others = [
            ("/config", "c"),
            ("/streams", "[]"),
            ("/slo", "[]"),
            ("/stats", "{}"),
            ("/drift", "{}"),
            ("/labels", "[]"),
        ];
        Pages {
            metrics: Box::new(|format| {
                let text = match format {
                    Format::Text => "m 1\n",
                    Format::OpenMetrics => "m 1\n# EOF\n",
                };
                let pieces = Box::new(std::iter::once(text.to_owned()));
                Scrape { pieces, age: Duration::ZERO }
            }),
            others: others.map(page).into(),
            console: None,
        }
    }

    async fn start(address: [u8; 4], token: Option<&str>) -> (SocketAddr, Arc<AtomicBool>) {
        let ready = Arc::new(AtomicBool::new(true));
        let token = token.map(str::to_owned);
        let drain = Drain::new(DrainTarget {
            ready: Arc::clone(&ready),
            start: DrainStart::default(),
            channel: Arc::new(ObservationChannel::new(tee::ChannelConfig::default())),
            connections: Arc::default(),
        });
        let admin = Admin::bind((address, 0).into(), token, Arc::clone(&ready), pages(), drain);
        let admin = admin.await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], admin.address().port()));
        tokio::spawn(admin.serve());
        (address, ready)
    }

    async fn start_on_loopback(token: Option<&str>) -> (SocketAddr, Arc<AtomicBool>) {
        start([127, 0, 0, 1], token).await
    }

    /// Requests a page with HTTP/1.0, so that the response body is not chunked.
    async fn get(address: SocketAddr, path: &str, extra: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.0\r\nhost: {address}\r\nconnection: close\r\n{extra}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn readyz_follows_the_flag_and_livez_does_not() {
        let (address, ready) = start_on_loopback(None).await;
        assert!(get(address, "/readyz", "").await.starts_with("HTTP/1.0 200"));
        ready.store(false, Ordering::Release);
        assert!(get(address, "/readyz", "").await.starts_with("HTTP/1.0 503"));
        assert!(get(address, "/livez", "").await.starts_with("HTTP/1.0 200"));
    }

    #[tokio::test]
    async fn serves_every_page_on_loopback() {
        let (address, _) = start_on_loopback(None).await;
        for (path, body) in [
            ("/metrics", "m 1\n"),
            ("/config", "c"),
            ("/streams", "[]"),
            ("/slo", "[]"),
            ("/stats", "{}"),
            ("/drift", "{}"),
            ("/labels", "[]"),
        ] {
            let response = get(address, path, "").await;
            assert!(
                response.starts_with("HTTP/1.0 200") && response.ends_with(body),
                "{path}: {response}"
            );
        }
        assert!(get(address, "/nothing", "").await.starts_with("HTTP/1.0 404"));
    }

    #[tokio::test]
    async fn negotiates_the_metrics_format() {
        let (address, _) = start_on_loopback(None).await;
        for (accept, kind, body) in [
            ("", "text/plain; version=0.0.4; charset=utf-8", "m 1\n"),
            (
                "accept: application/openmetrics-text;version=1.0.0\r\naccept: text/plain;q=0.5\r\n",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                "m 1\n# EOF\n",
            ),
        ] {
            let response = get(address, "/metrics", accept).await;
            let (head, content) = response.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-type: {kind}")), "{head}");
            assert_eq!(content, body);
        }
    }

    #[tokio::test]
    async fn requires_a_configured_token() {
        let (address, _) = start_on_loopback(Some("secret")).await;
        assert!(get(address, "/metrics", "").await.starts_with("HTTP/1.0 200"));
        let missing = get(address, "/streams", "").await;
        assert!(missing.starts_with("HTTP/1.0 401"), "{missing}");
        assert!(missing.contains("www-authenticate: Bearer\r\n"), "{missing}");
        assert!(
            get(address, "/streams", "authorization: Bearer secret!\r\n")
                .await
                .starts_with("HTTP/1.0 401")
        );
        assert!(
            get(address, "/streams", "authorization: bearer secret\r\n")
                .await
                .starts_with("HTTP/1.0 200")
        );
    }

    #[tokio::test]
    async fn serves_only_public_pages_on_other_addresses() {
        let (address, _) = start([0, 0, 0, 0], None).await;
        assert!(get(address, "/metrics", "").await.starts_with("HTTP/1.0 200"));
        for path in ["/config", "/streams", "/slo", "/stats", "/drift", "/labels", "/"] {
            let response = get(address, path, "").await;
            assert!(response.starts_with("HTTP/1.0 403"), "{path}: {response}");
        }
    }
}
