//! The documents of `/api/v1/snapshot`, `/api/v1/live` and `/api/v1/requests`. The doc comments are the descriptions of
//! the JSON Schema.
//!
//! Times are in seconds, instants in milliseconds since 1970. `null` means unknown or undefined, never 0.

mod delta;
mod history;
mod request;
mod stream;

pub use delta::{Delta, HistoryDelta, NewGroup, StreamsDelta};
pub use history::{ErrorCounts, Group, HistogramData, History, Interval, StageSums};
pub use request::{
    ChunkStall, Money, PricedCost, RecentRequests, Request, RequestLists, RequestStages,
    TokenCount, Tokens,
};
pub use stream::Stream;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Text that several documents share.
pub type Text = Arc<str>;

/// Everything that a console shows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Snapshot {
    /// Version of this format: 1.
    pub schema: u32,
    /// Number of this state. Each `delta` event of `/api/v1/live` has the next number.
    pub sequence: u64,
    /// When the state was read.
    pub at_unix_ms: u64,
    /// The process that measures.
    pub process: Process,
    /// Settings and limits that a console needs.
    pub settings: Settings,
    /// Values of the last 60 s, and gauges.
    pub now: Now,
    /// What is wrong, worst first. Empty if nothing is.
    pub conditions: Vec<Condition>,
    /// The last 15 minutes in intervals of 5 s, per group.
    pub history: History,
    /// Requests in flight: stalled ones first, then oldest first.
    pub streams: Vec<Stream>,
    /// Requests in flight beyond `max_streams`.
    pub streams_left_out: u64,
    /// Notable finished requests of the last 15 minutes.
    pub requests: RequestLists,
    /// Latest conversations, most recent first: at most 100, with at most 50 requests each.
    pub sessions: Vec<Arc<Session>>,
    /// The objects of `/slo`, each with what consumed its error budget.
    pub slos: Vec<Slo>,
    /// The objects of `backends` in `/stats`.
    pub engines: Vec<serde_json::Value>,
    /// Rate limits that providers report.
    pub rate_limits: Vec<RateLimit>,
}

/// The process that measures.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Process {
    /// Host name, which is the name of the pod in Kubernetes.
    pub name: Text,
    /// Version of tokengauge.
    pub version: Text,
    /// When the process started. After a restart, this value differs.
    pub started_unix_ms: u64,
    /// Time since the start.
    pub uptime_seconds: f64,
}

/// Settings and limits that a console needs.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Settings {
    /// Length of the history.
    pub window_seconds: u64,
    /// Length of an interval.
    pub interval_seconds: u64,
    /// Maximum number of groups.
    pub max_groups: u64,
    /// Maximum number of entries in `streams`.
    pub max_streams: u64,
    /// Maximum number of requests in each list of `requests`.
    pub requests_per_list: u64,
    /// Address of a trace, with `{trace_id}` in place of the trace id. `null` without a configured address.
    pub trace_url: Option<Text>,
    /// Whether names of tenants and sessions are left out.
    pub names_hidden: bool,
    /// Whether requests carry sessions: a header for sessions is configured, or a request had a session.
    pub sessions_known: bool,
}

/// Values of the last 60 s (rates, shares and percentiles), and gauges.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Now {
    /// Finished API calls per second. `null` in the first second of the process.
    pub requests_per_second: Option<f64>,
    /// Share of the finished calls that failed, by source of the error. `null` if no call finished.
    pub error_share: Option<ErrorShare>,
    /// Output tokens per second of all calls together.
    pub output_tokens_per_second: Option<f64>,
    /// Output tokens per second of one finished stream. `null` without one.
    pub stream_output_tokens_per_second: Option<RatePercentiles>,
    /// Time to first token of finished streams. `null` without one.
    pub time_to_first_token_seconds: Option<TimePercentiles>,
    /// Inter-token latency of all streams. `null` without one.
    pub inter_token_latency_seconds: Option<TimePercentiles>,
    /// API calls and other requests in flight.
    pub in_flight: u64,
    /// Requests that wait for a permit or for a first token.
    pub queue_depth: u64,
    /// Streams in flight that are stalled.
    pub stalled: u64,
    /// The highest burn rate of all SLOs and windows. `null` if no window is covered.
    pub worst_burn_rate: Option<BurnRate>,
    /// Cost of the calls that finished, as an hourly rate. `null` if no call had a price, or with several currencies.
    pub cost_per_hour: Option<CostRate>,
}

/// Share of the finished calls that failed, by source of the error. Calls that the client cancelled are not errors.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ErrorShare {
    pub client: f64,
    pub upstream: f64,
    pub proxy: f64,
}

/// Percentiles of a rate, for which low values are bad.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RatePercentiles {
    pub p10: f64,
    pub p50: f64,
    /// Number of values.
    pub count: u64,
}

/// Percentiles of a time.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TimePercentiles {
    pub p50: f64,
    pub p95: f64,
    /// Number of values.
    pub count: u64,
}

/// A burn rate of one SLO.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BurnRate {
    /// Name of the SLO.
    pub slo: Text,
    /// Window of the burn rate: `5m`, `30m`, `1h`, `2h`, `6h`, `1d` or `3d`.
    pub window: Text,
    pub burn_rate: f64,
    /// Length of the window of the SLO's error budget.
    pub window_seconds: u64,
    /// Observed part of this window.
    pub covered_seconds: u64,
}

/// Cost of finished calls per hour.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CostRate {
    pub amount: f64,
    /// ISO 4217 code.
    pub currency: Text,
    /// Share of the amount that follows from counted or estimated tokens, because the provider reported none.
    pub estimated_share: f64,
}

/// Something that is wrong at the moment.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Condition {
    /// Identifies the condition while it lasts.
    pub id: Text,
    pub severity: Severity,
    /// The condition in words, with the measured value and its limit.
    pub text: Text,
    /// When the condition began. If the history does not show the start, when a reader first got the condition.
    pub since_unix_ms: u64,
    /// Name of the runbook: `/runbooks/NAME` on the admin port.
    pub runbook: Option<Text>,
    /// View of the console that shows details: `charts`, `streams`, `requests`, `slos` or `limits`.
    pub view: Text,
    /// Filter for this view.
    pub filter: Filter,
}

#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Critical,
    Warning,
}

/// Names that select part of the traffic. An absent name selects all.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Filter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Text>,
}

/// A conversation: the finished calls with the same session.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Session {
    pub id: Text,
    /// Product and version of the client, from `User-Agent`.
    pub agent: Option<Text>,
    /// Where the session was found: `configured`, the name of a header or body field, or `baggage`.
    pub source: Option<Text>,
    pub tenant: Option<Text>,
    /// Number of finished calls.
    pub calls: u64,
    /// Input tokens that providers reported. `null` if no call had a report.
    pub input_tokens: Option<u64>,
    /// Part of the input that was read from a cache. `null` if no call had a report.
    pub cached_input_tokens: Option<u64>,
    /// Output tokens of all calls.
    pub output_tokens: u64,
    /// Cost of all calls: by the price table, or else as the provider reports it. `null` without a cost, or with several
    /// currencies.
    pub cost: Option<Money>,
    /// When the first call began.
    pub first_unix_ms: u64,
    /// When the last call ended.
    pub last_unix_ms: u64,
    /// The last 50 calls, in the order of their end.
    pub requests: Vec<SessionRequest>,
}

/// A call of a session.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SessionRequest {
    pub id: u64,
    pub started_unix_ms: u64,
    /// Duration of the call.
    pub end_seconds: f64,
    /// `ok`, `error`, `cancelled`, `timeout`, `truncated` or `rejected`.
    pub outcome: Text,
    pub model: Text,
}

/// An SLO with what consumed its error budget.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Slo {
    /// The object of `/slo`.
    #[serde(flatten)]
    pub objective: serde_json::Map<String, serde_json::Value>,
    /// Bad calls since the start of the process by model and error, most first; at most 50 combinations. Minutes that
    /// an SLO on the whole system judges are not included.
    pub consumed_by: Vec<Consumed>,
    /// Excluded calls since the start of the process, by reason.
    pub excluded_by: Vec<Excluded>,
}

/// Bad calls of one model with one error.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Consumed {
    pub model: Text,
    /// `null` if the call succeeded but missed the objective.
    pub error_type: Option<Text>,
    pub bad: u64,
}

/// Calls that an SLO excludes for one reason.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Excluded {
    pub reason: Text,
    pub count: u64,
}

/// A rate limit that a provider reports.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RateLimit {
    pub provider: Text,
    pub model: Text,
    /// `requests`, `tokens`, `input_tokens` or `output_tokens`.
    pub limit_type: Text,
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    /// 1 − remaining ÷ limit.
    pub used_share: Option<f64>,
    /// When the limit is full again.
    pub resets_unix_ms: Option<u64>,
}

/// Returns the JSON Schema of a snapshot. The documents of the other two endpoints are among its definitions.
pub fn schema() -> schemars::Schema {
    let mut generator = schemars::SchemaGenerator::default();
    generator.subschema_for::<Delta>();
    generator.subschema_for::<RecentRequests>();
    generator.into_root_schema_for::<Snapshot>()
}

#[cfg(test)]
mod tests;
