//! Tests that an exchange releases its permit regardless of how it ends. With a single permit, the next request then
//! gets it.

use std::time::Duration;

use tokio::net::TcpStream;

use super::{LONG, limit};
use crate::support::{Backend, Proxy, Raw, Setup, settle};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab";
const SHORT: Duration = Duration::from_millis(20);
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A client and an upstream. The exchange between them holds the only permit.
struct Scene {
    backend: Backend,
    proxy: Proxy,
    client: Raw<TcpStream>,
    upstream: Raw<TcpStream>,
}

impl Scene {
    async fn start(request: &str, change: impl FnOnce(&mut Setup)) -> Self {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.admission = limit(1, 1, LONG);
        // Each exchange has a separate connection.
        setup.upstream.pool_size = 0;
        change(&mut setup);
        let proxy = setup.start().await;
        let (client, upstream) = proxy.exchange(&backend, request).await;
        Self { backend, proxy, client, upstream }
    }

    /// Asserts that the next request is queued until the exchange ends, and admitted then.
    async fn then(mut self, end: impl AsyncFnOnce(&mut Self)) {
        let mut next = self.proxy.client().await;
        next.write(GET).await;
        settle().await;
        assert!(!self.backend.has_another().await, "the request is queued");
        end(&mut self).await;
        self.backend.accept().await.read_head().await;
    }

    fn leave(&mut self) {
        // The assignment drops the client's connection, which closes it.
        let client = std::mem::replace(&mut self.client.0, unconnected());
        drop(client);
    }

    fn fail(&mut self) {
        drop(std::mem::replace(&mut self.upstream.0, unconnected()));
    }
}

/// Returns a stream that can replace a closed connection.
fn unconnected() -> TcpStream {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    TcpStream::from_std(stream).unwrap()
}

async fn start(request: &str) -> Scene {
    Scene::start(request, |_| {}).await
}

#[tokio::test]
async fn when_the_response_ends() {
    for (request, answer) in [
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (GET, "HTTP/1.1 204 No Content\r\n\r\n"),
        (GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
        ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"),
    ] {
        start(request)
            .await
            .then(async |scene: &mut Scene| scene.upstream.write(answer).await)
            .await;
    }
}

#[tokio::test]
async fn when_the_client_disconnects_before_or_after_the_response_headers() {
    start(GET).await.then(async |scene: &mut Scene| scene.leave()).await;
    let mut scene = start(GET).await;
    scene.upstream.write(HALF).await;
    scene.client.read_until("ab").await;
    scene.then(async |scene: &mut Scene| scene.leave()).await;
}

#[tokio::test]
async fn when_the_upstream_fails_before_or_after_the_response_headers() {
    start(GET).await.then(async |scene: &mut Scene| scene.fail()).await;
    let mut scene = start(GET).await;
    scene.upstream.write(HALF).await;
    scene.client.read_until("ab").await;
    scene.then(async |scene: &mut Scene| scene.fail()).await;
}

#[tokio::test]
async fn when_a_timeout_expires() {
    let limits = [
        |setup: &mut Setup| setup.upstream.timeouts.response_header = Some(SHORT),
        |setup: &mut Setup| setup.upstream.timeouts.total = Some(SHORT),
    ];
    for limit in limits {
        let mut scene = Scene::start(GET, limit).await;
        assert!(scene.client.read_head().await.contains(" 504 "));
        let mut next = scene.proxy.client().await;
        next.write(GET).await;
        scene.backend.accept().await.read_head().await;
    }
    let mut scene = Scene::start(GET, |setup| setup.upstream.timeouts.idle = Some(SHORT)).await;
    scene.upstream.write(HALF).await;
    scene.client.read_to_end().await;
    let mut next = scene.proxy.client().await;
    next.write(GET).await;
    scene.backend.accept().await.read_head().await;
}

#[tokio::test]
async fn when_the_request_is_never_forwarded() {
    let unreachable = Backend::start().await;
    let mut setup = Setup::to(unreachable.address);
    drop(unreachable);
    setup.admission = limit(1, 0, LONG);
    let mut proxy = setup.start().await;
    for _ in 0..3 {
        let mut client = proxy.client().await;
        client.write(GET).await;
        assert!(client.read_head().await.contains(" 502 "));
        let mut client = proxy.client().await;
        client.write("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(client.read_head().await.contains(" 400 "));
    }
    assert_eq!(proxy.words().await.len(), 6);
}

#[tokio::test]
async fn only_when_a_tunnel_closes() {
    let mut scene = start(UPGRADE).await;
    scene.upstream.write(SWITCHING).await;
    scene.client.read_head().await;
    scene.client.write("ping").await;
    scene.upstream.read_until("ping").await;
    scene
        .then(async |scene: &mut Scene| {
            scene.leave();
            scene.fail();
        })
        .await;
}

#[tokio::test]
async fn when_the_drain_times_out() {
    let mut scene = start(UPGRADE).await;
    scene.upstream.write(SWITCHING).await;
    scene.client.read_head().await;
    scene.proxy.forwarder.abort();
    // An aborted exchange releases its permit, so the next request is not rejected.
    assert_eq!(scene.client.read_to_end().await, b"");
    let mut next = scene.proxy.client().await;
    next.write(GET).await;
    scene.backend.accept().await.read_head().await;
}
