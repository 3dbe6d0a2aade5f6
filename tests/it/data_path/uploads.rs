//! Tests when the body of a request counts as uploaded, for different orders of actions of client, proxy and upstream.

use tokengauge_types::event::ObserverEvent;
use tokio::io::AsyncWriteExt;

use crate::support::{Proxy, settle, within};

/// Size of a body in bytes that is larger than all buffers between the client and an upstream that does not read.
const LENGTH: usize = 20 * 1024 * 1024;

fn head() -> String {
    format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n")
}

fn uploaded(proxy: &mut Proxy) -> bool {
    proxy.drain();
    proxy.said(|word| matches!(word, ObserverEvent::RequestBodySent)) == 1
}

#[tokio::test]
async fn an_upload_without_its_last_byte_is_not_complete() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, head()).await;
    let sending = async { client.write(vec![b'x'; LENGTH - 1]).await };
    let (_, received) = tokio::join!(sending, upstream.read_exactly(LENGTH - 1));
    assert_eq!(received.len(), LENGTH - 1, "the upstream has all bytes except one");
    settle().await;
    assert!(!uploaded(&mut proxy));
    client.write("x").await;
    upstream.read_exactly(1).await;
    settle().await;
    assert!(uploaded(&mut proxy));
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    client.read_head().await;
    let words = proxy.words().await;
    let rest = "RequestBodySent Head(200) Complete";
    assert!(words[0].ends_with(rest), "{words:?}");
}

#[tokio::test]
async fn an_upload_stays_open_while_the_upstream_does_not_read() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, head()).await;
    let (mut reading, mut writing) = client.0.split();
    let body = vec![b'x'; LENGTH];
    let mut sent = 0;
    // The client writes until the proxy stops reading.
    loop {
        let before = sent;
        tokio::select! {
            biased;
            written = writing.write(&body[sent..]) => sent += written.unwrap(),
            () = settle() => {}
        }
        if sent == before {
            break;
        }
    }
    assert!(sent < LENGTH, "backpressure of the upstream reaches the client");
    assert!(!uploaded(&mut proxy));
    let sending = async { within("upload", writing.write_all(&body[sent..])).await.unwrap() };
    let receiving = async {
        upstream.read_exactly(LENGTH).await;
        upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    };
    tokio::join!(sending, receiving);
    within("answer", tokio::io::AsyncReadExt::read_u8(&mut reading)).await.unwrap();
    let words = proxy.words().await;
    let rest = "RequestBodySent Head(200) Complete";
    assert!(words[0].ends_with(rest), "{words:?}");
}
