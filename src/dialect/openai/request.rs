//! What a request asks for.

use crate::dialect::RequestFacts;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Skimmer, Step, Value};
use crate::label::Name;

const KEYS: [&str; 28] = [
    "model",
    "messages",
    "content",
    "text",
    "prompt",
    "input",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "n",
    "stop",
    "reasoning_effort",
    "reasoning",
    "effort",
    "service_tier",
    "response_format",
    "type",
    "modalities",
    "dimensions",
    "encoding_format",
    "tools",
    "functions",
];

#[derive(Debug)]
pub struct Request {
    skimmer: Skimmer,
    reading: Reading,
}

#[derive(Debug, Default)]
struct Reading {
    facts: RequestFacts,
    short: Short,
    /// The newer name of the limit, which holds where both are given.
    max_completion_tokens: bool,
}

impl Request {
    pub fn new() -> Self {
        Self {
            skimmer: Skimmer::new(&KEYS),
            reading: Reading::default(),
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let reading = &mut self.reading;
        self.skimmer
            .push(bytes, &mut |path, value| reading.take(path, value));
    }

    pub fn facts(&self) -> &RequestFacts {
        &self.reading.facts
    }

    pub fn into_facts(self) -> RequestFacts {
        self.reading.facts
    }
}

impl Reading {
    fn take(&mut self, path: &[Step], value: Value<'_>) {
        match path {
            [Key("messages"), At(_), Key("content")]
            | [Key("messages"), At(_), Key("content"), At(_), Key("text")]
            | [Key("prompt" | "input")]
            | [Key("prompt" | "input"), At(_)] => {
                if let Value::Text(text) = value {
                    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
                    self.facts.prompt_bytes = self.facts.prompt_bytes.saturating_add(bytes);
                }
            }
            [Key("tools" | "functions"), At(_)] => self.facts.tools |= value == Value::Object,
            [Key("stop")] | [Key("stop"), At(_)] if value == Value::TextEnd => {
                *self.facts.stop_sequences.get_or_insert_default() += 1;
            }
            _ => self.field(path, value),
        }
    }

    fn field(&mut self, path: &[Step], value: Value<'_>) {
        match value {
            Value::Number(number) => self.number(path, number),
            Value::Bool(flag) if *path == [Key("stream")] => self.facts.stream = Some(flag),
            Value::Text(piece) if is_word(path) => self.short.push(piece),
            Value::TextEnd if is_word(path) => {
                let word = self.short.take();
                self.word(path, &word);
            }
            Value::Bool(_) | Value::Text(_) | Value::TextEnd => {}
            Value::Object | Value::Array | Value::End | Value::Null => {}
        }
    }

    /// A number of the wrong type (a fraction where a count belongs) is no number.
    fn number(&mut self, path: &[Step], number: &str) {
        let [Key(key)] = path else {
            return;
        };
        let facts = &mut self.facts;
        let integer = || number.parse::<i64>().ok();
        let float = || number.parse::<f64>().ok();
        match *key {
            "max_completion_tokens" => {
                facts.max_tokens = integer();
                self.max_completion_tokens = true;
            }
            "max_tokens" if !self.max_completion_tokens => facts.max_tokens = integer(),
            "temperature" => facts.temperature = float(),
            "top_p" => facts.top_p = float(),
            "top_k" => facts.top_k = integer(),
            "frequency_penalty" => facts.frequency_penalty = float(),
            "presence_penalty" => facts.presence_penalty = float(),
            "seed" => facts.seed = integer(),
            "n" => facts.choices = integer().filter(|choices| *choices != 1),
            "dimensions" => facts.dimensions = integer(),
            _ => {}
        }
    }

    fn word(&mut self, path: &[Step], word: &str) {
        let facts = &mut self.facts;
        match path {
            [Key("model")] => facts.model = Name::new(word),
            [Key("reasoning_effort")] | [Key("reasoning"), Key("effort")] => {
                facts.reasoning_level = Name::new(word);
            }
            [Key("service_tier")] => facts.service_tier = Name::new(word),
            [Key("encoding_format")] => facts.encoding_format = Name::new(word),
            [Key("modalities"), At(_)] if word == "audio" => facts.output_type = Some("speech"),
            [Key("response_format"), Key("type")] if facts.output_type != Some("speech") => {
                facts.output_type = match word {
                    "text" => Some("text"),
                    "json_object" | "json_schema" => Some("json"),
                    _ => None,
                };
            }
            _ => {}
        }
    }
}

/// Whether a string stands there that is read whole.
fn is_word(path: &[Step]) -> bool {
    matches!(
        path,
        [Key("model"
            | "reasoning_effort"
            | "service_tier"
            | "encoding_format")]
            | [Key("reasoning"), Key("effort")]
            | [Key("modalities"), At(_)]
            | [Key("response_format"), Key("type")]
    )
}
