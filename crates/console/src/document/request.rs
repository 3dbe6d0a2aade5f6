//! Finished requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Text;

/// Notable finished requests of the last 15 minutes, as ids into `items`. Each list has at most `requests_per_list`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RequestLists {
    /// Longest duration first.
    pub slowest: Vec<u64>,
    /// Latest first. Requests that the client cancelled are not included.
    pub failed: Vec<u64>,
    /// Longest total stall first.
    pub stalled: Vec<u64>,
    /// Highest cost first.
    pub most_expensive: Vec<u64>,
    /// The requests of all lists, by id.
    pub items: BTreeMap<u64, Arc<Request>>,
}

/// Finished requests that match a query, latest first.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RecentRequests {
    pub items: Vec<Arc<Request>>,
    /// Requests that match but exceed `limit`.
    pub left_out: u64,
}

/// A finished API call.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Request {
    /// Number of the request in this process, as in the request log.
    pub id: u64,
    pub started_unix_ms: u64,
    pub ended_unix_ms: u64,
    pub provider: Text,
    pub model: Text,
    pub route: Text,
    pub tenant: Option<Text>,
    pub variant: Option<Text>,
    pub session: Option<Text>,
    /// Where the session was found: `configured`, the name of a header or body field, or `baggage`.
    pub session_source: Option<Text>,
    /// Product and version of the client, from `User-Agent`. `null` without one.
    pub agent: Option<Text>,
    /// Path without the query.
    pub path: Text,
    /// HTTP status. `null` without a response.
    pub status: Option<u16>,
    /// Whether the response was streamed.
    pub stream: bool,
    /// `ok`, `error`, `cancelled`, `timeout`, `truncated` or `rejected`.
    pub outcome: Text,
    /// `none`, `client`, `upstream` or `proxy`.
    pub error_source: Text,
    /// Kind of error. `null` on success.
    pub error_type: Option<Text>,
    /// Finish reasons that the provider reports.
    pub finish_reasons: Vec<Text>,
    /// 32 hexadecimal digits.
    pub trace_id: Text,
    pub duration_seconds: Option<f64>,
    pub time_to_first_token_seconds: Option<f64>,
    /// Output tokens per second, excluding prefill.
    pub output_tokens_per_second: Option<f64>,
    pub tokens: Tokens,
    /// `null` without a price, and without a cost that the provider reports.
    pub cost: Option<PricedCost>,
    pub stages: RequestStages,
    /// When chunks of the response arrived, since the start. Beyond 62 chunks, every second one is dropped, repeatedly.
    pub chunks_seconds: Vec<f64>,
    /// The first 8 stalls.
    pub stalls: Vec<ChunkStall>,
    /// Time in which the client did not read.
    pub client_blocked_seconds: f64,
}

/// Seconds in each stage, by the names of the request log. A stage that did not take place is absent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct RequestStages {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_event: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<f64>,
}

/// Tokens by kind. `null` if unknown.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Tokens {
    pub input: Option<TokenCount>,
    /// Part of the input that was read from a cache.
    pub cached_input: Option<TokenCount>,
    /// Part of the output that was reported as reasoning.
    pub reasoning: Option<TokenCount>,
    pub output: Option<TokenCount>,
}

/// A number of tokens and its source.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TokenCount {
    pub count: u64,
    /// `reported` by the provider, `counted` with the model's tokenizer, or `estimated`.
    pub source: Text,
}

/// An amount of money.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Money {
    pub amount: f64,
    /// ISO 4217 code.
    pub currency: Text,
}

/// The cost of a request by the price table, or else as the provider reports it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PricedCost {
    pub amount: f64,
    /// ISO 4217 code.
    pub currency: Text,
    /// `computed` from tokens that the provider reported, `estimated`, or `reported` by the provider if the table has no price.
    pub source: Text,
}

/// A period without a token that exceeded the route's threshold.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ChunkStall {
    /// Start of the stall, since the start of the request.
    pub after_seconds: f64,
    /// Length of the stall.
    pub seconds: f64,
}
