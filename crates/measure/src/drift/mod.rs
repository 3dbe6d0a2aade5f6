//! Whether the workload changed: the lengths of what is asked and answered now against a baseline, as a population
//! stability index for each flow. Arithmetic only, `at` passed in.
//!
//! Where a system slows down, either it changed or what it is asked did. The index tells of the second, and of nothing
//! else: it says that lengths are distributed otherwise than in the baseline, not whether that is good.
//!
//! **What a length is.** Of the input, the bytes of all texts in the prompt ÷ 4; of the output, our own count of the
//! answer, of calls that ended well. Reported counts are not taken although they are exact: whether a stream has them is
//! the client's choice, so that an index over them would follow the mix of clients, and the two must not be mixed in one
//! distribution. The unit does not matter, since bins are cut at the baseline's own deciles: whatever ranks lengths alike
//! gives the same index. Of a prompt that has no text that is understood there is no input length.

mod index;
mod lengths;
mod saved;
mod window;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

pub use index::FEWEST;
pub use saved::{BaselineError, SavedBaseline};

use crate::drift::index::{Bins, by_chance};
use crate::drift::lengths::{Bucket, Lengths};
use crate::drift::window::Window;
use crate::load::{MOST_FLOWS, ModelKey};
use crate::record::{Call, Completeness, Outcome, Record};
use tokengauge_types::clock::MonotonicInstant;

/// What is compared with what.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub baseline: Baseline,
    /// How many of the latest exchanges of a flow are compared; of the baseline `first`, also how many make it.
    pub exchanges: usize,
}

/// What the latest exchanges are compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Baseline {
    /// Nothing is compared.
    Off,
    /// The first [`Config::exchanges`] of each flow since the start.
    First,
    /// Those of the former day: of 24 h since the start, so that no clock that is set makes a day short or long.
    Yesterday,
    /// What was saved.
    File { path: PathBuf, saved: Arc<SavedBaseline> },
}

impl Default for Config {
    /// Of 1,000 against 1,000, chance makes an index of 0.02: well below what is read as a change.
    fn default() -> Self {
        Self { baseline: Baseline::First, exchanges: 1_000 }
    }
}

impl Config {
    /// From the fewest that an index is told of, to a window of 32 KiB for each flow and direction.
    pub const EXCHANGES: std::ops::RangeInclusive<usize> = 200..=10_000;
}

/// One of the days that `yesterday` counts.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub flows: Vec<ModelDrift>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDrift {
    pub flow: ModelKey,
    pub lengths: [LengthReading; Direction::ALL.len()],
}

/// The lengths of one flow in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LengthReading {
    /// The population stability index: 0 unchanged; from 0.1 commonly read as a slight change, from 0.25 as a great one.
    /// `None` with fewer than [`FEWEST`] exchanges on either side.
    pub index: Option<f64>,
    /// What chance alone makes of it on average, where nothing changed; `None` where there is no index.
    pub by_chance: Option<f64>,
    /// Into how many bins the baseline was cut: ten, or fewer where many lengths are equal.
    pub bins: Option<usize>,
    /// Exchanges in the baseline, as far as it has come.
    pub baseline: u64,
    /// The latest exchanges, which are compared with it.
    pub current: u64,
}

/// Whose length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    Input,
    Output,
}

impl Direction {
    pub const ALL: [Self; 2] = [Self::Input, Self::Output];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

/// The lengths of every flow, as many as load tells apart ([`MOST_FLOWS`]). Those beyond are not compared: under one
/// name, an index would tell of their mix. A flow takes 11 to 80 KiB, by the number of exchanges; by default 14, and 3.5 MiB
/// if there are as many flows as there can be.
#[derive(Debug, Default)]
pub struct Drift {
    config: Config,
    flows: FxHashMap<ModelKey, [Track; Direction::ALL.len()]>,
}

impl Drift {
    /// Other settings begin anew; the same ones change nothing.
    pub fn replace(&mut self, config: Config) {
        if self.config != config {
            *self = Self { config, flows: FxHashMap::default() };
        }
    }

    /// An exchange is over.
    pub fn ended(&mut self, at: MonotonicInstant, record: &Record) {
        let Some(call) = &record.call else {
            return;
        };
        if matches!(self.config.baseline, Baseline::Off) {
            return;
        }
        let lengths = [input(record, call), output(record, call)];
        if lengths.iter().any(Option::is_some) {
            self.note(at, &ModelKey::of(&call.series), lengths);
        }
    }

    fn note(
        &mut self,
        at: MonotonicInstant,
        flow: &ModelKey,
        lengths: [Option<u64>; Direction::ALL.len()],
    ) {
        if !self.flows.contains_key(flow) {
            if self.flows.len() >= MOST_FLOWS {
                return;
            }
            let tracks = Direction::ALL.map(|direction| Track::new(&self.config, flow, direction));
            self.flows.insert(flow.clone(), tracks);
        }
        let tracks = self.flows.get_mut(flow).into_iter().flatten();
        for (track, length) in tracks.zip(lengths) {
            if let Some(length) = length {
                track.note(at, Bucket::of(length), self.config.exchanges);
            }
        }
    }

    /// In the order of the flows' names.
    pub fn reading(&mut self, at: MonotonicInstant) -> Reading {
        let most = self.config.exchanges;
        let tell = |(flow, tracks): (&ModelKey, &mut [Track; Direction::ALL.len()])| ModelDrift {
            flow: flow.clone(),
            lengths: tracks.each_mut().map(|track| track.reading(at, most)),
        };
        let mut flows: Vec<ModelDrift> = self.flows.iter_mut().map(tell).collect();
        flows.sort_by(|a, b| a.flow.by_name().cmp(&b.flow.by_name()));
        Reading { flows }
    }

    /// What a later run can compare with: of each flow the latest exchanges, or the baseline as far as it has come while
    /// those are too few.
    pub fn saved(&self) -> SavedBaseline {
        let save = |(flow, tracks): (&ModelKey, &[Track; Direction::ALL.len()])| {
            let lengths = tracks.each_ref().map(|track| track.latest().clone());
            (flow.clone(), lengths)
        };
        SavedBaseline::of(self.flows.iter().map(save).collect())
    }
}

/// The estimate from the prompt's bytes, of every call that was sent on: what failed was asked for all the same.
fn input(record: &Record, call: &Call) -> Option<u64> {
    let bytes = call.request.prompt_bytes;
    (bytes > 0 && record.points.sent.is_some()).then(|| bytes.div_ceil(4))
}

/// What was counted of an answer that came to its own end: where another was cut says nothing of what was asked.
fn output(record: &Record, call: &Call) -> Option<u64> {
    let whole = record.outcome == Outcome::Ok && call.complete == Completeness::True;
    call.output.filter(|_| whole).map(|output| output.counted)
}

/// One flow in one direction.
#[derive(Debug)]
struct Track {
    reference: Reference,
    window: Window,
}

/// The baseline, as far as it is known.
#[derive(Debug)]
enum Reference {
    First(Lengths),
    Yesterday {
        day: u64,
        former: Lengths,
        today: Lengths,
    },
    /// `None` where the flow was not saved.
    Saved(Option<Lengths>),
}

impl Track {
    fn new(config: &Config, flow: &ModelKey, direction: Direction) -> Self {
        let reference = match &config.baseline {
            // Nothing is noted while off.
            Baseline::Off => Reference::Saved(None),
            Baseline::First => Reference::First(Lengths::default()),
            Baseline::Yesterday => Reference::Yesterday {
                day: 0,
                former: Lengths::default(),
                today: Lengths::default(),
            },
            Baseline::File { saved, .. } => Reference::Saved(saved.lengths(flow, direction)),
        };
        Self { reference, window: Window::default() }
    }

    fn note(&mut self, at: MonotonicInstant, bucket: Bucket, most: usize) {
        self.turn(at);
        match &mut self.reference {
            Reference::First(first) if first.total() < most as u64 => {
                first.add(bucket, 1);
                return;
            }
            Reference::Yesterday { today, .. } => today.add(bucket, 1),
            Reference::First(_) | Reference::Saved(_) => {}
        }
        self.window.add(bucket, most);
    }

    /// Where a day has gone by, what was counted in it is the baseline, and the window begins anew: what is compared
    /// with a day is not of that day. A day that nobody asked anything in is an empty baseline.
    fn turn(&mut self, at: MonotonicInstant) {
        let Reference::Yesterday { day, former, today } = &mut self.reference else {
            return;
        };
        let now = at.since(MonotonicInstant::ZERO).as_secs() / DAY.as_secs();
        if now <= *day {
            return;
        }
        let counted = std::mem::take(today);
        *former = if now == *day + 1 { counted } else { Lengths::default() };
        *day = now;
        self.window = Window::default();
    }

    fn reading(&mut self, at: MonotonicInstant, most: usize) -> LengthReading {
        self.turn(at);
        let current = self.window.lengths();
        let baseline = match &self.reference {
            Reference::First(first) => Some(first),
            Reference::Yesterday { former, .. } => Some(former),
            Reference::Saved(saved) => saved.as_ref(),
        };
        let mut reading = LengthReading {
            baseline: baseline.map_or(0, Lengths::total),
            current: current.total(),
            ..LengthReading::default()
        };
        let enough = reading.baseline.min(reading.current) >= FEWEST;
        let filling =
            matches!(&self.reference, Reference::First(first) if first.total() < most as u64);
        if let Some(baseline) = baseline.filter(|_| enough && !filling) {
            let bins = Bins::of(baseline);
            reading.index = bins.index(baseline, current);
            reading.bins = Some(bins.count());
            reading.by_chance = Some(by_chance(bins.count(), reading.baseline, reading.current));
        }
        reading
    }

    fn latest(&self) -> &Lengths {
        let current = self.window.lengths();
        match &self.reference {
            Reference::First(earlier) | Reference::Yesterday { former: earlier, .. }
                if current.total() < FEWEST =>
            {
                earlier
            }
            Reference::First(_) | Reference::Yesterday { .. } | Reference::Saved(_) => current,
        }
    }
}

#[cfg(test)]
mod tests;
