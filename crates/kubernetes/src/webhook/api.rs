//! A client of the Kubernetes API for the few requests that the injector makes: docs/adr/0009-kubernetes-client.md says
//! why it is not the crate `kube`.
//!
//! Requests are rare (some a minute), so each reads the token and the CA anew: kubelet rotates both files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

/// Where kubelet puts what a pod needs to speak with the API server.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A whole request with its answer. Nothing waits for one but the injector's own background tasks.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Etcd holds no object above 1.5 MiB; in JSON, with its managed fields, twice that at the most.
const LARGEST_ANSWER: usize = 4 << 20;

/// Where the API server is, and what it is asked with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiServer {
    /// `https://HOST:PORT`, without a path.
    pub url: String,
    pub token: PathBuf,
    pub authority: PathBuf,
}

impl ApiServer {
    /// As kubelet tells every pod; `None` outside a cluster.
    pub fn in_cluster(environment: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let host = environment("KUBERNETES_SERVICE_HOST").filter(|host| !host.is_empty())?;
        let port = environment("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Some(Self {
            url: format!("https://{host}:{port}"),
            token: Path::new(SERVICE_ACCOUNT).join("token"),
            authority: Path::new(SERVICE_ACCOUNT).join("ca.crt"),
        })
    }
}

/// RenewalReason a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {0}: {1}")]
    File(PathBuf, std::io::Error),
    #[error("{0} holds no usable CA certificate: {1}")]
    Authority(PathBuf, String),
    #[error("{method} {path}: {problem}")]
    Request { method: Method, path: String, problem: String },
    #[error("{method} {path}: no answer within {TIMEOUT:?}")]
    TimedOut { method: Method, path: String },
    /// The server's own words: `reason` and `message` of its Status.
    #[error("{method} {path}: {status}: {words}")]
    Refused { method: Method, path: String, status: StatusCode, words: String },
}

impl Error {
    /// Somebody else was there first, or has changed it since it was read.
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(StatusCode::CONFLICT)
    }

    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::File(..) | Self::Authority(..) | Self::Request { .. } | Self::TimedOut { .. } => {
                None
            }
        }
    }
}

type Connection = Hyper<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Asks the API server.
pub struct ApiClient {
    server: ApiServer,
    /// The connections, and the CA's file that they were made with.
    connection: Mutex<Option<(Vec<u8>, Connection)>>,
}

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiClient").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ApiClient {
    pub const fn new(server: ApiServer) -> Self {
        Self { server, connection: Mutex::new(None) }
    }

    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Value, Error> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        self.ask(Method::GET, &path, None).await
    }

    pub async fn create_secret(&self, namespace: &str, secret: &Value) -> Result<Value, Error> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        self.ask(Method::POST, &path, Some(secret)).await
    }

    /// Replaces a Secret; a conflict where it is no longer the `resourceVersion` that it names.
    pub async fn update_secret(
        &self,
        namespace: &str,
        name: &str,
        secret: &Value,
    ) -> Result<Value, Error> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        self.ask(Method::PUT, &path, Some(secret)).await
    }

    pub async fn webhooks(&self, name: &str) -> Result<Value, Error> {
        self.ask(Method::GET, &webhooks(name), None).await
    }

    /// Changes a MutatingWebhookConfiguration by a JSON Patch.
    pub async fn patch_webhooks(&self, name: &str, patch: &Value) -> Result<Value, Error> {
        self.ask(Method::PATCH, &webhooks(name), Some(patch)).await
    }

    pub async fn create_event(&self, namespace: &str, event: &Value) -> Result<(), Error> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        self.ask(Method::POST, &path, Some(event)).await.map(drop)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        let asking = self.exchange(&method, path, body);
        let answer = tokio::time::timeout(TIMEOUT, asking).await;
        let (status, body) = answer
            .map_err(|_| Error::TimedOut { method: method.clone(), path: path.to_owned() })??;
        let said: Result<Value, _> = serde_json::from_slice(&body);
        if status.is_success() {
            return said.map_err(|error| failed(&method, path, &error));
        }
        let said = said.unwrap_or_default();
        let word = |key| said.get(key).and_then(Value::as_str).unwrap_or_default();
        Err(Error::Refused {
            method,
            path: path.to_owned(),
            status,
            words: format!("{} {}", word("reason"), word("message")),
        })
    }

    async fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let kind = if *method == Method::PATCH {
            "application/json-patch+json"
        } else {
            "application/json"
        };
        let token = read(&self.server.token)?;
        let token = String::from_utf8_lossy(&token);
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.url))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, kind)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::AUTHORIZATION, format!("Bearer {}", token.trim()))
            .body(Full::new(Bytes::from(text)))
            .map_err(|error| failed(method, path, &error))?;
        let answer = self.connection()?.request(request).await;
        let answer = answer.map_err(|error| failed(method, path, &Causes(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER)
            .collect()
            .await
            .map_err(|error| failed(method, path, &error))?;
        Ok((status, body.to_bytes()))
    }

    /// The connections that trust the CA as its file says now.
    fn connection(&self) -> Result<Connection, Error> {
        let path = &self.server.authority;
        let pem = read(path)?;
        let mut held = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, connection)) = &*held
            && *known == pem
        {
            return Ok(connection.clone());
        }
        let connection =
            connect(&pem).map_err(|problem| Error::Authority(path.clone(), problem))?;
        *held = Some((pem, connection.clone()));
        Ok(connection)
    }
}

const USER_AGENT: &str = concat!("tokengauge-injector/", env!("CARGO_PKG_VERSION"));

fn webhooks(name: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}")
}

fn connect(authority: &[u8]) -> Result<Connection, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("no certificate in it".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // No plain HTTP: the token would be there for all to read.
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
    Ok(Hyper::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(connector))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::File(path.to_owned(), error))
}

fn failed(method: &Method, path: &str, problem: &dyn std::fmt::Display) -> Error {
    Error::Request { method: method.clone(), path: path.to_owned(), problem: problem.to_string() }
}

/// An error with what led to it: hyper's own words are "client error (Connect)".
struct Causes<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A JSON Patch that puts `bundle` (base64) into each of a configuration's webhooks that lead to the service and have
/// another one; `None` where all have it. Fails where no webhook leads there.
///
/// Each operation is behind a test of the webhook's name: the list may have changed since it was read.
pub fn bundle_patch(
    configuration: &Value,
    namespace: &str,
    service: &str,
    bundle: &str,
) -> Result<Option<Value>, NoWebhook> {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array);
    let leads_here = |webhook: &Value| {
        let at = |key: &str| webhook.pointer(&format!("/clientConfig/service/{key}"));
        at("name").and_then(Value::as_str) == Some(service)
            && at("namespace").and_then(Value::as_str) == Some(namespace)
    };
    let ours = webhooks.into_iter().flatten().enumerate();
    let mut ours = ours.filter(|(_, webhook)| leads_here(webhook)).peekable();
    if ours.peek().is_none() {
        return Err(NoWebhook);
    }
    let mut patch = Vec::new();
    for (at, webhook) in ours {
        let now = webhook.pointer("/clientConfig/caBundle");
        if now.and_then(Value::as_str) != Some(bundle) {
            let path = format!("/webhooks/{at}");
            patch.push(
                json!({"op": "test", "path": format!("{path}/name"), "value": webhook.get("name")}),
            );
            patch.push(json!({"op": "add", "path": format!("{path}/clientConfig/caBundle"), "value": bundle}));
        }
    }
    Ok((!patch.is_empty()).then_some(Value::Array(patch)))
}

/// The configuration has no webhook that leads to this service.
#[derive(Debug, Eq, PartialEq)]
pub struct NoWebhook;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_put_where_the_service_is_ours_and_nowhere_else() {
        let webhook = |name: &str, service: &str, bundle: Option<&str>| {
            let mut webhook = json!({"name": name, "clientConfig": {"service": {"name": service, "namespace": "tg"}}});
            if let Some(bundle) = bundle {
                webhook["clientConfig"]["caBundle"] = bundle.into();
            }
            webhook
        };
        let configuration = json!({"webhooks": [
            webhook("a", "other", None),
            webhook("b", "injector", None),
            webhook("c", "injector", Some("Q0E=")),
            webhook("d", "injector", Some("b2xk")),
        ]});
        let patch = bundle_patch(&configuration, "tg", "injector", "Q0E=").unwrap();
        assert_eq!(
            patch,
            Some(json!([
                {"op": "test", "path": "/webhooks/1/name", "value": "b"},
                {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "Q0E="},
                {"op": "test", "path": "/webhooks/3/name", "value": "d"},
                {"op": "add", "path": "/webhooks/3/clientConfig/caBundle", "value": "Q0E="},
            ]))
        );
        let right = json!({"webhooks": [webhook("c", "injector", Some("Q0E="))]});
        assert_eq!(bundle_patch(&right, "tg", "injector", "Q0E="), Ok(None));
        for elsewhere in [json!({}), json!({"webhooks": []}), json!({"webhooks": 7}), right] {
            let patch = bundle_patch(&elsewhere, "another", "injector", "Q0E=");
            assert_eq!(patch, Err(NoWebhook), "{elsewhere}");
        }
    }

    #[test]
    fn a_pod_is_told_where_the_server_is() {
        let with = |host: &'static str| {
            ApiServer::in_cluster(move |name| {
                (name == "KUBERNETES_SERVICE_HOST").then(|| host.to_owned())
            })
        };
        assert_eq!(with("10.0.0.1").unwrap().url, "https://10.0.0.1:443");
        assert_eq!(with("fd00::1").unwrap().url, "https://[fd00::1]:443");
        assert_eq!(with(""), None);
    }

    #[tokio::test]
    async fn the_token_is_never_sent_in_the_clear() {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let (token, authority) = (folder.path().join("token"), folder.path().join("ca"));
        std::fs::write(&token, "t").unwrap();
        std::fs::write(&authority, made.cert.pem()).unwrap();
        let url = "http://127.0.0.1:9".to_owned();
        let api = ApiClient::new(ApiServer { url, token, authority });
        let error = api.secret("a", "b").await.unwrap_err();
        assert!(error.to_string().contains("scheme"), "{error}");
    }
}
