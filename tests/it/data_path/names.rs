//! Tests upstreams whose name server does not answer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use tokengauge::forward::Resolver;

use crate::support::{Backend, Proxy, Setup, within};

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Number of requests that wait for the name server: more than the threads that tokio has for blocking calls.
const WAITING: usize = 600;

#[tokio::test]
async fn a_name_server_that_hangs_stops_only_its_upstream() {
    let (answer, answers) = mpsc::channel();
    let (answers, lookups) = (Mutex::new(answers), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&lookups);
    let slow = Backend::start().await;
    let mut setup = Setup::to(slow.address);
    setup.upstream.host = "slow.example".to_owned();
    setup.upstream.timeouts.connect = None;
    setup.upstream.resolver = Some(Resolver::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        answers.lock().unwrap().recv().unwrap();
        Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }));
    let proxy = setup.start().await;
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut client = proxy.client().await;
        client.write(GET).await;
        waiting.push(client);
    }

    // Another upstream, whose name the system resolves.
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.host = "localhost".to_owned();
    setup.upstream.pool_size = 0;
    let other = setup.start().await;
    for _ in 0..5 {
        let (mut client, mut upstream) = other.exchange(&backend, GET).await;
        upstream.write(OK).await;
        client.read_until("\r\n\r\nok").await;
    }

    assert_eq!(lookups.load(Ordering::Relaxed), 1, "all requests share one lookup");
    answer.send(()).unwrap();
    let serving = async {
        loop {
            let mut upstream = slow.accept().await;
            upstream.read_head().await;
            upstream.write(OK).await;
        }
    };
    let reading = async {
        for client in &mut waiting {
            client.read_until("\r\n\r\nok").await;
        }
    };
    tokio::select! {
        () = within("all responses", reading) => {}
        () = serving => unreachable!(),
    }
    drop::<(Proxy, Proxy)>((proxy, other));
}
