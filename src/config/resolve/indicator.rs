//! What makes an exchange good, as one objective of the file says it.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::within;
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::raw;
use crate::config::value::{Length, Threshold};
use tokengauge_measure::slo::Indicator;

/// No answer has more tokens, and no system more streams in flight.
const NUMBERS: RangeInclusive<u64> = 1..=1_000_000;

/// The words of the key `indicator`.
const WORDS: &str = "availability, ttft, first_visible, output_rate, total_rate, stall_free, inter_token, duration, \
                     tokens_above_rate, system_rate";

/// What only an objective of its own says, and no preset.
pub(super) struct Written {
    pub(super) indicator: Field<raw::Indicator>,
    pub(super) threshold: Field<Threshold>,
    pub(super) min_streams: Field<u64>,
    pub(super) min_output_tokens: Field<u64>,
}

impl Written {
    /// It stands beside a preset.
    pub(super) fn refuse(self, errors: &mut ErrorCollector) {
        let marks = [
            self.indicator.spanned().map(|it| it.node),
            self.threshold.spanned().map(|it| it.node),
            self.min_streams.spanned().map(|it| it.node),
            self.min_output_tokens.spanned().map(|it| it.node),
        ];
        for node in marks.into_iter().flatten() {
            let message = "a preset has its own; remove this key, or remove preset and write an objective of your own";
            errors.at(node, message);
        }
    }

    /// The indicator, and the fewest output tokens for a verdict.
    pub(super) fn resolve(
        self,
        objective: NodeId,
        errors: &mut ErrorCollector,
    ) -> Option<(Indicator, Option<u32>)> {
        let remedy = format!("write one of {WORDS}; or a preset");
        let kind = self.indicator.required(errors, objective, "indicator", &remedy)?.value;
        let streams = min_streams(kind, self.min_streams, objective, errors);
        let indicator = indicator(kind, self.threshold, streams, objective, errors);
        let node = self.min_output_tokens.clone().spanned().map(|it| it.node);
        let tokens = number(self.min_output_tokens, errors);
        if let (Some(node), Some(false)) = (node, indicator.map(Indicator::is_rate)) {
            let message = "this indicator is no rate of single exchanges; remove this key";
            errors.at(node, message);
        }
        Some((indicator?, tokens))
    }
}

fn min_streams(
    kind: raw::Indicator,
    written: Field<u64>,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<u32> {
    if kind == raw::Indicator::SystemRate {
        let remedy = "write how many streams must be in flight for a minute to count, such as 8";
        let given = written.required(errors, objective, "min_streams", remedy)?;
        return number(Field::Present(given), errors);
    }
    if let Some(Spanned { node, .. }) = written.spanned() {
        let message = "only system_rate looks at streams in flight; remove this key";
        errors.at(node, message);
    }
    None
}

fn number(written: Field<u64>, errors: &mut ErrorCollector) -> Option<u32> {
    u32::try_from(within(written, NUMBERS, errors)?).ok()
}

/// What a threshold is, by the kind of the indicator.
enum Bound {
    None(&'static str, Indicator),
    Time(fn(Duration) -> Indicator),
    Rate(fn(f64) -> Indicator),
    /// Beside the number of streams.
    SystemRate,
}

fn bound(kind: raw::Indicator) -> Bound {
    match kind {
        raw::Indicator::Availability => Bound::None("availability", Indicator::Availability),
        raw::Indicator::StallFree => Bound::None("stall_free", Indicator::StallFree),
        raw::Indicator::Ttft => Bound::Time(Indicator::TimeToFirstToken),
        raw::Indicator::FirstVisible => Bound::Time(Indicator::FirstVisible),
        raw::Indicator::InterToken => Bound::Time(Indicator::InterToken),
        raw::Indicator::Duration => Bound::Time(Indicator::Duration),
        raw::Indicator::OutputRate => Bound::Rate(Indicator::OutputRate),
        raw::Indicator::TotalRate => Bound::Rate(Indicator::TotalRate),
        raw::Indicator::TokensAboveRate => Bound::Rate(Indicator::TokensAboveRate),
        raw::Indicator::SystemRate => Bound::SystemRate,
    }
}

fn indicator(
    kind: raw::Indicator,
    threshold: Field<Threshold>,
    streams: Option<u32>,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Indicator> {
    let time = "write the longest good time, such as 2s";
    let rate = "write the lowest good rate in tokens per second, such as 15";
    let bound = bound(kind);
    let remedy = match &bound {
        Bound::None(word, indicator) => {
            if let Field::Present(threshold) = threshold {
                let message = format!("{word} has no threshold; remove this key");
                errors.at(threshold.node, message);
            }
            return Some(*indicator);
        }
        Bound::Time(_) => time,
        Bound::Rate(_) | Bound::SystemRate => rate,
    };
    let Spanned { value: Threshold(text), node } =
        threshold.required(errors, objective, "threshold", remedy)?;
    let (is_one, read) = match bound {
        Bound::None(_, indicator) => (true, Some(indicator)),
        Bound::Time(of) => {
            let time = read_time(&text);
            (time.is_some(), time.map(of))
        }
        Bound::Rate(of) => {
            let rate = read_rate(&text);
            (rate.is_some(), rate.map(of))
        }
        Bound::SystemRate => {
            let floor = read_rate(&text);
            let both = floor.zip(streams);
            let of = |(floor, min_streams)| Indicator::SystemRate { floor, min_streams };
            (floor.is_some(), both.map(of))
        }
    };
    if !is_one {
        errors.at(node, format!("\"{text}\" is no threshold of this indicator; {remedy}"));
    }
    read
}

fn read_time(text: &str) -> Option<Duration> {
    let Length(time) = text.parse().ok()?;
    (!time.is_zero()).then_some(time)
}

fn read_rate(text: &str) -> Option<f64> {
    let rate: f64 = text.parse().ok()?;
    (rate > 0.0 && rate.is_finite()).then_some(rate)
}
