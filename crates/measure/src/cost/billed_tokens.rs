//! Tokens that a call used.

use crate::record::{Call, Record};
use tokengauge_llm::count::Source;

/// Tokens that a call used. No token is counted in two fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BilledTokens {
    pub(super) uncached: f64,
    pub(super) cache_read: f64,
    /// Cache writes except those for an hour.
    pub(super) cache_write: f64,
    pub(super) cache_write_1h: f64,
    pub(super) output: f64,
    pub(super) reasoning: f64,
}

impl BilledTokens {
    /// Returns the tokens of a call as the provider reported them.
    ///
    /// Missing numbers are replaced, because providers also bill responses that were cut off. The proxy's count
    /// replaces missing output, and an estimate from the prompt length replaces missing input. The source is then
    /// [`Source::Estimated`]. Returns `None` if nothing shows that the call used tokens. A response that is generated in
    /// the background is not estimated, because a later call fetches its usage.
    pub(super) fn from_call(record: &Record, call: &Call) -> Option<(Self, Source)> {
        if call.request.background && call.usage.is_none() {
            return None;
        }
        let usage = call.usage.unwrap_or_default();
        let generated = call.output.filter(|output| output.counted > 0);
        // An output of 0 beside text is a placeholder.
        let reported_output = usage.output.filter(|output| *output > 0 || generated.is_none());
        if usage.input.is_none() && reported_output.is_none() {
            generated?;
            record.timestamps.sent?;
        }
        let tokens = |count: Option<u64>| number(count.unwrap_or(0));
        let (read, write) = (tokens(usage.cache_read), tokens(usage.cache_write));
        let cache_write_1h = tokens(usage.cache_write_1h);
        let input = usage.input.unwrap_or_else(|| call.request.prompt_bytes.div_ceil(4));
        let reasoning = tokens(usage.reasoning);
        let output = match (reported_output, generated) {
            (Some(output), _) => number(output) - reasoning,
            (None, Some(output)) => output.tokens,
            (None, None) => 0.0,
        };
        let used = Self {
            uncached: (number(input) - read - write).max(0.0),
            cache_read: read,
            cache_write: (write - cache_write_1h).max(0.0),
            cache_write_1h,
            output: output.max(0.0),
            reasoning,
        };
        let is_complete =
            usage.input.is_some() && (reported_output.is_some() || generated.is_none());
        Some((used, if is_complete { Source::Reported } else { Source::Estimated }))
    }

    /// Returns input plus output.
    pub(super) fn total(&self) -> f64 {
        let Self { uncached, cache_read, cache_write, cache_write_1h, output, reasoning } = self;
        uncached + cache_read + cache_write + cache_write_1h + output + reasoning
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
const fn number(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Output;
    use crate::testing::stream;
    use tokengauge_llm::dialect::Usage;

    /// Returns the total tokens of a call with a prompt of 4,000 bytes, and the source of this number.
    fn used(usage: Option<Usage>, counted: Option<u64>) -> Option<(f64, Source)> {
        let mut record = stream();
        let call = record.call.as_mut().unwrap();
        call.usage = usage;
        call.request.prompt_bytes = 4_000;
        call.output =
            counted.map(|counted| Output::reconcile(&counts(counted), call.usage.as_ref()));
        let (used, source) = BilledTokens::from_call(&record, record.call.as_ref().unwrap())?;
        Some((used.total(), source))
    }

    fn counts(total: u64) -> crate::record::TokenCounts {
        crate::record::TokenCounts { total, source: Some(Source::Counted), ..Default::default() }
    }

    fn usage(input: Option<u64>, output: Option<u64>) -> Option<Usage> {
        Some(Usage { input, output, ..Usage::default() })
    }

    #[test]
    fn a_background_response_is_not_estimated() {
        let mut record = stream();
        let call = record.call.as_mut().unwrap();
        call.usage = None;
        call.request.background = true;
        call.output = Some(Output::reconcile(&counts(400), None));
        assert!(BilledTokens::from_call(&record, record.call.as_ref().unwrap()).is_none());
    }

    #[test]
    fn each_unreported_part_is_counted_or_estimated() {
        let estimated = |total| Some((total, Source::Estimated));
        let reported = |total| Some((total, Source::Reported));
        assert_eq!(used(usage(Some(90), Some(10)), Some(9)), reported(100.0));
        assert_eq!(used(usage(Some(90), None), Some(400)), estimated(490.0), "cut off");
        assert_eq!(used(usage(Some(90), Some(0)), Some(400)), estimated(490.0), "a placeholder");
        assert_eq!(used(usage(None, Some(400)), Some(400)), estimated(1_400.0));
        assert_eq!(used(None, Some(400)), estimated(1_400.0));
        assert_eq!(used(usage(Some(90), None), None), reported(90.0), "embeddings");
        assert_eq!(used(usage(Some(90), Some(0)), Some(0)), reported(90.0), "an empty response");
        assert_eq!(used(None, None), None);
        assert_eq!(used(None, Some(0)), None);
    }
}
