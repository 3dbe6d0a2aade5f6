//! Whom requests are for: the headers that say so.

use http::HeaderName;

use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::forward::identity::{Config, Source};

/// A value may come by the header of the application or that of a gateway before it; more are a mistake.
const MOST_HEADERS: usize = 8;

pub(super) fn resolve(written: Field<raw::Identity>, errors: &mut ErrorCollector) -> Config {
    let written = written.value().unwrap_or_default();
    Config {
        tenant: source(written.tenant, errors),
        session: source(written.session, errors),
        variant: source(written.variant, errors),
    }
}

fn source(written: Field<raw::Source>, errors: &mut ErrorCollector) -> Option<Source> {
    let Spanned { value, node } = written.spanned()?;
    let hash = value.hash.value().unwrap_or_default();
    let remedy = "name the header that says it, such as `headers: [x-tenant-id]`";
    let listed = value.headers.required(errors, node, "headers", remedy)?;
    if listed.value.is_empty() || listed.value.len() > MOST_HEADERS {
        let message = format!("write 1 to {MOST_HEADERS} headers");
        errors.at(listed.node, message);
    }
    let mut headers = Vec::new();
    for Spanned { value, node } in listed.value.into_iter().filter_map(Field::spanned) {
        match header(&value, hash) {
            Ok(header) if headers.contains(&header) => {
                errors.at(node, format!("{header} is listed twice; remove one"));
            }
            Ok(header) => headers.push(header),
            Err(message) => errors.at(node, message),
        }
    }
    Some(Source { headers, hash })
}

fn header(text: &str, hash: bool) -> Result<HeaderName, String> {
    let header: HeaderName = text.parse().map_err(|_| {
        format!("\"{text}\" cannot be the name of a header; write it without a colon")
    })?;
    if !hash && is_secret(header.as_str()) {
        return Err(format!(
            "{header} holds a credential, which must be in no telemetry; add `hash: true`, or name another header"
        ));
    }
    Ok(header)
}

/// Whether a header of this name may hold a credential. Rather too many than one too few: the remedy is one word.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 8] =
        ["auth", "cookie", "key", "token", "secret", "password", "signature", "credential"];
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_credentials_are_taken_only_where_they_are_hashed() {
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
