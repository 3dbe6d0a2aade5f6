//! Requests in flight as `/streams` reports them.

use serde::Serialize;

use crate::in_flight::active_request::ActiveRequest;
use tokengauge_measure::load::RequestPhase;
use tokengauge_measure::timing::StallClock;
use tokengauge_measure::timing::rates::MIN_RATED_DECODE;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{ExchangeId, UserAgent, WaitingFor};
use tokengauge_types::label::{Label, Name};

/// A stream as reported by `/streams`. Contains no text of the request or the response.
#[derive(Clone, Debug, Serialize)]
pub struct StreamView {
    pub request_number: ExchangeId,
    pub route: Label,
    pub path: Name,
    pub model: Option<Name>,
    /// `null` if the route identifies no tenant, or if the request has none.
    pub tenant: Option<Name>,
    /// The conversation or run. `null` if the request has none.
    pub session: Option<Name>,
    /// Product and version of the client, from its `User-Agent`. `null` without one.
    pub agent: Option<String>,
    pub phase: RequestPhase,
    /// Time since the request headers were received.
    pub age_seconds: f64,
    /// Seconds from the request headers to the first token. `null` before the first token.
    pub time_to_first_token_seconds: Option<f64>,
    /// Output tokens so far, as counted by the observer.
    pub tokens: u64,
    /// Output tokens per second since the first token. `null` until tokens have arrived for
    /// [`MIN_RATED_DECODE`], because a few chunks in one read have no rate.
    pub output_tokens_per_second: Option<f64>,
    /// Seconds since the last token, or since the request headers if no token has arrived.
    pub idle_seconds: f64,
    /// Whether the stream has waited for a token for longer than its route's stall threshold.
    pub stalled: bool,
    /// The peer that the response body waits for.
    pub waiting_for: &'static str,
}

impl ActiveRequest {
    pub(super) fn view(&self, at: MonotonicInstant) -> StreamView {
        let timestamps = &self.exchange.timestamps;
        let head = &self.exchange.request_head;
        let last = timestamps.last.unwrap_or(timestamps.accept);
        let rate = timestamps.token.zip(timestamps.last).and_then(|(token, last)| {
            let decode = last.since(token);
            let tokens = self.tokens.saturating_sub(self.first_tokens);
            #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
            (decode >= MIN_RATED_DECODE).then(|| tokens as f64 / decode.as_secs_f64())
        });
        StreamView {
            request_number: self.exchange.id,
            route: head.route.name.clone(),
            path: head.path.clone(),
            model: self.exchange.model().cloned(),
            tenant: head.identity.tenant.clone(),
            session: head.identity.session.clone(),
            agent: head
                .headers
                .get("user-agent")
                .and_then(UserAgent::parse)
                .map(|it| it.to_string()),
            phase: self.state,
            age_seconds: at.since(timestamps.accept).as_secs_f64(),
            time_to_first_token_seconds: timestamps
                .time_to_first_token()
                .map(|time| time.as_secs_f64()),
            tokens: self.tokens,
            output_tokens_per_second: rate,
            idle_seconds: at.since(last).as_secs_f64(),
            stalled: self.exchange.stall_clock().is_some_and(StallClock::is_stalled),
            waiting_for: match self.body_wait.waiting().0 {
                WaitingFor::Upstream => "upstream",
                WaitingFor::Client => "client",
            },
        }
    }
}
