//! Tracker of all SLOs: counts good and bad events and computes the remaining error budgets.

use std::time::Duration;

use crate::record::{Record, Verdict};
use crate::slo::budget::{BudgetForecast, Counts, Window};
use crate::slo::coverage::Coverage;
use crate::slo::scope::{Filter, Subject};
use crate::slo::slices::{ClosedSlice, Slices};
use crate::slo::state::SavedSlo;
use crate::slo::{
    BURN_WINDOWS, CorruptState, Deadline, Objective, Reading, Restored, Sli, SloState,
    WeightedVerdict,
};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::label::Label;

/// All SLOs with their history.
#[derive(Debug)]
pub struct SloTracker {
    slos: Vec<SloHistory>,
    /// Offset that is added to the process clock for all windows. It covers earlier processes and the time between
    /// them, so that windows continue after a restart.
    ahead: Duration,
}

impl SloTracker {
    /// Creates a tracker whose SLOs are observed since the process start.
    pub fn new(objectives: Vec<Objective>) -> Self {
        let new = |objective| SloHistory::new(objective, MonotonicInstant::ZERO, Duration::ZERO);
        Self { slos: objectives.into_iter().map(new).collect(), ahead: Duration::ZERO }
    }

    /// Applies the SLOs of a new configuration. An unchanged SLO keeps its history; a changed or new SLO starts without
    /// history at `at`. The total of an SLO name continues in both cases, because counters must not decrease.
    pub fn replace(&mut self, at: MonotonicInstant, objectives: Vec<Objective>) {
        let ahead = self.ahead;
        let mut former = std::mem::take(&mut self.slos);
        let continue_or_start = |objective: Objective| {
            let same = former.iter().position(|known| known.objective.name == objective.name);
            match same.map(|index| former.swap_remove(index)) {
                Some(known) if known.objective == objective => known,
                Some(known) => SloHistory {
                    total: known.total,
                    excluded: known.excluded,
                    ..SloHistory::new(objective, at, ahead)
                },
                None => SloHistory::new(objective, at, ahead),
            }
        };
        self.slos = objectives.into_iter().map(continue_or_start).collect();
    }

    pub fn objective(&self, index: usize) -> Option<&Objective> {
        Some(&self.slos.get(index)?.objective)
    }

    /// Returns the verdicts of all SLOs that cover the request, each with the index of its SLO. No SLO covers plain
    /// HTTP.
    pub fn judge(&self, record: &Record) -> impl Iterator<Item = (usize, WeightedVerdict)> {
        let judge = move |(index, slo): (usize, &SloHistory)| {
            let call = record.call.as_ref()?;
            let in_scope = slo.filter.matches(&Subject::from_call(record, call));
            let judged = in_scope.then(|| slo.objective.judge(record, call));
            Some((index, judged??))
        };
        self.slos.iter().enumerate().filter_map(judge)
    }

    /// Returns why the SLO `name` excludes a request. `None` if no SLO has this name. See
    /// [`Verdict::Excluded`](crate::record::Verdict::Excluded).
    pub fn exclusion_reason(&self, name: &Label, record: &Record) -> Option<&'static str> {
        let slo = self.slos.iter().find(|slo| slo.objective.name == *name)?;
        Some(slo.objective.exclusion_reason(record, record.call.as_ref()?))
    }

    /// Returns the time limits of all SLOs that cover a request in flight, which was accepted at `accepted`.
    pub fn deadlines_of(&self, subject: &Subject<'_>, accepted: MonotonicInstant) -> Vec<Deadline> {
        let slos = self.slos.iter().enumerate();
        let in_scope = slos.filter(|(_, slo)| slo.filter.matches(subject));
        let deadline = |(index, slo): (usize, &SloHistory)| {
            let (limit, event) = slo.objective.deadline(subject, accepted)?;
            Some(Deadline { objective: index, limit, event })
        };
        in_scope.filter_map(deadline).collect()
    }

    /// Records a verdict. Excluded events are only counted.
    pub fn record(&mut self, at: MonotonicInstant, index: usize, judged: WeightedVerdict) {
        let at = at + self.ahead;
        if let Some(slo) = self.slos.get_mut(index) {
            slo.record(at, judged);
        }
    }

    /// Returns whether any SLO judges minutes of the system and needs samples of the streams in flight.
    pub fn has_slices(&self) -> bool {
        self.slos.iter().any(|slo| slo.slices.is_some())
    }

    /// Returns the indices of the SLOs that judge minutes of the system and cover a stream in flight.
    pub fn slices_of(&self, subject: &Subject<'_>) -> Vec<usize> {
        let slos = self.slos.iter().enumerate();
        slos.filter(|(_, slo)| slo.slices.is_some() && slo.filter.matches(subject))
            .map(|(index, _)| index)
            .collect()
    }

    /// Records output tokens of a stream in flight, for the SLOs returned by [`slices_of`](Self::slices_of).
    pub fn stream(&mut self, at: MonotonicInstant, indices: &[usize], tokens: u64) {
        let ahead = self.ahead;
        for index in indices {
            if let Some(slo) = self.slos.get_mut(*index) {
                slo.slice(ahead, |slices| slices.add(at, tokens));
            }
        }
    }

    /// Records the number of streams in flight at `at`, for each index that [`slices_of`](Self::slices_of) returned.
    /// Callers do this about every 250 ms.
    pub fn sample(&mut self, at: MonotonicInstant, streams: impl Fn(usize) -> u32) {
        let ahead = self.ahead;
        for (index, slo) in self.slos.iter_mut().enumerate() {
            slo.slice(ahead, |slices| slices.sample(at, streams(index)));
        }
    }

    /// Excludes the current minute of time-slice SLOs, because part of a stream was not observed.
    pub fn mark_unobserved(&mut self) {
        for slo in &mut self.slos {
            if let Some(slices) = slo.slices.as_deref_mut() {
                slices.mark_unobserved();
            }
        }
    }

    /// Returns the state of each SLO at `at`, in the order of the configuration.
    pub fn reading(&self, at: MonotonicInstant) -> Vec<Reading> {
        let at = at + self.ahead;
        let slos = self.slos.iter();
        slos.map(|slo| slo.reading(at)).collect()
    }

    /// Returns the state to save, with which a later process continues this tracker. `wall` is the wall-clock time of
    /// `at`.
    pub fn state(&self, at: MonotonicInstant, wall: WallTime) -> SloState {
        let clock = at + self.ahead;
        SloState {
            wall: wall.unix_nanos(),
            clock: clock.nanos(),
            slos: self.slos.iter().map(|slo| slo.saved(clock)).collect(),
        }
    }

    /// Restores the state of an earlier process, before the first verdict is recorded. Unchanged SLOs continue with a
    /// gap for the time between the processes. Other SLOs start at `at`.
    ///
    /// # Errors
    /// Returns an error if `state` is invalid. The tracker is then unchanged.
    pub fn restore(
        &mut self,
        state: &SloState,
        at: MonotonicInstant,
        wall: WallTime,
    ) -> Result<Restored, CorruptState> {
        let clock = MonotonicInstant::from_nanos(state.clock);
        let between = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
        let down = between(state.wall, wall.unix_nanos());
        let set_back = between(wall.unix_nanos(), state.wall);
        // Saturates at 0 if the process is older than the sum. The gap then counts a little longer than it was, because
        // no instant may precede the start of the timeline.
        let ahead = (clock + down).since(at);
        let mut objectives = 0;
        let mut slos = Vec::with_capacity(self.slos.len());
        for slo in &self.slos {
            let objective = slo.objective.clone();
            let identity = identity(&objective);
            let fresh = SloHistory::new(objective, at, ahead);
            let saved = state.slos.iter().find(|saved| saved.identity == identity);
            slos.push(match saved {
                Some(saved) => {
                    objectives += 1;
                    fresh.restored(saved, clock).ok_or(CorruptState)?
                }
                None => fresh,
            });
        }
        (self.slos, self.ahead) = (slos, ahead);
        Ok(Restored { objectives, down, set_back: (!set_back.is_zero()).then_some(set_back) })
    }
}

/// One SLO with its history in eight windows, which take 16 KiB. Instants are on the tracker's timeline.
#[derive(Debug)]
struct SloHistory {
    objective: Objective,
    filter: Filter,
    coverage: Coverage,
    total: Counts,
    excluded: u64,
    budget: Window,
    burn: [Window; BURN_WINDOWS.len()],
    /// Slices of an SLO that judges minutes of the system, on the process clock.
    slices: Option<Box<Slices>>,
}

impl SloHistory {
    /// Creates an SLO without history. It is observed from `at` on, or from the end of the start-up period if that is
    /// later.
    fn new(objective: Objective, at: MonotonicInstant, ahead: Duration) -> Self {
        let warm = MonotonicInstant::ZERO + objective.counting.warmup;
        let slices = if let Sli::SystemRate { floor, min_streams } = objective.indicator {
            Some(Box::new(Slices::new(floor, min_streams, warm)))
        } else {
            None
        };
        Self {
            filter: Filter::new(&objective.scope),
            coverage: Coverage::since(at.max(warm) + ahead),
            budget: Window::new(objective.window),
            burn: BURN_WINDOWS.map(|(_, length)| Window::new(length)),
            total: Counts::default(),
            excluded: 0,
            slices,
            objective,
        }
    }

    /// Continues with the history that was saved at `clock`. `None` if the history is invalid.
    fn restored(mut self, saved: &SavedSlo, clock: MonotonicInstant) -> Option<Self> {
        let gap = |&(from, to): &(u64, u64)| {
            (MonotonicInstant::from_nanos(from), MonotonicInstant::from_nanos(to))
        };
        let gaps = saved.gaps.iter().map(gap).collect();
        let since = MonotonicInstant::from_nanos(saved.since);
        let resumed = self.coverage.start();
        // State saved during warm-up has no observed time yet.
        if since <= clock {
            self.coverage = Coverage::restored(since, gaps, clock)?;
            self.coverage.add_gap(clock, resumed);
        }
        let [budget, burn @ ..] = saved.windows.as_slice() else {
            return None;
        };
        if burn.len() != self.burn.len() {
            return None;
        }
        self.budget = Window::restored(self.budget.length(), budget, clock)?;
        for (window, held) in self.burn.iter_mut().zip(burn) {
            *window = Window::restored(window.length(), held, clock)?;
        }
        Some(self)
    }

    fn saved(&self, clock: MonotonicInstant) -> SavedSlo {
        // A gap caused by a warm-up may extend past the current time.
        let gap = |(from, to): &(MonotonicInstant, MonotonicInstant)| {
            (from.nanos(), (*to).min(clock).nanos())
        };
        let windows = std::iter::once(&self.budget).chain(&self.burn);
        SavedSlo {
            identity: identity(&self.objective),
            since: self.coverage.start().nanos(),
            gaps: self.coverage.gaps().iter().map(gap).collect(),
            windows: windows.map(Window::non_empty_slots).collect(),
        }
    }

    fn slice(&mut self, ahead: Duration, of: impl FnOnce(&mut Slices) -> Option<ClosedSlice>) {
        let closed = self.slices.as_deref_mut().and_then(of);
        if let Some(ClosedSlice { at, verdict }) = closed {
            self.record(at + ahead, WeightedVerdict { verdict, events: 1 });
        }
    }

    fn record(&mut self, at: MonotonicInstant, judged: WeightedVerdict) {
        let WeightedVerdict { verdict, events } = judged;
        let counts = match verdict {
            Verdict::Good => Counts { good: events, bad: 0 },
            Verdict::Bad => Counts { good: 0, bad: events },
            Verdict::Excluded => {
                self.excluded += 1;
                return;
            }
        };
        self.total.add(counts);
        self.budget.record(at, counts);
        for window in &mut self.burn {
            window.record(at, counts);
        }
    }

    fn reading(&self, at: MonotonicInstant) -> Reading {
        let target = self.objective.target;
        let window = self.objective.window;
        let covered = self.coverage.observed(at, window);
        let counts = self.budget.counts(at);
        let budget = counts.budget(target, window, covered);
        let burn = |window: &Window| window.counts(at).burn(target);
        let [_, _, last_hour, ..] = &self.burn;
        let forecast = || Some(BudgetForecast { budget: budget?, burn: burn(last_hour)?, window });
        Reading {
            objective: self.objective.clone(),
            good: self.total.good,
            bad: self.total.bad,
            excluded: self.excluded,
            counts,
            budget,
            burn: self.burn.each_ref().map(|window| {
                let is_covered = self.coverage.covers(at, window.length());
                is_covered.then(|| burn(window)).flatten()
            }),
            covered,
            exhaustion: forecast().and_then(BudgetForecast::exhaustion),
        }
    }
}

/// Returns the complete definition of an SLO as JSON, which identifies the SLO.
fn identity(objective: &Objective) -> String {
    // Plain structs, strings and numbers always serialise.
    serde_json::to_string(objective).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slo::{CountingRules, Scope};
    use crate::testing::{objective, stream};

    const HOUR: Duration = Duration::from_secs(3_600);

    const fn once(verdict: Verdict) -> WeightedVerdict {
        WeightedVerdict { verdict, events: 1 }
    }

    fn one(ledger: &SloTracker, at: MonotonicInstant) -> Reading {
        let [reading] = <[Reading; 1]>::try_from(ledger.reading(at)).unwrap();
        reading
    }

    fn record(ledger: &mut SloTracker, at: MonotonicInstant, good: u64, bad: u64) {
        for _ in 0..good {
            ledger.record(at, 0, once(Verdict::Good));
        }
        for _ in 0..bad {
            ledger.record(at, 0, once(Verdict::Bad));
        }
    }

    fn near(actual: Option<f64>, exact: f64) {
        let error = actual.map(|actual| (actual - exact).abs());
        assert!(error.is_some_and(|e| e < 1e-9), "{actual:?} for {exact}");
    }

    #[test]
    fn an_exchange_counts_only_for_objectives_in_scope() {
        let scoped = |name, model: &str| Objective {
            scope: Scope { model: Some(model.to_owned()), ..Scope::default() },
            ..objective(name)
        };
        let slow = Objective { indicator: Sli::OutputRate(200.0), ..objective("voice") };
        let ledger = SloTracker::new(vec![scoped("a", "claude*"), scoped("b", "gpt*"), slow]);
        let mut record = stream();
        let verdicts: Vec<_> = ledger.judge(&record).collect();
        let expected = [(1, once(Verdict::Good)), (2, once(Verdict::Bad))];
        assert_eq!(verdicts, expected);
        assert_eq!(ledger.objective(1).unwrap().name.as_str(), "b");
        record.call = None;
        assert_eq!(ledger.judge(&record).count(), 0, "plain HTTP");
    }

    #[test]
    fn excluded_exchanges_leave_no_trace() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        let at = MonotonicInstant::from_secs(7_200);
        ledger.record(at, 0, once(Verdict::Excluded));
        let reading = one(&ledger, at);
        assert_eq!((reading.good, reading.bad, reading.excluded), (0, 0, 1));
        assert_eq!(reading.counts, Counts::default());
        assert_eq!((reading.budget, reading.exhaustion), (None, None));
        assert_eq!(reading.burn, [None; BURN_WINDOWS.len()]);
    }

    #[test]
    fn a_burn_rate_is_reported_once_its_window_is_covered() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        for (index, (name, length)) in BURN_WINDOWS.into_iter().enumerate() {
            let covered = MonotonicInstant::ZERO + length;
            record(&mut ledger, covered, 98, 2);
            let before = one(&ledger, MonotonicInstant::from_nanos(covered.nanos() - 1));
            assert_eq!(before.burn[index], None, "{name}");
            let reading = one(&ledger, covered);
            near(reading.burn[index], 2.0);
            assert_eq!(reading.burn.iter().flatten().count(), index + 1);
        }
    }

    #[test]
    fn a_budget_is_that_of_the_whole_window_while_little_is_observed() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        let at = MonotonicInstant::from_secs(1_800);
        record(&mut ledger, at, 399, 1);
        let reading = one(&ledger, at);
        near(reading.budget, 1.0 - 0.25 / 48.0);
        assert_eq!(reading.covered, HOUR / 2);
        assert_eq!(reading.exhaustion, None, "a quarter of what it may burn");
        record(&mut ledger, at, 0, 400);
        let burning = one(&ledger, at);
        near(burning.budget, 1.0 - 401.0 / 800.0 / 0.01 / 48.0);
        assert!(
            burning.exhaustion.is_none(),
            "half an hour of failures spends the budget of a day"
        );
        assert_eq!(one(&ledger, MonotonicInstant::from_secs(999_999)).covered, 24 * HOUR);
    }

    #[test]
    fn a_budget_that_burns_faster_than_it_recovers_has_an_end() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        for hour in 0..23 {
            record(&mut ledger, MonotonicInstant::from_secs(hour * 3_600), 1_000, 0);
        }
        let at = MonotonicInstant::from_secs(24 * 3_600);
        record(&mut ledger, at.saturating_sub(HOUR * 3 / 4), 980, 20);
        let reading = one(&ledger, at);
        near(reading.budget, 1.0 - 20.0 / 240.0);
        let seconds = (1.0 - 20.0 / 240.0) * 24.0 * 3_600.0 / 2.0;
        let foretold = reading.exhaustion.unwrap().as_secs_f64();
        assert!((foretold - seconds).abs() < 1e-3, "{foretold}");
    }

    /// The burn rates equal the table in the SRE workbook, for an SLO of 99.9 % over 30 d that counts each token of a
    /// stream.
    #[test]
    fn token_budgets_match_the_sre_workbook() {
        const MONTH: u64 = 30 * 24;
        for (rate, hours, spent, window) in [
            (14.4, 1, 0.02, "1h"),
            (6.0, 6, 0.05, "6h"),
            (3.0, 24, 0.1, "1d"),
            (1.0, 72, 0.1, "3d"),
        ] {
            let tokens = Objective {
                indicator: Sli::TokensAboveRate(30.0),
                target: 0.999,
                window: Duration::from_secs(MONTH * 3_600),
                ..objective("tokens")
            };
            let mut ledger = SloTracker::new(vec![tokens]);
            for hour in 0..MONTH {
                let at = MonotonicInstant::from_secs(hour * 3_600 + 1_800);
                let bad = if hour >= MONTH - hours { rate * 10.0 } else { 0.0 };
                let bad = (0..10_000).filter(|token| f64::from(*token) < bad).count() as u64;
                let judged = [(Verdict::Good, 10_000 - bad), (Verdict::Bad, bad)];
                for (verdict, events) in judged {
                    ledger.record(at, 0, WeightedVerdict { verdict, events });
                }
            }
            let reading = one(&ledger, MonotonicInstant::from_secs(MONTH * 3_600));
            let index = BURN_WINDOWS.iter().position(|(name, _)| *name == window);
            near(reading.burn[index.unwrap()], rate);
            near(reading.budget, 1.0 - spent);
            assert_eq!(reading.counts.good + reading.counts.bad, MONTH * 10_000);
            let ends = reading.exhaustion.map(|time| time.as_secs_f64() / 3_600.0);
            match rate > 1.0 {
                true => near(ends, (1.0 - spent) * MONTH as f64 / rate),
                false => assert_eq!(ends, None),
            }
        }
    }

    #[test]
    fn an_objective_that_did_not_change_keeps_its_history() {
        let mut ledger = SloTracker::new(vec![objective("a"), objective("b")]);
        let at = MonotonicInstant::from_secs(4_000);
        record(&mut ledger, at, 9, 1);
        ledger.record(at, 1, once(Verdict::Bad));
        let changed = Objective { target: 0.9, ..objective("a") };
        ledger.replace(at, vec![objective("c"), objective("b"), changed]);
        let readings = ledger.reading(at);
        let actual = |index: usize| {
            let reading: &Reading = &readings[index];
            (reading.good, reading.bad, reading.budget.is_some(), reading.covered)
        };
        assert_eq!(actual(0), (0, 0, false, Duration::ZERO), "new");
        assert_eq!(actual(1), (0, 1, true, Duration::from_secs(4_000)), "the same");
        assert_eq!(
            actual(2),
            (9, 1, false, Duration::ZERO),
            "changed: totals go on, windows do not"
        );
        let burning = |at| ledger.reading(at)[0].burn.iter().flatten().count();
        assert_eq!(burning(at + Duration::from_secs(300)), 0, "covered, yet without events");
    }

    #[test]
    fn a_window_of_a_new_objective_is_covered_from_its_creation() {
        let mut ledger = SloTracker::new(vec![]);
        let came = MonotonicInstant::from_secs(50_000);
        ledger.replace(came, vec![objective("a")]);
        let at = came + Duration::from_secs(299);
        record(&mut ledger, at, 1, 0);
        assert_eq!(one(&ledger, at).burn[0], None);
        assert_eq!(one(&ledger, came + Duration::from_secs(300)).burn[0], Some(0.0));
    }

    #[test]
    fn an_index_without_an_objective_is_ignored() {
        let mut ledger = SloTracker::new(vec![]);
        ledger.record(MonotonicInstant::ZERO, 3, once(Verdict::Bad));
        assert!(ledger.reading(MonotonicInstant::ZERO).is_empty() && ledger.objective(0).is_none());
    }

    const NANO: Duration = Duration::from_nanos(1);

    /// Returns a wall clock that is `seconds` ahead of the process clock.
    fn wall(at: MonotonicInstant, seconds: u64) -> WallTime {
        WallTime::from_unix_nanos((at + Duration::from_secs(seconds)).nanos())
    }

    /// Saves the state at `at`, and restores it in a new process that is `age` old. The new process restores it `down`
    /// after `at`.
    fn restarted(
        ledger: &SloTracker,
        at: MonotonicInstant,
        down: Duration,
        age: MonotonicInstant,
    ) -> SloTracker {
        let state = ledger.state(at, wall(at, 1_000_000));
        let text = serde_json::to_string(&state).unwrap();
        let state: SloState = serde_json::from_str(&text).unwrap();
        let objectives = ledger.slos.iter().map(|it| it.objective.clone());
        let mut next = SloTracker::new(objectives.collect());
        let actual = next.restore(&state, age, wall(at, 1_000_000) + down);
        let actual = actual.unwrap();
        assert_eq!((actual.down, actual.set_back), (down, None));
        next
    }

    #[test]
    fn a_restart_continues_windows_and_resets_totals() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        let at = MonotonicInstant::from_secs(40 * 3_600);
        record(&mut ledger, at.saturating_sub(HOUR / 3), 990, 10);
        let before = one(&ledger, at);
        let age = MonotonicInstant::from_secs(1);
        let next = restarted(&ledger, at, Duration::from_secs(20), age);
        let after = one(&next, age);
        assert_eq!((after.good, after.bad), (0, 0), "counters are the process's own");
        assert_eq!(after.counts, before.counts);
        let observed = 24 * HOUR - Duration::from_secs(20);
        assert_eq!(after.budget, after.counts.budget(0.99, 24 * HOUR, observed));
        assert_eq!(after.covered, observed);
        let actual = |reading: &Reading| reading.burn.map(|burn| burn.is_some());
        assert_eq!(actual(&before), [false, true, true, true, true, true, false]);
        assert_eq!(actual(&after), actual(&before), "20 s are within a tenth of 30 min");
        // The event expires as without a restart: 24 h after the slot of 12 min in which it arrived.
        let slot = (at.saturating_sub(HOUR / 3).nanos() / 720_000_000_000 + 121) * 720;
        let leaves = slot - (40 * 3_600 + 20 - 1);
        let last = |secs| one(&next, MonotonicInstant::from_secs(secs)).counts;
        assert_eq!(last(leaves - 1), before.counts);
        assert_eq!(last(leaves), Counts::default());
    }

    #[test]
    fn events_older_than_the_window_are_gone_and_a_long_gap_hides_the_window() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        let at = MonotonicInstant::from_secs(80 * 3_600);
        record(&mut ledger, at, 90, 10);
        let next = restarted(&ledger, at, 2 * HOUR, MonotonicInstant::ZERO);
        let reading = one(&next, MonotonicInstant::ZERO);
        near(reading.budget, 1.0 - 10.0 * 22.0 / 24.0);
        assert_eq!(reading.covered, 22 * HOUR);
        let actual = reading.burn.map(|burn| burn.is_some());
        assert_eq!(actual, [false, false, false, false, false, true, true]);
        let gone = restarted(&ledger, at, 100 * HOUR, MonotonicInstant::ZERO);
        let reading = one(&gone, MonotonicInstant::ZERO);
        assert_eq!((reading.budget, reading.covered), (None, Duration::ZERO));
    }

    #[test]
    fn a_wall_clock_set_back_passes_no_time() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        let at = MonotonicInstant::from_secs(4_000);
        record(&mut ledger, at, 9, 1);
        let state = ledger.state(at, wall(at, 500));
        let mut next = SloTracker::new(vec![objective("a")]);
        let actual = next.restore(&state, MonotonicInstant::ZERO, wall(at, 200)).unwrap();
        assert_eq!((actual.objectives, actual.down), (1, Duration::ZERO));
        assert_eq!(actual.set_back, Some(Duration::from_secs(300)));
        let reading = one(&next, MonotonicInstant::ZERO);
        assert_eq!(reading.counts, Counts { good: 9, bad: 1 });
        assert_eq!(reading.covered, Duration::from_secs(4_000));
        assert!(reading.burn[0].is_some(), "no gap either");
    }

    #[test]
    fn an_objective_changed_over_a_restart_starts_empty() {
        let mut ledger = SloTracker::new(vec![objective("a"), objective("b")]);
        let at = MonotonicInstant::from_secs(4_000);
        for index in 0..2 {
            ledger.record(at, index, once(Verdict::Bad));
        }
        let state = ledger.state(at, wall(at, 0));
        let changed = Objective { target: 0.98, ..objective("a") };
        let mut next = SloTracker::new(vec![objective("c"), changed, objective("b")]);
        let age = MonotonicInstant::from_secs(2);
        let actual = next.restore(&state, age, wall(at, 10)).unwrap();
        assert_eq!(actual.objectives, 1);
        let actual: Vec<_> = next.reading(age + NANO).into_iter().collect();
        let actual: Vec<_> = actual.iter().map(|it| (it.counts.bad, it.covered)).collect();
        let kept = Duration::from_secs(4_000) + NANO;
        assert_eq!(actual, [(0, NANO), (0, NANO), (1, kept)]);
    }

    #[test]
    fn the_start_up_period_is_not_covered_at_any_start() {
        let minute = Duration::from_secs(60);
        let warm = Objective {
            counting: CountingRules { warmup: minute, ..CountingRules::default() },
            ..objective("a")
        };
        let mut ledger = SloTracker::new(vec![warm]);
        let covered =
            |ledger: &SloTracker, secs| one(ledger, MonotonicInstant::from_secs(secs)).covered;
        assert_eq!(covered(&ledger, 59), Duration::ZERO);
        assert_eq!(covered(&ledger, 100), Duration::from_secs(40));
        let at = MonotonicInstant::from_secs(100);
        ledger.record(at, 0, once(Verdict::Good));
        let next = restarted(&ledger, at, Duration::from_secs(7), MonotonicInstant::from_secs(1));
        assert_eq!(covered(&next, 59), Duration::from_secs(40));
        assert_eq!(covered(&next, 70), Duration::from_secs(50));
        let early =
            restarted(&next, MonotonicInstant::from_secs(10), minute, MonotonicInstant::ZERO);
        assert_eq!(covered(&early, 61), Duration::from_secs(41));
        let unseen = restarted(
            &SloTracker::new(vec![one(&next, at).objective]),
            MonotonicInstant::ZERO,
            minute,
            MonotonicInstant::ZERO,
        );
        assert_eq!(covered(&unseen, 61), Duration::from_secs(1));
    }

    #[test]
    fn an_invalid_state_is_rejected_and_changes_nothing() {
        let mut ledger = SloTracker::new(vec![objective("a")]);
        let at = MonotonicInstant::from_secs(4_000);
        record(&mut ledger, at, 9, 1);
        let state = ledger.state(at, wall(at, 0));
        let spoil = |spoil: fn(&mut SloState)| {
            let mut spoilt = state.clone();
            spoil(&mut spoilt);
            let mut next = SloTracker::new(vec![objective("a")]);
            let actual = next.restore(&spoilt, MonotonicInstant::ZERO, wall(at, 0));
            assert_eq!(actual, Err(CorruptState));
            assert_eq!(
                one(&next, MonotonicInstant::ZERO),
                one(&SloTracker::new(vec![objective("a")]), MonotonicInstant::ZERO)
            );
        };
        spoil(|state| state.clock = 1);
        spoil(|state| state.slos[0].windows.truncate(7));
        spoil(|state| state.slos[0].windows[3].push((u64::MAX, 1, 1)));
        spoil(|state| state.slos[0].gaps.push((9, 3)));
    }

    #[test]
    fn system_minutes_count_for_their_objective() {
        let system = Objective {
            indicator: Sli::SystemRate { floor: 10.0, min_streams: 1 },
            ..objective("system")
        };
        let mut ledger = SloTracker::new(vec![objective("a"), system]);
        assert!(ledger.has_slices() && !SloTracker::new(vec![objective("a")]).has_slices());
        let record = stream();
        let subject = Subject::from_call(&record, record.call.as_ref().unwrap());
        let slices = ledger.slices_of(&subject);
        assert_eq!(slices, [1]);
        for second in 0..=240 {
            let at = MonotonicInstant::from_secs(second);
            ledger.sample(at, |index| u32::from(slices.contains(&index)));
            let tokens = if second < 120 { 10 } else { 9 };
            ledger.stream(at, &slices, tokens);
            if second == 200 {
                ledger.mark_unobserved();
            }
        }
        let readings = ledger.reading(MonotonicInstant::from_secs(240));
        let actual = |index: usize| readings[index].counts;
        assert_eq!(actual(0), Counts::default());
        assert_eq!(actual(1), Counts { good: 1, bad: 1 }, "the fourth had a gap");
        assert_eq!(ledger.judge(&record).count(), 1, "of no exchange");
    }

    proptest! {
        /// With random restarts, downtimes and process ages, the budget equals the budget computed from a plain list of
        /// events with wall-clock times.
        #[test]
        fn a_restart_does_not_change_the_result_of_the_list_of_events(
            events in prop::collection::vec((0_u64..600, any::<bool>(), 1_u64..50), 1..80),
            restarts in prop::collection::btree_map(1_u64..600, (0_u64..100, 0_u64..60), 0..4),
            age in 0_u64..60,
        ) {
            // Grid step of the budget's window: 1 d ÷ 120.
            const STEP: u64 = 720;
            let mut events = events;
            events.sort_unstable();
            let tokens = Objective { indicator: Sli::TokensAboveRate(1.0), ..objective("a") };
            let mut ledger = SloTracker::new(vec![tokens]);
            // Time of day at which this process started, and total downtime so far.
            let (mut began, mut gone) = (0, 0);
            let mut raw: Vec<(u64, Counts)> = Vec::new();
            let mut restarts = restarts.into_iter().peekable();
            for (step, good, tokens) in events {
                while let Some((when, (down, young))) = restarts.next_if(|(when, _)| *when <= step) {
                    let (day, down) = (when * STEP + gone, down * STEP);
                    let at = MonotonicInstant::from_secs(day - began);
                    let age = young + age;
                    ledger = restarted(&ledger, at, Duration::from_secs(down), MonotonicInstant::from_secs(age));
                    (began, gone) = (day + down - age, gone + down);
                }
                let day = step * STEP + gone;
                let at = MonotonicInstant::from_secs(day - began);
                let verdict = if good { Verdict::Good } else { Verdict::Bad };
                ledger.record(at, 0, WeightedVerdict { verdict, events: tokens });
                let (good, bad) = if good { (tokens, 0) } else { (0, tokens) };
                raw.push((day, Counts { good, bad }));
                let mut sum = Counts::default();
                let within = raw.iter().filter(|(event, _)| event + 86_400 >= day);
                within.for_each(|(_, counts)| sum.add(*counts));
                let reading = one(&ledger, at);
                prop_assert_eq!(reading.counts, sum);
                prop_assert_eq!(reading.budget, sum.budget(0.99, 24 * HOUR, reading.covered));
            }
        }

        /// Events and readings lie on the grid of the widest slots (3 d ÷ 120 = 36 min). All narrower slots divide this
        /// grid, so the result is exact.
        #[test]
        fn a_reading_equals_the_result_of_the_list_of_events(
            events in prop::collection::vec((0_u64..300, 0_u32..5), 0..120),
            read in 0_u64..300,
            days in prop::sample::select(vec![1_u64, 3]),
            target in prop::sample::select(vec![0.9, 0.99, 0.999]),
        ) {
            const STEP: u64 = 2_160;
            let mut events = events;
            events.retain(|(step, _)| *step <= read);
            events.sort_unstable();
            let window = Duration::from_secs(days * 86_400);
            let mut ledger = SloTracker::new(vec![Objective { target, window, ..objective("a") }]);
            for &(step, kind) in &events {
                let verdict = match kind {
                    0 => Verdict::Bad,
                    1 => Verdict::Excluded,
                    _ => Verdict::Good,
                };
                ledger.record(MonotonicInstant::from_secs(step * STEP), 0, once(verdict));
            }
            let now = read * STEP;
            let share = |window: Duration| {
                let oldest = now.saturating_sub(window.as_secs());
                let kept = || events.iter().filter(|(step, kind)| step * STEP >= oldest && *kind != 1);
                let bad = kept().filter(|(_, kind)| *kind == 0).count();
                (kept().count() > 0).then(|| bad as f64 / kept().count() as f64 / (1.0 - target))
            };
            let reading = one(&ledger, MonotonicInstant::from_secs(now));
            let covered = now.min(window.as_secs()) as f64 / window.as_secs() as f64;
            let budget = share(window).filter(|_| covered > 0.0).map(|burn| 1.0 - burn * covered);
            prop_assert_eq!(reading.budget, budget);
            for (actual, (_, length)) in reading.burn.into_iter().zip(BURN_WINDOWS) {
                let covered = now >= length.as_secs();
                prop_assert_eq!(actual, if covered { share(length) } else { None });
            }
        }
    }
}
