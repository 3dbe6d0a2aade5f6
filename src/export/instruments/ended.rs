//! What is recorded when a call ends: the record's numbers, each only where its formula applies.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Counter, Histogram};

use crate::clock::Moment;
use crate::count::Source;
use crate::dialect::Usage;
use crate::export::instruments::attributes::{label, pair, with, word};
use crate::export::instruments::family::{Family, Latest};
use crate::export::instruments::live::Live;
use crate::export::names::attributes as key;
use crate::label::Label;
use crate::measure::rates::VOICE_RATE;
use crate::measure::{Band, Stage, Unrated};
use crate::record::{Call, Complete, Outcome, Output, Record};

/// Where no provider says how its counts split into modalities.
const UNKNOWN_MODALITY: &str = "unknown";

/// The instruments of ended calls of one series that one model answered.
#[derive(Debug)]
pub struct Ended {
    family: Arc<Family>,
    base: Vec<KeyValue>,
    stages: [OnceLock<BoundHistogram<f64>>; Stage::ALL.len()],
    time_to: [OnceLock<BoundHistogram<f64>>; 5],
    /// Bound together, so that no band is first seen at 1.
    bands: OnceLock<[BoundCounter<u64>; Band::ALL.len() + 1]>,
    unrated: OnceLock<[BoundCounter<u64>; Unrated::ALL.len()]>,
}

impl Ended {
    pub fn new(family: Arc<Family>, live: &Live, response_model: Option<&Label>) -> Self {
        let model = response_model.map(|model| label(key::RESPONSE_MODEL, model));
        Self {
            family,
            base: with(&live.base, model.as_slice()),
            stages: Default::default(),
            time_to: Default::default(),
            bands: OnceLock::new(),
            unrated: OnceLock::new(),
        }
    }

    /// `error`: the label of the record's `error.type`.
    pub fn record(&self, record: &Record, call: &Call, error: Option<&Label>) {
        self.durations(record, call, error);
        self.points(record, call);
        self.rates(call);
        if let Some(usage) = &call.usage {
            self.usage(usage, call, error);
        }
        if let (Some(usage), Some(output)) = (&call.usage, &call.output) {
            self.drift(record, call, usage, output);
        }
    }

    fn durations(&self, record: &Record, call: &Call, error: Option<&Label>) {
        let points = &record.points;
        let error = error.map(|error| label(key::ERROR_TYPE, error));
        let attributes = with(&self.base, error.as_slice());
        let until_end = |from: Option<Moment>| Some(points.end?.since(from?).as_secs_f64());
        if let (Some(server), Some(seconds)) = (&self.family.server, until_end(points.sent)) {
            server.duration.record(seconds, &attributes);
        }
        let Some(seconds) = until_end(points.admit) else {
            return;
        };
        let inference = call.series.operation.generates();
        if let Some(latest) = self.family.latest.as_ref().filter(|_| inference) {
            latest.duration.record(seconds, &attributes);
        }
        if let Some(duration) = &self.family.operation_duration
            && (!inference || self.family.legacy.is_some())
        {
            duration.record(seconds, &attributes);
        }
    }

    fn points(&self, record: &Record, call: &Call) {
        let points = &record.points;
        let time_to = &self.family.time_to;
        let occurred = [
            points.head,
            points.byte,
            points.event,
            points.token,
            points.visible,
        ];
        let names = ["head", "byte", "event", "token", "visible"];
        for ((slot, name), at) in self.time_to.iter().zip(names).zip(occurred) {
            if let Some(at) = at {
                self.bound(slot, time_to, word(key::POINT, name))
                    .record(seconds(at.since(points.accept)));
            }
        }
        for (stage, length) in record.stages.iter() {
            let slot = self
                .stages
                .iter()
                .zip(Stage::ALL)
                .find(|(_, known)| *known == stage);
            if let Some((slot, _)) = slot {
                self.bound(slot, &self.family.stage, word(key::STAGE, stage.as_str()))
                    .record(seconds(length));
            }
        }
        if !record.blocked.is_zero() {
            self.family
                .blocked
                .record(seconds(record.blocked), &self.base);
        }
        if let Some(admit) = points.admit {
            let waited = seconds(admit.since(points.accept));
            let attributes = with(&self.base, &[word(key::WAIT_PLACE, "admission")]);
            self.family.queue_wait.record(waited, &attributes);
        }
        if call.streamed {
            self.first_chunk(record);
        }
    }

    fn first_chunk(&self, record: &Record) {
        let points = &record.points;
        let since_sent = |at: Option<Moment>| Some(seconds(at?.since(points.sent?)));
        if let Some(waited) = since_sent(points.event) {
            if let Some(latest) = &self.family.latest {
                latest.first_chunk.record(waited, &self.base);
            }
            if let Some(legacy) = &self.family.legacy {
                legacy.first_chunk.record(waited, &self.base);
            }
        }
        let successful = record.outcome == Outcome::Ok;
        if let Some(server) = self.family.server.as_ref().filter(|_| successful) {
            if let Some(waited) = since_sent(points.token) {
                server.first_token.record(waited, &self.base);
            }
            let per_token = record
                .call
                .as_ref()
                .and_then(|call| call.rates.time_per_output_token);
            if let Some(time) = per_token {
                server.output_token.record(seconds(time), &self.base);
            }
        }
    }

    fn rates(&self, call: &Call) {
        if let Some(rate) = call.rates.total {
            self.family.total_rate.record(rate, &self.base);
        }
        if let Some(rate) = call.rates.output {
            self.family.output_rate.record(rate, &self.base);
            let [below5, from5, from15, from30, from60, voice] = self.bands();
            let band = match Band::of(rate) {
                Band::Below5 => below5,
                Band::From5 => from5,
                Band::From15 => from15,
                Band::From30 => from30,
                Band::From60 => from60,
            };
            band.add(1);
            voice.add(u64::from(rate >= VOICE_RATE));
        }
        if let Some(reason) = call.rates.unrated {
            let counters = self.unrated.get_or_init(|| {
                Unrated::ALL.map(|reason| {
                    self.counter(&self.family.unrated, word(key::UNRATED, reason.as_str()))
                })
            });
            let counter = counters
                .iter()
                .zip(Unrated::ALL)
                .find(|(_, known)| *known == reason);
            if let Some((counter, _)) = counter {
                counter.add(1);
            }
        }
    }

    fn bands(&self) -> &[BoundCounter<u64>; Band::ALL.len() + 1] {
        self.bands.get_or_init(|| {
            let [a, b, c, d, e] = Band::ALL.map(Band::as_str);
            [a, b, c, d, e, "voice"]
                .map(|band| self.counter(&self.family.band, word(key::BAND, band)))
        })
    }

    /// What the provider reported, and only that.
    fn usage(&self, usage: &Usage, call: &Call, error: Option<&Label>) {
        let generates = call.series.operation.generates();
        if let Some(latest) = self.family.latest.as_ref().filter(|_| generates) {
            self.standard_usage(latest, usage, error);
        }
        if let Some(legacy) = &self.family.legacy {
            for (direction, tokens) in [("input", usage.input), ("output", usage.output)] {
                if let Some(tokens) = tokens {
                    let attributes = with(&self.base, &[word(key::TOKEN_TYPE, direction)]);
                    legacy.token_usage.record(tokens, &attributes);
                }
            }
        }
        for (kind, tokens) in parts(usage, call.output.as_ref()) {
            if let Some(tokens) = tokens {
                self.family
                    .usage
                    .add(tokens, &with(&self.base, &[word(key::TOKEN_KIND, kind)]));
            }
        }
    }

    fn standard_usage(&self, latest: &Latest, usage: &Usage, error: Option<&Label>) {
        let attributes = with(&self.base, &[pair(key::TOKEN_MODALITY, UNKNOWN_MODALITY)]);
        for (counter, tokens) in [
            (&latest.input, usage.input),
            (&latest.output, usage.output),
            (&latest.cache_read, usage.cache_read),
            (&latest.cache_write, usage.cache_write),
            (&latest.reasoning, usage.reasoning),
        ] {
            if let Some(tokens) = tokens {
                counter.add(tokens, &attributes);
            }
        }
        let error = error.map(|error| label(key::ERROR_TYPE, error));
        let attributes = with(&self.base, error.as_slice());
        if let Some(tokens) = usage.input {
            latest.operation_input.record(tokens, &attributes);
        }
        if let Some(tokens) = usage.output {
            latest.operation_output.record(tokens, &attributes);
        }
    }

    /// Only where both numbers should agree.
    fn drift(&self, record: &Record, call: &Call, usage: &Usage, output: &Output) {
        let comparable = record.outcome == Outcome::Ok
            && call.complete == Complete::True
            && output.counted_source == Some(Source::Counted)
            && !call.request.tools
            && output.hidden == 0;
        if let Some(reported) = usage.output.filter(|_| comparable) {
            self.family.drift_counted.add(output.counted, &self.base);
            self.family.drift_reported.add(reported, &self.base);
        }
    }

    /// Each choice under its reason's label, and with what became of it.
    pub fn choice(&self, reason: &Label, became: &'static str) {
        let own = [label(key::FINISH_REASON, reason), word(key::CHOICE, became)];
        self.family.choices.add(1, &with(&self.base, &own));
    }

    fn bound<'a>(
        &self,
        slot: &'a OnceLock<BoundHistogram<f64>>,
        histogram: &Histogram<f64>,
        own: KeyValue,
    ) -> &'a BoundHistogram<f64> {
        slot.get_or_init(|| histogram.bind(&with(&self.base, &[own])))
    }

    fn counter(&self, counter: &Counter<u64>, own: KeyValue) -> BoundCounter<u64> {
        counter.bind(&with(&self.base, &[own]))
    }
}

/// Reported tokens in kinds that do not overlap: input = uncached + cache_read + cache_write, output = output +
/// reasoning + hidden.
fn parts(usage: &Usage, output: Option<&Output>) -> [(&'static str, Option<u64>); 6] {
    let cached = usage.cache_read.unwrap_or(0) + usage.cache_write.unwrap_or(0);
    let reasoning = usage.reasoning.unwrap_or(0);
    let hidden = output.map_or(0, |output| output.hidden).min(reasoning);
    [
        (
            "uncached",
            usage.input.map(|input| input.saturating_sub(cached)),
        ),
        ("cache_read", usage.cache_read),
        ("cache_write", usage.cache_write),
        (
            "output",
            usage.output.map(|output| output.saturating_sub(reasoning)),
        ),
        (
            "reasoning",
            usage.reasoning.map(|reasoning| reasoning - hidden),
        ),
        ("hidden", usage.reasoning.map(|_| hidden)),
    ]
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_tokens_split_into_kinds_that_add_up() {
        let usage = Usage {
            input: Some(100),
            output: Some(50),
            cache_read: Some(60),
            cache_write: Some(10),
            reasoning: Some(30),
        };
        let output = Output {
            hidden: 12,
            ..Output::default()
        };
        let split = parts(&usage, Some(&output));
        assert_eq!(
            split.map(|(_, tokens)| tokens),
            [30, 60, 10, 20, 18, 12].map(Some)
        );
        assert_eq!(
            split.iter().filter_map(|(_, tokens)| *tokens).sum::<u64>(),
            150
        );
    }

    #[test]
    fn what_was_not_reported_is_not_zero() {
        let usage = Usage {
            input: Some(7),
            ..Usage::default()
        };
        assert_eq!(
            parts(&usage, None).map(|(_, tokens)| tokens),
            [Some(7), None, None, None, None, None]
        );
    }
}
