//! Rules for leaving requests out of an SLO.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::{Call, Record, WarmupState};
use crate::slo::{Sli, seconds};
use tokengauge_types::event::{Ending, RejectReason};
use tokengauge_types::label_enum;

/// Too Many Requests: the only status below 500 that reports an overloaded backend.
pub(super) const TOO_MANY_REQUESTS: u16 = 429;

/// Rules for requests that count neither as good nor as bad. Errors of the client never count, independent of these
/// rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CountingRules {
    /// Start-up period of the proxy. Requests accepted in this period do not count, nor do minutes that begin in it.
    /// Caches, connections and weights are cold then, and a rollout must not spend the error budget.
    #[serde(serialize_with = "seconds")]
    pub warmup: Duration,
    /// Minimum output tokens for SLIs on rates. Shorter responses do not count, because their rates are unreliable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_output_tokens: Option<u32>,
    /// Failure classes to ignore; each at most once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Exclusion>,
}

label_enum! {
    /// Class of failures that the operator can exclude.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Exclusion {
        /// The upstream responded with 429, for example because the caller exceeds its quota.
        RateLimited = "rate_limited",
        /// This proxy's concurrency limit rejected the request.
        Overload = "overload",
        /// The proxy was shutting down: it rejected the request, or aborted the stream at the end of the grace period.
        Shutdown = "shutdown",
        /// The backend was cold or warming up when the request was admitted.
        Warming = "warming",
    }
}

impl Exclusion {
    fn covers(self, record: &Record) -> bool {
        match self {
            Self::RateLimited => record.http.status == Some(TOO_MANY_REQUESTS) && !record.http.own,
            Self::Overload => record.ending == Ending::Rejected(RejectReason::Overload),
            Self::Shutdown => {
                matches!(record.ending, Ending::Drained | Ending::Rejected(RejectReason::Draining))
            }
            Self::Warming => false,
        }
    }
}

impl CountingRules {
    /// Returns whether the rules exclude the failure of the request.
    pub(super) fn excludes(&self, record: &Record) -> bool {
        self.exclusion(record).is_some()
    }

    /// Returns the rule that excludes the failure of the request.
    pub(super) fn exclusion(&self, record: &Record) -> Option<Exclusion> {
        self.exclude.iter().copied().find(|it| it.covers(record))
    }

    /// Returns whether the call is excluded because its backend was not warmed up.
    pub(super) fn is_burning_in(&self, call: &Call) -> bool {
        let settled = call.warm.is_none_or(|warm| warm == WarmupState::Warm);
        !settled && self.exclude.contains(&Exclusion::Warming)
    }

    /// Returns whether the call is excluded because its response is too short for this SLI.
    pub(super) fn is_too_short(&self, indicator: Sli, call: &Call) -> bool {
        let Some(fewest) = self.min_output_tokens.filter(|_| indicator.is_rate()) else {
            return false;
        };
        call.output.as_ref().is_none_or(|output| output.tokens < f64::from(fewest))
    }
}
