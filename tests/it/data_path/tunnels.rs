//! Tests how an upgraded connection ends: after one side has closed, and by time limits.

use std::time::Duration;

use tokengauge_types::event::ObserverEvent;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Backend, Proxy, Raw, Setup, settle, within};

const UPGRADE: &str =
    "GET /realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A time limit that passes within a test.
const SHORT: Duration = Duration::from_millis(300);

/// A proxy with one slot for a connection and for a request, and the two sides of an upgraded connection.
struct Scene {
    backend: Backend,
    proxy: Proxy,
    /// `None` once the client has left.
    client: Option<Raw<TcpStream>>,
    upstream: Raw<TcpStream>,
}

impl Scene {
    fn client(&mut self) -> &mut Raw<TcpStream> {
        self.client.as_mut().unwrap()
    }

    async fn start(configure: impl FnOnce(&mut Setup)) -> Self {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.listen.max_requests = 1;
        setup.listen.max_connections = 1;
        configure(&mut setup);
        let proxy = setup.start().await;
        let socket = TcpSocket::new_v4().unwrap();
        // The smallest receive window that Linux allows.
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        let mut client = Raw(socket.connect(proxy.address).await.unwrap());
        client.write(UPGRADE).await;
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(SWITCHING).await;
        client.read_head().await;
        Self { backend, proxy, client: Some(client), upstream }
    }

    /// Asserts that the tunnel has ended with `ending`, and that another client gets its slots.
    async fn assert_ended(&mut self, ending: &str) {
        let words = self.proxy.words().await;
        assert!(words[0].ends_with(ending), "{words:?}");
        let mut client = self.proxy.client().await;
        client.write("GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n").await;
        self.backend.accept().await.read_head().await;
    }
}

#[tokio::test]
async fn a_tunnel_ends_soon_after_its_client_has_left() {
    let mut scene = Scene::start(|_| {}).await;
    drop(scene.client.take());
    // The upstream reads the end of the connection, and keeps its own side open.
    assert_eq!(scene.upstream.read_to_end().await, b"");
    scene.assert_ended("Closed(Request) Complete").await;
}

#[tokio::test]
async fn a_tunnel_ends_soon_after_its_upstream_has_left() {
    let mut scene = Scene::start(|_| {}).await;
    scene.upstream.write("the last words").await;
    scene.upstream.0.shutdown().await.unwrap();
    assert_eq!(scene.client().read_to_end().await, b"the last words");
    // The client keeps its side open.
    scene.assert_ended("Closed(Response) Complete").await;
}

#[tokio::test]
async fn the_total_limit_ends_an_active_tunnel() {
    let mut scene = Scene::start(|setup| setup.upstream.timeouts.total = Some(SHORT)).await;
    let mut echoes = 0;
    within("the end", async {
        while scene.client().0.write_all(b"ping").await.is_ok() {
            let mut word = [0; 4];
            let read = tokio::io::AsyncReadExt::read_exact(&mut scene.upstream.0, &mut word).await;
            if read.is_err() {
                return;
            }
            echoes += 1;
            settle().await;
        }
    })
    .await;
    assert!(echoes > 0);
    scene.assert_ended("End(TimedOut(Total))").await;
}

#[tokio::test]
async fn the_idle_limit_ends_a_tunnel_without_messages_in_both_directions() {
    let mut scene = Scene::start(|setup| setup.upstream.timeouts.idle = Some(3 * SHORT)).await;
    for _ in 0..6 {
        tokio::time::sleep(SHORT).await;
        scene.client().write("ping").await;
        assert_eq!(scene.upstream.read_exactly(4).await, b"ping", "the client is not idle");
    }
    assert_eq!(scene.upstream.read_to_end().await, b"");
    scene.assert_ended("End(TimedOut(Idle))").await;
}

/// Writes until the proxy closes the connection.
async fn pour(upstream: &mut Raw<TcpStream>) {
    let piece = vec![b'x'; 64 * 1024];
    while upstream.0.write_all(&piece).await.is_ok() {}
}

#[tokio::test]
async fn a_tunnel_ends_if_its_client_does_not_read() {
    let mut scene = Scene::start(|setup| {
        setup.listen.send_timeout = SHORT;
        // The idle limit is paused while the client does not read.
        setup.upstream.timeouts.idle = Some(SHORT / 2);
    })
    .await;
    within("the end of the upstream connection", pour(&mut scene.upstream)).await;
    scene.assert_ended("End(TimedOut(Send))").await;

    let mut scene = Scene::start(|setup| setup.upstream.timeouts.total = Some(SHORT)).await;
    within("the end of the upstream connection", pour(&mut scene.upstream)).await;
    scene.assert_ended("End(TimedOut(TotalUnread))").await;
    let read = scene.proxy.said(|event| matches!(event, ObserverEvent::Body { .. }));
    assert!(read > 0);
}
