//! Tokens per second of one model key (provider, model, route, proxy position) and of all keys together, and statistics
//! of recent requests.

use std::ops::Range;
use std::time::Duration;

use crate::load::recent::{Recent, Segment};
use crate::load::{ActiveStreams, FinishedRequest, MAX_WINDOW, ModelKey, ModelReading, Throughput};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::rolling_window::RollingWindow;

const SECOND: Duration = Duration::from_secs(1);

const SLOT_COUNT: u64 = MAX_WINDOW.as_secs();

/// Token counts of the last 5 minutes for one model key. The three windows of 300 one-second slots take 7 KiB; `Recent`
/// needs more memory.
#[derive(Debug)]
pub struct ModelLoad {
    /// Output tokens counted chunk by chunk.
    streamed: RollingWindow<f64>,
    /// Output tokens of non-streaming responses, spread evenly over the duration of each response.
    whole: RollingWindow<f64>,
    input: RollingWindow<f64>,
    recent: Recent,
    /// Latest instant at which anything was recorded.
    latest: MonotonicInstant,
}

impl ModelLoad {
    pub(super) fn new() -> Self {
        let slots = || RollingWindow::new(SECOND, SLOT_COUNT.try_into().unwrap_or(usize::MAX));
        Self {
            streamed: slots(),
            whole: slots(),
            input: slots(),
            recent: Recent::new(),
            latest: MonotonicInstant::ZERO,
        }
    }

    /// Keeps the windows for another 5 minutes.
    pub(super) fn keep(&mut self, at: MonotonicInstant) {
        self.latest = self.latest.max(at);
    }

    /// Records output tokens of a stream that arrived in a chunk at `at`.
    pub fn output(&mut self, at: MonotonicInstant, tokens: u64) {
        self.latest = self.latest.max(at);
        let number = self.streamed.number(at);
        if let Some(slot) = self.streamed.slot(number) {
            *slot += tokens as f64;
        }
    }

    /// Records the output tokens of a non-streaming response, spread evenly over the time from sent to end.
    pub fn output_spread(&mut self, over: Range<MonotonicInstant>, tokens: u64) {
        self.latest = self.latest.max(over.end);
        spread(&mut self.whole, over, tokens as f64);
    }

    /// Records input tokens, spread evenly over the time from sent to the first token, or to the end if there is none.
    pub fn input_spread(&mut self, over: Range<MonotonicInstant>, tokens: u64) {
        self.latest = self.latest.max(over.end);
        spread(&mut self.input, over, tokens as f64);
    }

    /// Records that a request of the model key ended.
    pub fn ended(&mut self, at: MonotonicInstant, ended: FinishedRequest) {
        self.latest = self.latest.max(at);
        self.recent.ended(at, ended);
    }

    /// Returns whether the last record is so old that every window is empty.
    pub(super) fn is_idle(&self, at: MonotonicInstant) -> bool {
        let now = self.streamed.number(at);
        now.saturating_sub(self.streamed.number(self.latest)) > SLOT_COUNT
    }

    /// Returns the throughput and statistics of this model key, and adds the statistics to `all`.
    pub(super) fn reading(
        &self,
        at: MonotonicInstant,
        model_key: &ModelKey,
        all: &mut Segment,
    ) -> ModelReading {
        let recent = self.recent.segment(at);
        all.merge(&recent);
        let [input, output] = throughput(at, &[self]);
        ModelReading {
            model_key: model_key.clone(),
            input,
            output,
            recent: recent.summary(),
            streams: ActiveStreams::default(),
        }
    }
}

/// Spreads `tokens` evenly over the period `over`. Tokens before the oldest slot of the window are dropped.
fn spread(slots: &mut RollingWindow<f64>, over: Range<MonotonicInstant>, tokens: f64) {
    let Range { start: from, end: to } = over;
    let last = slots.number(to);
    let length = to.since(from);
    if length.is_zero() {
        if let Some(slot) = slots.slot(last) {
            *slot += tokens;
        }
        return;
    }
    let per_second = tokens / length.as_secs_f64();
    let first = slots.number(from).max(last.saturating_sub(SLOT_COUNT));
    for number in first..=last {
        let begin = MonotonicInstant::from_secs(number);
        let share = to.min(begin + SECOND).since(from.max(begin));
        if let Some(slot) = slots.slot(number) {
            *slot += per_second * share.as_secs_f64();
        }
    }
}

/// Computes the input and output throughput of several model keys together. Windows end at the last full second.
///
/// A mean is `None` until its window has passed, because the mean over a part would be wrong. The peak is the output of
/// the highest second, and is reported from the first full second on.
pub(super) fn throughput(at: MonotonicInstant, tracks: &[&ModelLoad]) -> [Throughput; 2] {
    let now = at.since(MonotonicInstant::ZERO).as_secs();
    let means = |sum: &dyn Fn(&ModelLoad, u64) -> f64| {
        // `Iterator::sum` starts at -0.
        let all = |seconds| tracks.iter().fold(0.0, |all, track| all + sum(track, seconds));
        let mean = |seconds: u64| (now >= seconds).then(|| all(seconds) / seconds as f64);
        let latest = now.min(10);
        Throughput {
            latest: (latest > 0).then(|| all(latest) / latest as f64),
            ten_seconds: mean(10),
            minute: mean(60),
            five_minutes: mean(SLOT_COUNT),
            peak: None,
        }
    };
    let input = means(&|track, seconds| sum(&track.input, now, seconds));
    let output = means(&|track, seconds| {
        sum(&track.streamed, now, seconds) + sum(&track.whole, now, seconds)
    });
    let in_second = |second| {
        let outputs = tracks.iter().flat_map(|track| [&track.streamed, &track.whole]);
        outputs.fold(0.0, |all, slots| all + slots.get(second).unwrap_or(&0.0))
    };
    let full = now.saturating_sub(SLOT_COUNT)..now;
    let peak = (now > 0).then(|| full.map(in_second).fold(0.0, f64::max));
    [input, Throughput { peak, ..output }]
}

/// Returns the tokens in the `seconds` full seconds before second `now`.
fn sum(slots: &RollingWindow<f64>, now: u64, seconds: u64) -> f64 {
    slots.range(now.saturating_sub(seconds)..now).fold(0.0, |sum, tokens| sum + tokens)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tokengauge_types::event::ProxyPosition;
    use tokengauge_types::label::Label;

    fn model_key() -> ModelKey {
        ModelKey {
            provider: Label::from_trusted("openai"),
            model: Label::from_trusted("gpt-4o"),
            route: Label::from_trusted("default"),
            position: ProxyPosition::Gateway,
        }
    }

    fn at(track: &ModelLoad, moment: MonotonicInstant) -> ModelReading {
        track.reading(moment, &model_key(), &mut Segment::default())
    }

    #[test]
    fn a_window_ends_at_the_last_full_second() {
        let mut track = ModelLoad::new();
        track.output(MonotonicInstant::from_secs(100), 50);
        let ten = |nanos| at(&track, MonotonicInstant::from_nanos(nanos)).output.ten_seconds;
        assert_eq!(ten(100_999_999_999), Some(0.0), "its second is filling");
        assert_eq!(ten(101_000_000_000), Some(5.0));
        assert_eq!(ten(110_999_999_999), Some(5.0), "the tenth second");
        assert_eq!(ten(111_000_000_000), Some(0.0));
    }

    #[test]
    fn a_window_is_reported_once_it_is_covered() {
        let mut track = ModelLoad::new();
        track.output(MonotonicInstant::from_secs(3), 600);
        let actual = |nanos| at(&track, MonotonicInstant::from_nanos(nanos)).output;
        assert_eq!(actual(999_999_999).latest, None);
        assert_eq!(actual(4_000_000_000).latest, Some(150.0), "600 in 4 s");
        assert_eq!(actual(9_999_999_999).ten_seconds, None);
        assert_eq!(actual(10_000_000_000).ten_seconds, Some(60.0));
        assert_eq!(actual(59_999_999_999).minute, None);
        assert_eq!(actual(60_000_000_000).minute, Some(10.0));
        assert_eq!(actual(299_999_999_999).five_minutes, None);
        assert_eq!(actual(300_000_000_000).five_minutes, Some(2.0));
    }

    #[test]
    fn the_peak_is_the_highest_full_second_of_the_output() {
        let mut track = ModelLoad::new();
        track.output(MonotonicInstant::from_millis(5_000), 30);
        track.output(MonotonicInstant::from_millis(5_999), 40);
        track.output(MonotonicInstant::from_millis(6_000), 69);
        track.output(MonotonicInstant::from_millis(7_000), 500);
        let whole = MonotonicInstant::from_millis(6_500);
        track.output_spread(whole..whole, 31);
        track.input_spread(whole..whole, 9_000);
        let actual = |nanos| at(&track, MonotonicInstant::from_nanos(nanos));
        assert_eq!(actual(999_999_999).output.peak, None);
        assert_eq!(actual(6_999_999_999).output.peak, Some(70.0));
        assert_eq!(actual(7_999_999_999).output.peak, Some(100.0), "69 streamed and 31 whole");
        assert_eq!(actual(8_000_000_000).output.peak, Some(500.0));
        assert_eq!(actual(307_999_999_999).output.peak, Some(500.0));
        assert_eq!(actual(308_000_000_000).output.peak, Some(0.0));
        assert_eq!(actual(8_000_000_000).input.peak, None, "input is no stream");
    }

    #[test]
    fn a_complete_response_is_spread_evenly_over_its_duration() {
        let mut track = ModelLoad::new();
        track.output_spread(
            MonotonicInstant::from_millis(100_500)..MonotonicInstant::from_secs(102),
            300,
        );
        let ten = |secs| at(&track, MonotonicInstant::from_secs(secs)).output.ten_seconds;
        assert_eq!(ten(101), Some(10.0), "half a second of 200 a second");
        assert_eq!(ten(102), Some(30.0));
        assert_eq!(ten(103), Some(30.0));
    }

    #[test]
    fn input_and_output_are_separate() {
        let mut track = ModelLoad::new();
        track.input_spread(MonotonicInstant::from_secs(20)..MonotonicInstant::from_secs(21), 70);
        let reading = at(&track, MonotonicInstant::from_secs(22));
        assert_eq!(reading.input.ten_seconds, Some(7.0));
        assert_eq!(reading.output.ten_seconds, Some(0.0));
    }

    #[test]
    fn amounts_before_the_kept_history_are_cut_off() {
        let mut track = ModelLoad::new();
        track.output_spread(MonotonicInstant::ZERO..MonotonicInstant::from_secs(3_600), 36_000);
        let reading = at(&track, MonotonicInstant::from_secs(3_600));
        assert_eq!(reading.output.five_minutes, Some(10.0));
        let end_of_time = MonotonicInstant::from_nanos(u64::MAX);
        track.output_spread(MonotonicInstant::ZERO..end_of_time, 1);
        assert!(at(&track, end_of_time).output.five_minutes < Some(1e-6));
    }

    #[test]
    fn a_clock_jump_of_hours_leaves_empty_windows() {
        let mut track = ModelLoad::new();
        track.output(MonotonicInstant::from_secs(100), 50);
        track.output(MonotonicInstant::from_secs(50_000), 10);
        let reading = at(&track, MonotonicInstant::from_secs(50_001));
        assert_eq!(reading.output.five_minutes, Some(10.0 / 300.0));
    }

    #[test]
    fn no_mean_exceeds_the_peak() {
        let mut track = ModelLoad::new();
        for second in 0..20 {
            let (from, to) =
                (MonotonicInstant::from_secs(second), MonotonicInstant::from_secs(second + 1));
            track.output(from, 40);
            track.output_spread(from..to, 50);
        }
        let output = at(&track, MonotonicInstant::from_secs(20)).output;
        assert_eq!(
            (output.latest, output.ten_seconds, output.peak),
            (Some(90.0), Some(90.0), Some(90.0))
        );
    }

    #[test]
    fn a_model_is_idle_when_its_last_token_has_left_the_longest_window() {
        let mut track = ModelLoad::new();
        track.output(MonotonicInstant::from_secs(100), 1);
        let last = MonotonicInstant::from_nanos(400_999_999_999);
        assert!(!track.is_idle(last));
        assert!(at(&track, last).output.five_minutes > Some(0.0));
        assert!(track.is_idle(MonotonicInstant::from_secs(401)));
    }

    #[test]
    fn any_recorded_value_keeps_a_model_active() {
        let now = MonotonicInstant::from_secs(1_000);
        let uses: [fn(&mut ModelLoad, MonotonicInstant); 4] = [
            |track, at| track.output(at, 1),
            |track, at| track.output_spread(at..at, 1),
            |track, at| track.input_spread(at..at, 1),
            |track, at| track.ended(at, FinishedRequest::default()),
        ];
        for (index, used) in uses.into_iter().enumerate() {
            let mut track = ModelLoad::new();
            assert!(track.is_idle(now));
            used(&mut track, now);
            assert!(!track.is_idle(now), "{index}");
        }
    }

    proptest! {
        #[test]
        fn throughput_equals_the_sum_over_the_list_of_chunks(
            chunks in prop::collection::vec((0_u64..1_000_000, 0_u64..50), 0..200),
            read in 0_u64..1_000_000,
        ) {
            let mut chunks = chunks;
            chunks.sort_unstable();
            chunks.retain(|(millis, _)| *millis <= read);
            let mut track = ModelLoad::new();
            for &(millis, tokens) in &chunks {
                track.output(MonotonicInstant::from_millis(millis), tokens);
            }
            let actual = at(&track, MonotonicInstant::from_millis(read)).output;
            let now = read / 1_000;
            let mean = |seconds: u64| (now >= seconds).then(|| {
                let within = |millis: u64| (now - seconds..now).contains(&(millis / 1_000));
                let kept = chunks.iter().filter(|(millis, _)| within(*millis));
                kept.map(|(_, tokens)| *tokens).sum::<u64>() as f64 / seconds as f64
            });
            prop_assert_eq!(actual.ten_seconds, mean(10));
            prop_assert_eq!(actual.minute, mean(60));
            prop_assert_eq!(actual.five_minutes, mean(300));
        }

        #[test]
        fn spreading_keeps_the_sum(from in 0_u64..290_000, length in 0_u64..290_000, tokens in 0_u64..100_000) {
            let to = (from + length).min(299_999);
            let mut track = ModelLoad::new();
            track.output_spread(MonotonicInstant::from_millis(from)..MonotonicInstant::from_millis(to), tokens);
            let actual = at(&track, MonotonicInstant::from_secs(300)).output.five_minutes.unwrap() * 300.0;
            prop_assert!((actual - tokens as f64).abs() < 1e-6 * (tokens as f64 + 1.0), "{} of {}", actual, tokens);
        }
    }

    #[test]
    fn the_total_peak_is_the_highest_second_of_the_summed_models() {
        let (mut one, mut other) = (ModelLoad::new(), ModelLoad::new());
        one.output(MonotonicInstant::from_secs(5), 100);
        one.output(MonotonicInstant::from_secs(6), 60);
        other.output(MonotonicInstant::from_secs(6), 70);
        other.output(MonotonicInstant::from_secs(7), 90);
        other.input_spread(MonotonicInstant::from_secs(8)..MonotonicInstant::from_secs(9), 30);
        let at = MonotonicInstant::from_secs(10);
        let [total_input, total_output] = throughput(at, &[&one, &other]);
        assert_eq!(total_output.peak, Some(130.0), "not 100 + 90");
        assert_eq!(total_output.ten_seconds, Some(32.0));
        assert_eq!(total_input.ten_seconds, Some(3.0));
        assert_eq!((total_input.peak, total_input.minute), (None, None));
    }

    #[test]
    fn without_models_the_throughput_is_zero() {
        let [_, total_output] = throughput(MonotonicInstant::from_secs(60), &[]);
        assert_eq!(total_output.minute, Some(0.0));
        assert_eq!(total_output.five_minutes, None, "not covered");
        assert_eq!(Segment::default().summary(), Default::default());
    }
}
