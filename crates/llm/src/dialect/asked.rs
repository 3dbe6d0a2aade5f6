//! What a request asks for, as its body is read: the facts, and what it takes to collect them.

use super::json::{Short, Step, Value};
use super::{Api, RequestFacts};

/// The facts of a request so far.
#[derive(Debug, Default)]
pub struct Asked {
    pub facts: RequestFacts,
    short: Short,
    /// The limit on tokens was given by its newer name, which holds where both are given.
    pub newer_limit: bool,
    /// The API by the request's path, where that is one that others have too.
    pub by_path: Option<Api>,
    /// The part of a prompt that is being read is no text.
    pub no_text: bool,
}

/// How a family of formats reads its requests: the keys on the way to what it wants, and what it makes of each value.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub keys: &'static [&'static str],
    pub take: fn(&mut Asked, &[Step], Value<'_>),
}

impl Asked {
    /// The value is (a piece of) a text of the prompt.
    pub fn prompt(&mut self, value: Value<'_>) {
        if let Value::Text(text) = value {
            let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
            self.facts.prompt_bytes = self.facts.prompt_bytes.saturating_add(bytes);
        }
    }

    /// Takes one of the settings that most formats have, each under a name or two. A number of the wrong type is none.
    pub fn setting(&mut self, name: &str, value: Value<'_>) {
        if let "stop" | "stop_sequences" | "stop_words" = name {
            return self.stop(value);
        }
        if !matches!(value, Value::Number(_)) {
            return;
        }
        let facts = &mut self.facts;
        match name {
            "max_tokens" | "max_new_tokens" | "max_output_tokens" | "maximum_tokens"
            | "num_predict" | "n_predict" => {
                // Some say -1 for as many as there may be.
                facts.max_tokens = integer(value).filter(|limit| *limit >= 0);
            }
            "temperature" => facts.temperature = float(value),
            "top_p" => facts.top_p = float(value),
            "top_k" => facts.top_k = integer(value),
            "frequency_penalty" => facts.frequency_penalty = float(value),
            "presence_penalty" => facts.presence_penalty = float(value),
            "dimensions" => facts.dimensions = integer(value),
            "seed" | "random_seed" | "sampling_seed" => facts.seed = integer(value),
            "n" | "n_cmpl" => facts.choices = integer(value).filter(|choices| *choices != 1),
            _ => {}
        }
    }

    /// Counts a stop sequence: one, or one of a list.
    fn stop(&mut self, value: Value<'_>) {
        if let Some(sequence) = self.word(value)
            && !sequence.is_empty()
        {
            *self.facts.stop_sequences.get_or_insert_default() += 1;
        }
    }

    /// Collects a short string out of its pieces; what it was, once it is over.
    pub fn word(&mut self, value: Value<'_>) -> Option<String> {
        match value {
            Value::Text(piece) => {
                self.short.push(piece);
                None
            }
            Value::TextEnd => Some(self.short.take()),
            Value::Object
            | Value::Array
            | Value::End
            | Value::Number(_)
            | Value::Bool(_)
            | Value::Null => None,
        }
    }
}

/// A whole number; what has a fraction or an exponent is none.
pub fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Number(number) => number.parse().ok(),
        Value::Object
        | Value::Array
        | Value::End
        | Value::Text(_)
        | Value::TextEnd
        | Value::Bool(_)
        | Value::Null => None,
    }
}

pub fn float(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Number(number) => number.parse().ok(),
        Value::Object
        | Value::Array
        | Value::End
        | Value::Text(_)
        | Value::TextEnd
        | Value::Bool(_)
        | Value::Null => None,
    }
}

pub const fn flag(value: Value<'_>) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(flag),
        Value::Object
        | Value::Array
        | Value::End
        | Value::Text(_)
        | Value::TextEnd
        | Value::Number(_)
        | Value::Null => None,
    }
}
