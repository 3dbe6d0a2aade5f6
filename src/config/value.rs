//! Values as they are written, in the file and on the command line alike: each a type with one way to read it.
//!
//! Every error says what is wrong and what to write instead. None echoes a text that may hold a credential.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::listen;

/// Why a text is no value of its kind, and what to write instead.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Wrong {
    what: Cow<'static, str>,
    remedy: Cow<'static, str>,
}

impl Wrong {
    pub(super) fn new(
        what: impl Into<Cow<'static, str>>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// Reads and writes a type as its text, in the file and in the printed result.
macro_rules! as_text {
    ($type:ty, $schema:tt) => {
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

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

/// A length of time: a whole number and a unit (`250ms`, `2s`, `5m`, `1h`, `30d`).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Length(pub Duration);

/// Units of time, longest first, with their milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl FromStr for Length {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at_checked(digits).unwrap_or_default();
        let remedy = "write a whole number and a unit (ms, s, m, h, d), such as 250ms, 30s or 5m";
        if unit.is_empty() && !number.is_empty() {
            return Err(Wrong::new(
                format!("\"{text}\" has no unit of time"),
                remedy,
            ));
        }
        let scale = UNITS.iter().find(|(name, _)| *name == unit);
        let (Ok(number), Some((_, scale))) = (number.parse::<u64>(), scale) else {
            return Err(Wrong::new(
                format!("\"{text}\" is no length of time"),
                remedy,
            ));
        };
        Ok(Self(Duration::from_millis(number.saturating_mul(*scale))))
    }
}

impl fmt::Display for Length {
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

as_text!(Length, { "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$" });

/// A time limit: a [`Length`], or `off`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit(pub Option<Duration>);

impl FromStr for Limit {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if text == "off" {
            return Ok(Self(None));
        }
        let Length(length) = text
            .parse()
            .map_err(|wrong: Wrong| Wrong::new(wrong.what, format!("{}, or off", wrong.remedy)))?;
        Ok(Self(Some(length)))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(length) => Length(length).fmt(f),
            None => f.write_str("off"),
        }
    }
}

as_text!(Limit, { "type": "string", "pattern": "^(off|[0-9]+(ms|s|m|h|d))$" });

/// Where to listen: `IP:PORT` or `unix:/path`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address(pub listen::Address);

impl FromStr for Address {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !Path::new(path).is_absolute() {
                return Err(Wrong::new(
                    format!("\"{path}\" is no absolute path of a socket"),
                    "write unix:/path, such as unix:/run/tokengauge.sock",
                ));
            }
            return Ok(Self(listen::Address::Unix(PathBuf::from(path))));
        }
        match text.parse() {
            Ok(address) => Ok(Self(listen::Address::Tcp(address))),
            Err(_) => Err(Wrong::new(
                format!("\"{text}\" is no address to listen on"),
                "write an IP address and a port, such as 127.0.0.1:4000, [::1]:4000 or, for all interfaces, \
                 0.0.0.0:4000; or unix:/path",
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            listen::Address::Tcp(address) => address.fmt(f),
            listen::Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

as_text!(Address, { "type": "string" });
