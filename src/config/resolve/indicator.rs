//! What makes an exchange good, as one objective of the file says it.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::within;
use crate::config::problem::{Mark, Problems};
use crate::config::raw;
use crate::config::read::{Field, Given};
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
    pub(super) fn refuse(self, problems: &mut Problems) {
        let marks = [
            self.indicator.given().map(|it| it.mark),
            self.threshold.given().map(|it| it.mark),
            self.min_streams.given().map(|it| it.mark),
            self.min_output_tokens.given().map(|it| it.mark),
        ];
        for mark in marks.into_iter().flatten() {
            let message = "a preset has its own; remove this key, or remove preset and write an objective of your own";
            problems.at(mark, message);
        }
    }

    /// The indicator, and the fewest output tokens for a verdict.
    pub(super) fn resolve(
        self,
        objective: Mark,
        problems: &mut Problems,
    ) -> Option<(Indicator, Option<u32>)> {
        let remedy = format!("write one of {WORDS}; or a preset");
        let kind = self.indicator.required(problems, objective, "indicator", &remedy)?.value;
        let streams = min_streams(kind, self.min_streams, objective, problems);
        let indicator = indicator(kind, self.threshold, streams, objective, problems);
        let mark = self.min_output_tokens.clone().given().map(|it| it.mark);
        let tokens = number(self.min_output_tokens, problems);
        if let (Some(mark), Some(false)) = (mark, indicator.map(Indicator::is_rate)) {
            let message = "this indicator is no rate of single exchanges; remove this key";
            problems.at(mark, message);
        }
        Some((indicator?, tokens))
    }
}

fn min_streams(
    kind: raw::Indicator,
    written: Field<u64>,
    objective: Mark,
    problems: &mut Problems,
) -> Option<u32> {
    if kind == raw::Indicator::SystemRate {
        let remedy = "write how many streams must be in flight for a minute to count, such as 8";
        let given = written.required(problems, objective, "min_streams", remedy)?;
        return number(Field::Given(given), problems);
    }
    if let Some(Given { mark, .. }) = written.given() {
        let message = "only system_rate looks at streams in flight; remove this key";
        problems.at(mark, message);
    }
    None
}

fn number(written: Field<u64>, problems: &mut Problems) -> Option<u32> {
    u32::try_from(within(written, NUMBERS, problems)?).ok()
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
    objective: Mark,
    problems: &mut Problems,
) -> Option<Indicator> {
    let time = "write the longest good time, such as 2s";
    let rate = "write the lowest good rate in tokens per second, such as 15";
    let bound = bound(kind);
    let remedy = match &bound {
        Bound::None(word, indicator) => {
            if let Field::Given(threshold) = threshold {
                let message = format!("{word} has no threshold; remove this key");
                problems.at(threshold.mark, message);
            }
            return Some(*indicator);
        }
        Bound::Time(_) => time,
        Bound::Rate(_) | Bound::SystemRate => rate,
    };
    let Given { value: Threshold(text), mark } =
        threshold.required(problems, objective, "threshold", remedy)?;
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
        problems.at(mark, format!("\"{text}\" is no threshold of this indicator; {remedy}"));
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
