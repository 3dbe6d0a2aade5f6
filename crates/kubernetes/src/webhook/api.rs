//! Client for the six requests that the webhook sends to the Kubernetes API.
//!
//! `docs/adr/0009-kubernetes-client.md` explains why the webhook does not use the crate `kube`. Requests are rare (a
//! few per minute). Each request reads the token and the CA certificate again, because the kubelet replaces both files
//! regularly.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use tokengauge_types::error::WithCauses;

/// Directory in which the kubelet mounts the pod's credentials for the Kubernetes API.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Time limit for a request and its response. Only background tasks wait for these requests, so no pod creation waits
/// for them.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response body. etcd stores objects of at most 1.5 MiB. As JSON with managed fields, an
/// object can be twice as large.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

const USER_AGENT: &str = concat!("tokengauge-injector/", env!("CARGO_PKG_VERSION"));

/// Address and credentials of the API server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiServer {
    /// `https://HOST:PORT`, without a path.
    pub url: String,
    /// File with the bearer token.
    pub token: PathBuf,
    /// File with the CA certificates (PEM).
    pub ca: PathBuf,
}

impl ApiServer {
    /// Returns the API server of the cluster in which this process runs. Returns `None` outside a cluster.
    pub fn in_cluster(environment: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let host = environment("KUBERNETES_SERVICE_HOST").filter(|host| !host.is_empty())?;
        let port = environment("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Some(Self {
            url: format!("https://{host}:{port}"),
            token: Path::new(SERVICE_ACCOUNT).join("token"),
            ca: Path::new(SERVICE_ACCOUNT).join("ca.crt"),
        })
    }
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    message: String,
    /// HTTP status of the response. `None` if there was no response.
    pub status: Option<StatusCode>,
}

impl From<String> for ApiError {
    fn from(message: String) -> Self {
        Self { message, status: None }
    }
}

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

#[derive(Debug)]
pub struct ApiClient {
    server: ApiServer,
    /// Connection pool, with the content of the CA file from which it was created.
    client: Mutex<Option<(Vec<u8>, HttpsClient)>>,
}

impl ApiClient {
    pub const fn new(server: ApiServer) -> Self {
        Self { server, client: Mutex::new(None) }
    }

    /// Sends a request. The body of a `PATCH` is a JSON Patch.
    ///
    /// # Errors
    /// Fails with status 409 if another client has changed the object since this client read it.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let request = format!("{method} {path}");
        let failed = |problem: String| ApiError::from(format!("{request}: {problem}"));
        let token = String::from_utf8_lossy(&read(&self.server.token)?).into_owned();
        let media_type = if method == Method::PATCH {
            "application/json-patch+json"
        } else {
            "application/json"
        };
        let body = body.map(Value::to_string).unwrap_or_default();
        let http_request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.url))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, media_type)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::AUTHORIZATION, format!("Bearer {}", token.trim()))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| failed(WithCauses(&error).to_string()))?;
        let client = self.client()?;
        let exchange = async {
            let response = client.request(http_request).await;
            let response = response.map_err(|error| failed(WithCauses(&error).to_string()))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| failed(WithCauses(&*error).to_string()))?;
            Ok::<_, ApiError>((status, body.to_bytes()))
        };
        let (status, body) = tokio::time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .map_err(|_| failed(format!("no response within {REQUEST_TIMEOUT:?}")))??;
        let body: Result<Value, _> = serde_json::from_slice(&body);
        if status.is_success() {
            return body.map_err(|error| failed(error.to_string()));
        }
        // The body of an error response is a Kubernetes Status object.
        let body = body.unwrap_or_default();
        let field = |key| body.get(key).and_then(Value::as_str).unwrap_or_default();
        let message = format!("{request}: {status}: {} {}", field("reason"), field("message"));
        Err(ApiError { message, status: Some(status) })
    }

    /// Returns the connection pool. Creates a new pool if the CA file has changed.
    fn client(&self) -> Result<HttpsClient, ApiError> {
        let path = &self.server.ca;
        let pem = read(path)?;
        let mut cached = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = &*cached
            && *known == pem
        {
            return Ok(client.clone());
        }
        let client = https_client(&pem).map_err(|error| {
            format!("no usable CA certificate in {}: {}", path.display(), WithCauses(&*error))
        })?;
        *cached = Some((pem, client.clone()));
        Ok(client)
    }
}

/// Creates an HTTPS client that trusts only the given CA certificates. The client never uses plain HTTP, because plain
/// HTTP would expose the token.
fn https_client(ca: &[u8]) -> Result<HttpsClient, Box<dyn StdError + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("the file contains no certificate".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(connector))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_api_server_in_a_pod() {
        let with_host = |host: &'static str| {
            ApiServer::in_cluster(move |name| {
                (name == "KUBERNETES_SERVICE_HOST").then(|| host.to_owned())
            })
        };
        assert_eq!(with_host("10.0.0.1").unwrap().url, "https://10.0.0.1:443");
        assert_eq!(with_host("fd00::1").unwrap().url, "https://[fd00::1]:443");
        assert_eq!(with_host(""), None);
    }

    #[tokio::test]
    async fn never_sends_the_token_over_plain_http() {
        let folder = tempfile::tempdir().unwrap();
        let certificate = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let (token, ca) = (folder.path().join("token"), folder.path().join("ca"));
        std::fs::write(&token, "t").unwrap();
        std::fs::write(&ca, certificate.cert.pem()).unwrap();
        let url = "http://127.0.0.1:9".to_owned();
        let api = ApiClient::new(ApiServer { url, token, ca });
        let error =
            api.send(Method::GET, "/api/v1/namespaces/a/secrets/b", None).await.unwrap_err();
        assert!(error.to_string().contains("scheme"), "{error}");
    }
}
