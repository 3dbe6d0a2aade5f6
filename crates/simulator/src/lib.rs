//! A simulated LLM backend: the demo's, the tests' and the benches' other side.
//!
//! It speaks OpenAI's shapes over HTTP/1.1 and HTTP/2, generates text at the pace of its model [`Profile`]s, fails as
//! told, and keeps a [`Ledger`] of what it really sent. Everything an answer says is decided by the seed and the
//! request's bytes, so the same request gets the same bytes; only luck (stalls, failures, truncation) differs from one
//! arrival to the next.

pub mod answer;
mod embed;
pub mod engine;
mod job;
pub mod ledger;
pub mod pace;
pub mod profile;
mod request;
mod script;
mod text;
pub mod tokens;
mod voice;

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

use crate::answer::{Answer, Whole};
use crate::engine::Engine;
use crate::job::{Job, healthy, json, metrics, refuse};
use crate::pace::{Fate, Overrides};
use crate::request::{Api, Refused};
use tokengauge_types::label::Name;

pub use crate::ledger::{Ended, Entry, Ledger, Usage};
pub use crate::profile::Profile;

/// What a backend serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// A request for any other model is answered by the first of them, under the name it asked for.
    pub models: Vec<Profile>,
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { models: Profile::defaults(), seed: 1 }
    }
}

/// Connections open at once; further ones wait in the kernel's backlog. Twice what the largest bench opens.
const MOST_CONNECTIONS: usize = 10_000;

/// As large as any provider takes.
const LARGEST_REQUEST: usize = 64 << 20;

/// Out of file descriptors, `accept` fails at once and again: breathe, until a connection has closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The birthday of everything that is generated: a fixed second, so that equal requests get equal bytes.
const CREATED: u64 = 1_767_225_600;

/// Serves until `shutdown`, then drops every connection.
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
        let full = connections.len() >= MOST_CONNECTIONS;
        tokio::select! {
            () = &mut shutdown => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if !full => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(converse(socket, Arc::clone(&backend)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

async fn converse(socket: TcpStream, backend: Arc<Backend>) {
    // Without this a chunk would wait for the acknowledgement of the one before; where it fails, the socket is dead.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let backend = Arc::clone(&backend);
        async move { Ok::<_, Infallible>(backend.answer(request).await) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    // A connection that broke is in the ledger, answer by answer: there is nobody else to tell.
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

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if head.method == Method::GET && path.ends_with("/models") {
            let names = self.engines.iter().map(|it| it.profile.name.as_str());
            return json(StatusCode::OK, Whole::plain(voice::models(names, CREATED)));
        }
        if head.method == Method::GET && path == "/metrics" {
            return metrics(engine::page(&self.engines));
        }
        if head.method == Method::GET && path == "/health" {
            return healthy();
        }
        let api = match Api::of(path) {
            Some(api) if head.method == Method::POST => api,
            _ => {
                let refused =
                    Refused::new(404, &format!("no such endpoint: {} {path}", head.method), None);
                return json(StatusCode::NOT_FOUND, Whole::plain(refused.body));
            }
        };
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed) + 1;
        let request_id = request_id(&head.headers, arrival);
        let body = Limited::new(body, LARGEST_REQUEST).collect().await;
        let mut tally = self.ledger.open_tally(request_id.clone());
        let job = match body {
            Ok(body) => self.job(api, &head.headers, &body.to_bytes(), arrival),
            Err(_) => Err(Refused::new(413, "the request's body broke off or is too large", None)),
        };
        let mut response = match job {
            Ok(job) => {
                tally.entry.model = Name::new(&job.model);
                tally.entry.stream = job.request.streams() && api != Api::Embeddings;
                job.run(tally).await
            }
            Err(refused) => refuse(refused, tally),
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
    ) -> Result<Job, Refused> {
        let request = request::Request::parse(body)?;
        request.require(api)?;
        let overrides = Overrides::read(headers).map_err(|name| {
            Refused::invalid(&format!("the header {name} does not hold a number"), Some(name))
        })?;
        let wanted = request.model.as_deref();
        let engine = self
            .engines
            .iter()
            .find(|it| Some(it.profile.name.as_str()) == wanted)
            .or_else(|| self.engines.first())
            .ok_or_else(|| Refused::new(404, "this backend has no model", Some("model")))?;
        let mut luck = Rng::with_seed(hash(self.seed, &arrival.to_le_bytes()));
        let id = hash(self.seed, body);
        Ok(Job {
            api,
            model: wanted.unwrap_or(&engine.profile.name).to_owned(),
            fate: Fate::draw(&engine.profile, &overrides, &mut luck),
            engine: Arc::clone(engine),
            overrides,
            random: Rng::with_seed(id),
            id,
            request,
        })
    }
}

/// The caller's own id, so that ledger, caller and proxy speak of the same thing; else one by order of arrival.
fn request_id(headers: &http::HeaderMap, arrival: u64) -> Name {
    let made = Name::new(&format!("sim-{arrival:08}")).expect("the text is not empty");
    let own = headers.get("x-request-id").and_then(|it| it.to_str().ok());
    own.and_then(Name::new).unwrap_or(made)
}

/// FNV-1a: the same on every machine and in every version, which the standard library's hasher does not promise.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests;
