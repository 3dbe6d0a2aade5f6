//! What a client makes of an answer: the texts it received, and when the first of them came.

use std::collections::BTreeMap;

use serde_json::Value;

use tokengauge_simulator::tokens;
use tokengauge_types::clock::MonotonicInstant;

/// Reads an answer as it arrives.
#[derive(Debug, Default)]
pub struct Answer {
    /// What has arrived of a line that has not ended.
    pending: Vec<u8>,
    /// By choice and field, since each is one text of its own to a tokeniser.
    texts: BTreeMap<(u64, &'static str), String>,
    /// Pieces of text so far.
    pub pieces: u32,
    pub first_token: Option<MonotonicInstant>,
}

/// An answer of the demo's models has at most 240 tokens of a few bytes; a line never comes near this.
const LONGEST_LINE: usize = 1 << 20;

impl Answer {
    /// Bytes of an event stream arrived.
    pub fn stream(&mut self, bytes: &[u8], at: MonotonicInstant) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.pending);
                self.line(&line, at);
            } else if self.pending.len() < LONGEST_LINE {
                self.pending.push(*byte);
            }
        }
    }

    /// A whole body arrived.
    pub fn whole(&mut self, body: &[u8], at: MonotonicInstant) {
        if let Ok(value) = serde_json::from_slice(body) {
            self.read(&value, "message", at);
        }
    }

    /// Tokens of everything received, in o200k_base.
    pub fn tokens(&self) -> u64 {
        self.texts.values().map(|text| tokens::count(text)).sum()
    }

    fn line(&mut self, line: &[u8], at: MonotonicInstant) {
        let data = line.strip_prefix(b"data: ").map(serde_json::from_slice::<Value>);
        if let Some(Ok(chunk)) = data {
            self.read(&chunk, "delta", at);
        }
    }

    fn read(&mut self, answer: &Value, inner: &str, at: MonotonicInstant) {
        let choices = answer.get("choices").and_then(Value::as_array);
        for choice in choices.into_iter().flatten() {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
            self.text((index, "text"), choice.get("text"), at);
            let Some(message) = choice.get(inner) else {
                continue;
            };
            self.text((index, "content"), message.get("content"), at);
            self.text((index, "reasoning"), message.get("reasoning_content"), at);
            self.text((index, "tool"), message.pointer("/tool_calls/0/function/arguments"), at);
        }
    }

    fn text(&mut self, part: (u64, &'static str), value: Option<&Value>, at: MonotonicInstant) {
        let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) else {
            return;
        };
        self.texts.entry(part).or_default().push_str(text);
        self.pieces += 1;
        self.first_token.get_or_insert(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_empty_texts_are_no_tokens_and_splits_do_not_matter() {
        let stream = concat!(
            ": ping\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"reasoning_content":"So"}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"content":"Hello"}},{"index":1,"delta":{"content":" there"}}]}"#,
            "\n\ndata: [DONE]\n\n",
        );
        let mut answer = Answer::default();
        for (nth, byte) in stream.bytes().enumerate() {
            answer.stream(&[byte], MonotonicInstant::from_nanos(nth as u64));
        }
        assert_eq!((answer.tokens(), answer.pieces), (3, 3));
        let end_of_second = stream.find("So").unwrap() as u64;
        assert!(answer.first_token.unwrap().nanos() > end_of_second);
    }

    #[test]
    fn a_whole_body_is_read_too() {
        let mut answer = Answer::default();
        answer.whole(
            br#"{"choices":[{"index":0,"message":{"content":"Hello there"}}]}"#,
            MonotonicInstant::ZERO,
        );
        assert_eq!(answer.tokens(), 2);
        let mut half = Answer::default();
        half.whole(br#"{"choices":[{"ind"#, MonotonicInstant::ZERO);
        assert_eq!(half.tokens(), 0);
    }
}
