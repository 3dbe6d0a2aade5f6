//! The one thing of a query that may be known: the model it names.

use tokengauge_types::label::{LONGEST_NAME, Name};

/// Where a model may be named, the first that is there before the others. A deployment is Azure's name for one.
const KEYS: [&str; 2] = ["model", "deployment"];

/// The model that a query names. Everything else in it is left alone.
pub(super) fn model(query: &str) -> Option<Name> {
    KEYS.iter().find_map(|key| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name == key)?;
        Name::new(&decode(value))
    })
}

/// Undoes percent-encoding; what is no escape stands for itself. No more than a name can hold.
fn decode(value: &str) -> String {
    let mut decoded = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first().filter(|_| decoded.len() < LONGEST_NAME) {
        let escaped = after.split_at_checked(2).filter(|_| *first == b'%');
        let byte = escaped.and_then(|(digits, rest)| {
            let digits = std::str::from_utf8(digits).ok()?;
            let sound = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let byte = u8::from_str_radix(digits, 16).ok().filter(|_| sound)?;
            Some((byte, rest))
        });
        let (byte, next) = byte.unwrap_or((*first, after));
        decoded.push(byte);
        rest = next;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Option<String> {
        model(query).map(|name| name.to_string())
    }

    #[test]
    fn a_model_is_found_wherever_it_stands() {
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(of("model=gpt-realtime"), named("gpt-realtime"));
        assert_eq!(of("api-version=1&deployment=mine&x"), named("mine"));
        assert_eq!(of("deployment=mine&model=gpt-realtime"), named("gpt-realtime"));
        assert_eq!(of("model=ft%3Agpt-4o%3aacme%2"), named("ft:gpt-4o:acme%2"));
        assert_eq!(of("model=%+5%C3%A9%FF"), named("%+5é\u{FFFD}"));
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        for query in ["", "model", "model=", "amodel=x", "x=model=y", "Model=x", "key=secret"] {
            assert_eq!(of(query), None, "{query}");
        }
        let long = of(&format!("model={}", "%41".repeat(10_000))).unwrap();
        assert_eq!(long, "A".repeat(LONGEST_NAME));
    }
}
