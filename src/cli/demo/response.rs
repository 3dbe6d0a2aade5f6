//! The text of a response, as a client receives it, and the time of its first token.

use std::collections::BTreeMap;

use serde_json::Value;

use tokengauge_simulator::tokens;
use tokengauge_types::clock::MonotonicInstant;

/// Collects the text of a response.
#[derive(Debug, Default)]
pub struct ResponseText {
    /// The start of an incomplete line.
    pending: Vec<u8>,
    /// By choice and field, because each is tokenized separately.
    texts: BTreeMap<(u64, &'static str), String>,
    /// Number of text chunks so far.
    pub chunks: u32,
    pub first_token: Option<MonotonicInstant>,
}

/// Far longer than a line of the demo's models, whose responses have at most 240 tokens.
const MAX_LINE_BYTES: usize = 1 << 20;

impl ResponseText {
    /// Adds bytes of an event stream.
    pub fn add_stream(&mut self, bytes: &[u8], at: MonotonicInstant) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.pending);
                self.add_line(&line, at);
            } else if self.pending.len() < MAX_LINE_BYTES {
                self.pending.push(*byte);
            }
        }
    }

    /// Adds a non-streaming body.
    pub fn add_body(&mut self, body: &[u8], at: MonotonicInstant) {
        if let Ok(value) = serde_json::from_slice(body) {
            self.add_choices(&value, "message", at);
        }
    }

    /// Counts the received tokens in o200k_base.
    pub fn tokens(&self) -> u64 {
        self.texts.values().map(|text| tokens::count(text)).sum()
    }

    fn add_line(&mut self, line: &[u8], at: MonotonicInstant) {
        let data = line.strip_prefix(b"data: ").map(serde_json::from_slice::<Value>);
        if let Some(Ok(chunk)) = data {
            self.add_choices(&chunk, "delta", at);
        }
    }

    fn add_choices(&mut self, response: &Value, inner: &str, at: MonotonicInstant) {
        let choices = response.get("choices").and_then(Value::as_array);
        for choice in choices.into_iter().flatten() {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
            self.add_text((index, "text"), choice.get("text"), at);
            let Some(message) = choice.get(inner) else {
                continue;
            };
            self.add_text((index, "content"), message.get("content"), at);
            self.add_text((index, "reasoning"), message.get("reasoning_content"), at);
            self.add_text((index, "tool"), message.pointer("/tool_calls/0/function/arguments"), at);
        }
    }

    fn add_text(&mut self, part: (u64, &'static str), value: Option<&Value>, at: MonotonicInstant) {
        let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) else {
            return;
        };
        self.texts.entry(part).or_default().push_str(text);
        self.chunks += 1;
        self.first_token.get_or_insert(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_tokens_at_every_split_and_ignores_roles() {
        let stream = concat!(
            ": ping\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"reasoning_content":"So"}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"content":"Hello"}},{"index":1,"delta":{"content":" there"}}]}"#,
            "\n\ndata: [DONE]\n\n",
        );
        let mut response = ResponseText::default();
        for (nth, byte) in stream.bytes().enumerate() {
            response.add_stream(&[byte], MonotonicInstant::from_nanos(nth as u64));
        }
        assert_eq!((response.tokens(), response.chunks), (3, 3));
        let end_of_second = stream.find("So").unwrap() as u64;
        assert!(response.first_token.unwrap().nanos() > end_of_second);
    }

    #[test]
    fn reads_a_body() {
        let mut response = ResponseText::default();
        response.add_body(
            br#"{"choices":[{"index":0,"message":{"content":"Hello there"}}]}"#,
            MonotonicInstant::ZERO,
        );
        assert_eq!(response.tokens(), 2);
        let mut half = ResponseText::default();
        half.add_body(br#"{"choices":[{"ind"#, MonotonicInstant::ZERO);
        assert_eq!(half.tokens(), 0);
    }
}
