//! Stores one request of a log in little memory, because millions of requests are in memory at once.

use tokengauge_types::label_enum;

/// Numbers of a request. Each number has the unit of its log field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NumericField {
    /// Output TPS: `call.rates.output`, in tokens per second.
    OutputTps,
    /// Time to first token of a stream: `times.first_token`, in seconds.
    Ttft,
    /// Time per output token of one request: `call.rates.time_per_output_token`, in seconds. Load generators call this
    /// figure inter-token latency (ITL).
    Itl,
    /// Time from the request to the end of its response: `times.end`, in seconds.
    Duration,
    /// Time to first token of any response, streaming or not: `times.first_token`, in seconds.
    First,
    /// Time of the last token: `times.last_token`, in seconds since the start of the request.
    Last,
    /// Output tokens from which the token rates are computed: `call.output.tokens`.
    Generated,
    /// Input tokens that the provider reported: `call.usage.input`. Without a report, an estimate.
    Input,
    /// Output tokens that the provider reported: `call.usage.output`. Without a report, tokengauge's count.
    Output,
    /// Reasoning tokens that the provider reported: `call.usage.reasoning`.
    Reasoning,
    /// Input tokens that the provider read from its cache: `call.usage.cache_read`.
    Cached,
    /// Input tokens that the provider wrote to its cache: `call.usage.cache_write`.
    CacheWritten,
    /// Input tokens that the provider wrote to its cache for an hour: `call.usage.cache_write_1h`.
    CacheWrittenHour,
    /// Cost of the request: `call.cost.amount`, in the row's currency. An estimate unless the provider reported all
    /// tokens.
    Cost,
}

impl NumericField {
    const COUNT: usize = 14;
}

label_enum! {
    /// How a request ended: the `outcome` field of the log.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub enum Outcome {
        Ok = "ok",
        #[default]
        Error = "error",
        Cancelled = "cancelled",
        Timeout = "timeout",
        Truncated = "truncated",
        Rejected = "rejected",
    }
}

impl Outcome {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }

    /// Returns whether the request failed. Returns `None` for a cancelled request, because its result is unknown.
    pub const fn is_failure(self) -> Option<bool> {
        match self {
            Self::Ok => Some(false),
            Self::Cancelled => None,
            Self::Error | Self::Timeout | Self::Truncated | Self::Rejected => Some(true),
        }
    }
}

label_enum! {
    /// Result of one response choice, as counted in the log field `call.choices`.
    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
    pub enum Quality {
        Complete = "complete",
        Empty = "empty",
        Refused = "refused",
        Filtered = "filtered",
        ToolJsonInvalid = "tool_json_invalid",
        Unfinished = "unfinished",
    }
}

impl Quality {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Results that occurred in the choices of one request. Exception: `complete` is in the set only if all choices are
/// complete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QualitySet(u8);

impl QualitySet {
    /// Bit that is set if the log line contains counts of choices.
    const HAS_CHOICES: u8 = 128;

    /// Builds the set from the number of choices with each result, in the order of [`Quality::ALL`].
    pub fn from_counts(times: [u64; Quality::ALL.len()]) -> Self {
        let held = Quality::ALL.into_iter().zip(times).filter(|(_, times)| *times > 0);
        let bits = held.fold(0, |bits, (quality, _)| bits | quality.bit());
        let complete = Quality::Complete.bit();
        let complete_bit = if bits == complete { complete } else { 0 };
        Self(Self::HAS_CHOICES | (bits & !complete) | complete_bit)
    }

    /// Returns whether the set contains `quality`. Returns `None` if the log line contains no counts of choices.
    pub const fn contains(self, quality: Quality) -> Option<bool> {
        if self.0 & Self::HAS_CHOICES == 0 {
            return None;
        }
        Some(self.0 & quality.bit() != 0)
    }
}

/// Side of a comparison (A, B or neither) to which a request belongs.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Side {
    #[default]
    Neither,
    A,
    B,
}

impl Side {
    /// Returns the name of the side in reports. Returns `None` for neither side.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Neither => None,
            Self::A => Some("A"),
            Self::B => Some("B"),
        }
    }
}

/// One request. Strings are stored as ids. [`Log`](crate::read::Log) contains the strings.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Time at which the request headers arrived, in nanoseconds since 1970.
    pub start: u64,
    /// One value per [`NumericField`]. NaN marks a missing number, because `Option<f64>` is twice as large.
    numbers: [f64; NumericField::COUNT],
    pub group: u32,
    /// Id of the finish reason of the first choice.
    pub finish: u16,
    pub currency: u16,
    pub input_bucket: u16,
    pub output_bucket: u16,
    pub outcome: Outcome,
    pub qualities: QualitySet,
    pub side: Side,
    /// Whether the client sent the request before: `attempts.resend_count` above 0.
    pub is_resent: Option<bool>,
    /// Bit of each [`NumericField`] whose value is an estimate.
    estimated: u16,
}

impl Row {
    /// Id that means that a string is absent, in `finish`, `currency` and the buckets.
    pub const ABSENT: u16 = u16::MAX;

    pub fn new(start: u64, outcome: Outcome) -> Self {
        Self {
            start,
            numbers: [f64::NAN; NumericField::COUNT],
            group: 0,
            finish: Self::ABSENT,
            currency: Self::ABSENT,
            input_bucket: Self::ABSENT,
            output_bucket: Self::ABSENT,
            outcome,
            qualities: QualitySet::default(),
            side: Side::Neither,
            is_resent: None,
            estimated: 0,
        }
    }

    /// Sets a number to the reported value. Without a valid one, sets the number to the estimate.
    pub fn set_or_estimate(
        &mut self,
        number: NumericField,
        reported: Option<f64>,
        estimate: Option<f64>,
    ) {
        self.set(number, reported);
        if self.value(number).is_none() {
            self.set(number, estimate);
            self.estimated |= u16::from(self.value(number).is_some()) << number as u16;
        }
    }

    /// Returns whether a number is an estimate.
    pub const fn is_estimated(&self, number: NumericField) -> bool {
        self.estimated >> number as u16 & 1 == 1
    }

    /// Sets a number. A negative, infinite or NaN value is stored as missing.
    pub fn set(&mut self, number: NumericField, value: Option<f64>) {
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        if let Some(cell) = self.numbers.get_mut(number as usize) {
            *cell = value.unwrap_or(f64::NAN);
        }
    }

    pub fn value(&self, number: NumericField) -> Option<f64> {
        self.numbers.get(number as usize).copied().filter(|value| !value.is_nan())
    }

    /// Returns a number of a successful request. Returns `None` for other requests, because a fast failure must not
    /// count as a fast response.
    pub fn value_if_ok(&self, number: NumericField) -> Option<f64> {
        let Outcome::Ok = self.outcome else { return None };
        self.value(number)
    }

    /// Returns the end time of the request, in nanoseconds since 1970.
    pub fn end(&self) -> u64 {
        self.after(self.value(NumericField::Duration).unwrap_or(0.0))
    }

    /// Returns the time `seconds` after the start of the request, in nanoseconds since 1970.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and no number of a row is below 0"
    )]
    pub fn after(&self, seconds: f64) -> u64 {
        self.start.saturating_add((seconds * 1e9).round() as u64)
    }
}

/// All rows, in the chunks in which they were parsed, so that existing rows are not copied when more are added.
#[derive(Debug, Default)]
pub struct Rows {
    chunks: Vec<Vec<Row>>,
    len: usize,
}

impl Rows {
    /// Maximum number of rows. This number of rows needs about 2.7 GB, for example for ten days at 23 requests per
    /// second. The report counts the requests that were left out.
    pub const MAX_ROWS: usize = 20_000_000;

    /// Appends rows up to the limit. Returns the number of rows that were left out.
    pub fn append(&mut self, mut rows: Vec<Row>) -> usize {
        let beyond = rows.len().saturating_sub(Self::MAX_ROWS - self.len);
        rows.truncate(rows.len() - beyond);
        rows.shrink_to_fit();
        self.len += rows.len();
        self.chunks.push(rows);
        beyond
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &Row> + Clone {
        self.chunks.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_numbers_are_undefined() {
        let mut row = Row::new(5, Outcome::Ok);
        assert_eq!(row.value(NumericField::Ttft), None);
        for (given, kept) in [
            (Some(0.0), Some(0.0)),
            (Some(1.5), Some(1.5)),
            (Some(-1.0), None),
            (Some(f64::INFINITY), None),
            (None, None),
        ] {
            row.set(NumericField::Ttft, given);
            assert_eq!(row.value(NumericField::Ttft), kept, "{given:?}");
        }
        row.set(NumericField::Duration, Some(2e-9));
        assert_eq!(row.end(), 7);
        row.outcome = Outcome::Error;
        assert_eq!(row.value_if_ok(NumericField::Duration), None);
    }

    #[test]
    fn a_response_is_complete_only_if_all_choices_are() {
        let of = |times| {
            let qualities = QualitySet::from_counts(times);
            Quality::ALL.map(|quality| qualities.contains(quality).unwrap())
        };
        assert_eq!(of([2, 0, 0, 0, 0, 0]), [true, false, false, false, false, false]);
        assert_eq!(of([1, 0, 1, 0, 0, 0]), [false, false, true, false, false, false]);
        assert_eq!(of([0; 6]), [false; 6]);
        assert_eq!(QualitySet::default().contains(Quality::Empty), None);
    }

    #[test]
    fn rows_keep_their_order() {
        let mut rows = Rows::default();
        assert!(rows.is_empty());
        for starts in [0..5, 5..5, 5..9] {
            let chunk = starts.map(|start| Row::new(start, Outcome::Ok)).collect();
            assert_eq!(rows.append(chunk), 0);
        }
        assert!(!rows.is_empty());
        assert!(rows.iter().map(|row| row.start).eq(0..9));
    }
}
