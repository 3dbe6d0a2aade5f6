//! One request of a log, as small as its evaluation allows: a million of them are held at once.

/// The numbers of a row, each in the unit of its field in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Number {
    /// Output TPS: `call.rates.output`, in tokens per second.
    OutputTps,
    /// Time to first token of a stream: `points.token`, in seconds.
    Ttft,
    /// Time per output token: `call.rates.time_per_output_token`, in seconds. What load generators call the
    /// inter-token latency of a request.
    Itl,
    /// `points.end`, in seconds.
    Duration,
    /// `points.token`, whether or not the answer was a stream.
    First,
    /// `points.last`, in seconds.
    Last,
    /// `call.output.tokens`: the tokens that the rates are of.
    Generated,
    /// `call.usage.input`.
    Input,
    /// `call.usage.output`.
    Output,
    /// `call.usage.reasoning`.
    Reasoning,
    /// `call.usage.cache_read`.
    Cached,
    /// `call.cost.amount`, in the row's currency.
    Cost,
}

impl Number {
    const COUNT: usize = 12;
}

/// What became of a request: `outcome`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Outcome {
    Ok,
    #[default]
    Error,
    Cancelled,
    Timeout,
    Truncated,
    Rejected,
}

impl Outcome {
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Error, Self::Cancelled, Self::Timeout, Self::Truncated, Self::Rejected];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Truncated => "truncated",
            Self::Rejected => "rejected",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }

    /// Whether it failed; `None` where the client's leaving hides whether it would have.
    pub const fn failed(self) -> Option<bool> {
        match self {
            Self::Ok => Some(false),
            Self::Cancelled => None,
            Self::Error | Self::Timeout | Self::Truncated | Self::Rejected => Some(true),
        }
    }
}

/// What `call.choices` counts.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Quality {
    Complete,
    Empty,
    Refused,
    Filtered,
    ToolJsonInvalid,
    Unfinished,
}

impl Quality {
    pub const ALL: [Self; 6] = [
        Self::Complete,
        Self::Empty,
        Self::Refused,
        Self::Filtered,
        Self::ToolJsonInvalid,
        Self::Unfinished,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Empty => "empty",
            Self::Refused => "refused",
            Self::Filtered => "filtered",
            Self::ToolJsonInvalid => "tool_json_invalid",
            Self::Unfinished => "unfinished",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Complete => 1,
            Self::Empty => 2,
            Self::Refused => 4,
            Self::Filtered => 8,
            Self::ToolJsonInvalid => 16,
            Self::Unfinished => 32,
        }
    }
}

/// What became of a request's choices: each word that holds for one of them at least, and `complete` where it holds
/// for all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Qualities(u8);

impl Qualities {
    /// Set where the log said anything of the choices.
    const SEEN: u8 = 128;

    /// `times` in the order of [`Quality::ALL`].
    pub fn of(times: [u64; Quality::ALL.len()]) -> Self {
        let held = Quality::ALL.into_iter().zip(times).filter(|(_, times)| *times > 0);
        let bits = held.fold(0, |bits, (quality, _)| bits | quality.bit());
        let complete = Quality::Complete.bit();
        let whole = if bits == complete { complete } else { 0 };
        Self(Self::SEEN | (bits & !complete) | whole)
    }

    /// `None` where the log said nothing.
    pub const fn holds(self, quality: Quality) -> Option<bool> {
        if self.0 & Self::SEEN == 0 {
            return None;
        }
        Some(self.0 & quality.bit() != 0)
    }
}

/// Which side of a comparison a request is on.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Side {
    #[default]
    Neither,
    A,
    B,
}

/// A number that may be missing. NaN stands for that in memory, which halves the row, and nowhere else.
#[derive(Clone, Copy, Debug)]
struct Cell(f64);

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// When its head came, in nanoseconds since 1970.
    pub start: u64,
    numbers: [Cell; Number::COUNT],
    pub group: u32,
    /// Of its first choice.
    pub finish: u16,
    pub currency: u16,
    pub input_band: u16,
    pub output_band: u16,
    pub outcome: Outcome,
    pub qualities: Qualities,
    pub side: Side,
}

impl Row {
    /// The id that stands for an absent text in `finish`, `currency` and the bands.
    pub const ABSENT: u16 = u16::MAX;

    pub fn new(start: u64, outcome: Outcome) -> Self {
        Self {
            start,
            numbers: [Cell(f64::NAN); Number::COUNT],
            group: 0,
            finish: Self::ABSENT,
            currency: Self::ABSENT,
            input_band: Self::ABSENT,
            output_band: Self::ABSENT,
            outcome,
            qualities: Qualities::default(),
            side: Side::Neither,
        }
    }

    /// What is below 0 cannot be any of these numbers: it stays undefined.
    pub fn set(&mut self, number: Number, value: Option<f64>) {
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        if let Some(cell) = self.numbers.get_mut(number as usize) {
            *cell = Cell(value.unwrap_or(f64::NAN));
        }
    }

    pub fn number(&self, number: Number) -> Option<f64> {
        let Cell(value) = *self.numbers.get(number as usize)?;
        (!value.is_nan()).then_some(value)
    }

    /// A number that only a finished answer has a say in: a failure that came fast is no fast answer.
    pub fn answered(&self, number: Number) -> Option<f64> {
        let Outcome::Ok = self.outcome else {
            return None;
        };
        self.number(number)
    }

    /// When it ended, in nanoseconds since 1970.
    pub fn end(&self) -> u64 {
        self.after(self.number(Number::Duration).unwrap_or(0.0))
    }

    /// So many seconds after its start.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and no number of a row is below 0"
    )]
    pub fn after(&self, seconds: f64) -> u64 {
        self.start.saturating_add((seconds * 1e9).round() as u64)
    }
}

/// Rows in chunks, so that growing never holds them twice.
#[derive(Debug, Default)]
pub struct Rows {
    chunks: Vec<Vec<Row>>,
    count: usize,
}

impl Rows {
    /// Rows of a chunk: 8 MiB or so.
    const CHUNK: usize = 1 << 16;
    /// The most rows that are held, about 2.4 GB: ten days at 23 requests per second. What comes on top is told.
    pub const MOST: usize = 20_000_000;

    /// Whether there was room.
    pub fn push(&mut self, row: Row) -> bool {
        if self.count >= Self::MOST {
            return false;
        }
        self.count += 1;
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < Self::CHUNK => chunk.push(row),
            Some(_) | None => {
                // The first chunk grows as it needs; a log that fills one will fill most of the next.
                let mut chunk = if self.chunks.is_empty() {
                    Vec::new()
                } else {
                    Vec::with_capacity(Self::CHUNK)
                };
                chunk.push(row);
                self.chunks.push(chunk);
            }
        }
        true
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.chunks.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_none_and_so_is_what_cannot_be() {
        let mut row = Row::new(5, Outcome::Ok);
        assert_eq!(row.number(Number::Ttft), None);
        for (given, kept) in [
            (Some(0.0), Some(0.0)),
            (Some(1.5), Some(1.5)),
            (Some(-1.0), None),
            (Some(f64::INFINITY), None),
            (None, None),
        ] {
            row.set(Number::Ttft, given);
            assert_eq!(row.number(Number::Ttft), kept, "{given:?}");
        }
        row.set(Number::Duration, Some(2e-9));
        assert_eq!(row.end(), 7);
        row.outcome = Outcome::Error;
        assert_eq!(row.answered(Number::Duration), None);
    }

    #[test]
    fn an_answer_is_complete_only_where_all_its_choices_are() {
        let of = |times| {
            let qualities = Qualities::of(times);
            Quality::ALL.map(|quality| qualities.holds(quality).unwrap())
        };
        assert_eq!(of([2, 0, 0, 0, 0, 0]), [true, false, false, false, false, false]);
        assert_eq!(of([1, 0, 1, 0, 0, 0]), [false, false, true, false, false, false]);
        assert_eq!(of([0; 6]), [false; 6]);
        assert_eq!(Qualities::default().holds(Quality::Empty), None);
    }

    #[test]
    fn rows_come_back_in_the_order_in_which_they_went() {
        let mut rows = Rows::default();
        let count = Rows::CHUNK as u64 * 2 + 3;
        for start in 0..count {
            assert!(rows.push(Row::new(start, Outcome::Ok)));
        }
        assert!(rows.iter().map(|row| row.start).eq(0..count));
        assert_eq!(rows.len() as u64, count);
    }
}
