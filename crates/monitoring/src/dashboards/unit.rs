//! Panel units and their Grafana names.

/// Unit of the values of a panel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// A count, without abbreviation.
    Number,
    Seconds,
    Bytes,
    BytesPerSecond,
    /// A ratio from 0 to 1, shown in per cent.
    Share,
    RequestsPerSecond,
    /// A rate of any other quantity.
    PerSecond,
    PerMinute,
    Tokens,
    TokensPerSecond,
    TokensPerMinute,
    /// A factor.
    Times,
    /// CPU cores.
    Cores,
    /// Money without a currency sign. A label of the table names the currency.
    Money,
    /// Text in table columns.
    Text,
}

impl Unit {
    /// Returns Grafana's name of the unit. `count:` scales by thousands and appends a suffix. `suffix:` only appends a
    /// suffix.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Number => "none",
            Self::Seconds => "s",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "binBps",
            Self::Share => "percentunit",
            Self::RequestsPerSecond => "reqps",
            Self::PerSecond => "cps",
            Self::PerMinute => "cpm",
            Self::Tokens => "count:tok",
            Self::TokensPerSecond => "count:tok/s",
            Self::TokensPerMinute => "count:tok/min",
            Self::Times => "suffix:×",
            Self::Cores => "suffix: cores",
            Self::Money => "short",
            Self::Text => "string",
        }
    }
}
