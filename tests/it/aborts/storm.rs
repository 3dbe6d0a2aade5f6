//! Tests that a thousand aborted exchanges of each kind leave no state behind.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokengauge_observe::InFlightRequests;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::rig::Rig;
use super::stream::{BODY, PATH, until};
use crate::support::process::Process;
use crate::support::{Setup, within};

/// Number of aborts of each kind.
const TIMES: u64 = 1_000;

/// Number of concurrent clients. It is large enough for aborts to overlap in every part of the proxy.
const CLIENTS: u64 = 20;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    Client,
    UpstreamCloses,
    UpstreamResets,
    /// The proxy ends the exchange, because a time limit has expired.
    Proxy,
}

#[derive(Clone, Copy, Debug)]
struct ClientKind {
    who: Who,
    when: &'static str,
    outcome: &'static str,
}

const fn kind(who: Who, when: &'static str, outcome: &'static str) -> ClientKind {
    ClientKind { who, when, outcome }
}

const KINDS: [ClientKind; 11] = [
    kind(Who::Client, "before the head", "cancelled"),
    kind(Who::Client, "before the first token", "cancelled"),
    kind(Who::Client, "mid-stream", "cancelled"),
    kind(Who::Client, "after the last event", "ok"),
    kind(Who::UpstreamCloses, "before the head", "error"),
    kind(Who::UpstreamCloses, "before the first token", "truncated"),
    kind(Who::UpstreamCloses, "mid-stream", "truncated"),
    kind(Who::UpstreamCloses, "after the last event", "ok"),
    kind(Who::UpstreamResets, "mid-stream", "truncated"),
    kind(Who::Proxy, "before the head", "timeout"),
    kind(Who::Proxy, "mid-stream", "timeout"),
];

/// Kinds of aborts that need no time limit, and kinds that a time limit ends.
///
/// They run separately. A limit that expired during another kind would be reported as its cause.
const UNLIMITED: Range<usize> = 0..9;
const UNTIL_HEAD: Range<usize> = 9..10;
const WHILE_IDLE: Range<usize> = 10..11;

/// Time limit in which a thousand waits, twenty at a time, must end without success.
const LIMIT: Duration = Duration::from_millis(20);

/// An upstream that selects its response by the request's `x-kind`.
struct Upstream {
    address: SocketAddr,
    open: Arc<AtomicU64>,
    /// Notified when a request of the client with this index arrives.
    came: Arc<Vec<Notify>>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::<AtomicU64>::default();
        let came: Arc<Vec<Notify>> = Arc::new((0..CLIENTS).map(|_| Notify::new()).collect());
        let (counter, bells) = (Arc::clone(&open), Arc::clone(&came));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                let (counter, bells) = (Arc::clone(&counter), Arc::clone(&bells));
                tokio::spawn(async move {
                    converse(stream, &bells).await;
                    counter.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, open, came }
    }
}

async fn converse(mut stream: TcpStream, came: &[Notify]) {
    let request = read_past(&mut stream, BODY).await;
    let kind = KINDS[header(&request, "x-kind")];
    came[header(&request, "x-client")].notify_one();
    if let Some(body) = until(kind.when) {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    match kind.who {
        Who::Client | Who::Proxy => {
            let mut rest = Vec::new();
            drop(within("the connection to close", stream.read_to_end(&mut rest)).await);
            assert!(rest.is_empty());
        }
        Who::UpstreamCloses => {}
        Who::UpstreamResets => reset_when_dropped(&stream),
    }
}

fn header(request: &str, name: &str) -> usize {
    let mut values = request.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    values.next().unwrap().parse().unwrap()
}

/// Reads in large pieces until `mark` has arrived.
async fn read_past(stream: &mut TcpStream, mark: &str) -> String {
    let mut read = Vec::new();
    within(mark, async {
        while !String::from_utf8_lossy(&read).contains(mark) {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "{mark}");
        }
    })
    .await;
    String::from_utf8(read).unwrap()
}

/// Makes the kernel send a RST when the socket is dropped, so that no port remains in the state TIME-WAIT.
fn reset_when_dropped(stream: &TcpStream) {
    stream.set_zero_linger().unwrap();
}

/// Runs `times` aborts of each of `kinds`, with [`CLIENTS`] concurrent clients. Calls `pause` whenever each client has
/// run each kind.
async fn storm(
    proxy: SocketAddr,
    upstream: &Upstream,
    kinds: Range<usize>,
    times: u64,
    pause: impl Fn(),
) {
    for _ in 0..times / CLIENTS {
        let clients = (0..CLIENTS).map(|client| {
            let (came, kinds) = (Arc::clone(&upstream.came), kinds.clone());
            tokio::spawn(async move {
                for kind in kinds {
                    abort(proxy, kind, &came, client).await;
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        pause();
    }
}

async fn abort(proxy: SocketAddr, number: usize, came: &[Notify], client: u64) {
    let kind = KINDS[number];
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    reset_when_dropped(&stream);
    let length = BODY.len();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: a\r\nx-kind: {number}\r\nx-client: {client}\r\ncontent-length: {length}\r\n\r\n{BODY}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    within("the request", came[usize::try_from(client).unwrap()].notified()).await;
    let body = until(kind.when);
    match kind.who {
        Who::Client => {
            if let Some(event) =
                body.as_deref().and_then(|body| body.lines().rfind(|line| !line.is_empty()))
            {
                read_past(&mut stream, event).await;
            }
        }
        Who::UpstreamCloses | Who::UpstreamResets | Who::Proxy if body.is_some() => {
            let mut rest = Vec::new();
            drop(within("the end", stream.read_to_end(&mut rest)).await);
        }
        Who::UpstreamCloses | Who::UpstreamResets | Who::Proxy => {
            read_past(&mut stream, "\"error\"").await;
        }
    }
}

/// Waits until `holds` returns `true`.
async fn come_to(what: &str, holds: impl Fn() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

fn finished(metrics: &str, outcome: &str) -> u64 {
    let label = format!("tokengauge_outcome=\"{outcome}\"");
    let series =
        metrics.lines().filter(|line| line.starts_with("tokengauge_requests_finished_total"));
    let values =
        series.filter(|line| line.contains(&label)).map(|line| line.rsplit_once(' ').unwrap().1);
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

/// Runs `kinds` against a proxy in this process. Asserts that no state remains.
async fn leaves_nothing(kinds: Range<usize>) {
    let upstream = Upstream::start().await;
    let mut setup = Setup::to(upstream.address);
    setup.upstream.timeouts.response_header = (kinds == UNTIL_HEAD).then_some(LIMIT);
    setup.upstream.timeouts.idle = (kinds == WHILE_IDLE).then_some(LIMIT);
    let rig = Rig::unexported(setup).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    // On a busy machine, the observer thread alone could fall behind, and would then skip bodies.
    let catch_up = || rig.observer.with_current_state(|_: &mut InFlightRequests, _| ());
    storm(rig.proxy.address, &upstream, kinds.clone(), TIMES, catch_up).await;

    come_to("every exchange's end", || rig.proxy.channel.open_exchanges() == 0).await;
    let (in_flight, reading) =
        rig.observer.with_current_state(|requests: &mut InFlightRequests, at| {
            (requests.in_flight(), requests.reading(at).0)
        });
    assert_eq!(in_flight, 0);
    let active: u64 = reading.routes.iter().flat_map(|route| route.active).sum();
    assert_eq!(active, 0, "{:?}", reading.routes);
    come_to("the upstream's connections", || upstream.open.load(Ordering::Relaxed) == 0).await;
    come_to("every task's end", || tasks() <= before).await;
    let metrics = rig.metrics();
    for outcome in ["ok", "error", "cancelled", "timeout", "truncated", "rejected"] {
        let of = KINDS[kinds.clone()].iter().filter(|kind| kind.outcome == outcome);
        let expected = of.count() as u64 * TIMES;
        assert_eq!(finished(&metrics, outcome), expected, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_aborts_by_either_side_leave_no_state() {
    leaves_nothing(UNLIMITED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_aborts_by_a_limit_leave_no_state() {
    leaves_nothing(UNTIL_HEAD).await;
    leaves_nothing(WHILE_IDLE).await;
}

/// Number of aborts of each kind between two readings of the memory.
const HALF: u64 = TIMES / 2;

/// Maximum growth of the real program's peak memory between two readings: 1 KiB for each abort. A leaked exchange takes
/// several KiB.
const GROWTH: u64 = UNLIMITED.end as u64 * HALF * 1024;

/// Readings after the first one. A leak adds memory before each of them. Without a leak, the peak grows only when more
/// work is concurrent than ever before, which can happen again on a busy machine, but not each time.
const READINGS: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_aborts_take_no_memory() {
    let upstream = Upstream::start().await;
    let process = Process::before(upstream.address).await;
    storm(process.address, &upstream, UNLIMITED, HALF, || ()).await;
    let mut before = process.peak_memory();
    let mut growths = Vec::new();
    for reading in 2..=READINGS + 1 {
        storm(process.address, &upstream, UNLIMITED, HALF, || ()).await;
        let total = UNLIMITED.end as u64 * HALF * reading;
        let all = async { while process.count(&["requests_finished"]).await < total {} };
        within("every exchange's end", all).await;
        assert_eq!(process.count(&["requests_finished"]).await, total);
        assert_eq!(process.count(&["active_requests"]).await, 0);
        let peak = process.peak_memory();
        if peak - before < GROWTH {
            return;
        }
        growths.push(peak - before);
        before = peak;
    }
    panic!("the peak grew before each reading by too many bytes: {growths:?}");
}
