//! Tests an upstream whose host name gets another address while connections to the old one are open.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokengauge::forward::{Protocol, Resolver};
use tokio::task::JoinHandle;

use crate::support::{Backend, Setup, within};

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Two backends with the same port. The host name of the upstream has the address of the first one.
struct Move {
    old: Backend,
    new: Backend,
    answer: Arc<ArcSwap<IpAddr>>,
}

impl Move {
    async fn prepare() -> (Self, Setup) {
        let old = Backend::start().await;
        let new = Backend::at((Ipv4Addr::new(127, 0, 0, 2), old.address.port()).into()).await;
        let answer = Arc::new(ArcSwap::from_pointee(old.address.ip()));
        let mut setup = Setup::to(old.address);
        setup.upstream.host = "model.example".to_owned();
        let current = Arc::clone(&answer);
        setup.upstream.resolver = Some(Resolver::new(move |host| {
            assert_eq!(host, "model.example");
            Ok(vec![**current.load()])
        }));
        (Self { old, new, answer }, setup)
    }

    fn change_dns(&self) {
        self.answer.store(Arc::new(self.new.address.ip()));
    }
}

#[tokio::test]
async fn a_changed_dns_answer_applies_to_the_next_connection() {
    let (backends, setup) = Move::prepare().await;
    let mut proxy = setup.start().await;
    let (mut client, mut old) = proxy.exchange(&backends.old, GET).await;
    old.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    backends.change_dns();
    // The open connection still works. A second request at the same time needs a new connection.
    client.write(GET).await;
    old.read_head().await;
    let (mut other, mut new) = proxy.exchange(&backends.new, GET).await;
    for (upstream, client) in [(&mut old, &mut client), (&mut new, &mut other)] {
        upstream.write(OK).await;
        client.read_until("\r\n\r\nok").await;
    }
    let words = proxy.words().await;
    assert!(words[1].contains("Reused") && words[2].contains("Connected"), "{words:?}");
}

#[tokio::test]
async fn an_idle_connection_to_an_old_address_is_closed_after_the_idle_timeout() {
    let (backends, mut setup) = Move::prepare().await;
    setup.upstream.idle_timeout = Duration::from_millis(1);
    let proxy = setup.start().await;
    let (mut client, mut old) = proxy.exchange(&backends.old, GET).await;
    old.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    assert_eq!(old.read_to_end().await, b"");
}

#[tokio::test]
async fn a_connection_beyond_its_age_takes_no_request_so_that_a_dns_change_applies() {
    let (backends, mut setup) = Move::prepare().await;
    setup.upstream.max_connection_age = Duration::ZERO;
    let mut proxy = setup.start().await;
    let (mut client, mut old) = proxy.exchange(&backends.old, GET).await;
    backends.change_dns();
    old.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    client.write(GET).await;
    let mut new = backends.new.accept().await;
    new.read_head().await;
    assert_eq!(old.read_to_end().await, b"", "the old connection is closed");
    new.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    let words = proxy.words().await;
    assert!(words[1].contains("Connected") && words[1].ends_with("Complete"), "{words:?}");
}

/// Serves one HTTP/2 connection, and ends when the proxy closes the connection.
async fn serve_http2(backend: &Backend) -> JoinHandle<hyper::Result<()>> {
    let stream = TokioIo::new(backend.accept().await.0);
    let service = service_fn(|_: Request<Incoming>| async {
        hyper::Result::Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::spawn(async move { builder.serve_connection(stream, service).await })
}

#[tokio::test]
async fn an_http2_connection_beyond_its_age_takes_no_request() {
    let (backends, mut setup) = Move::prepare().await;
    setup.upstream.protocol = Protocol::Http2;
    setup.upstream.max_connection_age = Duration::ZERO;
    let proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let old = serve_http2(&backends.old).await;
    client.read_until("\r\n\r\nok").await;
    backends.change_dns();
    client.write(GET).await;
    let _new = serve_http2(&backends.new).await;
    client.read_until("\r\n\r\nok").await;
    within("the old connection to close", old).await.unwrap().unwrap();
}
