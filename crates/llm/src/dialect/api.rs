//! The APIs that are understood, and what holds for every call of each.

use serde::{Serialize, Serializer};

use super::Operation;
use crate::frame::Json;

macro_rules! apis {
    ($($api:ident = $family:ident $name:literal, $operation:ident, $json:ident, $provider:literal;)*) => {
        /// An API that is understood.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Api {
            $($api),*
        }

        impl Serialize for Api {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl Api {
            pub const ALL: &[Self] = &[$(Self::$api),*];

            /// Its name in configuration and documentation: the family, a dot, and the API.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$api => $name),*
                }
            }

            /// The family of formats that it belongs to.
            pub const fn family(self) -> Family {
                match self {
                    $(Self::$api => Family::$family),*
                }
            }

            /// What a call of it is, where the answer does not show otherwise.
            pub const fn operation(self) -> Operation {
                match self {
                    $(Self::$api => Operation::$operation),*
                }
            }

            /// What JSON values mean at the top of an answer whose content type does not say.
            pub const fn json(self) -> Json {
                match self {
                    $(Self::$api => Json::$json),*
                }
            }

            /// Who speaks it where nothing else tells.
            pub const fn provider(self) -> &'static str {
                match self {
                    $(Self::$api => $provider),*
                }
            }
        }
    };
}

apis! {
    OpenAiChat = OpenAi "openai.chat", Chat, Whole, "openai";
    OpenAiCompletions = OpenAi "openai.completions", TextCompletion, Whole, "openai";
    OpenAiEmbeddings = OpenAi "openai.embeddings", Embeddings, Whole, "openai";
    OpenAiResponses = OpenAi "openai.responses", Chat, Whole, "openai";
    OpenAiStoredResponse = OpenAi "openai.stored_response", FetchResponse, Whole, "openai";
    OpenAiInputTokens = OpenAi "openai.input_tokens", CountTokens, Whole, "openai";
    OpenAiTranscription = OpenAi "openai.transcription", Transcription, Whole, "openai";
    OpenAiSpeech = OpenAi "openai.speech", Speech, Whole, "openai";
    OpenAiImages = OpenAi "openai.images", ImageGeneration, Whole, "openai";
    OpenAiModerations = OpenAi "openai.moderations", Moderation, Whole, "openai";
    OpenAiRealtime = OpenAi "openai.realtime", Realtime, Whole, "openai";
    AnthropicMessages = Anthropic "anthropic.messages", Chat, Whole, "anthropic";
    AnthropicComplete = Anthropic "anthropic.complete", TextCompletion, Whole, "anthropic";
    AnthropicCountTokens = Anthropic "anthropic.count_tokens", CountTokens, Whole, "anthropic";
    GeminiGenerateContent = Google "google.generate_content", GenerateContent, Elements, "gcp.gemini";
    GeminiInteractions = Google "google.interactions", GenerateContent, Whole, "gcp.gemini";
    GeminiStoredInteraction = Google "google.stored_interaction", FetchResponse, Whole, "gcp.gemini";
    GeminiCountTokens = Google "google.count_tokens", CountTokens, Whole, "gcp.gemini";
    GeminiEmbeddings = Google "google.embeddings", Embeddings, Whole, "gcp.gemini";
    VertexPredict = Google "google.predict", Embeddings, Whole, "gcp.vertex_ai";
    VertexImages = Google "google.images", ImageGeneration, Whole, "gcp.vertex_ai";
    BedrockConverse = Bedrock "bedrock.converse", Chat, Whole, "aws.bedrock";
    BedrockInvoke = Bedrock "bedrock.invoke", Chat, Whole, "aws.bedrock";
    BedrockInvokeText = Bedrock "bedrock.invoke_text", TextCompletion, Whole, "aws.bedrock";
    BedrockEmbeddings = Bedrock "bedrock.embeddings", Embeddings, Whole, "aws.bedrock";
    BedrockRerank = Bedrock "bedrock.rerank", Rerank, Whole, "aws.bedrock";
    BedrockImages = Bedrock "bedrock.images", ImageGeneration, Whole, "aws.bedrock";
    BedrockCountTokens = Bedrock "bedrock.count_tokens", CountTokens, Whole, "aws.bedrock";
    SageMakerInvocations = Bedrock "sagemaker.invocations", TextCompletion, Whole, "aws.sagemaker";
    SageMakerChat = Bedrock "sagemaker.chat", Chat, Whole, "aws.sagemaker";
    CohereV1Chat = Cohere "cohere.v1_chat", Chat, Lines, "cohere";
    CohereV1Generate = Cohere "cohere.v1_generate", TextCompletion, Lines, "cohere";
    CohereV2Chat = Cohere "cohere.v2_chat", Chat, Whole, "cohere";
    CohereEmbed = Cohere "cohere.embed", Embeddings, Whole, "cohere";
    Rerank = Cohere "cohere.rerank", Rerank, Whole, "cohere";
    OllamaChat = Ollama "ollama.chat", Chat, Lines, "ollama";
    OllamaGenerate = Ollama "ollama.generate", TextCompletion, Lines, "ollama";
    OllamaEmbed = Ollama "ollama.embed", Embeddings, Whole, "ollama";
    TgiGenerate = Tgi "tgi.generate", TextCompletion, Whole, "tgi";
    LlamaCppCompletion = LlamaCpp "llama_cpp.completion", TextCompletion, Whole, "llama_cpp";
    SglangGenerate = Sglang "sglang.generate", TextCompletion, Whole, "sglang";
    VllmGenerate = Vllm "vllm.generate", TextCompletion, Lines, "vllm";
    TritonGenerate = Triton "triton.generate", TextCompletion, Whole, "triton";
    WatsonxGeneration = Watsonx "watsonx.generation", TextCompletion, Whole, "ibm.watsonx.ai";
    WatsonxChat = Watsonx "watsonx.chat", Chat, Whole, "ibm.watsonx.ai";
    ReplicateStream = Replicate "replicate.stream", TextCompletion, Whole, "replicate";
    DashScopeGeneration = DashScope "dashscope.generation", Chat, Whole, "alibaba";
    DashScopeEmbeddings = DashScope "dashscope.embeddings", Embeddings, Whole, "alibaba";
    CloudflareRun = Cloudflare "cloudflare.run", Chat, Whole, "cloudflare";
    AlephAlphaComplete = AlephAlpha "aleph_alpha.complete", TextCompletion, Whole, "aleph_alpha";
}

impl Api {
    /// Whether the answer is streamed where the request does not say.
    pub const fn streams_by_default(self) -> bool {
        matches!(self, Self::OllamaChat | Self::OllamaGenerate)
    }

    /// Whether the last message of a stream can be told for the last. Where it cannot, the body's end is the stream's.
    pub const fn marks_end(self) -> bool {
        !matches!(self, Self::VllmGenerate | Self::TritonGenerate)
    }

    /// What is asked for by the standard's word, where the API itself says so.
    pub fn output_type(self) -> Option<&'static str> {
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

/// A family of formats: what a route's `dialect` names.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Family {
    OpenAi,
    Anthropic,
    Google,
    Bedrock,
    Cohere,
    Ollama,
    Tgi,
    LlamaCpp,
    Sglang,
    Vllm,
    Triton,
    Watsonx,
    Replicate,
    DashScope,
    Cloudflare,
    AlephAlpha,
}

impl Family {
    pub const ALL: [Self; 16] = [
        Self::OpenAi,
        Self::Anthropic,
        Self::Google,
        Self::Bedrock,
        Self::Cohere,
        Self::Ollama,
        Self::Tgi,
        Self::LlamaCpp,
        Self::Sglang,
        Self::Vllm,
        Self::Triton,
        Self::Watsonx,
        Self::Replicate,
        Self::DashScope,
        Self::Cloudflare,
        Self::AlephAlpha,
    ];

    /// Its name in configuration and documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Google => "google",
            Self::Bedrock => "bedrock",
            Self::Cohere => "cohere",
            Self::Ollama => "ollama",
            Self::Tgi => "tgi",
            Self::LlamaCpp => "llama_cpp",
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
            Self::Triton => "triton",
            Self::Watsonx => "watsonx",
            Self::Replicate => "replicate",
            Self::DashScope => "dashscope",
            Self::Cloudflare => "cloudflare",
            Self::AlephAlpha => "aleph_alpha",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_is_its_own_and_every_family_has_an_api() {
        let names: HashSet<_> = Api::ALL.iter().map(|api| api.as_str()).collect();
        assert_eq!(names.len(), Api::ALL.len());
        let families: HashSet<_> = Api::ALL.iter().map(|api| api.family()).collect();
        assert_eq!(families, HashSet::from(Family::ALL));
    }
}
