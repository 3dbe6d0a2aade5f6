//! Dimensions that group and select requests.

use std::str::FromStr;

use crate::line::Line;

/// Reads the value of one dimension, such as the model, from a log line.
type ReadValue = for<'l> fn(&'l Line<'_>) -> Option<&'l str>;

/// A property by which requests are grouped or selected, such as the model. Each property is a field of the log.
#[derive(Clone, Copy, Debug)]
pub struct Dimension {
    /// Name on the command line.
    name: &'static str,
    read: ReadValue,
}

const DIMENSIONS: [Dimension; 18] = [
    dimension("day", |line| line.day()),
    dimension("month", |line| line.month()),
    dimension("model", |line| line.labels()?.model.as_deref()),
    dimension("route", |line| line.route()),
    dimension("variant", |line| line.identity.as_ref()?.variant.as_deref()),
    dimension("tenant", |line| line.identity.as_ref()?.tenant.as_deref()),
    dimension("session", |line| line.identity.as_ref()?.session.as_deref()),
    dimension("conversation", |line| line.conversation()),
    dimension("agent", |line| line.agent.as_ref()?.name.as_deref()),
    dimension("sub_agent", |line| line.identity.as_ref()?.sub_agent.as_deref()),
    dimension("provider", |line| line.labels()?.provider.as_deref()),
    dimension("operation", |line| line.labels()?.operation.as_deref()),
    dimension("stream", |line| Some(if line.labels()?.stream? { "true" } else { "false" })),
    dimension("server", |line| line.labels()?.server_address.as_deref()),
    dimension("outcome", |line| Some(&line.outcome)),
    dimension("error", |line| line.error_type.as_deref()),
    dimension("input_length_bucket", |line| line.input_bucket()),
    dimension("output_length_bucket", |line| line.output_bucket()),
];

const fn dimension(name: &'static str, read: ReadValue) -> Dimension {
    Dimension { name, read }
}

impl Dimension {
    pub const fn as_str(&self) -> &'static str {
        self.name
    }

    /// Returns whether the values of the dimension are times, so that their order is that of time.
    pub fn is_time(&self) -> bool {
        matches!(self.name, "day" | "month")
    }

    /// Returns the value of the dimension in `line`. Returns `None` if the line has no value.
    pub fn value_of<'l>(&self, line: &'l Line<'_>) -> Option<&'l str> {
        (self.read)(line)
    }
}

impl PartialEq for Dimension {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, UnknownDimension> {
        let mut known = DIMENSIONS.into_iter();
        known.find(|known| known.name == text).ok_or_else(|| UnknownDimension(text.to_owned()))
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" is not a known dimension; expected one of {list}", list = DIMENSIONS.map(|known| known.name).join(", "))]
pub struct UnknownDimension(String);

/// Selects the requests that have one value of a dimension, such as `variant=a`.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    pub dimension: Dimension,
    pub value: String,
}

impl Selector {
    pub fn matches(&self, line: &Line<'_>) -> bool {
        self.dimension.value_of(line) == Some(&self.value)
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.dimension.as_str(), self.value)
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SelectorError {
    #[error("\"{0}\" has no equals sign; write NAME=VALUE, such as variant=a")]
    NoValue(String),
    #[error(transparent)]
    Unknown(#[from] UnknownDimension),
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| SelectorError::NoValue(text.to_owned()))?;
        Ok(Self { dimension: name.parse()?, value: value.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_dimensions_and_selectors() {
        for dimension in DIMENSIONS {
            assert_eq!(dimension.as_str().parse(), Ok(dimension));
        }
        let selector: Selector = "variant=a=b".parse().unwrap();
        assert_eq!((selector.dimension.as_str(), selector.value.as_str()), ("variant", "a=b"));
        let error = "colour=a".parse::<Selector>().unwrap_err().to_string();
        assert!(error.contains("expected one of day, month, model, route"), "{error}");
        assert!("variant".parse::<Selector>().is_err());
    }
}
