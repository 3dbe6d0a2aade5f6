//! Defines the APIs and the properties of each API. To add an API, add one row.

use serde::{Serialize, Serializer};

use super::Family;
use crate::frame::JsonFraming;
use tokengauge_types::label_enum;

macro_rules! apis {
    ($($api:ident = $family:ident $name:literal, $operation:ident, $json:ident, $provider:literal, [$($path:literal),*];)*) => {
        /// An API that is understood.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Api {
            $($api),*
        }

        impl Api {
            pub const ALL: &[Self] = &[$(Self::$api),*];

            /// Returns the API's name in configuration and documentation: the family, a dot, and the API.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$api => $name),*
                }
            }

            /// Returns the family of formats.
            pub const fn family(self) -> Family {
                match self {
                    $(Self::$api => Family::$family),*
                }
            }

            /// Returns the operation of a call. A response can show another operation, which then applies.
            pub const fn operation(self) -> Operation {
                match self {
                    $(Self::$api => Operation::$operation),*
                }
            }

            /// Returns how to split a response that begins with JSON into messages, if the content type does not show
            /// this.
            pub const fn json(self) -> JsonFraming {
                match self {
                    $(Self::$api => JsonFraming::$json),*
                }
            }

            /// Returns the provider of a call if neither the host nor a header identifies one.
            pub const fn provider(self) -> &'static str {
                match self {
                    $(Self::$api => $provider),*
                }
            }

            /// Returns the suffixes of the URL paths to which clients post requests.
            pub const fn paths(self) -> &'static [&'static str] {
                match self {
                    $(Self::$api => &[$($path),*]),*
                }
            }
        }
    };
}

// API = family, name, operation, JSON framing of a response, default provider, URL path suffixes.
apis! {
    OpenAiChat = OpenAi "openai.chat", Chat, Single, "openai", [
        "/chat/completions", "/text/chatcompletion_v2", "/v1/chat"
    ];
    OpenAiCompletions = OpenAi "openai.completions", TextCompletion, Single, "openai", ["/completions"];
    OpenAiEmbeddings = OpenAi "openai.embeddings", Embeddings, Single, "openai", ["/embeddings"];
    OpenAiResponses = OpenAi "openai.responses", Chat, Single, "openai", ["/responses"];
    OpenAiStoredResponse = OpenAi "openai.stored_response", FetchResponse, Single, "openai", [];
    OpenAiCompaction = OpenAi "openai.compaction", Chat, Single, "openai", ["/responses/compact"];
    OpenAiInputTokens = OpenAi "openai.input_tokens", CountTokens, Single, "openai", ["/responses/input_tokens"];
    OpenAiTranscription = OpenAi "openai.transcription", Transcription, Single, "openai", [
        "/audio/transcriptions", "/audio/translations"
    ];
    OpenAiSpeech = OpenAi "openai.speech", Speech, Single, "openai", ["/audio/speech"];
    OpenAiImages = OpenAi "openai.images", ImageGeneration, Single, "openai", [
        "/images/generations", "/images/edits", "/images/variations"
    ];
    OpenAiModerations = OpenAi "openai.moderations", Moderation, Single, "openai", ["/moderations"];
    OpenAiRealtime = OpenAi "openai.realtime", Realtime, Single, "openai", [];
    AnthropicMessages = Anthropic "anthropic.messages", Chat, Single, "anthropic", [
        "/v1/messages", "/anthropic/messages", "/messages"
    ];
    AnthropicComplete = Anthropic "anthropic.complete", TextCompletion, Single, "anthropic", ["/v1/complete"];
    AnthropicCountTokens = Anthropic "anthropic.count_tokens", CountTokens, Single, "anthropic", [
        "/messages/count_tokens"
    ];
    GeminiGenerateContent = Google "google.generate_content", GenerateContent, Array, "gcp.gemini", [];
    GeminiInteractions = Google "google.interactions", GenerateContent, Single, "gcp.gemini", ["/interactions"];
    GeminiStoredInteraction = Google "google.stored_interaction", FetchResponse, Single, "gcp.gemini", [];
    GeminiCountTokens = Google "google.count_tokens", CountTokens, Single, "gcp.gemini", [];
    GeminiEmbeddings = Google "google.embeddings", Embeddings, Single, "gcp.gemini", [];
    VertexPredict = Google "google.predict", Embeddings, Single, "gcp.vertex_ai", [];
    VertexImages = Google "google.images", ImageGeneration, Single, "gcp.vertex_ai", [];
    BedrockConverse = Bedrock "bedrock.converse", Chat, Single, "aws.bedrock", [];
    BedrockInvoke = Bedrock "bedrock.invoke", Chat, Single, "aws.bedrock", [];
    BedrockInvokeText = Bedrock "bedrock.invoke_text", TextCompletion, Single, "aws.bedrock", [];
    BedrockEmbeddings = Bedrock "bedrock.embeddings", Embeddings, Single, "aws.bedrock", [];
    BedrockRerank = Bedrock "bedrock.rerank", Rerank, Single, "aws.bedrock", [];
    BedrockImages = Bedrock "bedrock.images", ImageGeneration, Single, "aws.bedrock", [];
    BedrockCountTokens = Bedrock "bedrock.count_tokens", CountTokens, Single, "aws.bedrock", ["/count-tokens"];
    SageMakerInvocations = Bedrock "sagemaker.invocations", TextCompletion, Single, "aws.sagemaker", [
        "/invocations", "/invocations-response-stream"
    ];
    SageMakerChat = Bedrock "sagemaker.chat", Chat, Single, "aws.sagemaker", [];
    CohereV1Chat = Cohere "cohere.v1_chat", Chat, Lines, "cohere", ["/v1/chat"];
    CohereV1Generate = Cohere "cohere.v1_generate", TextCompletion, Lines, "cohere", ["/v1/generate"];
    CohereV2Chat = Cohere "cohere.v2_chat", Chat, Single, "cohere", ["/v2/chat"];
    CohereEmbed = Cohere "cohere.embed", Embeddings, Single, "cohere", ["/v1/embed", "/v2/embed"];
    Rerank = Cohere "cohere.rerank", Rerank, Single, "cohere", ["/rerank"];
    OllamaChat = Ollama "ollama.chat", Chat, Lines, "ollama", ["/api/chat"];
    OllamaGenerate = Ollama "ollama.generate", TextCompletion, Lines, "ollama", ["/api/generate"];
    OllamaEmbed = Ollama "ollama.embed", Embeddings, Single, "ollama", ["/api/embed", "/api/embeddings"];
    TgiGenerate = Tgi "tgi.generate", TextCompletion, Single, "tgi", ["/generate_stream", "/generate"];
    LlamaCppCompletion = LlamaCpp "llama_cpp.completion", TextCompletion, Single, "llama_cpp", [
        "/completion", "/infill"
    ];
    SglangGenerate = Sglang "sglang.generate", TextCompletion, Single, "sglang", ["/generate"];
    VllmGenerate = Vllm "vllm.generate", TextCompletion, Lines, "vllm", ["/generate"];
    TritonGenerate = Triton "triton.generate", TextCompletion, Single, "triton", [];
    WatsonxGeneration = Watsonx "watsonx.generation", TextCompletion, Single, "ibm.watsonx.ai", [
        "/ml/v1/text/generation", "/ml/v1/text/generation_stream", "/generation/text", "/generation/text_stream"
    ];
    WatsonxChat = Watsonx "watsonx.chat", Chat, Single, "ibm.watsonx.ai", ["/text/chat", "/text/chat_stream"];
    ReplicateStream = Replicate "replicate.stream", TextCompletion, Single, "replicate", [];
    DashScopeGeneration = DashScope "dashscope.generation", Chat, Single, "alibaba", [
        "/text-generation/generation", "/multimodal-generation/generation"
    ];
    DashScopeEmbeddings = DashScope "dashscope.embeddings", Embeddings, Single, "alibaba", [
        "/text-embedding/text-embedding"
    ];
    CloudflareRun = Cloudflare "cloudflare.run", Chat, Single, "cloudflare", [];
    AlephAlphaComplete = AlephAlpha "aleph_alpha.complete", TextCompletion, Single, "aleph_alpha", ["/complete"];
    LmStudioChat = LmStudio "lm_studio.chat", Chat, Single, "lm_studio", ["/api/v1/chat"];
}

impl Serialize for Api {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl Api {
    /// Whether the server streams a response if the request does not set `stream`.
    pub const fn streams_by_default(self) -> bool {
        matches!(self, Self::OllamaChat | Self::OllamaGenerate)
    }

    /// Whether streams of this API have an end marker. Without an end marker, the end of the body ends the stream.
    pub const fn marks_end(self) -> bool {
        !matches!(self, Self::VllmGenerate | Self::TritonGenerate)
    }

    /// Whether a complete stream has a finish reason for each choice, in addition to the end marker. A choice without a
    /// finish reason is incomplete.
    pub const fn stops_each_choice(self) -> bool {
        matches!(self, Self::OpenAiChat | Self::OpenAiCompletions)
    }

    /// Whether every complete stream has a choice.
    pub const fn has_choice_in_each_stream(self) -> bool {
        matches!(
            self,
            Self::OpenAiChat
                | Self::OpenAiCompletions
                | Self::WatsonxChat
                | Self::AnthropicMessages
        )
    }

    /// Whether every successful response has a body. The transcript of silence is an empty text.
    pub const fn has_body(self) -> bool {
        !matches!(self, Self::OpenAiTranscription)
    }

    /// Whether the readers know all forms of a successful JSON body. They do not if the model or the container defines
    /// the form, or if a filter may leave out the result.
    pub const fn has_answer_in_each_body(self) -> bool {
        match self.family() {
            Family::OpenAi => !matches!(
                self,
                Self::OpenAiTranscription
                    | Self::OpenAiSpeech
                    | Self::OpenAiInputTokens
                    | Self::OpenAiStoredResponse
            ),
            Family::Anthropic => !matches!(self, Self::AnthropicCountTokens),
            Family::Google => matches!(
                self,
                Self::GeminiGenerateContent | Self::GeminiInteractions | Self::GeminiEmbeddings
            ),
            Family::Bedrock => matches!(self, Self::BedrockConverse),
            Family::Cohere
            | Family::Ollama
            | Family::LlamaCpp
            | Family::Sglang
            | Family::Vllm
            | Family::Watsonx
            | Family::DashScope
            | Family::AlephAlpha
            | Family::LmStudio => true,
            Family::Tgi | Family::Triton | Family::Replicate | Family::Cloudflare => false,
        }
    }

    /// Whether the model or its container chooses the media type of a response: SageMaker containers send CSV, Triton
    /// sends binary tensors, and models on Cloudflare send images and sound.
    pub const fn has_free_media_type(self) -> bool {
        let is_container = matches!(self.family(), Family::Triton | Family::Cloudflare);
        is_container || matches!(self, Self::SageMakerInvocations | Self::BedrockInvoke)
    }

    /// Returns the requested output type (`gen_ai.output.type`) if the API implies one.
    pub const fn output_type(self) -> Option<&'static str> {
        match self.operation() {
            Operation::ImageGeneration => Some("image"),
            Operation::Speech => Some("speech"),
            _ => None,
        }
    }
}

label_enum! {
    /// The operation of a call, as in `gen_ai.operation.name`. OpenTelemetry does not define all of these values.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum Operation {
        Chat = "chat",
        TextCompletion = "text_completion",
        GenerateContent = "generate_content",
        /// Speech to text, with or without translation. OpenTelemetry does not define this operation.
        Transcription = "transcription",
        Embeddings = "embeddings",
        /// Fetches a stored response that an earlier call generated.
        FetchResponse = "fetch_response",
        /// OpenTelemetry does not define this operation or any operation below.
        CountTokens = "count_tokens",
        Rerank = "rerank",
        Moderation = "moderation",
        ImageGeneration = "image_generation",
        Speech = "speech",
        /// A session of many responses over one connection. Separate from chat, because sessions last up to an hour and
        /// would distort chat durations.
        Realtime = "realtime",
    }
}

impl Operation {
    /// Whether the operation generates text token by token.
    pub const fn generates(self) -> bool {
        matches!(
            self,
            Self::Chat
                | Self::TextCompletion
                | Self::GenerateContent
                | Self::Transcription
                | Self::Realtime
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_family_has_an_api() {
        let names: HashSet<_> = Api::ALL.iter().map(|api| api.as_str()).collect();
        assert_eq!(names.len(), Api::ALL.len());
        let families: HashSet<_> = Api::ALL.iter().map(|api| api.family()).collect();
        assert_eq!(families, Family::ALL.iter().copied().collect());
    }
}
