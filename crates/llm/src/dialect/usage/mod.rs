//! Computes token counts of formats in which one report does not cover the whole response.

use std::collections::BTreeMap;

use super::emit::emit_usage;
use super::event::sum;
use super::token_count::{IMPLAUSIBLE, MAX_TOKENS};
use super::{Event, EventSink, RequestFacts, Usage};
use crate::frame::ParseError;

/// Maximum number of results whose counts are kept separately. No client requests more.
const MAX_RESULTS: usize = 128;

/// Adds up the token counts of a response that reports usage separately for each result.
#[derive(Debug, Default)]
pub struct ResultUsage {
    by_result: BTreeMap<u32, Usage>,
    /// Number of results per prompt. Each result reports the whole prompt, so the input sum is divided by this number.
    per_prompt: u64,
}

impl ResultUsage {
    pub fn new(request: &RequestFacts) -> Self {
        let choices = request.choices.and_then(|choices| u64::try_from(choices).ok());
        Self { by_result: BTreeMap::new(), per_prompt: choices.unwrap_or(1).max(1) }
    }

    /// Replaces the counts of one result, and emits the counts of the whole response.
    pub fn add(&mut self, result: u32, mut usage: Usage, out: &mut impl EventSink) {
        if usage.remove_implausible() {
            out(Event::ParseError(ParseError::BadCount));
        }
        if usage == Usage::default() {
            return;
        }
        if self.by_result.len() < MAX_RESULTS || self.by_result.contains_key(&result) {
            self.by_result.insert(result, usage);
        }
        let sum = self.by_result.values().copied().reduce(Usage::sum).unwrap_or_default();
        let repeats = self.per_prompt.min(self.by_result.len() as u64).max(1);
        let of_prompts = |sum: Option<u64>| sum.map(|sum| sum / repeats);
        let usage = Usage {
            input: of_prompts(sum.input),
            cache_read: of_prompts(sum.cache_read),
            cache_write: of_prompts(sum.cache_write),
            cache_write_5m: of_prompts(sum.cache_write_5m),
            cache_write_1h: of_prompts(sum.cache_write_1h),
            input_by: sum.input_by.map(of_prompts),
            cache_read_by: sum.cache_read_by.map(of_prompts),
            ..sum
        };
        emit_usage(usage, out);
    }
}

/// Where a format counts the parts of its input and output.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placement {
    /// Whether the input excludes cached tokens.
    pub cache_beside: bool,
    /// Whether the output excludes reasoning.
    pub reasoning_beside: bool,
    /// Whether the input excludes the prompts of built-in tools.
    pub tools_beside: bool,
}

impl Placement {
    /// All parts are inside, as OpenTelemetry and OpenAI count them.
    pub const INSIDE: Self =
        Self { cache_beside: false, reasoning_beside: false, tools_beside: false };
    /// Cached tokens are beside the input, as Anthropic and Bedrock count them.
    pub const CACHE_BESIDE: Self = Self { cache_beside: true, ..Self::INSIDE };
    /// Thoughts and tool prompts are beside, as Google counts them.
    pub const THOUGHTS_BESIDE: Self =
        Self { reasoning_beside: true, tools_beside: true, ..Self::INSIDE };

    /// Returns this placement, and then all others. Those that differ least come first.
    fn all(self) -> impl Iterator<Item = Self> {
        let differing = [
            (false, false, false),
            (true, false, false),
            (false, true, false),
            (false, false, true),
            (true, true, false),
            (true, false, true),
            (false, true, true),
            (true, true, true),
        ];
        differing.into_iter().map(move |(reasoning, cache, tools)| Self {
            reasoning_beside: self.reasoning_beside ^ reasoning,
            cache_beside: self.cache_beside ^ cache,
            tools_beside: self.tools_beside ^ tools,
        })
    }
}

/// Token counts as a provider reports them.
///
/// A format defines whether a part, such as reasoning, is inside or beside the input or output. Servers deviate from
/// their format, so the reported total decides, if there is one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReportedUsage {
    /// The counts. Input and output exclude the parts beside them.
    pub counts: Usage,
    /// Tokens of the prompts of built-in tools.
    pub tools: Option<u64>,
    /// Sum of all tokens.
    pub total: Option<u64>,
    /// Whether tokens that only the total shows are input, such as audio. Otherwise, they are output.
    pub unlisted_is_input: bool,
}

impl ReportedUsage {
    /// Returns the counts as OpenTelemetry defines them. `convention` is the placement that the format defines.
    ///
    /// - The placement whose sum is the total applies, and the convention if there is no total. A part that exceeds its
    ///   whole is not inside it.
    /// - If the total exceeds the sum, the difference is output that the provider does not list, such as thoughts.
    /// - An implausible total makes the result implausible.
    /// - If the total is less than the sum, and no placement explains it, the output is in doubt.
    pub fn resolve(self, convention: Placement) -> Usage {
        let mut usage = self.placed(convention);
        let total = self.total.filter(|total| *total > 0);
        if total.is_some_and(|total| total > MAX_TOKENS) {
            return Usage { unlisted: Some(IMPLAUSIBLE), ..usage };
        }
        if let Some(total) = total {
            let placed = || convention.all().map(|placement| self.placed(placement));
            if let Some(found) =
                placed().find(|usage| sum_of(usage) == total && usage.is_consistent())
            {
                usage = found;
            } else if usage.input.is_some()
                && let Some(output) = usage.output
            {
                let sum = sum_of(&usage);
                if total > sum && self.unlisted_is_input {
                    usage.input = usage.input.map(|input| input.saturating_add(total - sum));
                } else if total > sum && usage.is_consistent() {
                    usage.unlisted = Some(total - sum);
                    usage.output = Some(output.saturating_add(total - sum));
                } else if (total..=MAX_TOKENS).contains(&sum)
                    && placed().all(|usage| sum_of(&usage) != total)
                {
                    usage.output_in_doubt = true;
                }
            }
        }
        usage.remove_excess();
        usage
    }

    /// Returns the counts, with the parts that are beside added to input and output.
    fn placed(&self, placement: Placement) -> Usage {
        let Usage { cache_read, cache_write, reasoning, .. } = self.counts;
        let add = |whole: Option<u64>, part: Option<u64>, is_beside: bool| {
            whole.map(|whole| whole.saturating_add(part.filter(|_| is_beside).unwrap_or(0)))
        };
        let cached = sum((cache_read, cache_write));
        let input = add(self.counts.input, cached, placement.cache_beside);
        Usage {
            input: add(input, self.tools, placement.tools_beside),
            output: add(self.counts.output, reasoning, placement.reasoning_beside),
            ..self.counts
        }
    }
}

fn sum_of(usage: &Usage) -> u64 {
    usage.input.unwrap_or(0).saturating_add(usage.output.unwrap_or(0))
}

/// Token counts of a format that reports input without cached tokens. The counts can arrive in several parts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UncachedUsage {
    /// Input tokens without cache reads and cache writes.
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cache_read: Option<u64>,
    pub cache_write: Option<u64>,
    /// Parts of `cache_write` by lifetime.
    pub cache_write_5m: Option<u64>,
    pub cache_write_1h: Option<u64>,
    /// Reasoning tokens, which are part of `output`.
    pub reasoning: Option<u64>,
    /// Output tokens of compaction, which are part of `output`.
    pub compaction: Option<u64>,
    /// Sum of all tokens. Few servers report it.
    pub total: Option<u64>,
}

impl UncachedUsage {
    /// Overwrites the fields that `later` contains. A later input of 0 is ignored, because no prompt is empty and
    /// gateways fill in 0. A total covers only the report that contains it.
    pub fn merge(&mut self, later: Self) {
        let is_filler = later.prompt() == Some(0) && self.prompt().is_some();
        if !is_filler {
            self.input = later.input.or(self.input);
            self.cache_read = later.cache_read.or(self.cache_read);
            self.cache_write = later.cache_write.or(self.cache_write);
            // Only the start of a stream divides cache writes by lifetime.
            if later.cache_write_5m.or(later.cache_write_1h).is_some() {
                self.cache_write_5m = later.cache_write_5m;
                self.cache_write_1h = later.cache_write_1h;
            }
        }
        self.output = later.output.or(self.output);
        self.reasoning = later.reasoning.or(self.reasoning);
        self.compaction = later.compaction.or(self.compaction);
        self.total = later.total.filter(|_| !is_filler);
    }

    /// Returns the counts as OpenTelemetry defines them.
    pub fn usage(&self) -> Usage {
        let counts = Usage {
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            cache_write_5m: self.cache_write_5m,
            cache_write_1h: self.cache_write_1h,
            reasoning: self.reasoning,
            compaction: self.compaction,
            ..Usage::default()
        };
        ReportedUsage { counts, total: self.total, ..ReportedUsage::default() }
            .resolve(Placement::CACHE_BESIDE)
    }

    /// Returns all input tokens, including cached tokens. Returns `None` if the number of uncached tokens is unknown.
    fn prompt(&self) -> Option<u64> {
        let read = self.cache_read.unwrap_or(0);
        let written = self.cache_write.unwrap_or(0);
        Some(self.input?.saturating_add(read).saturating_add(written))
    }
}

#[cfg(test)]
mod tests;
