//! Vendors' APIs, and the environment variables by which their SDKs are led elsewhere.
//!
//! Each row was tried with the SDKs themselves, or read in their sources: `docs/vendor-apis.md` has the versions.

use std::fmt;

use tokengauge_types::url::Target;

/// One vendor's API.
#[derive(Debug)]
pub(super) struct Vendor {
    /// The path prefix of its route.
    pub(super) prefix: &'static str,
    /// The host of its API; the scheme is https.
    pub(super) host: &'static str,
    pub(super) variable: Option<Variable>,
    /// Whether the variable is set where nobody has named the vendor.
    usual: bool,
}

/// What an SDK reads its base URL from.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: &'static str,
    /// What follows the vendor's host in the SDK's own base URL.
    path: &'static str,
    /// Other variables of the same meaning. Who sets one has made a choice.
    pub(super) aliases: &'static [&'static str],
}

const fn vendor(
    prefix: &'static str,
    host: &'static str,
    variable: Option<Variable>,
    usual: bool,
) -> Vendor {
    Vendor { prefix, host, variable, usual }
}

const fn variable(
    name: &'static str,
    path: &'static str,
    aliases: &'static [&'static str],
) -> Option<Variable> {
    Some(Variable { name, path, aliases })
}

pub(super) const VENDORS: &[Vendor] = &[
    vendor(
        "/openai",
        "api.openai.com",
        variable("OPENAI_BASE_URL", "/v1", &["OPENAI_API_BASE"]),
        true,
    ),
    vendor(
        "/anthropic",
        "api.anthropic.com",
        variable("ANTHROPIC_BASE_URL", "", &["ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"]),
        true,
    ),
    vendor("/cohere", "api.cohere.com", variable("CO_API_URL", "", &[]), true),
    vendor("/groq", "api.groq.com", variable("GROQ_BASE_URL", "", &["GROQ_API_BASE"]), true),
    vendor("/cerebras", "api.cerebras.ai", variable("CEREBRAS_BASE_URL", "", &[]), true),
    // Websockets of Google's SDK for Python want TLS, which a loopback listener has not: docs/vendor-apis.md.
    vendor(
        "/gemini",
        "generativelanguage.googleapis.com",
        variable("GOOGLE_GEMINI_BASE_URL", "", &[]),
        false,
    ),
    // The SDKs for Python and for Node want different values.
    vendor("/together", "api.together.ai", variable("TOGETHER_BASE_URL", "", &[]), false),
    vendor(
        "/fireworks",
        "api.fireworks.ai",
        variable("FIREWORKS_BASE_URL", "/inference", &[]),
        false,
    ),
    vendor("/openrouter", "openrouter.ai", variable("OPENROUTER_BASE_URL", "/api/v1", &[]), false),
    // Also the address that `ollama serve` listens on.
    vendor("/ollama", "ollama.com", variable("OLLAMA_HOST", "", &[]), false),
    vendor("/mistral", "api.mistral.ai", None, false),
    vendor("/deepseek", "api.deepseek.com", None, false),
    vendor("/xai", "api.x.ai", None, false),
];

/// Some SDKs append `/messages` to Anthropic's base URL, the official ones `/v1/messages`: both arrive.
const MESSAGES: &str = "/anthropic/messages=https://api.anthropic.com/v1/messages";

/// A variable to be set, and to what.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) variable: &'static Variable,
    pub(super) prefix: &'static str,
    pub(super) value: String,
}

/// What the sidecar is told of upstreams: `[/PREFIX=]URL`, joined by commas.
pub(super) fn routes(upstream: &[Target]) -> String {
    let texts: Vec<String> = if upstream.is_empty() {
        let usual =
            VENDORS.iter().map(|vendor| format!("{}=https://{}", vendor.prefix, vendor.host));
        usual.chain([MESSAGES.to_owned()]).collect()
    } else {
        upstream.iter().map(|target| Written(target).to_string()).collect()
    };
    texts.join(",")
}

/// An upstream as `--upstream` takes it.
pub(super) struct Written<'a>(pub(super) &'a Target);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(prefix) = &self.0.prefix {
            write!(f, "{prefix}=")?;
        }
        self.0.url.fmt(f)
    }
}

/// The variables that lead to the sidecar at `port`, and the upstreams for which none is known.
pub(super) fn settings(
    upstream: &[Target],
    provider: Option<&str>,
    port: u16,
) -> (Vec<Setting>, Vec<String>) {
    let at = |prefix: &str, path: &str| format!("http://127.0.0.1:{port}{prefix}{path}");
    if upstream.is_empty() {
        let usual = VENDORS.iter().filter(|vendor| vendor.usual);
        let settings = usual.filter_map(|vendor| {
            let variable = vendor.variable.as_ref()?;
            let value = at(vendor.prefix, variable.path);
            Some(Setting { variable, prefix: vendor.prefix, value })
        });
        return (settings.collect(), Vec::new());
    }
    let mut settings: Vec<Setting> = Vec::new();
    let mut unknown = Vec::new();
    for target in upstream {
        let prefix = target.prefix.as_deref().unwrap_or_default();
        let made = vendor_of(target, provider, upstream.len() == 1).and_then(|vendor| {
            let variable = vendor.variable.as_ref()?;
            let path = rest(variable.path, &target.url.base_path)?;
            Some(Setting { variable, prefix: vendor.prefix, value: at(prefix, path) })
        });
        match made {
            Some(made) if settings.iter().all(|set| set.variable.name != made.variable.name) => {
                settings.push(made)
            }
            Some(_) => {}
            None => unknown.push(Written(target).to_string()),
        }
    }
    (settings, unknown)
}

/// Whose SDK is led to an upstream: by its host, its prefix, or, where it is the only one, by what the provider speaks.
fn vendor_of(target: &Target, provider: Option<&str>, only: bool) -> Option<&'static Vendor> {
    let by_host = VENDORS.iter().find(|vendor| vendor.host == target.url.host);
    let by_prefix =
        || VENDORS.iter().find(|vendor| Some(vendor.prefix) == target.prefix.as_deref());
    let by_provider = || {
        let named = VENDORS.iter().find(|vendor| {
            provider.is_some_and(|name| vendor.prefix.trim_start_matches('/') == name)
        });
        // Whatever else answers in a cluster speaks as OpenAI does.
        named.or_else(|| VENDORS.first()).filter(|_| only)
    };
    by_host.or_else(by_prefix).or_else(by_provider)
}

/// What is left of an SDK's path where the upstream's URL has the beginning already, or all of it behind a path of its
/// own: `http://gateway/openai/v1`.
fn rest<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    if base.ends_with(path) {
        return Some("");
    }
    path.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}
