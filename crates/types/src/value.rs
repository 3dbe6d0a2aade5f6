//! Parses values of the configuration file and the command line. Each type has one parser for both sources.
//!
//! Every error states what is wrong and what to write instead. No error repeats text that may contain a credential.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Implements `Deserialize` through `FromStr`, and `JsonSchema` as the given schema.
#[macro_export]
macro_rules! deserialize_from_str {
    ($type:ty, $schema:tt) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                <String as ::serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(::serde::de::Error::custom)
            }
        }

        impl ::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }
    };
}

/// Implements `Deserialize` through `FromStr`, `Serialize` through `Display`, and `JsonSchema` as the given schema.
#[macro_export]
macro_rules! serde_as_str {
    ($type:ty, $schema:tt) => {
        $crate::deserialize_from_str!($type, $schema);

        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

/// An error in a value: why the text is invalid, and what to write instead.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct ValueError {
    what: Cow<'static, str>,
    remedy: Cow<'static, str>,
}

impl ValueError {
    pub fn new(what: impl Into<Cow<'static, str>>, remedy: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }

    /// Returns why the text is invalid, for callers that suggest something else to write.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// A duration: a whole number and a unit, such as `250ms`, `2s`, `5m`, `1h` or `30d`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DurationValue(pub Duration);

/// Time units and their length in milliseconds, longest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl FromStr for DurationValue {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at_checked(digits).unwrap_or_default();
        let remedy = "write a whole number and a unit (ms, s, m, h, d), such as 250ms, 30s or 5m";
        if unit.is_empty() && !number.is_empty() {
            return Err(ValueError::new(format!("\"{text}\" is missing a time unit"), remedy));
        }
        let scale = UNITS.iter().find(|(name, _)| *name == unit);
        let (Ok(number), Some((_, scale))) = (number.parse::<u64>(), scale) else {
            let remedy = match text {
                "month" => "only cost.budgets have calendar months; write 30d",
                _ => remedy,
            };
            return Err(ValueError::new(format!("\"{text}\" is not a duration"), remedy));
        };
        Ok(Self(Duration::from_millis(number.saturating_mul(*scale))))
    }
}

impl fmt::Display for DurationValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fits = |(_, scale): &&(&str, u64)| millis.is_multiple_of(u128::from(*scale));
        match UNITS.iter().find(fits) {
            Some((unit, scale)) if millis > 0 => {
                write!(f, "{}{unit}", millis / u128::from(*scale))
            }
            _ => f.write_str("0s"),
        }
    }
}

crate::serde_as_str!(DurationValue, { "type": "string", "format": "time", "pattern": "^[0-9]+(ms|s|m|h|d)$" });

/// A timeout: a [`DurationValue`], or `off` for no timeout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TimeLimit(pub Option<Duration>);

impl FromStr for TimeLimit {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self(None));
        }
        let DurationValue(length) = text.parse().map_err(|wrong: ValueError| {
            ValueError::new(wrong.what, format!("{}, or off", wrong.remedy))
        })?;
        Ok(Self(Some(length)))
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(length) => DurationValue(length).fmt(f),
            None => f.write_str("off"),
        }
    }
}

crate::serde_as_str!(TimeLimit, { "type": "string", "format": "time or `off`", "pattern": "^(off|[0-9]+(ms|s|m|h|d))$" });

/// An address to listen on: `IP:PORT`, such as `127.0.0.1:4001`, or `localhost:PORT`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListenAddr(pub SocketAddr);

/// Parses `IP:PORT` or `localhost:PORT`. `localhost` always means 127.0.0.1, regardless of the machine's resolver, so
/// that clients can reach the address that the proxy prints.
pub fn listen_addr(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

impl FromStr for ListenAddr {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        listen_addr(text).map(Self).ok_or_else(|| {
            ValueError::new(
                format!("\"{text}\" is not an address to listen on"),
                "write an IP address and a port, such as 127.0.0.1:4001 or, for all interfaces, [::]:4001",
            )
        })
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::serde_as_str!(ListenAddr, { "type": "string", "format": "address" });

/// An amount of money without a currency, such as `2.5`. From 0 to [`Self::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MoneyAmount(pub f64);

impl MoneyAmount {
    /// Maximum amount: enough for a large budget in a small currency. A larger amount is a mistake, such as a repeated
    /// digit.
    pub const MAX: f64 = 1e12;
}

impl FromStr for MoneyAmount {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = text.parse::<f64>().ok();
        let amount = number.filter(|number| (0.0..=Self::MAX).contains(number));
        amount.map(Self).ok_or_else(|| {
            let remedy = "write a number up to 1e12 without the currency, such as 2.5";
            ValueError::new(format!("\"{text}\" is not an amount of money"), remedy)
        })
    }
}

crate::deserialize_from_str!(MoneyAmount, { "type": "number", "minimum": 0, "maximum": 1e12 });

/// A currency code of ISO 4217, such as `USD`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Currency(pub String);

impl FromStr for Currency {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Ok(Self(text.to_owned()));
        }
        let remedy = "write the three capital letters of ISO 4217, such as USD";
        Err(ValueError::new(format!("\"{text}\" is not a currency"), remedy))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::serde_as_str!(Currency, { "type": "string", "pattern": "^[A-Z]{3}$" });

/// A ratio greater than 0 and less than 1, such as `99.5%` or `0.995`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio(pub f64);

impl FromStr for Ratio {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write a ratio above 0 and below 1, such as 99.5% or 0.995";
        let number = match text.strip_suffix('%') {
            // The exponent divides the percentage by 100. A division would be inexact: 99.9 ÷ 100 is not the same float
            // as 0.999.
            Some(percent) => format!("{}e-2", percent.trim_end()).parse::<f64>(),
            None => text.parse::<f64>(),
        };
        let Ok(number) = number else {
            return Err(ValueError::new(format!("\"{text}\" is not a ratio"), remedy));
        };
        if !(number > 0.0 && number < 1.0) {
            let is_all = matches!(number, 1.0);
            let remedy = if is_all {
                "it would allow no bad event; write for example 99.9%".to_owned()
            } else if !text.ends_with('%') && (1.0..=100.0).contains(&number) {
                format!(
                    "write {text}% if you mean a percentage; it must be above 0% and below 100%"
                )
            } else {
                remedy.to_owned()
            };
            return Err(ValueError::new(format!("{text} is not above 0 and below 1"), remedy));
        }
        Ok(Self(number))
    }
}

crate::deserialize_from_str!(Ratio, {
    "format": "ratio",
    "anyOf": [
        { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%?$" },
        { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 }
    ]
});

/// A size in bytes: a whole number and `KiB`, `MiB` or `GiB`, such as `32MiB`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ByteSize(pub usize);

/// Size units and their length in bytes, largest first.
const SIZES: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl FromStr for ByteSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let parsed = SIZES.iter().find_map(|(unit, scale)| {
            let number: usize = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            Some(Self(number.saturating_mul(*scale)))
        });
        parsed.ok_or_else(|| {
            ValueError::new(
                format!("\"{text}\" is not a size"),
                "write a whole number and KiB, MiB or GiB, such as 32MiB",
            )
        })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, scale): &&(&str, usize)| self.0.is_multiple_of(*scale);
        match SIZES.iter().find(fits) {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

crate::serde_as_str!(ByteSize, { "type": "string", "format": "size", "pattern": "^[0-9]+ ?(KiB|MiB|GiB)$" });

/// The threshold of an SLO: a duration such as `2s`, or a number of tokens per second, depending on the indicator
/// (SLI).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ThresholdValue(pub String);

impl FromStr for ThresholdValue {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self(text.to_owned()))
    }
}

impl Serialize for ThresholdValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse() {
            Ok(number) => serializer.serialize_f64(number),
            Err(_) => serializer.serialize_str(&self.0),
        }
    }
}

crate::deserialize_from_str!(ThresholdValue, {
    "format": "time or number",
    "anyOf": [
        { "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$|^[0-9]+(\\.[0-9]+)?$" },
        { "type": "number", "exclusiveMinimum": 0 }
    ]
});

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: FromStr<Err = ValueError> + fmt::Display>(text: &str) -> Result<String, String> {
        text.parse::<T>().map(|value| value.to_string()).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn amounts_of_money_are_plausible() {
        for (text, amount) in [("0", 0.0), ("2.5", 2.5), ("1e12", 1e12)] {
            assert_eq!(text.parse::<MoneyAmount>().unwrap(), MoneyAmount(amount));
        }
        for text in ["-1", "1.1e12", "1e300", "1e999", "inf", "NaN", "USD 5", ""] {
            assert!(text.parse::<MoneyAmount>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_require_a_unit_and_use_the_longest_exact_one() {
        let cases = [
            ("250ms", "250ms"),
            ("1500ms", "1500ms"),
            ("2s", "2s"),
            ("60s", "1m"),
            ("5m", "5m"),
            ("24h", "1d"),
            ("30d", "30d"),
            ("0s", "0s"),
            ("0ms", "0s"),
        ];
        for (text, written) in cases {
            assert_eq!(read::<DurationValue>(text).as_deref(), Ok(written), "{text}");
        }
        for text in ["", "s", "5", "5x", "-5s", "1.5s", "5 s", "five", "off", "é5s"] {
            let error = read::<DurationValue>(text).unwrap_err();
            assert!(error.contains("such as 250ms, 30s or 5m"), "{text}: {error}");
        }
        assert!(read::<DurationValue>("30").unwrap_err().contains("missing a time unit"));
        assert_eq!(
            "18446744073709551615d".parse::<DurationValue>().unwrap().0,
            Duration::from_millis(u64::MAX),
            "a duration that is too long saturates"
        );
        let error = "month".parse::<DurationValue>().unwrap_err().to_string();
        assert!(error.ends_with("only cost.budgets have calendar months; write 30d"), "{error}");
    }

    #[test]
    fn limits_may_be_off() {
        assert_eq!(read::<TimeLimit>("off").as_deref(), Ok("off"));
        assert_eq!(read::<TimeLimit>("10s").as_deref(), Ok("10s"));
        assert!(read::<TimeLimit>("never").unwrap_err().ends_with("or off"));
    }

    #[test]
    fn parses_ratios_exactly_in_both_forms() {
        for (text, value) in [("99.5%", 0.995), ("99.9%", 0.999), ("0.95", 0.95), ("50 %", 0.5)] {
            assert_eq!(text.parse(), Ok(Ratio(value)), "{text}");
        }
        for text in ["0", "1", "100%", "0%", "-1", "NaN", "inf", "much", "%"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        let error = "99.5".parse::<Ratio>().unwrap_err().to_string();
        assert!(error.contains("write 99.5% if"), "{error}");
        let error = |text: &str| text.parse::<Ratio>().unwrap_err().to_string();
        assert!(error("100%").ends_with("no bad event; write for example 99.9%"));
        assert!(error("950%").ends_with("such as 99.5% or 0.995"));
    }

    #[test]
    fn sizes_require_a_binary_unit() {
        for (text, written) in [("32MiB", "32MiB"), ("1024 KiB", "1MiB"), ("2GiB", "2GiB")] {
            assert_eq!(read::<ByteSize>(text).as_deref(), Ok(written), "{text}");
        }
        for text in ["32", "32MB", "MiB", "-1MiB"] {
            assert!(read::<ByteSize>(text).is_err(), "{text}");
        }
    }
}
