//! Which API a request is for.

use super::Operation;

/// An API that is understood.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Api {
    OpenAiChat,
    OpenAiCompletions,
    OpenAiEmbeddings,
}

impl Api {
    pub const ALL: [Self; 3] = [
        Self::OpenAiChat,
        Self::OpenAiCompletions,
        Self::OpenAiEmbeddings,
    ];

    pub const fn operation(self) -> Operation {
        match self {
            Self::OpenAiChat => Operation::Chat,
            Self::OpenAiCompletions => Operation::TextCompletion,
            Self::OpenAiEmbeddings => Operation::Embeddings,
        }
    }
}

/// What an API is told by.
#[derive(Clone, Copy, Debug)]
pub struct Detect<'a> {
    /// The dialect that the configuration names for the route, if any.
    pub hint: Option<&'a str>,
    pub method: &'a http::Method,
    /// The upstream's host, or the one the client asked for.
    pub host: Option<&'a str>,
    /// Without the query.
    pub path: &'a str,
}

/// Paths by their end, because what stands before is the provider's own: `/v1`, `/api/v1`, `/openai/deployments/NAME`.
/// The longer one of two that fit stands first.
const PATHS: [(&str, Api); 4] = [
    ("/chat/completions", Api::OpenAiChat),
    ("/v1/chat", Api::OpenAiChat),
    ("/completions", Api::OpenAiCompletions),
    ("/embeddings", Api::OpenAiEmbeddings),
];

/// The API that a request is for; `None` for plain HTTP.
pub fn detect(facts: &Detect<'_>) -> Option<Api> {
    if facts.method != http::Method::POST || facts.hint.is_some_and(|hint| hint != "openai") {
        return None;
    }
    let path = facts.path.trim_end_matches('/');
    let (suffix, api) = PATHS.iter().find(|(suffix, _)| path.ends_with(suffix))?;
    // Cohere's first API shares this path; everyone else who has it (Writer) speaks OpenAI's format there.
    let cohere = facts.host.is_some_and(|host| host.contains("cohere"));
    if *suffix == "/v1/chat" && cohere {
        return None;
    }
    Some(*api)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &http::Method, host: &str, path: &str, hint: Option<&str>) -> Option<Api> {
        let host = Some(host);
        detect(&Detect {
            hint,
            method,
            host,
            path,
        })
    }

    fn post(path: &str) -> Option<Api> {
        of(&http::Method::POST, "127.0.0.1:8000", path, None)
    }

    #[test]
    fn paths_are_told_by_their_end() {
        for path in [
            "/v1/chat/completions",
            "/chat/completions",
            "/api/v1/chat/completions/",
            "/openai/deployments/my-model/chat/completions",
            "/models/chat/completions",
            "/v1/chat",
        ] {
            assert_eq!(post(path), Some(Api::OpenAiChat), "{path}");
        }
        for path in ["/v1/completions", "/openai/deployments/m/completions"] {
            assert_eq!(post(path), Some(Api::OpenAiCompletions), "{path}");
        }
        assert_eq!(post("/v1/embeddings"), Some(Api::OpenAiEmbeddings));
        for path in [
            "/",
            "/v1/models",
            "/v1/responses",
            "/api/chat",
            "/v1/chatter",
            "/v1/moderations",
        ] {
            assert_eq!(post(path), None, "{path}");
        }
    }

    #[test]
    fn other_methods_hints_and_hosts_are_not_it() {
        let path = "/v1/chat/completions";
        let post = http::Method::POST;
        assert_eq!(of(&http::Method::GET, "h", path, None), None);
        assert_eq!(of(&post, "h", path, Some("anthropic")), None);
        assert_eq!(of(&post, "h", path, Some("openai")), Some(Api::OpenAiChat));
        assert_eq!(of(&post, "api.cohere.com", "/v1/chat", None), None);
    }

    #[test]
    fn each_api_has_its_operation() {
        let operations = Api::ALL.map(Api::operation);
        assert_eq!(operations, Operation::ALL);
    }
}
