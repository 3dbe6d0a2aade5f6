//! Creates the certificates of the test, and a client that records the server's certificate.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::within;

pub const SERVICE: &str = "tokengauge-injector.tokengauge.svc";

/// A certificate authority for the test's certificates.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        Self { pem: made.pem(), issuer: Issuer::new(params, key) }
    }

    /// Returns the certificate and key for `name`, as PEM.
    pub fn sign(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        (made.pem(), key.serialize_pem())
    }
}

/// A Secret as the kubelet mounts it: a link to a link to the files. An update replaces one of the links.
pub struct Mounted {
    folder: tempfile::TempDir,
    version: std::cell::Cell<u32>,
}

impl Mounted {
    pub fn new(pair: &(String, String)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tls.crt", "tls.key"] {
            std::os::unix::fs::symlink(format!("..data/{name}"), folder.path().join(name)).unwrap();
        }
        let mounted = Self { folder, version: 0.into() };
        mounted.swap(pair);
        mounted
    }

    pub fn swap(&self, (certificate, key): &(String, String)) {
        self.version.set(self.version.get() + 1);
        let version = format!("..version_{}", self.version.get());
        let data = self.folder.path().join(&version);
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("tls.crt"), certificate).unwrap();
        std::fs::write(data.join("tls.key"), key).unwrap();
        let new = self.folder.path().join("..data_tmp");
        std::os::unix::fs::symlink(version, &new).unwrap();
        std::fs::rename(new, self.folder.path().join("..data")).unwrap();
    }

    pub fn arguments(&self) -> Vec<String> {
        let path = |name: &str| text(&self.folder.path().join(name));
        let words = ["--cert", &path("tls.crt"), "--key", &path("tls.key")];
        words.map(str::to_owned).to_vec()
    }
}

pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

pub fn file(folder: &tempfile::TempDir, name: &str, content: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// A client that trusts these authorities (PEM) and opens a new connection for each request.
#[derive(Clone)]
pub struct Client {
    connector: TlsConnector,
    http2: bool,
}

pub struct Answered {
    pub status: StatusCode,
    pub body: Bytes,
    /// The first certificate that the server sent (DER).
    pub shown: Vec<u8>,
}

impl Client {
    pub fn trusting(authorities: &str, http2: bool) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            roots.add(authority.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let protocol: &[u8] = if http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        Self { connector: TlsConnector::from(Arc::new(config)), http2 }
    }

    pub async fn connect(
        &self,
        address: SocketAddr,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        // As the API server does. Without it, Nagle's algorithm delays each 64 KiB of a large body by 40 ms.
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVICE).unwrap();
        within("handshake", self.connector.connect(name, stream)).await
    }

    /// Posts a review as the API server does.
    pub async fn post(&self, address: SocketAddr, review: impl Into<Bytes>) -> Answered {
        let request = Request::post(format!("https://{SERVICE}/inject?timeout=5s"))
            .header("host", SERVICE)
            .header("content-type", "application/json")
            .body(Full::new(review.into()))
            .unwrap();
        self.send(address, request).await.unwrap()
    }

    pub async fn send(
        &self,
        address: SocketAddr,
        request: Request<Full<Bytes>>,
    ) -> Result<Answered, String> {
        let stream = self.connect(address).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        let io = TokioIo::new(stream);
        let exchange = async {
            let answer = if self.http2 {
                let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
                let (mut sender, connection) = handshake.await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            } else {
                let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            };
            let status = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>((status, body))
        };
        let exchanged = within("exchange", exchange).await;
        let (status, body) = exchanged.map_err(|error| format!("{error:?}"))?;
        Ok(Answered { status, body, shown })
    }
}
