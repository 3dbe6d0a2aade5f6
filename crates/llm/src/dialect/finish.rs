//! The meaning of finish reasons: most of them end a choice normally, some mean that the upstream failed.
//!
//! `docs/reference/api-formats.md` has the same table, by API, with the sources.

use super::{Api, Event, EventSink, Family};
use tokengauge_types::label::Name;

/// What a finish reason means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FinishMeaning {
    /// The choice ended as the model, the request or its limits asked for.
    Ended,
    /// The provider filtered the content.
    Filtered,
    /// The model refused.
    Refused,
    /// The upstream broke off the choice. The reason is the kind of the error.
    Failed,
    /// The upstream broke off the choice. The reason only says that an error occurred.
    FailedForUnknownReason,
    /// The client cancelled the choice with another request. This is no error.
    CancelledByClient,
}

/// The APIs in which a finish reason has a meaning.
#[derive(Clone, Copy, Debug)]
enum Scope {
    /// Any API, because gateways and clouds pass on reasons of other APIs.
    Any,
    Family(Family),
    Apis(&'static [Api]),
}

impl Scope {
    fn includes(self, api: Api) -> bool {
        match self {
            Self::Any => true,
            Self::Family(family) => api.family() == family,
            Self::Apis(apis) => apis.contains(&api),
        }
    }
}

/// Words that servers write instead of null while a choice has not ended. The empty string is one, too.
///
/// `null`: DashScope, watsonx and clients of Azure. `none`: llama.cpp. `None`: Python backends of Triton.
/// `not_finished`: watsonx, TensorRT-LLM. `in_progress`, `queued`: statuses of Gemini interactions and OpenAI
/// Responses. `nil` and `undefined` are null in other languages.
const NO_REASONS: [&str; 7] =
    ["null", "none", "nil", "undefined", "not_finished", "in_progress", "queued"];

/// Suffix of the first value of protocol buffer enums, such as Gemini's `FINISH_REASON_UNSPECIFIED`.
const UNSPECIFIED: &str = "_UNSPECIFIED";

/// APIs whose finish reason is the status of the response.
const RESPONSE_OBJECTS: Scope =
    Scope::Apis(&[Api::OpenAiResponses, Api::GeminiInteractions, Api::GeminiStoredInteraction]);

/// The reasons that do not simply end a choice. The first row that matches applies. Case does not matter.
const MEANINGS: &[(Scope, &[&str], FinishMeaning)] = &[
    // OpenAI Responses and Gemini interactions: the client called `/cancel`.
    (RESPONSE_OBJECTS, &["cancelled"], FinishMeaning::CancelledByClient),
    // "Request canceled by the client."
    (Scope::Family(Family::Watsonx), &["cancelled"], FinishMeaning::CancelledByClient),
    (Scope::Family(Family::Replicate), &["canceled"], FinishMeaning::CancelledByClient),
    // Cohere version 1, and LM Studio.
    (Scope::Any, &["USER_CANCEL", "userStopped"], FinishMeaning::CancelledByClient),
    (Scope::Family(Family::Cohere), &["ERROR"], FinishMeaning::Failed),
    // vLLM, Mistral, OpenRouter, LMDeploy, watsonx and Replicate.
    (Scope::Any, &["error"], FinishMeaning::FailedForUnknownReason),
    // Another object names the kind.
    (RESPONSE_OBJECTS, &["failed"], FinishMeaning::FailedForUnknownReason),
    // vLLM, SGLang and LMDeploy. A client that aborts its request does not receive this reason.
    (Scope::Any, &["abort", "aborted"], FinishMeaning::Failed),
    // DeepSeek: "the request is interrupted due to insufficient resource of the inference system".
    (Scope::Any, &["insufficient_system_resource"], FinishMeaning::Failed),
    // Dynamo and TensorRT-LLM. Cohere writes TIMEOUT.
    (Scope::Any, &["cancelled", "canceled", "timeout", "timed_out"], FinishMeaning::Failed),
    // Z.AI: an error of the model's inference.
    (Scope::Any, &["network_error"], FinishMeaning::Failed),
    // LM Studio.
    (Scope::Any, &["failed", "modelUnloaded"], FinishMeaning::Failed),
    // OpenAI and Azure.
    (Scope::Any, &["content_filter"], FinishMeaning::Filtered),
    // Gemini and Vertex AI.
    (
        Scope::Any,
        &["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"],
        FinishMeaning::Filtered,
    ),
    (
        Scope::Any,
        &["JAILBREAK", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"],
        FinishMeaning::Filtered,
    ),
    // Cohere version 1, Bedrock Converse, Amazon Titan, Z.AI.
    (
        Scope::Any,
        &["ERROR_TOXIC", "content_filtered", "guardrail_intervened", "sensitive"],
        FinishMeaning::Filtered,
    ),
    // Anthropic.
    (Scope::Any, &["refusal"], FinishMeaning::Refused),
];

impl FinishMeaning {
    /// Returns the meaning of a finish reason in responses of `api`. A reason that the table does not contain ends the
    /// choice normally.
    pub fn of(api: Api, reason: &str) -> Self {
        let row = MEANINGS.iter().find(|(scope, reasons, _)| {
            scope.includes(api) && reasons.iter().any(|known| known.eq_ignore_ascii_case(reason))
        });
        row.map_or(Self::Ended, |(_, _, meaning)| *meaning)
    }
}

/// Returns the finish reason that a field contains, or `None` if the field says that the choice has not ended.
pub fn finish_reason(text: &str) -> Option<&str> {
    let text = text.trim_ascii();
    let is_none = text.is_empty()
        || text.ends_with(UNSPECIFIED)
        || NO_REASONS.iter().any(|none| none.eq_ignore_ascii_case(text));
    // Dynamo appends the error's message, which is content.
    let word = if text.starts_with("error:") { "error" } else { text };
    (!is_none).then_some(word)
}

/// Emits the end of a choice, unless the field says that the choice has not ended.
pub fn emit_stopped(choice: u32, reason: &str, out: &mut impl EventSink) {
    if let Some(reason) = finish_reason(reason) {
        out(Event::Stopped { choice, reason });
    }
}

/// Adds the error that a finish reason implies, at the end of a message or a body.
#[derive(Debug)]
pub struct FailedChoices {
    api: Api,
    /// The kind of the error that the finish reasons of the current message or body imply.
    implied: Option<Option<Name>>,
    has_error: bool,
    /// Whether the response has named the kind of an error.
    has_kind: bool,
}

impl FailedChoices {
    pub const fn new(api: Api) -> Self {
        Self { api, implied: None, has_error: false, has_kind: false }
    }

    /// Observes an event.
    pub fn observe(&mut self, event: &Event<'_>) {
        match event {
            Event::Failed { kind } => {
                self.has_error = true;
                self.has_kind |= kind.is_some();
            }
            Event::Stopped { reason, .. } => match FinishMeaning::of(self.api, reason) {
                FinishMeaning::Failed => self.implied = Some(Name::new(reason)),
                FinishMeaning::FailedForUnknownReason => {
                    self.implied.get_or_insert(None);
                }
                FinishMeaning::Ended
                | FinishMeaning::Filtered
                | FinishMeaning::Refused
                | FinishMeaning::CancelledByClient => {}
            },
            _ => {}
        }
    }

    /// Ends a message or a body. Emits the implied error, unless the response reported as much itself. The kind in an
    /// error object is more specific than the finish reason.
    pub fn end(&mut self, out: &mut impl EventSink) {
        // Checked first, because this function runs after each message.
        if self.implied.is_none() {
            return;
        }
        let Some(kind) = self.implied.take() else {
            return;
        };
        let kind = kind.as_ref().filter(|_| !self.has_kind).map(Name::as_str);
        if kind.is_some() || !self.has_error {
            let event = Event::Failed { kind };
            self.observe(&event);
            out(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::testing::{JSON, STREAM, TestResponse, events, failed, stopped};

    #[test]
    fn words_for_no_reason_do_not_end_a_choice() {
        for none in [
            "",
            "  ",
            "null",
            "NULL",
            "None",
            "none",
            "not_finished",
            "in_progress",
            "FINISH_REASON_UNSPECIFIED",
        ] {
            assert_eq!(finish_reason(none), None, "{none:?}");
        }
        for reason in ["stop", "length", "nonexistent", "incomplete", "unknown"] {
            assert_eq!(finish_reason(reason), Some(reason));
        }
        assert_eq!(finish_reason("error: no worker at 10.0.0.1"), Some("error"));
    }

    /// A JSON body and a message of a stream of each API. `@` is the finish reason. An empty message is not read.
    const RESPONSES: &[(Api, &str, &str)] = &[
        (
            Api::OpenAiChat,
            r#"{"choices":[{"message":{"content":"a"},"finish_reason":"@"}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"@"}]}"#,
        ),
        (
            Api::OpenAiCompletions,
            r#"{"choices":[{"text":"a","finish_reason":"@"}]}"#,
            r#"{"choices":[{"text":"a","finish_reason":"@"}]}"#,
        ),
        (
            Api::AnthropicMessages,
            r#"{"content":[{"text":"a"}],"stop_reason":"@"}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"@"}}"#,
        ),
        (
            Api::GeminiGenerateContent,
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"@"}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"@"}]}"#,
        ),
        (Api::OpenAiResponses, r#"{"status":"@"}"#, ""),
        (Api::CohereV2Chat, r#"{"finish_reason":"@"}"#, r#"{"delta":{"finish_reason":"@"}}"#),
        (
            Api::TgiGenerate,
            r#"{"generated_text":"a","details":{"finish_reason":"@"}}"#,
            r#"{"token":{"text":"a"},"details":{"finish_reason":"@"}}"#,
        ),
        (
            Api::OllamaChat,
            r#"{"message":{"content":"a"},"done_reason":"@"}"#,
            r#"{"message":{"content":"a"},"done_reason":"@"}"#,
        ),
        (Api::LlamaCppCompletion, r#"{"stop_type":"@"}"#, r#"{"stop_type":"@"}"#),
        (
            Api::SglangGenerate,
            r#"{"text":"a","meta_info":{"finish_reason":{"type":"@"}}}"#,
            r#"{"text":"a","meta_info":{"finish_reason":{"type":"@"}}}"#,
        ),
        (Api::TritonGenerate, r#"{"finish_reason":"@"}"#, r#"{"finish_reason":"@"}"#),
        (
            Api::WatsonxGeneration,
            r#"{"results":[{"stop_reason":"@"}]}"#,
            r#"{"results":[{"stop_reason":"@"}]}"#,
        ),
        (
            Api::DashScopeGeneration,
            r#"{"output":{"choices":[{"finish_reason":"@"}]}}"#,
            r#"{"output":{"finish_reason":"@"}}"#,
        ),
        (
            Api::AlephAlphaComplete,
            r#"{"completions":[{"completion":"a","finish_reason":"@"}]}"#,
            r#"{"type":"stream_summary","finish_reason":"@"}"#,
        ),
        (Api::BedrockConverse, r#"{"output":{},"stopReason":"@"}"#, ""),
        (
            Api::BedrockInvoke,
            r#"{"choices":[{"message":{"content":"a"},"finish_reason":"@"}]}"#,
            "",
        ),
        (Api::SageMakerChat, r#"{"choices":[{"text":"a","finish_reason":"@"}]}"#, ""),
        (
            Api::WatsonxChat,
            r#"{"choices":[{"message":{"content":"a"},"finish_reason":"@"}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"@"}]}"#,
        ),
    ];

    /// Returns the responses with a finish reason, and whether each is a stream.
    fn responses(reason: &str) -> Vec<(Api, bool, String)> {
        let say = |template: &str| template.replace('@', reason);
        let mut all = Vec::new();
        for (api, whole, message) in RESPONSES {
            all.push((*api, false, say(whole)));
            if !message.is_empty() {
                all.push((*api, true, events(&[&say(message)])));
            }
        }
        all
    }

    fn read(api: Api, is_stream: bool, body: &str) -> Vec<String> {
        let content_type = if is_stream { STREAM } else { JSON };
        TestResponse::new(api, content_type).read(body.as_bytes())
    }

    #[test]
    fn a_reason_that_means_a_failure_is_an_error_in_every_format() {
        for reason in ["abort", "insufficient_system_resource", "network_error", "timeout"] {
            for (api, is_stream, body) in responses(reason) {
                let lines = read(api, is_stream, &body);
                assert!(lines.contains(&stopped(0, reason)), "{api:?} {body}: {lines:?}");
                assert!(lines.contains(&failed(Some(reason))), "{api:?} {body}: {lines:?}");
            }
        }
        for (api, is_stream, body) in responses("error") {
            let lines = read(api, is_stream, &body);
            let is_error = lines.iter().any(|line| line.starts_with("Failed"));
            assert!(is_error, "{api:?} {body}: {lines:?}");
        }
    }

    #[test]
    fn a_word_for_no_reason_does_not_end_a_choice_in_any_format() {
        for none in ["null", "None", "", "NONE"] {
            for (api, is_stream, body) in responses(none) {
                let lines = read(api, is_stream, &body);
                let has_ended = lines.iter().any(|line| line.starts_with("Stopped"));
                assert!(!has_ended, "{api:?} {body}: {lines:?}");
            }
        }
    }

    #[test]
    fn a_cancelled_choice_is_no_error_where_only_the_client_cancels() {
        for (api, is_stream, body) in responses("cancelled") {
            let by_client =
                matches!(api, Api::OpenAiResponses | Api::WatsonxGeneration | Api::WatsonxChat);
            let lines = read(api, is_stream, &body);
            let is_error = lines.contains(&failed(Some("cancelled")));
            assert_eq!(is_error, !by_client, "{api:?} {body}: {lines:?}");
        }
    }

    #[test]
    fn an_error_object_names_the_kind_of_a_failed_choice() {
        let both =
            r#"{"choices":[{"finish_reason":"error","error":{"code":502,"message":"No."}}]}"#;
        let lines = read(Api::OpenAiChat, true, &events(&[both]));
        assert_eq!(lines.last(), Some(&failed(Some("502"))));
    }

    #[test]
    fn a_finish_reason_beside_a_word_for_none_is_read() {
        let both = r#"{"choices":[{"delta":{},"finish_reason":"null","stop_reason":"stop"}]}"#;
        assert_eq!(read(Api::OpenAiChat, true, &events(&[both])), [stopped(0, "stop")]);
    }
}
