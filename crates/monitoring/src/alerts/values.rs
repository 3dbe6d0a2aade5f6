//! Values from which the rules are generated: `alerts/values.yaml`, or a file that the user provides instead.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::alerts::span::Span;

/// Text of the file with the default values, including comments.
pub const DEFAULTS: &str = include_str!("../../../../alerts/values.yaml");

/// Returns the values of [`DEFAULTS`].
pub(crate) fn defaults() -> Values {
    serde_saphyr::from_str(DEFAULTS).expect("the embedded defaults are valid")
}

/// Values that can differ between deployments, such as thresholds. Comments in `alerts/values.yaml` document each
/// value.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    pub links: Links,
    pub jobs: Vec<Text>,
    pub selector: Selector,
    pub slo: Slo,
    pub output_rate: OutputRate,
    pub latency: Latency,
    pub provider: Provider,
    pub replica: Replica,
    pub quality: Quality,
    pub money: Money,
    pub health: Health,
}

/// Addresses of the links in alert annotations.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    pub runbooks: RunbookUrl,
    /// Base URL of Grafana, without a trailing slash.
    pub grafana: Text,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    pub windows: Vec<Span>,
    pub burn_1h: Factor,
    pub burn_6h: Factor,
    pub burn_1d: Factor,
    pub burn_3d: Factor,
    pub min_events: u64,
    pub min_bad_events: u64,
    pub min_events_1d: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
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
    pub reload_failed_for: Span,
    pub certificate_days: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OutputRate {
    pub min_streams: u64,
    pub min_reference_streams: u64,
    pub drop_to: Share,
    pub anomaly_deviations: Factor,
    pub anomaly_band: Share,
    pub collapse_streams: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    pub first_token_ratio: Factor,
    pub first_token_seconds: Factor,
    pub first_token_min_calls: u64,
    pub first_token_min_reference_calls: u64,
    pub queue_depth: u64,
    pub queue_ratio: Factor,
    pub queue_seconds: Factor,
    pub stalls_per_stream: Share,
    pub min_stalls: u64,
    pub stalled_now_share: Share,
    pub min_stalled_now: u64,
    pub model_stalls_per_stream: Share,
    pub model_stalled_now_share: Share,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub down_share: Share,
    pub error_share: Share,
    pub limited_share: Share,
    pub model_failed_share: Share,
    pub client_error_share: Share,
    pub cancelled_share: Share,
    pub cancelled_rest: Share,
    pub min_failed: u64,
    pub quota_share: Share,
    pub quota_min_calls: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Replica {
    pub min_replicas: u64,
    pub min_calls: u64,
    pub first_token_ratio: Factor,
    pub first_token_seconds: Factor,
    pub output_rate_ratio: Factor,
    pub error_share: Share,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    pub truncated_share: Share,
    pub min_truncated: u64,
    pub count_drift: Share,
    pub count_drift_min_tokens: u64,
    pub variant_rate: Factor,
    pub variant_ratio: Factor,
    pub variant_share: Share,
    pub variant_min_answers: u64,
    pub workload_index: Factor,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Money {
    pub cost_ratio: Factor,
    pub cost_per_hour: Factor,
    pub budget_used: Share,
}

/// Implements `Deserialize` with `FromStr` and `Serialize` with `Display`, because the file represents these
/// types as text.
macro_rules! serde_as_text {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

serde_as_text!(Text, RunbookUrl, Selector, Share, Factor, Span);

/// A ratio above 0 and at most 1, written as `5%` or `0.05`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text.strip_suffix('%') {
            // The exponent is part of the parsed number, because dividing by 100 is inexact. For example, 99.9
            // ÷ 100 is not the same float as 0.999.
            Some(percent) => number(&format!("{}e-2", percent.trim_end())),
            None => number(text),
        };
        number.filter(|share| *share > 0.0 && *share <= 1.0).map(Self).ok_or_else(|| {
            format!(
                "\"{text}\" is not a ratio; write one above 0% and up to 100%, such as 5% or 0.05"
            )
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A factor above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor(f64);

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number(text).filter(|factor| *factor > 0.0).map(Self).ok_or_else(|| {
            format!("\"{text}\" is not a number above 0; write one, such as 3 or 14.4")
        })
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn number(text: &str) -> Option<f64> {
    let begins = text.starts_with(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|it: &f64| begins && it.is_finite())
}

/// Text that needs no escaping between quotes in PromQL and YAML, such as a URL or a job name.
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

/// Address of the runbooks. The name of an alert replaces `{alert}` in the address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunbookUrl(Text);

/// Text in a [`RunbookUrl`] that is replaced by the name of the alert.
const ALERT: &str = "{alert}";

impl RunbookUrl {
    /// Parses an address that need not name the alert. The name is then the last segment of the path.
    pub fn from_base(text: &str) -> Result<Self, String> {
        if text.contains(ALERT) {
            return text.parse();
        }
        format!("{}/{ALERT}", text.parse::<Text>()?).parse()
    }

    /// Returns the address of the runbook of `alert`.
    pub fn for_alert(&self, alert: &str) -> String {
        self.0.as_str().replace(ALERT, alert)
    }
}

impl FromStr for RunbookUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains(ALERT) {
            return Err(format!(
                "\"{text}\" is the same address for all alerts; write {ALERT} where the name of the alert belongs, such \
                 as https://example.com/runbooks/{ALERT}.md"
            ));
        }
        text.parse().map(Self)
    }
}

impl fmt::Display for RunbookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// PromQL label matchers without the braces, such as `cluster="prod"`. Empty if no matcher is configured.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector(String);

impl Selector {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Matches one PromQL label matcher: a label name, an operator, and a value in double quotes.
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
                    "\"{rest}\" is not a list of matchers; write labels with values in double quotes, such as \
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
    fn parses_selectors_and_texts() {
        assert_eq!(
            "a=\"b\", c=~\"d|e\"".parse::<Selector>().unwrap().as_str(),
            "a=\"b\", c=~\"d|e\""
        );
        assert_eq!("".parse(), Ok(Selector::default()));
        assert_eq!("https://a/b/".parse::<Text>().unwrap().as_str(), "https://a/b");
    }

    #[test]
    fn rejects_invalid_selectors_and_texts() {
        for wrong in ["a", "a=b", "a=\"b", "a=\"b\" c=\"d\"", "a=\"b\"} or x{", ","] {
            assert!(wrong.parse::<Selector>().unwrap_err().contains("such as"), "{wrong}");
        }
        for wrong in ["", "a b", "a\"", "a\\"] {
            assert!(wrong.parse::<Text>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_runbook_url_names_the_alert() {
        let url: RunbookUrl = "https://a/{alert}.md".parse().unwrap();
        assert_eq!(url.for_alert("LLMProviderDown"), "https://a/LLMProviderDown.md");
        let error = "https://a/runbooks".parse::<RunbookUrl>().unwrap_err();
        assert!(error.contains("write {alert}"), "{error}");
        assert!("https://a /{alert}".parse::<RunbookUrl>().is_err());
    }

    #[test]
    fn reads_ratios_and_factors() {
        assert_eq!("5%".parse(), Ok(Share(0.05)));
        assert_eq!("99.9%".parse(), Ok(Share(0.999)));
        assert_eq!("1".parse(), Ok(Share(1.0)));
        assert_eq!("14.4".parse(), Ok(Factor(14.4)));
    }

    #[test]
    fn rejects_other_text_with_a_hint() {
        for wrong in ["0", "0%", "101%", "1.5", "x", "", "-1%", "inf", "NaN"] {
            assert!(wrong.parse::<Share>().unwrap_err().contains("such as 5%"), "{wrong}");
        }
        for wrong in ["0", "-3", "x", "", "inf"] {
            assert!(wrong.parse::<Factor>().unwrap_err().contains("such as 3"), "{wrong}");
        }
    }
}
