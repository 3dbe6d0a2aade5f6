//! Provider APIs, and the environment variables that set the base URL of their SDKs.
//!
//! Each row was tested with the SDKs or read in their source code. `docs/how-to/provider-apis.md` lists the versions.

use tokengauge_types::url::UpstreamTarget;

/// The API of one provider.
#[derive(Debug)]
struct Provider {
    /// Path prefix of its route.
    prefix: &'static str,
    /// Host of its API, always reached over HTTPS.
    host: &'static str,
    variable: Option<Variable>,
    /// Whether the variable is set if no upstream is configured.
    is_default: bool,
}

/// The environment variable from which an SDK reads its base URL.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: &'static str,
    /// Path of the SDK's default base URL.
    path: &'static str,
    /// Other variables with the same meaning. None of them is overridden.
    pub(super) aliases: &'static [&'static str],
}

const fn provider(
    prefix: &'static str,
    host: &'static str,
    variable: Option<Variable>,
    is_default: bool,
) -> Provider {
    Provider { prefix, host, variable, is_default }
}

const fn variable(
    name: &'static str,
    path: &'static str,
    aliases: &'static [&'static str],
) -> Option<Variable> {
    Some(Variable { name, path, aliases })
}

const PROVIDERS: &[Provider] = &[
    provider(
        "/openai",
        "api.openai.com",
        variable("OPENAI_BASE_URL", "/v1", &["OPENAI_API_BASE"]),
        true,
    ),
    provider(
        "/anthropic",
        "api.anthropic.com",
        variable("ANTHROPIC_BASE_URL", "", &["ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"]),
        true,
    ),
    provider("/cohere", "api.cohere.com", variable("CO_API_URL", "", &[]), true),
    provider("/groq", "api.groq.com", variable("GROQ_BASE_URL", "", &["GROQ_API_BASE"]), true),
    provider("/cerebras", "api.cerebras.ai", variable("CEREBRAS_BASE_URL", "", &[]), true),
    // WebSockets of Google's Python SDK require TLS, which the loopback listener does not offer: docs/how-to/provider-apis.md.
    provider(
        "/gemini",
        "generativelanguage.googleapis.com",
        variable("GOOGLE_GEMINI_BASE_URL", "", &[]),
        false,
    ),
    // The Python and Node SDKs expect different values.
    provider("/together", "api.together.ai", variable("TOGETHER_BASE_URL", "", &[]), false),
    provider(
        "/fireworks",
        "api.fireworks.ai",
        variable("FIREWORKS_BASE_URL", "/inference", &[]),
        false,
    ),
    provider(
        "/openrouter",
        "openrouter.ai",
        variable("OPENROUTER_BASE_URL", "/api/v1", &[]),
        false,
    ),
    // `ollama serve` reads the same variable as its listen address.
    provider("/ollama", "ollama.com", variable("OLLAMA_HOST", "", &[]), false),
    provider("/mistral", "api.mistral.ai", None, false),
    provider("/deepseek", "api.deepseek.com", None, false),
    provider("/xai", "api.x.ai", None, false),
];

/// Some SDKs append `/messages` to Anthropic's base URL, the official ones `/v1/messages`. This route accepts both.
const ANTHROPIC_MESSAGES: &str = "/anthropic/messages=https://api.anthropic.com/v1/messages";

/// A variable, and the base URL to which it is set.
#[derive(Clone, Debug)]
pub(super) struct BaseUrl {
    pub(super) variable: &'static Variable,
    pub(super) prefix: &'static str,
    pub(super) value: String,
}

/// Returns the value of `--upstream`: `[/PREFIX=]URL`, separated by commas. Without upstreams it lists all providers.
pub(super) fn upstream_flag(upstream: &[UpstreamTarget]) -> String {
    let texts: Vec<String> = if upstream.is_empty() {
        let routes = PROVIDERS
            .iter()
            .map(|provider| format!("{}=https://{}", provider.prefix, provider.host));
        routes.chain([ANTHROPIC_MESSAGES.to_owned()]).collect()
    } else {
        upstream.iter().map(target_text).collect()
    };
    texts.join(",")
}

fn target_text(target: &UpstreamTarget) -> String {
    match &target.prefix {
        Some(prefix) => format!("{prefix}={}", target.url),
        None => target.url.to_string(),
    }
}

/// Returns the variables that point to the sidecar at `port`, and the upstreams for which no variable is known.
pub(super) fn base_urls(
    upstream: &[UpstreamTarget],
    provider: Option<&str>,
    port: u16,
) -> (Vec<BaseUrl>, Vec<String>) {
    let url = |prefix: &str, path: &str| format!("http://127.0.0.1:{port}{prefix}{path}");
    if upstream.is_empty() {
        let defaults = PROVIDERS.iter().filter(|provider| provider.is_default);
        let base_urls = defaults.filter_map(|provider| {
            let variable = provider.variable.as_ref()?;
            let value = url(provider.prefix, variable.path);
            Some(BaseUrl { variable, prefix: provider.prefix, value })
        });
        return (base_urls.collect(), Vec::new());
    }
    let mut base_urls: Vec<BaseUrl> = Vec::new();
    let mut unknown = Vec::new();
    for target in upstream {
        let prefix = target.prefix.as_deref().unwrap_or_default();
        let base_url = find_provider(target, provider, upstream.len() == 1).and_then(|provider| {
            let variable = provider.variable.as_ref()?;
            let path = remaining_path(variable.path, &target.url.base_path)?;
            Some(BaseUrl { variable, prefix: provider.prefix, value: url(prefix, path) })
        });
        match base_url {
            None => unknown.push(target_text(target)),
            Some(base_url) => {
                if base_urls.iter().all(|other| other.variable.name != base_url.variable.name) {
                    base_urls.push(base_url);
                }
            }
        }
    }
    (base_urls, unknown)
}

/// Finds the provider of an upstream by its host or its prefix. If neither matches and the upstream is the only one,
/// finds the provider by name. If the name is unknown, assumes OpenAI's API.
fn find_provider(
    target: &UpstreamTarget,
    provider: Option<&str>,
    is_only: bool,
) -> Option<&'static Provider> {
    let find = |is_match: &dyn Fn(&Provider) -> bool| PROVIDERS.iter().find(|it| is_match(it));
    find(&|known| known.host == target.url.host)
        .or_else(|| find(&|known| Some(known.prefix) == target.prefix.as_deref()))
        .or_else(|| {
            let is_named =
                |known: &Provider| Some(known.prefix.trim_start_matches('/')) == provider;
            find(&is_named).or_else(|| PROVIDERS.first()).filter(|_| is_only)
        })
}

/// Returns the part of an SDK's path that the upstream's URL lacks, or `None` if the two do not match. The URL may have
/// another path before the SDK's path, as in `http://gateway/openai/v1`.
fn remaining_path<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    if base.ends_with(path) {
        return Some("");
    }
    path.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}
