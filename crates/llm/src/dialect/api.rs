//! The APIs and what holds for every call of each. A new API is one row.

use serde::{Serialize, Serializer};

use super::{Family, Operation};
use crate::frame::Json;

macro_rules! apis {
    ($($api:ident = $family:ident $name:literal, $operation:ident, $json:ident, $provider:literal, [$($path:literal),*];)*) => {
        /// An API that is understood.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Api {
            $($api),*
        }

        impl Api {
            pub const ALL: &[Self] = &[$(Self::$api),*];

            /// Returns the name in configuration and documentation: the family, a dot, and the API.
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

            /// Returns the operation of a call, unless the response shows another.
            pub const fn operation(self) -> Operation {
                match self {
                    $(Self::$api => Operation::$operation),*
                }
            }

            /// Returns what JSON at the top of a response means if the content type leaves it open.
            pub const fn json(self) -> Json {
                match self {
                    $(Self::$api => Json::$json),*
                }
            }

            /// Returns the provider of a call, if neither the host nor a header names another.
            pub const fn provider(self) -> &'static str {
                match self {
                    $(Self::$api => $provider),*
                }
            }

            /// Returns the ends of the paths to which requests are posted.
            pub const fn paths(self) -> &'static [&'static str] {
                match self {
                    $(Self::$api => &[$($path),*]),*
                }
            }
        }
    };
}

// API = family, name, operation, JSON of a response, provider, ends of the paths.
apis! {
    OpenAiChat = OpenAi "openai.chat", Chat, Whole, "openai", [
        "/chat/completions", "/text/chatcompletion_v2", "/v1/chat"
    ];
    OpenAiCompletions = OpenAi "openai.completions", TextCompletion, Whole, "openai", ["/completions"];
    OpenAiEmbeddings = OpenAi "openai.embeddings", Embeddings, Whole, "openai", ["/embeddings"];
    OpenAiResponses = OpenAi "openai.responses", Chat, Whole, "openai", ["/responses"];
    OpenAiStoredResponse = OpenAi "openai.stored_response", FetchResponse, Whole, "openai", [];
    OpenAiInputTokens = OpenAi "openai.input_tokens", CountTokens, Whole, "openai", ["/responses/input_tokens"];
    OpenAiTranscription = OpenAi "openai.transcription", Transcription, Whole, "openai", [
        "/audio/transcriptions", "/audio/translations"
    ];
    OpenAiSpeech = OpenAi "openai.speech", Speech, Whole, "openai", ["/audio/speech"];
    OpenAiImages = OpenAi "openai.images", ImageGeneration, Whole, "openai", [
        "/images/generations", "/images/edits", "/images/variations"
    ];
    OpenAiModerations = OpenAi "openai.moderations", Moderation, Whole, "openai", ["/moderations"];
    OpenAiRealtime = OpenAi "openai.realtime", Realtime, Whole, "openai", [];
    AnthropicMessages = Anthropic "anthropic.messages", Chat, Whole, "anthropic", [
        "/v1/messages", "/anthropic/messages", "/messages"
    ];
    AnthropicComplete = Anthropic "anthropic.complete", TextCompletion, Whole, "anthropic", ["/v1/complete"];
    AnthropicCountTokens = Anthropic "anthropic.count_tokens", CountTokens, Whole, "anthropic", [
        "/messages/count_tokens"
    ];
    GeminiGenerateContent = Google "google.generate_content", GenerateContent, Elements, "gcp.gemini", [];
    GeminiInteractions = Google "google.interactions", GenerateContent, Whole, "gcp.gemini", ["/interactions"];
    GeminiStoredInteraction = Google "google.stored_interaction", FetchResponse, Whole, "gcp.gemini", [];
    GeminiCountTokens = Google "google.count_tokens", CountTokens, Whole, "gcp.gemini", [];
    GeminiEmbeddings = Google "google.embeddings", Embeddings, Whole, "gcp.gemini", [];
    VertexPredict = Google "google.predict", Embeddings, Whole, "gcp.vertex_ai", [];
    VertexImages = Google "google.images", ImageGeneration, Whole, "gcp.vertex_ai", [];
    BedrockConverse = Bedrock "bedrock.converse", Chat, Whole, "aws.bedrock", [];
    BedrockInvoke = Bedrock "bedrock.invoke", Chat, Whole, "aws.bedrock", [];
    BedrockInvokeText = Bedrock "bedrock.invoke_text", TextCompletion, Whole, "aws.bedrock", [];
    BedrockEmbeddings = Bedrock "bedrock.embeddings", Embeddings, Whole, "aws.bedrock", [];
    BedrockRerank = Bedrock "bedrock.rerank", Rerank, Whole, "aws.bedrock", [];
    BedrockImages = Bedrock "bedrock.images", ImageGeneration, Whole, "aws.bedrock", [];
    BedrockCountTokens = Bedrock "bedrock.count_tokens", CountTokens, Whole, "aws.bedrock", ["/count-tokens"];
    SageMakerInvocations = Bedrock "sagemaker.invocations", TextCompletion, Whole, "aws.sagemaker", [
        "/invocations", "/invocations-response-stream"
    ];
    SageMakerChat = Bedrock "sagemaker.chat", Chat, Whole, "aws.sagemaker", [];
    CohereV1Chat = Cohere "cohere.v1_chat", Chat, Lines, "cohere", ["/v1/chat"];
    CohereV1Generate = Cohere "cohere.v1_generate", TextCompletion, Lines, "cohere", ["/v1/generate"];
    CohereV2Chat = Cohere "cohere.v2_chat", Chat, Whole, "cohere", ["/v2/chat"];
    CohereEmbed = Cohere "cohere.embed", Embeddings, Whole, "cohere", ["/v1/embed", "/v2/embed"];
    Rerank = Cohere "cohere.rerank", Rerank, Whole, "cohere", ["/rerank"];
    OllamaChat = Ollama "ollama.chat", Chat, Lines, "ollama", ["/api/chat"];
    OllamaGenerate = Ollama "ollama.generate", TextCompletion, Lines, "ollama", ["/api/generate"];
    OllamaEmbed = Ollama "ollama.embed", Embeddings, Whole, "ollama", ["/api/embed", "/api/embeddings"];
    TgiGenerate = Tgi "tgi.generate", TextCompletion, Whole, "tgi", ["/generate_stream", "/generate"];
    LlamaCppCompletion = LlamaCpp "llama_cpp.completion", TextCompletion, Whole, "llama_cpp", [
        "/completion", "/infill"
    ];
    SglangGenerate = Sglang "sglang.generate", TextCompletion, Whole, "sglang", ["/generate"];
    VllmGenerate = Vllm "vllm.generate", TextCompletion, Lines, "vllm", ["/generate"];
    TritonGenerate = Triton "triton.generate", TextCompletion, Whole, "triton", [];
    WatsonxGeneration = Watsonx "watsonx.generation", TextCompletion, Whole, "ibm.watsonx.ai", [
        "/ml/v1/text/generation", "/ml/v1/text/generation_stream", "/generation/text", "/generation/text_stream"
    ];
    WatsonxChat = Watsonx "watsonx.chat", Chat, Whole, "ibm.watsonx.ai", ["/text/chat", "/text/chat_stream"];
    ReplicateStream = Replicate "replicate.stream", TextCompletion, Whole, "replicate", [];
    DashScopeGeneration = DashScope "dashscope.generation", Chat, Whole, "alibaba", [
        "/text-generation/generation", "/multimodal-generation/generation"
    ];
    DashScopeEmbeddings = DashScope "dashscope.embeddings", Embeddings, Whole, "alibaba", [
        "/text-embedding/text-embedding"
    ];
    CloudflareRun = Cloudflare "cloudflare.run", Chat, Whole, "cloudflare", [];
    AlephAlphaComplete = AlephAlpha "aleph_alpha.complete", TextCompletion, Whole, "aleph_alpha", ["/complete"];
}

impl Serialize for Api {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl Api {
    /// Whether responses are streamed if the request does not say.
    pub const fn streams_by_default(self) -> bool {
        matches!(self, Self::OllamaChat | Self::OllamaGenerate)
    }

    /// Whether streams have an end mark. Without one, the end of the body is the end of the stream.
    pub const fn marks_end(self) -> bool {
        !matches!(self, Self::VllmGenerate | Self::TritonGenerate)
    }

    /// Returns the requested output type (`gen_ai.output.type`), if the API implies it.
    pub const fn output_type(self) -> Option<&'static str> {
        match self.operation() {
            Operation::ImageGeneration => Some("image"),
            Operation::Speech => Some("speech"),
            Operation::Chat
            | Operation::TextCompletion
            | Operation::GenerateContent
            | Operation::Transcription
            | Operation::Embeddings
            | Operation::FetchResponse
            | Operation::CountTokens
            | Operation::Rerank
            | Operation::Moderation
            | Operation::Realtime => None,
        }
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
