//! Parses token counts, and durations that some backends report with them, under the names that all providers use.

use std::time::Duration;

use serde::de::MapAccess;

use crate::dialect::emit::{emit_timings, emit_usage};
use crate::dialect::event::{TICKS_PER_USD, sum, ticks_of_usd};
use crate::dialect::lenient::{self, Flag, FromAny, Number, Object, Text, impl_lenient};
use crate::dialect::token_count::token_count;
use crate::dialect::usage::{Placement, ReportedUsage};
use crate::dialect::{EventSink, Timings, Usage};

/// An object with token counts or durations: `usage`, llama.cpp's `timings`, Cerebras' `time_info`, Fireworks'
/// `perf_metrics` or LM Studio's `stats`.
///
/// A count can have several names. Some providers send all names and set all but one of them to 0. The largest value
/// therefore applies.
#[derive(Debug, Default, PartialEq)]
pub struct RawUsage {
    reported: ReportedUsage,
    timings: Timings,
    cost: ReportedCost,
}

/// The cost of the call in US dollars.
#[derive(Debug, Default, PartialEq)]
struct ReportedCost {
    /// The amount that the provider or gateway charges.
    amount: Option<f64>,
    /// The amount that the upstream of OpenRouter charges.
    upstream: Option<f64>,
    /// Whether the upstream charges its own account for this amount, in addition.
    is_own_key: bool,
}

impl ReportedCost {
    fn ticks(&self) -> Option<u64> {
        let upstream = self.upstream.filter(|_| self.is_own_key).unwrap_or(0.0);
        self.amount.map(|amount| ticks_of_usd(amount + upstream))
    }
}

/// The count that an object with details breaks down: input or output.
#[derive(Clone, Copy, Debug)]
enum Side {
    Input,
    Output,
}

impl RawUsage {
    /// Parses the usage object of a JSON body and emits its counts and durations. `is_input` is set if the API
    /// generates no text.
    pub fn emit(json: &str, is_input: bool, out: &mut impl EventSink) {
        let raw: Self = lenient::parse(json);
        let usage = if is_input { raw.processed() } else { raw.usage() };
        emit_usage(usage, out);
        emit_timings(raw.timings, out);
    }

    /// Returns the counts as OpenTelemetry defines them.
    ///
    /// xAI's chat excludes reasoning from the completion tokens, and some gateways exclude cached tokens from the prompt
    /// tokens. This shows only in the total. Gemini's chat excludes thoughts and does not list them: they are the
    /// tokens of the total that are missing from the sum.
    ///
    /// Chat reports zeros for modalities that the model does not support. These zeros are left out.
    pub fn usage(&self) -> Usage {
        let usage = self.usage_by_all_modalities();
        let used = |count: Option<u64>| count.filter(|count| *count > 0);
        Usage {
            input_by: usage.input_by.map(used),
            cache_read_by: usage.cache_read_by.map(used),
            output_by: usage.output_by.map(used),
            ..usage
        }
    }

    /// Returns the same counts as [`Self::usage`], including zeros for modalities.
    pub fn usage_by_all_modalities(&self) -> Usage {
        let mut reported = self.reported;
        let counts = &mut reported.counts;
        let by_lifetime = sum((counts.cache_write_5m, counts.cache_write_1h));
        counts.cache_write = counts.cache_write.or(by_lifetime);
        Usage { cost_ticks: self.cost.ticks(), ..reported.resolve(Placement::INSIDE) }
    }

    /// Returns the counts of an API that generates no text. Some providers report only the total for embeddings.
    fn processed(&self) -> Usage {
        let ReportedUsage { counts, total, .. } = self.reported;
        let input = counts.input.or(total);
        let reported =
            ReportedUsage { counts: Usage { input, ..counts }, ..ReportedUsage::default() };
        Usage { cost_ticks: self.cost.ticks(), ..reported.resolve(Placement::INSIDE) }
    }

    pub fn timings(&self) -> Option<Timings> {
        (self.timings != Timings::default()).then_some(self.timings)
    }

    fn number(&mut self, key: &str, number: f64) {
        let timings = &mut self.timings;
        let ReportedUsage { counts, total, unlisted_is_input, .. } = &mut self.reported;
        match key {
            "prompt_tokens" | "input_tokens" => largest(&mut counts.input, number),
            "completion_tokens" | "output_tokens" => largest(&mut counts.output, number),
            "total_tokens" => largest(total, number),
            // Mistral counts the tokens of audio only in the total.
            "prompt_audio_seconds" => *unlisted_is_input |= number > 0.0,
            // Moonshot and Hugging Face; DeepSeek; Databricks, Doubleword and Venice.
            "cached_tokens" | "prompt_cache_hit_tokens" | "cache_read_input_tokens" => {
                largest(&mut counts.cache_read, number);
            }
            "cache_creation_input_tokens" => largest(&mut counts.cache_write, number),
            // GitHub Copilot.
            "reasoning_tokens" => largest(&mut counts.reasoning, number),
            // xAI.
            "cost_in_usd_ticks" => self.cost.amount = Some(number / TICKS_PER_USD),
            // Groq, Cerebras and TabbyAPI; mistral.rs; llama.cpp; LM Studio; SambaNova and Fireworks.
            "queue_time" => timings.queue = seconds(number),
            "prompt_time" | "total_prompt_time_sec" => timings.prefill = seconds(number),
            "completion_time" | "total_completion_time_sec" | "generation_time" => {
                timings.decode = seconds(number);
            }
            "prompt_ms" => timings.prefill = seconds(number / 1e3),
            "predicted_ms" => timings.decode = seconds(number / 1e3),
            "total_time" | "total_time_sec" | "total_latency" | "server-processing-time" => {
                timings.total = seconds(number);
            }
            _ => {}
        }
    }

    fn detail(&mut self, side: Side, key: &str, number: f64) {
        let counts = &mut self.reported.counts;
        let (by, key) = match (side, key.strip_prefix(CACHED)) {
            (Side::Input, Some(key)) => (&mut counts.cache_read_by, key),
            (Side::Input, None) => (&mut counts.input_by, key),
            (Side::Output, _) => (&mut counts.output_by, key),
        };
        match (side, key) {
            (Side::Input, "cached_tokens") => largest(&mut counts.cache_read, number),
            // OpenAI, OpenRouter and Bedrock; Alibaba.
            (Side::Input, "cache_write_tokens" | "cache_creation_input_tokens") => {
                largest(&mut counts.cache_write, number);
            }
            (Side::Input, "ephemeral_5m_input_tokens") => {
                largest(&mut counts.cache_write_5m, number);
            }
            (Side::Input, "ephemeral_1h_input_tokens") => {
                largest(&mut counts.cache_write_1h, number);
            }
            (Side::Output, "reasoning_tokens") => largest(&mut counts.reasoning, number),
            (_, "text_tokens") => largest(&mut by.text, number),
            (_, "image_tokens") => largest(&mut by.image, number),
            (_, "audio_tokens") => largest(&mut by.audio, number),
            (_, "video_tokens") => largest(&mut by.video, number),
            _ => {}
        }
    }
}

/// Key of the object that divides the cached tokens of a Realtime response by modality.
const CACHED_DETAILS: &str = "cached_tokens_details";

/// Prefix of the keys inside that object, after it was merged into the object around it.
const CACHED: &str = "cached_tokens_details.";

fn side(key: &str) -> Option<Side> {
    match key {
        "prompt_tokens_details" | "input_tokens_details" | "input_token_details" => {
            Some(Side::Input)
        }
        _ if is_cache_creation(key) => Some(Side::Input),
        "completion_tokens_details" | "output_tokens_details" | "output_token_details" => {
            Some(Side::Output)
        }
        _ => None,
    }
}

/// Returns whether the member is a count, which must be a number. Providers add other members, of any type.
fn is_count(key: &Text<'_>) -> bool {
    key.0.ends_with("_tokens")
}

/// Returns whether an object with this key divides cache writes by lifetime: in Anthropic's form, and of Alibaba and
/// LiteLLM.
fn is_cache_creation(key: &str) -> bool {
    matches!(key, "cache_creation" | "cache_creation_token_details")
}

fn largest(place: &mut Option<u64>, number: f64) {
    *place = (*place).max(Some(token_count(number)));
}

/// Returns `None` for negative and infinite durations.
fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// The named numbers of an object with details, in order.
#[derive(Debug, Default)]
struct Details<'a>(Vec<(Text<'a>, f64)>);

impl<'de: 'a, 'a> FromAny<'de> for Details<'a> {
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut numbers = Vec::new();
        while let Some(key) = map.next_key::<Text<'a>>()? {
            if is_cache_creation(&key.0) {
                let Object(nested) = map.next_value::<Object<Self>>()?;
                numbers.extend(nested.unwrap_or_default().0);
            } else if key.0 == CACHED_DETAILS {
                let Object(nested) = map.next_value::<Object<Self>>()?;
                let nested = nested.unwrap_or_default().0.into_iter();
                let cached = |Text(key)| Text([CACHED, &*key].concat().into());
                numbers.extend(nested.map(|(key, number)| (cached(key), number)));
            } else {
                let Number(number) = lenient::next_value(&mut map, is_count(&key))?;
                numbers.extend(number.map(|number| (key, number)));
            }
        }
        Ok(Self(numbers))
    }
}

/// An amount of money in US dollars: a number (OpenRouter), or an object with the total (Perplexity).
#[derive(Debug, Default)]
struct Amount(Option<f64>);

impl<'de> FromAny<'de> for Amount {
    fn copied(text: &str) -> Self {
        Self(Number::copied(text).0)
    }

    fn number(number: u64) -> Self {
        Self(Number::number(number).0)
    }

    fn float(number: f64) -> Self {
        Self(Some(number))
    }

    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut total = None;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let Number(number) = lenient::next_value(&mut map, false)?;
            total = if key.0 == "total_cost" { number } else { total };
        }
        Ok(Self(total))
    }
}

impl<'de> FromAny<'de> for RawUsage {
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut usage = Self::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if let Some(side) = side(&key.0) {
                let Object(details) = map.next_value::<Object<Details<'de>>>()?;
                for (key, number) in details.unwrap_or_default().0 {
                    usage.detail(side, &key.0, number);
                }
            } else if key.0 == "cost" {
                let Amount(amount) = lenient::next_value(&mut map, false)?;
                usage.cost.amount = amount;
            } else if key.0 == "cost_details" {
                let Object(details): Object<Details<'de>> = lenient::next_value(&mut map, false)?;
                let mut details = details.unwrap_or_default().0.into_iter();
                let upstream = details.find(|(key, _)| key.0 == "upstream_inference_cost");
                usage.cost.upstream = upstream.map(|(_, amount)| amount);
            } else if key.0 == "is_byok" {
                let Flag(is_own_key) = lenient::next_value(&mut map, false)?;
                usage.cost.is_own_key = is_own_key;
            } else if let Number(Some(number)) = lenient::next_value(&mut map, is_count(&key))? {
                usage.number(&key.0, number);
            }
        }
        Ok(usage)
    }
}

impl_lenient! {
    impl['a] Details<'a> where 'de: 'a;
    impl[] Amount;
    impl[] RawUsage;
}
