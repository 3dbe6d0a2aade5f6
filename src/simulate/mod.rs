//! A simulated LLM backend: the demo's, the tests' and the benches' other side.
//!
//! It speaks OpenAI's shapes over HTTP/1.1 and HTTP/2, generates text at the pace of its model [`Profile`]s, fails as
//! told, and keeps a [`Ledger`] of what it really sent. Everything an answer says is decided by the seed and the
//! request's bytes, so the same request gets the same bytes; only luck (stalls, failures, truncation) differs from one
//! arrival to the next.

pub mod answer;
mod embed;
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
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::clock;
use crate::label::Name;
use crate::simulate::answer::{Answer, Faults, Stream, Whole};
use crate::simulate::pace::{Engine, Fate, Overrides, Pace, Work};
use crate::simulate::request::{Api, Refused};
use crate::simulate::script::{Script, Wish};
use crate::simulate::voice::Voice;

pub use crate::simulate::ledger::{Ended, Entry, Ledger, Usage};
pub use crate::simulate::profile::Profile;

/// What a backend serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// A request for any other model is answered by the first of them, under the name it asked for.
    pub models: Vec<Profile>,
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            models: Profile::defaults(),
            seed: 1,
        }
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

/// One request that is going to be answered.
struct Job {
    api: Api,
    request: request::Request,
    model: String,
    engine: Arc<Engine>,
    overrides: Overrides,
    fate: Fate,
    random: Rng,
    id: u64,
}

impl Backend {
    fn new(config: Config, ledger: Arc<Ledger>) -> Self {
        let mut models = config.models;
        if models.is_empty() {
            models = Profile::defaults();
        }
        Self {
            engines: models
                .into_iter()
                .map(|it| Arc::new(Engine::new(it)))
                .collect(),
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
        let api = match Api::of(path) {
            Some(api) if head.method == Method::POST => api,
            _ => {
                let refused = Refused::new(
                    404,
                    &format!("no such endpoint: {} {path}", head.method),
                    None,
                );
                return json(StatusCode::NOT_FOUND, Whole::plain(refused.body));
            }
        };
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed) + 1;
        let request_id = request_id(&head.headers, arrival);
        let body = Limited::new(body, LARGEST_REQUEST).collect().await;
        let mut tally = self.ledger.open_tally(request_id.clone());
        let job = match body {
            Ok(body) => self.job(api, &head.headers, &body.to_bytes(), arrival),
            Err(_) => Err(Refused::new(
                413,
                "the request's body broke off or is too large",
                None,
            )),
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
            Refused::invalid(
                &format!("the header {name} does not hold a number"),
                Some(name),
            )
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

impl Job {
    async fn run(mut self, mut tally: ledger::Tally) -> Response<Answer> {
        if let Some(status) = self.fate.status {
            return refuse(
                Refused::new(status, "the simulation was told to fail", None),
                tally,
            );
        }
        let wish = Wish {
            api: self.api,
            tokens: self.overrides.tokens,
            tokens_per_chunk: self.overrides.chunk_tokens,
        };
        let mut script = if self.api == Api::Embeddings {
            Script::prompt_only(&self.request)
        } else {
            Script::write(&self.engine.profile, &self.request, wish, &mut self.random)
        };
        let work = Work {
            prompt_tokens: script.prompt_tokens,
            hidden: script.hidden,
        };
        let control = (&self.overrides, self.fate);
        let mut pace = Pace::start(
            self.engine.enter(),
            control,
            work,
            self.random.fork(),
            clock::now(),
        );
        let voice = self.voice();
        if self.request.streams() && self.api != Api::Embeddings {
            tally.entry.head = Some(clock::now());
            let faults = Faults {
                cut: self.fate.cut,
                ping: self.engine.profile.ping,
            };
            let stream = Stream::new(script, voice, pace, faults, tally);
            return respond(
                StatusCode::OK,
                "text/event-stream; charset=utf-8",
                Answer::Stream(Box::new(stream)),
            );
        }
        // From here the client may leave while the answer is being made: then hyper drops all of this, and the tally
        // says so.
        let due = pace.next(script.shown_steps());
        tokio::time::sleep(due.since(clock::now())).await;
        drop(pace);
        script.send_all();
        let body = self.whole(&script, &voice, &mut tally);
        tally.entry.head = Some(clock::now());
        let whole = Whole::generated(body, script.sent_tokens(), tally);
        json(
            StatusCode::OK,
            if self.fate.cut.is_some() {
                whole.cut()
            } else {
                whole
            },
        )
    }

    fn whole(&self, script: &Script, voice: &Voice, tally: &mut ledger::Tally) -> Bytes {
        let usage = script.usage();
        if self.api == Api::Embeddings {
            tally.entry.reported = Some(usage);
            return embed::answer(&self.request, &self.model, usage.input);
        }
        let told = self.engine.profile.usage != profile::UsagePolicy::Never;
        tally.entry.reported = told.then_some(usage);
        voice.whole(script, tally.entry.reported)
    }

    fn voice(&self) -> Voice {
        let prefix = match self.api {
            Api::Chat | Api::Embeddings => "chatcmpl",
            Api::Completion => "cmpl",
        };
        Voice {
            api: self.api,
            id: format!("{prefix}-{:016x}", self.id),
            created: CREATED,
            model: self.model.clone(),
            null_usage: self.request.wants_usage()
                && self.engine.profile.usage != profile::UsagePolicy::Never,
        }
    }
}

/// The caller's own id, so that ledger, caller and proxy speak of the same thing; else one by order of arrival.
fn request_id(headers: &http::HeaderMap, arrival: u64) -> Name {
    let made = Name::new(&format!("sim-{arrival:08}")).expect("the text is not empty");
    let own = headers.get("x-request-id").and_then(|it| it.to_str().ok());
    own.and_then(Name::new).unwrap_or(made)
}

fn refuse(refused: Refused, mut tally: ledger::Tally) -> Response<Answer> {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    tally.entry.head = Some(clock::now());
    let mut response = json(status, Whole::failed(refused.body, status.as_u16(), tally));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn json(status: StatusCode, whole: Whole) -> Response<Answer> {
    respond(status, "application/json", Answer::Whole(Box::new(whole)))
}

fn respond(status: StatusCode, content_type: &'static str, answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// FNV-1a: the same on every machine and in every version, which the standard library's hasher does not promise.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
