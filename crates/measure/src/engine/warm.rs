//! Whether a backend has warmed up, told by what it did of late: pure, `at` passed in.
//!
//! The first answers of an engine are slow by nature: weights are loaded, kernels compiled and tuned, CUDA graphs
//! captured, caches empty. That is burn-in, and it must be seen as such and not blamed on anybody.
//!
//! **Cold**: it has to load before it can answer. The engine says that it sleeps; or its process began and nobody was
//! answered since; or the answer itself says that the model was loaded for it.
//! **Warming**: it answers, and what is known does not say that it has settled. Fewer than so many exchanges were answered
//! since it was cold or idle, or since this proxy began to look; or its process is young.
//! **Warm**: anything else.
//!
//! The state is that of an upstream, as an exchange would find it which is admitted now. An upstream that serves several
//! models is one backend here: the one exchange for which a model was loaded is known by its own answer.

use std::time::Duration;

use crate::record::WarmupState;
use tokengauge_types::clock::{MonotonicInstant, WallTime};

/// When a backend counts as what.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Without an exchange for so long it has to warm up again.
    pub idle: Duration,
    /// So many answers warm it up.
    pub exchanges: usize,
    /// So long after its start a process has not settled.
    pub young: Duration,
    /// An answer that says it loaded for so long found the model not loaded.
    pub load: Duration,
}

impl Default for Config {
    /// `idle`: Ollama unloads a model that nobody asked for 5 min. `exchanges`: the first pays for what is compiled and
    /// captured, the second for the batch size or prompt length that the first did not have, the third shows that it is
    /// over. `young`: engines that open their port before they are ready take a minute or two. `load`: Ollama says some 10
    /// to 100 ms for a model that is there, and seconds for one that is not.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(300),
            exchanges: 3,
            young: Duration::from_secs(120),
            load: Duration::from_millis(500),
        }
    }
}

/// Two readings of one process's start differ by less: clocks are read to 10 ms, and ranks start one after another.
const SAME_START: Duration = Duration::from_secs(1);

/// One backend.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    /// Exchanges that are with it.
    busy: u32,
    /// When an exchange last came to it or ended.
    touched: Option<MonotonicInstant>,
    /// When an exchange was last answered well.
    answered: Option<MonotonicInstant>,
    /// Answers that are missing until it is warm.
    missing: usize,
    process: Option<Process>,
    /// Its process began, and nobody was answered since.
    untried: bool,
    asleep: bool,
}

/// The engine's process.
#[derive(Clone, Copy, Debug)]
struct Process {
    started: WallTime,
    /// How old it was, and when that was known.
    age: Duration,
    at: MonotonicInstant,
}

impl Process {
    fn age(&self, at: MonotonicInstant) -> Duration {
        self.age + at.since(self.at)
    }
}

impl Machine {
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            busy: 0,
            touched: None,
            answered: None,
            missing: 0,
            process: None,
            untried: false,
            asleep: false,
        }
    }

    /// How an exchange would find it that is admitted at `at`.
    pub fn state(&self, at: MonotonicInstant) -> WarmupState {
        let is_young = |process: Process| process.age(at) < self.config.young;
        if self.asleep || self.untried {
            WarmupState::Cold
        } else if self.missing > 0 || self.is_idle(at) || self.process.is_some_and(is_young) {
            WarmupState::Warming
        } else {
            WarmupState::Warm
        }
    }

    /// An exchange was admitted; how it finds the backend.
    pub fn admitted(&mut self, at: MonotonicInstant) -> WarmupState {
        let state = self.state(at);
        if self.is_idle(at) {
            self.missing = self.config.exchanges;
        }
        self.busy = self.busy.saturating_add(1);
        self.touched = Some(at);
        state
    }

    /// An exchange is no longer with it.
    pub fn left(&mut self, at: MonotonicInstant) {
        self.busy = self.busy.saturating_sub(1);
        self.touched = Some(at);
    }

    /// An exchange that found it in the state `found` was answered well, `load` of that time being spent on loading the
    /// model by the backend's own clock; gives the state in which the exchange found it, as is known by now.
    pub fn answered(
        &mut self,
        at: MonotonicInstant,
        found: WarmupState,
        load: Option<Duration>,
    ) -> WarmupState {
        self.answered = Some(at);
        self.untried = false;
        self.asleep = false;
        if load.is_some_and(|load| load >= self.config.load) {
            self.missing = self.config.exchanges;
            return WarmupState::Cold;
        }
        self.missing = self.missing.saturating_sub(1);
        found
    }

    /// The engine's own word, read at `at`, which is `wall` on the wall clock.
    pub fn told(
        &mut self,
        at: MonotonicInstant,
        wall: WallTime,
        started: Option<WallTime>,
        asleep: Option<bool>,
    ) {
        let slept = std::mem::replace(&mut self.asleep, asleep.unwrap_or_default());
        if slept && !self.asleep {
            self.missing = self.config.exchanges;
        }
        let Some(started) = started else {
            return;
        };
        let before = self.process;
        if before.is_some_and(|before| distance(before.started, started) < SAME_START) {
            return;
        }
        // A clock that is ahead of ours makes it no older than now.
        let age = wall.unix_nanos().saturating_sub(started.unix_nanos());
        let process = Process { started, age: Duration::from_nanos(age), at };
        self.process = Some(process);
        let begun_anew = before.is_some() || process.age < self.config.young;
        let tried = |answered: MonotonicInstant| at.since(answered) < process.age;
        if begun_anew && !self.answered.is_some_and(tried) {
            self.untried = true;
            self.missing = self.config.exchanges;
        }
    }

    fn is_idle(&self, at: MonotonicInstant) -> bool {
        let long_ago = |touched| at.since(touched) >= self.config.idle;
        self.busy == 0 && self.touched.is_none_or(long_ago)
    }
}

fn distance(a: WallTime, b: WallTime) -> Duration {
    Duration::from_nanos(a.unix_nanos().abs_diff(b.unix_nanos()))
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

    fn machine() -> Machine {
        Machine::new(Config::default())
    }

    /// One exchange from `from` that is answered after a second; how it found the backend.
    fn exchange(machine: &mut Machine, from: u64) -> WarmupState {
        let found = machine.admitted(at(from));
        machine.left(at(from + 1));
        machine.answered(at(from + 1), found, None)
    }

    fn warmed(from: u64) -> Machine {
        let mut machine = machine();
        for second in 0..3 {
            assert_eq!(exchange(&mut machine, from + 2 * second), WarmupState::Warming);
        }
        machine
    }

    #[test]
    fn the_first_exchanges_warm_it_up_and_idleness_cools_it_down() {
        let mut machine = warmed(0);
        assert_eq!(exchange(&mut machine, 10), WarmupState::Warm);
        assert_eq!(machine.state(at(310)), WarmupState::Warm);
        assert_eq!(machine.state(at(311)), WarmupState::Warming);
        for second in [400, 402, 404] {
            assert_eq!(exchange(&mut machine, second), WarmupState::Warming);
        }
        assert_eq!(exchange(&mut machine, 406), WarmupState::Warm);
    }

    #[test]
    fn a_burst_is_warming_until_enough_of_it_is_answered() {
        let mut machine = machine();
        let found: Vec<WarmupState> = (0..10).map(|_| machine.admitted(at(0))).collect();
        assert_eq!(found, [WarmupState::Warming; 10]);
        for _ in 0..2 {
            machine.left(at(5));
            machine.answered(at(5), WarmupState::Warming, None);
        }
        assert_eq!(machine.state(at(5)), WarmupState::Warming);
        machine.left(at(6));
        machine.answered(at(6), WarmupState::Warming, None);
        assert_eq!(machine.state(at(6)), WarmupState::Warm);
        assert_eq!(machine.state(at(2_000)), WarmupState::Warm, "seven are still with it");
    }

    #[test]
    fn what_is_not_answered_warms_nothing() {
        let mut machine = machine();
        for second in 0..10 {
            machine.admitted(at(second));
            machine.left(at(second));
        }
        assert_eq!(machine.state(at(10)), WarmupState::Warming);
    }

    #[test]
    fn an_answer_that_loaded_the_model_found_it_cold_and_the_next_are_warming() {
        let mut machine = warmed(0);
        let found = machine.admitted(at(10));
        machine.left(at(20));
        let load = |millis| Some(Duration::from_millis(millis));
        assert_eq!(machine.answered(at(20), found, load(500)), WarmupState::Cold);
        assert_eq!(machine.state(at(20)), WarmupState::Warming);
        for second in [21, 23, 25] {
            let found = machine.admitted(at(second));
            machine.left(at(second));
            assert_eq!(machine.answered(at(second), found, load(499)), WarmupState::Warming);
        }
        assert_eq!(machine.state(at(26)), WarmupState::Warm);
    }

    #[test]
    fn a_process_that_begins_anew_is_cold_until_its_first_answer() {
        let mut machine = warmed(0);
        machine.told(at(10), wall(DAY), Some(wall(DAY - 3_600)), None);
        assert_eq!(machine.state(at(10)), WarmupState::Warm, "up for an hour");
        machine.told(at(15), wall(DAY + 5), Some(wall(DAY - 3_600)), None);
        assert_eq!(machine.state(at(15)), WarmupState::Warm);
        machine.told(at(60), wall(DAY + 50), Some(wall(DAY + 40)), None);
        assert_eq!(machine.state(at(60)), WarmupState::Cold);
        assert_eq!(exchange(&mut machine, 61), WarmupState::Cold);
        for second in [63, 65, 67] {
            assert_eq!(exchange(&mut machine, second), WarmupState::Warming);
        }
        assert_eq!(machine.state(at(169)), WarmupState::Warming, "119 s old");
        assert_eq!(machine.state(at(170)), WarmupState::Warm, "120 s old");
    }

    #[test]
    fn a_young_process_that_has_answered_before_it_was_asked_about_is_not_cold() {
        let mut young = warmed(0);
        young.told(at(10), wall(DAY), Some(wall(DAY - 30)), None);
        assert_eq!(young.state(at(10)), WarmupState::Warming);
        let mut untried = machine();
        untried.told(at(10), wall(DAY), Some(wall(DAY - 30)), None);
        assert_eq!(untried.state(at(10)), WarmupState::Cold);
        let mut ahead = machine();
        ahead.told(at(10), wall(DAY), Some(wall(DAY + 900)), None);
        assert_eq!(ahead.state(at(10)), WarmupState::Cold, "its clock is ahead of ours");
        exchange(&mut ahead, 20);
        for second in [30, 40, 50] {
            exchange(&mut ahead, second);
        }
        assert_eq!(ahead.state(at(130)), WarmupState::Warm);
    }

    #[test]
    fn a_sleeping_engine_is_cold_until_it_wakes_or_answers() {
        let mut machine = warmed(0);
        machine.told(at(10), wall(DAY), None, Some(true));
        assert_eq!(machine.state(at(10)), WarmupState::Cold);
        machine.told(at(15), wall(DAY), None, Some(false));
        assert_eq!(machine.state(at(15)), WarmupState::Warming);
        machine.told(at(20), wall(DAY), None, Some(true));
        assert_eq!(exchange(&mut machine, 21), WarmupState::Cold);
        assert_eq!(machine.state(at(23)), WarmupState::Warming);
    }
}
