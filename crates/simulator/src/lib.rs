//! A simulated LLM backend for the demo, tests and benchmarks.
//!
//! The backend implements OpenAI's API over HTTP/1.1 and HTTP/2. It generates text at the speed of its model
//! [`Profile`]s and injects configured faults. A [`Ledger`] records the data that the backend really sent, so that a
//! test can check the proxy's figures against the ledger.
//!
//! The seed and the request bytes determine the text, so equal requests get equal bytes. Only injected faults (stalls,
//! failures, truncation) differ between two equal requests.

mod chunk_template;
mod embeddings;
pub mod engine;
mod job;
pub mod ledger;
pub mod profile;
mod request;
pub mod response_body;
pub mod schedule;
mod script;
mod sentences;
pub mod tokens;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::header::HeaderValue;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::engine::Engine;
use crate::job::{Job, error_response, healthy, json, metrics};
use crate::request::{Api, ApiError, Overrides};
use crate::response_body::{FullBody, ResponseBody};
use crate::schedule::InjectedFaults;
use tokengauge_types::label::Name;

pub use crate::ledger::{Entry, Ledger, ResponseEnd, Usage};
pub use crate::profile::Profile;

/// Models and seed of a backend.
#[derive(Clone, Debug)]
pub struct Config {
    /// Simulated models. The first model also answers requests for unknown models, and uses the name in the request.
    pub models: Vec<Profile>,
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { models: Profile::defaults(), seed: 1 }
    }
}

/// Maximum number of open connections, which is twice the number that the largest benchmark opens. Further connections
/// wait in the kernel.
const MAX_CONNECTIONS: usize = 10_000;

/// Maximum size of a request body. It is at least as large as the limit of every provider.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Pause after a failed `accept`. Without the pause, `accept` would fail in a busy loop while the process has no free
/// file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Creation time in all responses. It is constant, so that equal requests get equal responses.
const CREATED: u64 = 1_767_225_600;

/// Serves requests until `shutdown` completes, and then closes all connections.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    ledger: Arc<Ledger>,
    shutdown: impl Future<Output = ()>,
) {
    let backend = Arc::new(Backend::new(config, ledger));
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let full = connections.len() >= MAX_CONNECTIONS;
        tokio::select! {
            () = &mut shutdown => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if !full => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(serve_connection(socket, Arc::clone(&backend)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

async fn serve_connection(socket: TcpStream, backend: Arc<Backend>) {
    // Without this option, Nagle's algorithm delays a chunk until the client has acknowledged the previous chunk.
    // Setting the option fails only if the socket is already closed.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let backend = Arc::clone(&backend);
        async move { Ok::<_, Infallible>(backend.answer(request).await) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    // The ledger records the result of each response, so a connection error needs no separate report.
    drop(server.serve_connection(TokioIo::new(socket), service).await);
}

#[derive(Debug)]
struct Backend {
    engines: Vec<Arc<Engine>>,
    seed: u64,
    ledger: Arc<Ledger>,
    arrivals: AtomicU64,
}

impl Backend {
    fn new(config: Config, ledger: Arc<Ledger>) -> Self {
        let mut models = config.models;
        if models.is_empty() {
            models = Profile::defaults();
        }
        Self {
            engines: models.into_iter().map(|it| Arc::new(Engine::new(it))).collect(),
            seed: config.seed,
            ledger,
            arrivals: AtomicU64::new(0),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if head.method == Method::GET && path.ends_with("/models") {
            let names = self.engines.iter().map(|it| it.profile.name.as_str());
            return json(StatusCode::OK, FullBody::plain(chunk_template::models(names, CREATED)));
        }
        if head.method == Method::GET && path == "/metrics" {
            return metrics(engine::metrics_page(&self.engines));
        }
        if head.method == Method::GET && path == "/health" {
            return healthy();
        }
        let Some(api) = Api::from_path(path).filter(|_| head.method == Method::POST) else {
            let error = ApiError::no_endpoint(&head.method, path);
            return json(StatusCode::NOT_FOUND, FullBody::plain(error.body));
        };
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed) + 1;
        let request_id = request_id(&head.headers, arrival);
        let body = Limited::new(body, MAX_REQUEST_BYTES).collect().await;
        let mut guard = self.ledger.open_entry(request_id.clone());
        let job = match body {
            Ok(body) => self.job(api, &head.headers, &body.to_bytes(), arrival),
            Err(_) => Err(ApiError::new(413, "the request body is incomplete or too large", None)),
        };
        let mut response = match job {
            Ok(job) => {
                guard.entry.model = Name::new(&job.model);
                guard.entry.stream = job.request.streams() && api != Api::Embeddings;
                job.run(guard).await
            }
            Err(error) => error_response(error, guard),
        };
        if let Ok(value) = HeaderValue::from_str(request_id.as_str()) {
            response.headers_mut().insert("x-request-id", value);
        }
        response
    }

    fn job(
        &self,
        api: Api,
        headers: &http::HeaderMap,
        body: &Bytes,
        arrival: u64,
    ) -> Result<Job, ApiError> {
        let request = request::Request::parse(body)?;
        request.require(api)?;
        let overrides = Overrides::read(headers).map_err(|name| {
            ApiError::invalid(&format!("header {name} must be a number"), Some(name))
        })?;
        let wanted = request.model.as_deref();
        let engine = self
            .engines
            .iter()
            .find(|it| Some(it.profile.name.as_str()) == wanted)
            .or_else(|| self.engines.first())
            .ok_or_else(|| ApiError::new(404, "the backend has no models", Some("model")))?;
        let mut fault_random = Rng::with_seed(hash(self.seed, &arrival.to_le_bytes()));
        let id = hash(self.seed, body);
        Ok(Job {
            api,
            model: wanted.unwrap_or(&engine.profile.name).to_owned(),
            faults: InjectedFaults::draw(&engine.profile, &overrides, &mut fault_random),
            engine: Arc::clone(engine),
            overrides,
            random: Rng::with_seed(id),
            id,
            request,
        })
    }
}

/// Returns the client's request id, so that client, proxy and simulator use the same id. If the request has no id,
/// generates one from the order of arrival.
fn request_id(headers: &http::HeaderMap, arrival: u64) -> Name {
    let made = Name::new(&format!("sim-{arrival:08}")).expect("the generated id is not empty");
    let own = headers.get("x-request-id").and_then(|it| it.to_str().ok());
    own.and_then(Name::new).unwrap_or(made)
}

/// Computes an FNV-1a hash. Unlike the hash of the standard library, this hash is the same on every machine and in
/// every version.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(start, mix)
}

#[cfg(test)]
mod tests;
