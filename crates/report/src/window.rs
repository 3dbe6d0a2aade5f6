//! Finds the part of a run that is evaluated (the window). The window excludes warm-up at the start and ramp-down at
//! the end.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::row::{NumericField, Row};
use crate::slices::{SliceTotals, TimeGrid};
use crate::statistics::mean;
use crate::{steady, time};

/// Minimum number of requests for a steady-state search. With fewer requests, most time slices are empty.
const MIN_REQUESTS: u64 = 100;
/// Range for the number of time slices in a steady-state search. There is one slice per ten requests. The search joins
/// five slices into a batch, so the range gives 20 to 100 batches.
const SLICES: std::ops::RangeInclusive<u64> = 100..=500;
/// Number of requests per time slice.
const REQUESTS_OF_SLICE: u64 = 10;

/// How much to remove at the start or the end of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Trim {
    /// Removes everything outside the detected steady state.
    Auto,
    #[default]
    None,
    Time(Duration),
    Requests(u64),
}

/// Time from the start of the first request to the end of the last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunExtent {
    /// Start of the first request, in nanoseconds since 1970. All times in this module have this unit.
    pub from: u64,
    pub to: u64,
    pub requests: u64,
}

impl RunExtent {
    /// Returns the time range of `rows`. Returns `None` without rows.
    pub fn from_rows<'r>(rows: impl Iterator<Item = &'r Row>) -> Option<Self> {
        rows.fold(None, |extent: Option<Self>, row| {
            let old = extent.unwrap_or(Self { from: row.start, to: row.start, requests: 0 });
            Some(Self {
                from: old.from.min(row.start),
                to: old.to.max(row.end()),
                requests: old.requests + 1,
            })
        })
    }

    /// Divides the run into time slices for the steady-state search. Returns `None` if all requests started and ended
    /// at the same time.
    pub fn slices(&self) -> Option<TimeGrid> {
        let count = (self.requests / REQUESTS_OF_SLICE).clamp(*SLICES.start(), *SLICES.end());
        let batch = steady::BATCH_SIZE as u64;
        TimeGrid::new(self.from, self.to, usize::try_from(count / batch * batch).ok()?)
    }
}

/// A range of times. A request counts if it starts in this range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StartRange {
    pub from: u64,
    /// End of the range. A request that starts at this time does not count.
    pub until: u64,
}

impl StartRange {
    pub const ALL: Self = Self { from: 0, until: u64::MAX };

    pub const fn contains(&self, row: &Row) -> bool {
        self.from <= row.start && row.start < self.until
    }
}

impl Default for StartRange {
    fn default() -> Self {
        Self::ALL
    }
}

/// The part of a run that the speed figures cover, and how the report chose it.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Window {
    /// How the window was detected or set.
    pub method: String,
    /// Whether a steady state was detected. If `false`, the window is the configured one or the whole run.
    pub steady: bool,
    /// Why the search found no steady state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_found: Option<&'static str>,
    pub from: String,
    pub to: String,
    /// Start of the window, in seconds since the start of the run.
    pub offset: f64,
    /// Length of the window in seconds.
    pub length: f64,
    /// Number of requests that the speed figures leave out because they started before the window.
    pub cut_before: u64,
    /// Number of requests that the speed figures leave out because they started after the window.
    pub cut_after: u64,
    /// Number of requests in the window.
    pub counted: u64,
    #[serde(skip)]
    pub bounds: StartRange,
}

impl Window {
    /// Returns the window that contains the whole run.
    pub fn whole(extent: RunExtent) -> Self {
        Self {
            method: method(Trim::None, Trim::None),
            steady: false,
            not_found: None,
            from: time::format(extent.from),
            to: time::format(extent.to),
            offset: 0.0,
            length: extent.to.saturating_sub(extent.from) as f64 / 1e9,
            cut_before: 0,
            cut_after: 0,
            counted: extent.requests,
            bounds: StartRange::ALL,
        }
    }
}

/// Reasons why a search found no steady state.
const TOO_FEW: &str = "fewer than 100 requests";
const NO_TIME: &str = "all requests started and ended at the same time";
const NO_STEADY_STATE: &str = "throughput or latency kept changing for more than half of the run";

/// Returns the evaluated window of a run. `rows` are the requests of the run, and `extent` is their time range.
pub fn find<'r>(
    rows: &(impl Iterator<Item = &'r Row> + Clone),
    extent: RunExtent,
    warmup: Trim,
    ramp_down: Trim,
) -> Window {
    let searched = warmup == Trim::Auto || ramp_down == Trim::Auto;
    let search = || steady_state(rows, extent, warmup == Trim::Auto, ramp_down == Trim::Auto);
    let steady = searched.then(search).transpose();
    let found = steady.ok().flatten().unwrap_or(StartRange::ALL);
    let nth_start = |place| nth_start(rows.clone(), place).unwrap_or(StartRange::ALL.until);
    let from = match warmup {
        Trim::Auto => found.from,
        Trim::None => StartRange::ALL.from,
        Trim::Time(time) => extent.from.saturating_add(nanos(time)),
        Trim::Requests(count) => nth_start(count),
    };
    let until = match ramp_down {
        Trim::Auto => found.until,
        Trim::None => StartRange::ALL.until,
        Trim::Time(time) => extent.to.saturating_sub(nanos(time)),
        Trim::Requests(0) => StartRange::ALL.until,
        Trim::Requests(count) => nth_start(extent.requests.saturating_sub(count)),
    };
    let bounds = StartRange { from, until };
    let count = |range: StartRange| rows.clone().filter(|row| range.contains(row)).count() as u64;
    let (cut_before, counted) = (count(StartRange { from: 0, until: from }), count(bounds));
    let from = from.clamp(extent.from, extent.to);
    let to = until.clamp(from, extent.to);
    Window {
        method: method(warmup, ramp_down),
        steady: matches!(steady, Ok(Some(_))),
        not_found: steady.err(),
        from: time::format(from),
        to: time::format(to),
        offset: (from - extent.from) as f64 / 1e9,
        length: (to - from) as f64 / 1e9,
        cut_before,
        cut_after: extent.requests - cut_before - counted,
        counted,
        bounds,
    }
}

/// Returns the start time of the request with the index `place`, in the order of start times.
fn nth_start<'r>(rows: impl Iterator<Item = &'r Row>, place: u64) -> Option<u64> {
    let mut starts: Vec<u64> = rows.map(|row| row.start).collect();
    starts.sort_unstable();
    starts.get(usize::try_from(place).ok()?).copied()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn method(warmup: Trim, ramp_down: Trim) -> String {
    let cut = |cut| match cut {
        Trim::Auto => "detected".to_owned(),
        Trim::None => "nothing removed".to_owned(),
        Trim::Time(time) => format!("{} s removed", time.as_secs_f64()),
        Trim::Requests(count) => format!("{count} requests removed"),
    };
    let ends = format!("start: {}, end: {}", cut(warmup), cut(ramp_down));
    match (warmup, ramp_down) {
        (Trim::Auto, Trim::Auto) => steady::METHOD.to_owned(),
        (Trim::Auto, _) | (_, Trim::Auto) => format!("{ends}; detected by {}", steady::METHOD),
        (Trim::None | Trim::Time(_) | Trim::Requests(_), _) => ends,
    }
}

fn steady_state<'r>(
    rows: &(impl Iterator<Item = &'r Row> + Clone),
    extent: RunExtent,
    beginning: bool,
    end: bool,
) -> Result<StartRange, &'static str> {
    if extent.requests < MIN_REQUESTS {
        return Err(TOO_FEW);
    }
    let grid = extent.slices().ok_or(NO_TIME)?;
    let tokens = tokens(rows.clone(), grid);
    let tail = if end { steady::truncation_of_end(&tokens).ok_or(NO_STEADY_STATE)? } else { 0 };
    let left = grid.count.saturating_sub(tail);
    let head = if beginning {
        let by_tokens = tokens.get(..left).and_then(steady::truncation).ok_or(NO_STEADY_STATE)?;
        by_tokens.max(latency_cut(rows.clone(), grid, left)?)
    } else {
        0
    };
    Ok(StartRange {
        from: if head > 0 { grid.slice_start(head) } else { StartRange::ALL.from },
        until: if tail > 0 { grid.slice_start(left) } else { StartRange::ALL.until },
    })
}

/// Returns the number of time slices to remove from the start, because their latency differs from later slices.
/// Latency is the time to first token. For a response without this time, latency is the duration. Slices in which no
/// request started are skipped. Returns 0 if too few slices are left.
fn latency_cut<'r>(
    rows: impl Iterator<Item = &'r Row>,
    grid: TimeGrid,
    slices: usize,
) -> Result<usize, &'static str> {
    let latency = |row: &Row| {
        row.value_if_ok(NumericField::First).or_else(|| row.value_if_ok(NumericField::Duration))
    };
    let slices = values_by_slice(rows, grid, latency).into_iter().take(slices).enumerate();
    let (places, means): (Vec<usize>, Vec<f64>) =
        slices.filter_map(|(place, values)| Some((place, mean(values.into_iter())?))).unzip();
    if !steady::is_long_enough(&means) {
        return Ok(0);
    }
    let cut = steady::truncation(&means).ok_or(NO_STEADY_STATE)?;
    // If nothing is removed, the empty slices before the first measured slice are kept, too.
    Ok(if cut == 0 { 0 } else { places.get(cut).copied().unwrap_or(0) })
}

/// Returns, for each time slice, the values of the requests that started in the slice.
pub fn values_by_slice<'r>(
    rows: impl Iterator<Item = &'r Row>,
    grid: TimeGrid,
    value: impl Fn(&Row) -> Option<f64>,
) -> Vec<Vec<f64>> {
    let mut slices = vec![Vec::new(); grid.count];
    for row in rows {
        if let Some(slice) = slices.get_mut(grid.slice_index(row.start)) {
            slice.extend(value(row));
        }
    }
    slices
}

/// Returns the number of output tokens in each time slice. The tokens of a response are distributed evenly from its
/// first to its last token.
pub fn tokens<'r>(rows: impl Iterator<Item = &'r Row>, grid: TimeGrid) -> Vec<f64> {
    let mut spread = SliceTotals::new(grid);
    for row in rows {
        if let Some(tokens) = row.value(NumericField::Generated) {
            let from = row.after(row.value(NumericField::First).unwrap_or(0.0));
            let to =
                row.value(NumericField::Last).map_or_else(|| row.end(), |last| row.after(last));
            spread.add(from, to.max(from), tokens);
        }
    }
    spread.amounts()
}

/// Returns the mean number of open requests in each time slice.
pub fn concurrency<'r>(rows: impl Iterator<Item = &'r Row>, grid: TimeGrid) -> Vec<f64> {
    let mut spread = SliceTotals::new(grid);
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

    /// Returns one request per 100 ms for 100 s. In the first 20 s, the time to first token is 3 s, and afterwards 0.2
    /// s.
    fn rows() -> Vec<Row> {
        (0..1_000)
            .map(|n| {
                let mut row = Row::new(1_000 * SECOND + n * SECOND / 10, Outcome::Ok);
                let first = if n < 200 { 3.0 } else { 0.2 };
                row.set(NumericField::First, Some(first));
                row.set(NumericField::Last, Some(first + 1.0));
                row.set(NumericField::Duration, Some(first + 1.0));
                row.set(NumericField::Generated, Some(50.0));
                row
            })
            .collect()
    }

    fn found(rows: &[Row], warmup: Trim, ramp_down: Trim) -> Window {
        let extent = RunExtent::from_rows(rows.iter()).unwrap();
        find(&rows.iter(), extent, warmup, ramp_down)
    }

    #[test]
    fn removes_a_slow_start_and_keeps_the_end() {
        let window = found(&rows(), Trim::Auto, Trim::Auto);
        assert!(window.steady, "{window:?}");
        assert!((200..=260).contains(&window.cut_before), "{window:?}");
        assert!(window.cut_after <= 20, "{window:?}");
        assert_eq!(window.cut_before + window.counted + window.cut_after, 1_000);
    }

    #[test]
    fn removes_the_configured_parts() {
        let rows = rows();
        for (warmup, ramp_down, cut) in [
            (Trim::None, Trim::None, (0, 0)),
            (Trim::Time(Duration::from_secs(10)), Trim::None, (100, 0)),
            (Trim::Requests(7), Trim::Requests(5), (7, 5)),
            (Trim::Requests(0), Trim::Requests(0), (0, 0)),
            // The last response starts at 99.9 s and ends 1.2 s later.
            (Trim::None, Trim::Time(Duration::from_millis(2_200)), (0, 11)),
            (Trim::Requests(5_000), Trim::None, (1_000, 0)),
        ] {
            let window = found(&rows, warmup, ramp_down);
            assert_eq!((window.cut_before, window.cut_after), cut, "{warmup:?} {ramp_down:?}");
            assert!(!window.steady && window.not_found.is_none());
        }
    }

    #[test]
    fn uses_all_requests_without_a_steady_state() {
        let few = rows().split_off(950);
        assert_eq!(found(&few, Trim::Auto, Trim::Auto).not_found, Some(TOO_FEW));
        let mut rising = rows();
        for (n, row) in rising.iter_mut().enumerate() {
            row.set(NumericField::Generated, Some(n as f64));
        }
        let window = found(&rising, Trim::Auto, Trim::None);
        assert_eq!((window.not_found, window.counted), (Some(NO_STEADY_STATE), 1_000));
        let instant = vec![Row::new(5, Outcome::Ok); 200];
        assert_eq!(found(&instant, Trim::Auto, Trim::Auto).not_found, Some(NO_TIME));
    }

    #[test]
    fn concurrency_is_the_overlap_of_requests() {
        let row = |start, seconds| {
            let mut row = Row::new(start, Outcome::Ok);
            row.set(NumericField::Duration, Some(seconds));
            row
        };
        let rows = [row(0, 2.0), row(SECOND / 2, 1.0)];
        let grid = TimeGrid { from: 0, width: SECOND, count: 3 };
        assert_eq!(concurrency(rows.iter(), grid), [1.5, 1.5, 0.0]);
    }
}
