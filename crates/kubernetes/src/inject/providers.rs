//! Provider APIs, each with the environment variable from which the provider's SDKs read the base URL.
//!
//! Each row was tested with the SDKs or taken from their source code. `docs/how-to/provider-apis.md` lists the SDK
//! versions.

use tokengauge_types::url::UpstreamTarget;

/// The API of one provider, and the environment variable from which its SDK reads the base URL.
#[derive(Debug)]
pub(super) struct Provider {
    /// Path prefix of the provider's route.
    pub(super) prefix: &'static str,
    /// Host of the provider's API, such as `api.openai.com`. The sidecar connects to the host only over HTTPS.
    host: &'static str,
    /// Name of the environment variable for the base URL. Empty if the SDK reads no such variable.
    pub(super) variable: &'static str,
    /// Path in the default base URL of the SDK.
    path: &'static str,
    /// Other environment variables for the base URL. If a container sets one of them, the injection does not set
    /// `variable`.
    pub(super) aliases: &'static [&'static str],
}

const fn provider(
    prefix: &'static str,
    host: &'static str,
    variable: &'static str,
    path: &'static str,
    aliases: &'static [&'static str],
) -> Provider {
    Provider { prefix, host, variable, path, aliases }
}

/// Number of providers, from the start of [`PROVIDERS`], whose variables are set if the user configures no upstream.
const DEFAULT_COUNT: usize = 5;

const PROVIDERS: &[Provider] = &[
    provider("/openai", "api.openai.com", "OPENAI_BASE_URL", "/v1", &["OPENAI_API_BASE"]),
    provider(
        "/anthropic",
        "api.anthropic.com",
        "ANTHROPIC_BASE_URL",
        "",
        &["ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"],
    ),
    provider("/cohere", "api.cohere.com", "CO_API_URL", "", &[]),
    provider("/groq", "api.groq.com", "GROQ_BASE_URL", "", &["GROQ_API_BASE"]),
    provider("/cerebras", "api.cerebras.ai", "CEREBRAS_BASE_URL", "", &[]),
    // Not a default: Google's Python SDK requires TLS for WebSockets, but the loopback listener offers no TLS.
    // See docs/how-to/provider-apis.md.
    provider("/gemini", "generativelanguage.googleapis.com", "GOOGLE_GEMINI_BASE_URL", "", &[]),
    // Not a default: the Python and Node SDKs of Together expect different values of this variable.
    provider("/together", "api.together.ai", "TOGETHER_BASE_URL", "", &[]),
    provider("/fireworks", "api.fireworks.ai", "FIREWORKS_BASE_URL", "/inference", &[]),
    provider("/openrouter", "openrouter.ai", "OPENROUTER_BASE_URL", "/api/v1", &[]),
    // Not a default: `ollama serve` reads the same variable as its listen address.
    provider("/ollama", "ollama.com", "OLLAMA_HOST", "", &[]),
    provider("/mistral", "api.mistral.ai", "", "", &[]),
    provider("/deepseek", "api.deepseek.com", "", "", &[]),
    provider("/xai", "api.x.ai", "", "", &[]),
];

/// Route for SDKs that call Anthropic's messages API with the path `/messages`. Official SDKs use the path
/// `/v1/messages`, which the route `/anthropic` accepts.
const ANTHROPIC_MESSAGES: &str = "/anthropic/messages=https://api.anthropic.com/v1/messages";

/// A provider, and the base URL that the provider's environment variable gets.
pub(super) type BaseUrl = (&'static Provider, String);

/// Returns the value of the flag `--upstream`: a comma-separated list of `[/PREFIX=]URL`. If the user configures no
/// upstream, the list contains all known providers.
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

/// Returns the base URLs that point to the sidecar at `port`, each with its provider. Also returns the upstreams for
/// which no environment variable is known.
pub(super) fn base_urls(
    upstream: &[UpstreamTarget],
    provider: Option<&str>,
    port: u16,
) -> (Vec<BaseUrl>, Vec<String>) {
    let url = |prefix: &str, path: &str| format!("http://127.0.0.1:{port}{prefix}{path}");
    if upstream.is_empty() {
        let defaults = PROVIDERS.iter().take(DEFAULT_COUNT);
        let base_urls = defaults.map(|known| (known, url(known.prefix, known.path)));
        return (base_urls.collect(), Vec::new());
    }
    let mut base_urls: Vec<BaseUrl> = Vec::new();
    let mut unknown = Vec::new();
    for target in upstream {
        let prefix = target.prefix.as_deref().unwrap_or_default();
        let known = find_provider(target, provider, upstream.len() == 1)
            .filter(|known| !known.variable.is_empty())
            .and_then(|known| Some((known, remaining_path(known.path, &target.url.base_path)?)));
        let Some((known, path)) = known else {
            unknown.push(target_text(target));
            continue;
        };
        if base_urls.iter().all(|(other, _)| other.variable != known.variable) {
            base_urls.push((known, url(prefix, path)));
        }
    }
    (base_urls, unknown)
}

/// Finds the provider of an upstream by the upstream's host, or else by its prefix. If neither matches, a single
/// upstream has the provider with the configured name. If that name is unknown, OpenAI's API is assumed.
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

/// Returns the part of an SDK's path, such as `/v1`, that the path of the upstream's URL lacks. Returns `None` if the
/// two paths differ. The URL may have a prefix, as in `/openai/v1`.
fn remaining_path<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    if base.ends_with(path) {
        return Some("");
    }
    path.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}
