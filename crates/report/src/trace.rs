//! Renders a log as a trace of its load, which AIPerf and guidellm replay.
//!
//! The format is Mooncake's: a JSON object per request with the arrival time in milliseconds, the lengths of prompt and
//! response in tokens, and the ids of the prompt's blocks. Two prompts with the same first ids begin with the same text.
//! The log has no text, so the ids follow from the tokens that the provider read from its cache.

use std::collections::HashMap;

use serde::Serialize;

use crate::read::Log;
use crate::row::{NumericField, Row};

/// Tokens of a block, as AIPerf and guidellm expect by default.
const BLOCK: u64 = 512;

/// Maximum number of tokens of a prompt or response. No model accepts more, so a larger number is an error of the log.
const MAX_TOKENS: f64 = 100_000_000.0;

/// Maximum number of blocks of a prompt that the next one can share. 10 million tokens are the longest context window.
const MAX_SHARED: usize = 20_000;

/// The trace of a log.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// A JSON object per line.
    pub text: String,
    /// Requests without a known length of prompt or response, which are not in the trace.
    pub without_lengths: u64,
}

#[derive(Debug, Serialize)]
struct Entry {
    /// Milliseconds since the first request.
    timestamp: u64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
}

impl Trace {
    /// The groups of the log are its sessions. A prompt shares blocks with the previous prompt of its session.
    pub fn from_log(log: &Log) -> Self {
        let mut rows: Vec<&Row> = log.rows.iter().collect();
        rows.sort_by_key(|row| row.start);
        let first = rows.first().map_or(0, |row| row.start);
        let mut trace = Self::default();
        let mut prompts = Prompts::default();
        for row in rows {
            let tokens = |number| tokens(row.value(number)?);
            let input = tokens(NumericField::Input);
            let output = tokens(NumericField::Output).or_else(|| tokens(NumericField::Generated));
            let (Some(input_length), Some(output_length)) = (input, output) else {
                trace.without_lengths += 1;
                continue;
            };
            let cached = tokens(NumericField::Cached).unwrap_or_default();
            let hash_ids = prompts.blocks(row.group, input_length, cached);
            let timestamp = (row.start - first) / 1_000_000;
            trace.push(&Entry { timestamp, input_length, output_length, hash_ids });
        }
        trace
    }

    fn push(&mut self, entry: &Entry) {
        if let Ok(line) = serde_json::to_string(entry) {
            self.text += &line;
            self.text.push('\n');
        }
    }
}

/// Returns a number of tokens above 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn tokens(number: f64) -> Option<u64> {
    (1.0..=MAX_TOKENS).contains(&number).then_some(number.round() as u64)
}

/// The blocks of the latest prompt of each session.
#[derive(Debug, Default)]
struct Prompts {
    latest: HashMap<u32, Vec<u64>>,
    /// The next id that no prompt has.
    next: u64,
}

impl Prompts {
    /// Returns the ids of a prompt's blocks. The complete blocks among its first `cached` tokens are those of the
    /// previous prompt of the session, if that prompt has them.
    fn blocks(&mut self, session: u32, input: u64, cached: u64) -> Vec<u64> {
        let latest = self.latest.entry(session).or_default();
        let shared = usize::try_from(cached.min(input) / BLOCK).unwrap_or(usize::MAX);
        let mut ids: Vec<u64> = latest.iter().copied().take(shared).collect();
        let new = input.div_ceil(BLOCK) - ids.len() as u64;
        ids.extend(self.next..self.next + new);
        self.next += new;
        *latest = ids.iter().copied().take(MAX_SHARED).collect();
        ids
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use std::collections::BTreeMap;

    use super::*;
    use crate::Request;
    use crate::read::{File, read};
    use crate::row::Side;

    fn line(second: u32, session: &str, input: u32, cached: u32, output: u32) -> String {
        format!(
            r#"{{"time":"2026-01-01T00:00:{second:02}.5Z","outcome":"ok","identity":{{"session":"{session}"}},"call":{{"labels":{{"model":"m"}},"usage":{{"input":{input},"cache_read":{cached},"output":{output}}}}}}}"#
        ) + "\n"
    }

    fn trace(log: &str) -> Trace {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, log).unwrap();
        let files = vec![File { path, side: Side::Neither }];
        let by = vec!["session".parse().unwrap(), "model".parse().unwrap()];
        Trace::from_log(
            &read(&Request { files, by, ..Request::default() }, BTreeMap::new()).unwrap(),
        )
    }

    #[test]
    fn a_prompt_shares_its_cached_blocks_with_the_previous_prompt_of_its_session() {
        let log = [
            line(3, "a", 1_700, 1_024, 7),
            line(1, "a", 1_100, 0, 5),
            line(2, "b", 1_100, 1_024, 6),
            line(9, "a", 2_000, 1_700, 8),
        ];
        let expected = "\
            {\"timestamp\":0,\"input_length\":1100,\"output_length\":5,\"hash_ids\":[0,1,2]}\n\
            {\"timestamp\":1000,\"input_length\":1100,\"output_length\":6,\"hash_ids\":[3,4,5]}\n\
            {\"timestamp\":2000,\"input_length\":1700,\"output_length\":7,\"hash_ids\":[0,1,6,7]}\n\
            {\"timestamp\":8000,\"input_length\":2000,\"output_length\":8,\"hash_ids\":[0,1,6,8]}\n";
        assert_eq!(trace(&log.concat()).text, expected);
    }

    #[test]
    fn requests_without_lengths_are_left_out_and_counted() {
        let mut log = line(1, "a", 0, 0, 5) + &line(2, "a", 5, 0, 0);
        writeln!(log, r#"{{"time":"2026-01-01T00:00:03Z","outcome":"ok","call":{{}}}}"#).unwrap();
        log += &line(4, "a", 5, 9_000, 1);
        let trace = trace(&log);
        assert_eq!(trace.without_lengths, 3);
        let expected =
            "{\"timestamp\":3000,\"input_length\":5,\"output_length\":1,\"hash_ids\":[0]}\n";
        assert_eq!(trace.text, expected);
    }
}
