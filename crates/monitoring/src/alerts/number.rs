//! Ratios and factors in the values of alerts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// Implements `Deserialize` through `FromStr`, because scalars in the file are deserialized as text.
macro_rules! deserialize_from_str {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    )+};
}

pub(super) use deserialize_from_str;

deserialize_from_str!(Share, Factor);

/// A ratio above 0 and at most 1: `5%` or `0.05`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Formats the ratio for humans: `5 %`.
    pub fn percent(self) -> String {
        format!("{} %", (self.0 * 1e4).round() / 1e2)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text.strip_suffix('%') {
            // Dividing by 100 is inexact: 99.9 ÷ 100 is not the same float as 0.999.
            Some(percent) => number(&format!("{}e-2", percent.trim_end())),
            None => number(text),
        };
        number.filter(|share| *share > 0.0 && *share <= 1.0).map(Self).ok_or_else(|| {
            format!("\"{text}\" is no share; write one above 0% and up to 100%, such as 5% or 0.05")
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
        number(text)
            .filter(|factor| *factor > 0.0)
            .map(Self)
            .ok_or_else(|| format!("\"{text}\" is no number above 0; write one, such as 3 or 14.4"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ratios_and_factors() {
        assert_eq!("5%".parse(), Ok(Share(0.05)));
        assert_eq!("99.9%".parse(), Ok(Share(0.999)));
        assert_eq!("1".parse(), Ok(Share(1.0)));
        assert_eq!(Share(0.07).percent(), "7 %");
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
