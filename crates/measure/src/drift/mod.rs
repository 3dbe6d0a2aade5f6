//! Detects workload drift. Compares the current input and output lengths of each model key with a baseline, by a
//! population stability index. This module does no I/O and reads no clock; callers pass the time as `at`.
//!
//! If a system slows down, either the system or its workload changed. The index detects only a changed workload. An
//! index shows that lengths are distributed differently from the baseline, not whether the change is good.
//!
//! **Definition of a length.** The input length is the size in bytes of all texts in the prompt ÷ 4. The output length
//! is the proxy's own token count of a response, for calls that succeeded.
//!
//! Token counts that the provider reports are exact, but they are not used. The client decides whether a stream
//! includes reported counts, so their index would follow the mix of clients. Counted and reported lengths must not be
//! mixed in one distribution.
//!
//! The unit of a length does not matter, because bins end at the deciles of the baseline. Any measure that ranks
//! lengths in the same order yields the same index. A prompt without any recognised text has no input length.

mod index;
mod lengths;
mod saved;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

pub use index::MIN_REQUESTS;
pub use saved::{BaselineError, SavedBaseline};

use crate::drift::index::{Bins, by_chance};
use crate::drift::lengths::{Bucket, Lengths, Window};
use crate::load::{MAX_MODEL_KEYS, ModelKey};
use crate::record::{Call, Completeness, Outcome, Record};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label_enum;

/// Configuration of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftConfig {
    pub baseline: Baseline,
    /// Number of latest requests per model key (provider, model, route and proxy position) that are compared with the
    /// baseline. A baseline of kind `first` has the same number of requests.
    ///
    /// Range: 200 to 10,000. Fewer requests yield no drift index. 10,000 requests take 32 KiB for each model key and
    /// direction.
    pub exchanges: usize,
}

/// Baseline with which the latest requests are compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Baseline {
    Off,
    /// The first [`DriftConfig::exchanges`] requests of each model key since the process start.
    First,
    /// The requests of the previous day. Days are periods of 24 h since the process start, so that clock changes do not
    /// make a day shorter or longer.
    Yesterday,
    /// A saved baseline from a file.
    File {
        path: PathBuf,
        saved: Arc<SavedBaseline>,
    },
}

impl DriftConfig {
    /// Default number of requests. Chance alone then yields an index of 0.02, well below 0.1, the usual threshold for a
    /// change.
    pub const DEFAULT_EXCHANGES: usize = 1_000;
}

impl Default for DriftConfig {
    fn default() -> Self {
        Self { baseline: Baseline::First, exchanges: Self::DEFAULT_EXCHANGES }
    }
}

/// Length of a day for `yesterday`.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Drift of all model keys at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub models: Vec<ModelDrift>,
}

/// Drift of one model key.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDrift {
    pub model_key: ModelKey,
    pub lengths: [LengthReading; Direction::ALL.len()],
}

/// Length drift of one model key in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LengthReading {
    /// Population stability index. 0 means unchanged, 0.1 or more a slight change, and 0.25 or more a large change.
    /// `None` if the baseline or the current window has fewer than [`MIN_REQUESTS`] requests.
    pub index: Option<f64>,
    /// Mean index that chance alone yields for an unchanged workload. `None` if `index` is `None`.
    pub by_chance: Option<f64>,
    /// Number of bins of the baseline: ten, or fewer if many lengths are equal. `None` if `index` is `None`.
    pub bins: Option<usize>,
    /// Number of requests in the baseline so far.
    pub baseline: u64,
    /// Number of latest requests that are compared with the baseline.
    pub current: u64,
}

label_enum! {
    /// Direction of a length: input or output.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Direction {
        Input = "input",
        Output = "output",
    }
}

/// Lengths of each model key (provider, model, route and proxy position), for at most [`MAX_MODEL_KEYS`] keys. Further
/// keys are not compared, because an index of several models together would follow the mix of models.
///
/// A model key takes 14 KiB by default, and 11 to 80 KiB depending on [`DriftConfig::exchanges`]. The maximum number of keys
/// takes 3.5 MiB by default.
#[derive(Debug, Default)]
pub struct Drift {
    config: DriftConfig,
    models: FxHashMap<ModelKey, [Track; Direction::ALL.len()]>,
}

impl Drift {
    /// Applies a configuration. If the configuration differs from the current one, all lengths are discarded.
    pub fn replace(&mut self, config: DriftConfig) {
        if self.config != config {
            *self = Self { config, models: FxHashMap::default() };
        }
    }

    /// Records a finished request.
    pub fn ended(&mut self, at: MonotonicInstant, record: &Record) {
        let Some(call) = &record.call else {
            return;
        };
        if matches!(self.config.baseline, Baseline::Off) {
            return;
        }
        let lengths = [input(record, call), output(record, call)];
        if lengths.iter().any(Option::is_some) {
            self.record(at, &ModelKey::from_labels(&call.series), lengths);
        }
    }

    fn record(
        &mut self,
        at: MonotonicInstant,
        model_key: &ModelKey,
        lengths: [Option<u64>; Direction::ALL.len()],
    ) {
        if !self.models.contains_key(model_key) {
            if self.models.len() >= MAX_MODEL_KEYS {
                return;
            }
            let tracks =
                Direction::ALL.map(|direction| Track::new(&self.config, model_key, direction));
            self.models.insert(model_key.clone(), tracks);
        }
        let tracks = self.models.get_mut(model_key).into_iter().flatten();
        for (track, length) in tracks.zip(lengths) {
            if let Some(length) = length {
                track.record(at, Bucket::from_length(length), self.config.exchanges);
            }
        }
    }

    /// Returns the drift of all model keys, sorted by name.
    pub fn reading(&mut self, at: MonotonicInstant) -> Reading {
        let most = self.config.exchanges;
        let drift =
            |(model_key, tracks): (&ModelKey, &mut [Track; Direction::ALL.len()])| ModelDrift {
                model_key: model_key.clone(),
                lengths: tracks.each_mut().map(|track| track.reading(at, most)),
            };
        let mut models: Vec<ModelDrift> = self.models.iter_mut().map(drift).collect();
        models.sort_by(|a, b| a.model_key.by_name().cmp(&b.model_key.by_name()));
        Reading { models }
    }

    /// Returns a baseline that a later process can load. For each model key, it holds the latest requests. If these are
    /// fewer than [`MIN_REQUESTS`], it holds the baseline that this process recorded, if any.
    pub fn saved(&self) -> SavedBaseline {
        let save = |(model_key, tracks): (&ModelKey, &[Track; Direction::ALL.len()])| {
            let lengths = tracks.each_ref().map(|track| track.latest().clone());
            (model_key.clone(), lengths)
        };
        SavedBaseline::from_models(self.models.iter().map(save).collect())
    }
}

/// Estimates the input length in tokens from the size of the prompt in bytes. Includes failed calls, because they are
/// part of the workload. `None` without a prompt, or if the request was not sent.
fn input(record: &Record, call: &Call) -> Option<u64> {
    let bytes = call.request.prompt_bytes;
    (bytes > 0 && record.timestamps.sent.is_some()).then(|| bytes.div_ceil(4))
}

/// Returns the proxy's count of output tokens. `None` for a failed or truncated response, because its full length is
/// unknown.
fn output(record: &Record, call: &Call) -> Option<u64> {
    let whole = record.outcome == Outcome::Ok && call.complete == Completeness::Complete;
    call.output.filter(|_| whole).map(|output| output.counted)
}

/// Lengths of one model key in one direction.
#[derive(Debug)]
struct Track {
    reference: Reference,
    window: Window,
}

/// Baseline lengths collected or loaded so far.
#[derive(Debug)]
enum Reference {
    First(Lengths),
    Yesterday {
        day: u64,
        former: Lengths,
        today: Lengths,
    },
    /// Lengths from the saved baseline; `None` if the saved baseline has no lengths for the model key.
    Saved(Option<Lengths>),
}

impl Track {
    fn new(config: &DriftConfig, model_key: &ModelKey, direction: Direction) -> Self {
        let reference = match &config.baseline {
            // While the comparison is off, no lengths are recorded.
            Baseline::Off => Reference::Saved(None),
            Baseline::First => Reference::First(Lengths::default()),
            Baseline::Yesterday => Reference::Yesterday {
                day: 0,
                former: Lengths::default(),
                today: Lengths::default(),
            },
            Baseline::File { saved, .. } => Reference::Saved(saved.lengths(model_key, direction)),
        };
        Self { reference, window: Window::default() }
    }

    fn record(&mut self, at: MonotonicInstant, bucket: Bucket, most: usize) {
        self.start_day_if_due(at);
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

    /// Starts a new day if 24 h have passed. The lengths of the past day become the baseline. The window is cleared, so
    /// that no request is in both the window and the baseline. A day without requests yields an empty baseline.
    fn start_day_if_due(&mut self, at: MonotonicInstant) {
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
        self.start_day_if_due(at);
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
        let enough = reading.baseline.min(reading.current) >= MIN_REQUESTS;
        let filling =
            matches!(&self.reference, Reference::First(first) if first.total() < most as u64);
        if let Some(baseline) = baseline.filter(|_| enough && !filling) {
            let bins = Bins::from_baseline(baseline);
            reading.index = bins.index(baseline, current);
            reading.bins = Some(bins.count());
            reading.by_chance = Some(by_chance(bins.count(), reading.baseline, reading.current));
        }
        reading
    }

    fn latest(&self) -> &Lengths {
        let current = self.window.lengths();
        match &self.reference {
            Reference::Saved(_) => current,
            _ if current.total() >= MIN_REQUESTS => current,
            Reference::First(earlier) | Reference::Yesterday { former: earlier, .. } => earlier,
        }
    }
}

#[cfg(test)]
mod tests;
