//! Tests requests that the proxy answers itself. The observer receives their bodies, and clients wait no longer than
//! documented.

use std::time::Duration;

use tokengauge::forward::ConcurrencyLimit;
use tokengauge_types::clock;
use tokengauge_types::event::Direction;
use tokio::net::TcpStream;

use crate::support::{Backend, Proxy, Raw, Setup, within};

const PROMPT: &str =
    r#"{"messages":[{"role":"user","content":"Hi"}],"model":"gpt-4o","stream":true}"#;

/// Documented wait for the rest of a body, and a pause within it.
const REST: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_millis(30);

/// Causes of an error response of the proxy: the name and a proxy that has the cause.
async fn unanswering() -> Vec<(&'static str, Proxy)> {
    let nobody = Backend::start().await.address;
    let mut unknown = Setup::to(nobody);
    unknown.upstream.host = "no-such-host.invalid".to_owned();
    let limited = |max_queue, queue_timeout| {
        let mut setup = Setup::to(nobody);
        setup.admission = Some(ConcurrencyLimit { max_in_flight: 0, max_queue, queue_timeout });
        setup
    };
    let mut elsewhere = Setup::to(nobody);
    elsewhere.prefix = "/elsewhere".to_owned();
    let setups = [
        ("UpstreamFailed(Connect)", Setup::to(nobody)),
        ("UpstreamFailed(Dns)", unknown),
        ("Rejected(Overload)", limited(0, PAUSE)),
        ("Rejected(Overload)", limited(1, PAUSE / 10)),
        ("Rejected(NoRoute)", elsewhere),
    ];
    let mut proxies = Vec::new();
    for (end, setup) in setups {
        proxies.push((end, setup.start().await));
    }
    proxies
}

fn head(framing: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")
}

fn length(length: usize) -> String {
    head(&format!("Content-Length: {length}"))
}

async fn answered(client: &mut Raw<TcpStream>) -> Duration {
    let begun = clock::now();
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 4") || head.starts_with("HTTP/1.1 5"), "{head}");
    clock::now() - begun
}

/// Sends `request` until the response arrives before the limit, at most three times, because a busy machine can delay
/// any single response. Returns how often the request was sent.
async fn answered_at_once(proxy: &Proxy, request: &str) -> Option<usize> {
    for sent in 1..=3 {
        let mut client = proxy.client().await;
        client.write(request).await;
        if answered(&mut client).await < REST {
            return Some(sent);
        }
    }
    None
}

#[tokio::test]
async fn observes_a_body_that_arrives_after_its_headers() {
    for (end, mut proxy) in unanswering().await {
        let mut client = proxy.client().await;
        client.write(length(PROMPT.len())).await;
        tokio::time::sleep(PAUSE).await;
        let (first, second) = PROMPT.split_at(40);
        client.write(first).await;
        tokio::time::sleep(PAUSE).await;
        client.write(second).await;
        answered(&mut client).await;
        let words = proxy.words().await;
        assert!(words[0].ends_with(&format!("End({end})")), "{words:?}");
        assert_eq!(proxy.observed(Direction::Request), PROMPT.as_bytes(), "{end}");
    }
}

#[tokio::test]
async fn observes_a_chunked_body_to_its_end_without_a_wait() {
    for (end, mut proxy) in unanswering().await {
        let chunk = format!("{:x}\r\n{PROMPT}\r\n0\r\n\r\n", PROMPT.len());
        let request = format!("{}{chunk}", head("Transfer-Encoding: chunked"));
        let sent = answered_at_once(&proxy, &request).await.expect(end);
        proxy.words().await;
        assert_eq!(proxy.observed(Direction::Request), PROMPT.repeat(sent).as_bytes(), "{end}");
    }
}

/// Sends `piece` again and again after `head`, until the response. Returns how many bytes of the body were observed for
/// each cause of an error response.
async fn observed_of_an_endless_body(head: &str, piece: &[u8]) -> Vec<(&'static str, usize)> {
    let mut observed = Vec::new();
    for (end, mut proxy) in unanswering().await {
        let mut client = proxy.client().await;
        client.write(head).await;
        let (mut reading, mut writing) = client.0.into_split();
        let piece = piece.to_vec();
        let sending = tokio::spawn(async move {
            while tokio::io::AsyncWriteExt::write_all(&mut writing, &piece).await.is_ok() {}
        });
        let mut status = [0; 12];
        within("a response", tokio::io::AsyncReadExt::read_exact(&mut reading, &mut status))
            .await
            .unwrap();
        sending.abort();
        proxy.words().await;
        observed.push((end, proxy.observed(Direction::Request).len()));
    }
    observed
}

#[tokio::test]
async fn reads_no_more_than_the_limit_of_a_large_body() {
    let piece = vec![b'x'; 64 << 10];
    for (end, observed) in observed_of_an_endless_body(&length(10 << 20), &piece).await {
        // The last frame can exceed 64 KiB by the size of hyper's buffer.
        assert!((64 << 10..640 << 10).contains(&observed), "{end}: {observed}");
    }
}

/// The memory for a frame counts, which is about 100 times the data of these frames.
#[tokio::test]
async fn reads_less_of_a_body_in_short_chunks() {
    let piece = b"1\r\nx\r\n".repeat(10 << 10);
    let chunked = head("Transfer-Encoding: chunked");
    for (end, observed) in observed_of_an_endless_body(&chunked, &piece).await {
        assert!((100..1_000).contains(&observed), "{end}: {observed}");
    }
}

#[tokio::test]
async fn a_client_that_sends_no_body_gets_its_response_after_the_limit() {
    for (end, mut proxy) in unanswering().await {
        let mut client = proxy.client().await;
        client.write(length(9)).await;
        let waited = answered(&mut client).await;
        assert!(waited >= REST, "{end}: {waited:?}");
        assert!(proxy.words().await[0].ends_with(&format!("End({end})")));
    }
}

/// The first client shows how long the failure and the wait for the body take together. Half of this time is after the
/// failure and before the end of the wait, unless the failure alone takes 250 ms. So the second client leaves then.
#[tokio::test]
async fn a_client_that_leaves_meanwhile_does_not_hide_the_failure() {
    for (end, mut proxy) in unanswering().await {
        let mut client = proxy.client().await;
        client.write(length(9)).await;
        let waited = answered(&mut client).await;
        let mut client = proxy.client().await;
        client.write(length(9)).await;
        tokio::time::sleep(waited / 2).await;
        drop(client);
        let words = proxy.words().await;
        assert!(words[1].ends_with(&format!("End({end})")), "after {waited:?}: {words:?}");
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_answered_at_once() {
    for (end, mut proxy) in unanswering().await {
        let request = head("Content-Length: 9\r\nExpect: 100-continue");
        answered_at_once(&proxy, &request).await.expect(end);
        proxy.words().await;
        assert_eq!(proxy.observed(Direction::Request), b"");
    }
}

/// While a connection is being opened, the body is read, so the observer knows the call and detects a client that
/// leaves.
#[tokio::test]
async fn observes_the_body_while_connecting() {
    let backlog = tokio::net::TcpSocket::new_v4().unwrap();
    backlog.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = backlog.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let _first = TcpStream::connect(address).await.unwrap();
    let mut proxy = Proxy::to(address).await;
    let mut client = proxy.client().await;
    client.write(length(PROMPT.len() + 1)).await;
    client.write(PROMPT).await;
    within("the body", async {
        while proxy.observed(Direction::Request) != PROMPT.as_bytes() {
            tokio::task::yield_now().await;
            proxy.drain();
        }
    })
    .await;
    drop(client);
    assert_eq!(proxy.words().await, ["Open Admitted Arrival(Request) End(RequestBodyFailed)"]);
}
