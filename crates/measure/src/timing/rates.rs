//! Rates of one finished response. A rate is `None`, not 0, where its formula does not apply.

use std::time::Duration;

use crate::record::Output;
use crate::timing::timestamps::Timestamps;
use tokengauge_types::label_enum;

/// Minimum number of output tokens after the first chunk for a meaningful output rate.
pub const MIN_RATED_TOKENS: f64 = 10.0;

/// Minimum decode time (first to last token) for a meaningful output rate.
pub const MIN_RATED_DECODE: Duration = Duration::from_millis(100);

/// Rates of one response in tokens per second, and its time per output token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Output TPS, prefill excluded: (N − n₁) ÷ (last − token − blocked). N is the number of output tokens. n₁ is the
    /// part in the first chunk: N × counted n₁ ÷ counted total.
    pub output: Option<f64>,
    /// Reason why `output` is missing, for a streamed generation.
    pub unrated: Option<Unrated>,
    /// Total TPS = N ÷ (end − accept), which includes prefill.
    pub total: Option<f64>,
    /// Time per output token = (last − token − blocked) ÷ (N − 1). `None` if N < 2, or if all tokens arrived at once.
    pub time_per_output_token: Option<Duration>,
}

label_enum! {
    /// Reason why a streamed generation has no output rate.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum Unrated {
        /// No token was generated.
        NoToken = "no_token",
        /// Fewer than [`MIN_RATED_TOKENS`] after the first chunk.
        FewTokens = "few_tokens",
        /// Decode shorter than [`MIN_RATED_DECODE`].
        ShortDecode = "short_decode",
        /// The observer lost part of the stream.
        Unobserved = "unobserved",
    }
}

label_enum! {
    /// Ranges of output tokens per second that users experience differently. The ranges are label values and not
    /// histogram buckets, because some metric stores write the bucket limit `le="5"` and others `le="5.0"`.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum OutputRateRange {
        Below5 = "<5",
        From5 = "5-15",
        From15 = "15-30",
        From30 = "30-60",
        From60 = ">=60",
    }
}

impl OutputRateRange {
    /// Returns the range of a rate in tokens per second. A rate equal to a bound belongs to the range above.
    pub fn from_rate(tokens_per_second: f64) -> Self {
        match tokens_per_second {
            rate if rate < 5.0 => Self::Below5,
            rate if rate < 15.0 => Self::From5,
            rate if rate < 30.0 => Self::From15,
            rate if rate < 60.0 => Self::From30,
            _ => Self::From60,
        }
    }
}

/// Lowest output rate in tokens per second at which a spoken response does not fall behind the speaker.
pub const VOICE_RATE: f64 = 100.0;

impl Rates {
    /// Computes the rates of a streamed response. `blocked` is the time between the first and the last token in which
    /// the client did not read. `observed` is false if the proxy lost part of the stream.
    pub fn of_stream(
        timestamps: &Timestamps,
        output: &Output,
        blocked: Duration,
        observed: bool,
    ) -> Self {
        let (tokens, total) = (output.tokens, total(timestamps, output.tokens));
        if !observed {
            return Self { unrated: Some(Unrated::Unobserved), ..Self::default() };
        }
        let (Some(token), Some(last)) = (timestamps.token, timestamps.last) else {
            return Self { total, unrated: Some(Unrated::NoToken), ..Self::default() };
        };
        let decode = last.since(token).saturating_sub(blocked);
        let (output, unrated) = match output_rate(output, decode) {
            Ok(rate) => (Some(rate), None),
            Err(reason) => (None, Some(reason)),
        };
        let has_gaps = tokens >= 2.0 && !decode.is_zero();
        let time_per_output_token = has_gaps.then(|| decode.div_f64(tokens - 1.0));
        Self { output, unrated, total, time_per_output_token }
    }

    /// Computes the rates of a non-streaming response. Only the total rate is defined, because the times of the tokens
    /// are unknown.
    pub fn of_whole(timestamps: &Timestamps, output: f64) -> Self {
        Self { total: total(timestamps, output), ..Self::default() }
    }
}

fn total(timestamps: &Timestamps, output: f64) -> Option<f64> {
    let duration = timestamps.duration()?.as_secs_f64();
    (output > 0.0 && duration > 0.0).then(|| output / duration)
}

fn output_rate(output: &Output, decode: Duration) -> Result<f64, Unrated> {
    if output.counted == 0 {
        return Err(Unrated::NoToken);
    }
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
    let first = output.tokens * output.counted_first as f64 / output.counted as f64;
    let rest = output.tokens - first;
    if rest < MIN_RATED_TOKENS {
        return Err(Unrated::FewTokens);
    }
    if decode < MIN_RATED_DECODE {
        return Err(Unrated::ShortDecode);
    }
    Ok(rest / decode.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::clock::MonotonicInstant;

    fn timestamps(token: u64, last: u64, end: u64) -> Timestamps {
        let at = |millis| Some(MonotonicInstant::from_millis(millis));
        Timestamps {
            accept: MonotonicInstant::ZERO,
            sent: at(1),
            token: at(token),
            last: at(last),
            end: at(end),
            ..Timestamps::default()
        }
    }

    fn output(tokens: f64, counted: u64, counted_first: u64) -> Output {
        Output { tokens, counted, counted_first, ..Output::default() }
    }

    #[test]
    fn the_output_rate_excludes_prefill_and_the_first_chunk() {
        // 101 tokens, 1 in the first chunk; 100 tokens in 2 s are 50 per second. Total: 101 in 3.1 s.
        let rates = Rates::of_stream(
            &timestamps(1_000, 3_000, 3_100),
            &output(101.0, 101, 1),
            Duration::ZERO,
            true,
        );
        assert_eq!(rates.output, Some(50.0));
        assert_eq!(rates.unrated, None);
        assert!((rates.total.unwrap() - 101.0 / 3.1).abs() < 1e-9);
        assert_eq!(rates.time_per_output_token, Some(Duration::from_millis(20)));
    }

    #[test]
    fn the_first_chunk_is_scaled_to_the_reported_number() {
        // The proxy counts 50 tokens, 10 of them in the first chunk, and the provider reports 100. The first chunk
        // therefore holds 20 of the provider's tokens.
        let rates = Rates::of_stream(
            &timestamps(1_000, 2_000, 2_000),
            &output(100.0, 50, 10),
            Duration::ZERO,
            true,
        );
        assert_eq!(rates.output, Some(80.0));
    }

    /// A stream has an output rate even if its tokens arrive more slowly than the first one. Alerts on rates must find
    /// such slow streams: `docs/adr/0007-slow-decode.md`.
    #[test]
    fn a_decode_slower_than_the_first_token_has_a_rate() {
        // First token after 300 ms, then one every 500 ms: 2 per second. The average of 21 tokens in 10.3 s is slightly
        // higher.
        let rates = Rates::of_stream(
            &timestamps(300, 10_300, 10_300),
            &output(21.0, 21, 1),
            Duration::ZERO,
            true,
        );
        assert_eq!(rates.output, Some(2.0));
        assert!(rates.total > rates.output);
        assert_eq!(rates.unrated, None);
    }

    #[test]
    fn time_in_which_the_client_did_not_read_is_not_decode_time() {
        let rates = Rates::of_stream(
            &timestamps(1_000, 5_000, 5_000),
            &output(101.0, 101, 1),
            Duration::from_secs(2),
            true,
        );
        assert_eq!(rates.output, Some(50.0));
        assert_eq!(rates.time_per_output_token, Some(Duration::from_millis(20)));
    }

    #[test]
    fn none_one_and_two_tokens() {
        let none = Rates::of_stream(
            &Timestamps { token: None, last: None, ..timestamps(0, 0, 1_000) },
            &output(0.0, 0, 0),
            Duration::ZERO,
            true,
        );
        assert_eq!(
            (none.output, none.total, none.time_per_output_token, none.unrated),
            (None, None, None, Some(Unrated::NoToken))
        );
        let one = Rates::of_stream(
            &timestamps(500, 500, 1_000),
            &output(1.0, 1, 1),
            Duration::ZERO,
            true,
        );
        assert_eq!(
            (one.output, one.total, one.time_per_output_token, one.unrated),
            (None, Some(1.0), None, Some(Unrated::FewTokens))
        );
        let two = Rates::of_stream(
            &timestamps(500, 700, 1_000),
            &output(2.0, 2, 1),
            Duration::ZERO,
            true,
        );
        assert_eq!(
            (two.output, two.time_per_output_token),
            (None, Some(Duration::from_millis(200)))
        );
    }

    #[test]
    fn tokens_of_one_chunk_have_no_time_per_token() {
        let of = |last, blocked| {
            let output = output(40.0, 40, 40);
            Rates::of_stream(&timestamps(900, last, 1_000), &output, blocked, true)
                .time_per_output_token
        };
        assert_eq!(of(900, Duration::ZERO), None, "0 s per token would be the best possible");
        assert_eq!(of(939, Duration::from_millis(39)), None, "the client held them back");
        assert_eq!(of(939, Duration::ZERO), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_burst_has_no_rate() {
        let rates = Rates::of_stream(
            &timestamps(900, 999, 1_000),
            &output(1_000.0, 1_000, 1),
            Duration::ZERO,
            true,
        );
        assert_eq!((rates.output, rates.unrated), (None, Some(Unrated::ShortDecode)));
    }

    #[test]
    fn unobserved_responses_have_no_rate() {
        let rates = Rates::of_stream(
            &timestamps(1_000, 3_000, 3_000),
            &output(101.0, 101, 1),
            Duration::ZERO,
            false,
        );
        assert_eq!(
            (rates.output, rates.total, rates.unrated),
            (None, None, Some(Unrated::Unobserved))
        );
    }

    #[test]
    fn a_non_streaming_response_has_only_a_total() {
        let rates = Rates::of_whole(&timestamps(0, 0, 2_000), 100.0);
        assert_eq!(rates, Rates { total: Some(50.0), ..Rates::default() });
    }

    #[test]
    fn a_bound_belongs_to_the_upper_band() {
        let bands = [0.0, 4.999, 5.0, 15.0, 30.0, 59.99, 60.0, 1e6]
            .map(|rate| OutputRateRange::from_rate(rate).as_str());
        assert_eq!(bands, ["<5", "<5", "5-15", "15-30", "30-60", "30-60", ">=60", ">=60"]);
    }
}
