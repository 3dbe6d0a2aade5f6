//! The part of a run that is evaluated: without warm-up and burn-in at its beginning, and ramp-down at its end.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::row::{Number, Row};
use crate::slices::{Grid, Spread};
use crate::statistics::ratio;
use crate::{steady, time};

/// The fewest requests among which a steady state is sought: below that, slices hold next to nothing.
const FEWEST: u64 = 100;
/// Slices of a run, one for every ten requests: enough for twenty batches at least, and a hundred at the most, each of
/// them one per cent of the run.
const SLICES: std::ops::RangeInclusive<u64> = 100..=500;
/// Requests for one slice.
const REQUESTS_OF_SLICE: u64 = 10;

/// How much of one end of a run is left out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Cut {
    /// What does not belong to the steady state.
    #[default]
    Auto,
    Nothing,
    Time(Duration),
    Requests(u64),
}

/// From the first request's start to the last one's end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Nanoseconds since 1970, as all instants here.
    pub from: u64,
    pub to: u64,
    pub requests: u64,
}

impl Extent {
    /// `None` for no rows.
    pub fn of<'r>(rows: impl Iterator<Item = &'r Row>) -> Option<Self> {
        rows.fold(None, |extent: Option<Self>, row| {
            let old = extent.unwrap_or(Self { from: row.start, to: row.start, requests: 0 });
            Some(Self {
                from: old.from.min(row.start),
                to: old.to.max(row.end()),
                requests: old.requests + 1,
            })
        })
    }

    /// Slices in which the steady state is sought.
    pub fn slices(&self) -> Option<Grid> {
        let count = (self.requests / REQUESTS_OF_SLICE).clamp(*SLICES.start(), *SLICES.end());
        let batch = steady::BATCH as u64;
        Grid::over(self.from, self.to, usize::try_from(count / batch * batch).ok()?)
    }
}

/// Which requests count: those that began within it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    pub from: u64,
    /// Not included.
    pub until: u64,
}

impl Bounds {
    pub const ALL: Self = Self { from: 0, until: u64::MAX };

    pub const fn hold(&self, row: &Row) -> bool {
        self.from <= row.start && row.start < self.until
    }
}

/// The part of a run that is evaluated, and why.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Window {
    /// How it was found, or given.
    pub method: String,
    /// Whether a steady state was sought and found; `false` means that the part is as the command line says, or all.
    pub steady: bool,
    /// Why no steady state was found, where it was sought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_found: Option<&'static str>,
    pub from: String,
    pub to: String,
    /// Seconds since the run's beginning.
    pub offset: f64,
    /// Seconds.
    pub length: f64,
    /// Requests that began before it, left out.
    pub cut_before: u64,
    /// Requests that began after it, left out.
    pub cut_after: u64,
    pub counted: u64,
    #[serde(skip)]
    pub bounds: Bounds,
}

/// Why no steady state was found.
const TOO_FEW: &str = "fewer than 100 requests";
const NO_TIME: &str = "all requests began and ended at one instant";
const NEVER: &str = "throughput or latency went on changing through more than half of the run";

/// The window of `rows`, whose extent is given.
pub fn find<'r, I>(rows: impl Fn() -> I, extent: Extent, warmup: Cut, ramp_down: Cut) -> Window
where
    I: Iterator<Item = &'r Row>,
{
    let sought = warmup == Cut::Auto || ramp_down == Cut::Auto;
    let steady = if sought {
        steady_state(&rows, extent, warmup == Cut::Auto, ramp_down == Cut::Auto)
    } else {
        Err("")
    };
    let found = steady.unwrap_or(Bounds::ALL);
    let starts = || sorted_starts(rows());
    let from = match warmup {
        Cut::Auto => found.from,
        Cut::Nothing => Bounds::ALL.from,
        Cut::Time(time) => extent.from.saturating_add(nanos(time)),
        Cut::Requests(count) => nth(&starts(), count).unwrap_or(Bounds::ALL.until),
    };
    let until = match ramp_down {
        Cut::Auto => found.until,
        Cut::Nothing => Bounds::ALL.until,
        Cut::Time(time) => extent.to.saturating_sub(nanos(time)),
        Cut::Requests(0) => Bounds::ALL.until,
        Cut::Requests(count) => {
            let left = extent.requests.saturating_sub(count);
            nth(&starts(), left).unwrap_or(Bounds::ALL.until)
        }
    };
    let bounds = Bounds { from, until };
    told(rows(), extent, bounds, steady.map(|_| sought)).by(method(warmup, ramp_down))
}

fn sorted_starts<'r>(rows: impl Iterator<Item = &'r Row>) -> Vec<u64> {
    let mut starts: Vec<u64> = rows.map(|row| row.start).collect();
    starts.sort_unstable();
    starts
}

fn nth(starts: &[u64], place: u64) -> Option<u64> {
    starts.get(usize::try_from(place).ok()?).copied()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn method(warmup: Cut, ramp_down: Cut) -> String {
    let cut = |cut| match cut {
        Cut::Auto => "found".to_owned(),
        Cut::Nothing => "nothing cut".to_owned(),
        Cut::Time(time) => format!("{} s cut as asked", time.as_secs_f64()),
        Cut::Requests(count) => format!("{count} requests cut as asked"),
    };
    match (warmup, ramp_down) {
        (Cut::Auto, Cut::Auto) => steady::METHOD.to_owned(),
        (Cut::Auto, _) | (_, Cut::Auto) => format!(
            "beginning: {}, end: {}; found by {}",
            cut(warmup),
            cut(ramp_down),
            steady::METHOD
        ),
        (Cut::Nothing | Cut::Time(_) | Cut::Requests(_), _) => {
            format!("beginning: {}, end: {}", cut(warmup), cut(ramp_down))
        }
    }
}

fn told<'r>(
    rows: impl Iterator<Item = &'r Row>,
    extent: Extent,
    bounds: Bounds,
    steady: Result<bool, &'static str>,
) -> Window {
    let (mut before, mut after, mut counted) = (0, 0, 0);
    for row in rows {
        let place = if bounds.hold(row) {
            &mut counted
        } else if row.start < bounds.from {
            &mut before
        } else {
            &mut after
        };
        *place += 1;
    }
    let from = bounds.from.clamp(extent.from, extent.to);
    let to = bounds.until.clamp(from, extent.to);
    Window {
        method: String::new(),
        steady: steady == Ok(true),
        not_found: steady.err().filter(|why| !why.is_empty()),
        from: time::format(from),
        to: time::format(to),
        offset: (from - extent.from) as f64 / 1e9,
        length: (to - from) as f64 / 1e9,
        cut_before: before,
        cut_after: after,
        counted,
        bounds,
    }
}

impl Window {
    fn by(self, method: String) -> Self {
        Self { method, ..self }
    }
}

fn steady_state<'r, I>(
    rows: impl Fn() -> I,
    extent: Extent,
    beginning: bool,
    end: bool,
) -> Result<Bounds, &'static str>
where
    I: Iterator<Item = &'r Row>,
{
    if extent.requests < FEWEST {
        return Err(TOO_FEW);
    }
    let grid = extent.slices().ok_or(NO_TIME)?;
    let tokens = tokens(rows(), grid);
    let tail = if end { steady::truncation_of_end(&tokens).ok_or(NEVER)? } else { 0 };
    let left = grid.count.saturating_sub(tail);
    let head = if beginning {
        let by_tokens = tokens.get(..left).and_then(steady::truncation).ok_or(NEVER)?;
        by_tokens.max(latency_cut(rows(), grid, left)?)
    } else {
        0
    };
    Ok(Bounds {
        from: if head > 0 { grid.at(head) } else { Bounds::ALL.from },
        until: if tail > 0 { grid.at(left) } else { Bounds::ALL.until },
    })
}

/// Slices at the beginning in which the first token, or the answer where there is none, took another time than later.
/// Slices in which nothing began say nothing; 0 where too few are left.
fn latency_cut<'r>(
    rows: impl Iterator<Item = &'r Row>,
    grid: Grid,
    slices: usize,
) -> Result<usize, &'static str> {
    let mut sums = vec![(0_u64, 0.0); grid.count];
    for row in rows {
        let first = row.answered(Number::First).or_else(|| row.answered(Number::Duration));
        if let (Some(first), Some((count, sum))) = (first, sums.get_mut(grid.slice(row.start))) {
            *count += 1;
            *sum += first;
        }
    }
    let means = sums.into_iter().take(slices).enumerate();
    let (places, means): (Vec<usize>, Vec<f64>) =
        means.filter_map(|(place, (count, sum))| Some((place, ratio(sum, count)?))).unzip();
    if !steady::is_long_enough(&means) {
        return Ok(0);
    }
    let cut = steady::truncation(&means).ok_or(NEVER)?;
    // Nothing cut: also not the empty slices before the first that says something.
    Ok(if cut == 0 { 0 } else { places.get(cut).copied().unwrap_or(0) })
}

/// Output tokens per slice: those of each answer spread evenly from its first to its last.
pub fn tokens<'r>(rows: impl Iterator<Item = &'r Row>, grid: Grid) -> Vec<f64> {
    let mut spread = Spread::new(grid);
    for row in rows {
        if let Some(tokens) = row.number(Number::Generated) {
            let from = row.after(row.number(Number::First).unwrap_or(0.0));
            let to = row.number(Number::Last).map_or_else(|| row.end(), |last| row.after(last));
            spread.add(from, to.max(from), tokens);
        }
    }
    spread.amounts()
}

/// The mean number of requests in flight per slice.
pub fn concurrency<'r>(rows: impl Iterator<Item = &'r Row>, grid: Grid) -> Vec<f64> {
    let mut spread = Spread::new(grid);
    for row in rows {
        let (from, to) = (row.start, row.end());
        spread.add(from, to, to.saturating_sub(from) as f64 / grid.width as f64);
    }
    spread.amounts()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Outcome;

    const SECOND: u64 = 1_000_000_000;

    /// A request per 100 ms for 100 s; in the first 20 s the first token takes 3 s in place of 0.2.
    fn rows() -> Vec<Row> {
        (0..1_000)
            .map(|n| {
                let mut row = Row::new(1_000 * SECOND + n * SECOND / 10, Outcome::Ok);
                let first = if n < 200 { 3.0 } else { 0.2 };
                row.set(Number::First, Some(first));
                row.set(Number::Last, Some(first + 1.0));
                row.set(Number::Duration, Some(first + 1.0));
                row.set(Number::Generated, Some(50.0));
                row
            })
            .collect()
    }

    fn found(rows: &[Row], warmup: Cut, ramp_down: Cut) -> Window {
        let extent = Extent::of(rows.iter()).unwrap();
        find(|| rows.iter(), extent, warmup, ramp_down)
    }

    #[test]
    fn the_slow_beginning_is_cut_and_the_end_is_not() {
        let window = found(&rows(), Cut::Auto, Cut::Auto);
        assert!(window.steady, "{window:?}");
        assert!((200..=260).contains(&window.cut_before), "{window:?}");
        assert!(window.cut_after <= 20, "{window:?}");
        assert_eq!(window.cut_before + window.counted + window.cut_after, 1_000);
    }

    #[test]
    fn what_is_asked_for_is_cut() {
        let rows = rows();
        for (warmup, ramp_down, cut) in [
            (Cut::Nothing, Cut::Nothing, (0, 0)),
            (Cut::Time(Duration::from_secs(10)), Cut::Nothing, (100, 0)),
            (Cut::Requests(7), Cut::Requests(5), (7, 5)),
            (Cut::Requests(0), Cut::Requests(0), (0, 0)),
            // The last answer ends 1.2 s after it began at 99.9 s.
            (Cut::Nothing, Cut::Time(Duration::from_millis(2_200)), (0, 11)),
            (Cut::Requests(5_000), Cut::Nothing, (1_000, 0)),
        ] {
            let window = found(&rows, warmup, ramp_down);
            assert_eq!((window.cut_before, window.cut_after), cut, "{warmup:?} {ramp_down:?}");
            assert!(!window.steady && window.not_found.is_none());
        }
    }

    #[test]
    fn where_there_is_no_steady_state_all_is_used_and_it_is_said() {
        let few = rows().split_off(950);
        assert_eq!(found(&few, Cut::Auto, Cut::Auto).not_found, Some(TOO_FEW));
        let mut rising = rows();
        for (n, row) in rising.iter_mut().enumerate() {
            row.set(Number::Generated, Some(n as f64));
        }
        let window = found(&rising, Cut::Auto, Cut::Nothing);
        assert_eq!((window.not_found, window.counted), (Some(NEVER), 1_000));
        let instant = vec![Row::new(5, Outcome::Ok); 200];
        assert_eq!(found(&instant, Cut::Auto, Cut::Auto).not_found, Some(NO_TIME));
    }

    #[test]
    fn concurrency_is_the_time_that_overlaps() {
        let row = |start, seconds| {
            let mut row = Row::new(start, Outcome::Ok);
            row.set(Number::Duration, Some(seconds));
            row
        };
        let rows = [row(0, 2.0), row(SECOND / 2, 1.0)];
        let grid = Grid { from: 0, width: SECOND, count: 3 };
        assert_eq!(concurrency(rows.iter(), grid), [1.5, 1.5, 0.0]);
    }
}
