//! The values that flags and annotations give, checked before any is written into an object.

use std::fmt;
use std::str::FromStr;

use super::settings::IMAGE;

/// Why a text is no value of its kind, and what to write instead.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

fn wrong<T>(text: &str, what: &str, remedy: &str) -> Result<T, Wrong> {
    Err(Wrong(format!("\"{text}\" is {what}; {remedy}")))
}

/// A text of a known form, which is written as it was read.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text! {
    /// A reference to an image: `[host[:port]/]path[:tag][@digest]`.
    Image
}

impl Default for Image {
    fn default() -> Self {
        Self(IMAGE.to_owned())
    }
}

impl FromStr for Image {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let fits =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
        let edges = |c: char| c.is_ascii_alphanumeric();
        let whole = text.starts_with(edges) && text.ends_with(edges);
        if !whole || text.len() > 512 || !text.chars().all(fits) || text.contains("//") {
            return wrong(
                text,
                "no image",
                "write it as host/path:tag, such as ghcr.io/example/tokengauge:0.1.0",
            );
        }
        Ok(Self(text.to_owned()))
    }
}

/// A port, 1 to 65535.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortNumber(u16);

impl PortNumber {
    /// `None` for 0.
    pub(super) const fn new(number: u16) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    pub const fn get(self) -> u16 {
        self.0
    }
}

impl FromStr for PortNumber {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        match text.parse() {
            Ok(number) if number > 0 => Ok(Self(number)),
            Ok(_) | Err(_) => wrong(text, "no port", "write a number from 1 to 65535"),
        }
    }
}

/// A port that a container declares: by its name or by its number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PortName {
    Name(String),
    Number(u16),
}

impl FromStr for PortName {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if text.chars().all(|c| c.is_ascii_digit()) {
            return text.parse().map(|port: PortNumber| Self::Number(port.get()));
        }
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if text.len() > 15
            || !text.chars().all(fits)
            || text.starts_with('-')
            || text.ends_with('-')
        {
            return wrong(
                text,
                "no port of a container",
                "write its number, or its name (small letters, digits and -, at most 15)",
            );
        }
        Ok(Self::Name(text.to_owned()))
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => number.fmt(f),
        }
    }
}

text! {
    /// The name of a ConfigMap: a DNS subdomain.
    ConfigMapName
}

impl FromStr for ConfigMapName {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let label = |part: &str| {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !part.is_empty()
                && part.chars().all(fits)
                && !part.starts_with('-')
                && !part.ends_with('-')
        };
        if text.len() > 253 || !text.split('.').all(label) {
            return wrong(text, "no name of a ConfigMap", "write small letters, digits, - and .");
        }
        Ok(Self(text.to_owned()))
    }
}

text! {
    /// A name that fits into `OTEL_RESOURCE_ATTRIBUTES` as it is.
    ClusterName
}

impl FromStr for ClusterName {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
        if text.is_empty() || text.len() > 255 || !text.chars().all(fits) {
            return wrong(
                text,
                "no name of a cluster",
                "write letters, digits and . _ - / : (at most 255)",
            );
        }
        Ok(Self(text.to_owned()))
    }
}

text! {
    /// Where a collector is: a URL, in whose host `$(K8S_NODE_IP)` stands for the node's address.
    OtlpUrl
}

impl FromStr for OtlpUrl {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let plain = text.replacen("://$(K8S_NODE_IP)", "://192.0.2.1", 1);
        match plain.parse::<tokengauge_types::url::Url>() {
            Ok(_) if plain.contains("$(") => wrong(
                text,
                "no URL",
                "the only variable that may stand in it is $(K8S_NODE_IP), as its host",
            ),
            Ok(_) => Ok(Self(text.to_owned())),
            // Not echoed: a URL may hold credentials.
            Err(error) => Err(Wrong(error.to_string())),
        }
    }
}

text! {
    /// A quantity as Kubernetes writes it: `50m`, `64Mi`, `0.5`, `1e3`.
    Quantity
}

impl FromStr for Quantity {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let remedy = "write a number and a unit, such as 50m of CPU or 64Mi of memory";
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at_checked(end).unwrap_or_default();
        let known =
            matches!(
                unit,
                "" | "n"
                    | "u"
                    | "m"
                    | "k"
                    | "M"
                    | "G"
                    | "T"
                    | "P"
                    | "E"
                    | "Ki"
                    | "Mi"
                    | "Gi"
                    | "Ti"
                    | "Pi"
                    | "Ei"
            ) || unit.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i8>().is_ok());
        let amount: f64 = number.parse().unwrap_or_default();
        if !known || amount <= 0.0 {
            return wrong(text, "no quantity above zero", remedy);
        }
        Ok(Self(text.to_owned()))
    }
}
