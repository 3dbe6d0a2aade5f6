//! The two ports: reviews over HTTPS, admin and metrics in the clear.
//!
//! What a stranger can make the injector hold or do is bounded, and every wait is shorter than the API server's for the
//! answer: heads and handshakes, bodies, bytes of all bodies together, reviews that are worked on at once. A review that
//! there is no room for gets 503, which lets the pod pass (`failurePolicy: Ignore`).

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use rustls::ServerConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::events::EventRecorder;
use super::log;
use super::metrics::Metrics;
use super::resolver::CertificateResolver;
use super::review::{BypassReason, Decision, InvalidReview, Review, ReviewOutcome};
use crate::inject::{InjectionContext, Settings, inject};
use tokengauge_listen::{Address, Connections, Listener, Peer};
use tokengauge_types::clock;

/// API servers, of which there are a few, each with a few connections.
const MOST_CONNECTIONS: usize = 256;

/// Scrapers and probes.
const MOST_ADMIN_CONNECTIONS: usize = 64;

/// Handshake and head. With [`BODY_TIMEOUT`] and [`TURN_TIMEOUT`] it stays below 5 s, the webhook's timeout in the chart.
const HEAD_TIMEOUT: Duration = Duration::from_secs(4);
const BODY_TIMEOUT: Duration = Duration::from_secs(3);
const TURN_TIMEOUT: Duration = Duration::from_secs(1);

/// Etcd takes objects of up to 1.5 MiB and the API server requests of up to 3 MiB; in JSON an object may be twice as
/// long, and the envelope has a second one for updates.
const LARGEST_BODY: usize = 8 << 20;

/// Bytes of all bodies that are being received or worked on.
const ALL_BODIES: usize = 64 << 20;

/// Reviews that are taken apart at once. One takes well below a millisecond of a core.
const AT_ONCE: usize = 2;

type Answer = Response<Full<Bytes>>;

/// A port that is served.
#[derive(Debug)]
pub struct ServerHandle {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Connections>,
}

impl ServerHandle {
    /// Accepts nothing any more; what is open may finish for a while and is then cut.
    pub async fn stop(self, limit: Duration) {
        // A receiver that is gone has stopped already.
        self.stop.send(()).unwrap_or_default();
        if let Ok(connections) = self.serving.await {
            connections.finish(limit).await;
            connections.cut().await;
        }
    }
}

/// Serves reviews.
pub fn serve_reviews(
    address: SocketAddr,
    tls: ServerConfig,
    service: Arc<WebhookService>,
) -> Result<ServerHandle, tokengauge_listen::Error> {
    let config = config(address, MOST_CONNECTIONS);
    let listener = Listener::bind_tls(&config, tls)?;
    let answer = move |request| {
        let service = Arc::clone(&service);
        async move { service.answer(request).await }
    };
    Ok(serve(listener, address, answer))
}

/// Serves admin and metrics.
pub fn serve_admin(
    address: SocketAddr,
    admin: Arc<AdminService>,
) -> Result<ServerHandle, tokengauge_listen::Error> {
    let listener = Listener::bind(&config(address, MOST_ADMIN_CONNECTIONS))?;
    let answer = move |request: Request<Incoming>| {
        let answer = admin.answer(&request);
        async move { answer }
    };
    Ok(serve(listener, address, answer))
}

fn config(address: SocketAddr, max_connections: usize) -> tokengauge_listen::Config {
    tokengauge_listen::Config {
        max_connections,
        head_timeout: HEAD_TIMEOUT,
        ..tokengauge_listen::Config::at(Address::Tcp(address))
    }
}

fn serve<F, A>(listener: Listener, wanted: SocketAddr, answer: F) -> ServerHandle
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + Unpin + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    // Of port 0, the port that was given.
    let address = listener.local_addr().unwrap_or(wanted);
    let (stop, stopped) = oneshot::channel();
    let service_for = move |_: Peer| {
        let answer = answer.clone();
        service_fn(move |request| {
            let answering = answer(request);
            Box::pin(async move { Ok::<_, Infallible>(answering.await) })
        })
    };
    let serving = listener.serve(service_for, async move {
        drop(stopped.await);
    });
    ServerHandle { address, stop, serving: tokio::spawn(serving) }
}

/// Answers reviews.
#[derive(Debug)]
pub struct WebhookService {
    settings: Settings,
    events: EventRecorder,
    metrics: Arc<Metrics>,
    room: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// RenewalReason a request has no AdmissionReview as its answer.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("reviews are sent to POST /inject")]
    Path,
    #[error("only POST is answered here")]
    Method,
    #[error("a review is application/json")]
    ContentType,
    #[error("a review has at most {LARGEST_BODY} bytes")]
    TooLarge,
    #[error("the body did not come within {BODY_TIMEOUT:?}")]
    Late,
    #[error("the body broke off: {0}")]
    Broken(hyper::Error),
    #[error("too many reviews at once")]
    Busy,
    #[error(transparent)]
    InvalidReview(#[from] InvalidReview),
}

impl RequestError {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Path => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) | Self::InvalidReview(_) => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    const fn as_str(&self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Method => "method",
            Self::ContentType => "content_type",
            Self::TooLarge => "too_large",
            Self::Late => "late",
            Self::Broken(_) => "broken_off",
            Self::Busy => "busy",
            Self::InvalidReview(_) => "no_review",
        }
    }
}

/// A whole body, and its share of [`ALL_BODIES`].
struct Body {
    bytes: Bytes,
    #[expect(dead_code, reason = "held for its drop: there is room again")]
    room: Option<OwnedSemaphorePermit>,
}

impl WebhookService {
    pub fn new(settings: Settings, events: EventRecorder, metrics: Arc<Metrics>) -> Self {
        Self {
            settings,
            events,
            metrics,
            room: Arc::new(Semaphore::new(ALL_BODIES)),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let begun = clock::now();
        let metrics = Arc::clone(&self.metrics);
        match self.review(request).await {
            Ok((decision, answer)) => {
                metrics.reviewed(decision.outcome, decision.reason, clock::now().since(begun));
                typed(StatusCode::OK, "application/json", answer)
            }
            Err(why) => {
                let reason = why.as_str();
                metrics.reviewed(ReviewOutcome::Failed, reason, clock::now().since(begun));
                log::ReviewUnanswerable { problem: &why }.emit();
                text(why.status(), format!("{why}\n"))
            }
        }
    }

    async fn review(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<(Decision, String), RequestError> {
        expected(request.uri().path(), request.method(), request.headers())?;
        let receiving = self.receive(request.into_body());
        let body = tokio::time::timeout(BODY_TIMEOUT, receiving).await;
        let body = body.map_err(|_| RequestError::Late)??;
        let turn = Arc::clone(&self.turns).acquire_owned();
        let turn = tokio::time::timeout(TURN_TIMEOUT, turn).await;
        let Ok(Ok(turn)) = turn else {
            return Err(RequestError::Busy);
        };
        let working = tokio::task::spawn_blocking(move || {
            let answered = self.decide(&body.bytes);
            drop((turn, body));
            answered
        });
        // Only a runtime that ends breaks it off: panics are caught within.
        working.await.map_err(|_| RequestError::Busy)?
    }

    fn decide(&self, body: &[u8]) -> Result<(Decision, String), RequestError> {
        let review = Review::read(body)?;
        let deciding =
            || review.decide(|pod| inject(pod, &InjectionContext::standalone(), &self.settings));
        let decided = catch_unwind(AssertUnwindSafe(deciding));
        let mut decision = decided.unwrap_or_else(|_| Decision::unasked(BypassReason::Panicked));
        let answer = review.answer(&decision).to_string();
        log::Reviewed {
            outcome: decision.outcome.as_str(),
            reason: decision.reason,
            message: &decision.message,
        }
        .emit();
        if let Some(told) = decision.told.take() {
            self.events.tell(told);
        }
        Ok((decision, answer))
    }

    /// Takes room for each part of the body as it comes, so that slow senders hold no more than they have sent.
    async fn receive(&self, mut body: Incoming) -> Result<Body, RequestError> {
        let mut bytes = BytesMut::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(RequestError::Broken)?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > LARGEST_BODY {
                return Err(RequestError::TooLarge);
            }
            let wanted = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let more = Arc::clone(&self.room).try_acquire_many_owned(wanted);
            let more = more.map_err(|_| RequestError::Busy)?;
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        let bytes = bytes.freeze();
        Ok(Body { bytes, room })
    }
}

fn expected(path: &str, method: &Method, headers: &HeaderMap) -> Result<(), RequestError> {
    if path != "/inject" {
        return Err(RequestError::Path);
    }
    if method != Method::POST {
        return Err(RequestError::Method);
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    let is_json = kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(RequestError::ContentType);
    }
    Ok(())
}

/// Answers probes and scrapers.
#[derive(Debug)]
pub struct AdminService {
    /// False once it was told to stop.
    pub accepts_reviews: Arc<AtomicBool>,
    pub resolver: Arc<CertificateResolver>,
    pub metrics: Arc<Metrics>,
}

impl AdminService {
    fn answer(&self, request: &Request<Incoming>) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let why = "only GET is answered here\n".to_owned();
            return text(StatusCode::METHOD_NOT_ALLOWED, why);
        }
        match request.uri().path() {
            "/livez" => text(StatusCode::OK, "live\n".to_owned()),
            "/readyz" => self.ready(),
            "/metrics" => typed(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                self.metrics.text(self.resolver.until()),
            ),
            _ => text(StatusCode::NOT_FOUND, "/livez /readyz /metrics\n".to_owned()),
        }
    }

    fn ready(&self) -> Answer {
        let not = |why: &str| text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
        if !self.accepts_reviews.load(Ordering::Acquire) {
            return not("stopping");
        }
        let now = clock::wall_now().unix_nanos() / 1_000_000_000;
        match self.resolver.until() {
            None => not("there is no certificate yet"),
            Some(until) if until <= now => not("the certificate has ended"),
            Some(_) => text(StatusCode::OK, "ready\n".to_owned()),
        }
    }
}

fn text(status: StatusCode, body: String) -> Answer {
    typed(status, "text/plain; charset=utf-8", body)
}

fn typed(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
