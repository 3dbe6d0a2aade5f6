//! Record of a finished request and its response (an *exchange*), with its outcome.
//!
//! The record is one immutable struct. All API formats produce it, and all outputs (metrics, spans, logs) read only
//! this struct.

mod choice;
mod length_buckets;
mod mcp;
mod outcome;
mod output;
mod websocket;

pub use choice::{ChoiceContent, ChoiceStatus, FinishedChoice};
pub use length_buckets::{LengthBucket, LengthBuckets};
pub use mcp::{Mcp, McpOperation, McpSession};
pub use outcome::{ResponseSummary, classify};
pub use output::{Output, TokenCounts};
pub use websocket::{CloseFrame, Session, WebSocket};

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::timing::{Rates, Stages, Stalls, Timestamps};
use tokengauge_llm::content::CapturedContent;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{Operation, RateLimits, RequestFacts, Timings, Usage};
use tokengauge_llm::frame::ParseError;
use tokengauge_types::clock::WallTime;
use tokengauge_types::event::{
    CallerIdentity, ConnectTimings, Ending, ErrorSource, ExchangeId, GatewayUsage, Headers,
    ProxyPosition, RequestHead, ResponseHead, RouteFacts, Scheme, TraceContext,
};
use tokengauge_types::label::{Label, Name};
use tokengauge_types::label_enum;

/// All facts about one request after its end.
#[derive(Clone, Debug)]
pub struct Record {
    pub exchange: ExchangeId,
    pub wall: WallTime,
    /// Time between the receipt of the request at an earlier proxy and at this proxy. `None` if no earlier proxy
    /// reports a time.
    pub edge_wait: Option<Duration>,
    pub timestamps: Timestamps,
    pub stages: Stages,
    pub route: Arc<RouteFacts>,
    /// Caller identity from the request.
    pub caller: CallerIdentity,
    pub trace: TraceContext,
    pub http: Http,
    /// WebSocket data of a request that was upgraded; `None` for any other request.
    pub websocket: Option<WebSocket>,
    /// Data of the API call. `None` for plain HTTP: any request that is not a call of a known API.
    pub call: Option<Call>,
    /// Data of a request in the Model Context Protocol. `None` for any other request.
    pub mcp: Option<Box<Mcp>>,
    pub outcome: Outcome,
    pub ending: Ending,
    pub error_source: ErrorSource,
    /// Value of `error.type` in spans and metrics: the provider's error type or code, a status code, or a value of
    /// [`Outcome`]. `None` on success.
    pub error_type: Option<Name>,
    pub connected: Option<ConnectTimings>,
    pub network: Network,
    /// Total time during which the client did not read.
    pub blocked: Duration,
    /// Parse errors by kind, with their counts.
    pub anomalies: Vec<(ParseError, u32)>,
    /// Whether this is a call inside a WebSocket, and not an HTTP request of its own.
    pub is_turn: bool,
    /// Tokens as counted by a gateway in the path, if it reports them.
    pub gateway_usage: Option<GatewayUsage>,
}

/// Kernel statistics of the connections of a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Network {
    /// Connection from the client, or from a proxy in front of this one.
    pub client: Option<ConnectionSample>,
    /// Connection to the upstream, or to a proxy in between.
    pub upstream: Option<ConnectionSample>,
}

/// Last kernel statistics (`TCP_INFO`) of a connection during a request. An HTTP/2 connection may also have carried
/// other requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionSample {
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Lowest recent round-trip time.
    pub least_rtt: Option<Duration>,
    /// Segments retransmitted since the previous record of this connection, or since the connection opened.
    pub retransmits: u32,
}

/// HTTP facts of a request.
#[derive(Clone, Debug)]
pub struct Http {
    pub method: http::Method,
    pub path: Name,
    pub host: Option<Name>,
    pub scheme: Scheme,
    pub version: http::Version,
    /// HTTP status code. `None` if the upstream sent no response headers and the proxy generated no response.
    pub status: Option<u16>,
    /// Whether the proxy itself generated the response.
    pub own: bool,
    pub client: Option<std::net::IpAddr>,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub request_headers: Headers,
    pub response_headers: Headers,
}

impl Http {
    /// Moves the header data out of `open` and `head` to avoid copies. `bytes` holds the sizes of the request body and
    /// the response body.
    pub fn from_heads(
        open: &mut RequestHead,
        head: Option<&mut ResponseHead>,
        bytes: [u64; 2],
    ) -> Self {
        let [request_bytes, response_bytes] = bytes;
        Self {
            method: open.method.clone(),
            path: open.path.clone(),
            host: open.host.clone(),
            scheme: open.scheme,
            version: open.version,
            status: head.as_ref().map(|head| head.status),
            own: head.as_ref().is_some_and(|head| head.from_proxy),
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
    /// Whether the response was a stream.
    pub streamed: bool,
    /// Whether the context of the call is a compacted conversation.
    pub compacted: bool,
    /// Id of the response. For a WebSocket session, the session id, which identifies a conversation instead of a single
    /// response.
    pub response_id: Option<Name>,
    pub response_model: Option<Name>,
    pub service_tier: Option<Name>,
    pub system_fingerprint: Option<Name>,
    /// The choices (alternative answers), in order.
    pub choices: Vec<FinishedChoice>,
    /// Token usage as reported by the provider, converted to a common form.
    pub usage: Option<Usage>,
    /// Usage of a stored response that the call fetched. The call that generated the response used these tokens.
    pub fetched_usage: Option<Box<Usage>>,
    /// Durations of phases in the backend, as the backend reports them.
    pub timings: Option<Timings>,
    /// Remaining rate limits at the provider, from the response headers.
    pub quota: Option<RateLimits>,
    /// Output tokens. `None` for operations that generate nothing, and for failed calls that generated nothing.
    pub output: Option<Output>,
    /// Name of the encoding that [`Output::counted`] was counted in.
    pub tokenizer: Option<Label>,
    pub rates: Rates,
    pub length_buckets: LengthBuckets,
    pub complete: Completeness,
    /// Queue depth when the request was admitted.
    pub queue_depth: u32,
    /// Warm-up state of the backend when the request was admitted. `None` if warm-up detection is off.
    pub warm: Option<WarmupState>,
    /// Stalls: periods without a token that exceeded the route's threshold. All of these periods are over.
    pub stalls: Stalls,
    /// Cost of the call. `None` if the call used nothing or has no price.
    pub cost: Option<Cost>,
    /// Verdict of each SLO, by SLO name.
    pub verdicts: Vec<(Label, Verdict)>,
    /// Request and response content, if the route captures it.
    pub content: Option<Box<CapturedContent>>,
}

impl Call {
    /// Returns the cost in US dollars that the provider or a gateway reports.
    pub fn reported_cost(&self) -> Option<f64> {
        self.usage.as_ref().and_then(Usage::cost_in_usd)
    }

    /// Returns whether the reported cost and the cost by the price table differ by more than 1 % and 0.00001 USD, which
    /// allows for rounding. `None` unless both are known, in US dollars and from reported tokens.
    pub fn is_cost_disputed(&self) -> Option<bool> {
        let reported = self.reported_cost()?;
        let computed = self.cost.as_ref()?;
        let is_comparable =
            computed.currency.as_str() == "USD" && computed.source == Source::Reported;
        let tolerance = (computed.amount * 0.01).max(0.000_01);
        is_comparable.then(|| (reported - computed.amount).abs() > tolerance)
    }

    /// Returns the finish reasons that the provider sent, in the order of the choices.
    pub fn finish_reasons(&self) -> impl Iterator<Item = &Name> {
        self.choices.iter().filter_map(|choice| choice.reason.as_ref())
    }
}

/// Amount of money. Only amounts in the same currency are added up.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub amount: f64,
    /// ISO 4217 code, as written in the price table.
    pub currency: Label,
    /// [`Source::Reported`] if the provider reported the tokens, [`Source::Estimated`] if the proxy counted or
    /// estimated them.
    pub source: Source,
    /// Parts whose sum is the amount.
    pub parts: CostParts,
}

/// Parts of a cost, in the currency of the cost. A part without tokens is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostParts {
    /// Input that was not read from or written to a cache.
    pub input: f64,
    pub cache_read: f64,
    /// Cache writes except those for an hour.
    pub cache_write: f64,
    pub cache_write_1h: f64,
    /// Output without reasoning.
    pub output: f64,
    pub reasoning: f64,
    /// Fixed price of the request.
    pub request: f64,
}

impl CostParts {
    pub fn sum(&self) -> f64 {
        let Self { input, cache_read, cache_write, cache_write_1h, output, reasoning, request } =
            self;
        input + cache_read + cache_write + cache_write_1h + output + reasoning + request
    }
}

label_enum! {
    /// Whether the counted tokens are the complete response.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum Completeness {
        Complete = "true",
        /// The response was cut off.
        Cut = "cut",
        /// The observer missed part of the response.
        Unobserved = "unobserved",
    }
}

label_enum! {
    /// Warm-up state of the backend of a call.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum WarmupState {
        /// The backend had to load before it could respond.
        Cold = "cold",
        /// The backend responded but was not yet warmed up.
        Warming = "warming",
        Warm = "warm",
    }
}

label_enum! {
    /// Outcome of a request.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum Outcome {
        Ok = "ok",
        /// The upstream failed, sent an error status, or reported an error in the body or the stream.
        Error = "error",
        /// The client disconnected.
        Cancelled = "cancelled",
        /// A time limit of this proxy expired.
        Timeout = "timeout",
        /// A stream that began but ended without the provider's end marker.
        Truncated = "truncated",
        /// This proxy rejected the request.
        Rejected = "rejected",
    }
}

label_enum! {
    /// Verdict of one SLO on one request.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum Verdict {
        Good = "good",
        Bad = "bad",
        /// The request is in scope but does not count, because the client caused the error or the SLI is undefined.
        Excluded = "excluded",
    }
}

/// Labels of every per-call metric. All values are bounded.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MetricLabels {
    pub operation: Operation,
    pub provider: Label,
    pub model: Label,
    pub stream: bool,
    pub route: Label,
    pub position: ProxyPosition,
    pub server_address: Label,
    pub server_port: u16,
    /// Tenant name. `None` if no tenant header is configured, or if the request lacks this header.
    pub tenant: Option<Label>,
    pub variant: Option<Label>,
}

impl MetricLabels {
    /// Returns the labels without tenant and variant.
    #[must_use]
    pub fn without_identity(&self) -> Self {
        Self { tenant: None, variant: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    /// Returns whether a reported cost and a computed cost of 1 USD disagree.
    fn disputed(reported: Option<u64>, currency: &str, source: Source) -> Option<bool> {
        let mut call = stream().call.unwrap();
        call.usage = Some(Usage { cost_ticks: reported, ..Usage::default() });
        let currency = Label::from_trusted(currency);
        call.cost = Some(Cost { amount: 1.0, currency, source, parts: CostParts::default() });
        call.is_cost_disputed()
    }

    #[test]
    fn compares_the_reported_cost_within_one_percent() {
        for (ticks, expected) in
            [(10_000_000_000, false), (10_099_000_000, false), (10_101_000_000, true), (0, true)]
        {
            assert_eq!(disputed(Some(ticks), "USD", Source::Reported), Some(expected), "{ticks}");
        }
        assert_eq!(disputed(None, "USD", Source::Reported), None);
        assert_eq!(disputed(Some(1), "EUR", Source::Reported), None);
        assert_eq!(disputed(Some(1), "USD", Source::Estimated), None);
        let mut call = stream().call.unwrap();
        call.usage = Some(Usage { cost_ticks: Some(1), ..Usage::default() });
        assert_eq!(call.is_cost_disputed(), None, "without a price");
    }
}
