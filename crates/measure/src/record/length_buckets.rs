//! Length buckets, so that only requests of similar length are compared. A long prompt delays the first token, and a
//! short response has no reliable output rate.

use crate::record::Output;
use tokengauge_llm::dialect::{RequestFacts, Usage};

use tokengauge_types::label_enum;

label_enum! {
    /// Range of lengths in tokens, from one chat turn to a long document. Each bound is four times the previous one.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum LengthBucket {
        Below128 = "<128",
        From128 = "128-512",
        From512 = "512-2k",
        From2K = "2k-8k",
        From8K = "8k-32k",
        From32K = ">=32k",
    }
}

impl LengthBucket {
    /// Returns the bucket of a number of tokens. A length equal to a bound belongs to the bucket above; k is 1,024.
    pub const fn from_tokens(tokens: u64) -> Self {
        match tokens {
            0..128 => Self::Below128,
            128..512 => Self::From128,
            512..2_048 => Self::From512,
            2_048..8_192 => Self::From2K,
            8_192..32_768 => Self::From8K,
            32_768.. => Self::From32K,
        }
    }
}

/// Length buckets of a call's prompt and response. `None` means that the length is unknown.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct LengthBuckets {
    /// Input length as reported by the provider, or else estimated: bytes of the prompt's texts ÷ 4.
    pub input: Option<LengthBucket>,
    /// Bucket of N, the number of output tokens.
    pub output: Option<LengthBucket>,
}

impl LengthBuckets {
    pub fn from_call(
        request: &RequestFacts,
        usage: Option<&Usage>,
        output: Option<&Output>,
    ) -> Self {
        let estimate = Some(request.prompt_bytes.div_ceil(4)).filter(|tokens| *tokens > 0);
        let input = usage.and_then(|usage| usage.input).or(estimate);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of tokens: not negative, and what is cut off is a fraction"
        )]
        let output = output.map(|output| output.tokens as u64);
        Self {
            input: input.map(LengthBucket::from_tokens),
            output: output.map(LengthBucket::from_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_upper_bucket() {
        let mut edge = 128;
        for pair in LengthBucket::ALL.windows(2) {
            assert_eq!(
                [LengthBucket::from_tokens(edge - 1), LengthBucket::from_tokens(edge)],
                pair
            );
            edge *= 4;
        }
        assert_eq!(LengthBucket::from_tokens(0), LengthBucket::Below128);
        assert_eq!(LengthBucket::from_tokens(u64::MAX), LengthBucket::From32K);
    }

    #[test]
    fn a_reported_count_takes_precedence_over_the_estimate() {
        let request = |prompt_bytes| RequestFacts { prompt_bytes, ..RequestFacts::default() };
        let usage = Usage { input: Some(600), ..Usage::default() };
        let output = Output { tokens: 127.9, ..Output::default() };
        let length_buckets = LengthBuckets::from_call(&request(400), Some(&usage), Some(&output));
        assert_eq!(length_buckets.input, Some(LengthBucket::From512));
        assert_eq!(length_buckets.output, Some(LengthBucket::Below128));
        let estimated = LengthBuckets::from_call(&request(4 * 128), None, None);
        assert_eq!(estimated.input, Some(LengthBucket::From128));
        assert_eq!(LengthBuckets::from_call(&request(0), None, None), LengthBuckets::default());
    }
}
