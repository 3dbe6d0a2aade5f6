//! Live measurements of a stream: gaps between chunks, and tokens per chunk.

use std::time::Duration;

use crate::timing::Stall;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::TextKind;
use tokengauge_types::clock::MonotonicInstant;

/// A measurement taken while the response is in progress. Measurements are never corrected later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LiveSample {
    /// Generated output tokens. If `source` is [`Source::Counted`], the model's own tokeniser counted them.
    Tokens { kind: TextKind, tokens: u32, source: Source },
    /// Tokens of the same text in the encoding o200k_base, which makes models comparable. Text whose tokens may still
    /// change is reported later, at the latest at the end. The count therefore never decreases and adds up to the exact
    /// count.
    Standard { tokens: u32 },
    /// Inter-token latency: the gap between two chunks with tokens ÷ the number of tokens in the later chunk. The
    /// latency is recorded `tokens` times, once for each token.
    InterToken { latency: Duration, tokens: u32 },
    /// Gap between chunks with text.
    InterChunk { gap: Duration },
    /// Number of tokens in one chunk with text. 0 if the text only extends the last token.
    ChunkTokens { tokens: u32 },
    /// Time per output chunk of the OpenTelemetry semantic conventions: the gap before each chunk except the first,
    /// with or without tokens.
    OutputChunk { gap: Duration },
    /// A stall began. The stall is reported at the next periodic check, or at its end if no check comes before.
    Stalled(Stall),
    /// A stall ended, and its duration is known.
    Resumed(Stall),
}

/// Computes gaps from the arrival times of chunks.
///
/// Time in which the client did not read (blocked time) is subtracted from every gap, because the client and not the
/// model caused this delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamTiming {
    last_chunk: Option<MonotonicInstant>,
    last_text: Option<MonotonicInstant>,
    last_token: Option<MonotonicInstant>,
    /// Blocked time since `last_chunk`, since `last_text` and since `last_token`.
    blocked_since_chunk: Duration,
    blocked_since_text: Duration,
    blocked_since_token: Duration,
    /// Blocked time between the first and the last chunk with text. Rates subtract it from the decode time.
    blocked_in_decode: Duration,
}

impl StreamTiming {
    /// Records that the client did not read for `time` before the next data arrived.
    pub fn block(&mut self, time: Duration) {
        self.blocked_since_chunk += time;
        self.blocked_since_text += time;
        self.blocked_since_token += time;
    }

    /// Records a chunk. `tokens` is the proxy's count of its text; `None` without text.
    ///
    /// The count is 0 if the text only extends the last token of the previous chunk. The gap for the inter-token
    /// latency then extends to the next chunk.
    pub fn chunk(
        &mut self,
        at: MonotonicInstant,
        tokens: Option<u32>,
        out: &mut impl FnMut(LiveSample),
    ) {
        if let Some(previous) = self.last_chunk.replace(at) {
            out(LiveSample::OutputChunk {
                gap: at.since(previous).saturating_sub(self.blocked_since_chunk),
            });
        }
        self.blocked_since_chunk = Duration::ZERO;
        let Some(tokens) = tokens else {
            return;
        };
        out(LiveSample::ChunkTokens { tokens });
        if let Some(previous) = self.last_text.replace(at) {
            let gap = at.since(previous).saturating_sub(self.blocked_since_text);
            self.blocked_in_decode += self.blocked_since_text;
            out(LiveSample::InterChunk { gap });
        }
        self.blocked_since_text = Duration::ZERO;
        if tokens == 0 {
            return;
        }
        if let Some(previous) = self.last_token.replace(at) {
            let gap = at.since(previous).saturating_sub(self.blocked_since_token);
            out(LiveSample::InterToken { latency: gap / tokens, tokens });
        }
        self.blocked_since_token = Duration::ZERO;
    }

    /// Returns the blocked time between first and last token.
    pub const fn blocked_in_decode(&self) -> Duration {
        self.blocked_in_decode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records chunks, each with its time, the blocked time before it, and its tokens.
    fn run(chunks: &[(u64, u64, Option<u32>)]) -> (Vec<LiveSample>, StreamTiming) {
        let (mut samples, mut stream) = (Vec::new(), StreamTiming::default());
        for &(millis, blocked, tokens) in chunks {
            stream.block(Duration::from_millis(blocked));
            stream.chunk(MonotonicInstant::from_millis(millis), tokens, &mut |sample| {
                samples.push(sample)
            });
        }
        (samples, stream)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_gap_is_shared_by_the_tokens_of_the_later_chunk() {
        let (samples, _) = run(&[(100, 0, Some(1)), (160, 0, Some(3))]);
        assert_eq!(
            samples,
            [
                LiveSample::ChunkTokens { tokens: 1 },
                LiveSample::OutputChunk { gap: millis(60) },
                LiveSample::ChunkTokens { tokens: 3 },
                LiveSample::InterChunk { gap: millis(60) },
                LiveSample::InterToken { latency: millis(20), tokens: 3 },
            ]
        );
    }

    #[test]
    fn the_gap_of_a_chunk_without_text_counts_for_the_next_chunk() {
        let (samples, _) = run(&[(0, 0, Some(1)), (30, 0, None), (50, 0, Some(1))]);
        assert!(samples.contains(&LiveSample::InterChunk { gap: millis(50) }));
        assert_eq!(
            samples.iter().filter(|s| matches!(s, LiveSample::OutputChunk { .. })).count(),
            2
        );
    }

    #[test]
    fn a_chunk_that_only_extends_the_last_token_has_a_gap_and_no_token() {
        let (samples, stream) =
            run(&[(0, 0, Some(1)), (30, 10, Some(0)), (50, 0, Some(1)), (90, 20, Some(0))]);
        let of_tokens = samples.iter().filter(|s| !matches!(s, LiveSample::OutputChunk { .. }));
        assert_eq!(
            of_tokens.copied().collect::<Vec<_>>(),
            [
                LiveSample::ChunkTokens { tokens: 1 },
                LiveSample::ChunkTokens { tokens: 0 },
                LiveSample::InterChunk { gap: millis(20) },
                LiveSample::ChunkTokens { tokens: 1 },
                LiveSample::InterChunk { gap: millis(20) },
                LiveSample::InterToken { latency: millis(40), tokens: 1 },
                LiveSample::ChunkTokens { tokens: 0 },
                LiveSample::InterChunk { gap: millis(20) },
            ]
        );
        assert_eq!(stream.blocked_in_decode(), millis(30), "up to the last text");
    }

    #[test]
    fn a_role_chunk_before_the_first_token_starts_no_token_gap() {
        let (samples, _) = run(&[(0, 0, None), (500, 0, Some(1))]);
        assert_eq!(
            samples,
            [LiveSample::OutputChunk { gap: millis(500) }, LiveSample::ChunkTokens { tokens: 1 }]
        );
    }

    #[test]
    fn a_client_that_did_not_read_causes_no_slow_gap() {
        let (samples, stream) = run(&[(0, 0, Some(1)), (1_010, 1_000, Some(1))]);
        assert!(samples.contains(&LiveSample::InterChunk { gap: millis(10) }));
        assert_eq!(stream.blocked_in_decode(), millis(1_000));
    }
}
