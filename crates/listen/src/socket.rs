//! The listening socket.

use std::fs::Metadata;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::Address;
use tokengauge_types::tcp::TcpConnection;

/// Maximum number of connections that wait to be accepted, enough for a burst of clients that reconnect at the same
/// time.
const BACKLOG: u32 = 4_096;

/// Maximum number of unsent bytes that the kernel buffers for one connection, enough for hundreds of chunks. Without
/// this limit, Linux buffers up to 4 MiB per connection, which count as memory of the container. Sent but
/// unacknowledged bytes are not limited, so distant clients get the full bandwidth.
#[cfg(any(target_os = "android", target_os = "linux"))]
const MAX_UNSENT: u32 = 128 << 10;

/// Time without data after which the kernel asks the other side of a TCP connection for a sign of life, interval of
/// further questions, and number of questions. A connection whose other side has vanished therefore ends after 2 minutes
/// of silence. The questions also keep the path open: NAT devices and load balancers forget a silent connection after
/// minutes.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
#[cfg(any(target_os = "android", target_os = "linux"))]
const KEEP_ALIVE_QUESTIONS: u32 = 4;

/// Time after which the kernel ends a connection to an upstream that acknowledges nothing. Replaces Linux's limit of
/// about 15 minutes (`tcp_retries2`), and the limit of keep-alive.
///
/// Sockets of clients do not have this limit. Linux also applies it to a peer that is alive but takes no data: a client
/// that read 60 KB every 130 s was cut off after 300 s (Linux 6.18), because a window that opens by less than a segment
/// does not restart the time. An upstream that takes no request data for 5 minutes is broken: Envoy ends such a stream
/// after 5 minutes, and nginx after 60 s.
#[cfg(any(target_os = "android", target_os = "linux"))]
const MAX_UNACKNOWLEDGED: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    // The file is removed before the socket is closed. Until then, no other file can have its inode number.
    Unix(#[expect(dead_code, reason = "dropping it removes the file")] SocketFile, UnixListener),
}

/// A new connection in non-blocking mode. It belongs to no runtime yet, because another thread will serve it.
pub(super) enum Accepted {
    /// A TCP connection and its addresses. The second field is `None` if the kernel reports no local address for the
    /// socket.
    Tcp(TcpStream, Option<TcpConnection>),
    Unix(UnixStream),
}

impl Accepted {
    /// Returns the IP address of the client, if it is known.
    pub(super) fn client(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(_, connection) => connection.as_ref().map(|it| it.remote.ip().to_canonical()),
            Self::Unix(_) => None,
        }
    }
}

impl Socket {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => bind_tcp(*address).map(Self::Tcp),
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                Ok(Self::Unix(SocketFile::from_path(path)?, listener))
            }
        }
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Each chunk is a small write that must be sent immediately. If setting `TCP_NODELAY` fails,
                // the connection is still served.
                drop(stream.set_nodelay(true));
                let local = stream.local_addr().ok();
                let connection = local.map(|local| TcpConnection::new(local, peer));
                Ok(Accepted::Tcp(stream.into_std()?, connection))
            }
            Self::Unix(_, listener) => Ok(Accepted::Unix(listener.accept().await?.0.into_std()?)),
        }
    }
}

/// Returns whether only the accepted connection was broken. Other errors of `accept` can repeat immediately.
pub(super) fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Listens on a TCP address. `[::]` means all addresses of the host: it accepts IPv4 clients too, regardless of the
/// sysctl `net.ipv6.bindv6only`, and a host without IPv6 listens on `0.0.0.0` instead.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    bind_any(address, bind_one)
}

fn bind_any<T>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match bind(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        bound => bound,
    }
}

/// Returns whether a socket could not be bound because the kernel has no IPv6, or IPv6 is disabled.
fn has_no_ipv6(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        SockRef::from(&socket).set_only_v6(false)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    prepare(&socket);
    socket.listen(BACKLOG)
}

/// Prepares a TCP socket for traffic. Limits the unsent data that the kernel buffers for a peer that does not read, and
/// makes the kernel end a silent connection whose peer has vanished without FIN or RST. Sockets that a prepared listener
/// accepts inherit the options.
pub fn prepare(socket: impl AsFd) {
    let socket = SockRef::from(&socket);
    let keep_alive =
        TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER).with_interval(KEEP_ALIVE_INTERVAL);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let keep_alive = keep_alive.with_retries(KEEP_ALIVE_QUESTIONS);
    // If the kernel does not support an option, it buffers more, or takes longer to notice a vanished peer.
    drop(socket.set_tcp_keepalive(&keep_alive));
    #[cfg(any(target_os = "android", target_os = "linux"))]
    drop(socket.set_tcp_notsent_lowat(MAX_UNSENT));
}

/// Prepares the socket of a connection to an upstream. Also limits the time for which sent data is unacknowledged.
pub fn prepare_upstream(socket: impl AsFd) {
    prepare(&socket);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    drop(SockRef::from(&socket).set_tcp_user_timeout(Some(MAX_UNACKNOWLEDGED)));
}

/// Binds a Unix socket. An existing socket file is replaced if no process listens on it, for example after a crash. Any
/// other existing file is an error.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let metadata = std::fs::symlink_metadata(path)?;
            if !metadata.file_type().is_socket() {
                let message = "the path exists and is not a socket; remove it or use another path";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            if !is_dead(path) {
                return Err(error);
            }
            SocketFile { path: path.to_owned(), id: identity(&metadata) }.remove()?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

fn is_dead(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Returns the device and the inode of a file, which identify the file even after a rename.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The file of a Unix socket. Dropping this value removes the file if no other file has replaced it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    fn from_path(path: &Path) -> io::Result<Self> {
        let id = identity(&std::fs::symlink_metadata(path)?);
        Ok(Self { path: path.to_owned(), id })
    }

    fn remove(&self) -> io::Result<()> {
        if identity(&std::fs::symlink_metadata(&self.path)?) == self.id {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may already be removed. Nothing depends on its removal.
        drop(self.remove());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn bind(path: &Path) -> io::Result<Socket> {
        Socket::bind(&Address::Unix(path.to_owned()))
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn accepted_sockets_notice_a_vanished_client() {
        let socket = Socket::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let _client = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
        let Accepted::Tcp(accepted, _) = socket.accept().await.unwrap() else { panic!("not TCP") };
        let accepted = SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), KEEP_ALIVE_AFTER);
        assert_eq!(accepted.tcp_keepalive_interval().unwrap(), KEEP_ALIVE_INTERVAL);
        assert_eq!(accepted.tcp_keepalive_retries().unwrap(), KEEP_ALIVE_QUESTIONS);
        assert_eq!(accepted.tcp_user_timeout().unwrap(), None, "a client may read slowly");
        assert_eq!(accepted.tcp_notsent_lowat().unwrap(), MAX_UNSENT);
    }

    #[tokio::test]
    async fn all_addresses_include_ipv4_and_ipv6() {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let listener = bind_tcp(any).unwrap();
        let port = listener.local_addr().unwrap().port();
        for client in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let _connection = TcpStream::connect((client, port)).unwrap();
            let (_, peer) = listener.accept().await.unwrap();
            assert_eq!(peer.ip().to_canonical(), client);
        }
    }

    #[test]
    fn a_host_without_ipv6_listens_on_all_ipv4_addresses() {
        let any = |ip: IpAddr| SocketAddr::new(ip, 4_000);
        let missing = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
        for code in missing {
            let bind = |address: SocketAddr| match address.is_ipv4() {
                true => Ok(address),
                false => Err(io::Error::from_raw_os_error(code)),
            };
            let bound = bind_any(any(Ipv6Addr::UNSPECIFIED.into()), bind).unwrap();
            assert_eq!(bound, any(Ipv4Addr::UNSPECIFIED.into()));
            assert!(bind_any(any(Ipv6Addr::LOCALHOST.into()), bind).is_err(), "one address");
        }
        let in_use = |_| Err::<(), _>(io::Error::from(io::ErrorKind::AddrInUse));
        assert!(bind_any(any(Ipv6Addr::UNSPECIFIED.into()), in_use).is_err());
    }

    #[tokio::test]
    async fn replaces_only_a_socket_without_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        drop(std::os::unix::net::UnixListener::bind(path("dead")).unwrap());
        let _replaced = bind(&path("dead")).unwrap();
        assert!(UnixStream::connect(path("dead")).is_ok());
        let error = bind(&path("dead")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "a process listens");

        std::fs::write(path("file"), "kept").unwrap();
        symlink(path("file"), path("link")).unwrap();
        std::fs::create_dir(path("directory")).unwrap();
        for name in ["file", "link", "directory"] {
            let error = bind(&path(name)).unwrap_err();
            assert!(error.to_string().contains("is not a socket"), "{name}: {error}");
        }
        assert_eq!(std::fs::read_to_string(path("link")).unwrap(), "kept");
    }

    #[tokio::test]
    async fn removes_only_its_own_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(bind(&path).unwrap());
        assert!(!path.exists());
        let old = bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _successor = bind(&path).unwrap();
        drop(old);
        assert!(UnixStream::connect(&path).is_ok(), "the successor still listens");
    }
}
