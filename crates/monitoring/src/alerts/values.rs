//! Values for generating rules: `alerts/values.yaml`, or a user's file in its place.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Deserializer};

use crate::alerts::number::{Factor, Share, deserialize_from_str};
use crate::alerts::span::Span;
use crate::alerts::traffic::thresholds::{Latency, Money, OutputRate, Provider, Quality};

/// The file of default values, including comments.
pub const DEFAULTS: &str = include_str!("../../../../alerts/values.yaml");

/// Returns the values of [`DEFAULTS`].
#[cfg(test)]
pub(crate) fn defaults() -> Values {
    serde_saphyr::from_str(DEFAULTS).expect("the embedded defaults are valid")
}

/// Values that can differ between fleets. The file of default values documents each of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    pub links: Links,
    pub jobs: Vec<Text>,
    pub selector: Selector,
    pub slo: Slo,
    pub output_rate: OutputRate,
    pub latency: Latency,
    pub provider: Provider,
    pub quality: Quality,
    pub money: Money,
    pub health: Health,
}

/// Link targets of annotations, without a trailing slash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    pub runbooks: Text,
    pub grafana: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    pub burn_1h: Factor,
    pub burn_6h: Factor,
    pub burn_1d: Factor,
    pub burn_3d: Factor,
    pub min_events: u64,
    pub min_bad_events: u64,
    pub min_events_1d: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    pub absent_for: Span,
    pub down_for: Span,
    pub export_failed_share: Share,
    pub export_min_failed: u64,
    pub export_dropped: u64,
    pub unobserved_share: Share,
    pub min_unobserved: u64,
    pub anomaly_share: Share,
    pub min_anomalies: u64,
    pub memory_share: Share,
}

deserialize_from_str!(Text, Selector);

/// Text that needs no escaping between quotes in PromQL and YAML, such as a link or a job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text(String);

impl Text {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Text {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '"' | '\\');
        if text.is_empty() || text.contains(odd) {
            return Err(format!(
                "\"{text}\" is empty, or holds spaces, quotes or backslashes; write it without them"
            ));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// PromQL label matchers without the braces, or empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector(String);

impl Selector {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Matches a label name, a match operator, and a value in double quotes.
static MATCHER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"^\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(=~|!~|!=|=)\s*"([^"\\\n]|\\.)*"\s*(,|$)"#).ok()
});

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rest = text.trim();
        while !rest.is_empty() {
            let matcher = MATCHER.as_ref().and_then(|matcher| matcher.find(rest));
            let Some(after) = matcher.and_then(|found| rest.get(found.end()..)) else {
                return Err(format!(
                    "\"{rest}\" is no list of matchers; write labels with values in double quotes, such as \
                     'cluster=\"prod\", team=~\"a|b\"'"
                ));
            };
            rest = after;
        }
        Ok(Self(text.trim().trim_end_matches(',').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_value_is_read_in_its_units() {
        assert_eq!(
            "a=\"b\", c=~\"d|e\"".parse::<Selector>().unwrap().as_str(),
            "a=\"b\", c=~\"d|e\""
        );
        assert_eq!("".parse(), Ok(Selector::default()));
        assert_eq!("https://a/b/".parse::<Text>().unwrap().as_str(), "https://a/b");
    }

    #[test]
    fn what_is_no_value_is_refused_with_its_remedy() {
        for wrong in ["a", "a=b", "a=\"b", "a=\"b\" c=\"d\"", "a=\"b\"} or x{", ","] {
            assert!(wrong.parse::<Selector>().unwrap_err().contains("such as"), "{wrong}");
        }
        for wrong in ["", "a b", "a\"", "a\\"] {
            assert!(wrong.parse::<Text>().is_err(), "{wrong}");
        }
    }
}
