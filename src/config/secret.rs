//! Text that must never be shown.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// What stands for a secret wherever one would be shown.
const REDACTED: &str = "***";

/// A credential, or text that may hold one: `Debug`, `Display` and `Serialize` all say `***`.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that has to send or compare it.
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
    fn a_secret_is_shown_to_nobody_but_whom_it_is_exposed_to() {
        let secret = Secret::new("sk-live-1234");
        let shown = [
            format!("{secret}"),
            format!("{secret:?}"),
            format!("{:#?}", Some(&secret)),
            serde_json::to_string(&secret).unwrap(),
        ];
        assert!(shown.iter().all(|text| !text.contains("1234")), "{shown:?}");
        assert_eq!(secret.expose(), "sk-live-1234");
    }
}
