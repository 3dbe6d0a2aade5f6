//! Validated values of flags and annotations.

use std::fmt;
use std::str::FromStr;

/// The sidecar image if neither a flag nor an annotation sets one.
pub const DEFAULT_IMAGE: &str = "ghcr.io/example/tokengauge:0.1.0";

/// Reason why a text is invalid, with the expected form.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ValueError {
    fn new(text: &str, expected: &str, hint: &str) -> Self {
        Self(format!("\"{text}\" is not {expected}; {hint}"))
    }
}

/// Defines a string type whose `FromStr` runs a check and keeps the text unchanged.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $check:ident) => {
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

        impl FromStr for $name {
            type Err = ValueError;

            fn from_str(text: &str) -> Result<Self, ValueError> {
                $check(text).map(|()| Self(text.to_owned()))
            }
        }
    };
}

checked_text! {
    /// An image reference: `[host[:port]/]path[:tag][@digest]`.
    Image, check_image
}

impl Default for Image {
    fn default() -> Self {
        Self(DEFAULT_IMAGE.to_owned())
    }
}

fn check_image(text: &str) -> Result<(), ValueError> {
    let is_valid =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    if text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.len() <= 512
        && text.chars().all(is_valid)
        && !text.contains("//")
    {
        return Ok(());
    }
    let hint = "write host/path:tag, such as ghcr.io/example/tokengauge:0.1.0";
    Err(ValueError::new(text, "an image reference", hint))
}

checked_text! {
    /// The name of a ConfigMap: a DNS subdomain.
    ConfigMapName, check_config_map_name
}

fn check_config_map_name(text: &str) -> Result<(), ValueError> {
    let is_label = |part: &str| {
        !part.is_empty()
            && part.chars().all(is_label_char)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    if text.len() <= 253 && text.split('.').all(is_label) {
        return Ok(());
    }
    let hint = "write lower-case letters, digits, - and .";
    Err(ValueError::new(text, "a ConfigMap name", hint))
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

checked_text! {
    /// A cluster name that needs no escaping in `OTEL_RESOURCE_ATTRIBUTES`.
    ClusterName, check_cluster_name
}

fn check_cluster_name(text: &str) -> Result<(), ValueError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    if !text.is_empty() && text.len() <= 255 && text.chars().all(is_valid) {
        return Ok(());
    }
    let hint = "write at most 255 letters, digits and . _ - / :";
    Err(ValueError::new(text, "a cluster name", hint))
}

checked_text! {
    /// The URL of a collector. `$(K8S_NODE_IP)` as its host is the address of the node.
    OtlpUrl, check_otlp_url
}

fn check_otlp_url(text: &str) -> Result<(), ValueError> {
    let plain = text.replacen("://$(K8S_NODE_IP)", "://192.0.2.1", 1);
    match plain.parse::<tokengauge_types::url::Url>() {
        Ok(_) if plain.contains("$(") => {
            let hint = "only the variable $(K8S_NODE_IP) is allowed, and only as the host";
            Err(ValueError::new(text, "a URL", hint))
        }
        Ok(_) => Ok(()),
        // The text is not repeated because a URL may hold credentials.
        Err(error) => Err(ValueError(error.to_string())),
    }
}

checked_text! {
    /// A Kubernetes quantity, such as `50m`, `64Mi`, `0.5` or `1e3`.
    Quantity, check_quantity
}

fn check_quantity(text: &str) -> Result<(), ValueError> {
    const UNITS: [&str; 16] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).unwrap_or_default();
    let is_exponent =
        unit.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i8>().is_ok());
    let amount: f64 = number.parse().unwrap_or_default();
    if (UNITS.contains(&unit) || is_exponent) && amount > 0.0 {
        return Ok(());
    }
    let hint = "write a number and a unit, such as 50m of CPU or 64Mi of memory";
    Err(ValueError::new(text, "a quantity above zero", hint))
}

/// A port, 1 to 65535.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortNumber(u16);

impl PortNumber {
    /// Returns `None` for 0.
    pub(super) const fn new(number: u16) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    pub const fn get(self) -> u16 {
        self.0
    }
}

impl FromStr for PortNumber {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = text.parse().ok().and_then(Self::new);
        number.ok_or_else(|| ValueError::new(text, "a port", "write a number from 1 to 65535"))
    }
}

/// A port that a container declares, by name or by number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PortName {
    Name(String),
    Number(u16),
}

impl FromStr for PortName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.chars().all(|c| c.is_ascii_digit()) {
            return text.parse().map(|port: PortNumber| Self::Number(port.get()));
        }
        if text.len() > 15
            || !text.chars().all(is_label_char)
            || text.starts_with('-')
            || text.ends_with('-')
        {
            let hint =
                "write its number, or its name (at most 15 lower-case letters, digits and -)";
            return Err(ValueError::new(text, "a container port", hint));
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
