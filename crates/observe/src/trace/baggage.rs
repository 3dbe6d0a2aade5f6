//! Reads the conversation id from the W3C `baggage` header. Other entries are neither stored nor reported, because
//! baggage may contain private data.

use http::{HeaderMap, HeaderName};

use tokengauge_types::label::Name;
use tokengauge_types::url::percent_decoded;

const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// Baggage keys of a conversation id, in order of preference.
const KEYS: [&str; 2] = ["gen_ai.conversation.id", "session.id"];

/// Limits of the specification for the whole header.
const MAX_MEMBERS: usize = 64;
const MAX_BYTES: usize = 8_192;

/// Returns the conversation id: the first valid value of the preferred key, percent-decoded and limited in length.
pub(super) fn conversation(headers: &HeaderMap) -> Option<Name> {
    let mut found = [None, None];
    let mut left = MAX_BYTES;
    let lines = headers.get_all(BAGGAGE).iter();
    let lines = lines.map_while(|line| {
        left = left.checked_sub(line.len())?;
        Some(line.to_str().unwrap_or_default())
    });
    for member in lines.flat_map(|line| line.split(',')).take(MAX_MEMBERS) {
        let pair = member.split(';').next().unwrap_or_default();
        let Some((key, value)) = pair.split_once('=') else {
            continue;
        };
        let slot = KEYS.iter().zip(&mut found).find(|(known, _)| **known == key.trim());
        if let Some((_, slot @ None)) = slot {
            *slot = percent_decoded(value.trim()).as_deref().and_then(Name::new);
        }
    }
    found.into_iter().flatten().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::label::MAX_NAME_BYTES;

    fn named(lines: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(BAGGAGE, line.parse().unwrap());
        }
        conversation(&headers).map(|name| name.to_string())
    }

    #[test]
    fn prefers_the_standard_key() {
        assert_eq!(named(&["session.id=s"]).as_deref(), Some("s"));
        assert_eq!(
            named(&["session.id=s, gen_ai.conversation.id = c ;ttl=1", "gen_ai.conversation.id=d"])
                .as_deref(),
            Some("c")
        );
    }

    #[test]
    fn decodes_and_bounds_values() {
        assert_eq!(named(&["session.id=a%20%c3%A9"]).as_deref(), Some("a é"));
        for malformed in ["%", "%2", "%zz", "%ff", ""] {
            assert_eq!(named(&[&format!("session.id={malformed}")]), None);
        }
        let long = named(&[&format!("session.id={}", "x".repeat(1_000))]).unwrap();
        assert_eq!(long.len(), MAX_NAME_BYTES);
    }

    #[test]
    fn ignores_other_keys_and_excess_members() {
        assert_eq!(named(&["user.id=u,session=s,gen_ai.conversation.id"]), None);
        let many = vec!["k=v"; 64].join(",");
        assert_eq!(named(&[&format!("{many},session.id=s")]), None);
        assert!(named(&[&format!("{},session.id=s", vec!["k=v"; 63].join(","))]).is_some());
        let large = format!("k={}", "v".repeat(8_190));
        assert_eq!(named(&[&large, "session.id=s"]), None);
    }
}
