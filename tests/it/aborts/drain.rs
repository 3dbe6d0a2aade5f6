//! Tests a drain that reaches its time limit. Every exchange that it aborts must be reported.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::stream::{BODY, PATH, until};
use crate::support::collector::Collector;
use crate::support::process::Process;
use crate::support::{Backend, Raw, within};

/// Streams of one connection, each of which hyper runs in a separate task.
const STREAMS: usize = 40;

#[tokio::test]
async fn a_drain_records_every_exchange_that_it_aborts() {
    let backend = Backend::start().await;
    let collector = Collector::start().await;
    let endpoint = format!("http://{}/v1/traces", collector.address);
    let environment = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint.as_str())];
    let upstream = format!("http://{}", backend.address);
    let arguments = ["--upstream", &upstream, "--shutdown-grace-period", "0s"];
    let mut process = Process::start(&arguments, &environment).await;

    let socket = TcpStream::connect(process.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let mut held = Vec::new();
    for number in 0..STREAMS {
        let mut sender = sender.clone();
        let uri = format!("http://{}{PATH}", process.address);
        let request = Request::post(uri).body(Full::new(Bytes::from(BODY))).unwrap();
        let asked = tokio::spawn(async move { sender.send_request(request).await });
        let mut upstream = backend.accept().await;
        upstream.read_until(BODY).await;
        // Half of the streams are still waiting for their response headers.
        if number % 2 == 0 {
            let body = until("mid-stream").unwrap();
            let length = body.len() + 1;
            upstream
                .write(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
                ))
                .await;
            held.push((within("head", asked).await.unwrap().unwrap(), upstream));
        } else {
            tokio::spawn(async move { (asked.await, upstream.read_to_end().await) });
        }
    }
    let _socket = upgraded(&process, &backend).await;

    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    let cut = format!("\"exchanges_cut\":{}", STREAMS + 1);
    assert!(process.log().contains(&cut), "{}", process.log());
    let spans = collector.spans();
    assert_eq!(spans.len(), 2 * (STREAMS + 1), "each exchange has two spans");
    for span in spans {
        let mut faults = span.attributes.iter().filter(|it| it.key == "tokengauge.error_source");
        let fault = format!("{:?}", faults.next());
        assert!(fault.contains("\"proxy\""), "{fault}");
    }
}

/// Returns both ends of a WebSocket.
async fn upgraded(process: &Process, backend: &Backend) -> [Raw<TcpStream>; 2] {
    let mut client = process.client().await;
    client
        .write("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream
        .write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
    client.read_head().await;
    [client, upstream]
}
