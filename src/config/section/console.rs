//! The web console and its interface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::errors::{ErrorCollector, NodeId};

/// Maximum length of an address in bytes, as most browsers accept it.
const MAX_URL: usize = 2_000;

/// The place of the trace id in an address.
const TRACE_ID: &str = "{trace_id}";

#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("type" = ["object", "boolean"]))]
pub struct Console {
    /// Whether the admin port serves [the console](admin-api.md#apiv1snapshot) and the process records its history of 15
    /// minutes. `console: false` is a short form.
    pub enabled: bool,
    /// Address of a trace in your tracing system, with `{trace_id}` in place of the trace id, such as
    /// `https://jaeger.example/trace/{trace_id}`. The console links finished requests to it.
    pub trace_url: Option<String>,
    /// Whether to leave the names of tenants and sessions out of the console.
    pub hide_names: bool,
}

impl Default for Console {
    fn default() -> Self {
        Self { enabled: true, trace_url: None, hide_names: false }
    }
}

impl Console {
    pub(in crate::config) fn check(&self, errors: &mut ErrorCollector) {
        let Some(url) = &self.trace_url else { return };
        let has_scheme = url.starts_with("https://") || url.starts_with("http://");
        // Such characters are not part of any address.
        let is_plain =
            url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`".contains(&byte));
        if !(has_scheme && is_plain && url.contains(TRACE_ID) && url.len() <= MAX_URL) {
            let message = format!(
                "\"{url}\" is not the address of a trace; write an http or https URL with {TRACE_ID}, such as \
                 https://jaeger.example/trace/{TRACE_ID}"
            );
            errors.add_key(NodeId::ROOT, "console.trace_url", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::load_text;
    use crate::config::{Config, ConfigErrors, RunArgs};
    use tokengauge_llm::count::Tokenizers;

    fn load(console: &str) -> Result<Config, ConfigErrors> {
        let text = format!("version: 1\nupstreams: {{a: {{url: http://a}}}}\nconsole: {console}\n");
        load_text(Some(&text), &RunArgs::default(), &|_| None, &Tokenizers::default())
    }

    #[test]
    fn a_boolean_is_a_short_form() {
        for (written, enabled) in [("false", false), ("true", true), ("{enabled: false}", false)] {
            let config = load(written).unwrap();
            assert_eq!(config.file.console, Console { enabled, ..Console::default() });
        }
        for invalid in ["off", "\"false\"", "0", "[]"] {
            let error = load(invalid).unwrap_err().to_string();
            assert!(error.contains(":3:") && error.contains("console"), "{error}");
        }
    }

    #[test]
    fn a_trace_url_needs_a_place_for_the_id() {
        let url = "https://jaeger.example/trace/{trace_id}?uiFind=1";
        let config = load(&format!("{{trace_url: \"{url}\"}}")).unwrap();
        assert_eq!(config.file.console.trace_url.as_deref(), Some(url));
        for invalid in [
            "https://jaeger.example/trace/",
            "jaeger.example/{trace_id}",
            "javascript:alert('{trace_id}')",
            "https://a/<{trace_id}>",
            "https://a b/{trace_id}",
        ] {
            let error = load(&format!("{{trace_url: \"{invalid}\"}}")).unwrap_err().to_string();
            assert!(error.contains("console.trace_url") && error.contains(invalid), "{error}");
        }
    }
}
