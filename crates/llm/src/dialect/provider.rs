//! Detects the provider of a call, which is exported as `gen_ai.provider.name`.

use tokengauge_types::event::Headers;
use tokengauge_types::label::Label;

/// A provider and its characteristics. An OpenAI-compatible provider needs one row in [`PROVIDERS`] and no other code.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// The provider's name in OpenTelemetry's conventions, or else a name that tokengauge defines.
    name: &'static str,
    /// Suffixes of the provider's host names.
    hosts: &'static [&'static str],
    /// Response headers that no other provider or engine sends.
    headers: &'static [&'static str],
    /// The provider's `Server` header. Most engines send the header of a general web server, which identifies nothing.
    server: Option<&'static str>,
}

const PROVIDERS: &[Provider] = &[
    Provider::new("openai", &["api.openai.com", "chatgpt.com"]),
    Provider::new("azure.ai.openai", &["openai.azure.com", "cognitiveservices.azure.com"])
        .with_headers(&["x-ms-deployment-name", "azureml-model-session"]),
    Provider::new(
        "azure.ai.inference",
        &[
            "services.ai.azure.com",
            "models.ai.azure.com",
            "inference.ai.azure.com",
            "inference.ml.azure.com",
        ],
    ),
    Provider::new("anthropic", &["api.anthropic.com"]),
    Provider::new("cohere", &["cohere.com", "cohere.ai"]),
    Provider::new("deepseek", &["api.deepseek.com"]).with_headers(&["x-ds-trace-id"]),
    Provider::new("gcp.gemini", &["generativelanguage.googleapis.com"]),
    Provider::new("gcp.vertex_ai", &["aiplatform.googleapis.com"]),
    Provider::new("groq", &["api.groq.com"]).with_headers(&["x-groq-region"]),
    Provider::new("ibm.watsonx.ai", &["ml.cloud.ibm.com"]),
    Provider::new("minimax", &["api.minimax.io", "api.minimaxi.com", "api.minimax.chat"]),
    Provider::new("mistral_ai", &["mistral.ai"]),
    Provider::new("moonshot_ai", &["api.moonshot.ai", "api.moonshot.cn"]),
    Provider::new("perplexity", &["api.perplexity.ai"]),
    Provider::new("x_ai", &["api.x.ai"]),
    Provider::new("ai21", &["api.ai21.com"]),
    Provider::new("alibaba", &["aliyuncs.com"]),
    Provider::new("cerebras", &["api.cerebras.ai"]),
    Provider::new("cloudflare", &["gateway.ai.cloudflare.com", "api.cloudflare.com"]),
    Provider::new("databricks", &["databricks.com"]),
    Provider::new("fireworks", &["api.fireworks.ai"]),
    Provider::new("github_copilot", &["api.githubcopilot.com"]),
    Provider::new("hugging_face", &["huggingface.co", "huggingface.cloud"]),
    Provider::new("jina_ai", &["api.jina.ai"]),
    Provider::new("ollama", &["ollama.com"]),
    Provider::new("replicate", &["replicate.com"]),
    Provider::new("nvidia", &["integrate.api.nvidia.com"]),
    Provider::new("openrouter", &["openrouter.ai"]),
    Provider::new("snowflake", &["snowflakecomputing.com"]),
    Provider::new("together_ai", &["api.together.ai", "api.together.xyz"]),
    Provider::new("venice", &["api.venice.ai"]),
    Provider::new("voyage_ai", &["api.voyageai.com"]),
    Provider::new("writer", &["api.writer.com"]),
    Provider::new("z_ai", &["api.z.ai"]),
    Provider::new("tgi", &[]).with_headers(&["x-compute-type"]),
    Provider::new("llama_cpp", &[]).with_server("llama.cpp"),
];

impl Provider {
    const fn new(name: &'static str, hosts: &'static [&'static str]) -> Self {
        Self { name, hosts, headers: &[], server: None }
    }

    const fn with_headers(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }

    const fn with_server(self, server: &'static str) -> Self {
        Self { server: Some(server), ..self }
    }

    fn has_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|suffix| {
            let before = host.strip_suffix(suffix);
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    }

    fn has_header(&self, headers: &Headers) -> bool {
        self.headers.iter().any(|name| headers.get(name).is_some())
    }

    fn has_server(&self, headers: &Headers) -> bool {
        self.server.is_some_and(|known| {
            headers.get("server").is_some_and(|server| server.eq_ignore_ascii_case(known))
        })
    }
}

/// Returns the provider that the host name of the upstream identifies.
pub fn provider_by_host(host: &str) -> Option<Label> {
    by_host(PROVIDERS, host).map(Label::from_trusted)
}

/// Returns the provider that the response headers identify. A provider that the host identifies takes precedence.
pub fn provider_by_headers(headers: &Headers) -> Option<Label> {
    by_headers(PROVIDERS, headers).map(Label::from_trusted)
}

fn by_headers(providers: &[Provider], headers: &Headers) -> Option<&'static str> {
    let by_header = providers.iter().find(|provider| provider.has_header(headers));
    let found =
        by_header.or_else(|| providers.iter().find(|provider| provider.has_server(headers)));
    found.map(|provider| provider.name)
}

fn by_host(providers: &[Provider], host: &str) -> Option<&'static str> {
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host.starts_with("bedrock-") && host.ends_with(".amazonaws.com") {
        return Some("aws.bedrock");
    }
    // Regional hosts such as us-central1-aiplatform.googleapis.com, and continental hosts such as
    // aiplatform.eu.rep.googleapis.com.
    if host.ends_with("-aiplatform.googleapis.com")
        || host.starts_with("aiplatform.") && host.ends_with(".rep.googleapis.com")
    {
        return Some("gcp.vertex_ai");
    }
    providers.iter().find(|provider| provider.has_host(&host)).map(|provider| provider.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Api;
    use crate::dialect::testing::{STREAM, TestResponse, asked, events, stopped};
    use tokengauge_types::label::Name;

    fn provider_of(host: &str) -> Option<&'static str> {
        by_host(PROVIDERS, host)
    }

    #[test]
    fn detects_providers_by_host() {
        for (host, name) in [
            ("api.openai.com", "openai"),
            ("API.OpenAI.com.:443", "openai"),
            ("my-team.openai.azure.com", "azure.ai.openai"),
            ("x.services.ai.azure.com:443", "azure.ai.inference"),
            ("bedrock-runtime.eu-west-1.amazonaws.com", "aws.bedrock"),
            ("api.groq.com", "groq"),
            ("router.huggingface.co", "hugging_face"),
            ("x.eu-west-1.aws.endpoints.huggingface.cloud", "hugging_face"),
            ("ollama.com", "ollama"),
            ("api.together.ai", "together_ai"),
            ("aiplatform.googleapis.com", "gcp.vertex_ai"),
            ("us-central1-aiplatform.googleapis.com", "gcp.vertex_ai"),
            ("aiplatform.eu.rep.googleapis.com", "gcp.vertex_ai"),
            ("dashscope-intl.aliyuncs.com", "alibaba"),
        ] {
            assert_eq!(provider_of(host), Some(name), "{host}");
        }
        for host in [
            "127.0.0.1:8000",
            "[::1]:8000",
            "notmistral.ai",
            "api.openai.com.evil.example",
            "x.elb.amazonaws.com",
            "storage.eu.rep.googleapis.com",
        ] {
            assert_eq!(provider_of(host), None, "{host}");
        }
    }

    #[test]
    fn detects_providers_by_headers() {
        let provider_of = |name: &'static str, value: &str| {
            let headers: Headers =
                Name::new(value).map(|value| (name, value)).into_iter().collect();
            by_headers(PROVIDERS, &headers)
        };
        assert_eq!(provider_of("server", "llama.cpp"), Some("llama_cpp"));
        assert_eq!(provider_of("server", "uvicorn"), None);
        assert_eq!(provider_of("x-groq-region", "us-west-1"), Some("groq"));
        assert_eq!(provider_of("x-compute-type", "1-a10g"), Some("tgi"));
    }

    /// A provider with OpenAI's formats needs one row, and no code for its path, requests and responses.
    #[test]
    fn adds_an_openai_compatible_provider_with_one_row() {
        let row = Provider::new("example_ai", &["api.example.ai"]).with_headers(&["x-example-id"]);
        let providers = [PROVIDERS, &[row]].concat();
        assert_eq!(by_host(&providers, "eu.api.example.ai:443"), Some("example_ai"));
        let headers: Headers = Name::new("1").map(|id| ("x-example-id", id)).into_iter().collect();
        assert_eq!(by_headers(&providers, &headers), Some("example_ai"));

        let target = crate::dialect::RequestTarget {
            hint: None,
            method: &http::Method::POST,
            host: Some("eu.api.example.ai"),
            path: "/serverless/v3/chat/completions",
            header_family: None,
        };
        let api = crate::dialect::detect(&target).map(|detected| detected.api);
        assert_eq!(api, Some(Api::OpenAiChat));
        let request =
            r#"{"model":"m","messages":[{"role":"user","content":"four"}],"stream":true}"#;
        assert_eq!(asked(Api::OpenAiChat, request).prompt_bytes, 4);
        let chunk =
            r#"{"model":"m","choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#;
        let stream = events(&[chunk, "[DONE]"]);
        let read = TestResponse::new(Api::OpenAiChat, STREAM).read(stream.as_bytes());
        assert_eq!(read[1..], [r#"0 Text "Hi""#.to_owned(), stopped(0, "stop"), "Done".to_owned()]);
    }
}
