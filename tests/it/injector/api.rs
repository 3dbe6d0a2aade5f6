//! A minimal Kubernetes API server over TLS for the injector: it has one Secret, one webhook configuration and events.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::tls::{Authority, file, text};
use crate::support::within;

const TOKEN: &str = "the.service.accounts.token";
const SECRETS: &str = "/api/v1/namespaces/tokengauge/secrets";
const SECRET: &str = "/api/v1/namespaces/tokengauge/secrets/tokengauge-injector-certificate";
const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tokengauge-injector";

/// The objects of the server.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub secret: Option<Value>,
    pub webhooks: Value,
    pub events: Vec<Value>,
    /// The requests received so far as `METHOD path status`, in order of arrival.
    pub log: Vec<String>,
    version: u64,
    /// Number of reads of the Secret that wait for each other at the start, so that both replicas find no Secret.
    together: usize,
}

pub struct Api {
    pub address: SocketAddr,
    pub state: Arc<watch::Sender<State>>,
    files: tempfile::TempDir,
    pub namespace_of_events: Arc<Mutex<Vec<String>>>,
}

impl Api {
    /// Starts a server that responds to reads of the Secret only after `together` replicas have sent one.
    pub async fn start(together: usize) -> Self {
        let authority = Authority::new("the cluster");
        let acceptor = acceptor(&authority);
        let files = tempfile::tempdir().unwrap();
        file(&files, "token", &format!("{TOKEN}\n"));
        file(&files, "ca.crt", &authority.pem);
        let service =
            json!({"name": "tokengauge-injector", "namespace": "tokengauge", "path": "/inject"});
        let webhooks = json!({
            "metadata": {"name": "tokengauge-injector"},
            "webhooks": [
                {"name": "another.example.com", "clientConfig": {"url": "https://a"}},
                {"name": "pods.tokengauge.dev", "clientConfig": {"service": service}},
            ],
        });
        let state = Arc::new(watch::Sender::new(State { webhooks, together, ..State::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        let namespaces = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&namespaces);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, told) = (Arc::clone(&shared), Arc::clone(&told));
                tokio::spawn(converse(acceptor.clone(), stream, state, told));
            }
        });
        Self { address, state, files, namespace_of_events: namespaces }
    }

    pub fn arguments(&self) -> Vec<String> {
        let path = |name: &str| text(&self.files.path().join(name));
        let url = format!("https://{}", self.address);
        let words =
            ["--api-server", &url, "--token-file", &path("token"), "--ca-file", &path("ca.crt")];
        words.map(str::to_owned).to_vec()
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) -> State {
        let mut state = self.state.subscribe();
        let found = within(what, state.wait_for(|state| holds(state))).await;
        found.unwrap().clone()
    }
}

impl State {
    pub fn bundle(&self) -> Option<String> {
        let bundle = self.webhooks.pointer("/webhooks/1/clientConfig/caBundle")?.as_str()?;
        String::from_utf8(STANDARD.decode(bundle).unwrap()).ok()
    }

    fn act(&mut self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        let status = |code: StatusCode, reason: &str| {
            (
                code,
                json!({"kind": "Status", "reason": reason, "message": format!("{path} {reason}")}),
            )
        };
        self.version += 1;
        let version = self.version.to_string();
        let stamped = |mut object: Value| {
            object["metadata"]["resourceVersion"] = version.clone().into();
            object
        };
        match (method.as_str(), path) {
            ("GET", SECRET) => match &self.secret {
                Some(secret) => (StatusCode::OK, secret.clone()),
                None => status(StatusCode::NOT_FOUND, "NotFound"),
            },
            ("POST", SECRETS) if self.secret.is_some() => {
                status(StatusCode::CONFLICT, "AlreadyExists")
            }
            ("POST", SECRETS) => {
                self.secret = Some(stamped(body.clone()));
                (StatusCode::CREATED, body)
            }
            ("PUT", SECRET) => {
                let theirs = &body["metadata"]["resourceVersion"];
                let ours = self.secret.as_ref().map(|it| &it["metadata"]["resourceVersion"]);
                if ours != Some(theirs) {
                    return status(StatusCode::CONFLICT, "Conflict");
                }
                self.secret = Some(stamped(body.clone()));
                (StatusCode::OK, body)
            }
            ("GET", WEBHOOKS) => (StatusCode::OK, self.webhooks.clone()),
            ("PATCH", WEBHOOKS) => {
                let patch: json_patch::Patch = serde_json::from_value(body).unwrap();
                json_patch::patch(&mut self.webhooks, &patch).unwrap();
                (StatusCode::OK, self.webhooks.clone())
            }
            ("POST", path) if path.ends_with("/events") => {
                self.events.push(body.clone());
                (StatusCode::CREATED, body)
            }
            _ => status(StatusCode::FORBIDDEN, "Forbidden"),
        }
    }
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let (certificate, key) = authority.sign("127.0.0.1");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn converse(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    state: Arc<watch::Sender<State>>,
    told: Arc<Mutex<Vec<String>>>,
) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let answering =
        service_fn(move |request| answer(Arc::clone(&state), Arc::clone(&told), request));
    let server = hyper::server::conn::http1::Builder::new();
    drop(server.serve_connection(TokioIo::new(stream), answering).await);
}

async fn answer(
    state: Arc<watch::Sender<State>>,
    told: Arc<Mutex<Vec<String>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let path = head.uri.path().to_owned();
    assert_eq!(head.headers["authorization"], format!("Bearer {TOKEN}"));
    if let Some(namespace) = path.strip_suffix("/events") {
        told.lock().unwrap().push(namespace.to_owned());
    }
    let (mut status, mut answer) = (StatusCode::OK, Value::Null);
    state.send_modify(|state| {
        (status, answer) = state.act(&head.method, &path, body);
        let line = format!("{} {path} {}", head.method, status.as_u16());
        state.log.push(line);
    });
    if head.method == Method::GET && path == SECRET {
        let asked = |state: &State| {
            let asks = state.log.iter().filter(|line| line.starts_with(&format!("GET {SECRET}")));
            asks.count() >= state.together
        };
        drop(state.subscribe().wait_for(asked).await);
    }
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    *response.status_mut() = status;
    Ok(response)
}
