//! Which API a request is for: by the route's setting, else by method, host, path and headers.
//!
//! A path alone is not always enough: `/generate` is TGI's, SGLang's and vLLM's, and anybody's. Then the first API that
//! fits is taken until the request's body says which one it is ([`RequestFacts::api`](super::RequestFacts)), or none.

use super::api::{Api, Family};
use tokengauge_types::label::Name;

/// What an API is told by.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    /// The dialect that the configuration names for the route, if any: a family, or one API of it.
    pub hint: Option<&'a str>,
    pub method: &'a http::Method,
    /// The upstream's host, or the one the client asked for.
    pub host: Option<&'a str>,
    /// Without the query.
    pub path: &'a str,
    /// Whether the request has an `anthropic-version` header, which only that API has.
    pub anthropic: bool,
}

impl RequestTarget<'_> {
    /// Whether the configuration leaves room for the API.
    fn admits(&self, api: Api) -> bool {
        self.hint.is_none_or(|hint| hint == api.family().as_str() || hint == api.as_str())
    }
}

/// What a request's head says of the call.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedApi {
    pub api: Api,
    /// The model, where the path names it.
    pub model: Option<Name>,
    /// Whether the answer is to be streamed, where the path says so.
    pub stream: Option<bool>,
    /// The path is one that others have too: the body decides which API it is, or that it is none.
    pub body_decides: bool,
}

impl DetectedApi {
    /// The same with the model that the query names, where the path names none.
    pub fn or_model(self, queried: Option<&Name>) -> Self {
        let model = self.model.or_else(|| queried.cloned());
        Self { model, ..self }
    }
}

/// Paths by their end, because what stands before is the provider's own: `/v1`, `/api/v1`, `/openai/deployments/NAME`.
/// Of several that fit the first holds that the configuration admits.
const POSTED: [(&str, Api); 49] = [
    ("/chat/completions", Api::OpenAiChat),
    ("/text/chatcompletion_v2", Api::OpenAiChat),
    ("/completions", Api::OpenAiCompletions),
    ("/responses/input_tokens", Api::OpenAiInputTokens),
    ("/responses", Api::OpenAiResponses),
    ("/audio/transcriptions", Api::OpenAiTranscription),
    ("/audio/translations", Api::OpenAiTranscription),
    ("/audio/speech", Api::OpenAiSpeech),
    ("/images/generations", Api::OpenAiImages),
    ("/images/edits", Api::OpenAiImages),
    ("/images/variations", Api::OpenAiImages),
    ("/moderations", Api::OpenAiModerations),
    ("/messages/count_tokens", Api::AnthropicCountTokens),
    ("/v1/messages", Api::AnthropicMessages),
    ("/anthropic/messages", Api::AnthropicMessages),
    ("/v1/complete", Api::AnthropicComplete),
    ("/interactions", Api::GeminiInteractions),
    ("/api/chat", Api::OllamaChat),
    ("/api/generate", Api::OllamaGenerate),
    ("/api/embed", Api::OllamaEmbed),
    ("/api/embeddings", Api::OllamaEmbed),
    ("/embeddings", Api::OpenAiEmbeddings),
    ("/v1/chat", Api::CohereV1Chat),
    ("/v1/chat", Api::OpenAiChat),
    ("/v2/chat", Api::CohereV2Chat),
    ("/v1/generate", Api::CohereV1Generate),
    ("/v1/embed", Api::CohereEmbed),
    ("/v2/embed", Api::CohereEmbed),
    ("/rerank", Api::Rerank),
    ("/ml/v1/text/generation", Api::WatsonxGeneration),
    ("/ml/v1/text/generation_stream", Api::WatsonxGeneration),
    ("/generation/text", Api::WatsonxGeneration),
    ("/generation/text_stream", Api::WatsonxGeneration),
    ("/text/chat", Api::WatsonxChat),
    ("/text/chat_stream", Api::WatsonxChat),
    ("/text-generation/generation", Api::DashScopeGeneration),
    ("/multimodal-generation/generation", Api::DashScopeGeneration),
    ("/text-embedding/text-embedding", Api::DashScopeEmbeddings),
    ("/generate_stream", Api::TgiGenerate),
    ("/generate", Api::VllmGenerate),
    ("/generate", Api::SglangGenerate),
    ("/generate", Api::TgiGenerate),
    ("/completion", Api::LlamaCppCompletion),
    ("/infill", Api::LlamaCppCompletion),
    ("/complete", Api::AlephAlphaComplete),
    ("/invocations", Api::SageMakerInvocations),
    ("/invocations-response-stream", Api::SageMakerInvocations),
    ("/count-tokens", Api::BedrockCountTokens),
    ("/messages", Api::AnthropicMessages),
];

/// What stands after the colon of a Google path, `…/models/NAME:VERB`.
const VERBS: [(&str, Api, Option<bool>); 10] = [
    ("generateContent", Api::GeminiGenerateContent, Some(false)),
    ("streamGenerateContent", Api::GeminiGenerateContent, Some(true)),
    ("countTokens", Api::GeminiCountTokens, None),
    ("computeTokens", Api::GeminiCountTokens, None),
    ("embedContent", Api::GeminiEmbeddings, None),
    ("batchEmbedContents", Api::GeminiEmbeddings, None),
    ("asyncBatchEmbedContent", Api::GeminiEmbeddings, None),
    ("predict", Api::VertexPredict, None),
    ("rawPredict", Api::AnthropicMessages, Some(false)),
    ("streamRawPredict", Api::AnthropicMessages, Some(true)),
];

/// What stands after the model of a Bedrock path, `/model/NAME/ACTION`.
const ACTIONS: [(&str, Api, Option<bool>); 5] = [
    ("converse", Api::BedrockConverse, Some(false)),
    ("converse-stream", Api::BedrockConverse, Some(true)),
    ("invoke", Api::BedrockInvoke, Some(false)),
    ("invoke-with-response-stream", Api::BedrockInvoke, Some(true)),
    ("count-tokens", Api::BedrockCountTokens, None),
];

/// Ends of paths that say little: others have them too.
const SHARED: [&str; 11] = [
    "/v1/chat",
    "/v1/generate",
    "/generate",
    "/generate_stream",
    "/completion",
    "/infill",
    "/complete",
    "/invocations",
    "/rerank",
    "/interactions",
    "/messages",
];

/// Where sessions over a WebSocket are opened: `/v1/realtime`, Azure's `/openai/realtime`.
const SESSIONS: &str = "realtime";

/// The API that a request is for; `None` for plain HTTP.
pub fn detect(facts: &RequestTarget<'_>) -> Option<DetectedApi> {
    let found = by_path(facts);
    let Some(hint) = facts.hint else {
        return found;
    };
    // One API by name is taken at its word, wherever a gateway may have put it.
    if let Some(api) = Api::ALL.iter().find(|api| api.as_str() == hint) {
        let posted = facts.method == http::Method::POST;
        let same = found.filter(|found| found.api == *api);
        return same.or_else(|| posted.then(|| plain(*api)));
    }
    found.filter(|found| found.api.family().as_str() == hint)
}

/// Whether a route's `dialect` may say so.
pub fn is_hint(hint: &str) -> bool {
    let family = Family::ALL.iter().any(|family| family.as_str() == hint);
    family || Api::ALL.iter().any(|api| api.as_str() == hint)
}

fn by_path(facts: &RequestTarget<'_>) -> Option<DetectedApi> {
    let path = facts.path.trim_end_matches('/');
    if facts.method == http::Method::GET {
        return fetched(path);
    }
    if facts.method != http::Method::POST {
        return None;
    }
    google(path)
        .or_else(|| bedrock(path))
        .or_else(|| triton(path))
        .or_else(|| databricks(path))
        .or_else(|| cloudflare(path))
        .or_else(|| posted(facts, path))
}

/// `…/models/NAME:VERB`, `…/tunedModels/NAME:VERB`, `…/endpoints/NAME:VERB`; `/v1internal:VERB` of Code Assist, whose
/// requests name the model themselves.
fn google(path: &str) -> Option<DetectedApi> {
    let (before, last) = path.rsplit_once('/')?;
    let (model, verb) = last.rsplit_once(':').or_else(|| last.split_once("%3A"))?;
    let (_, api, stream) = VERBS.iter().find(|(known, _, _)| *known == verb)?;
    let publisher =
        before.rsplit_once("/publishers/").and_then(|(_, after)| after.split('/').next());
    let raw = matches!(api, Api::AnthropicMessages);
    let api = match publisher {
        // Other publishers' models answer a raw prediction in the format that they are served in, which is OpenAI's.
        Some(publisher) if raw && publisher != "anthropic" => Api::OpenAiChat,
        // The body names the model whose tokens are counted.
        Some(_) if raw && model == "count-tokens" => return Some(plain(Api::AnthropicCountTokens)),
        _ => *api,
    };
    let (api, body_decides) =
        if api == Api::VertexPredict { predicted(model) } else { (api, false) };
    let named = ["/models", "/tunedModels", "/endpoints"];
    let named = named.iter().any(|parent| before.ends_with(parent));
    Some(DetectedApi {
        model: Some(model).filter(|_| named).and_then(name),
        stream: *stream,
        body_decides,
        ..plain(api)
    })
}

/// What a prediction is shows in Google's own names of models. What a model of someone's own predicts its input may show.
fn predicted(model: &str) -> (Api, bool) {
    if model.starts_with("imagen") || model.starts_with("imagegeneration") {
        return (Api::VertexImages, false);
    }
    let embeds = model.contains("embedding") || model.contains("gecko");
    (Api::VertexPredict, !embeds)
}

/// `/model/NAME/ACTION`.
fn bedrock(path: &str) -> Option<DetectedApi> {
    let (before, action) = path.rsplit_once('/')?;
    let (_, api, stream) = ACTIONS.iter().find(|(known, _, _)| *known == action)?;
    let (_, model) = before.rsplit_once("/model/")?;
    // The slash in an ARN should be written otherwise, but not everyone does.
    if model.contains('/') && !model.starts_with("arn:") {
        return None;
    }
    let model = name(model);
    let invoked = *api == Api::BedrockInvoke;
    let known = model.as_ref().filter(|_| invoked);
    let known = known.and_then(|model| by_kind(model.as_str()));
    Some(DetectedApi {
        model,
        stream: *stream,
        // A model may embed, rank or draw as well as write; its name may hide which.
        body_decides: invoked && known.is_none(),
        ..plain(known.unwrap_or(*api))
    })
}

/// What a model of Bedrock does, where its name tells that it does not write.
fn by_kind(model: &str) -> Option<Api> {
    const KINDS: [(&str, Api); 6] = [
        ("embed", Api::BedrockEmbeddings),
        ("rerank", Api::BedrockRerank),
        ("titan-image", Api::BedrockImages),
        ("nova-canvas", Api::BedrockImages),
        ("stability.", Api::BedrockImages),
        ("stable-", Api::BedrockImages),
    ];
    let kind = KINDS.iter().find(|(word, _)| model.contains(word));
    kind.map(|(_, api)| *api)
}

/// `/v2/models/NAME/generate`, also with `/versions/NUMBER` before the last step.
fn triton(path: &str) -> Option<DetectedApi> {
    let stream = path.ends_with("/generate_stream");
    let before =
        path.strip_suffix("/generate_stream").or_else(|| path.strip_suffix("/generate"))?;
    let (_, after) = before.rsplit_once("/v2/models/")?;
    Some(DetectedApi {
        model: name(after.split('/').next()?),
        stream: Some(stream),
        ..plain(Api::TritonGenerate)
    })
}

/// `/serving-endpoints/NAME/invocations`: what SageMaker has, too, is OpenAI's format here.
fn databricks(path: &str) -> Option<DetectedApi> {
    let before = path.strip_suffix("/invocations")?;
    let (_, model) = before.rsplit_once("/serving-endpoints/")?;
    Some(DetectedApi { model: name(model), body_decides: true, ..plain(Api::OpenAiChat) })
}

/// `…/ai/run/@cf/OWNER/NAME`, behind a gateway `…/workers-ai/@cf/OWNER/NAME`.
fn cloudflare(path: &str) -> Option<DetectedApi> {
    let (_, model) = path.split_once("/ai/run/@").or_else(|| path.split_once("/workers-ai/@"))?;
    Some(DetectedApi {
        model: name(&format!("@{model}")),
        body_decides: true,
        ..plain(Api::CloudflareRun)
    })
}

fn posted(facts: &RequestTarget<'_>, path: &str) -> Option<DetectedApi> {
    if facts.anthropic && path.ends_with("/messages") {
        return Some(plain(Api::AnthropicMessages));
    }
    let by_end = POSTED.iter().find(|(suffix, api)| path.ends_with(suffix) && facts.admits(*api));
    let Some((suffix, api)) = by_end else {
        return hugging_face(path);
    };
    let cohere = facts.host.is_some_and(|host| host.contains("cohere"));
    let before = path.strip_suffix(suffix).unwrap_or_default();
    Some(DetectedApi {
        model: deployment(before),
        stream: (suffix.ends_with("stream") || api.streams_by_default()).then_some(true),
        // llama.cpp has its own completions where others have OpenAI's only under `/v1`.
        body_decides: (SHARED.contains(suffix) && !cohere) || path == "/completions",
        ..plain(*api)
    })
}

/// A model that a path names as `/deployments/NAME`, `/engines/NAME` or `/endpoints/NAME`, if it ends so.
fn deployment(before: &str) -> Option<Name> {
    let (before, model) = before.rsplit_once('/')?;
    let (_, kind) = before.rsplit_once('/')?;
    matches!(kind, "deployments" | "engines" | "endpoints").then(|| name(model)).flatten()
}

/// Hosted TGI: an endpoint's root, or `/models/OWNER/NAME`, behind Hugging Face's router `/hf-inference/models/…`.
fn hugging_face(path: &str) -> Option<DetectedApi> {
    let path = path.strip_prefix("/hf-inference").unwrap_or(path);
    let model = path.strip_prefix("/models/");
    (path.is_empty() || model.is_some_and(|model| model.matches('/').count() == 1)).then(|| {
        DetectedApi { model: model.and_then(name), body_decides: true, ..plain(Api::TgiGenerate) }
    })
}

/// What can be fetched that is an answer.
fn fetched(path: &str) -> Option<DetectedApi> {
    let (before, last) = path.rsplit_once('/')?;
    let stored = ["/responses", "/chat/completions"];
    if stored.iter().any(|end| before.ends_with(end)) && !last.is_empty() {
        return Some(plain(Api::OpenAiStoredResponse));
    }
    if before.ends_with("/v1beta/interactions") && !last.is_empty() {
        return Some(plain(Api::GeminiStoredInteraction));
    }
    if last == SESSIONS {
        return Some(plain(Api::OpenAiRealtime));
    }
    (before.ends_with("/v1/streams"))
        .then(|| DetectedApi { stream: Some(true), ..plain(Api::ReplicateStream) })
}

const fn plain(api: Api) -> DetectedApi {
    DetectedApi { api, model: None, stream: None, body_decides: false }
}

/// A step of a path, percent-decoded.
fn name(step: &str) -> Option<Name> {
    let decoded = percent_decoded(step)?;
    Name::new(&decoded)
}

/// `None` where it is not well-formed.
fn percent_decoded(step: &str) -> Option<String> {
    let mut bytes = step.bytes();
    let mut decoded = Vec::with_capacity(step.len());
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        };
        decoded.push(byte);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(method: &'a http::Method, path: &'a str) -> RequestTarget<'a> {
        RequestTarget { hint: None, method, host: Some("127.0.0.1:8000"), path, anthropic: false }
    }

    fn post(path: &str) -> Option<DetectedApi> {
        detect(&asked(&http::Method::POST, path))
    }

    fn api(path: &str) -> Option<Api> {
        post(path).map(|found| found.api)
    }

    const PATHS: &[(&str, Api)] = &[
        ("/v1/chat/completions", Api::OpenAiChat),
        ("/chat/completions", Api::OpenAiChat),
        ("/api/v1/chat/completions/", Api::OpenAiChat),
        ("/openai/deployments/my-model/chat/completions", Api::OpenAiChat),
        ("/v1/completions", Api::OpenAiCompletions),
        ("/v1/embeddings", Api::OpenAiEmbeddings),
        ("/openai/v1/responses", Api::OpenAiResponses),
        ("/v1/responses/input_tokens", Api::OpenAiInputTokens),
        ("/v1/audio/transcriptions", Api::OpenAiTranscription),
        ("/v1/audio/translations", Api::OpenAiTranscription),
        ("/v1/images/generations", Api::OpenAiImages),
        ("/v1/moderations", Api::OpenAiModerations),
        ("/v1/messages", Api::AnthropicMessages),
        ("/api/v1/messages", Api::AnthropicMessages),
        ("/v1/messages/count_tokens", Api::AnthropicCountTokens),
        ("/v1/complete", Api::AnthropicComplete),
        ("/api/chat", Api::OllamaChat),
        ("/api/embeddings", Api::OllamaEmbed),
        ("/v2/chat", Api::CohereV2Chat),
        ("/v2/rerank", Api::Rerank),
        ("/ml/v1/text/generation_stream", Api::WatsonxGeneration),
        ("/ml/v1-beta/generation/text_stream", Api::WatsonxGeneration),
        ("/ml/v1/text/chat_stream", Api::WatsonxChat),
        ("/generate_stream", Api::TgiGenerate),
        ("/completion", Api::LlamaCppCompletion),
        ("/endpoints/my-endpoint/invocations", Api::SageMakerInvocations),
        ("/complete", Api::AlephAlphaComplete),
        ("/api/v1/services/aigc/text-generation/generation", Api::DashScopeGeneration),
        ("/api/v1/services/embeddings/text-embedding/text-embedding", Api::DashScopeEmbeddings),
        (
            "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict",
            Api::AnthropicCountTokens,
        ),
        ("/", Api::TgiGenerate),
        ("/models/owner/name", Api::TgiGenerate),
        ("/hf-inference/models/owner/name", Api::TgiGenerate),
    ];

    #[test]
    fn paths_are_told_by_their_end() {
        for (path, expected) in PATHS {
            assert_eq!(api(path), Some(*expected), "{path}");
        }
        for path in [
            "/v1/models",
            "/v1/chatter",
            "/v1/files",
            "/models/name",
            "/health",
            "/v2/models/m/infer",
            "/model/a/b/converse",
        ] {
            assert_eq!(api(path), None, "{path}");
        }
    }

    #[test]
    fn a_path_may_name_the_model_and_whether_it_streams() {
        for (path, expected, model, stream) in [
            (
                "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
                Api::GeminiGenerateContent,
                "gemini-2.5-flash",
                Some(true),
            ),
            (
                "/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:generateContent",
                Api::GeminiGenerateContent,
                "gemini-2.5-pro",
                Some(false),
            ),
            (
                "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@1:streamRawPredict",
                Api::AnthropicMessages,
                "claude-x@1",
                Some(true),
            ),
            (
                "/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict",
                Api::OpenAiChat,
                "m",
                Some(false),
            ),
            (
                "/v1/projects/p/locations/l/publishers/google/models/text-embedding-005:predict",
                Api::VertexPredict,
                "text-embedding-005",
                None,
            ),
            (
                "/v1beta/models/imagen-4.0-generate-001:predict",
                Api::VertexImages,
                "imagen-4.0-generate-001",
                None,
            ),
            ("/openai/deployments/d/chat/completions", Api::OpenAiChat, "d", None),
            ("/v2/models/m/versions/3/generate_stream", Api::TritonGenerate, "m", Some(true)),
            ("/v2/models/m/generate", Api::TritonGenerate, "m", Some(false)),
        ] {
            let found = post(path).unwrap();
            let known = (found.api, found.model, found.stream);
            assert_eq!(known, (expected, Name::new(model), stream), "{path}");
        }
    }

    #[test]
    fn amazons_models_and_endpoints_have_names_of_many_kinds() {
        for (path, expected, model, stream) in [
            (
                "/model/us.amazon.nova-lite-v1%3A0/converse-stream",
                Api::BedrockConverse,
                "us.amazon.nova-lite-v1:0",
                Some(true),
            ),
            ("/model/arn%3Aaws%2Fx/invoke", Api::BedrockInvoke, "arn:aws/x", Some(false)),
            (
                "/endpoints/e/invocations-response-stream",
                Api::SageMakerInvocations,
                "e",
                Some(true),
            ),
            (
                "/model/arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-x/converse",
                Api::BedrockConverse,
                "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-x",
                Some(false),
            ),
            (
                "/model/cohere.embed-multilingual-v3/invoke",
                Api::BedrockEmbeddings,
                "cohere.embed-multilingual-v3",
                Some(false),
            ),
            (
                "/model/amazon.nova-canvas-v1%3A0/invoke",
                Api::BedrockImages,
                "amazon.nova-canvas-v1:0",
                Some(false),
            ),
            ("/serving-endpoints/e/invocations", Api::OpenAiChat, "e", None),
        ] {
            let found = post(path).unwrap();
            let known = (found.api, found.model, found.stream);
            assert_eq!(known, (expected, Name::new(model), stream), "{path}");
        }
    }

    #[test]
    fn a_model_is_named_in_its_place_only() {
        let found = post("/v1internal:streamGenerateContent").unwrap();
        let known = (found.api, found.model, found.stream);
        assert_eq!(known, (Api::GeminiGenerateContent, None, Some(true)));
    }

    #[test]
    fn what_is_predicted_shows_in_the_name_of_the_model() {
        let told = |model| {
            let found = post(&format!("/v1/publishers/google/models/{model}:predict")).unwrap();
            assert_eq!(found.model, Name::new(model));
            (found.api, found.body_decides)
        };
        assert_eq!(told("text-embedding-005"), (Api::VertexPredict, false));
        assert_eq!(told("textembedding-gecko@003"), (Api::VertexPredict, false));
        assert_eq!(told("imagen-4.0-generate-001"), (Api::VertexImages, false));
        assert_eq!(told("123"), (Api::VertexPredict, true));
    }

    #[test]
    fn where_others_have_the_path_the_body_decides() {
        let decides = |path| post(path).unwrap().body_decides;
        for path in [
            "/",
            "/generate",
            "/v1/chat",
            "/rerank",
            "/gateway/messages",
            "/models/a/b",
            "/completions",
            "/model/meta.llama3-x/invoke",
            "/model/arn%3Aaws%2Fx/invoke-with-response-stream",
            "/endpoints/e/invocations",
            "/serving-endpoints/e/invocations",
            "/v1/projects/p/locations/l/endpoints/123:predict",
        ] {
            assert!(decides(path), "{path}");
        }
        for path in [
            "/v1/chat/completions",
            "/api/chat",
            "/v1/messages",
            "/v2/chat",
            "/v1/completions",
            "/model/m/converse",
            "/model/amazon.titan-embed-text-v2%3A0/invoke",
            "/v1/projects/p/locations/l/publishers/google/models/gemini-embedding-001:predict",
        ] {
            assert!(!decides(path), "{path}");
        }
    }

    #[test]
    fn hosts_and_headers_decide_too() {
        let method = http::Method::POST;
        let cohere = RequestTarget { host: Some("api.cohere.com"), ..asked(&method, "/v1/chat") };
        let found = detect(&cohere).unwrap();
        assert_eq!((found.api, found.body_decides), (Api::CohereV1Chat, false));
        let claude = RequestTarget { anthropic: true, ..asked(&method, "/gateway/messages") };
        let found = detect(&claude).unwrap();
        assert_eq!((found.api, found.body_decides), (Api::AnthropicMessages, false));
    }

    #[test]
    fn what_is_fetched() {
        let fetch = |path| detect(&asked(&http::Method::GET, path)).map(|found| found.api);
        assert_eq!(fetch("/v1/responses/resp_1"), Some(Api::OpenAiStoredResponse));
        assert_eq!(fetch("/v1/chat/completions/chatcmpl-1"), Some(Api::OpenAiStoredResponse));
        assert_eq!(fetch("/v1/streams/abc"), Some(Api::ReplicateStream));
        assert_eq!(fetch("/v1beta/interactions/v1_abc"), Some(Api::GeminiStoredInteraction));
        assert_eq!(fetch("/v1beta/interactions/"), None);
        for path in ["/v1/realtime", "/openai/realtime", "/openai/v1/realtime/"] {
            assert_eq!(fetch(path), Some(Api::OpenAiRealtime), "{path}");
        }
        assert_eq!(fetch("/v1/realtime/sessions"), None);
        assert_eq!(fetch("/v1/models"), None);
        assert_eq!(fetch("/v1/chat/completions"), None);
        assert_eq!(detect(&asked(&http::Method::DELETE, "/v1/responses/resp_1")), None);
    }

    #[test]
    fn a_hint_restricts_to_its_family_or_names_the_api() {
        let method = http::Method::POST;
        let hinted = |hint, path| {
            let facts = RequestTarget { hint: Some(hint), ..asked(&method, path) };
            detect(&facts).map(|found| found.api)
        };
        let chat = "/v1/chat/completions";
        assert_eq!(hinted("openai", chat), Some(Api::OpenAiChat));
        assert_eq!(hinted("anthropic", chat), None);
        assert_eq!(hinted("openai", "/v1/chat"), Some(Api::OpenAiChat));
        assert_eq!(hinted("cohere", "/v1/chat"), Some(Api::CohereV1Chat));
        assert_eq!(hinted("anthropic.messages", "/llm/ask"), Some(Api::AnthropicMessages));
        assert_eq!(hinted("tgi.generate", "/generate"), Some(Api::TgiGenerate));
        assert!(is_hint("openai") && is_hint("bedrock.converse"));
        assert!(!is_hint("openal") && !is_hint(""));
    }
}
