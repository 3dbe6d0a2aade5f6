use std::collections::HashMap;

use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::*;
use crate::access_log::AccessLog;
use crate::proto::{
    AccessLogCommon, HeaderMap, HeaderValue, HttpAccessLogEntries, HttpAccessLogEntry,
    HttpRequestProperties, HttpTrailers, ProtocolConfiguration, StreamAccessLogsMessage,
};
use crate::routes::Routes;
use crate::service::{Dependencies, EnvoyService};
use tokengauge_observe::tee::{Batch, ChannelConfig, ObservationChannel};
use tokengauge_observe::trace::Propagation;
use tokengauge_telemetry::EnvoyCounts;
use tokengauge_types::event::{
    GatewayUsage, ResponseHead, SessionRule, TimeoutKind, UpstreamFailure,
};

/// A service, and the channel to which it reports.
struct Scene {
    channel: Arc<ObservationChannel>,
    service: EnvoyService,
}

impl Scene {
    fn new() -> Self {
        let config = ChannelConfig { shards: 1, budget_bytes: 1 << 20, max_requests: 8 };
        let channel = Arc::new(ObservationChannel::new(config));
        let service = EnvoyService::new(Dependencies {
            channel: Arc::clone(&channel),
            routes: Routes::new(Box::new(|_| None)),
            propagation: Propagation::default(),
            identity: Box::new(|headers, _| {
                let identity = CallerIdentity {
                    tenant: headers.get("x-tenant").and_then(|it| Name::new(it.to_str().ok()?)),
                    ..CallerIdentity::default()
                };
                (identity, SessionRule::default())
            }),
            counts: Arc::default(),
            ready: Arc::default(),
        });
        Self { channel, service }
    }

    fn counts(&self) -> EnvoyCounts {
        self.service.shared().counts.read()
    }

    fn stream(&self) -> Stream {
        Stream { processor: Processor::new(self.service.shared()), answers: BytesMut::new() }
    }

    /// The events since the last call, and the bytes of all bodies.
    fn events(&self) -> (Vec<ObserverEvent>, Vec<u8>) {
        let mut batch = Batch::default();
        self.channel.drain(0, &mut batch);
        (batch.entries.into_iter().map(|entry| entry.event).collect(), batch.bytes)
    }

    fn ending(&self) -> Option<Ending> {
        self.events().0.into_iter().find_map(|event| {
            if let ObserverEvent::End(ending) = event { Some(ending) } else { None }
        })
    }

    fn log(&self, id: &str, flags: &'static [u8]) {
        let log = AccessLog {
            open: Arc::clone(&self.service.shared().open),
            counts: Arc::clone(&self.service.shared().counts),
        };
        let entry = HttpAccessLogEntry {
            common_properties: Some(AccessLogCommon {
                response_flags: Bytes::from_static(flags),
                duration: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
                intermediate_log_entry: false,
            }),
            request: Some(HttpRequestProperties { request_id: id.to_owned() }),
            response: None,
        };
        let http_logs = Some(HttpAccessLogEntries { log_entry: vec![entry] });
        log.apply(at(9_000), StreamAccessLogsMessage { http_logs });
    }
}

struct Stream {
    processor: Processor,
    answers: BytesMut,
}

impl Stream {
    fn send(&mut self, millis: u64, part: Part) -> Flow {
        self.apply(millis, ProcessingRequest { observability_mode: true, ..of(part) })
    }

    fn apply(&mut self, millis: u64, message: ProcessingRequest) -> Flow {
        self.processor.apply(at(millis), message, &mut self.answers)
    }
}

fn at(millis: u64) -> MonotonicInstant {
    MonotonicInstant::from_nanos(millis * 1_000_000)
}

fn of(part: Part) -> ProcessingRequest {
    ProcessingRequest { part: Some(part), ..ProcessingRequest::default() }
}

fn headers(pairs: &[(&str, &str)]) -> HttpHeaders {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        raw_value: Bytes::new(),
    };
    let headers = Some(HeaderMap { headers: pairs.iter().map(header).collect() });
    HttpHeaders { headers, end_of_stream: false }
}

fn post(id: &str) -> HttpHeaders {
    headers(&[
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (":authority", "llm"),
        ("x-request-id", id),
        ("x-tenant", "of the header"),
    ])
}

fn ok() -> Part {
    Part::ResponseHeaders(headers(&[(":status", "200")]))
}

fn body(data: &'static [u8], end_of_stream: bool) -> HttpBody {
    HttpBody { body: Bytes::from_static(data), end_of_stream, end_of_stream_without_message: false }
}

fn group(pairs: &[(&str, Kind)]) -> Struct {
    let field =
        |(name, kind): &(&str, Kind)| ((*name).to_owned(), Value { kind: Some(kind.clone()) });
    Struct { fields: pairs.iter().map(field).collect() }
}

fn word(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

fn attributes(pairs: &[(&str, Kind)]) -> HashMap<String, Struct> {
    HashMap::from([("envoy.filters.http.ext_proc".to_owned(), group(pairs))])
}

#[test]
fn a_stream_becomes_the_events_of_an_exchange() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    let names = attributes(&[
        ("xds.route_name", word("chat")),
        ("xds.cluster_name", word("vllm")),
        ("source.address", word("192.0.2.7:5000")),
    ]);
    let metadata = HashMap::from([("tokengauge".to_owned(), group(&[("session", word("s-1"))]))]);
    stream.apply(
        1,
        ProcessingRequest {
            observability_mode: true,
            attributes: names,
            metadata_context: Some(Metadata { filter_metadata: metadata, ..Metadata::default() }),
            ..of(Part::RequestHeaders(post("a")))
        },
    );
    stream.send(2, Part::RequestBody(body(b"ask", true)));
    stream.send(3, ok());
    assert_eq!(stream.send(4, Part::ResponseBody(body(b"ans", false))), Flow::Continue);
    assert_eq!(stream.send(5, Part::ResponseBody(body(b"wer", true))), Flow::Finished);
    let (events, bytes) = scene.events();
    assert_eq!(bytes, b"askanswer");
    let [ObserverEvent::RequestHead(head), rest @ ..] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((head.route.name.as_str(), head.route.server_address.as_str()), ("chat", "vllm"));
    assert_eq!(head.client, Some("192.0.2.7".parse().unwrap()));
    assert_eq!(head.identity.tenant, Name::new("of the header"));
    assert_eq!(head.identity.session, Name::new("s-1"));
    let is_expected = matches!(
        rest,
        [
            ObserverEvent::Admitted,
            ObserverEvent::RequestHeadSent,
            ObserverEvent::Body { direction: Direction::Request, .. },
            ObserverEvent::RequestBodySent,
            ObserverEvent::ResponseHead(_),
            ObserverEvent::Body { direction: Direction::Response, .. },
            ObserverEvent::Body { direction: Direction::Response, .. },
            ObserverEvent::End(Ending::Complete),
        ]
    );
    assert!(is_expected, "{rest:?}");
    assert!(stream.answers.is_empty(), "observability mode");
    stream.processor.close(at(6), Closed::Lost);
    assert!(scene.events().0.is_empty());
    assert_eq!(scene.counts().unknown_ends, 0);
}

#[test]
fn trailers_end_the_response() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    stream.send(0, Part::RequestHeaders(HttpHeaders { end_of_stream: true, ..post("a") }));
    stream.send(1, ok());
    stream.send(2, Part::ResponseBody(body(b"x", false)));
    assert_eq!(stream.send(3, Part::ResponseTrailers(HttpTrailers {})), Flow::Finished);
    assert_eq!(scene.ending(), Some(Ending::Complete));
}

#[test]
fn a_filter_that_waits_is_answered_at_once_and_counted() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    stream.apply(0, of(Part::RequestHeaders(post("a"))));
    stream.apply(1, of(ok()));
    stream.apply(2, of(Part::ResponseBody(body(b"x", true))));
    let answers: Vec<u8> =
        [1, 2, 4].iter().flat_map(|field| [0, 0, 0, 0, 2, field << 3 | 2, 0]).collect();
    assert_eq!(stream.answers, answers);
    assert_eq!(scene.counts().answered_messages, 3);
    assert_eq!(scene.ending(), Some(Ending::Complete));
}

#[test]
fn a_stream_that_cannot_be_observed_is_ended_and_counted() {
    let scene = Scene::new();
    assert_eq!(scene.stream().send(0, ok()), Flow::Finished);
    let config = ProtocolConfiguration { request_body_mode: 0, response_body_mode: 4 };
    let message = of(Part::RequestHeaders(post("a")));
    let duplex = ProcessingRequest { protocol_config: Some(config), ..message };
    assert_eq!(scene.stream().apply(0, duplex), Flow::Finished);
    assert!(scene.events().0.is_empty());
    assert_eq!(scene.counts().refused_streams, 2);
}

#[test]
fn a_response_of_envoy_itself_ends_as_its_flags_say() {
    let scene = Scene::new();
    for (flags, ending) in [
        (0x20, Ending::UpstreamFailed(UpstreamFailure::Connect)),
        (0x40, Ending::UpstreamFailed(UpstreamFailure::BeforeResponse)),
        (0x4, Ending::TimedOut(TimeoutKind::Total)),
        (0x1000, Ending::Complete),
    ] {
        let mut stream = scene.stream();
        stream.send(0, Part::RequestHeaders(post("a")));
        stream.apply(
            1,
            ProcessingRequest {
                observability_mode: true,
                attributes: attributes(&[
                    ("response.flags", Kind::NumberValue(f64::from(flags))),
                    ("response.code_details", word("of envoy")),
                ]),
                ..of(Part::ResponseHeaders(headers(&[(":status", "503")])))
            },
        );
        stream.send(2, Part::ResponseBody(body(b"x", true)));
        let (events, _) = scene.events();
        let is_own = |event: &ObserverEvent| {
            let ObserverEvent::ResponseHead(head) = event else { return false };
            let ResponseHead { status, from_proxy, .. } = **head;
            status == 503 && from_proxy
        };
        assert!(events.iter().any(is_own), "{events:?}");
        assert!(matches!(events.last(), Some(ObserverEvent::End(end)) if *end == ending));
    }
}

#[test]
fn the_access_log_tells_aborts_apart() {
    // Fields of `ResponseFlags`: 15 is the client, 7 the upstream, 3 the timeout.
    for (flags, ending) in [
        (&[15 << 3, 1][..], Ending::ClientDisconnected),
        (&[7 << 3, 1], Ending::UpstreamFailed(UpstreamFailure::MidBody)),
        (&[3 << 3, 1], Ending::TimedOut(TimeoutKind::Total)),
    ] {
        let scene = Scene::new();
        let mut stream = scene.stream();
        stream.send(0, Part::RequestHeaders(post("a")));
        stream.send(1, ok());
        stream.send(4_000, Part::ResponseBody(body(b"x", false)));
        scene.log("a", flags);
        let mut batch = Batch::default();
        scene.channel.drain(0, &mut batch);
        let last = batch.entries.last().unwrap();
        assert!(matches!(last.event, ObserverEvent::End(end) if end == ending), "{last:?}");
        assert_eq!(last.at, at(4_000), "not before the last chunk, although the log has 3 s");
        stream.processor.close(at(9_500), Closed::ByEnvoy);
        let counts = scene.counts();
        assert_eq!((counts.unknown_ends, counts.unobserved_requests), (0, 0));
    }
}

#[test]
fn requests_that_only_the_access_log_reports_are_counted() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    stream.send(0, Part::RequestHeaders(post("a")));
    scene.log("a", b"");
    assert_eq!(scene.ending(), None, "without a flag, the stream reports the end");
    scene.log("other", b"");
    scene.log("", b"");
    assert_eq!(scene.counts().unobserved_requests, 1);
}

#[test]
fn an_end_without_an_explanation_is_marked_as_not_observed() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    stream.send(0, Part::RequestHeaders(post("a")));
    stream.send(1, ok());
    stream.processor.close(at(2), Closed::ByEnvoy);
    let (events, _) = scene.events();
    let end = [
        ObserverEvent::Gap { direction: Direction::Response, bytes: 0 },
        ObserverEvent::End(Ending::Complete),
    ];
    assert_eq!(format!("{:?}", &events[4..]), format!("{end:?}"));
    assert_eq!(scene.counts().unknown_ends, 1);
}

#[test]
fn a_client_that_leaves_before_the_response_is_recognized() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    stream.send(0, Part::RequestHeaders(post("a")));
    stream.processor.close(at(2), Closed::ByEnvoy);
    assert_eq!(scene.ending(), Some(Ending::ClientDisconnected));
    let mut lost = scene.stream();
    lost.send(0, Part::RequestHeaders(post("b")));
    lost.processor.close(at(2), Closed::Lost);
    assert_eq!(scene.ending(), Some(Ending::Complete));
    assert_eq!(scene.counts().unknown_ends, 1);
}

#[test]
fn a_dropped_message_is_a_gap() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    stream.processor.skip(1);
    stream.send(0, Part::RequestHeaders(post("a")));
    stream.send(1, ok());
    stream.processor.skip(70_000);
    stream.processor.skip(5);
    stream.send(3, Part::ResponseBody(body(b"x", true)));
    let (events, _) = scene.events();
    let gap = ObserverEvent::Gap { direction: Direction::Response, bytes: 70_005 };
    assert_eq!(format!("{:?}", events[4]), format!("{gap:?}"));
    assert_eq!(scene.channel.lost().bytes, 70_005);
}

#[test]
fn repeated_messages_add_no_events() {
    let scene = Scene::new();
    let mut stream = scene.stream();
    let usage = group(&[("input_tokens", Kind::NumberValue(3.0))]);
    let usage = HashMap::from([("envoy.ai.token_usage".to_owned(), usage)]);
    for _ in 0..100 {
        stream.send(0, Part::RequestHeaders(post("a")));
        stream.send(0, Part::RequestTrailers(HttpTrailers {}));
        let metadata = Some(Metadata { filter_metadata: usage.clone(), ..Metadata::default() });
        stream.apply(
            1,
            ProcessingRequest { observability_mode: true, metadata_context: metadata, ..of(ok()) },
        );
    }
    let (events, _) = scene.events();
    assert_eq!(events.len(), 7, "{events:?}");
    let expected = GatewayUsage { input: Some(3), output: None };
    let is_usage = |event: &ObserverEvent| matches!(event, ObserverEvent::GatewayUsage(usage) if **usage == expected);
    assert!(events.iter().any(is_usage), "{events:?}");
}
