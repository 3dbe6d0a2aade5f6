//! Units of panels, in Grafana's words.

/// What the numbers of a panel are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// A number of things, in full.
    Number,
    Seconds,
    Bytes,
    BytesPerSecond,
    /// 0 to 1, shown in per cent.
    Share,
    RequestsPerSecond,
    /// Of anything else.
    PerSecond,
    PerMinute,
    Tokens,
    TokensPerSecond,
    TokensPerMinute,
    /// So many times as much.
    Times,
    /// Processor cores.
    Cores,
    /// Money in a currency that a label names: no sign of its own, since the currency is the table's.
    Money,
    /// Text, in columns of tables.
    Text,
}

impl Unit {
    /// As Grafana writes it. `count:` scales by thousands and appends what follows, `suffix:` only appends.
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
