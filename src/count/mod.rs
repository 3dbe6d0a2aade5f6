//! Tokens: exact incremental encoders, the registry model → encoding, and where a count comes from.

use serde::Serialize;

/// Where a number of tokens comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The provider said so.
    Reported,
    /// Counted by this program with the model's own encoding.
    Counted,
    /// Counted by this program with another encoding, or from bytes.
    Estimated,
}

impl Source {
    pub const ALL: [Self; 3] = [Self::Reported, Self::Counted, Self::Estimated];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Counted => "counted",
            Self::Estimated => "estimated",
        }
    }
}
