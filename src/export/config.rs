//! (signatures)

/// Everything that export can be told.
#[derive(Clone, Debug, Default)]
pub struct Config {}

/// A setting that was not understood and is ignored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    pub variable: String,
    pub message: String,
}

impl Config {
    /// Reads the `OTEL_*` variables (and ours) through `get`. A configuration file is laid under the environment by
    /// a `get` that falls back on the file's values.
    pub fn from_env(_get: impl Fn(&str) -> Option<String>) -> (Self, Vec<Problem>) {
        Default::default()
    }
}
