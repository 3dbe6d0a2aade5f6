//! Text that must not be printed.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

const REDACTED: &str = "***";

/// A credential, or text that may hold one. `Debug`, `Display` and `Serialize` print `***`.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself, for code that sends or compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_stars_unless_exposed() {
        let secret = Secret::new("sk-live-1234");
        let printed = [
            format!("{secret}"),
            format!("{secret:?}"),
            format!("{:#?}", Some(&secret)),
            serde_json::to_string(&secret).unwrap(),
        ];
        assert!(printed.iter().all(|text| !text.contains("1234")), "{printed:?}");
        assert_eq!(secret.expose(), "sk-live-1234");
    }
}
