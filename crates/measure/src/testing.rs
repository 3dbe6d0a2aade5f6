//! Example record for the tests of this crate: a successful stream, which each test modifies.

use std::sync::Arc;
use std::time::Duration;

use crate::record::{
    Call, Completeness, Http, LengthBuckets, MetricLabels, Network, Outcome, Output, Record,
};
use crate::slo::{CountingRules, Objective, Scope, Sli};
use crate::timing::{Rates, Stalls, Timestamps};
use tokengauge_llm::dialect::{Operation, RequestFacts};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    CallerIdentity, Ending, ErrorSource, ExchangeId, Headers, ProxyPosition, RouteFacts, Scheme,
    TraceContext,
};
use tokengauge_types::label::{Label, Name};

pub fn at(millis: u64) -> MonotonicInstant {
    MonotonicInstant::from_millis(1_000_000 + millis)
}

/// Availability, 99 % over a day.
pub fn objective(name: &str) -> Objective {
    Objective {
        name: Label::from_trusted(name),
        indicator: Sli::Availability,
        target: 0.99,
        window: Duration::from_secs(86_400),
        scope: Scope::default(),
        counting: CountingRules::default(),
    }
}

/// Returns a request to `gpt-4o` on route `default`. The first token arrives after 400 ms, then 160 tokens arrive at
/// 100 per second, and the response ends after 2 s.
pub fn stream() -> Record {
    let timestamps = Timestamps {
        accept: at(0),
        sent: Some(at(5)),
        head: Some(at(390)),
        token: Some(at(400)),
        visible: Some(at(400)),
        last: Some(at(1_990)),
        end: Some(at(2_000)),
        ..Timestamps::default()
    };
    Record {
        edge_wait: None,
        exchange: ExchangeId(1),
        wall: WallTime::default(),
        timestamps,
        stages: timestamps.stages(),
        route: Arc::new(route("default")),
        caller: CallerIdentity::default(),
        trace: TraceContext::default(),
        http: http(),
        websocket: None,
        call: Some(call()),
        outcome: Outcome::Ok,
        ending: Ending::Complete,
        error_source: ErrorSource::None,
        error_type: None,
        connected: None,
        network: Network::default(),
        blocked: Duration::ZERO,
        anomalies: Vec::new(),
        is_turn: false,
        gateway_usage: None,
        mcp: None,
    }
}

pub fn route(name: &str) -> RouteFacts {
    RouteFacts::for_upstream(name, "api.openai.com", 443)
}

fn http() -> Http {
    Http {
        method: http::Method::POST,
        path: Name::new("/v1/chat/completions").unwrap(),
        host: None,
        scheme: Scheme::Http,
        version: http::Version::HTTP_11,
        status: Some(200),
        own: false,
        client: None,
        request_bytes: 300,
        response_bytes: 9_000,
        request_headers: Headers::default(),
        response_headers: Headers::default(),
    }
}

fn call() -> Call {
    Call {
        series: MetricLabels {
            operation: Operation::Chat,
            provider: Label::from_trusted("openai"),
            model: Label::from_trusted("gpt-4o"),
            stream: true,
            route: Label::from_trusted("default"),
            position: ProxyPosition::Outbound,
            server_address: Label::from_trusted("api.openai.com"),
            server_port: 443,
            tenant: None,
            variant: None,
        },
        request: RequestFacts {
            model: Name::new("gpt-4o"),
            stream: Some(true),
            ..RequestFacts::default()
        },
        streamed: true,
        compacted: false,
        response_id: None,
        response_model: Name::new("gpt-4o-2024-08-06"),
        service_tier: None,
        system_fingerprint: None,
        choices: Vec::new(),
        length_buckets: LengthBuckets::default(),
        usage: None,
        fetched_usage: None,
        timings: None,
        quota: None,
        output: Some(Output { tokens: 160.0, ..Output::default() }),
        tokenizer: None,
        rates: Rates {
            output: Some(100.0),
            total: Some(80.0),
            time_per_output_token: Some(Duration::from_millis(10)),
            unrated: None,
        },
        complete: Completeness::Complete,
        queue_depth: 0,
        warm: None,
        stalls: Stalls::default(),
        cost: None,
        verdicts: Vec::new(),
        content: None,
    }
}
