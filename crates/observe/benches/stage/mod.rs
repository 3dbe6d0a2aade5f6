//! In-flight requests without sockets and threads, and exchanges to play into them.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use tokengauge_console::{Recorder, Settings};
use tokengauge_llm::content::{CapturePolicy, Redactor};
use tokengauge_observe::{InFlightRequests, ObserverSettings, Sinks};
use tokengauge_telemetry::config::ExemplarFilter;
use tokengauge_telemetry::span;
use tokengauge_telemetry::{
    Instruments, SamplingDecision, SnapshotSource, StateSnapshot, TelemetryConfig,
};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, CallerIdentity, ConnectTimings, Direction, Ending, ExchangeId,
    Headers, ObserverEvent, RequestHead, ResponseHead, RouteFacts, Scheme, SessionRule,
    TimestampedEvent, TraceContext,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Name};

const WORDS: [&str; 10] =
    ["The", " harbour", " was", " quiet", " that", " morning", ",", " low", " tide", "."];
pub const CHUNKS: usize = 100;

/// In-flight requests, and the exchange that is played into them repeatedly.
pub struct Stage {
    requests: InFlightRequests,
    route: Arc<RouteFacts>,
    next: u64,
}

impl Stage {
    /// Creates the requests. `spans`: encode spans and keep exemplars, as if traces are exported.
    pub fn new(spans: bool) -> Self {
        let (mut config, _) = TelemetryConfig::from_env(|_| None);
        if spans {
            config.exemplars = ExemplarFilter::AlwaysOn;
        }
        let limits = CardinalityLimits::default();
        let (instruments, _) =
            Instruments::new(&config, limits, SnapshotSource::new(StateSnapshot::default));
        let sinks = Sinks {
            instruments,
            record: Box::new(move |record| {
                if spans {
                    black_box(span::encode_spans(record, None, SamplingDecision::default()));
                }
            }),
        };
        let limiter = Arc::new(CardinalityLimiter::new(limits, []));
        let mut requests = InFlightRequests::new(ObserverSettings::default(), limiter, sinks);
        // The console is on by default, and records each chunk.
        let (start, wall) =
            (MonotonicInstant::ZERO, WallTime::from_unix_nanos(1_700_000_000 << 30));
        requests.enable_console(Recorder::new(Settings::default(), start, wall));
        Self { requests, route: route(), next: 1 }
    }

    /// Captures the content of all exchanges, with the default redaction.
    pub fn with_content_capture(mut self) -> Self {
        let redact = Redactor::new(&[Redactor::DEFAULT_PATTERNS.to_owned()]);
        let policy = CapturePolicy {
            max_bytes: CapturePolicy::MAX_BYTES,
            redact: redact.expect("the default patterns are valid"),
        };
        let contents = [(self.route.name.clone(), policy)].into_iter().collect();
        let settings = ObserverSettings { contents, ..ObserverSettings::default() };
        self.requests.apply_settings(MonotonicInstant::ZERO, settings);
        self
    }

    pub fn exchange(&mut self, request: &str, content_type: &str, answer: &[String]) {
        let exchange = ExchangeId(self.next);
        let mut at = MonotonicInstant::from_nanos(self.next * 1_000_000);
        self.next += 1;
        let mut apply = |event: ObserverEvent, bytes: &[u8]| {
            at = at + Duration::from_micros(10);
            self.requests.apply(TimestampedEvent { exchange, at, event }, bytes);
        };
        apply(ObserverEvent::RequestHead(Box::new(open(&self.route))), b"");
        apply(ObserverEvent::Admitted, b"");
        apply(ConnectTimings::reused().into(), b"");
        apply(ObserverEvent::RequestHeadSent, b"");
        apply(arrival(Direction::Request, request), request.as_bytes());
        apply(ObserverEvent::RequestBodySent, b"");
        apply(ObserverEvent::ResponseHead(Box::new(head(content_type))), b"");
        for part in answer {
            apply(arrival(Direction::Response, part), part.as_bytes());
        }
        apply(ObserverEvent::End(Ending::Complete), b"");
    }
}

pub fn route() -> Arc<RouteFacts> {
    Arc::new(RouteFacts::for_upstream("default", "api.example.com", 443))
}

fn arrival(direction: Direction, body: &str) -> ObserverEvent {
    ObserverEvent::Body {
        direction,
        len: u32::try_from(body.len()).expect("bodies here are short"),
        blocked: BackpressureTime::default(),
    }
}

pub fn open(route: &Arc<RouteFacts>) -> RequestHead {
    RequestHead {
        wall: WallTime::from_unix_nanos(1_800_000_000_000_000_000),
        method: http::Method::POST,
        path: name("/v1/chat/completions"),
        whole_path: None,
        model: None,
        host: Name::new("gateway.example.com"),
        version: http::Version::HTTP_11,
        scheme: Scheme::Http,
        headers: [
            ("content-type", name("application/json")),
            ("user-agent", name("OpenAI/Python 2.8.1")),
        ]
        .into_iter()
        .collect(),
        length: None,
        client: Some([192, 0, 2, 7].into()),
        route: Arc::clone(route),
        trace: TraceContext {
            trace_id: *b"0123456789abcdef",
            server_span: *b"server00",
            client_span: *b"client00",
            ..TraceContext::default()
        },
        conversation: None,
        identity: CallerIdentity::default(),
        session_rule: SessionRule::default(),
        connection: None,
        body_wait: Arc::new(BodyWaitState::default()),
    }
}

fn head(content_type: &str) -> ResponseHead {
    let headers: Headers = [("content-type", name(content_type))].into_iter().collect();
    ResponseHead {
        status: 200,
        version: http::Version::HTTP_11,
        headers,
        length: None,
        from_proxy: false,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("not empty")
}

fn words() -> impl Iterator<Item = &'static str> {
    WORDS.into_iter().cycle().take(CHUNKS)
}

const USAGE: &str = r#"{"prompt_tokens":9,"completion_tokens":100,"total_tokens":109}"#;

pub const WHOLE_REQUEST: &str =
    r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Tell me of the harbour."}]}"#;
pub const STREAM_REQUEST: &str = r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"Tell me of the harbour."}]}"#;

/// Returns a JSON body with [`CHUNKS`] tokens.
pub fn whole() -> Vec<String> {
    let text: String = words().collect();
    vec![format!(
        r#"{{"id":"chatcmpl-0123456789","object":"chat.completion","created":1800000000,"model":"gpt-4o-2024-08-06","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{USAGE}}}"#
    )]
}

/// Returns a stream with one token in each of [`CHUNKS`] chunks, and two chunks at its end.
pub fn stream() -> Vec<String> {
    let event = |delta: &str, reason: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1800000000,\"model\":\"gpt-4o-2024-08-06\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{reason}}}]}}\n\n"
        )
    };
    let mut parts: Vec<_> =
        words().map(|word| event(&format!("\"content\":\"{word}\""), "null")).collect();
    parts.push(event("", "\"stop\""));
    parts.push("data: [DONE]\n\n".to_owned());
    parts
}
