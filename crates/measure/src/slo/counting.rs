//! What of the exchanges in scope an objective leaves out.

use std::time::Duration;

use serde::Serialize;

use crate::record::{Call, Record, WarmupState};
use crate::slo::{Sli, seconds};
use tokengauge_types::event::{Ending, RejectReason};

/// The status by which a backend says that its caller asks too often, or that it cannot keep up.
const TOO_MANY_REQUESTS: u16 = 429;

/// What is left out of the books, good and bad alike, beside what is the client's fault anyway.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CountingRules {
    /// Exchanges that were accepted within this time after the process began, and minutes that began in it: caches,
    /// connections and weights are cold then, and a rollout shall not spend what was saved for failures.
    #[serde(serialize_with = "seconds")]
    pub warmup: Duration,
    /// Verdicts on rates of exchanges with fewer output tokens than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_output_tokens: Option<u32>,
    /// What is held against nobody; each at most once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Exclusion>,
}

/// What weighs as the operator decides.
#[derive(
    Clone,
    Copy,
    Debug,
    serde::Deserialize,
    Eq,
    schemars::JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// The upstream answered 429: its caller may ask for more than was bought.
    RateLimited,
    /// This proxy had no room for it.
    Overload,
    /// This proxy was shutting down: it refused the request, or cut the stream when its time was up.
    Shutdown,
    /// The backend was cold or warming. No failure: the exchange counts for nothing, good or bad.
    Warming,
}

impl Exclusion {
    pub const ALL: [Self; 4] = [Self::RateLimited, Self::Overload, Self::Shutdown, Self::Warming];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Overload => "overload",
            Self::Shutdown => "shutdown",
            Self::Warming => "warming",
        }
    }

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
    /// Whether how it failed is held against nobody.
    pub(super) fn excuses(&self, record: &Record) -> bool {
        self.exclude.iter().any(|it| it.covers(record))
    }

    /// Whether its backend had not settled, and that is held against nobody.
    pub(super) fn is_burning_in(&self, call: &Call) -> bool {
        let settled = call.warm.is_none_or(|warm| warm == WarmupState::Warm);
        !settled && self.exclude.contains(&Exclusion::Warming)
    }

    /// Whether it is too short for a verdict of this indicator.
    pub(super) fn is_too_short(&self, indicator: Sli, call: &Call) -> bool {
        let Some(fewest) = self.min_output_tokens.filter(|_| indicator.is_rate()) else {
            return false;
        };
        call.output.as_ref().is_none_or(|output| output.tokens < f64::from(fewest))
    }
}

impl Sli {
    /// Whether a short answer makes it uncertain, so that a least number of output tokens is sensible.
    pub const fn is_rate(self) -> bool {
        match self {
            Self::OutputRate(_)
            | Self::TotalRate(_)
            | Self::InterToken(_)
            | Self::TokensAboveRate(_) => true,
            Self::Availability
            | Self::TimeToFirstToken(_)
            | Self::FirstVisible(_)
            | Self::StallFree
            | Self::Duration(_)
            | Self::SystemRate { .. } => false,
        }
    }
}
