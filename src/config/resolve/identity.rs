//! The request headers that identify tenant, session and variant.

use http::HeaderName;

use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::forward::identity::{Config, Source};

/// Maximum number of headers for one value. The application or a gateway in front of the proxy sets the value, so a
/// longer list is a mistake.
const MAX_HEADERS: usize = 8;

pub(super) fn resolve(written: &mut Field<raw::Identity>, errors: &mut ErrorCollector) -> Config {
    let identity = written.or_insert_default();
    let config = Config {
        tenant: source(&mut identity.tenant, errors),
        session: source(&mut identity.session, errors),
        variant: source(&mut identity.variant, errors),
    };
    if config == Config::default() {
        *written = Field::Absent;
    }
    config
}

fn source(written: &mut Field<raw::Source>, errors: &mut ErrorCollector) -> Option<Source> {
    let Spanned { value, node } = written.spanned_mut()?;
    let hash = *value.hash.or_insert_default();
    let hint = "name the header, such as `headers: [x-tenant-id]`";
    let list = value.headers.required(errors, *node, "headers", hint)?;
    if list.value.is_empty() || list.value.len() > MAX_HEADERS {
        errors.add(list.node, format!("write 1 to {MAX_HEADERS} headers"));
    }
    let mut headers = Vec::new();
    for Spanned { value, node } in value.headers.entries() {
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
    Some(Source { headers, hash })
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
