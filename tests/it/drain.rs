//! Tests the drain before a shutdown.
//!
//! During a drain, active exchanges continue, new requests are still served, and the proxy reports when the drain is
//! complete.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::support::process::{CALL, DONE, PROGRAM, Process, open};
use crate::support::{Backend, Raw, lines, settle, within};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Sends a request to the admin port at `address`, and returns the complete response without a time limit.
fn asked(address: SocketAddr, request: &str, headers: &str) -> JoinHandle<String> {
    let request =
        format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    tokio::spawn(async move {
        let mut client = Raw::connect(address).await;
        client.write(request).await;
        String::from_utf8(client.read_to_end().await).unwrap()
    })
}

async fn answered(asked: JoinHandle<String>) -> String {
    within("an answer", asked).await.unwrap()
}

/// Performs one exchange on `client` and returns the response headers that the client receives.
async fn exchange(client: &mut Raw<TcpStream>, backend: &Backend) -> String {
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(OK).await;
    let head = client.read_head().await;
    assert_eq!(client.read_exactly(2).await, b"ok");
    head
}

fn is_last(head: &str) -> bool {
    lines(head).iter().any(|line| line.eq_ignore_ascii_case("connection: close"))
}

/// Starts a drain, and waits until the proxy closes each connection after its current request.
///
/// Returns the two requests that wait for the end of the drain: one started it with `/drain`, and the other only waits
/// on `/drained`.
async fn parting(process: &Process) -> [JoinHandle<String>; 2] {
    let waiting = [
        asked(process.admin, "POST /drain?delay=0s", ""),
        asked(process.admin, "GET /drained", ""),
    ];
    process.logged(&["closing each connection after its current request"]).await;
    waiting
}

async fn drained(waiting: [JoinHandle<String>; 2]) {
    for waiting in waiting {
        let answer = answered(waiting).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with("\r\ndrained\n"), "{answer}");
    }
}

/// Starts the proxy in front of `backend`. Each exchange gets a separate upstream connection.
async fn before(backend: &Backend) -> (Process, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    let text = format!(
        "version: 1\nupstreams: {{one: {{url: \"http://{}\", pool: {{max_idle_connections: 0}}}}}}\n",
        backend.address
    );
    std::fs::write(&file, text).unwrap();
    let process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    (process, directory)
}

#[tokio::test]
async fn a_drain_waits_for_the_end_of_a_stream() {
    let backend = Backend::start().await;
    let (mut process, _directory) = before(&backend).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    let nobody_asked = process.seconds(&["tokengauge_self_drain_duration_seconds"]).await;
    assert!(nobody_asked <= 0.0, "{nobody_asked}");
    let waiting = parting(&process).await;
    assert!(process.seconds(&["tokengauge_self_drain_duration_seconds"]).await > 0.0);
    assert!(process.page("/readyz").await.0.starts_with("HTTP/1.1 503 "));
    assert!(process.page("/livez").await.0.starts_with("HTTP/1.1 200 "));
    settle().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "a stream is open");
    assert!(!process.log().contains("\"drained\""), "{}", process.log());
    upstream.write(DONE).await;
    assert_eq!(
        client.read_to_end().await,
        DONE.as_bytes(),
        "the response is complete, and its connection closes"
    );
    drained(waiting).await;
    process.logged(&["\"drained\""]).await;

    // After the drain, the proxy still serves requests until it receives a signal. The shutdown is then immediate.
    let mut late = process.client().await;
    assert!(is_last(&exchange(&mut late, &backend).await));
    let mut silent = process.client().await;
    drained([asked(process.admin, "POST /drain", ""), asked(process.admin, "GET /drained", "")])
        .await;
    process.signal("TERM");
    assert_eq!(silent.read_to_end().await, b"");
    assert_eq!(process.ended().await.code(), Some(0));
    let log = process.log();
    assert!(log.contains("\"stopped\"") && !log.contains("exchanges_cut"), "{log}");
    assert_eq!(log.matches("drain started").count(), 1, "{log}");
}

/// A request that only looks like a WebSocket must not keep its connection open during a drain.
#[tokio::test]
async fn a_drain_closes_connections_of_requests_that_are_not_upgraded() {
    let backend = Backend::start().await;
    let (process, _directory) = before(&backend).await;
    let headers = [
        "Upgrade: websocket\r\n",
        "Connection: keep-alive\r\nUpgrade: websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        "Connection: upgrade\r\nUpgrade: h2c, websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: h2c\r\n",
    ];
    let mut clients = Vec::new();
    for header in headers {
        // A connection that was never used may serve one request during the drain.
        clients.push((header, process.client().await));
    }
    let _waiting = parting(&process).await;
    for (header, client) in &mut clients {
        client.write(GET.replace("\r\n\r\n", &format!("\r\n{header}\r\n"))).await;
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(OK).await;
        let head = client.read_head().await;
        assert!(is_last(&head), "{header}: {head}");
        assert_eq!(client.read_to_end().await, b"ok", "{header}");
    }
}

#[tokio::test]
async fn keeps_connections_during_the_delay_and_a_second_request_joins_the_drain() {
    let backend = Backend::start().await;
    let (mut process, _directory) = before(&backend).await;
    let mut client = process.client().await;
    let first = asked(process.admin, "POST /drain?delay=1h", "");
    process.logged(&["drain started", "\"delay\":\"3600s\""]).await;
    // A second request cannot change the parameters of the drain. If its client disconnects, the drain continues.
    let second = asked(process.admin, "POST /drain?delay=0s&quiet=1s", "");
    first.abort();
    assert!(process.page("/readyz").await.0.starts_with("HTTP/1.1 503 "));
    for _ in 0..3 {
        assert!(!is_last(&exchange(&mut client, &backend).await));
    }
    let mut new = process.client().await;
    assert!(!is_last(&exchange(&mut new, &backend).await));
    assert!(!second.is_finished());
    let log = process.log();
    assert_eq!(log.matches("drain started").count(), 1, "{log}");
    assert!(!log.contains("ends with its exchange"), "{log}");
    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    assert_eq!(answered(second).await, "", "the exchange ended before the drain did");
}

#[tokio::test]
async fn each_connection_serves_one_more_exchange_and_idle_ones_close() {
    let backend = Backend::start().await;
    let (process, _directory) = before(&backend).await;
    let (mut streaming, mut upstream) = open(&process, &backend, CALL).await;
    let (mut idle, mut busy, mut silent) =
        (process.client().await, process.client().await, process.client().await);
    for client in [&mut idle, &mut busy] {
        assert!(!is_last(&exchange(client, &backend).await));
    }
    let waiting = parting(&process).await;
    let mut new = process.client().await;
    for client in [&mut busy, &mut silent, &mut new] {
        assert!(is_last(&exchange(client, &backend).await));
        assert_eq!(client.read_to_end().await, b"");
    }
    settle().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "a stream is open");
    upstream.write(DONE).await;
    assert_eq!(streaming.read_to_end().await, DONE.as_bytes());
    drained(waiting).await;
    assert_eq!(idle.read_to_end().await, b"");
}

#[tokio::test]
async fn a_drain_waits_for_websockets() {
    let backend = Backend::start().await;
    let (process, _directory) = before(&backend).await;
    let (mut streaming, mut upstream) = open(&process, &backend, CALL).await;
    let waiting = parting(&process).await;
    let mut client = process.client().await;
    client
        .write("GET /realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let mut socket = backend.accept().await;
    socket.read_head().await;
    socket
        .write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(lines(&head).contains(&"Connection: Upgrade"), "{head}");
    upstream.write(DONE).await;
    assert_eq!(streaming.read_to_end().await, DONE.as_bytes());
    client.write("ping").await;
    assert_eq!(socket.read_exactly(4).await, b"ping");
    settle().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "a socket is open");
    drop((client, socket));
    drained(waiting).await;
}

#[tokio::test]
async fn over_http2_streams_complete_and_a_new_connection_serves_one_request() {
    let backend = Backend::start().await;
    let (process, _directory) = before(&backend).await;
    let connect = async || {
        let stream = TokioIo::new(TcpStream::connect(process.address).await.unwrap());
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        (sender, tokio::spawn(connection))
    };
    let get = || {
        let uri = "http://a/v1/models";
        Request::get(uri).body(Empty::<Bytes>::new()).unwrap()
    };
    let (mut old, old_connection) = connect().await;
    let (asking, upstream) = tokio::join!(old.send_request(get()), async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await;
        upstream
    });
    let (mut answer, mut upstream) = (asking.unwrap(), upstream);
    let first = answer.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "o");

    let waiting = parting(&process).await;
    let (mut new, new_connection) = connect().await;
    let (answered, ()) = tokio::join!(new.send_request(get()), async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(OK).await;
    });
    let whole = answered.unwrap().collect().await.unwrap();
    assert_eq!(whole.to_bytes(), "ok");
    let ended = within("the new connection's end", new_connection).await;
    ended.unwrap().unwrap();

    settle().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "a stream is open");
    upstream.write("k").await;
    assert_eq!(answer.collect().await.unwrap().to_bytes(), "k");
    let ended = within("the old connection's end", old_connection).await;
    ended.unwrap().unwrap();
    drained(waiting).await;
}

/// Returns an address by which other hosts reach this machine.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // `connect` on a UDP socket sends nothing. It only selects the local address of the route.
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

#[tokio::test]
async fn a_drain_requires_loopback_or_the_token() {
    let backend = Backend::start().await;
    let upstream = format!("http://{}", backend.address);
    let arguments = ["--admin", "0.0.0.0:0", "--upstream", &upstream];
    let token = [("TOKENGAUGE_ADMIN_TOKEN", "secret")];
    let process = Process::start(&arguments, &token).await;
    let port = process.admin.port();
    let here = SocketAddr::from(([127, 0, 0, 1], port));

    let browser = asked(here, "POST /drain?delay=0s", "Origin: http://evil\r\n");
    assert!(answered(browser).await.starts_with("HTTP/1.1 401 "));
    let get = answered(asked(here, "GET /drain", "")).await;
    assert!(get.starts_with("HTTP/1.1 405 "), "{get}");
    let odd = answered(asked(here, "POST /drain?delay=5", "")).await;
    assert!(odd.starts_with("HTTP/1.1 400 ") && odd.contains("missing a time unit"), "{odd}");
    let mesh = TcpSocket::new_v4().unwrap();
    mesh.bind(SocketAddr::from(([127, 0, 0, 6], 0))).unwrap();
    let mut mesh = Raw(mesh.connect(here).await.unwrap());
    mesh.write("POST /drain?delay=0s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    let refused = mesh.read_head().await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "Istio's source address: {refused}");
    match own_address() {
        None => eprintln!("SKIPPED: this machine has no address but loopback to be refused from"),
        Some(own) => {
            let there = SocketAddr::new(own, port);
            let stranger = answered(asked(there, "POST /drain?delay=0s", "")).await;
            assert!(stranger.starts_with("HTTP/1.1 401 "), "{stranger}");
            let wrong = asked(there, "POST /drain", "Authorization: Bearer secrets\r\n");
            assert!(answered(wrong).await.starts_with("HTTP/1.1 401 "));
            let idle = answered(asked(there, "GET /drained", "")).await;
            assert!(
                idle.starts_with("HTTP/1.1 200 ") && idle.ends_with("not draining\n"),
                "{idle}"
            );
            assert!(!process.log().contains("drain started"), "{}", process.log());
            let known = asked(there, "POST /drain?delay=0s", "Authorization: Bearer secret\r\n");
            assert!(answered(known).await.ends_with("drained\n"));
        }
    }
    assert!(answered(asked(here, "POST /drain?delay=0s", "")).await.ends_with("drained\n"));
}

#[tokio::test]
async fn reports_a_drain_timeout_and_the_stream_continues() {
    let backend = Backend::start().await;
    let (process, _directory) = before(&backend).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    let waiting = asked(process.admin, "GET /drained", "");
    let asking = asked(process.admin, "POST /drain?delay=0s&within=10ms", "");
    for told in [waiting, asking] {
        let told = answered(told).await;
        assert!(
            told.starts_with("HTTP/1.1 503 ") && told.contains("\r\nnot drained in time"),
            "{told}"
        );
    }
    process.logged(&["WARN", "drain timed out", "\"exchanges\":1"]).await;
    let waiting = [
        asked(process.admin, "POST /drain?within=1h", ""),
        asked(process.admin, "POST /drain", ""),
    ];
    settle().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "a stream is open");
    upstream.write(DONE).await;
    assert_eq!(client.read_to_end().await, DONE.as_bytes());
    drained(waiting).await;
}

/// Opens more connections from one remote address than the admin port allows.
///
/// Some connections are idle, some send half a request, some wait for a drain, and some request pages without reading
/// them.
async fn crowd(process: &Process) -> Vec<Raw<TcpStream>> {
    let metrics = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20);
    let kinds =
        ["", "GET /livez HTTP/1.1\r\nHost:", "GET /drained HTTP/1.1\r\nHost: a\r\n\r\n", &metrics];
    let mut crowd = Vec::new();
    for kind in kinds.iter().cycle().take(300) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
        let connected = within("a connection", socket.connect(process.admin)).await;
        let mut stranger = Raw(connected.unwrap());
        stranger.write(kind).await;
        crowd.push(stranger);
    }
    crowd
}

#[tokio::test]
async fn one_client_with_many_admin_connections_does_not_block_probes_and_hooks() {
    let backend = Backend::start().await;
    let (process, _directory) = before(&backend).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    let hook = asked(process.admin, "GET /drained", "");
    let strangers = crowd(&process).await;
    for page in ["/livez", "/readyz", "/metrics"] {
        let head = process.page(page).await.0;
        assert!(head.starts_with("HTTP/1.1 200 "), "{page}: {head}");
    }
    let asking = asked(process.admin, "POST /drain?delay=0s", "");
    process.logged(&["closing each connection after its current request"]).await;
    let late = asked(process.admin, "GET /drained", "");
    let still = crowd(&process).await;
    assert!(process.page("/livez").await.0.starts_with("HTTP/1.1 200 "));
    settle().await;
    let waiting = [hook, late, asking];
    assert!(!waiting.iter().any(JoinHandle::is_finished), "a stream is open");
    upstream.write(DONE).await;
    assert_eq!(client.read_to_end().await, DONE.as_bytes());
    for waiting in waiting {
        let answer = answered(waiting).await;
        assert!(answer.ends_with("\r\ndrained\n"), "{answer}");
    }
    drop((strangers, still));
}

async fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_clear().envs(environment.iter().copied()).stdin(Stdio::null());
    let running = tokio::task::spawn_blocking(move || command.output().unwrap());
    within("the command's end", running).await.unwrap()
}

fn told(output: &Output) -> (Option<i32>, String) {
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn drain_and_probe_commands_print_the_response() {
    let backend = Backend::start().await;
    let (mut process, _directory) = before(&backend).await;
    let admin = process.admin.to_string();
    let all = format!("0.0.0.0:{}", process.admin.port());
    let by_variable = [("TOKENGAUGE_ADMIN", &*all)];
    // A slow machine can need more than the default timeout of 1 s.
    let patient = ["--timeout", "30s"];
    let probe = async |page: &str| {
        let arguments = [&["probe", page], patient.as_slice()].concat();
        told(&command(&arguments, &by_variable).await)
    };
    assert_eq!(probe("livez").await, (Some(0), "live\n".to_owned()));
    assert_eq!(probe("readyz").await, (Some(0), "ready\n".to_owned()));
    let by_name = format!("localhost:{}", process.admin.port());
    let by_name = [&["probe", "--admin", &by_name], patient.as_slice()].concat();
    assert_eq!(told(&command(&by_name, &[]).await), (Some(0), "live\n".to_owned()));

    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    let hasty = ["drain", "--admin", &admin, "--delay", "0s", "--timeout", "1ms"];
    let (code, said) = told(&command(&hasty, &[]).await);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("returned 503: not drained in time"), "{said}");

    // With `--linger`, the command repeats its request after the timeout.
    let lingering = format!("drain --admin {admin} --timeout 1ms --linger 1h");
    let draining = tokio::spawn(async move {
        let arguments: Vec<&str> = lingering.split(' ').collect();
        told(&command(&arguments, &[]).await)
    });
    process.logged(&["closing each connection after its current request"]).await;
    assert_eq!(probe("livez").await, (Some(0), "live\n".to_owned()));
    let (code, said) = probe("readyz").await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.ends_with("/readyz returned 503: draining\n"), "{said}");
    assert!(!draining.is_finished(), "a stream is open");
    upstream.write(DONE).await;
    assert_eq!(client.read_to_end().await, DONE.as_bytes());
    let drained = within("the drain", draining).await.unwrap();
    assert_eq!(drained, (Some(0), "drained\n".to_owned()));

    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    let (code, said) = probe("livez").await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot connect to 127.0.0.1:"), "{said}");
}

/// Tests that `--wait` retries until the proxy is ready, since a Service has an address before its pods listen.
#[tokio::test]
async fn a_probe_with_a_wait_repeats_until_it_succeeds() {
    let backend = Backend::start().await;
    let place = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin = place.local_addr().unwrap().to_string();
    drop(place);
    let probe = async |wait: &str| {
        let line = format!("probe readyz --admin {admin} --timeout 30s --wait {wait}");
        let arguments: Vec<&str> = line.split(' ').collect();
        told(&command(&arguments, &[]).await)
    };
    let (code, said) = probe("600ms").await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot connect to 127.0.0.1:"), "{said}");
    let upstream = format!("http://{}", backend.address);
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Process::start(&["--upstream", &upstream, "--admin", &admin], &[]).await
    };
    let (answer, _process) = tokio::join!(probe("60s"), later);
    assert_eq!(answer, (Some(0), "ready\n".to_owned()));
}
