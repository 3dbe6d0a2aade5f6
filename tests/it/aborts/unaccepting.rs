//! An upstream that neither accepts nor refuses connections.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A listener with a full backlog. The kernel neither accepts nor refuses the next connection.
pub struct Unaccepting {
    pub address: SocketAddr,
    _held: (TcpListener, TcpStream),
}

impl Unaccepting {
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let first = TcpStream::connect(address).await.unwrap();
        Self { address, _held: (listener, first) }
    }
}
