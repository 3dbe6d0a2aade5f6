//! A new connection to an upstream: name, address by address, proxy, TLS. Names are resolved anew for each one, so a
//! moved service is found without a restart.

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
use super::{Config, Protocol};
use tokengauge_types::clock;
use tokengauge_types::event::{ConnectTimings, UpstreamFailure};
use tokengauge_types::tcp::TcpConnection;

/// Why an upstream cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("upstream {0}: {1:?} is not a host name")]
    Host(String, String),
    #[error("upstream {0}: cannot read certificates from {1}: {2}")]
    CaFile(String, String, String),
    #[error("upstream {0}: TLS cannot be set up: {1}")]
    Tls(String, rustls::Error),
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Error {
    Failed(UpstreamFailure, String),
    TimedOut,
}

#[derive(Debug)]
pub(super) struct Connector {
    host: String,
    port: u16,
    tls: Option<Tls>,
    pub(super) via: Option<Proxy>,
    limit: Option<Duration>,
}

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Connector {
    pub(super) fn new(config: &Config) -> Result<Self, SetupError> {
        let via = config.proxy.clone();
        let tls = if config.tls { Some(Tls::new(config)?) } else { None };
        Ok(Self {
            host: bare(&config.host).to_owned(),
            port: config.port,
            tls,
            via,
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
        let (host, port) = match &self.via {
            Some(via) => (via.host.as_str(), via.port),
            None => (self.host.as_str(), self.port),
        };
        let addresses = lookup_host((host, port))
            .await
            .map_err(|error| Error::Failed(UpstreamFailure::Dns, error.to_string()))?;
        let resolved = clock::now();
        let mut stream = first_that_answers(addresses).await?;
        if let Some(via) = &self.via
            && self.tls.is_some()
        {
            via.tunnel(&mut stream, &self.host, self.port)
                .await
                .map_err(|error| Error::Failed(UpstreamFailure::Connect, error.to_string()))?;
        }
        let opened = clock::now();
        let ends = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
        let stream = match &self.tls {
            None => Transport::Plain(stream),
            Some(tls) => tls.over(stream).await?,
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
        Ok((UpstreamStream::over(stream), connected))
    }
}

async fn first_that_answers(
    addresses: impl Iterator<Item = std::net::SocketAddr>,
) -> Result<TcpStream, Error> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Each chunk is a small write that must leave at once. Failing is no reason not to go on.
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
        let host = bare(&config.host).to_owned();
        let server =
            ServerName::try_from(host.clone()).map_err(|_| SetupError::Host(name, host))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(tls)), name: server })
    }

    async fn over(&self, stream: TcpStream) -> Result<Transport, Error> {
        match self.connector.connect(self.name.clone(), stream).await {
            Ok(stream) => Ok(Transport::Tls(Box::new(stream))),
            Err(error) => Err(Error::Failed(UpstreamFailure::Tls, error.to_string())),
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connector: _, name } = self;
        f.debug_tuple("Tls").field(name).finish()
    }
}

/// The system's roots (or those of `SSL_CERT_FILE`); in an image that has none, Mozilla's. And the configured ones.
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
        return Err(unreadable("there is none in it".to_owned()));
    }
    Ok(roots)
}

/// `host`, and the port where it is not the scheme's own.
pub(super) fn host_header(config: &Config) -> Result<HeaderValue, SetupError> {
    let usual = if config.tls { 443 } else { 80 };
    let host = &config.host;
    let text = match (config.port == usual, host.contains(':') && !host.starts_with('[')) {
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

/// An IPv6 address without its brackets.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}
