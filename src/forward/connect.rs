//! Opens connections to an upstream: DNS, TCP, proxy and TLS. Each new connection resolves the host name again, so that
//! address changes need no restart.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use rustls::{CertificateError, InvalidMessage, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::open_sockets::OpenSocket;
use super::resolver::Resolver;
use super::socket::UpstreamSocket;
use super::stream::{Transport, UpstreamStream};
use super::{Protocol, UpstreamConfig};
use tokengauge_listen::window;
use tokengauge_types::clock;
use tokengauge_types::event::{ConnectTimings, UpstreamFailure};
use tokengauge_types::tcp::TcpConnection;

/// The reason why the settings of an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("upstream {0}: {1:?} is not a host name")]
    Host(String, String),
    #[error("upstream {0}: cannot read certificates from {1}: {2}")]
    CaFile(String, String, String),
    #[error("upstream {0}: cannot set up TLS")]
    Tls(String, #[source] rustls::Error),
}

/// Why a connection cannot be opened.
#[derive(Clone, Debug)]
pub enum ConnectError {
    Failed(UpstreamFailure, String),
    TimedOut,
}

/// An HTTP handshake that failed.
impl From<hyper::Error> for ConnectError {
    fn from(error: hyper::Error) -> Self {
        Self::Failed(UpstreamFailure::Protocol, error.to_string())
    }
}

/// Maximum time of one attempt before the next address is tried in parallel (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct Connector {
    pub(super) config: UpstreamConfig,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    config: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
}

impl Connector {
    pub(super) fn new(config: UpstreamConfig) -> Result<Self, SetupError> {
        let tls = if config.tls { Some(Tls::new(&config)?) } else { None };
        Ok(Self { config, tls })
    }

    pub(super) async fn connect(&self) -> Result<(UpstreamStream, ConnectTimings), ConnectError> {
        let connecting = self.connect_without_limit();
        match self.config.timeouts.connect {
            None => connecting.await,
            Some(limit) => {
                tokio::time::timeout(limit, connecting).await.unwrap_or(Err(ConnectError::TimedOut))
            }
        }
    }

    async fn connect_without_limit(
        &self,
    ) -> Result<(UpstreamStream, ConnectTimings), ConnectError> {
        let begun = clock::now();
        let UpstreamConfig { port: server_port, proxy, ca_file, .. } = &self.config;
        let server = without_brackets(&self.config.host);
        let (host, port) = match proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (server, *server_port),
        };
        let resolver = self.config.resolver.as_ref().unwrap_or(Resolver::system());
        let addresses = resolver
            .resolve(host, port)
            .await
            .map_err(|error| ConnectError::Failed(UpstreamFailure::Dns, error.to_string()))?;
        let resolved = clock::now();
        let mut stream = connect_any(addresses).await?;
        if let Some(proxy) = proxy
            && self.tls.is_some()
        {
            proxy.tunnel(&mut stream, server, *server_port).await.map_err(|error| {
                ConnectError::Failed(UpstreamFailure::Connect, error.to_string())
            })?;
        }
        let opened = clock::now();
        window::limit_receive_buffer(&stream, opened - resolved);
        let ends = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
        let connection = ends.ok().map(|(local, remote)| TcpConnection::new(local, remote));
        let socket = connection.as_ref().map(OpenSocket::register);
        let stream = match &self.tls {
            None => Transport::Left(UpstreamSocket::new(stream)),
            Some(tls) => tls.handshake(stream, ca_file.as_deref()).await?,
        };
        let connected = ConnectTimings {
            reused: false,
            wait: None,
            dns: host.parse::<IpAddr>().is_err().then(|| resolved - begun),
            tcp: Some(opened - resolved),
            tls: self.tls.as_ref().map(|_| clock::now() - opened),
            connection: connection.map(Arc::new),
        };
        Ok((UpstreamStream::new(stream, socket), connected))
    }
}

/// Opens a TCP connection to the first address that answers. The next attempt starts when the previous one has failed
/// or has taken [`ATTEMPT_DELAY`] (RFC 8305, "Happy Eyeballs").
async fn connect_any(addresses: Vec<SocketAddr>) -> Result<TcpStream, ConnectError> {
    let mut addresses = alternate_families(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        let next = addresses.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            attempts.spawn(TcpStream::connect(address));
        }
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => {
                    // Disables Nagle's algorithm, because each chunk is a small write that must not be delayed. A
                    // failure is harmless.
                    drop(stream.set_nodelay(true));
                    tokengauge_listen::prepare_upstream_socket(&stream);
                    return Ok(stream);
                }
                Some(Ok(Err(error))) => failed = error,
                // An attempt ends without a result only if the runtime stops.
                Some(Err(_)) => {}
                None => return Err(ConnectError::Failed(UpstreamFailure::Connect, failed.to_string())),
            },
            () = tokio::time::sleep(ATTEMPT_DELAY), if !is_last => {}
        }
    }
}

/// Orders addresses so that IPv6 and IPv4 alternate. The family of the first address comes first.
fn alternate_families(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let (same, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut ordered = Vec::with_capacity(same.len() + other.len());
    while same.len() + other.len() > 0 {
        ordered.extend(same.next());
        ordered.extend(other.next());
    }
    ordered
}

impl Tls {
    fn new(config: &UpstreamConfig) -> Result<Self, SetupError> {
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

    /// `ca_file` is for the error message.
    async fn handshake(
        &self,
        stream: TcpStream,
        ca_file: Option<&Path>,
    ) -> Result<Transport, ConnectError> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        match connector.connect(self.name.clone(), UpstreamSocket::new(stream)).await {
            Ok(stream) => Ok(Transport::Right(Box::new(stream))),
            Err(error) => Err(ConnectError::Failed(UpstreamFailure::Tls, explain(&error, ca_file))),
        }
    }
}

/// Describes a failed TLS handshake. Three frequent causes are mistakes in the configuration, and the texts of rustls do
/// not name the setting.
fn explain(error: &io::Error, ca_file: Option<&Path>) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the upstream does not respond with TLS; if it serves plain HTTP, write http:// in its URL"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            format!(
                "{error}; if a private authority signed the certificate, add the authority to `ca_file`"
            )
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            let authority = match ca_file {
                Some(file) => format!("keep the authority in {} (`ca_file`)", file.display()),
                None => "name the authority's file as `ca_file`".to_owned(),
            };
            format!(
                "the server presents a certificate that is marked as a certificate authority; create a server \
                 certificate signed by this authority, and {authority}"
            )
        }
        Some(_) | None => error.to_string(),
    }
}

/// Returns the trusted root certificates of the system or of `SSL_CERT_FILE`. If the system has none, Mozilla's root
/// certificates replace them.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// Returns [`system_roots`] and the certificates of the configured `ca_file`.
fn roots(config: &UpstreamConfig) -> Result<RootCertStore, SetupError> {
    let mut roots = system_roots();
    let Some(file) = &config.ca_file else {
        return Ok(roots);
    };
    let authorities = read_authorities(file).map_err(|reason| {
        SetupError::CaFile(config.name.to_string(), file.display().to_string(), reason)
    })?;
    // Each certificate was added to a store before, so none is rejected here.
    roots.add_parsable_certificates(authorities);
    Ok(roots)
}

/// Reads a PEM file of root certificates.
///
/// # Errors
/// Returns the reason why the file cannot be used: it is unreadable, has no certificate, or has one that cannot be a root
/// certificate.
pub fn read_authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut authorities = Vec::new();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        authorities.push(certificate);
    }
    if authorities.is_empty() {
        return Err("the file contains no certificate".to_owned());
    }
    Ok(authorities)
}

/// Returns the value of the `Host` header, such as `example.com` or `example.com:8000`. The default port of the scheme
/// is omitted.
pub(super) fn host_header(config: &UpstreamConfig) -> Result<HeaderValue, SetupError> {
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

#[cfg(test)]
mod tests {
    use tokengauge_types::label::Label;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[test]
    fn explains_a_certificate_authority_that_is_used_as_a_server_certificate() {
        let cause = rustls::OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity));
        let error = rustls::Error::InvalidCertificate(CertificateError::Other(cause));
        let error = io::Error::other(error);
        let message = explain(&error, Some(Path::new("/etc/ca.pem")));
        assert!(
            message.contains("certificate authority")
                && message.contains("in /etc/ca.pem (`ca_file`)"),
            "{message}"
        );
        assert!(explain(&error, None).ends_with("file as `ca_file`"));
        assert_eq!(explain(&io::Error::other("other"), None), "other");
    }

    #[test]
    fn explains_an_unknown_authority() {
        let error = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let message = explain(&io::Error::other(error.clone()), None);
        let (start, end) = (error.to_string(), "add the authority to `ca_file`");
        assert!(message.starts_with(&start) && message.ends_with(end), "{message}");
    }

    #[tokio::test]
    async fn explains_an_upstream_that_serves_plain_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        };
        let config = UpstreamConfig::new(Label::from_trusted("a"), true, "localhost", port);
        let connector = Connector::new(config).unwrap();
        let (result, _stream) = tokio::join!(connector.connect(), serving);
        let Err(ConnectError::Failed(UpstreamFailure::Tls, message)) = result else {
            panic!("no error")
        };
        assert!(message.ends_with("write http:// in its URL"), "{message}");
    }

    /// Returns the address of a listener with a full backlog. The next connection is neither accepted nor refused.
    async fn silent() -> (SocketAddr, TcpListener, TcpStream) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let first = TcpStream::connect(address).await.unwrap();
        (address, listener, first)
    }

    async fn refusing() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    /// An attempt to connect to an address that does not answer takes more than a minute. The second address must be
    /// tried earlier.
    #[tokio::test]
    async fn an_address_that_does_not_answer_delays_the_next_only_shortly() {
        let (dead, _listener, _first) = silent().await;
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = live.local_addr().unwrap();
        for addresses in [vec![dead, address], vec![refusing().await, dead, address]] {
            let connecting = tokio::time::timeout(Duration::from_secs(30), connect_any(addresses));
            let stream = connecting.await.unwrap().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
        }
    }

    /// Tests that the kernel notices a vanished upstream, and buffers little of an upload that the upstream does not
    /// read.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_watches_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect_any(vec![listener.local_addr().unwrap()]).await.unwrap();
        use rustix::net::sockopt;
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(60));
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), Duration::from_secs(15));
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 300_000);
        let (_unread, _) = listener.accept().await.unwrap();
        let mut written = 0;
        while let Ok(length) = stream.try_write(&[0; 1 << 16]) {
            written += length as u64;
        }
        let ends = TcpConnection::new(stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let held = crate::tcp::send_queue(&ends).unwrap().unacknowledged;
        assert!((1..=512 << 10).contains(&held), "{held} of {written}");
    }

    #[tokio::test]
    async fn fails_once_every_address_has_failed() {
        let addresses = vec![refusing().await, refusing().await];
        let error = connect_any(addresses).await.unwrap_err();
        let ConnectError::Failed(UpstreamFailure::Connect, cause) = error else {
            panic!("{error:?}")
        };
        assert!(cause.contains("refused"), "{cause}");
        assert!(connect_any(Vec::new()).await.is_err());
    }

    #[test]
    fn families_alternate() {
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let [a, b, c, d] = ["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"].map(address);
        assert_eq!(alternate_families(vec![a, b, c, d]), [a, d, b, c]);
        assert_eq!(alternate_families(vec![d, a, b]), [d, a, b]);
    }
}
