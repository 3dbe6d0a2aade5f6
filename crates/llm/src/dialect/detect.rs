//! Detects the API of a request from the route configuration, the method, host, path and headers.
//!
//! A path alone may be ambiguous: TGI, SGLang, vLLM and other servers share `/generate`. In that case, one of these
//! APIs is assumed. The request body then shows the actual API, if any ([`RequestFacts::api`](super::RequestFacts)).

use std::collections::HashMap;
use std::sync::LazyLock;

use percent_encoding::percent_decode_str;

use super::normal_path::normalize;
use super::{Api, Family, provider_by_host};
use tokengauge_types::label::Name;

/// The parts of a request from which its API is detected.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    /// The setting `api_format` of the route, if configured: the name of a family or of an API.
    pub hint: Option<&'a str>,
    pub method: &'a http::Method,
    /// Host name of the upstream, or of the request.
    pub host: Option<&'a str>,
    /// Without the query.
    pub path: &'a str,
    /// The family that the request's headers name. Only Anthropic's clients send such a header, `anthropic-version`.
    pub header_family: Option<Family>,
}

impl RequestTarget<'_> {
    /// Returns whether the route's setting `api_format` allows this API.
    fn admits(&self, api: Api) -> bool {
        self.hint.is_none_or(|hint| hint == api.family().as_str() || hint == api.as_str())
    }
}

/// The API and other facts that the request line and the headers show.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedApi {
    pub api: Api,
    /// The model, if the path contains its name.
    pub model: Option<Name>,
    /// Whether the client requests a streamed response. `None` if the path does not show it.
    pub stream: Option<bool>,
    /// Whether several APIs share the path. If true, the request body shows which API applies, if any.
    pub body_decides: bool,
}

impl DetectedApi {
    /// Adds the model from the query string, unless the path contains a model name.
    pub fn or_model(self, queried: Option<&Name>) -> Self {
        let model = self.model.or_else(|| queried.cloned());
        Self { model, ..self }
    }
}

/// Google: method names after the colon of a path, `…/models/NAME:VERB`.
const GOOGLE_METHODS: [(&str, Api, Option<bool>); 10] = [
    ("generateContent", Api::GeminiGenerateContent, Some(false)),
    ("streamGenerateContent", Api::GeminiGenerateContent, Some(true)),
    ("countTokens", Api::GeminiCountTokens, None),
    ("computeTokens", Api::GeminiCountTokens, None),
    ("embedContent", Api::GeminiEmbeddings, None),
    ("batchEmbedContents", Api::GeminiEmbeddings, None),
    ("asyncBatchEmbedContent", Api::GeminiEmbeddings, None),
    ("predict", Api::VertexPredict, None),
    ("rawPredict", Api::OpenAiChat, Some(false)),
    ("streamRawPredict", Api::OpenAiChat, Some(true)),
];

/// Bedrock: actions after the model, `/model/NAME/ACTION`.
const BEDROCK_ACTIONS: [(&str, Api, Option<bool>); 5] = [
    ("converse", Api::BedrockConverse, Some(false)),
    ("converse-stream", Api::BedrockConverse, Some(true)),
    ("invoke", Api::BedrockInvoke, Some(false)),
    ("invoke-with-response-stream", Api::BedrockInvoke, Some(true)),
    ("count-tokens", Api::BedrockCountTokens, None),
];

/// The path suffixes of all APIs, in the order of the APIs, by their last segment.
static SUFFIXES: LazyLock<HashMap<&str, Vec<(&str, Api)>>> = LazyLock::new(|| {
    let mut suffixes: HashMap<_, Vec<_>> = HashMap::new();
    for api in Api::ALL {
        for suffix in api.paths() {
            suffixes.entry(last_segment(suffix)).or_default().push((*suffix, *api));
        }
    }
    suffixes
});

/// Path suffixes that servers with other APIs also use.
const SHARED_SUFFIXES: [&str; 12] = [
    "/v1/chat",
    "/api/v1/chat",
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

/// Last segment of paths that open a WebSocket session: `/v1/realtime`, and Azure's `/openai/realtime`.
const REALTIME_SEGMENT: &str = "realtime";

/// Returns the API of a request, or `None` if the request does not call an LLM API.
///
/// Unnecessary percent-encoding in the path makes no difference, because servers treat such paths alike.
pub fn detect(facts: &RequestTarget<'_>) -> Option<DetectedApi> {
    let path = normalize(facts.path);
    let facts = &RequestTarget { path: &path, ..*facts };
    let found = by_path(facts);
    let Some(hint) = facts.hint else {
        return found;
    };
    // A configured API applies to any path, because a gateway may have changed the path.
    if let Some(api) = Api::ALL.iter().find(|api| api.as_str() == hint) {
        let posted = facts.method == http::Method::POST;
        let same = found.filter(|found| found.api == *api);
        return same.or_else(|| posted.then(|| plain(*api)));
    }
    found.filter(|found| found.api.family().as_str() == hint)
}

/// Returns whether `hint` is a valid value of the setting `api_format` of a route.
pub fn is_hint(hint: &str) -> bool {
    let family = Family::ALL.iter().any(|family| family.as_str() == hint);
    family || Api::ALL.iter().any(|api| api.as_str() == hint)
}

/// Returns whether only a call of `found` can have this target. Other targets only look like a call: many
/// services have paths such as `/api/chat` or `/surveys/4/responses`.
pub fn is_certain(facts: &RequestTarget<'_>, found: &DetectedApi) -> bool {
    let has_header = facts.header_family == Some(found.api.family());
    if facts.hint.is_some()
        || has_header
        || facts.host.is_some_and(|host| provider_by_host(host).is_some())
    {
        return true;
    }
    let path = normalize(facts.path);
    let path = path.trim_end_matches('/');
    let is_specific = |suffix: &&str| {
        // Web applications have such paths, too.
        let before = path.strip_suffix(suffix).filter(|_| !suffix.starts_with("/api/"));
        let has_two_segments = suffix.matches('/').count() > 1;
        before.is_some_and(|it| has_two_segments || it.is_empty() || it.ends_with("/v1"))
    };
    let suffixes = found.api.paths();
    !found.body_decides
        && (found.model.is_some() || suffixes.is_empty() || suffixes.iter().any(is_specific))
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

/// Parses `…/models/NAME:VERB`, `…/tunedModels/NAME:VERB` and `…/endpoints/NAME:VERB`. Also parses Code Assist's
/// `/v1internal:VERB`, whose requests name the model in the body.
fn google(path: &str) -> Option<DetectedApi> {
    let (before, last) = path.rsplit_once('/')?;
    let (model, verb) = last.rsplit_once(':').or_else(|| last.split_once("%3A"))?;
    let (_, api, stream) = GOOGLE_METHODS.iter().find(|(known, _, _)| *known == verb)?;
    let publisher =
        before.rsplit_once("/publishers/").and_then(|(_, after)| after.split('/').next());
    let (api, body_decides) = match (api, publisher) {
        (Api::VertexPredict, _) => prediction_api(model),
        // The body names the model.
        (Api::OpenAiChat, Some("anthropic")) if model == "count-tokens" => {
            return Some(plain(Api::AnthropicCountTokens));
        }
        (Api::OpenAiChat, Some("anthropic")) => (Api::AnthropicMessages, false),
        // A raw request passes the body on to the container or to the publisher, mostly in OpenAI's format.
        (Api::OpenAiChat, _) => (Api::OpenAiChat, true),
        _ => (*api, false),
    };
    let named = ["/models", "/tunedModels", "/endpoints"];
    let named = named.iter().any(|parent| before.ends_with(parent));
    Some(DetectedApi {
        model: Some(model).filter(|_| named).and_then(name),
        stream: *stream,
        body_decides,
        ..plain(api)
    })
}

/// Returns the API that a model name shows. The flag is set for custom models, whose API only the request body shows.
fn prediction_api(model: &str) -> (Api, bool) {
    if model.starts_with("imagen") || model.starts_with("imagegeneration") {
        return (Api::VertexImages, false);
    }
    let embeds = model.contains("embedding") || model.contains("gecko");
    (Api::VertexPredict, !embeds)
}

/// Parses `/model/NAME/ACTION`.
fn bedrock(path: &str) -> Option<DetectedApi> {
    let (before, action) = path.rsplit_once('/')?;
    let (_, api, stream) = BEDROCK_ACTIONS.iter().find(|(known, _, _)| *known == action)?;
    let (_, model) = before.rsplit_once("/model/")?;
    // Some clients do not escape the slash in an ARN.
    if model.contains('/') && !model.starts_with("arn:") {
        return None;
    }
    let model = name(model);
    let invoked = *api == Api::BedrockInvoke;
    let known = model.as_ref().filter(|_| invoked);
    let known = known.and_then(|model| bedrock_api(model.as_str()));
    Some(DetectedApi {
        model,
        stream: *stream,
        // The model may generate text, embed, rank, or generate images. A profile name does not show which.
        body_decides: invoked && known.is_none(),
        ..plain(known.unwrap_or(*api))
    })
}

/// Returns the API of a Bedrock model whose name shows that the model does not generate text.
fn bedrock_api(model: &str) -> Option<Api> {
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

/// Parses `/v2/models/NAME/generate`, optionally with `/versions/NUMBER` before the last segment.
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

/// Parses `/serving-endpoints/NAME/invocations` of Databricks, which uses OpenAI's format. SageMaker paths also end in
/// `/invocations`.
fn databricks(path: &str) -> Option<DetectedApi> {
    let before = path.strip_suffix("/invocations")?;
    let (_, model) = before.rsplit_once("/serving-endpoints/")?;
    Some(DetectedApi { model: name(model), body_decides: true, ..plain(Api::OpenAiChat) })
}

/// Parses Cloudflare's `…/ai/run/@cf/OWNER/NAME`, and `…/workers-ai/@cf/OWNER/NAME` behind a gateway.
fn cloudflare(path: &str) -> Option<DetectedApi> {
    // The search for one character excludes nearly all other paths, and takes less time than the search for a text.
    let path = Some(path).filter(|path| path.contains('@'))?;
    let (_, model) = path.split_once("/ai/run/@").or_else(|| path.split_once("/workers-ai/@"))?;
    Some(DetectedApi {
        model: name(&format!("@{model}")),
        body_decides: true,
        ..plain(Api::CloudflareRun)
    })
}

fn posted(facts: &RequestTarget<'_>, path: &str) -> Option<DetectedApi> {
    if facts.header_family == Some(Family::Anthropic) && path.ends_with("/messages") {
        return Some(plain(Api::AnthropicMessages));
    }
    // The provider chooses the path prefix: `/v1`, `/api/v1`, `/openai/deployments/NAME`. The longest matching suffix
    // determines the API. If several APIs share that suffix, the last of them applies.
    let ends = SUFFIXES.get(last_segment(path)).into_iter().flatten();
    let by_end = ends
        .filter(|(end, api)| path.ends_with(end) && facts.admits(*api))
        .max_by_key(|(end, _)| end.len());
    let Some(&(suffix, api)) = by_end else {
        return hugging_face(path);
    };
    let cohere = facts.host.is_some_and(|host| host.contains("cohere"));
    let before = path.strip_suffix(suffix).unwrap_or_default();
    Some(DetectedApi {
        model: deployment(before),
        stream: (suffix.ends_with("stream") || api.streams_by_default()).then_some(true),
        // llama.cpp serves its own completions at `/completions`. Other servers serve OpenAI's completions only under
        // `/v1`.
        body_decides: (SHARED_SUFFIXES.contains(&suffix) && !cohere) || path == "/completions",
        ..plain(api)
    })
}

fn last_segment(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}

/// Returns the model name from a path that ends in `/deployments/NAME`, `/engines/NAME` or `/endpoints/NAME`.
fn deployment(before: &str) -> Option<Name> {
    let (before, model) = before.rsplit_once('/')?;
    let (_, kind) = before.rsplit_once('/')?;
    matches!(kind, "deployments" | "engines" | "endpoints").then(|| name(model)).flatten()
}

/// Parses the paths of hosted TGI: the root of an endpoint, `/models/OWNER/NAME`, and `/hf-inference/models/…` of the
/// Hugging Face router.
fn hugging_face(path: &str) -> Option<DetectedApi> {
    let path = path.strip_prefix("/hf-inference").unwrap_or(path);
    let model = path.strip_prefix("/models/");
    (path.is_empty() || model.is_some_and(|model| model.matches('/').count() == 1)).then(|| {
        DetectedApi { model: model.and_then(name), body_decides: true, ..plain(Api::TgiGenerate) }
    })
}

/// Returns the API of a request that fetches a stored response.
fn fetched(path: &str) -> Option<DetectedApi> {
    let (before, last) = path.rsplit_once('/')?;
    let stored = ["/responses", "/chat/completions"];
    if stored.iter().any(|end| before.ends_with(end)) && !last.is_empty() {
        return Some(plain(Api::OpenAiStoredResponse));
    }
    if before.ends_with("/v1beta/interactions") && !last.is_empty() {
        return Some(plain(Api::GeminiStoredInteraction));
    }
    if last == REALTIME_SEGMENT {
        return Some(plain(Api::OpenAiRealtime));
    }
    (before.ends_with("/v1/streams"))
        .then(|| DetectedApi { stream: Some(true), ..plain(Api::ReplicateStream) })
}

const fn plain(api: Api) -> DetectedApi {
    DetectedApi { api, model: None, stream: None, body_decides: false }
}

/// Returns a percent-decoded path segment as a name.
fn name(segment: &str) -> Option<Name> {
    Name::new(&percent_decode_str(segment).decode_utf8().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(method: &'a http::Method, path: &'a str) -> RequestTarget<'a> {
        RequestTarget {
            hint: None,
            method,
            host: Some("127.0.0.1:8000"),
            path,
            header_family: None,
        }
    }

    fn post(path: &str) -> Option<DetectedApi> {
        detect(&asked(&http::Method::POST, path))
    }

    fn api(path: &str) -> Option<Api> {
        post(path).map(|found| found.api)
    }

    /// The search by the last segment requires that a suffix begins with a slash.
    #[test]
    fn finds_every_suffix_after_a_prefix() {
        for suffix in Api::ALL.iter().flat_map(|api| api.paths()) {
            assert!(post(&format!("/prefix{suffix}")).is_some(), "{suffix}");
        }
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
        ("/api/v1/chat", Api::LmStudioChat),
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
    fn detects_apis_by_the_end_of_the_path() {
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
    fn encoded_characters_do_not_hide_an_api() {
        for (path, expected) in PATHS {
            let encoded: String = path
                .chars()
                .map(|it| match it {
                    '/' => it.to_string(),
                    ':' => "%3a".to_owned(),
                    _ => format!("%{:02x}", u32::from(it)),
                })
                .collect();
            assert_eq!(api(&encoded), Some(*expected), "{encoded}");
        }
        let found = post("/openai/deployments/%6dine%2F%41%2573/chat/completion%73").unwrap();
        assert_eq!(found.model.unwrap().as_str(), "mine/A%73", "decoded once");
    }

    #[test]
    fn reads_model_and_streaming_from_the_path() {
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
    fn reads_model_names_of_amazon() {
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
    fn reads_no_model_from_other_segments() {
        let found = post("/v1internal:streamGenerateContent").unwrap();
        let known = (found.api, found.model, found.stream);
        assert_eq!(known, (Api::GeminiGenerateContent, None, Some(true)));
    }

    #[test]
    fn detects_predictions_by_the_model() {
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
    fn lets_the_body_decide_on_shared_paths() {
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
            "/v1/projects/p/locations/l/endpoints/123:rawPredict",
            "/v1/projects/p/locations/l/publishers/mistralai/models/m:streamRawPredict",
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
            "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@1:rawPredict",
        ] {
            assert!(!decides(path), "{path}");
        }
    }

    #[test]
    fn detects_apis_by_host_and_header() {
        let method = http::Method::POST;
        let cohere = RequestTarget { host: Some("api.cohere.com"), ..asked(&method, "/v1/chat") };
        let found = detect(&cohere).unwrap();
        assert_eq!((found.api, found.body_decides), (Api::CohereV1Chat, false));
        let claude = RequestTarget {
            header_family: Some(Family::Anthropic),
            ..asked(&method, "/gateway/messages")
        };
        let found = detect(&claude).unwrap();
        assert_eq!((found.api, found.body_decides), (Api::AnthropicMessages, false));
    }

    #[test]
    fn detects_fetched_responses() {
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
    fn only_specific_targets_are_certain() {
        let of = |host, path| {
            let method = http::Method::POST;
            let facts = RequestTarget { host: Some(host), ..asked(&method, path) };
            is_certain(&facts, &detect(&facts).unwrap())
        };
        for path in [
            "/v1/chat/completions",
            "/gateway/chat/completions",
            "/embeddings",
            "/gateway/v1/embeddings",
            "/openai/deployments/d/embeddings",
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "/model/m/converse",
        ] {
            assert!(of("127.0.0.1:8000", path), "{path}");
        }
        for path in ["/api/chat", "/surveys/4/responses", "/v1/chat", "/generate", "/", "/rerank"] {
            assert!(!of("127.0.0.1:8000", path), "{path}");
        }
        assert!(of("api.cohere.com", "/v1/chat"));
    }

    #[test]
    fn restricts_to_the_configured_dialect() {
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
