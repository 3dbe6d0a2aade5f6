//! Token counts, of generateContent and of interactions: the same counts under other names.

use serde::Deserialize;

use crate::dialect::lenient::{Code, Count, List};
use crate::dialect::{ByModality, Usage};

/// A usage object as it stands in a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct RawUsage<'a> {
    #[serde(alias = "total_input_tokens")]
    prompt_token_count: Count,
    #[serde(alias = "total_cached_tokens")]
    cached_content_token_count: Count,
    #[serde(alias = "total_output_tokens")]
    candidates_token_count: Count,
    #[serde(alias = "total_thought_tokens")]
    thoughts_token_count: Count,
    #[serde(alias = "total_tool_use_tokens")]
    tool_use_prompt_token_count: Count,
    #[serde(alias = "input_tokens_by_modality")]
    prompt_tokens_details: List<Detail<'a>>,
    #[serde(alias = "tool_use_tokens_by_modality")]
    tool_use_prompt_tokens_details: List<Detail<'a>>,
    #[serde(alias = "output_tokens_by_modality")]
    candidates_tokens_details: List<Detail<'a>>,
    /// Gemini's name for the tier that answered, and Vertex AI's.
    pub service_tier: Code<'a>,
    pub traffic_type: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Detail<'a> {
    modality: Code<'a>,
    #[serde(alias = "tokens")]
    token_count: Count,
}

impl RawUsage<'_> {
    pub fn harmonised(&self) -> Option<Usage> {
        let mut counts = Counts {
            prompt: self.prompt_token_count.0,
            cached: self.cached_content_token_count.0,
            candidates: self.candidates_token_count.0,
            thoughts: self.thoughts_token_count.0,
            tool_use: self.tool_use_prompt_token_count.0,
            ..Counts::default()
        };
        for (list, details) in [
            ("promptTokensDetails", &self.prompt_tokens_details),
            ("toolUsePromptTokensDetails", &self.tool_use_prompt_tokens_details),
            ("candidatesTokensDetails", &self.candidates_tokens_details),
        ] {
            for detail in details.iter() {
                let tokens = detail.token_count.0.unwrap_or_default();
                counts.add(list, &detail.modality.0, tokens);
            }
        }
        counts.harmonised()
    }
}

/// The counts of one message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    prompt: Option<u64>,
    cached: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    tool_use: Option<u64>,
    input_by: ByModality,
    output_by: ByModality,
}

impl Counts {
    /// Takes one number of a usage object that is read piecemeal.
    pub fn set(&mut self, key: &str, number: u64) {
        let field = match key {
            "promptTokenCount" | "total_input_tokens" => &mut self.prompt,
            "cachedContentTokenCount" | "total_cached_tokens" => &mut self.cached,
            "candidatesTokenCount" | "total_output_tokens" => &mut self.candidates,
            "thoughtsTokenCount" | "total_thought_tokens" => &mut self.thoughts,
            "toolUsePromptTokenCount" | "total_tool_use_tokens" => &mut self.tool_use,
            _ => return,
        };
        *field = Some(number);
    }

    /// Takes one entry of a list of counts by modality.
    pub fn add(&mut self, list: &str, modality: &str, tokens: u64) {
        let by = match list {
            "promptTokensDetails"
            | "input_tokens_by_modality"
            | "toolUsePromptTokensDetails"
            | "tool_use_tokens_by_modality" => &mut self.input_by,
            "candidatesTokensDetails" | "output_tokens_by_modality" => &mut self.output_by,
            _ => return,
        };
        if let Some(field) = field(by, modality) {
            *field = plus(*field, Some(tokens));
        }
    }

    /// The counts by the standard's meaning; `None` where there are none. Google counts apart what tools added to the
    /// prompt and what was thought.
    pub fn harmonised(&self) -> Option<Usage> {
        let mut output_by = self.output_by;
        if output_by != ByModality::default() {
            output_by.text = plus(output_by.text, self.thoughts);
        }
        let usage = Usage {
            input: plus(self.prompt, self.tool_use),
            output: plus(self.candidates, self.thoughts),
            cache_read: self.cached,
            cache_write: None,
            reasoning: self.thoughts,
            input_by: self.input_by,
            output_by,
        };
        (usage != Usage::default()).then_some(usage)
    }
}

/// Both, as far as they are known: Google leaves out what is zero.
fn plus(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// Modalities are words of either case, or the numbers of the enum.
fn field<'a>(by: &'a mut ByModality, modality: &str) -> Option<&'a mut Option<u64>> {
    let is = |word: &str, number: &str| modality.eq_ignore_ascii_case(word) || modality == number;
    if is("text", "1") {
        Some(&mut by.text)
    } else if is("image", "2") {
        Some(&mut by.image)
    } else if is("video", "3") {
        Some(&mut by.video)
    } else if is("audio", "4") {
        Some(&mut by.audio)
    } else if is("document", "5") {
        Some(&mut by.document)
    } else {
        None
    }
}
