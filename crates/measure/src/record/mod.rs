//! One finished exchange and its outcome: the waist of the hour-glass.
//!
//! Many dialects above, many sinks below, one plain immutable struct between. A sink reads nothing else.

mod bands;
mod choice;
mod cost;
mod outcome;
mod output;
mod websocket;

pub use bands::{LengthBucket, LengthBuckets};
pub use choice::{ChoiceContent, ChoiceStatus};
pub use cost::Cost;
pub use outcome::{ResponseSummary, settle};
pub use output::{Output, TokenCounts};
pub use websocket::{CloseFrame, Session, WebSocket};

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::timing::{Rates, Stages, Stalls, Timestamps};
use tokengauge_llm::content::CapturedContent;
use tokengauge_llm::dialect::{Operation, RateLimits, RequestFacts, Timings, Usage};
use tokengauge_llm::frame::ParseError;
use tokengauge_types::clock::WallTime;
use tokengauge_types::event::{
    CallerIdentity, ConnectTimings, Ending, ErrorSource, ExchangeId, Headers, ProxyPosition,
    RequestHead, ResponseHead, RouteFacts, Scheme, TraceContext,
};
use tokengauge_types::label::{Label, Name};

/// Everything that is known of one exchange after its end.
#[derive(Clone, Debug)]
pub struct Record {
    pub exchange: ExchangeId,
    pub wall: WallTime,
    /// How long it was on its way before it reached this proxy, where a proxy before it says when it was received there.
    pub edge_wait: Option<Duration>,
    pub points: Timestamps,
    pub stages: Stages,
    pub route: Arc<RouteFacts>,
    /// Whom the request said it was for.
    pub who: CallerIdentity,
    pub trace: TraceContext,
    pub http: Http,
    /// What the exchange went on as after an upgrade; `None` for any other exchange.
    pub websocket: Option<WebSocket>,
    /// `None` for plain HTTP: whatever is no call of a known API.
    pub call: Option<Call>,
    pub outcome: Outcome,
    pub ending: Ending,
    pub fault: ErrorSource,
    /// `error.type` of spans and metrics: the provider's own type or code, a status code, or one of ours
    /// ([`Outcome`]'s words). `None` on success.
    pub error_type: Option<Name>,
    pub connected: Option<ConnectTimings>,
    pub network: Network,
    /// All time in which the client did not read.
    pub blocked: Duration,
    /// What was odd, each kind with how often.
    pub anomalies: Vec<(ParseError, u32)>,
}

/// What the kernel said of the connections that an exchange went over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Network {
    /// The client's, of which the far end is the client or a proxy before this one.
    pub client: Option<ConnectionSample>,
    /// The upstream's, of which the far end is the upstream or a proxy on the way to it.
    pub upstream: Option<ConnectionSample>,
}

/// A connection as the kernel last saw it in the course of an exchange. Over HTTP/2 it may have carried others too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionSample {
    /// The smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// The least one of late.
    pub least_rtt: Option<Duration>,
    /// Segments sent again since an exchange last told of this connection, or since it began.
    pub retransmits: u32,
}

/// The HTTP side of an exchange.
#[derive(Clone, Debug)]
pub struct Http {
    pub method: http::Method,
    pub path: Name,
    pub host: Option<Name>,
    pub scheme: Scheme,
    pub version: http::Version,
    /// `None` where no response head came and none was made.
    pub status: Option<u16>,
    /// Whether the proxy itself wrote the answer.
    pub own: bool,
    pub client: Option<std::net::IpAddr>,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub request_headers: Headers,
    pub response_headers: Headers,
}

impl Http {
    /// Takes the headers out of both heads; `bytes` of the request's body and of the response's.
    pub fn of(open: &mut RequestHead, head: Option<&mut ResponseHead>, bytes: [u64; 2]) -> Self {
        let [request_bytes, response_bytes] = bytes;
        Self {
            method: open.method.clone(),
            path: open.path.clone(),
            host: open.host.clone(),
            scheme: open.scheme,
            version: open.version,
            status: head.as_ref().map(|head| head.status),
            own: head.as_ref().is_some_and(|head| head.own),
            client: open.client,
            request_bytes,
            response_bytes,
            request_headers: std::mem::take(&mut open.headers),
            response_headers: head
                .map_or_else(Headers::default, |head| std::mem::take(&mut head.headers)),
        }
    }
}

/// A call of a known API.
#[derive(Clone, Debug)]
pub struct Call {
    pub series: MetricLabels,
    pub request: RequestFacts,
    /// Whether the answer came as a stream.
    pub streamed: bool,
    /// Of a session its own id, which names a conversation and no single response.
    pub response_id: Option<Name>,
    pub response_model: Option<Name>,
    pub service_tier: Option<Name>,
    pub system_fingerprint: Option<Name>,
    /// The provider's raw words, one per choice in order; `error` where one was owed and never came.
    pub finish_reasons: Vec<Name>,
    /// What became of the choices, one for each finish reason.
    pub choices: Vec<ChoiceStatus>,
    /// As reported, harmonised.
    pub usage: Option<Usage>,
    /// What the backend says of its own phases.
    pub timings: Option<Timings>,
    /// What the head says is left of the caller's limits.
    pub quota: Option<RateLimits>,
    /// `None` for operations that generate nothing, and for failed ones that generated nothing.
    pub output: Option<Output>,
    /// The name of the encoding in which [`Output::counted`] was counted.
    pub tokenizer: Option<Label>,
    pub rates: Rates,
    pub bands: LengthBuckets,
    pub complete: Completeness,
    /// Queue depth when the exchange was admitted.
    pub queue_depth: u32,
    /// How the exchange found its backend when it was admitted; `None` where nobody asks.
    pub warm: Option<WarmupState>,
    /// When it brought no token for longer than its route allows. All of them are over.
    pub stalls: Stalls,
    /// What it cost; `None` where it used nothing, or where that has no price.
    pub cost: Option<Cost>,
    /// What each objective said: its name and verdict.
    pub verdicts: Vec<(Label, Verdict)>,
    /// What was asked and answered, where the route captures it.
    pub content: Option<Box<CapturedContent>>,
}

/// Whether what was counted is all there was.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Completeness {
    True,
    /// Ended before its end.
    Cut,
    /// The observer lost part of it.
    Unobserved,
}

impl Completeness {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Cut => "cut",
            Self::Unobserved => "unobserved",
        }
    }
}

/// How warm the backend was that answered.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmupState {
    /// It had to load before it could answer.
    Cold,
    /// It answered, and had not settled.
    Warming,
    Warm,
}

impl WarmupState {
    pub const ALL: [Self; 3] = [Self::Cold, Self::Warming, Self::Warm];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warming => "warming",
            Self::Warm => "warm",
        }
    }
}

/// How an exchange came out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Ok,
    /// An error status, an error in the body or the stream, or a failed upstream.
    Error,
    /// The client left.
    Cancelled,
    /// A time limit of this proxy ran out.
    Timeout,
    /// A stream whose answer began but did not end by the provider's own word.
    Truncated,
    /// This proxy refused it.
    Rejected,
}

impl Outcome {
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Error, Self::Cancelled, Self::Timeout, Self::Truncated, Self::Rejected];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Truncated => "truncated",
            Self::Rejected => "rejected",
        }
    }
}

/// What one objective says of one exchange.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Good,
    Bad,
    /// In scope, but does not count (the client's own fault, or its indicator is undefined).
    Excluded,
}

impl Verdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Excluded => "excluded",
        }
    }
}

/// What every per-call metric is told apart by, with bounded values throughout.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MetricLabels {
    pub operation: Operation,
    pub provider: Label,
    pub model: Label,
    pub stream: bool,
    pub route: Label,
    pub vantage: ProxyPosition,
    pub server_address: Label,
    pub server_port: u16,
    /// `None` where the configuration names no header for it, or the request did not have one.
    pub tenant: Option<Label>,
    pub variant: Option<Label>,
}
