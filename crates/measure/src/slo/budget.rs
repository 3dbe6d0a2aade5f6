//! Rolling windows of good and bad events, burn rates, remaining error budget and time until the budget is spent.

use std::time::Duration;

use serde::Serialize;

use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::rolling_window::RollingWindow;

/// Number of slots in every window, independent of the window's length. An event leaves the window with its slot, so it
/// counts up to a 120th (0.8 %) too long: 2.5 s for 5 min, 6 h for 30 d. The slot that is still filling is included, so
/// that a burn shows immediately.
pub(super) const SLOTS: u32 = 120;

/// Numbers of good and bad events. Excluded events do not count as either.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Counts {
    pub good: u64,
    pub bad: u64,
}

/// Contents of one slot: its number, good events, bad events.
pub(super) type Slot = (u64, u64, u64);

impl Counts {
    pub(super) const fn add(&mut self, more: Self) {
        self.good = self.good.saturating_add(more.good);
        self.bad = self.bad.saturating_add(more.bad);
    }

    /// Returns the burn rate: ratio of bad events ÷ (1 − target). At burn rate 1, the budget lasts exactly one window.
    /// `None` without events.
    pub fn burn(self, target: f64) -> Option<f64> {
        let Self { good, bad } = self;
        let all = good.saturating_add(bad);
        (all > 0).then(|| bad as f64 / all as f64 / (1.0 - target))
    }

    /// Returns the remaining ratio of the error budget: 1 − bad ÷ ((1 − target) × events expected in the window). 1
    /// means untouched, 0 spent, and a negative value overspent. `None` without events.
    ///
    /// The expected events are those of the covered part at the same rate: events × window ÷ covered. Until the window is
    /// covered, a bad event therefore costs what it costs in a full window, so minutes cannot spend the budget of a month.
    pub fn budget(self, target: f64, window: Duration, covered: Duration) -> Option<f64> {
        let share = covered.min(window).div_duration_f64(window);
        let burn = self.burn(target)?;
        (share > 0.0).then_some(1.0 - burn * share)
    }
}

/// One rolling window. It takes 2 KiB.
#[derive(Clone, Debug)]
pub(super) struct Window {
    length: Duration,
    slots: RollingWindow<Counts>,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        Self { length, slots: RollingWindow::new(length / SLOTS, SLOTS as usize) }
    }

    pub(super) fn record(&mut self, at: MonotonicInstant, counts: Counts) {
        let number = self.slots.number(at);
        if let Some(slot) = self.slots.slot(number) {
            slot.add(counts);
        }
    }

    /// Returns the non-empty slots.
    pub(super) fn non_empty_slots(&self) -> Vec<Slot> {
        let held = self.slots.numbered();
        held.filter(|(_, counts)| **counts != Counts::default())
            .map(|(number, counts)| (number, counts.good, counts.bad))
            .collect()
    }

    /// Restores a window from the slots that were saved at `now`. `None` if there are more slots than the window has,
    /// or if a slot is later than `now`.
    pub(super) fn restored(length: Duration, held: &[Slot], now: MonotonicInstant) -> Option<Self> {
        let mut window = Self::new(length);
        let newest = window.slots.number(now);
        if held.len() > SLOTS as usize + 1 {
            return None;
        }
        for &(number, good, bad) in held {
            if number > newest {
                return None;
            }
            if let Some(slot) = window.slots.slot(number) {
                slot.add(Counts { good, bad });
            }
        }
        Some(window)
    }

    pub(super) fn counts(&self, at: MonotonicInstant) -> Counts {
        let now = self.slots.number(at);
        let mut sum = Counts::default();
        for slot in self.slots.range(now.saturating_sub(SLOTS.into())..now + 1) {
            sum.add(*slot);
        }
        sum
    }

    pub(super) const fn length(&self) -> Duration {
        self.length
    }
}

/// Progress of an error budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetForecast {
    /// Remaining ratio of the budget.
    pub(super) budget: f64,
    /// Burn rate, assumed to continue.
    pub(super) burn: f64,
    pub(super) window: Duration,
}

impl BudgetForecast {
    /// Returns the time until the budget is spent, as a lower bound: budget × window ÷ burn. Assumes constant traffic and
    /// a constant burn rate. For example, a full 30 d budget at burn rate 14.4 lasts 50 h.
    ///
    /// The result is a lower bound because failures that leave the window before then are not credited. At a burn rate of
    /// 1 or less, they leave as fast as new ones arrive.
    pub(super) fn exhaustion(self) -> Option<Duration> {
        let Self { budget, burn, window } = self;
        if budget <= 0.0 || burn <= 1.0 {
            return None;
        }
        Duration::try_from_secs_f64(budget * window.as_secs_f64() / burn).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;
    const MONTH: u64 = 30 * DAY;
    const TARGET: f64 = 0.999;

    const GOOD: Counts = Counts { good: 1, bad: 0 };
    const BAD: Counts = Counts { good: 0, bad: 1 };

    fn window(seconds: u64) -> Window {
        Window::new(Duration::from_secs(seconds))
    }

    /// Returns the budget of a window that is covered.
    fn full(counts: Counts, target: f64) -> Option<f64> {
        let window = Duration::from_secs(MONTH);
        counts.budget(target, window, window)
    }

    fn close(actual: Option<f64>, exact: f64) {
        assert!(
            actual.is_some_and(|actual| (actual - exact).abs() < 1e-9),
            "{actual:?} for {exact}"
        );
    }

    /// Rows of the table in the SRE workbook for 99.9 % over 30 d: burn rate, number of hours, and spent budget.
    #[test]
    fn burn_rates_match_the_sre_workbook() {
        for (rate, bad, hours, spent) in
            [(14.4, 144, 1, 0.02), (6.0, 60, 6, 0.05), (3.0, 30, 24, 0.1), (1.0, 10, 72, 0.1)]
        {
            let (mut month, mut long) = (window(MONTH), window(hours * HOUR));
            for hour in 0..MONTH / HOUR {
                let burns = hour >= MONTH / HOUR - hours;
                let bad = if burns { bad } else { 0 };
                let good = 10_000 - bad;
                let at = MonotonicInstant::from_secs(hour * HOUR + HOUR / 2);
                month.record(at, Counts { good, bad });
                long.record(at, Counts { good, bad });
            }
            let now = MonotonicInstant::from_secs(MONTH);
            close(long.counts(now).burn(TARGET), rate);
            close(full(month.counts(now), TARGET), 1.0 - spent);
        }
    }

    #[test]
    fn a_burn_of_one_spends_the_budget_in_its_window() {
        let counts = Counts { good: 999, bad: 1 };
        close(counts.burn(TARGET), 1.0);
        close(full(counts, TARGET), 0.0);
    }

    #[test]
    fn a_budget_is_full_without_bad_events_and_can_be_overspent() {
        let counts = |good, bad| Counts { good, bad };
        close(full(counts(1_000, 0), TARGET), 1.0);
        close(full(counts(0, 1_000), TARGET), 1.0 - 1_000.0);
        close(counts(0, 1_000).burn(0.99), 100.0);
        close(counts(1, 1).burn(0.5), 1.0);
    }

    /// One bad event of six after 16 minutes of 30 days, and the worst case: all events of these minutes are bad.
    #[test]
    fn minutes_do_not_overspend_a_month() {
        let (month, covered) = (Duration::from_secs(MONTH), Duration::from_secs(16 * 60));
        let budget = |good, bad, target| Counts { good, bad }.budget(target, month, covered);
        close(budget(5, 1, 0.95), 1.0 - 1.0 / (0.05 * 6.0 * 30.0 * 90.0));
        close(budget(0, 6, 0.999), 1.0 - 1_000.0 / 2_700.0);
        assert_eq!(Counts { good: 5, bad: 1 }.budget(0.95, month, Duration::ZERO), None);
        let longer = Duration::from_secs(2 * MONTH);
        assert_eq!(
            Counts { good: 5, bad: 1 }.budget(0.95, month, longer),
            full(Counts { good: 5, bad: 1 }, 0.95)
        );
    }

    #[test]
    fn an_empty_window_has_no_values() {
        let window = window(300);
        let counts = window.counts(MonotonicInstant::from_secs(1_000));
        assert_eq!((counts.burn(TARGET), full(counts, TARGET)), (None, None));
    }

    #[test]
    fn an_event_stays_for_exactly_the_window() {
        let mut window = window(300);
        let width = 2_500_000_000;
        let slot = 4 * width;
        window.record(MonotonicInstant::from_nanos(slot), BAD);
        window.record(MonotonicInstant::from_nanos(slot + width - 1), GOOD);
        let at = |nanos| window.counts(MonotonicInstant::from_nanos(nanos));
        let both = Counts { good: 1, bad: 1 };
        assert_eq!(at(slot + width - 1), both, "as soon as they are noted");
        let leave = slot + width + 300_000_000_000;
        assert_eq!(at(leave - 1), both);
        assert_eq!(at(leave), Counts::default());
    }

    #[test]
    fn neighbouring_slots_expire_one_after_the_other() {
        let mut window = window(300);
        window.record(MonotonicInstant::from_nanos(2_499_999_999), BAD);
        window.record(MonotonicInstant::from_nanos(2_500_000_000), GOOD);
        assert_eq!(window.counts(MonotonicInstant::from_nanos(302_500_000_000)), GOOD);
    }

    #[test]
    fn a_clock_jump_leaves_no_old_events_and_a_late_clock_loses_none() {
        let mut window = window(300);
        window.record(MonotonicInstant::from_secs(10), BAD);
        let later = MonotonicInstant::from_secs(10 * DAY);
        assert_eq!(window.counts(later), Counts::default(), "read before it is written to");
        window.record(later, GOOD);
        assert_eq!(window.counts(later), GOOD);
        window.record(later.saturating_sub(Duration::from_secs(299)), BAD);
        window.record(later.saturating_sub(Duration::from_secs(400)), BAD);
        assert_eq!(window.counts(later), Counts { good: 1, bad: 1 });
    }

    #[test]
    fn a_saved_window_is_restored_unchanged() {
        let mut before = window(300);
        for second in 700..1_000 {
            let counts = Counts { good: second, bad: 1 };
            before.record(MonotonicInstant::from_secs(second), counts);
        }
        let now = MonotonicInstant::from_secs(1_000);
        let length = Duration::from_secs(300);
        let mut after = Window::restored(length, &before.non_empty_slots(), now).unwrap();
        for second in 1_000..1_400 {
            let at = MonotonicInstant::from_secs(second);
            assert_eq!(after.counts(at), before.counts(at), "{second}");
            after.record(at, BAD);
            before.record(at, BAD);
        }
        let number = now.nanos() / 2_500_000_000;
        assert!(Window::restored(length, &[(number, 1, 1)], now).is_some());
        assert!(Window::restored(length, &[(number + 1, 1, 1)], now).is_none());
        let many = vec![(number, 1, 1); 122];
        assert!(Window::restored(length, &many, now).is_none());
        let full = Window::restored(length, &[(number, u64::MAX, u64::MAX)], now).unwrap();
        assert_eq!(full.counts(now).burn(0.5), Some(2.0), "it overflows nothing");
    }

    fn forecast(budget: f64, burn: f64) -> Option<f64> {
        let forecast = BudgetForecast { budget, burn, window: Duration::from_secs(MONTH) };
        forecast.exhaustion().map(|time| time.as_secs_f64() / HOUR as f64)
    }

    /// The time until a full 30-day budget is spent equals the table in the SRE workbook, for each burn rate.
    #[test]
    fn a_full_budget_lasts_as_long_as_in_the_sre_workbook() {
        close(forecast(1.0, 14.4), 50.0);
        close(forecast(1.0, 6.0), 120.0);
        close(forecast(1.0, 3.0), 240.0);
        close(forecast(0.5, 14.4), 25.0);
        close(forecast(1.0, 1_000.0), 0.72);
    }

    #[test]
    fn a_slow_burn_or_a_spent_budget_has_no_end() {
        assert_eq!(forecast(0.5, 1.0), None, "earned as fast as it burns");
        assert_eq!(forecast(0.5, 0.0), None);
        assert_eq!(forecast(0.0, 14.4), None);
        assert_eq!(forecast(-3.0, 14.4), None);
        assert!(forecast(1e-9, 1.000_001).is_some());
    }

    proptest! {
        /// With even traffic, the budget is exactly spent at the predicted time, however much of the window is covered.
        #[test]
        fn the_budget_ends_at_the_predicted_time(burn in 1.001_f64..1_000.0, covered in 1_u64..MONTH, bad in 0_u64..1_000) {
            let (window, hourly) = (MONTH as f64, 3_600_000.0);
            let before = Counts { good: 1_000_000 - bad, bad };
            let rate = 1_000_000.0 / covered as f64;
            let budget = before.budget(TARGET, Duration::from_secs(MONTH), Duration::from_secs(covered)).unwrap();
            prop_assume!(budget > 0.0);
            let end = forecast(budget, burn).unwrap() * HOUR as f64;
            let spent = bad as f64 + burn * (1.0 - TARGET) * rate * end;
            let allowed = (1.0 - TARGET) * rate * window;
            prop_assert!((spent - allowed).abs() < 1e-6 * allowed.max(hourly), "{} of {}", spent, allowed);
        }

        /// Events lie on a grid of quarters of a slot over three windows, so that the bounds of slots are tested.
        #[test]
        fn a_window_equals_the_list_of_events(
            length in prop::sample::select(vec![300, 1_800, HOUR, 2 * HOUR, 6 * HOUR, DAY, 3 * DAY, 7 * DAY, 90 * DAY]),
            events in prop::collection::vec((0_u64..1_440, any::<bool>()), 0..200),
            read in 0_u64..1_440,
        ) {
            let (length_nanos, width) = (length * 1_000_000_000, length * 1_000_000_000 / 120);
            let moment = |quarter: u64| quarter * width / 4;
            let read = moment(read);
            let mut events: Vec<_> = events.into_iter().map(|(at, good)| (moment(at), good)).collect();
            events.retain(|(at, _)| *at <= read);
            events.sort_unstable();
            let mut window = window(length);
            for &(at, good) in &events {
                window.record(MonotonicInstant::from_nanos(at), if good { GOOD } else { BAD });
            }
            let count = |oldest: u64| {
                let kept = || events.iter().filter(|(at, _)| *at >= oldest);
                Counts {
                    good: kept().filter(|(_, good)| *good).count() as u64,
                    bad: kept().filter(|(_, good)| !good).count() as u64,
                }
            };
            let actual = window.counts(MonotonicInstant::from_nanos(read));
            let aligned = read / width * width;
            prop_assert_eq!(actual, count(aligned.saturating_sub(length_nanos)));
            // The documented guarantee: no event leaves early, and none leaves more than a slot late.
            let (least, most) = (count(read.saturating_sub(length_nanos)), count(read.saturating_sub(length_nanos + width)));
            prop_assert!(least.good <= actual.good && actual.good <= most.good);
            prop_assert!(least.bad <= actual.bad && actual.bad <= most.bad);
            // A reading on the grid is exact to the nanosecond.
            prop_assert_eq!(window.counts(MonotonicInstant::from_nanos(aligned + width)), count((aligned + width).saturating_sub(length_nanos)));
        }
    }
}
