//! Records with literal values, for the tests of this crate.

use std::sync::Arc;
use std::time::Duration;

use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{
    McpMessage, Operation, RateLimit, RateLimits, RequestFacts, Timings, Usage,
};
use tokengauge_measure::record::{
    Call, ChoiceStatus, Completeness, ConnectionSample, Cost, CostParts, FinishedChoice, Http,
    LengthBucket, LengthBuckets, Mcp, McpOperation, MetricLabels, Network, Outcome, Output, Record,
    Verdict, WarmupState,
};
use tokengauge_measure::timing::{Rates, Stalls, Timestamps};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    CallerIdentity, ConnectTimings, Ending, ErrorSource, ExchangeId, Headers, ProxyPosition,
    RouteFacts, Scheme, TraceContext,
};
use tokengauge_types::label::{Label, Name};

fn timings() -> Timings {
    Timings {
        queue: Some(Duration::from_millis(30)),
        prefill: Some(Duration::from_millis(120)),
        ..Timings::default()
    }
}

fn quota() -> RateLimits {
    RateLimits {
        tokens: RateLimit { remaining: Some(29_000), ..RateLimit::default() },
        ..RateLimits::default()
    }
}

pub fn name(text: &str) -> Option<Name> {
    Name::new(text)
}

pub fn route() -> Arc<RouteFacts> {
    Arc::new(RouteFacts::for_upstream("default", "api.example.com", 443))
}

pub fn series() -> MetricLabels {
    MetricLabels {
        operation: Operation::Chat,
        provider: Label::from_trusted("openai"),
        model: Label::from_trusted("gpt-4o"),
        stream: true,
        route: Label::from_trusted("default"),
        position: ProxyPosition::Outbound,
        server_address: Label::from_trusted("api.example.com"),
        server_port: 443,
        tenant: None,
        variant: None,
    }
}

fn timestamps() -> Timestamps {
    let at = |millis| Some(MonotonicInstant::from_millis(millis));
    Timestamps {
        accept: MonotonicInstant::from_millis(100),
        admit: at(100),
        sent: at(120),
        uploaded: at(121),
        head: at(400),
        byte: at(401),
        event: at(402),
        token: at(500),
        visible: at(700),
        last: at(2_500),
        end: at(2_600),
    }
}

fn http(method: http::Method, path: &str) -> Http {
    Http {
        method,
        path: Name::new(path).expect("not empty"),
        host: name("gateway.example.com"),
        scheme: Scheme::Http,
        version: http::Version::HTTP_11,
        status: Some(200),
        own: false,
        client: Some([192, 0, 2, 7].into()),
        request_bytes: 812,
        response_bytes: 20_480,
        request_headers: [("user-agent", Name::new("OpenAI/Python 2.8.1").expect("not empty"))]
            .into_iter()
            .collect(),
        response_headers: Headers::default(),
    }
}

/// Returns a record of plain HTTP, which is not a call of a known API.
pub fn plain() -> Record {
    let timestamps =
        Timestamps { event: None, token: None, visible: None, last: None, ..timestamps() };
    Record {
        exchange: ExchangeId(7),
        wall: WallTime::from_unix_nanos(1_800_000_000_000_000_000),
        edge_wait: Some(Duration::from_millis(75)),
        timestamps,
        stages: timestamps.stages(),
        route: route(),
        caller: CallerIdentity::default(),
        trace: TraceContext {
            trace_id: *b"0123456789abcdef",
            parent: Some(*b"parent00"),
            parent_sampled: Some(true),
            server_span: *b"server00",
            client_span: *b"client00",
            state: Some("vendor=1".into()),
        },
        http: http(http::Method::GET, "/health"),
        websocket: None,
        call: None,
        outcome: Outcome::Ok,
        ending: Ending::Complete,
        error_source: ErrorSource::None,
        error_type: None,
        connected: Some(ConnectTimings {
            dns: Some(Duration::from_millis(2)),
            tcp: Some(Duration::from_millis(8)),
            tls: Some(Duration::from_millis(9)),
            ..ConnectTimings::default()
        }),
        network: Network {
            client: Some(ConnectionSample {
                rtt: Some(Duration::from_millis(4)),
                least_rtt: Some(Duration::from_millis(3)),
                retransmits: 0,
            }),
            upstream: Some(ConnectionSample {
                rtt: Some(Duration::from_millis(8)),
                least_rtt: None,
                retransmits: 2,
            }),
        },
        blocked: Duration::ZERO,
        anomalies: Vec::new(),
        is_turn: false,
        gateway_usage: None,
        mcp: None,
    }
}

fn usage() -> Usage {
    Usage {
        input: Some(120),
        output: Some(101),
        cache_read: Some(64),
        cache_write: None,
        reasoning: Some(20),
        ..Usage::default()
    }
}

fn output() -> Output {
    Output {
        tokens: 101.0,
        source: Some(Source::Reported),
        counted: 101,
        counted_source: Some(Source::Counted),
        counted_first: 1,
        standard: 101,
        hidden: 0,
        by_kind: [81, 20, 0, 0, 0],
    }
}

/// Returns a successful streamed chat with 101 tokens, 1 of them in the first chunk.
pub fn streamed() -> Record {
    let timestamps = timestamps();
    Record {
        timestamps,
        stages: timestamps.stages(),
        http: http(http::Method::POST, "/v1/chat/completions"),
        websocket: None,
        call: Some(Call {
            series: series(),
            request: RequestFacts {
                model: name("gpt-4o"),
                stream: Some(true),
                max_tokens: Some(256),
                temperature: Some(0.5),
                prompt_bytes: 400,
                ..RequestFacts::default()
            },
            streamed: true,
            compacted: false,
            response_id: name("chatcmpl-1"),
            response_model: name("gpt-4o-2024-08-06"),
            service_tier: name("default"),
            system_fingerprint: name("fp_1"),
            choices: vec![FinishedChoice { reason: name("stop"), status: ChoiceStatus::Complete }],
            length_buckets: LengthBuckets {
                input: Some(LengthBucket::Below128),
                output: Some(LengthBucket::From128),
            },
            usage: Some(usage()),
            fetched_usage: None,
            timings: Some(timings()),
            quota: Some(quota()),
            output: Some(output()),
            tokenizer: Some(Label::from_trusted("o200k_base")),
            rates: Rates::of_stream(&timestamps, &output(), Duration::ZERO, true),
            complete: Completeness::Complete,
            queue_depth: 3,
            warm: Some(WarmupState::Warming),
            stalls: Stalls::default(),
            cost: Some(Cost {
                amount: 0.0125,
                currency: Label::from_trusted("USD"),
                source: Source::Reported,
                parts: CostParts {
                    input: 0.002,
                    cache_read: 0.001,
                    cache_write: 0.0005,
                    cache_write_1h: 0.0005,
                    output: 0.006,
                    reasoning: 0.002,
                    request: 0.0005,
                },
            }),
            verdicts: vec![(Label::from_trusted("ttft"), Verdict::Good)],
            content: None,
        }),
        ..plain()
    }
}

/// Returns a non-streaming embeddings call that the provider rejected.
pub fn refused() -> Record {
    let mut record = streamed();
    record.timestamps = plain().timestamps;
    record.stages = record.timestamps.stages();
    record.http.status = Some(429);
    record.outcome = Outcome::Error;
    record.error_source = ErrorSource::Upstream;
    record.error_type = name("rate_limit_exceeded");
    record.blocked = Duration::from_millis(40);
    if let Some(call) = &mut record.call {
        call.series.operation = Operation::Embeddings;
        call.series.stream = false;
        call.streamed = false;
        call.request.stream = None;
        call.response_id = None;
        call.response_model = None;
        call.choices = Vec::new();
        call.usage = None;
        call.output = None;
        call.rates = Rates::default();
    }
    record
}

/// Returns a call of an MCP tool: accepted at 100 ms, sent at 120 ms and answered at 500 ms.
pub fn tool_call() -> Record {
    let message = McpMessage {
        is_json_rpc: true,
        id: name("7"),
        method: name("tools/call"),
        target: name("get-weather"),
        ..McpMessage::default()
    };
    let operation = McpOperation {
        answered: Some(MonotonicInstant::from_millis(500)),
        ..McpOperation::new(message)
    };
    let mcp = Mcp {
        session: name("1868a90c"),
        protocol_version: name("2025-06-18"),
        operations: vec![operation],
    };
    Record { mcp: Some(Box::new(mcp)), http: http(http::Method::POST, "/mcp"), ..plain() }
}
