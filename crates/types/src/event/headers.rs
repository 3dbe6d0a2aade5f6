//! Lists the headers that the data path may pass to the observer thread.

use crate::label::{Name, cleaned};

/// Header with the session of the Model Context Protocol. It is recorded as the session rule demands, and not among the
/// headers.
pub const MCP_SESSION: &str = "mcp-session-id";

/// Sorts names by length, so that a received name is compared only with names of its length.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const fn sorted_by_length<const N: usize>(mut names: [&str; N]) -> [&str; N] {
    let mut sorted = 1;
    while sorted < N {
        let mut at = sorted;
        while at > 0 && names[at - 1].len() > names[at].len() {
            names.swap(at - 1, at);
            at -= 1;
        }
        sorted += 1;
    }
    names
}

/// Request headers that the observer may read. None of these headers can contain a credential.
pub const REQUEST_HEADERS: [&str; 18] = sorted_by_length([
    "accept",
    "content-encoding",
    "content-type",
    "idempotency-key",
    MCP_SESSION,
    "mcp-protocol-version",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-amz-target",
    "x-queue-start",
    "x-request-id",
    "x-request-start",
    "x-stainless-lang",
    "x-stainless-retry-count",
    "x-amzn-trace-id",
    "openai-beta",
    "anthropic-version",
]);

/// Response headers that the observer may read.
pub const RESPONSE_HEADERS: [&str; 55] = sorted_by_length([
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-limit",
    "anthropic-ratelimit-output-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "azureml-model-session",
    "content-encoding",
    "content-type",
    MCP_SESSION,
    "openai-model",
    "openai-processing-ms",
    "retry-after",
    "sec-websocket-extensions",
    "server",
    "upgrade",
    "x-amzn-bedrock-cache-read-input-token-count",
    "x-amzn-bedrock-cache-write-input-token-count",
    "x-amzn-bedrock-input-token-count",
    "x-amzn-bedrock-invocation-latency",
    "x-amzn-bedrock-output-token-count",
    "x-amzn-errortype",
    "x-compute-type",
    "x-ds-trace-id",
    "x-envoy-upstream-service-time",
    "x-generated-tokens",
    "x-groq-region",
    "x-litellm-attempted-fallbacks",
    "x-litellm-attempted-retries",
    "x-litellm-response-cost",
    "x-ms-deployment-name",
    "x-prompt-tokens",
    "x-queue-time",
    "x-ratelimit-limit",
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-request-id",
    "x-tokenlimit-limit",
    "x-tokenlimit-remaining",
    "x-total-time",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
]);

/// Maximum number of attempts that is plausible. SDKs and gateways give up after about 10.
const MAX_ATTEMPTS: u32 = 1_000;

/// Initial capacity in bytes for the values of one message. The values of most requests fit.
const TYPICAL_VALUES: usize = 128;

/// The received headers that are listed in [`REQUEST_HEADERS`] or [`RESPONSE_HEADERS`]. Names are in lower case. Values
/// have the same limit of length as a [`Name`].
///
/// The values share one buffer. The data path fills the buffer and the observer frees it, which costs more than an
/// allocation that stays on one thread.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    /// Each name, and the offset in `values` at which its value ends.
    ends: Vec<(&'static str, usize)>,
    values: String,
}

impl Headers {
    /// Selects the headers of `map` whose names are in `allowed`. For a repeated header, the first value is kept.
    ///
    /// `allowed` is sorted by length.
    pub fn pick(map: &http::HeaderMap, allowed: &'static [&'static str]) -> Self {
        let mut picked = Self::default();
        for (name, value) in map {
            let name = name.as_str();
            let first = allowed.partition_point(|known| known.len() < name.len());
            let of_length = allowed.iter().skip(first).take_while(|it| it.len() == name.len());
            let known = of_length.copied().find(|known| *known == name);
            let Some(known) = known.filter(|known| picked.get(known).is_none()) else {
                continue;
            };
            if let Some(text) = value.to_str().ok().and_then(cleaned) {
                if picked.ends.is_empty() {
                    picked.ends.reserve(map.len().min(allowed.len()));
                    picked.values.reserve(TYPICAL_VALUES);
                }
                picked.push(known, &text);
            }
        }
        picked
    }

    fn push(&mut self, name: &'static str, value: &str) {
        self.values.push_str(value);
        self.ends.push((name, self.values.len()));
    }

    /// Returns the length of all values together.
    pub const fn value_bytes(&self) -> usize {
        self.values.len()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns how often the client has sent the request again: 0 for the first attempt. `None` if it does not tell.
    pub fn resend_count(&self) -> Option<u32> {
        self.number("x-stainless-retry-count")
    }

    /// Returns a number of attempts. A number that no client reaches is ignored.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok().filter(|number| *number <= MAX_ATTEMPTS)
    }

    /// Replaces the value of a header. An empty value removes the header.
    pub fn set(&mut self, name: &'static str, value: &str) {
        let mut changed = Self::default();
        for (other, value) in self.iter().filter(|(other, _)| *other != name) {
            changed.push(other, value);
        }
        if let Some(value) = cleaned(value) {
            changed.push(name, &value);
        }
        *self = changed;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let mut start = 0;
        self.ends.iter().map(move |(name, end)| {
            let value = self.values.get(start..*end).unwrap_or_default();
            start = *end;
            (*name, value)
        })
    }
}

impl FromIterator<(&'static str, Name)> for Headers {
    fn from_iter<I: IntoIterator<Item = (&'static str, Name)>>(items: I) -> Self {
        let mut headers = Self::default();
        for (name, value) in items {
            headers.push(name, value.as_str());
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_allowed_header_can_contain_a_credential() {
        for name in REQUEST_HEADERS.iter().chain(&RESPONSE_HEADERS) {
            let forbidden = [
                "authorization",
                "cookie",
                "api-key",
                "x-api-key",
                "x-goog-api-key",
                "x-amz-security-token",
                "proxy-authorization",
            ];
            assert!(!forbidden.contains(name), "{name}");
            assert!(!name.contains("auth") && !name.contains("secret"), "{name}");
        }
    }

    #[test]
    fn takes_the_first_value_of_an_allowed_header() {
        let mut map = http::HeaderMap::new();
        map.append("X-Request-Id", http::HeaderValue::from_static("first"));
        map.append("x-request-id", http::HeaderValue::from_static("second"));
        map.append("authorization", http::HeaderValue::from_static("secret"));
        map.append("accept", http::HeaderValue::from_static(""));
        let picked = Headers::pick(&map, &REQUEST_HEADERS);
        assert_eq!(picked.get("x-request-id"), Some("first"));
        assert_eq!(picked.iter().count(), 1);
    }

    #[test]
    fn values_keep_their_headers() {
        let mut map = http::HeaderMap::new();
        let values = [("accept", "*/*"), ("user-agent", "curl\t8"), ("openai-beta", "x")];
        for (name, value) in values {
            map.append(name, http::HeaderValue::from_static(value));
        }
        let mut headers = Headers::pick(&map, &REQUEST_HEADERS);
        assert_eq!(headers.get("user-agent"), Some("curl\u{FFFD}8"));
        headers.set("accept", "text/plain");
        headers.set("openai-beta", "");
        let expected = [("user-agent", "curl\u{FFFD}8"), ("accept", "text/plain")];
        assert!(headers.iter().eq(expected), "{headers:?}");
    }
}
