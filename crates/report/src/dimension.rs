//! Dimensions that group and select requests.

use std::str::FromStr;

use crate::line::Line;

/// A property of a request, taken from a log field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dimension {
    Model,
    Route,
    Variant,
    Tenant,
    Session,
    Conversation,
    Provider,
    Operation,
    Stream,
    Server,
    Outcome,
    Error,
    InputBucket,
    OutputBucket,
}

impl Dimension {
    /// Every dimension and its name on the command line.
    const NAMES: [(Self, &'static str); 14] = [
        (Self::Model, "model"),
        (Self::Route, "route"),
        (Self::Variant, "variant"),
        (Self::Tenant, "tenant"),
        (Self::Session, "session"),
        (Self::Conversation, "conversation"),
        (Self::Provider, "provider"),
        (Self::Operation, "operation"),
        (Self::Stream, "stream"),
        (Self::Server, "server"),
        (Self::Outcome, "outcome"),
        (Self::Error, "error"),
        (Self::InputBucket, "input_band"),
        (Self::OutputBucket, "output_band"),
    ];

    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        let found = Self::NAMES.into_iter().find(|(known, _)| *known == self);
        found.map_or("", |(_, name)| name)
    }

    /// Returns the value in `line`, or `None` if the line has none.
    pub fn value_of<'l>(self, line: &'l Line<'_>) -> Option<&'l str> {
        let (series, who) = (line.series(), line.who.as_ref());
        match self {
            Self::Model => series.and_then(|series| series.model.as_deref()),
            Self::Route => line.route(),
            Self::Variant => who.and_then(|who| who.variant.as_deref()),
            Self::Tenant => who.and_then(|who| who.tenant.as_deref()),
            Self::Session => who.and_then(|who| who.session.as_deref()),
            Self::Conversation => line.conversation(),
            Self::Provider => series.and_then(|series| series.provider.as_deref()),
            Self::Operation => series.and_then(|series| series.operation.as_deref()),
            Self::Stream => series
                .and_then(|series| series.stream)
                .map(|stream| if stream { "true" } else { "false" }),
            Self::Server => series.and_then(|series| series.server_address.as_deref()),
            Self::Outcome => Some(&line.outcome),
            Self::Error => line.error_type.as_deref(),
            Self::InputBucket => line.input_bucket(),
            Self::OutputBucket => line.output_bucket(),
        }
    }
}

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, UnknownDimension> {
        let known = Self::NAMES.into_iter().find(|(_, name)| *name == text);
        known.map(|(known, _)| known).ok_or_else(|| UnknownDimension(text.to_owned()))
    }
}

/// Error for an unknown dimension name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" is not a known dimension; expected one of {list}", list = Dimension::NAMES.map(|(_, name)| name).join(", "))]
pub struct UnknownDimension(String);

/// Selects the requests with one value of a dimension, such as `variant=a`.
#[derive(Clone, Debug, Eq, PartialEq)]
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

/// Error of parsing a [`Selector`].
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
        for (dimension, name) in Dimension::NAMES {
            assert_eq!((name.parse(), dimension.as_str()), (Ok(dimension), name));
        }
        let selector: Selector = "variant=a=b".parse().unwrap();
        assert_eq!((selector.dimension, selector.value.as_str()), (Dimension::Variant, "a=b"));
        let error = "colour=a".parse::<Selector>().unwrap_err().to_string();
        assert!(error.contains("expected one of model, route"), "{error}");
        assert!("variant".parse::<Selector>().is_err());
    }
}
