//! What objectives look at.

use std::time::Duration;

use serde::Serialize;

use crate::slo::seconds;

/// What makes an exchange good; of [`TokensAboveRate`](Self::TokensAboveRate) each of its tokens, of
/// [`SystemRate`](Self::SystemRate) a minute of the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", content = "threshold", rename_all = "snake_case")]
pub enum Sli {
    /// It succeeded, or failed by the client's own fault (which is excluded).
    Availability,
    /// The first token came within this time (streams only).
    TimeToFirstToken(#[serde(serialize_with = "seconds")] Duration),
    /// The first token that a person sees came within this time (streams only).
    FirstVisible(#[serde(serialize_with = "seconds")] Duration),
    /// Output TPS was at least this many tokens per second (rated streams only).
    OutputRate(f64),
    /// Total TPS, prefill included, was at least this many tokens per second.
    TotalRate(f64),
    /// The backend never kept it waiting for longer than its route allows (streams only).
    StallFree,
    /// Its mean inter-token latency, TPOT = (last − token − blocked) ÷ (N − 1), was at most this (rated streams only).
    InterToken(#[serde(serialize_with = "seconds")] Duration),
    /// It was over within this time.
    Duration(#[serde(serialize_with = "seconds")] Duration),
    /// Output TPS was at least this many tokens per second; the stream counts as often as it has output tokens.
    TokensAboveRate(f64),
    /// Of each minute in which enough streams were in flight throughout: together they brought at least this many output
    /// tokens per second.
    SystemRate {
        /// In tokens per second.
        floor: f64,
        /// A minute with fewer streams at any look counts for nothing: an idle system is slow by nobody's fault.
        min_streams: u32,
    },
}

impl Sli {
    /// All words of [`as_str`](Self::as_str).
    pub const WORDS: [&'static str; 10] = [
        "availability",
        "time_to_first_token",
        "first_visible",
        "output_rate",
        "total_rate",
        "stall_free",
        "inter_token",
        "duration",
        "tokens_above_rate",
        "system_rate",
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Availability => "availability",
            Self::TimeToFirstToken(_) => "time_to_first_token",
            Self::FirstVisible(_) => "first_visible",
            Self::OutputRate(_) => "output_rate",
            Self::TotalRate(_) => "total_rate",
            Self::StallFree => "stall_free",
            Self::InterToken(_) => "inter_token",
            Self::Duration(_) => "duration",
            Self::TokensAboveRate(_) => "tokens_above_rate",
            Self::SystemRate { .. } => "system_rate",
        }
    }

    /// The longest good time, for indicators on time.
    pub const fn longest(self) -> Option<Duration> {
        match self {
            Self::TimeToFirstToken(limit)
            | Self::FirstVisible(limit)
            | Self::InterToken(limit)
            | Self::Duration(limit) => Some(limit),
            Self::Availability
            | Self::OutputRate(_)
            | Self::TotalRate(_)
            | Self::StallFree
            | Self::TokensAboveRate(_)
            | Self::SystemRate { .. } => None,
        }
    }

    /// The lowest good rate in tokens per second, for indicators on rates.
    pub const fn lowest(self) -> Option<f64> {
        match self {
            Self::OutputRate(floor)
            | Self::TotalRate(floor)
            | Self::TokensAboveRate(floor)
            | Self::SystemRate { floor, .. } => Some(floor),
            Self::Availability
            | Self::TimeToFirstToken(_)
            | Self::FirstVisible(_)
            | Self::StallFree
            | Self::InterToken(_)
            | Self::Duration(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_words_is_that_of_all_indicators() {
        let time = Duration::from_secs(1);
        let all = [
            Sli::Availability,
            Sli::TimeToFirstToken(time),
            Sli::FirstVisible(time),
            Sli::OutputRate(1.0),
            Sli::TotalRate(1.0),
            Sli::StallFree,
            Sli::InterToken(time),
            Sli::Duration(time),
            Sli::TokensAboveRate(1.0),
            Sli::SystemRate { floor: 1.0, min_streams: 1 },
        ];
        assert_eq!(all.map(Sli::as_str), Sli::WORDS);
        for indicator in all {
            let json = serde_json::to_value(indicator).unwrap();
            assert_eq!(json["kind"], indicator.as_str());
            let bounds = [indicator.longest().is_some(), indicator.lowest().is_some()];
            assert_ne!(bounds, [true, true], "{indicator:?}");
        }
    }
}
