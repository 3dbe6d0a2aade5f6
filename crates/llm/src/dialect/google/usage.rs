//! Token counts of generateContent and interactions, which report the same counts under different names.

use serde::Deserialize;

use crate::dialect::event::sum;
use crate::dialect::lenient::{Code, List};
use crate::dialect::token_count::TokenCount;
use crate::dialect::usage::{Placement, ReportedUsage};
use crate::dialect::{ByModality, Usage};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct RawUsage<'a> {
    #[serde(alias = "total_input_tokens")]
    prompt_token_count: TokenCount,
    #[serde(alias = "total_cached_tokens")]
    cached_content_token_count: TokenCount,
    #[serde(alias = "total_output_tokens")]
    candidates_token_count: TokenCount,
    #[serde(alias = "total_thought_tokens")]
    thoughts_token_count: TokenCount,
    #[serde(alias = "total_tool_use_tokens")]
    tool_use_prompt_token_count: TokenCount,
    #[serde(alias = "total_tokens")]
    total_token_count: TokenCount,
    #[serde(alias = "input_tokens_by_modality")]
    prompt_tokens_details: List<Detail<'a>>,
    #[serde(alias = "cached_tokens_by_modality")]
    cache_tokens_details: List<Detail<'a>>,
    #[serde(alias = "tool_use_tokens_by_modality")]
    tool_use_prompt_tokens_details: List<Detail<'a>>,
    #[serde(alias = "output_tokens_by_modality")]
    candidates_tokens_details: List<Detail<'a>>,
    /// Service tier of Gemini.
    service_tier: Code<'a>,
    /// Service tier of Vertex AI.
    traffic_type: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Detail<'a> {
    modality: Code<'a>,
    #[serde(alias = "tokens")]
    token_count: TokenCount,
}

impl RawUsage<'_> {
    /// Returns the counts as OpenTelemetry defines them. Google's prompt count excludes text that tools added, and the
    /// output count excludes thoughts. Both are added here, unless the total shows that they are included.
    pub fn usage(&self) -> Usage {
        let (answer, thoughts) = (self.candidates_token_count.0, self.thoughts_token_count.0);
        let (prompt, tools) = (self.prompt_token_count.0, self.tool_use_prompt_token_count.0);
        // A count of 0 is left out.
        let counts = Usage {
            input: prompt.or(tools.map(|_| 0)),
            output: answer.or(thoughts.map(|_| 0)),
            cache_read: self.cached_content_token_count.0,
            reasoning: thoughts,
            ..Usage::default()
        };
        let total = self.total_token_count.0;
        let reported = ReportedUsage { counts, tools, total, ..ReportedUsage::default() };
        let usage = reported.resolve(Placement::THOUGHTS_BESIDE);
        let mut input_by = ByModality::default();
        let tools = self.tool_use_prompt_tokens_details.iter();
        self.prompt_tokens_details.iter().chain(tools).for_each(|detail| detail.add(&mut input_by));
        let mut cache_read_by = ByModality::default();
        self.cache_tokens_details.iter().for_each(|detail| detail.add(&mut cache_read_by));
        let mut output_by = ByModality::default();
        self.candidates_tokens_details.iter().for_each(|detail| detail.add(&mut output_by));
        let is_beside = usage.output > answer;
        if output_by != ByModality::default() && is_beside {
            output_by.text = sum((output_by.text, thoughts));
        }
        Usage { input_by, cache_read_by, output_by, ..usage }
    }

    /// Returns the service tier, or `None` if it is a number or unspecified.
    pub fn tier(&self) -> Option<&str> {
        let is_name = |tier: &&str| {
            !tier.is_empty() && tier.parse::<u64>().is_err() && !tier.ends_with("_UNSPECIFIED")
        };
        [&*self.service_tier.0, &*self.traffic_type.0].into_iter().find(is_name)
    }
}

impl Detail<'_> {
    /// Adds the tokens to the count of the modality. The modality is a word in upper or lower case, or the number of
    /// the enum value.
    fn add(&self, by: &mut ByModality) {
        let is = |word: &str, number: &str| {
            self.modality.0.eq_ignore_ascii_case(word) || self.modality.0 == number
        };
        let tokens = if is("text", "1") {
            &mut by.text
        } else if is("image", "2") {
            &mut by.image
        } else if is("video", "3") {
            &mut by.video
        } else if is("audio", "4") {
            &mut by.audio
        } else if is("document", "5") {
            &mut by.document
        } else {
            return;
        };
        *tokens = sum((*tokens, self.token_count.0.or(Some(0))));
    }
}
