//! Tests trace headers on their way upstream. They pass unchanged, or with the proxy's span as the parent and no other
//! change.

use tokengauge::forward::TraceHeaders;
use tokengauge::forward::{Propagation, Propagator};

use crate::support::{Backend, Setup, lines};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// Returns all headers that can contain a trace context, each with an unusual value, and some other headers.
fn headers() -> Vec<String> {
    [
        "X-First: 1",
        &format!("TraceParent: 00-{TRACE}-{SPAN}-00"),
        "traceState: a=1, b=2",
        "tracestate: c=3",
        "Baggage: session.id=s%20,a=1;p",
        &format!("b3: {TRACE}-{SPAN}-1"),
        &format!("X-B3-TraceId: {TRACE}"),
        &format!("X-B3-SpanId: {SPAN}"),
        "X-B3-ParentSpanId: 0000000000000001",
        "X-B3-Sampled: 1",
        "X-Last:  padded ",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Returns the header lines that the upstream receives, without the request line and the host.
async fn passed_on(setup: Setup, backend: &Backend, headers: &[String]) -> Vec<String> {
    let mut proxy = setup.start().await;
    let mut client = proxy.client().await;
    let sent = headers.join("\r\n");
    client.write(format!("GET / HTTP/1.1\r\nHost: a\r\n{sent}\r\n\r\n")).await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    client.read_head().await;
    proxy.words().await;
    let told = proxy.opened();
    assert_eq!(told.trace.state.as_deref(), Some("a=1,b=2,c=3"));
    assert_eq!(told.conversation.as_ref().map(|id| id.as_str()), Some("s "));
    let is_host = |line: &&str| line.to_ascii_lowercase().starts_with("host:");
    let lines = lines(&head).into_iter().skip(1);
    lines.filter(|line| !is_host(line)).map(str::to_owned).collect()
}

#[tokio::test]
async fn by_default_trace_headers_pass_unchanged() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.propagation = everything(|| true);
    let mut expected = headers();
    // White space around a value is not part of the value.
    *expected.last_mut().unwrap() = "X-Last: padded".to_owned();
    // hyper keeps the order of values under one name, and puts them next to each other.
    assert_eq!(passed_on(setup, &backend, &headers()).await, expected);
}

#[tokio::test]
async fn continuing_a_trace_changes_only_trace_headers() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.trace = TraceHeaders::Continue;
    // The caller does not sample the trace, but the proxy does. The flag is the proxy's decision.
    setup.propagation = everything(|| true);
    let got = passed_on(setup, &backend, &headers()).await;
    let span = got[1]
        .strip_prefix(&format!("TraceParent: 00-{TRACE}-"))
        .and_then(|rest| rest.strip_suffix("-01"))
        .unwrap_or_else(|| panic!("{got:?}"))
        .to_owned();
    assert!(span.len() == 16 && span != SPAN, "{span}");
    let expected = [
        "X-First: 1".to_owned(),
        format!("TraceParent: 00-{TRACE}-{span}-01"),
        "traceState: a=1, b=2".to_owned(),
        "tracestate: c=3".to_owned(),
        "Baggage: session.id=s%20,a=1;p".to_owned(),
        format!("b3: {TRACE}-{span}-1"),
        format!("X-B3-TraceId: {TRACE}"),
        format!("X-B3-SpanId: {span}"),
        "X-B3-Sampled: 1".to_owned(),
        "X-Last: padded".to_owned(),
    ];
    let (mut got, mut expected) = (got, expected.to_vec());
    // If one header is removed, another header moves, because hyper determines the order of names.
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
}

#[tokio::test]
async fn writes_only_the_listed_formats() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.trace = TraceHeaders::Continue;
    setup.propagation = Propagation::default();
    let mut got = passed_on(setup, &backend, &headers()).await;
    let changed = got.remove(1);
    assert!(
        changed.starts_with(&format!("TraceParent: 00-{TRACE}-")) && changed.ends_with("-00"),
        "{changed}"
    );
    let mut rest = headers();
    rest.remove(1);
    *rest.last_mut().unwrap() = "X-Last: padded".to_owned();
    assert_eq!(got, rest);
}

fn everything(sampled: fn() -> bool) -> Propagation {
    Propagation::new(Propagator::ALL.to_vec(), Box::new(move |_| sampled()))
}
