//! Status of a choice (one of the alternative answers in a response). The status shows whether faster responses are
//! also worse.

use tokengauge_types::label::Name;
use tokengauge_types::label_enum;

/// Finish reasons for filtered content, from all providers: OpenAI, Google, Cohere.
const FILTERED: [&str; 12] = [
    "content_filter",
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MODEL_ARMOR",
    "JAILBREAK",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "ERROR_TOXIC",
];

/// Content observed in a response or in one of its choices (alternative answers).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChoiceContent {
    /// Whether anything was generated.
    pub anything: bool,
    /// Whether the response contains the API's marker of a refusal.
    pub refusal: bool,
    /// Whether the arguments of a tool call begin as a JSON object but are not valid JSON.
    pub broken_arguments: bool,
}

label_enum! {
    /// Status of a choice (alternative answer). If several statuses match, the last one in this list applies.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum ChoiceStatus {
        Complete = "complete",
        /// The choice succeeded and generated nothing.
        Empty = "empty",
        Refused = "refused",
        /// The provider filtered the content.
        Filtered = "filtered",
        /// The arguments of a tool call begin as a JSON object but are not valid JSON.
        ToolJsonInvalid = "tool_json_invalid",
        /// The choice has no finish reason.
        Unfinished = "unfinished",
    }
}

impl ChoiceStatus {
    /// Returns the status of a choice with finish reason `reason`. Callers pass `error` for a choice without a finish
    /// reason.
    pub fn from_finish_reason(reason: &Name, said: ChoiceContent) -> Self {
        let is = |known: &str| reason.as_str().eq_ignore_ascii_case(known);
        if reason.as_str() == "error" {
            Self::Unfinished
        } else if said.broken_arguments {
            Self::ToolJsonInvalid
        } else if FILTERED.into_iter().any(is) {
            Self::Filtered
        } else if is("refusal") || said.refusal {
            Self::Refused
        } else if said.anything {
            Self::Complete
        } else {
            Self::Empty
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_take_precedence_over_other_results() {
        let of = |reason: &str, anything, refusal, broken_arguments| {
            let said = ChoiceContent { anything, refusal, broken_arguments };
            ChoiceStatus::from_finish_reason(&Name::new(reason).unwrap(), said)
        };
        assert_eq!(of("stop", true, false, false), ChoiceStatus::Complete);
        assert_eq!(of("stop", false, false, false), ChoiceStatus::Empty);
        assert_eq!(of("stop", true, true, false), ChoiceStatus::Refused);
        assert_eq!(of("refusal", true, false, false), ChoiceStatus::Refused);
        assert_eq!(of("safety", false, false, false), ChoiceStatus::Filtered);
        assert_eq!(of("content_filter", true, false, false), ChoiceStatus::Filtered);
        assert_eq!(of("tool_calls", true, false, true), ChoiceStatus::ToolJsonInvalid);
        assert_eq!(of("error", true, false, true), ChoiceStatus::Unfinished);
    }
}
