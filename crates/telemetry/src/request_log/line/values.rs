//! Conversions to the values of fields.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::request_log::line::{Ending, Stages};
use tokengauge_llm::dialect::ByModality;
use tokengauge_measure::timing::{self, Stage};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event;
use tokengauge_types::label::Name;

pub(super) fn stages(stages: &timing::Stages) -> Stages {
    let length = |stage: Stage| stages.get(stage).map(|length| length.as_secs_f64());
    Stages {
        admission: length(Stage::Admission),
        connect: length(Stage::Connect),
        upload: length(Stage::Upload),
        headers: length(Stage::Headers),
        first_byte: length(Stage::FirstByte),
        first_event: length(Stage::FirstEvent),
        first_token: length(Stage::FirstToken),
        reasoning: length(Stage::Reasoning),
        decode: length(Stage::Decode),
        tail: length(Stage::Tail),
    }
}

pub(super) fn ending(ending: event::Ending) -> Ending {
    let (kind, cause) = match ending {
        event::Ending::Complete => ("complete", None),
        event::Ending::ClientDisconnected => ("client_gone", None),
        event::Ending::RequestBodyFailed => ("client_broke", None),
        event::Ending::Drained => ("drained", None),
        event::Ending::UpstreamFailed(failure) => ("upstream_failed", Some(failure.as_str())),
        event::Ending::TimedOut(limit) => ("timed_out", Some(limit.as_str())),
        event::Ending::Rejected(refusal) => ("rejected", Some(refusal.as_str())),
    };
    Ending { kind, cause }
}

pub(super) fn by_modality(tokens: &ByModality) -> Option<BTreeMap<&'static str, u64>> {
    let ByModality { text, image, audio, video, document } = tokens;
    let all = [
        ("text", text),
        ("image", image),
        ("audio", audio),
        ("video", video),
        ("document", document),
    ];
    some(all.into_iter().filter_map(|(name, tokens)| Some((name, (*tokens)?))))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns an amount unless it is 0.
pub(super) fn positive(amount: f64) -> Option<f64> {
    (amount > 0.0).then_some(amount)
}

pub(super) fn text(name: Option<&Name>) -> Option<&str> {
    name.map(Name::as_str)
}

pub(super) fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// Returns the time from `accept` to a timestamp in seconds.
pub(super) fn since(accept: MonotonicInstant, at: Option<MonotonicInstant>) -> Option<f64> {
    at.map(|at| at.since(accept).as_secs_f64())
}

/// Returns a time limit in seconds, or `None` if it is disabled.
pub(super) fn limit(time: Duration) -> Option<f64> {
    (time < Duration::MAX).then_some(time.as_secs_f64())
}

/// Returns the number if it is finite. JSON cannot represent infinity or NaN.
pub(super) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

/// Converts a value, unless it holds nothing.
pub(super) fn given<'a, T: Default + PartialEq, R>(
    value: &'a T,
    convert: impl FnOnce(&'a T) -> R,
) -> Option<R> {
    (*value != T::default()).then(|| convert(value))
}

/// Collects a map, unless it is empty.
pub(super) fn some<K: Ord, V>(entries: impl Iterator<Item = (K, V)>) -> Option<BTreeMap<K, V>> {
    let map: BTreeMap<K, V> = entries.collect();
    (!map.is_empty()).then_some(map)
}

/// Adds up the numbers of each name.
pub(super) fn tally(
    numbers: impl Iterator<Item = (&'static str, u64)>,
) -> Option<BTreeMap<&'static str, u64>> {
    let mut sums = BTreeMap::new();
    for (name, number) in numbers {
        *sums.entry(name).or_default() += number;
    }
    some(sums.into_iter())
}
