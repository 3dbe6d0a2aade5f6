//! Tests every row of `docs/reference/outcomes.md`, with HTTP/1.1 on both sides of the proxy.

use std::net::SocketAddr;
use std::time::Duration;

use tokengauge::forward::ConcurrencyLimit;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::rig::{Rig, facts};
use super::stream::{BODY, PATH, until};
use super::table::{Cell, cells};
use super::unaccepting::Unaccepting;
use crate::support::{Backend, Raw, Setup, within};

/// How a peer ends the connection. All ways must give the same outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// With a FIN packet.
    Close,
    /// With a RST packet.
    Reset,
    /// With a FIN of the sending direction only. The peer continues to read.
    HalfClose,
    /// With the end of the connection, which is also the end of a body without a length.
    Unframed,
}

impl Way {
    fn all(cell: &Cell) -> &'static [Self] {
        match cell.what {
            "client leaves" => &[Self::Close, Self::Reset, Self::HalfClose],
            "client breaks off its upload" => &[Self::Close, Self::Reset],
            "upstream ends its body" => &[Self::Close, Self::Unframed],
            "upstream resets" if cell.when != "before the head" => &[Self::Reset, Self::Unframed],
            _ => &[Self::Close],
        }
    }
}

/// Short time limits for rows whose limit is the only thing that they wait for. A long limit for rows whose limit
/// starts at the beginning of the exchange.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(3);

#[tokio::test]
async fn every_row_over_http1() {
    let (waiting, at_once): (Vec<_>, Vec<_>) =
        cells().into_iter().partition(|cell| cell.what == "limit `total`");
    let waiting = waiting.into_iter().map(play_all).map(tokio::spawn);
    let waiting: Vec<_> = waiting.collect();
    for cell in at_once {
        play_all(cell).await;
    }
    for played in waiting {
        played.await.unwrap();
    }
}

async fn play_all(cell: Cell) {
    for way in Way::all(&cell) {
        let told = play(&cell, *way).await;
        assert_eq!(told, cell.facts, "{} · {} · {way:?}", cell.when, cell.what);
    }
}

async fn play(cell: &Cell, way: Way) -> super::table::Facts {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    let timeouts = &mut setup.upstream.timeouts;
    let unaccepting = Unaccepting::start().await;
    match cell.what {
        "limit `connect`" => {
            timeouts.connect = Some(SHORT);
            setup.upstream.port = unaccepting.address.port();
        }
        "limit `head`" => timeouts.response_header = Some(SHORT),
        "limit `idle`" => timeouts.idle = Some(SHORT),
        "limit `total`" => timeouts.total = Some(LONG),
        "upstream refuses the connection" => setup.upstream.port = nobody().await.port(),
        "too many exchanges" => {
            setup.admission =
                Some(ConcurrencyLimit { max_in_flight: 0, max_queue: 0, queue_timeout: SHORT });
        }
        _ => {}
    }
    let mut rig = Rig::start(setup).await;
    let mut client = rig.proxy.client().await;
    let more = usize::from(cell.what == "client breaks off its upload");
    let length = BODY.len() + more;
    client
        .write(format!("POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{BODY}"))
        .await;
    match cell.what {
        "upstream refuses the connection" | "limit `connect`" | "too many exchanges" => {
            client.read_head().await;
        }
        _ => {
            let mut upstream = backend.accept().await;
            upstream.read_until(BODY).await;
            answer(cell, way, &mut client, &mut upstream).await;
            end(cell, way, &mut rig, client, upstream).await;
        }
    }
    let told = rig.told().await;
    facts(&told)
}

/// Sends the response up to the row's moment, and waits until the client has received it. The response is written at
/// once, so that no time limit expires in between.
async fn answer(cell: &Cell, way: Way, client: &mut Raw<TcpStream>, upstream: &mut Raw<TcpStream>) {
    let Some(body) = until(cell.when) else { return };
    let (framing, body) = match way {
        Way::Unframed => ("", body),
        Way::Close | Way::Reset | Way::HalfClose if body.is_empty() => {
            ("Transfer-Encoding: chunked\r\n", body)
        }
        Way::Close | Way::Reset | Way::HalfClose => {
            ("Transfer-Encoding: chunked\r\n", format!("{:x}\r\n{body}\r\n", body.len()))
        }
    };
    upstream
        .write(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n{body}"))
        .await;
    client.read_head().await;
    if let Some(tail) = body.lines().rfind(|line| line.starts_with("data: ")) {
        client.read_until(tail).await;
    }
}

async fn end(
    cell: &Cell,
    way: Way,
    rig: &mut Rig,
    mut client: Raw<TcpStream>,
    mut upstream: Raw<TcpStream>,
) {
    match cell.what {
        "client leaves" | "client breaks off its upload" => {
            match way {
                Way::Close => drop(client),
                Way::Reset => {
                    reset_when_dropped(&client);
                    drop(client);
                }
                Way::HalfClose => {
                    client.0.shutdown().await.unwrap();
                    client.read_to_end().await;
                }
                Way::Unframed => unreachable!(),
            }
            released(&mut upstream).await;
        }
        "upstream closes" => {
            drop(upstream);
            unfinished(cell, &mut client).await;
        }
        "upstream resets" => {
            reset_when_dropped(&upstream);
            drop(upstream);
            unfinished(cell, &mut client).await;
        }
        "upstream ends its body" => {
            if way != Way::Unframed {
                upstream.write("0\r\n\r\n").await;
            }
            drop(upstream);
            client.read_until("0\r\n\r\n").await;
        }
        "drain" => {
            let connections = rig.proxy.stop().await;
            connections.drain(Duration::ZERO).await;
            rig.proxy.forwarder.abort();
            connections.abort().await;
            released(&mut upstream).await;
            unfinished(cell, &mut client).await;
        }
        _ => {
            released(&mut upstream).await;
            unfinished(cell, &mut client).await;
        }
    }
}

/// Tests a client that disconnects while hyper has buffered a second request behind the first one.
///
/// In this state, hyper does not read from the connection and cannot detect that the client has closed it. The next
/// writes from the upstream reveal it.
#[tokio::test]
async fn detects_a_disconnected_client_with_unread_data_on_the_next_writes() {
    let backend = Backend::start().await;
    let rig = Rig::start(Setup::to(backend.address)).await;
    let mut client = rig.proxy.client().await;
    let length = BODY.len();
    let request =
        format!("POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{BODY}");
    client.write(format!("{request}{request}")).await;
    let mut upstream = backend.accept().await;
    upstream.read_until(BODY).await;
    let cell =
        cells().into_iter().find(|cell| cell.when == "mid-stream" && cell.what == "client leaves");
    let cell = cell.unwrap();
    answer(&cell, Way::Close, &mut client, &mut upstream).await;
    drop(client);
    within("the upstream connection to close", async {
        while upstream.0.write_all(b"1\r\n\n\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(facts(&rig.told().await), cell.facts);
}

/// Asserts that the upstream's connection is closed without further data.
async fn released(upstream: &mut Raw<TcpStream>) {
    assert_eq!(upstream.read_to_end().await, b"");
}

/// Asserts that the client never receives the end of the body.
async fn unfinished(cell: &Cell, client: &mut Raw<TcpStream>) {
    if cell.when == "before the head" && cell.facts.status.is_some() {
        // The proxy sends the whole response and keeps the connection open.
        client.read_head().await;
        return;
    }
    let rest = client.read_to_end().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
}

fn reset_when_dropped(stream: &Raw<TcpStream>) {
    stream.0.set_zero_linger().unwrap();
}

async fn nobody() -> SocketAddr {
    Backend::start().await.address
}
