//! The listening socket.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use super::Address;
use tokengauge_types::tcp::TcpConnection;

/// Length of the accept backlog. It is large enough for a burst of clients that reconnect simultaneously.
const BACKLOG: u32 = 4_096;

/// Pause after a failed `accept`. If no file descriptors are left, some must be closed before the next `accept`
/// can succeed.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "dropping it removes the file")] Bound),
}

pub(super) enum Accepted {
    /// A TCP connection with its addresses. The second field is `None` if the local address of the socket is
    /// unavailable.
    Tcp(TcpStream, Option<TcpConnection>),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => bind_tcp(*address).map(Self::Tcp),
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                Ok(Self::Unix(listener, Bound(path.clone())))
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
                Ok(Accepted::Tcp(stream, connection))
            }
            Self::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

/// Pauses after an accept error that could repeat immediately. No pause is needed if a connection broke before
/// it was accepted.
pub(super) async fn pause_after_error(error: &io::Error) {
    let broken = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    );
    if !broken {
        tokio::time::sleep(PAUSE).await;
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a Unix socket. Replaces an existing socket file if no process listens on it, for example after a
/// process was killed.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

fn is_dead(path: &Path) -> bool {
    BlockingUnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes the socket file when the listener is dropped.
#[derive(Debug)]
pub(super) struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        // The file may already be removed or may belong to another user. Nothing depends on its removal.
        drop(std::fs::remove_file(&self.0));
    }
}
