//! Service level indicators (SLIs).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::slo::seconds;
use tokengauge_types::label_enum;

label_enum! {
    /// The kind of an SLI, without its threshold.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "Sli")]
    pub enum SliKind {
        Availability = "availability",
        Ttft = "ttft",
        FirstVisible = "first_visible",
        OutputRate = "output_rate",
        TotalRate = "total_rate",
        StallFree = "stall_free",
        InterToken = "inter_token",
        Duration = "duration",
        TokensAboveRate = "tokens_above_rate",
        SystemRate = "system_rate",
    }
}

/// Definition of a good event. An event is a request, with two exceptions: [`TokensAboveRate`](Self::TokensAboveRate)
/// counts each token, and [`SystemRate`](Self::SystemRate) counts each minute of the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", content = "threshold", rename_all = "snake_case")]
pub enum Sli {
    /// The request succeeded. Failures caused by the client are excluded.
    Availability,
    /// The first token arrived within this time (streams only).
    Ttft(#[serde(serialize_with = "seconds")] Duration),
    /// The first user-visible token arrived within this time. Applies to streams only.
    FirstVisible(#[serde(serialize_with = "seconds")] Duration),
    /// Output TPS was at least this many tokens per second. Applies only to streams with an output rate.
    OutputRate(f64),
    /// Output tokens ÷ the whole duration, prefill included, was at least this many tokens per second.
    TotalRate(f64),
    /// The backend never stalled for longer than the route allows. Applies to streams only.
    StallFree,
    /// The mean inter-token latency, (last − token − blocked) ÷ (N − 1), was at most this time. Applies only to streams
    /// with an output rate.
    InterToken(#[serde(serialize_with = "seconds")] Duration),
    /// The request ended within this time.
    Duration(#[serde(serialize_with = "seconds")] Duration),
    /// Output TPS was at least this many tokens per second. Each output token of a stream counts as one event.
    TokensAboveRate(f64),
    /// In a minute, all streams together produced at least this many output tokens per second. Minutes with fewer than
    /// `min_streams` streams do not count.
    SystemRate {
        /// Lowest good rate in tokens per second.
        floor: f64,
        /// Minimum number of concurrent streams. A minute does not count if any sample in it finds fewer streams,
        /// because an idle system has a low rate.
        min_streams: u32,
    },
}

impl Sli {
    pub const fn kind(self) -> SliKind {
        match self {
            Self::Availability => SliKind::Availability,
            Self::Ttft(_) => SliKind::Ttft,
            Self::FirstVisible(_) => SliKind::FirstVisible,
            Self::OutputRate(_) => SliKind::OutputRate,
            Self::TotalRate(_) => SliKind::TotalRate,
            Self::StallFree => SliKind::StallFree,
            Self::InterToken(_) => SliKind::InterToken,
            Self::Duration(_) => SliKind::Duration,
            Self::TokensAboveRate(_) => SliKind::TokensAboveRate,
            Self::SystemRate { .. } => SliKind::SystemRate,
        }
    }

    pub const fn as_str(self) -> &'static str {
        self.kind().as_str()
    }

    /// Returns the longest good time, for SLIs on time.
    pub const fn longest(self) -> Option<Duration> {
        self.limits().0
    }

    /// Returns the lowest good rate in tokens per second. `None` for SLIs that are not about rates.
    pub const fn lowest(self) -> Option<f64> {
        self.limits().1
    }

    const fn limits(self) -> (Option<Duration>, Option<f64>) {
        match self {
            Self::Ttft(limit)
            | Self::FirstVisible(limit)
            | Self::InterToken(limit)
            | Self::Duration(limit) => (Some(limit), None),
            Self::OutputRate(floor)
            | Self::TotalRate(floor)
            | Self::TokensAboveRate(floor)
            | Self::SystemRate { floor, .. } => (None, Some(floor)),
            Self::Availability | Self::StallFree => (None, None),
        }
    }

    /// Returns whether short responses make the SLI unreliable. For such SLIs, set a minimum of output tokens.
    pub const fn is_rate(self) -> bool {
        matches!(
            self,
            Self::OutputRate(_)
                | Self::TotalRate(_)
                | Self::InterToken(_)
                | Self::TokensAboveRate(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_keywords_has_all_indicators() {
        let time = Duration::from_secs(1);
        let all = [
            Sli::Availability,
            Sli::Ttft(time),
            Sli::FirstVisible(time),
            Sli::OutputRate(1.0),
            Sli::TotalRate(1.0),
            Sli::StallFree,
            Sli::InterToken(time),
            Sli::Duration(time),
            Sli::TokensAboveRate(1.0),
            Sli::SystemRate { floor: 1.0, min_streams: 1 },
        ];
        assert_eq!(all.map(Sli::kind), SliKind::ALL);
        for indicator in all {
            let json = serde_json::to_value(indicator).unwrap();
            assert_eq!(json["kind"], indicator.as_str());
            assert_eq!(serde_json::to_value(indicator.kind()).unwrap(), indicator.as_str());
            let bounds = [indicator.longest().is_some(), indicator.lowest().is_some()];
            assert_ne!(bounds, [true, true], "{indicator:?}");
        }
    }
}
