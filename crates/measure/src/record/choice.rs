//! What became of a choice: speed gained must not be quality lost.

use tokengauge_types::label::Name;

/// The words of all providers for an end that a filter made: OpenAI's, Google's, Cohere's.
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

/// What an answer, or one of its choices, said; as far as was seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChoiceContent {
    /// It generated something.
    pub anything: bool,
    /// It said by the API's own means that it refuses.
    pub refusal: bool,
    /// It called a tool with an object that is no JSON.
    pub broken_arguments: bool,
}

/// What became of a choice. The first that fits, in this order from the end.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ChoiceStatus {
    Complete,
    /// It ended well and generated nothing.
    Empty,
    /// The model refused.
    Refused,
    /// The provider held it back.
    Filtered,
    /// A tool's arguments begin as a JSON object and are none.
    ToolJsonInvalid,
    /// No finish reason came.
    Unfinished,
}

impl ChoiceStatus {
    pub const ALL: [Self; 6] = [
        Self::Complete,
        Self::Empty,
        Self::Refused,
        Self::Filtered,
        Self::ToolJsonInvalid,
        Self::Unfinished,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Empty => "empty",
            Self::Refused => "refused",
            Self::Filtered => "filtered",
            Self::ToolJsonInvalid => "tool_json_invalid",
            Self::Unfinished => "unfinished",
        }
    }

    /// Of a choice that ended with `reason`; `error` is our word for one that did not.
    pub fn of(reason: &Name, said: ChoiceContent) -> Self {
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
    fn what_went_wrong_comes_before_what_did_not() {
        let of = |reason: &str, anything, refusal, broken_arguments| {
            let said = ChoiceContent { anything, refusal, broken_arguments };
            ChoiceStatus::of(&Name::new(reason).unwrap(), said)
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
