//! Warm-up detection for a backend, based on its recent activity. No I/O; `at` is passed in.
//!
//! The first responses of an engine are slow by nature. The engine loads weights, compiles and tunes kernels, captures
//! CUDA graphs and fills its caches. This warm-up must be visible and not count as an error of any party.
//!
//! **Cold**: the backend has to load before it can respond. The engine reports that it sleeps, or its process started
//! and no request has succeeded since. A response can also report that the model was loaded for it.
//!
//! **Warming**: the backend responds, but is not known to be warmed up. Either too few requests have succeeded since
//! it was cold or idle or since this proxy began to observe it, or its process is young.
//!
//! **Warm**: any other case.
//!
//! The state belongs to an upstream and describes how a request admitted now would find it. An upstream that serves
//! several models counts as one backend. A model load for a single request is known from the response to that
//! request.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::WarmupState;
use tokengauge_types::bounded::{DAY, HOUR, Int, MINUTE, SECOND, Time};
use tokengauge_types::clock::{MonotonicInstant, WallTime};

/// Thresholds of the warm-up states.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Warmup")]
pub struct WarmupConfig {
    /// After this long without a call, the backend has to [warm up](engine-metrics.md#cold-warming-warm) again.
    /// `warmup: {}` uses the defaults.
    // Ollama unloads a model after 5 min without requests. A second without traffic is not idleness. No cache is kept
    // for longer than a day.
    pub idle_timeout: Time<SECOND, DAY, { 5 * MINUTE }>,
    /// Successful responses before the backend counts as warm.
    // The first request pays for compilation and graph capture, the second for another batch size or prompt length. The
    // third shows that warm-up is over.
    pub min_requests: Int<0, 1_000, 3>,
    /// Time after the start of the engine during which it counts as warming. Requires `engine_metrics` of an engine
    /// that reports its start time.
    // Some engines open their port a minute or two before they are ready.
    pub startup_grace: Time<0, HOUR, { 2 * MINUTE }>,
    /// Model load time in a response that marks a cold start.
    // Ollama reports 10 to 100 ms for a loaded model, and seconds for an unloaded one. No model takes an hour to load.
    pub cold_load_threshold: Time<1, HOUR, 500>,
}

/// Largest difference between two reported start times of the same process. Clocks have a resolution of 10 ms, and
/// parallel ranks start one after another.
const START_TIME_TOLERANCE: Duration = Duration::from_secs(1);

/// Warm-up state machine of one backend.
#[derive(Debug, Default)]
pub struct WarmupTracker {
    config: WarmupConfig,
    /// Number of requests in flight at the backend.
    in_flight: u32,
    /// When a request last started or ended.
    last_activity: Option<MonotonicInstant>,
    /// When a request last succeeded.
    last_success: Option<MonotonicInstant>,
    /// Number of successful responses that are still needed until the backend counts as warm.
    missing_successes: usize,
    process: Option<Process>,
    /// Whether the process has restarted and no request has succeeded since the restart.
    is_untried: bool,
    is_asleep: bool,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    started: WallTime,
    /// Age of the process at `at`.
    age: Duration,
    at: MonotonicInstant,
}

impl WarmupTracker {
    pub fn new(config: WarmupConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Returns the warm-up state of the backend for a request admitted at `at`.
    pub fn state(&self, at: MonotonicInstant) -> WarmupState {
        let is_young =
            |process: Process| process.age + at.since(process.at) < self.config.startup_grace.get();
        if self.is_asleep || self.is_untried {
            WarmupState::Cold
        } else if self.missing_successes > 0
            || self.is_idle(at)
            || self.process.is_some_and(is_young)
        {
            WarmupState::Warming
        } else {
            WarmupState::Warm
        }
    }

    /// Records that a request was admitted, and returns the warm-up state of the backend at this time.
    pub fn record_admission(&mut self, at: MonotonicInstant) -> WarmupState {
        let state = self.state(at);
        if self.is_idle(at) {
            self.missing_successes = self.config.min_requests.get();
        }
        self.in_flight = self.in_flight.saturating_add(1);
        self.last_activity = Some(at);
        state
    }

    /// Records that a request left the backend.
    pub fn record_end(&mut self, at: MonotonicInstant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.last_activity = Some(at);
    }

    /// Records that a request succeeded. `found` is the warm-up state at its admission. `load` is the time that the
    /// backend spent on loading the model, if the response reports it.
    ///
    /// Returns [`WarmupState::Cold`] if the model was loaded for this request, and otherwise `found`.
    pub fn record_success(
        &mut self,
        at: MonotonicInstant,
        found: WarmupState,
        load: Option<Duration>,
    ) -> WarmupState {
        self.last_success = Some(at);
        self.is_untried = false;
        self.is_asleep = false;
        if load.is_some_and(|load| load >= self.config.cold_load_threshold.get()) {
            self.missing_successes = self.config.min_requests.get();
            return WarmupState::Cold;
        }
        self.missing_successes = self.missing_successes.saturating_sub(1);
        found
    }

    /// Records the start time and sleep state from a scrape at `at`. `wall` is the wall-clock time of `at`.
    pub fn apply_scrape(
        &mut self,
        at: MonotonicInstant,
        wall: WallTime,
        started: Option<WallTime>,
        asleep: Option<bool>,
    ) {
        let slept = std::mem::replace(&mut self.is_asleep, asleep.unwrap_or_default());
        if slept && !self.is_asleep {
            self.missing_successes = self.config.min_requests.get();
        }
        let Some(started) = started else {
            return;
        };
        let before = self.process;
        let is_same = |before: Process| {
            let apart = before.started.unix_nanos().abs_diff(started.unix_nanos());
            Duration::from_nanos(apart) < START_TIME_TOLERANCE
        };
        if before.is_some_and(is_same) {
            return;
        }
        // If the engine's clock is ahead of the proxy's clock, the age is 0.
        let age = wall.unix_nanos().saturating_sub(started.unix_nanos());
        let process = Process { started, age: Duration::from_nanos(age), at };
        self.process = Some(process);
        let has_restarted = before.is_some() || process.age < self.config.startup_grace.get();
        let tried = |success: MonotonicInstant| at.since(success) < process.age;
        if has_restarted && !self.last_success.is_some_and(tried) {
            self.is_untried = true;
            self.missing_successes = self.config.min_requests.get();
        }
    }

    fn is_idle(&self, at: MonotonicInstant) -> bool {
        let long_ago = |last_activity| at.since(last_activity) >= self.config.idle_timeout.get();
        self.in_flight == 0 && self.last_activity.is_none_or(long_ago)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn at(seconds: u64) -> MonotonicInstant {
        MonotonicInstant::from_secs(seconds)
    }

    fn wall(seconds: u64) -> WallTime {
        WallTime::from_unix_nanos(seconds * 1_000_000_000)
    }

    fn tracker() -> WarmupTracker {
        WarmupTracker::new(WarmupConfig::default())
    }

    /// Records one successful request that starts at the second `from` and takes 1 s. Returns the warm-up state at the
    /// start of the request.
    fn exchange(tracker: &mut WarmupTracker, from: u64) -> WarmupState {
        let found = tracker.record_admission(at(from));
        tracker.record_end(at(from + 1));
        tracker.record_success(at(from + 1), found, None)
    }

    fn warmed(from: u64) -> WarmupTracker {
        let mut tracker = tracker();
        for second in 0..3 {
            assert_eq!(exchange(&mut tracker, from + 2 * second), WarmupState::Warming);
        }
        tracker
    }

    #[test]
    fn the_first_exchanges_warm_a_backend_up_and_idle_time_cools_it_down() {
        let mut tracker = warmed(0);
        assert_eq!(exchange(&mut tracker, 10), WarmupState::Warm);
        assert_eq!(tracker.state(at(310)), WarmupState::Warm);
        assert_eq!(tracker.state(at(311)), WarmupState::Warming);
        for second in [400, 402, 404] {
            assert_eq!(exchange(&mut tracker, second), WarmupState::Warming);
        }
        assert_eq!(exchange(&mut tracker, 406), WarmupState::Warm);
    }

    #[test]
    fn a_burst_is_warming_until_enough_responses_succeed() {
        let mut tracker = tracker();
        let found: Vec<WarmupState> = (0..10).map(|_| tracker.record_admission(at(0))).collect();
        assert_eq!(found, [WarmupState::Warming; 10]);
        for _ in 0..2 {
            tracker.record_end(at(5));
            tracker.record_success(at(5), WarmupState::Warming, None);
        }
        assert_eq!(tracker.state(at(5)), WarmupState::Warming);
        tracker.record_end(at(6));
        tracker.record_success(at(6), WarmupState::Warming, None);
        assert_eq!(tracker.state(at(6)), WarmupState::Warm);
        assert_eq!(tracker.state(at(2_000)), WarmupState::Warm, "seven are still with it");
    }

    #[test]
    fn failed_exchanges_do_not_warm_a_backend_up() {
        let mut tracker = tracker();
        for second in 0..10 {
            tracker.record_admission(at(second));
            tracker.record_end(at(second));
        }
        assert_eq!(tracker.state(at(10)), WarmupState::Warming);
    }

    #[test]
    fn a_response_that_loaded_the_model_is_cold_and_the_next_ones_are_warming() {
        let mut tracker = warmed(0);
        let found = tracker.record_admission(at(10));
        tracker.record_end(at(20));
        let load = |millis| Some(Duration::from_millis(millis));
        assert_eq!(tracker.record_success(at(20), found, load(500)), WarmupState::Cold);
        assert_eq!(tracker.state(at(20)), WarmupState::Warming);
        for second in [21, 23, 25] {
            let found = tracker.record_admission(at(second));
            tracker.record_end(at(second));
            assert_eq!(tracker.record_success(at(second), found, load(499)), WarmupState::Warming);
        }
        assert_eq!(tracker.state(at(26)), WarmupState::Warm);
    }

    #[test]
    fn a_restarted_process_is_cold_until_its_first_response() {
        let mut tracker = warmed(0);
        tracker.apply_scrape(at(10), wall(DAY), Some(wall(DAY - 3_600)), None);
        assert_eq!(tracker.state(at(10)), WarmupState::Warm, "up for an hour");
        tracker.apply_scrape(at(15), wall(DAY + 5), Some(wall(DAY - 3_600)), None);
        assert_eq!(tracker.state(at(15)), WarmupState::Warm);
        tracker.apply_scrape(at(60), wall(DAY + 50), Some(wall(DAY + 40)), None);
        assert_eq!(tracker.state(at(60)), WarmupState::Cold);
        assert_eq!(exchange(&mut tracker, 61), WarmupState::Cold);
        for second in [63, 65, 67] {
            assert_eq!(exchange(&mut tracker, second), WarmupState::Warming);
        }
        assert_eq!(tracker.state(at(169)), WarmupState::Warming, "119 s old");
        assert_eq!(tracker.state(at(170)), WarmupState::Warm, "120 s old");
    }

    #[test]
    fn a_young_process_that_responded_before_its_first_scrape_is_not_cold() {
        let mut young = warmed(0);
        young.apply_scrape(at(10), wall(DAY), Some(wall(DAY - 30)), None);
        assert_eq!(young.state(at(10)), WarmupState::Warming);
        let mut untried = tracker();
        untried.apply_scrape(at(10), wall(DAY), Some(wall(DAY - 30)), None);
        assert_eq!(untried.state(at(10)), WarmupState::Cold);
        let mut ahead = tracker();
        ahead.apply_scrape(at(10), wall(DAY), Some(wall(DAY + 900)), None);
        assert_eq!(ahead.state(at(10)), WarmupState::Cold, "its clock is ahead of ours");
        exchange(&mut ahead, 20);
        for second in [30, 40, 50] {
            exchange(&mut ahead, second);
        }
        assert_eq!(ahead.state(at(130)), WarmupState::Warm);
    }

    #[test]
    fn a_sleeping_engine_is_cold_until_it_wakes_or_responds() {
        let mut tracker = warmed(0);
        tracker.apply_scrape(at(10), wall(DAY), None, Some(true));
        assert_eq!(tracker.state(at(10)), WarmupState::Cold);
        tracker.apply_scrape(at(15), wall(DAY), None, Some(false));
        assert_eq!(tracker.state(at(15)), WarmupState::Warming);
        tracker.apply_scrape(at(20), wall(DAY), None, Some(true));
        assert_eq!(exchange(&mut tracker, 21), WarmupState::Cold);
        assert_eq!(tracker.state(at(23)), WarmupState::Warming);
    }
}
