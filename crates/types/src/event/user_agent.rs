//! Reads the product and its version from a `User-Agent`.

use std::fmt;

/// Maximum length in bytes of the name of a product.
const MAX_PRODUCT: usize = 64;

/// Maximum length in bytes of a version. Versions with a commit and a date have about 30.
const MAX_VERSION: usize = 48;

/// The program that sent a request, such as a coding agent or an SDK. Clients choose it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UserAgent<'a> {
    pub name: &'a str,
    pub version: Option<&'a str>,
}

impl<'a> UserAgent<'a> {
    /// Returns `None` if the first word is not the name of a product.
    ///
    /// The first word is the product and its version: `claude-cli/2.1.86 (external, cli)`. Gemini CLI appends the model:
    /// `GeminiCLI/0.9.0/gemini-2.5-pro (linux; x64)`. The SDKs of OpenAI and Anthropic write a language between the
    /// two: `OpenAI/Python 2.8.1`.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let word = words.next()?;
        let mut parts = word.split('/');
        let product = parts.next()?;
        let version = parts.next().filter(|part| is_version(part));
        let of_sdk = words.next().filter(|next| version.is_none() && is_version(next));
        let name = if of_sdk.is_some() { word } else { product };
        let is_name = (1..=MAX_PRODUCT).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./+@".contains(&byte));
        is_name.then_some(Self { name, version: version.or(of_sdk) })
    }
}

/// Returns whether a word begins like a version: with a digit, or `v` and a digit.
fn is_version(word: &str) -> bool {
    let digits = word.strip_prefix('v').unwrap_or(word);
    word.len() <= MAX_VERSION
        && digits.starts_with(|first: char| first.is_ascii_digit())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte))
}

/// Writes product and version as the client writes them.
impl fmt::Display for UserAgent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(version) = self.version else { return f.write_str(self.name) };
        let separator = if self.name.contains('/') { ' ' } else { '/' };
        write!(f, "{}{separator}{version}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_agents_and_sdks() {
        for (text, name, version, shown) in [
            ("claude-cli/2.1.86 (external, cli)", "claude-cli", "2.1.86", "claude-cli/2.1.86"),
            (
                "codex_cli_rs/0.149.1 (Ubuntu 24.4.0; x86_64) xterm-256color",
                "codex_cli_rs",
                "0.149.1",
                "codex_cli_rs/0.149.1",
            ),
            ("opencode/1.2.3 ai-sdk/provider-utils/3.0.9", "opencode", "1.2.3", "opencode/1.2.3"),
            (
                "GeminiCLI/0.9.0/gemini-2.5-pro (linux; x64; terminal)",
                "GeminiCLI",
                "0.9.0",
                "GeminiCLI/0.9.0",
            ),
            ("QwenCode/0.1.2 (linux; x64)", "QwenCode", "0.1.2", "QwenCode/0.1.2"),
            ("Cline/3.32.0", "Cline", "3.32.0", "Cline/3.32.0"),
            ("OpenAI/Python 2.8.1", "OpenAI/Python", "2.8.1", "OpenAI/Python 2.8.1"),
            ("Anthropic/JS 0.60.0", "Anthropic/JS", "0.60.0", "Anthropic/JS 0.60.0"),
            ("litellm/v1.80.0-rc.1", "litellm", "v1.80.0-rc.1", "litellm/v1.80.0-rc.1"),
        ] {
            let agent = UserAgent::parse(text).unwrap();
            assert_eq!((agent.name, agent.version), (name, Some(version)), "{text}");
            assert_eq!(agent.to_string(), shown);
        }
        for (text, name) in [("curl", "curl"), ("opencode/local", "opencode"), ("a/b c/1", "a")] {
            assert_eq!(UserAgent::parse(text), Some(UserAgent { name, version: None }), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_product() {
        let long = "x".repeat(10_000);
        let version = format!("a/1{long}");
        for refused in ["", " ", "/1.0", "<script>/1.0", "(x)", "\u{e9}/1", &long] {
            assert_eq!(UserAgent::parse(refused), None, "{refused:.20}");
        }
        assert_eq!(UserAgent::parse(&version).unwrap().version, None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn results_are_bounded(text in "\\PC{0,200}|[a-z0-9/ .()-]{0,200}") {
            if let Some(agent) = UserAgent::parse(&text) {
                prop_assert!(agent.to_string().len() <= MAX_PRODUCT + 1 + MAX_VERSION);
                prop_assert!(agent.to_string().is_ascii());
            }
        }
    }
}
