//! Opens connections to an upstream: DNS, TCP, proxy, TLS. Each new connection resolves the host name again, so that
//! address changes need no restart.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::Proxy;
use super::stream::{Transport, UpstreamStream};
use super::tls_stream::TlsStream;
use super::{Config, Protocol};
use tokengauge_types::clock;
use tokengauge_types::event::{ConnectTimings, UpstreamFailure};
use tokengauge_types::tcp::TcpConnection;

/// The reason why the configuration of an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("upstream {0}: {1:?} is not a host name")]
    Host(String, String),
    #[error("upstream {0}: cannot read certificates from {1}: {2}")]
    CaFile(String, String, String),
    #[error("upstream {0}: cannot set up TLS: {1}")]
    Tls(String, rustls::Error),
}

/// Why a connection cannot be opened.
#[derive(Debug)]
pub enum Error {
    Failed(UpstreamFailure, String),
    TimedOut,
}

/// An HTTP handshake that failed.
impl From<hyper::Error> for Error {
    fn from(error: hyper::Error) -> Self {
        Self::Failed(UpstreamFailure::Protocol, error.to_string())
    }
}

#[derive(Debug)]
pub struct Connector {
    host: String,
    port: u16,
    tls: Option<Tls>,
    pub(super) proxy: Option<Proxy>,
    limit: Option<Duration>,
}

#[derive(Debug)]
struct Tls {
    config: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
}

impl Connector {
    pub(super) fn new(config: &Config) -> Result<Self, SetupError> {
        let tls = if config.tls { Some(Tls::new(config)?) } else { None };
        Ok(Self {
            host: without_brackets(&config.host).to_owned(),
            port: config.port,
            tls,
            proxy: config.proxy.clone(),
            limit: config.timeouts.connect,
        })
    }

    pub(super) async fn connect(&self) -> Result<(UpstreamStream, ConnectTimings), Error> {
        let connecting = self.connect_without_limit();
        match self.limit {
            None => connecting.await,
            Some(limit) => {
                tokio::time::timeout(limit, connecting).await.unwrap_or(Err(Error::TimedOut))
            }
        }
    }

    async fn connect_without_limit(&self) -> Result<(UpstreamStream, ConnectTimings), Error> {
        let begun = clock::now();
        let (host, port) = match &self.proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (self.host.as_str(), self.port),
        };
        let addresses = lookup_host((host, port))
            .await
            .map_err(|error| Error::Failed(UpstreamFailure::Dns, error.to_string()))?;
        let resolved = clock::now();
        let mut stream = connect_first(addresses).await?;
        if let Some(proxy) = &self.proxy
            && self.tls.is_some()
        {
            proxy
                .tunnel(&mut stream, &self.host, self.port)
                .await
                .map_err(|error| Error::Failed(UpstreamFailure::Connect, error.to_string()))?;
        }
        let opened = clock::now();
        let ends = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
        let stream = match &self.tls {
            None => Transport::Left(stream),
            Some(tls) => tls.handshake(stream).await?,
        };
        let connected = ConnectTimings {
            reused: false,
            wait: None,
            dns: host.parse::<IpAddr>().is_err().then(|| resolved - begun),
            tcp: Some(opened - resolved),
            tls: self.tls.as_ref().map(|_| clock::now() - opened),
            connection: ends
                .ok()
                .map(|(local, remote)| Arc::new(TcpConnection::new(local, remote))),
        };
        Ok((UpstreamStream::new(stream), connected))
    }
}

async fn connect_first(
    addresses: impl Iterator<Item = std::net::SocketAddr>,
) -> Result<TcpStream, Error> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Disables Nagle's algorithm, because each chunk is a small write that must not be delayed. A failure
                // is harmless.
                drop(stream.set_nodelay(true));
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(Error::Failed(UpstreamFailure::Connect, failed.to_string()))
}

impl Tls {
    fn new(config: &Config) -> Result<Self, SetupError> {
        let name = config.name.to_string();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| SetupError::Tls(name.clone(), error))?
            .with_root_certificates(roots(config)?)
            .with_no_client_auth();
        tls.alpn_protocols = match config.protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        let host = without_brackets(&config.host).to_owned();
        let server =
            ServerName::try_from(host.clone()).map_err(|_| SetupError::Host(name, host))?;
        Ok(Self { config: Arc::new(tls), name: server })
    }

    async fn handshake(&self, stream: TcpStream) -> Result<Transport, Error> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        match connector.connect(self.name.clone(), stream).await {
            Ok(stream) => Ok(Transport::Right(Box::new(TlsStream::new(stream)))),
            Err(error) => Err(Error::Failed(UpstreamFailure::Tls, error.to_string())),
        }
    }
}

/// Returns the trusted root certificates. They are those of the system or of `SSL_CERT_FILE`, or Mozilla's if there are
/// none. The configured certificates are added.
fn roots(config: &Config) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let Some(file) = &config.ca_file else {
        return Ok(roots);
    };
    let unreadable =
        |why: String| SetupError::CaFile(config.name.to_string(), file.display().to_string(), why);
    let mut added = 0;
    for certificate in
        CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
        added += 1;
    }
    if added == 0 {
        return Err(unreadable("the file contains no certificate".to_owned()));
    }
    Ok(roots)
}

/// Returns the value of the `Host` header: the host name, and the port unless it is the default of the scheme.
pub(super) fn host_header(config: &Config) -> Result<HeaderValue, SetupError> {
    let default_port = if config.tls { 443 } else { 80 };
    let host = &config.host;
    let text = match (config.port == default_port, host.contains(':') && !host.starts_with('[')) {
        (true, false) => host.clone(),
        (true, true) => format!("[{host}]"),
        (false, false) => format!("{host}:{}", config.port),
        (false, true) => format!("[{host}]:{}", config.port),
    };
    let refused = || SetupError::Host(config.name.to_string(), host.clone());
    if host.is_empty() || host.contains(['/', '@', ' ', '?', '#']) {
        return Err(refused());
    }
    HeaderValue::try_from(text).map_err(|_| refused())
}

/// Removes the brackets of an IPv6 address.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}
