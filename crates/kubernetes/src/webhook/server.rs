//! The HTTPS server for admission reviews, and the HTTP server for probes and metrics.
//!
//! Any client that reaches the port can send reviews, so memory, connections and concurrency are limited. Each time
//! limit is shorter than the API server's timeout. A review that exceeds a limit gets an error status. The API server
//! then admits the pod without a sidecar (`failurePolicy: Ignore`).

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use rustls::ServerConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tower::timeout::error::Elapsed;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::certificate::CertificateResolver;
use super::events::EventRecorder;
use super::metrics::Metrics;
use super::review::{BypassReason, Decision, InvalidReview, Review, ReviewOutcome};
use crate::inject::{InjectionContext, Settings, inject};
use tokengauge_listen::validity;
use tokengauge_listen::{Address, BodyError, Connections, Listener, Peer, ReceivedBody, Workers};
use tokengauge_types::clock;
use tokengauge_types::event::TimedResponse;

/// Maximum number of connections for reviews. A cluster has a few API servers, and each opens a few
/// connections.
const MAX_CONNECTIONS: usize = 256;

/// Maximum number of connections from probes and metrics scrapers.
const MAX_ADMIN_CONNECTIONS: usize = 64;

/// Time limit for the TLS handshake, for the request headers, and for a client that does not read. It is below the
/// webhook timeout of 5 s in the chart.
const HEADER_TIMEOUT: Duration = Duration::from_secs(4);

/// Time limit from the request headers to the response. Most of it is for receiving the body, because a decision takes
/// less than 1 ms.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of reviews that are open at the same time. The decisions for this number of reviews take about half
/// a second in total.
const MAX_REVIEWS: usize = 1_024;

/// Maximum number of decisions at the same time. Each decision uses one core for less than 1 ms.
const MAX_DECISIONS: usize = 2;

/// Maximum size of a request body. The API server accepts requests of up to 3 MiB. As JSON, an object can be twice as
/// long, and a review of an update contains two objects.
const MAX_BODY_BYTES: usize = 8 << 20;

/// Maximum total size of the bodies of all open reviews.
const MAX_TOTAL_BODY_BYTES: usize = 64 << 20;

type TextResponse = Response<Full<Bytes>>;

/// A complete text. It has no time limit besides those of the listener.
#[derive(Debug)]
struct TextBody(Full<Bytes>);

impl TimedResponse for TextBody {}

impl Body for TextBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[derive(Debug)]
pub struct ServerHandle {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Connections>,
}

impl ServerHandle {
    /// Stops accepting connections. Open connections may finish their current requests within `timeout`, and are then
    /// closed.
    pub async fn stop(self, timeout: Duration) {
        // Sending the stop signal fails only if the server task has already ended.
        self.stop.send(()).unwrap_or_default();
        if let Ok(connections) = self.task.await {
            connections.drain(timeout).await;
            connections.abort().await;
        }
    }
}

/// Serves reviews over HTTPS.
///
/// # Errors
/// Fails if the port cannot be opened.
pub fn serve_reviews(
    address: SocketAddr,
    tls: ServerConfig,
    webhook: Arc<WebhookService>,
) -> Result<ServerHandle, tokengauge_listen::ListenError> {
    let listener = Listener::bind_tls(&config(address, MAX_CONNECTIONS), tls)?;
    let reviewer = Arc::clone(&webhook);
    let service = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(MAX_REVIEWS)
        .timeout(REVIEW_TIMEOUT)
        .service_fn(move |request| Arc::clone(&reviewer).review(request));
    Ok(serve(listener, address, move |request| {
        let (webhook, service) = (Arc::clone(&webhook), service.clone());
        async move {
            let start = clock::now();
            let result = service.oneshot(request).await.map_err(RequestError::from);
            webhook.respond(result, clock::now().since(start))
        }
    }))
}

/// Serves probes and metrics over HTTP.
///
/// Only the number of connections is limited, because these responses never wait.
///
/// # Errors
/// Fails if the port cannot be opened.
pub fn serve_admin(
    address: SocketAddr,
    admin: Arc<AdminService>,
) -> Result<ServerHandle, tokengauge_listen::ListenError> {
    let listener = Listener::bind(&config(address, MAX_ADMIN_CONNECTIONS))?;
    Ok(serve(listener, address, move |request| std::future::ready(admin.respond(&request))))
}

fn config(address: SocketAddr, max_connections: usize) -> tokengauge_listen::ListenerConfig {
    tokengauge_listen::ListenerConfig {
        max_connections,
        head_timeout: HEADER_TIMEOUT,
        send_timeout: HEADER_TIMEOUT,
        ..tokengauge_listen::ListenerConfig::at(Address::Tcp(address))
    }
}

fn serve<F, R>(listener: Listener, configured: SocketAddr, respond: F) -> ServerHandle
where
    F: Fn(Request<ReceivedBody>) -> R + Clone + Send + Sync + Unpin + 'static,
    R: Future<Output = TextResponse> + Send + 'static,
{
    // If the configured port is 0, the operating system selects the port of the listener.
    let address = listener.local_addr().unwrap_or(configured);
    let (stop, stopped) = oneshot::channel();
    let handler = move |_: Peer| {
        let respond = respond.clone();
        service_fn(move |request| {
            let response = respond(request);
            Box::pin(async move { Ok::<_, Infallible>(response.await.map(TextBody)) })
        })
    };
    let task = listener.serve(handler, Workers::current(), async move {
        drop(stopped.await);
    });
    ServerHandle { address, stop, task: tokio::spawn(task) }
}

/// Answers admission reviews on the HTTPS port.
#[derive(Debug)]
pub struct WebhookService {
    settings: Settings,
    events: EventRecorder,
    metrics: Arc<Metrics>,
    /// Semaphore with one permit per byte of [`MAX_TOTAL_BODY_BYTES`].
    body_bytes: Arc<Semaphore>,
    decisions: Arc<Semaphore>,
}

/// Reason for answering a request with an HTTP error status instead of a review response.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("unknown path; send reviews to POST /inject")]
    Path,
    #[error("method not allowed; use POST")]
    Method,
    #[error("unsupported content type; use application/json")]
    ContentType,
    #[error("the body exceeds {MAX_BODY_BYTES} bytes")]
    TooLarge,
    #[error("the request was not complete within {REVIEW_TIMEOUT:?}")]
    Timeout,
    #[error("cannot read the body: {0}")]
    Body(BodyError),
    #[error("too many reviews at the same time")]
    Overloaded,
    #[error(transparent)]
    InvalidReview(#[from] InvalidReview),
}

impl RequestError {
    /// Returns the HTTP status of the response and the value of the metric label `reason`.
    const fn status_and_reason(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Path => (StatusCode::NOT_FOUND, "path"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "method"),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::Timeout => (StatusCode::REQUEST_TIMEOUT, "late"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "broken_off"),
            Self::InvalidReview(_) => (StatusCode::BAD_REQUEST, "no_review"),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        }
    }
}

impl From<BoxError> for RequestError {
    /// Returns the original error of [`WebhookService::review`], or converts a tower error such as a timeout.
    fn from(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) if error.is::<Elapsed>() => Self::Timeout,
            Err(_) => Self::Overloaded,
        }
    }
}

impl WebhookService {
    pub fn new(settings: Settings, events: EventRecorder, metrics: Arc<Metrics>) -> Self {
        Self {
            settings,
            events,
            metrics,
            body_bytes: Arc::new(Semaphore::new(MAX_TOTAL_BODY_BYTES)),
            decisions: Arc::new(Semaphore::new(MAX_DECISIONS)),
        }
    }

    /// Decides about a review. Returns the decision, and the AdmissionReview to send as response.
    async fn review(
        self: Arc<Self>,
        request: Request<ReceivedBody>,
    ) -> Result<(Decision, String), RequestError> {
        validate(request.uri().path(), request.method(), request.headers())?;
        let (body, body_permit) = self.receive(request.into_body()).await?;
        let permit = Arc::clone(&self.decisions).acquire_owned().await;
        // The closure owns the permits, because it runs to its end even if the client disconnects.
        let decision = tokio::task::spawn_blocking(move || {
            let decision = self.decide(&body);
            drop((permit, body, body_permit));
            decision
        });
        // `decide` catches panics, so the task fails only if the runtime shuts down.
        decision.await.map_err(|_| RequestError::Overloaded)?
    }

    /// Receives a request body. Each received byte takes a permit of [`MAX_TOTAL_BODY_BYTES`], the memory limit for
    /// all bodies. A slow client therefore uses only as much of the limit as it has sent.
    async fn receive(
        &self,
        mut body: ReceivedBody,
    ) -> Result<(BytesMut, Option<OwnedSemaphorePermit>), RequestError> {
        let mut bytes = BytesMut::new();
        let mut permit: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(RequestError::Body)?.into_data() else { continue };
            if bytes.len() + data.len() > MAX_BODY_BYTES {
                return Err(RequestError::TooLarge);
            }
            let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let acquired = Arc::clone(&self.body_bytes).try_acquire_many_owned(count);
            let acquired = acquired.map_err(|_| RequestError::Overloaded)?;
            match &mut permit {
                Some(permit) => permit.merge(acquired),
                None => permit = Some(acquired),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, permit))
    }

    fn decide(&self, body: &[u8]) -> Result<(Decision, String), RequestError> {
        let review = Review::parse(body)?;
        let decide =
            || review.decide(|pod| inject(pod, &InjectionContext::standalone(), &self.settings));
        let mut decision = catch_unwind(AssertUnwindSafe(decide))
            .unwrap_or_else(|_| Decision::bypass(BypassReason::Panicked));
        let response = review.response(&decision).to_string();
        let Decision { outcome, reason, message, event, .. } = &mut decision;
        tracing::debug!(outcome = outcome.as_str(), reason, "review: {message}");
        if let Some(event) = event.take() {
            self.events.record(event);
        }
        Ok((decision, response))
    }

    fn respond(
        &self,
        result: Result<(Decision, String), RequestError>,
        duration: Duration,
    ) -> TextResponse {
        match result {
            Ok((decision, response)) => {
                self.metrics.record_review(decision.outcome, decision.reason, duration);
                respond(StatusCode::OK, "application/json", response)
            }
            Err(error) => {
                let (status, reason) = error.status_and_reason();
                self.metrics.record_review(ReviewOutcome::Failed, reason, duration);
                tracing::debug!(problem = %error, "request rejected");
                respond(status, PLAIN_TEXT, format!("{error}\n"))
            }
        }
    }
}

fn validate(path: &str, method: &Method, headers: &HeaderMap) -> Result<(), RequestError> {
    if path != "/inject" {
        return Err(RequestError::Path);
    }
    if method != Method::POST {
        return Err(RequestError::Method);
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    if !media_type.trim().eq_ignore_ascii_case("application/json") {
        return Err(RequestError::ContentType);
    }
    Ok(())
}

/// Answers health probes and metrics scrapes on the HTTP port.
#[derive(Debug)]
pub struct AdminService {
    /// Whether the server accepts reviews. False after shutdown begins.
    pub accepts_reviews: Arc<AtomicBool>,
    pub resolver: Arc<CertificateResolver>,
    pub metrics: Arc<Metrics>,
}

impl AdminService {
    fn respond(&self, request: &Request<ReceivedBody>) -> TextResponse {
        let text = |status, text: &str| respond(status, PLAIN_TEXT, format!("{text}\n"));
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; use GET");
        }
        match request.uri().path() {
            "/livez" => text(StatusCode::OK, "live"),
            "/readyz" => match self.readiness() {
                Ok(()) => text(StatusCode::OK, "ready"),
                Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
            },
            "/metrics" => {
                let metrics = self.metrics.render(self.resolver.expiry());
                respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics)
            }
            _ => text(StatusCode::NOT_FOUND, "/livez /readyz /metrics"),
        }
    }

    fn readiness(&self) -> Result<(), &'static str> {
        if !self.accepts_reviews.load(Ordering::Acquire) {
            return Err("stopping");
        }
        match self.resolver.expiry() {
            None => Err("no certificate yet"),
            Some(expiry) if expiry <= validity::now() => Err("the certificate has expired"),
            Some(_) => Ok(()),
        }
    }
}

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

fn respond(status: StatusCode, content_type: &'static str, body: String) -> TextResponse {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
