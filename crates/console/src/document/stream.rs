//! Requests in flight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StageSums, Text};

/// A request in flight: the object of `/streams` with more names.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Stream {
    /// Number of the request in this process.
    pub request_number: u64,
    pub provider: Option<Text>,
    pub model: Option<Text>,
    pub route: Text,
    pub tenant: Option<Text>,
    pub session: Option<Text>,
    /// Product and version of the client, from `User-Agent`. `null` without one.
    pub agent: Option<Text>,
    /// Path without the query.
    pub path: Text,
    /// `queued`, `waiting` (before the first token), `streaming`, or `unstreamed` (not a stream).
    pub phase: Text,
    pub started_unix_ms: u64,
    /// Time since the request headers were received.
    pub age_seconds: f64,
    /// `null` before the first token.
    pub time_to_first_token_seconds: Option<f64>,
    /// Output tokens so far, as counted by the observer.
    pub tokens: u64,
    /// Output tokens per second since the first token. `null` until tokens have arrived for 0.1 s.
    pub output_tokens_per_second: Option<f64>,
    /// Time since the last token, or since the request headers if no token has arrived.
    pub idle_seconds: f64,
    /// Whether the stream has waited for a token for longer than its route's stall threshold.
    pub stalled: bool,
    /// The peer that the response body waits for: `upstream` or `client`.
    pub waiting_for: Text,
    /// Time in each stage so far.
    pub stages: StageSums,
}
