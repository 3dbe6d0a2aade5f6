//! Status of a choice (one of the alternative answers in a response). The status shows whether faster responses are
//! also worse.

use tokengauge_llm::dialect::FinishMeaning;
use tokengauge_types::label::Name;
use tokengauge_types::label_enum;

/// One alternative answer of a response, after the end of the response.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct FinishedChoice {
    /// The finish reason as sent by the provider. `None` if the choice has no finish reason.
    pub reason: Option<Name>,
    pub status: ChoiceStatus,
}

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
        /// The choice has no finish reason, or its finish reason means an error.
        Unfinished = "unfinished",
    }
}

impl ChoiceStatus {
    /// Returns the status of a choice. `meaning` is the meaning of its finish reason, or `None` without a finish reason.
    pub const fn new(meaning: Option<FinishMeaning>, said: ChoiceContent) -> Self {
        let content = if said.refusal {
            Self::Refused
        } else if said.anything {
            Self::Complete
        } else {
            Self::Empty
        };
        match meaning {
            None
            | Some(
                FinishMeaning::Failed
                | FinishMeaning::FailedForUnknownReason
                | FinishMeaning::CancelledByClient,
            ) => Self::Unfinished,
            Some(_) if said.broken_arguments => Self::ToolJsonInvalid,
            Some(FinishMeaning::Filtered) => Self::Filtered,
            Some(FinishMeaning::Refused) => Self::Refused,
            Some(FinishMeaning::Ended) => content,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_llm::dialect::Api;

    #[test]
    fn problems_take_precedence_over_other_results() {
        let of = |reason: &str, anything, refusal, broken_arguments| {
            let said = ChoiceContent { anything, refusal, broken_arguments };
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            let meaning = reason.map(|reason| FinishMeaning::of(Api::OpenAiChat, reason));
            ChoiceStatus::new(meaning, said)
        };
        assert_eq!(of("stop", true, false, false), ChoiceStatus::Complete);
        assert_eq!(of("stop", false, false, false), ChoiceStatus::Empty);
        assert_eq!(of("stop", true, true, false), ChoiceStatus::Refused);
        assert_eq!(of("refusal", true, false, false), ChoiceStatus::Refused);
        assert_eq!(of("safety", false, false, false), ChoiceStatus::Filtered);
        assert_eq!(of("content_filter", true, false, false), ChoiceStatus::Filtered);
        assert_eq!(of("tool_calls", true, false, true), ChoiceStatus::ToolJsonInvalid);
        assert_eq!(of("error", true, false, true), ChoiceStatus::Unfinished);
        assert_eq!(of("abort", true, false, false), ChoiceStatus::Unfinished);
        assert_eq!(of("", true, false, true), ChoiceStatus::Unfinished);
    }
}
