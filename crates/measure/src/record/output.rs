//! Number of output tokens of a request (N), from reported and counted tokens.

use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{TextKind, Usage};

/// Output tokens of one call. Each number has its source: reported, counted or estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Output {
    /// N, the number of output tokens: the reported number − `hidden`. If no usage was reported, `counted` is used
    /// instead.
    pub tokens: f64,
    pub source: Option<Source>,
    /// The proxy's count of all streamed tokens. `counted_source` shows which tokeniser was used.
    pub counted: u64,
    /// [`Source::Counted`] if the model's own tokeniser was used, [`Source::Estimated`] if another one was used.
    pub counted_source: Option<Source>,
    /// The proxy's count of the first token-bearing chunk.
    pub counted_first: u64,
    /// Tokens of the same text in o200k_base.
    pub standard: u64,
    /// Tokens that were reported but not streamed: max(0, reported reasoning − counted streamed reasoning) + compaction.
    /// Output tokens that only the reported total shows count as reported reasoning.
    pub hidden: u64,
    /// `counted` by kind, in the order of [`TextKind::ALL`].
    pub by_kind: [u64; TextKind::ALL.len()],
}

/// Token counts of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenCounts {
    pub total: u64,
    pub first: u64,
    pub standard: u64,
    pub by_kind: [u64; TextKind::ALL.len()],
    pub source: Option<Source>,
}

impl TokenCounts {
    /// Combines two consecutive counts.
    pub fn followed_by(&self, later: &Self) -> Self {
        let mut by_kind = self.by_kind;
        for (sum, more) in by_kind.iter_mut().zip(later.by_kind) {
            *sum += more;
        }
        let is_estimate = self.source == Some(Source::Estimated);
        let source = if self.total > 0 && (later.total == 0 || is_estimate) {
            self.source
        } else {
            later.source
        };
        Self {
            total: self.total + later.total,
            first: if self.total > 0 { self.first } else { later.first },
            standard: self.standard + later.standard,
            by_kind,
            source,
        }
    }

    fn reasoning(&self) -> u64 {
        TextKind::ALL
            .iter()
            .zip(self.by_kind)
            .find(|(kind, _)| **kind == TextKind::Reasoning)
            .map_or(0, |(_, tokens)| tokens)
    }
}

impl Output {
    /// Computes N = reported output − hidden tokens. Without a usage report, N is the proxy's count.
    ///
    /// The reported number is also ignored in two cases:
    ///
    /// - Other numbers of the report contradict it.
    /// - Text was streamed, but the usage is zero.
    pub fn reconcile(counted: &TokenCounts, usage: Option<&Usage>) -> Self {
        let usage = usage.copied().unwrap_or_default();
        let unshown = usage.unshown().unwrap_or(0).saturating_sub(counted.reasoning());
        let hidden = unshown.saturating_add(usage.compaction.unwrap_or(0));
        let (tokens, source) = match usage.output {
            Some(0) if counted.total > 0 => (counted.total, counted.source),
            Some(_) if usage.output_in_doubt => (counted.total, counted.source),
            Some(output) => (output.saturating_sub(hidden), Some(Source::Reported)),
            None => (counted.total, counted.source),
        };
        Self {
            #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
            tokens: tokens as f64,
            source,
            counted: counted.total,
            counted_source: counted.source,
            counted_first: counted.first,
            standard: counted.standard,
            hidden,
            by_kind: counted.by_kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: u64, reasoning: u64) -> TokenCounts {
        TokenCounts {
            total: text + reasoning,
            first: 1,
            standard: text + reasoning,
            by_kind: [text, reasoning, 0, 0, 0],
            source: Some(Source::Counted),
        }
    }

    fn usage(output: u64, reasoning: Option<u64>) -> Usage {
        Usage { output: Some(output), reasoning, ..Usage::default() }
    }

    fn n(counted: &TokenCounts, usage: Option<Usage>) -> (f64, Option<Source>, u64) {
        let output = Output::reconcile(counted, usage.as_ref());
        (output.tokens, output.source, output.hidden)
    }

    #[test]
    fn turns_add_up_and_one_estimated_turn_makes_the_sum_estimated() {
        let source =
            |total, source| TokenCounts { total, source: Some(source), ..TokenCounts::default() };
        let actual = |earlier: TokenCounts, later: TokenCounts| {
            let both = earlier.followed_by(&later);
            (both.total, both.source)
        };
        let (counted, estimated) = (Source::Counted, Source::Estimated);
        assert_eq!(counted_turns(), (30, 1, 30, [22, 8, 0, 0, 0]));
        assert_eq!(actual(source(1, counted), source(2, counted)), (3, Some(counted)));
        assert_eq!(actual(source(1, counted), source(2, estimated)), (3, Some(estimated)));
        assert_eq!(actual(source(1, estimated), source(2, counted)), (3, Some(estimated)));
        assert_eq!(actual(source(1, counted), source(0, estimated)), (1, Some(counted)));
        assert_eq!(actual(TokenCounts::default(), source(2, counted)), (2, Some(counted)));
    }

    fn counted_turns() -> (u64, u64, u64, [u64; 5]) {
        let both = counted(20, 3).followed_by(&counted(2, 5));
        (both.total, both.first, both.standard, both.by_kind)
    }

    #[test]
    fn reported_counts_take_precedence() {
        assert_eq!(
            n(&counted(98, 0), Some(usage(100, Some(0)))),
            (100.0, Some(Source::Reported), 0)
        );
    }

    #[test]
    fn hidden_reasoning_is_not_streamed_output() {
        // 500 reported, 400 of them reasoning, none of it streamed: 100 tokens were delivered.
        assert_eq!(
            n(&counted(99, 0), Some(usage(500, Some(400)))),
            (100.0, Some(Source::Reported), 400)
        );
        // 150 of the 400 were streamed: 250 are hidden, 250 delivered.
        assert_eq!(
            n(&counted(99, 150), Some(usage(500, Some(400)))),
            (250.0, Some(Source::Reported), 250)
        );
    }

    #[test]
    fn without_usage_the_own_count_is_used_with_its_source() {
        assert_eq!(n(&counted(42, 0), None), (42.0, Some(Source::Counted), 0));
        let estimated = TokenCounts { source: Some(Source::Estimated), ..counted(42, 0) };
        assert_eq!(n(&estimated, None), (42.0, Some(Source::Estimated), 0));
    }

    #[test]
    fn streamed_reasoning_without_a_split_in_usage_leaves_the_reported_count_exact() {
        assert_eq!(n(&counted(40, 60), Some(usage(90, None))), (90.0, Some(Source::Reported), 0));
    }

    #[test]
    fn tokens_that_only_the_total_shows_are_hidden_unless_they_were_streamed() {
        let usage = Usage { unlisted: Some(288), ..usage(295, None) };
        assert_eq!(n(&counted(7, 0), Some(usage)), (7.0, Some(Source::Reported), 288));
        assert_eq!(n(&counted(7, 50), Some(usage)), (57.0, Some(Source::Reported), 238));
        let listed = Usage { output: Some(300), reasoning: Some(5), ..usage };
        assert_eq!(n(&counted(7, 0), Some(listed)), (7.0, Some(Source::Reported), 293));
    }

    #[test]
    fn compaction_is_hidden_although_reasoning_was_streamed() {
        let usage = Usage { compaction: Some(3_500), ..usage(4_500, None) };
        assert_eq!(n(&counted(600, 390), Some(usage)), (1_000.0, Some(Source::Reported), 3_500));
    }

    #[test]
    fn a_contradictory_report_does_not_replace_the_count() {
        let usage = Usage { output_in_doubt: true, ..usage(293, None) };
        assert_eq!(n(&counted(60, 0), Some(usage)), (60.0, Some(Source::Counted), 0));
        assert_eq!(n(&counted(0, 0), Some(usage)), (0.0, Some(Source::Counted), 0));
    }

    #[test]
    fn usage_of_only_zeros_beside_text_is_ignored() {
        assert_eq!(n(&counted(42, 0), Some(usage(0, None))), (42.0, Some(Source::Counted), 0));
    }

    #[test]
    fn an_empty_answer_reported_as_empty_is_zero() {
        let nothing = TokenCounts {
            total: 0,
            first: 0,
            standard: 0,
            by_kind: [0; 5],
            source: Some(Source::Counted),
        };
        assert_eq!(n(&nothing, Some(usage(0, None))), (0.0, Some(Source::Reported), 0));
    }
}
