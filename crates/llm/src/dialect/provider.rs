//! Whose flavour of an API is spoken: the standard's `gen_ai.provider.name`.

use super::Api;
use tokengauge_types::event::Headers;
use tokengauge_types::label::Label;

/// Hosts by their end, and the provider each belongs to: the standard's own words where it has one, else ours.
const HOSTS: [(&str, &str); 42] = [
    ("api.openai.com", "openai"),
    ("chatgpt.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("cognitiveservices.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("models.ai.azure.com", "azure.ai.inference"),
    ("inference.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("cohere.com", "cohere"),
    ("cohere.ai", "cohere"),
    ("api.deepseek.com", "deepseek"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.groq.com", "groq"),
    ("ml.cloud.ibm.com", "ibm.watsonx.ai"),
    ("mistral.ai", "mistral_ai"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.moonshot.cn", "moonshot_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
    ("api.ai21.com", "ai21"),
    ("aliyuncs.com", "alibaba"),
    ("api.cerebras.ai", "cerebras"),
    ("gateway.ai.cloudflare.com", "cloudflare"),
    ("api.cloudflare.com", "cloudflare"),
    ("databricks.com", "databricks"),
    ("api.fireworks.ai", "fireworks"),
    ("api.githubcopilot.com", "github_copilot"),
    ("huggingface.co", "hugging_face"),
    ("api.jina.ai", "jina_ai"),
    ("huggingface.cloud", "hugging_face"),
    ("ollama.com", "ollama"),
    ("replicate.com", "replicate"),
    ("integrate.api.nvidia.com", "nvidia"),
    ("openrouter.ai", "openrouter"),
    ("snowflakecomputing.com", "snowflake"),
    ("api.together.ai", "together_ai"),
    ("api.together.xyz", "together_ai"),
    ("api.venice.ai", "venice"),
    ("api.voyageai.com", "voyage_ai"),
    ("api.writer.com", "writer"),
    ("api.z.ai", "z_ai"),
];

/// The provider of a call: as configured, else by the host that answers, else by what the answer's head gives
/// away, else by the format that is spoken.
pub fn provider(
    api: Api,
    configured: Option<&Label>,
    host: Option<&str>,
    headers: Option<&Headers>,
) -> Label {
    if let Some(configured) = configured {
        return configured.clone();
    }
    let known = host
        .and_then(by_host)
        .or_else(|| headers.and_then(super::headers::provider))
        .unwrap_or(api.provider());
    Label::known(known)
}

fn by_host(host: &str) -> Option<&'static str> {
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host.starts_with("bedrock-") && host.ends_with(".amazonaws.com") {
        return Some("aws.bedrock");
    }
    // A region's, as us-central1-aiplatform.googleapis.com, and a continent's, as aiplatform.eu.rep.googleapis.com.
    if host.ends_with("-aiplatform.googleapis.com")
        || host.starts_with("aiplatform.") && host.ends_with(".rep.googleapis.com")
    {
        return Some("gcp.vertex_ai");
    }
    let fits = |suffix: &str| {
        host.strip_suffix(suffix).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    HOSTS.iter().find(|(suffix, _)| fits(suffix)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::label::Name;

    fn of(host: &str) -> String {
        provider(Api::OpenAiChat, None, Some(host), None).to_string()
    }

    #[test]
    fn hosts_tell_the_provider() {
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
            assert_eq!(of(host), name, "{host}");
        }
        for host in [
            "127.0.0.1:8000",
            "[::1]:8000",
            "notmistral.ai",
            "api.openai.com.evil.example",
            "x.elb.amazonaws.com",
            "storage.eu.rep.googleapis.com",
        ] {
            assert_eq!(of(host), "openai", "{host}");
        }
    }

    #[test]
    fn the_configuration_comes_first_and_the_server_header_last() {
        let configured = Label::known("vllm");
        let api = Api::OpenAiChat;
        let host = Some("api.groq.com");
        let engine = Some("llama.cpp");
        let of = |configured, host, server: Option<&str>| {
            let server = server.and_then(Name::new).map(|server| ("server", server));
            let headers: Headers = server.into_iter().collect();
            provider(api, configured, host, Some(&headers)).to_string()
        };
        assert_eq!(of(Some(&configured), host, engine), "vllm");
        assert_eq!(of(None, host, engine), "groq");
        assert_eq!(of(None, Some("10.0.0.1"), engine), "llama_cpp");
        assert_eq!(of(None, None, Some("uvicorn")), "openai");
    }
}
