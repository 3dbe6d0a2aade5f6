//! The request headers that identify tenant, session and variant.

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::spanned::{List, Spanned};
use crate::forward::identity::{IdentityConfig, IdentitySource, SessionConfig};

/// Maximum number of headers for one value. The application or a gateway in front of the proxy sets the value, so a
/// longer list is a mistake.
const MAX_HEADERS: usize = 8;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// The customer or team that a request belongs to.
    pub tenant: Option<Source>,
    /// The conversation or run that a request belongs to. Recorded on spans and in the request log, never in metrics.
    pub session: Session,
    /// The variant of the request: a prompt version, a model version, or an arm of an A/B test.
    pub variant: Option<Source>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["headers"]))]
pub struct Source {
    /// Names of headers, at most 8. The first one that is present is used.
    pub headers: Option<List<String>>,
    /// Whether to replace the value by 16 hexadecimal digits of its HMAC-SHA-256. `TOKENGAUGE_IDENTITY_KEY` is the key;
    /// without it, guessable names can be recovered. Required for headers that can hold a credential.
    pub hash: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// Names of headers, at most 8. The first one that is present is used. They take precedence over the signals that
    /// `detect` finds.
    pub headers: Option<List<String>>,
    /// Whether to replace the ids of sessions, conversations and sub-agents by 16 hexadecimal digits of their
    /// HMAC-SHA-256, like `identity.tenant.hash`. Required for headers that can hold a credential.
    pub hash: bool,
    /// Whether to find the session by [the headers and body fields of coding
    /// agents](../how-to/agents.md#signals-of-a-session), such as `x-claude-code-session-id`.
    pub detect: bool,
}

impl Default for Session {
    fn default() -> Self {
        Self { headers: None, hash: false, detect: true }
    }
}

pub fn resolve(written: &mut Identity, errors: &mut ErrorCollector) -> IdentityConfig {
    IdentityConfig {
        tenant: source(&mut written.tenant, "identity.tenant.headers", errors),
        session: session(&mut written.session, errors),
        variant: source(&mut written.variant, "identity.variant.headers", errors),
    }
}

fn source(
    written: &mut Option<Source>,
    key: &str,
    errors: &mut ErrorCollector,
) -> Option<IdentitySource> {
    let Source { headers: list, hash } = written.as_mut()?;
    let hint = "name the header, such as `headers: [x-tenant-id]`";
    errors.required(list, (NodeId::ROOT, key), hint);
    Some(IdentitySource { headers: headers(list.as_mut()?, *hash, (key, errors)), hash: *hash })
}

fn session(written: &mut Session, errors: &mut ErrorCollector) -> SessionConfig {
    let Session { headers: list, hash, detect } = written;
    let read = |list| headers(list, *hash, ("identity.session.headers", errors));
    let headers = list.as_mut().map(read).unwrap_or_default();
    SessionConfig { source: IdentitySource { headers, hash: *hash }, detect: *detect }
}

fn headers(
    list: &mut List<String>,
    hash: bool,
    (key, errors): (&str, &mut ErrorCollector),
) -> Vec<HeaderName> {
    if !(1..=MAX_HEADERS).contains(&list.written_len()) {
        errors.add_key(NodeId::ROOT, key, format!("write 1 to {MAX_HEADERS} headers"));
    }
    let mut headers = Vec::new();
    for Spanned { value, node } in list.iter_mut() {
        match header(value, hash) {
            Ok(header) if headers.contains(&header) => {
                errors.add(*node, format!("{header} is listed twice; remove one"));
            }
            Ok(header) => {
                *value = header.to_string();
                headers.push(header);
            }
            Err(message) => errors.add(*node, message),
        }
    }
    headers
}

fn header(text: &str, hash: bool) -> Result<HeaderName, String> {
    let invalid = |_| format!("\"{text}\" is not a valid header name; write it without a colon");
    let header: HeaderName = text.parse().map_err(invalid)?;
    if !hash && may_hold_credential(header.as_str()) {
        return Err(format!(
            "{header} holds a credential, which must not appear in telemetry; add `hash: true`, or name another header"
        ));
    }
    Ok(header)
}

/// Returns whether the header with this name may contain a credential. If the result is wrong, the user only has to add
/// `hash: true`.
fn may_hold_credential(name: &str) -> bool {
    const CREDENTIAL_WORDS: [&str; 8] =
        ["auth", "cookie", "key", "token", "secret", "password", "signature", "credential"];
    CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_credential_headers_only_if_hashed() {
        for name in [
            "authorization",
            "Cookie",
            "x-api-key",
            "api-key",
            "x-goog-api-key",
            "x-amz-security-token",
            "proxy-authorization",
        ] {
            assert!(header(name, false).unwrap_err().contains("hash: true"), "{name}");
            assert!(header(name, true).is_ok(), "{name}");
        }
        assert_eq!(header("X-Tenant-Id", false).unwrap(), "x-tenant-id");
        assert!(header("x tenant:", true).is_err());
    }
}
