//! Token counts, and the clocks that some backends put beside them, in all the places where providers of this format
//! have them.

use std::time::Duration;

use serde::de::MapAccess;

use crate::dialect::json::Step;
use crate::dialect::lenient::{FromAny, Number, Object, Text, read_leniently, whole};
use crate::dialect::{ByModality, Timings, Usage};

/// What a usage object says, by meaning; so too the objects of clocks that some send beside it (llama.cpp's `timings`,
/// Cerebras' `time_info`, Fireworks' `perf_metrics`, LM Studio's `stats`).
///
/// One number may stand under several names, and some providers leave zero in all but one: the largest holds.
#[derive(Debug, Default, PartialEq)]
pub struct RawUsage {
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
    input_by: ByModality,
    output_by: ByModality,
    timings: Timings,
}

/// Which number the details are of.
#[derive(Clone, Copy, Debug)]
enum Side {
    Input,
    Output,
}

impl RawUsage {
    /// Takes one number of an object that is read piecemeal; `path` is the way to it from that object.
    pub fn set(&mut self, path: &[Step], number: f64) {
        match path {
            [Step::Key(key)] => self.number(key, number),
            [Step::Key(details), Step::Key(key)] => {
                if let Some(side) = side(details) {
                    self.detail(side, key, number);
                }
            }
            _ => {}
        }
    }

    /// The counts by the standard's meaning; `None` where there are none.
    ///
    /// xAI's chat format leaves reasoning out of the completion. No field says so, but the sum does: then the total is
    /// prompt + completion + reasoning, where everyone else's is prompt + completion.
    pub fn harmonised(&self) -> Option<Usage> {
        let mut output = self.output;
        if let (Some(input), Some(visible), Some(reasoning), Some(total)) =
            (self.input, output, self.reasoning, self.total)
            && reasoning > 0
            && input.checked_add(visible)?.checked_add(reasoning)? == total
        {
            output = Some(visible + reasoning);
        }
        let usage = Usage {
            input: self.input,
            output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.reasoning,
            input_by: self.input_by,
            output_by: self.output_by,
        };
        (usage != Usage::default()).then_some(usage)
    }

    /// What went in, where nothing came out: some embeddings give only the total.
    pub fn harmonised_input(&self) -> Option<Usage> {
        let usage = self.harmonised().unwrap_or_default();
        let usage = Usage { input: usage.input.or(self.total), ..usage };
        (usage != Usage::default()).then_some(usage)
    }

    pub fn timings(&self) -> Option<Timings> {
        (self.timings != Timings::default()).then_some(self.timings)
    }

    fn number(&mut self, key: &str, number: f64) {
        let clocks = &mut self.timings;
        match key {
            "prompt_tokens" | "input_tokens" => largest(&mut self.input, number),
            "completion_tokens" | "output_tokens" => largest(&mut self.output, number),
            "total_tokens" => largest(&mut self.total, number),
            // Moonshot and Hugging Face; DeepSeek; Databricks, Doubleword and Venice.
            "cached_tokens" | "prompt_cache_hit_tokens" | "cache_read_input_tokens" => {
                largest(&mut self.cache_read, number);
            }
            "cache_creation_input_tokens" => largest(&mut self.cache_write, number),
            // GitHub Copilot.
            "reasoning_tokens" => largest(&mut self.reasoning, number),
            // Groq, Cerebras and TabbyAPI; mistral.rs; llama.cpp; LM Studio; SambaNova and Fireworks.
            "queue_time" => clocks.queue = seconds(number),
            "prompt_time" | "total_prompt_time_sec" => clocks.prefill = seconds(number),
            "completion_time" | "total_completion_time_sec" | "generation_time" => {
                clocks.decode = seconds(number);
            }
            "prompt_ms" => clocks.prefill = seconds(number / 1e3),
            "predicted_ms" => clocks.decode = seconds(number / 1e3),
            "total_time" | "total_time_sec" | "total_latency" | "server-processing-time" => {
                clocks.total = seconds(number);
            }
            _ => {}
        }
    }

    fn detail(&mut self, side: Side, key: &str, number: f64) {
        let by = match side {
            Side::Input => &mut self.input_by,
            Side::Output => &mut self.output_by,
        };
        match (side, key) {
            (Side::Input, "cached_tokens") => largest(&mut self.cache_read, number),
            // OpenAI, OpenRouter and Bedrock; Alibaba.
            (Side::Input, "cache_write_tokens" | "cache_creation_input_tokens") => {
                largest(&mut self.cache_write, number);
            }
            (Side::Output, "reasoning_tokens") => largest(&mut self.reasoning, number),
            // Every model has zeros there for what it cannot read or write: they are no split.
            _ if number <= 0.0 => {}
            (_, "text_tokens") => largest(&mut by.text, number),
            (_, "image_tokens") => largest(&mut by.image, number),
            (_, "audio_tokens") => largest(&mut by.audio, number),
            (_, "video_tokens") => largest(&mut by.video, number),
            _ => {}
        }
    }
}

fn side(key: &str) -> Option<Side> {
    match key {
        "prompt_tokens_details" | "input_tokens_details" | "input_token_details" => {
            Some(Side::Input)
        }
        "completion_tokens_details" | "output_tokens_details" | "output_token_details" => {
            Some(Side::Output)
        }
        _ => None,
    }
}

fn largest(place: &mut Option<u64>, number: f64) {
    *place = (*place).max(whole(number));
}

/// `None` for what no clock can show.
fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// The numbers of an object of details, in the order in which they stand.
#[derive(Debug, Default)]
struct Details<'a>(Vec<(Text<'a>, f64)>);

impl<'de: 'a, 'a> FromAny<'de> for Details<'a> {
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut numbers = Vec::new();
        while let Some((key, Number(number))) = map.next_entry::<Text<'a>, Number>()? {
            numbers.extend(number.map(|number| (key, number)));
        }
        Ok(Self(numbers))
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
            } else if let Number(Some(number)) = map.next_value()? {
                usage.number(&key.0, number);
            }
        }
        Ok(usage)
    }
}

read_leniently! {
    impl['a] Details<'a> where 'de: 'a;
    impl[] RawUsage;
}
